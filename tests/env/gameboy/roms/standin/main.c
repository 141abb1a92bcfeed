// Stands in for games that cannot be given away: the same variables at the same addresses, moved
// by one key each.
//
//   START   a battle and a round begin        A    an opponent loses 100 of 150
//   SELECT  the round is over                 B    an own one does
//   RIGHT   the battle is left                UP   one more in the box
//   DOWN    40 points, a line                 LEFT a new one is owned
//
// Called "POKEMON YELLOW" in its header, it has all but the round one address lower.
#include "game.h"

#define BYTE(address) (*(volatile uint8_t *)(address))
#define P1 BYTE(0xFF00)
#define LCDC BYTE(0xFF40)
#define KIND 0x13C // the title's ninth letter

enum { KEY_RIGHT = 1, KEY_LEFT = 2, KEY_UP = 4, KEY_DOWN = 8 };
enum { KEY_A = 0x10, KEY_B = 0x20, KEY_SELECT = 0x40, KEY_START = 0x80 };

static uint8_t held, pressed, shift, owned;

static void read_keys(void) {
    uint8_t directions, buttons, before = held;
    P1 = 0x20;
    directions = P1;
    directions = P1;
    P1 = 0x10;
    buttons = P1;
    buttons = P1;
    buttons = P1;
    P1 = 0x30;
    held = (~directions & 0x0F) | (uint8_t)((~buttons & 0x0F) << 4);
    pressed = held & (uint8_t)~before;
}

static void set_hp(uint16_t first, uint8_t slot, uint16_t hp) {
    uint16_t at = first - shift + (uint16_t)slot * SLOT_BYTES;
    BYTE(at) = hp >> 8;
    BYTE(at + 1) = hp & 0xFF;
}

static void hurt(uint16_t first) {
    uint8_t slot, hp;
    for (slot = 0; slot < SLOTS; slot++) {
        hp = BYTE(first - shift + (uint16_t)slot * SLOT_BYTES + 1);
        if (hp != 0) {
            set_hp(first, slot, hp > 100 ? hp - 100 : 0);
            return;
        }
    }
}

static void begin(void) {
    uint8_t slot;
    for (slot = 0; slot < SLOTS; slot++) {
        set_hp(OWN_HP, slot, 150);
        set_hp(OPPONENT_HP, slot, 150);
    }
    BYTE(IN_BATTLE - shift) = 1;
    BYTE(TETRIS_STATE) = 0;
    BYTE(TETRIS_LEVEL) = 0;
}

static void score_a_line(void) {
    uint8_t tens = BYTE(TETRIS_SCORE);
    tens += 0x40;
    if (tens >= 0xA0) {
        tens -= 0xA0;
        BYTE(TETRIS_SCORE + 1)++; // up to 999 points
    }
    BYTE(TETRIS_SCORE) = tens;
}

static void step(void) {
    if (pressed & KEY_START)
        begin();
    if (pressed & KEY_A)
        hurt(OPPONENT_HP);
    if (pressed & KEY_B)
        hurt(OWN_HP);
    if (pressed & KEY_LEFT) {
        BYTE(OWNED - shift + (owned >> 3)) |= (uint8_t)(1 << (owned & 7));
        owned++;
    }
    if (pressed & KEY_UP)
        BYTE(BOX_COUNT - shift)++;
    if (pressed & KEY_RIGHT)
        BYTE(IN_BATTLE - shift) = 0;
    if (pressed & KEY_DOWN)
        score_a_line();
    if (pressed & KEY_SELECT)
        BYTE(TETRIS_STATE) = 13;
}

void main(void) {
    shift = BYTE(KIND) == 'Y';
    owned = held = 0;
    BYTE(TETRIS_STATE) = 1;
    LCDC = 0x91;
    for (;;) {
        wait_vblank();
        read_keys();
        step();
    }
}
