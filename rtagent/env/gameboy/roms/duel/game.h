// What the files of the game share: the RAM that others read, the words of the
// game, and one line per function that crosses a file boundary.
#ifndef GAME_H
#define GAME_H

#include <stdint.h>

enum { TITLE, OPENING, COMMANDS, MOVES, BAG, TEAM, TELLING, RESULT };
enum { UNDECIDED, WON, CAUGHT, LOST };
enum {
    KEY_RIGHT = 0x01,
    KEY_LEFT = 0x02,
    KEY_UP = 0x04,
    KEY_DOWN = 0x08,
    KEY_A = 0x10,
    KEY_B = 0x20,
    KEY_START = 0x80
};

// Each type beats the next two of this ring and loses to the two before it.
enum { SPARK, WATER, FIRE, ICE, LEAF, STONE, TYPES };
enum { WEAK, PLAIN, GREAT };

// Two species of each type: 2 * type and 2 * type + 1.
enum {
    ZAPPIT, VOLTOX, PUDDLE, TIDAR, EMBERO, PYRAX, HAILO, GLACOR, THISTL, BRIARO, PEBBLO, GRANIT,
    SPECIES
};

// A move is its type; a heavy one hits harder, and misses one time in four.
#define HEAVY 0x08
#define MOVE_TYPE(move) ((move) & 0x07)

enum { POTION, BOOST, BALL, ITEMS };

#define ENCOUNTERS 64
#define PARTY 4
#define CELLS 4 // of every menu

struct creature {
    uint8_t species, type, hp, hp_max;
};

// The public part of memory, described in manifest.toml. Its layout is a
// contract with the environment: add at the end, never move a field.
struct ram {
    uint8_t magic;
    uint8_t screen;
    uint16_t frame;
    uint8_t encounter; // 1 to ENCOUNTERS
    uint8_t lap;
    uint16_t wins, losses, catches;
    uint8_t turn;
    uint8_t cursor;
    uint8_t fainted; // the own creature has to be replaced before anything else
    uint8_t outcome;
    uint8_t own_level, opponent_level;
    uint8_t boosts, guarding;
    uint8_t wild;
    uint8_t opponent_potions;
    uint8_t items[ITEMS];
    uint8_t party_size;
    struct creature opponent;
    uint8_t unused[2];
    uint8_t place_of_party[PARTY * sizeof(struct creature)];
    uint8_t own_moves[CELLS], opponent_moves[CELLS];
    char title[8];
};
#define ram (*(volatile struct ram *)0xC000)

// The one that fights comes first. Not a field of its own, because SDCC 4.2
// crashes on some uses of an array of structures inside another one.
#define party ((volatile struct creature *)0xC020)

// opponents.c
struct opponent {
    uint8_t species;
    uint8_t edge;      // levels above the player's
    uint8_t hardiness; // life, in quarters of what one of the player's has
    uint8_t third, fourth; // moves, after a light and a heavy one of its own type
    uint8_t potions;
    uint8_t wits; // how many times in four it picks its best move
    uint8_t wild;
};
struct kind {
    char name[7];
    uint8_t life, attack, defence;
};
extern const struct opponent opponents[ENCOUNTERS];
extern const struct kind kinds[SPECIES];

// battle.c: what has just happened, for the teller.
enum { STRIKES, MISSES, DRINKS, GROWS, THROWS, GUARDS, ENTERS };
struct tale {
    uint8_t what, by_opponent, move, effect;
};
extern struct tale tale;
void stir_chance(void);
void seed_chance(uint16_t seed);
void begin_run(uint8_t encounter);
void begin_encounter(void);
void next_encounter(void);
void strike(uint8_t slot);
void use_item(uint8_t item);
void enter(uint8_t place);
void guard(void);
void opponent_acts(void);
void settle(uint8_t outcome);

// menu.c
void run_title(uint8_t pressed);
void run_menu(uint8_t pressed);
void run_telling(uint8_t held);
extern uint8_t chosen_encounter;

// picture.c
void prepare_picture(void);
void touch(uint8_t first, uint8_t last);
void draw(void);
void commit_picture(void);

// crt0.s and present.s
void wait_vblank(void);
void present(void);

#endif
