// The flow of the game: the four menus, and what is told between two of them.
#include "game.h"

// How long something is told. Whoever holds B hears it four times as fast.
#define OPENING_FRAMES 48
#define TELLING_FRAMES 32
#define RESULT_FRAMES 48
#define HURRY 4

enum { FIGHT, ITEM, CHANGE, GUARD };
enum { PLAYER_DONE, OPPONENT_DONE, ENTERED };

uint8_t chosen_encounter = 1;

static uint8_t frames_left, stage;

static void show(uint8_t screen, uint8_t frames) {
    ram.screen = screen;
    frames_left = frames;
    touch(1, 17);
}

static void open_menu(uint8_t screen, uint8_t cursor) {
    ram.screen = screen;
    ram.cursor = cursor;
    touch(1, 17);
}

static void tell_next(uint8_t next) {
    stage = next;
    show(TELLING, TELLING_FRAMES);
}

static void open_encounter(void) {
    touch(0, 0);
    show(OPENING, OPENING_FRAMES);
}

void run_title(uint8_t pressed) {
    uint8_t chosen = chosen_encounter;
    if (pressed & KEY_RIGHT)
        chosen = chosen < ENCOUNTERS ? chosen + 1 : 1;
    else if (pressed & KEY_LEFT)
        chosen = chosen > 1 ? chosen - 1 : ENCOUNTERS;
    if (chosen != chosen_encounter) {
        chosen_encounter = chosen;
        touch(0, 17);
    }
    if (pressed & KEY_START) {
        // The frame of the key press, not the divider register: two
        // emulators agree on the one, never on the other.
        seed_chance(ram.frame);
        begin_run(chosen);
        open_encounter();
    }
}

// --- menus -----------------------------------------------------------------

// The cells of a menu lie in two rows of two.
static void move_cursor(uint8_t pressed) {
    uint8_t cursor = ram.cursor;
    if (pressed & KEY_RIGHT)
        cursor |= 1;
    if (pressed & KEY_LEFT)
        cursor &= 2;
    if (pressed & KEY_DOWN)
        cursor |= 2;
    if (pressed & KEY_UP)
        cursor &= 1;
    if (cursor == ram.cursor)
        return;
    ram.cursor = cursor;
    touch(11, 17);
}

static void choose_command(void) {
    switch (ram.cursor) {
    case FIGHT:
        open_menu(MOVES, 0);
        break;
    case ITEM:
        open_menu(BAG, 0);
        break;
    case CHANGE:
        open_menu(TEAM, 0);
        break;
    case GUARD:
        guard();
        tell_next(PLAYER_DONE);
        break;
    }
}

static void choose(void) {
    uint8_t cursor = ram.cursor;
    switch (ram.screen) {
    case COMMANDS:
        choose_command();
        break;
    case MOVES:
        strike(cursor);
        tell_next(PLAYER_DONE);
        break;
    case BAG:
        if (cursor < ITEMS && ram.items[cursor]) {
            use_item(cursor);
            tell_next(PLAYER_DONE);
        }
        break;
    case TEAM:
        if (cursor && cursor < ram.party_size && party[cursor].hp) {
            uint8_t free = ram.fainted;
            enter(cursor);
            tell_next(free ? ENTERED : PLAYER_DONE);
        }
        break;
    }
}

void run_menu(uint8_t pressed) {
    if (pressed & KEY_A)
        choose();
    else if (pressed & KEY_B && ram.screen != COMMANDS && !ram.fainted)
        open_menu(COMMANDS, ram.screen - MOVES);
    else
        move_cursor(pressed);
}

// --- between menus ---------------------------------------------------------

// The place of the first who can still fight, or the size of the party.
static uint8_t next_in_line(void) {
    uint8_t place = 0;
    while (place < ram.party_size && party[place].hp == 0)
        place++;
    return place;
}

static void player_done(void) {
    if (ram.opponent.hp == 0)
        settle(WON);
    if (ram.outcome != UNDECIDED) {
        show(RESULT, RESULT_FRAMES);
        return;
    }
    opponent_acts();
    ram.guarding = 0;
    tell_next(OPPONENT_DONE);
}

static void opponent_done(void) {
    uint8_t place = next_in_line();
    if (ram.turn < 255)
        ram.turn++;
    if (place == 0) {
        open_menu(COMMANDS, 0);
    } else if (place < ram.party_size) {
        ram.fainted = 1;
        open_menu(TEAM, place);
    } else {
        settle(LOST);
        show(RESULT, RESULT_FRAMES);
    }
}

void run_telling(uint8_t held) {
    uint8_t passed = held & KEY_B ? HURRY : 1;
    if (frames_left > passed) {
        frames_left -= passed;
        return;
    }
    switch (ram.screen) {
    case RESULT:
        next_encounter();
        open_encounter();
        break;
    case OPENING:
        open_menu(COMMANDS, 0);
        break;
    case TELLING:
        if (stage == PLAYER_DONE)
            player_done();
        else if (stage == OPPONENT_DONE)
            opponent_done();
        else
            open_menu(COMMANDS, 0);
        break;
    }
}
