// What the files of the game share: the RAM that others read, the geometry of
// the field, and one line per function that crosses a file boundary.
#ifndef GAME_H
#define GAME_H

#include <stdint.h>

enum { TITLE, PLAYING, GAME_OVER };
enum { KEY_RIGHT = 0x01, KEY_LEFT = 0x02, KEY_START = 0x80 };

#define STARS 2
#define NOWHERE 0 // y of a star slot with nothing in flight

// The public part of memory, described in manifest.toml. Its layout is a
// contract with the environment: add at the end, never move a field.
struct ram {
    uint8_t magic;
    uint8_t screen;
    uint16_t score;
    uint8_t lives;
    uint8_t level;
    uint16_t frame;
    uint8_t paddle_x;
    uint8_t stars_in_flight;
    struct {
        uint8_t x, y;
    } star[STARS];
    uint8_t unused[2];
    char title[8];
};
#define ram (*(volatile struct ram *)0xC000)

// Pixels. The field is the whole width of the screen, under one row of text.
#define FIELD_WIDTH 160
#define FIELD_TOP 8
#define PADDLE_WIDTH 32
#define PADDLE_Y 122
#define PADDLE_CENTRE ((FIELD_WIDTH - PADDLE_WIDTH) / 2)
#define STAR_WIDTH 16
#define LANDING_Y 116

// rules.c
enum { NOTHING, CAUGHT, MISSED };
struct effect {
    uint8_t kind, frames, x;
};
extern struct effect effects[STARS];
extern uint16_t best_score;
void seed_random(uint16_t seed);
void start_game(void);
void play(uint8_t keys);

// picture.c
void prepare_picture(void);
void draw(void);
void commit_picture(void);

// crt0.s and present.s
void wait_vblank(void);
void present(void);

#endif
