// Addresses of the variables that the paper's games are played for.
#ifndef GAME_H
#define GAME_H

#include <stdint.h>

#define SLOTS 6
#define SLOT_BYTES 44
#define OWN_HP 0xD16C
#define OPPONENT_HP 0xD8A5
#define IN_BATTLE 0xD057
#define OWNED 0xD2F7
#define BOX_COUNT 0xDA80
#define TETRIS_SCORE 0xC0A0
#define TETRIS_STATE 0xFFE1
#define TETRIS_LEVEL 0xFFA9

void wait_vblank(void);

#endif
