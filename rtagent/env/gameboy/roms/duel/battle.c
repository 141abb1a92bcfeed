// The rules: who strikes whom how hard, what items do, and how an encounter ends.
#include "game.h"

#define LIGHT_POWER 12
#define HEAVY_POWER 18
#define HEAVY_MISS 64 // of 256
#define MOST_BOOSTS 2
#define START_POTIONS 2
#define START_BOOSTS 1
#define START_BALLS 3
#define OWN (PARTY - 1) // members who are there from the start
#define NOBODY 0xFF
#define MOST_LIFE 255

struct tale tale;

static uint16_t chance;
static uint8_t guest; // the newest catch comes along as the last of the party

static uint8_t random_byte(void) {
    chance ^= chance << 7;
    chance ^= chance >> 9;
    chance ^= chance << 8;
    return (uint8_t)(chance >> 8);
}

static uint8_t random_below(uint8_t n) {
    return (uint8_t)(((uint16_t)random_byte() * n) >> 8);
}

void stir_chance(void) {
    chance += ram.frame;
    if (!chance)
        chance = 1; // the one state it never leaves
    random_byte();
}

void seed_chance(uint16_t seed) {
    uint8_t i;
    chance = seed ? seed : 1;
    for (i = 0; i < 8; i++)
        random_byte(); // neighbouring seeds start out alike
}

// --- encounters ------------------------------------------------------------

static void restore(volatile struct creature *one, uint16_t life) {
    one->hp_max = life > MOST_LIFE ? MOST_LIFE : (uint8_t)life;
    one->hp = one->hp_max;
}

static void join(uint8_t place, uint8_t species) {
    party[place].species = species;
    party[place].type = species >> 1;
}

// The same four for all of a species: its opposite's type first, so that
// whoever takes the first move each time does not play well.
static void learn_moves(void) {
    static const uint8_t ahead[CELLS] = {3, 0, 2, 4};
    uint8_t i, type;
    for (i = 0; i < CELLS; i++) {
        type = party[0].type + ahead[i];
        ram.own_moves[i] = type < TYPES ? type : type - TYPES;
    }
    ram.own_moves[1] |= HEAVY;
}

void begin_run(uint8_t encounter) {
    ram.encounter = encounter;
    guest = NOBODY;
    begin_encounter();
}

static void gather_party(void) {
    uint8_t i;
    join(0, ZAPPIT);
    join(1, EMBERO);
    join(2, THISTL);
    ram.party_size = OWN;
    if (guest != NOBODY)
        join(ram.party_size++, guest);
    for (i = 0; i < ram.party_size; i++)
        restore(&party[i], kinds[party[i].species].life + ram.own_level);
}

// Everybody is well again, in the old order, and the bag is full: an encounter
// depends on its number and on the newest catch alone.
void begin_encounter(void) {
    const struct opponent *who = &opponents[ram.encounter - 1];
    ram.own_level = 5 + ram.encounter / 4;
    ram.opponent_level = ram.own_level + who->edge;
    gather_party();
    ram.opponent.species = who->species;
    ram.opponent.type = who->species >> 1;
    restore(&ram.opponent,
            (uint16_t)(kinds[who->species].life + ram.opponent_level) * who->hardiness / 4);
    ram.opponent_moves[0] = ram.opponent.type;
    ram.opponent_moves[1] = ram.opponent.type | HEAVY;
    ram.opponent_moves[2] = who->third;
    ram.opponent_moves[3] = who->fourth;
    ram.opponent_potions = who->potions;
    ram.wild = who->wild;
    ram.items[POTION] = START_POTIONS;
    ram.items[BOOST] = START_BOOSTS;
    ram.items[BALL] = ram.wild ? START_BALLS : 0;
    ram.boosts = ram.guarding = ram.fainted = 0;
    ram.turn = 0;
    ram.outcome = UNDECIDED;
    learn_moves();
}

void next_encounter(void) {
    if (ram.outcome != LOST) {
        if (ram.encounter == ENCOUNTERS) {
            ram.encounter = 0;
            ram.lap++;
        }
        ram.encounter++;
    }
    begin_encounter();
}

void settle(uint8_t outcome) {
    ram.outcome = outcome;
    if (outcome == WON)
        ram.wins++;
    else if (outcome == CAUGHT)
        ram.catches++;
    else
        ram.losses++;
}

// --- one blow --------------------------------------------------------------

static uint8_t effect_of(uint8_t move, uint8_t target) {
    uint8_t ahead = target + TYPES - MOVE_TYPE(move);
    if (ahead >= TYPES)
        ahead -= TYPES;
    if (ahead == 1 || ahead == 2)
        return GREAT;
    return ahead == 4 || ahead == 5 ? WEAK : PLAIN;
}

