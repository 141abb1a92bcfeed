// Duel: battles by menu against sixty-four opponents. One step per VBlank.
#include "game.h"

#define P1 (*(volatile uint8_t *)0xFF00)
#define LY (*(volatile uint8_t *)0xFF44)

// Emulators return to their caller somewhere between the last line of one
// picture and the first line of the next. The step runs well after that (and
// ends well before VBlank), so nobody ever reads a half finished one.
#define STEP_LINE 16

// A key counts when it goes down, and again for every so many frames that it
// stays down: long enough for a player who sees the answer late to let go.
#define REPEAT_FRAMES 12

static uint8_t held, pressed, held_frames;

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
    held_frames++;
    if (held != before)
        held_frames = 0;
    if (held_frames == REPEAT_FRAMES) {
        pressed = held;
        held_frames = 0;
    }
}

static void step(void) {
    switch (ram.screen) {
    case TITLE:
        run_title(pressed);
        break;
    case OPENING:
    case TELLING:
    case RESULT:
        run_telling(held);
        break;
    default:
        // Waiting moves chance on, so the moment of a choice is part of it.
        stir_chance();
        run_menu(pressed);
        break;
    }
}

void main(void) {
    static const char title[] = "DUEL";
    uint8_t i;
    for (i = 0; i < sizeof title; i++)
        ram.title[i] = title[i];
    prepare_picture();
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
