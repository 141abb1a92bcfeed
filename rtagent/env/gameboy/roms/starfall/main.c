// Starfall: catch the falling stars with a little boat. One step per VBlank.
#include "game.h"

#define P1 (*(volatile uint8_t *)0xFF00)
#define LY (*(volatile uint8_t *)0xFF44)

// Emulators return to their caller somewhere between the last line of one
// picture and the first line of the next. The step runs well after that (and
// ends well before VBlank), so nobody ever reads a half finished one.
#define STEP_LINE 16

static uint8_t held, pressed;

static void read_keys(void) {
    uint8_t directions, buttons, before = held;
    P1 = 0x20;
    directions = P1;
    directions = P1; // the lines need a moment to settle on real hardware
    P1 = 0x10;
    buttons = P1;
    buttons = P1;
    buttons = P1;
    P1 = 0x30;
    held = (~directions & 0x0F) | (uint8_t)((~buttons & 0x0F) << 4);
    pressed = held & (uint8_t)~before;
}

static void begin(void) {
    start_game();
    ram.screen = PLAYING;
}

static void step(void) {
    switch (ram.screen) {
    case TITLE:
        if (pressed & KEY_START) {
            // The frame of the key press, not the divider register: two
            // emulators agree on the one, never on the other.
            seed_random(ram.frame);
            begin();
        }
        break;
    case PLAYING:
        play(held);
        if (ram.lives == 0)
            ram.screen = GAME_OVER;
        break;
    case GAME_OVER:
        if (pressed & KEY_START)
            begin();
        break;
    }
}

void main(void) {
    static const char title[] = "STARFALL";
    uint8_t i;
    for (i = 0; i < sizeof ram.title; i++)
        ram.title[i] = title[i];
    ram.paddle_x = PADDLE_CENTRE;
    prepare_picture();
    draw();
    ram.magic = 0x5A; // last: whoever sees it sees a machine that has booted
    for (;;) {
        wait_vblank();
        commit_picture();
        while (LY != STEP_LINE)
            ;
        ram.frame++;
        read_keys();
        step();
        draw();
    }
}