static uint16_t damage_of(uint8_t move, uint8_t attack, uint8_t defence, uint8_t effect) {
    uint16_t amount = (uint16_t)attack * (move & HEAVY ? HEAVY_POWER : LIGHT_POWER);
    amount = amount * (14 + random_below(5)) / defence / 16;
    if (effect == GREAT)
        amount <<= 1;
    else if (effect == WEAK)
        amount >>= 1;
    return amount ? amount : 1;
}

static void hurt(volatile struct creature *one, uint16_t damage) {
    one->hp = damage < one->hp ? one->hp - (uint8_t)damage : 0;
}

static void heal(volatile struct creature *one) {
    uint16_t hp = (uint16_t)one->hp + one->hp_max / 2;
    one->hp = hp < one->hp_max ? (uint8_t)hp : one->hp_max;
}

static void tell(uint8_t what, uint8_t by_opponent) {
    tale.what = what;
    tale.by_opponent = by_opponent;
}

static uint8_t misses(uint8_t move, uint8_t by_opponent) {
    tale.move = move;
    if (!(move & HEAVY) || random_byte() >= HEAVY_MISS)
        return 0;
    tell(MISSES, by_opponent);
    return 1;
}

// --- the player ------------------------------------------------------------

void strike(uint8_t slot) {
    const struct kind *own = &kinds[party[0].species];
    uint8_t move = ram.own_moves[slot], attack = own->attack + ram.own_level;
    if (misses(move, 0))
        return;
    attack += (uint8_t)(attack / 2) * ram.boosts;
    tale.effect = effect_of(move, ram.opponent.type);
    hurt(&ram.opponent, damage_of(move, attack,
                                  kinds[ram.opponent.species].defence + ram.opponent_level,
                                  tale.effect));
    tell(STRIKES, 0);
}

void use_item(uint8_t item) {
    uint8_t odds = 16;
    ram.items[item]--;
    if (item == POTION) {
        heal(&party[0]);
        tell(DRINKS, 0);
    } else if (item == BOOST) {
        if (ram.boosts < MOST_BOOSTS)
            ram.boosts++;
        tell(GROWS, 0);
    } else {
        if (ram.opponent.hp <= ram.opponent.hp_max / 4)
            odds = 192;
        else if (ram.opponent.hp <= ram.opponent.hp_max / 2)
            odds = 96;
        tell(THROWS, 0);
        if (random_byte() < odds) {
            guest = ram.opponent.species;
            settle(CAUGHT);
        }
    }
}

void enter(uint8_t place) {
    volatile struct creature *first = &party[0], *other = &party[place];
    uint8_t species = first->species, type = first->type, hp = first->hp, hp_max = first->hp_max;
    first->species = other->species;
    first->type = other->type;
    first->hp = other->hp;
    first->hp_max = other->hp_max;
    other->species = species;
    other->type = type;
    other->hp = hp;
    other->hp_max = hp_max;
    ram.boosts = 0;
    ram.fainted = 0;
    learn_moves();
    tell(ENTERS, 0);
}

void guard(void) {
    ram.guarding = 1;
    tell(GUARDS, 0);
}

// --- the opponent ----------------------------------------------------------

static uint8_t best_move(void) {
    uint8_t i, effect, best = 0, most = 0;
    for (i = 0; i < CELLS; i++) {
        effect = effect_of(ram.opponent_moves[i], party[0].type) + 1;
        if (effect > most) {
            most = effect;
            best = i;
        }
    }
    return best;
}

void opponent_acts(void) {
    const struct kind *kind = &kinds[ram.opponent.species];
    uint8_t slot, move;
    uint16_t damage;
    if (ram.opponent_potions && ram.opponent.hp <= ram.opponent.hp_max / 4) {
        ram.opponent_potions--;
        heal(&ram.opponent);
        tell(DRINKS, 1);
        return;
    }
    slot = random_below(CELLS);
    if (random_below(4) < opponents[ram.encounter - 1].wits)
        slot = best_move();
    move = ram.opponent_moves[slot];
    if (misses(move, 1))
        return;
    tale.effect = effect_of(move, party[0].type);
    damage = damage_of(move, kind->attack + ram.opponent_level,
                       kinds[party[0].species].defence + ram.own_level, tale.effect);
    if (ram.guarding)
        damage = (damage + 1) / 2;
    hurt(&party[0], damage);
    tell(STRIKES, 1);
}
