// Everything the player sees: one background, composed row by row in RAM and
// copied to video memory at the start of the next VBlank, and the pictures of
// the two creatures, copied in four pieces each.
#include "game.h"
#include "tiles.h"
#include "creatures.h"

#define LCDC (*(volatile uint8_t *)0xFF40)
#define SCY (*(volatile uint8_t *)0xFF42)
#define SCX (*(volatile uint8_t *)0xFF43)
#define LY (*(volatile uint8_t *)0xFF44)
#define BGP (*(volatile uint8_t *)0xFF47)

#define LCD_ON 0x91 // tiles at 0x8000, background alone
#define DAY 0xE4    // colour 0 is white, colour 3 is black

#define TILES ((uint8_t *)0x8000)
#define MAP ((uint8_t *)0x9800)
#define MAP_WIDTH 32
#define COLUMNS 20
#define ROWS 18
#define ROWS_PER_FRAME 3

// The last 32 tiles hold whoever is on the screen.
#define TILE_OPPONENT 224
#define TILE_OWN 240
#define PIECES 4
#define PIECE_BYTES 64
#define NOBODY 0xFF

#define OPPONENT_ROW 2
#define OPPONENT_COLUMN 15
#define OWN_ROW 7
#define OWN_COLUMN 1
#define PICTURE_ROWS 4
#define RULE_ROW 11
#define MENU_ROW 12
#define BAR_TILES 10
#define THIN_BAR_TILES 5

uint8_t rows[ROWS_PER_FRAME][COLUMNS];
uint8_t *row_addresses[ROWS_PER_FRAME];
uint8_t rows_ready;
const uint8_t *chunk;
uint8_t *chunk_address;

static uint8_t *row; // the one being composed
static uint8_t stale[ROWS];

struct portrait {
    uint8_t species, pieces;
};
static struct portrait opponent_portrait = {NOBODY, PIECES}, own_portrait = {NOBODY, PIECES};

// --- parts of a row --------------------------------------------------------

static const char *const type_names[TYPES] = {"SPARK", "WATER", "FIRE", "ICE", "LEAF", "STONE"};
static const char *const move_names[TYPES][2] = {
    {"JOLT", "BOLT"},   {"SPRAY", "WAVE"}, {"SINGE", "BLAZE"},
    {"CHILL", "FROST"}, {"VINE", "BLADE"}, {"PELT", "CRUSH"},
};
static const char *const command_names[CELLS] = {"FIGHT", "BAG", "TEAM", "GUARD"};
static const char *const item_names[ITEMS] = {"POTION", "BOOST", "BALL"};

static uint8_t letter_tile(char letter) {
    if (letter >= 'A')
        return TILE_LETTERS + (letter - 'A');
    if (letter >= '0')
        return TILE_DIGITS + (letter - '0');
    return TILE_BLANK;
}

static void write_text(uint8_t column, const char *text) {
    while (*text)
        row[column++] = letter_tile(*text++);
}

// Subtracting is several times faster than dividing, which this CPU cannot do.
static void write_number(uint8_t column, uint16_t value, uint8_t digits) {
    static const uint16_t powers[] = {100, 10, 1};
    uint16_t power;
    uint8_t i, tile;
    for (i = 3 - digits; i < 3; i++) {
        power = powers[i];
        tile = 0;
        while (value >= power && tile < 9) {
            value -= power;
            tile++;
        }
        row[column++] = TILE_DIGITS + tile;
    }
}

static void write_icon(uint8_t column, uint8_t tile, uint8_t line) {
    row[column] = tile + line;
    row[column + 1] = tile + 2 + line;
}

static void write_type(uint8_t column, uint8_t type, uint8_t line) {
    write_icon(column, TILE_SPARK + type * 4, line);
}

static uint8_t pixels_of(const volatile struct creature *one, uint8_t tiles) {
    uint16_t all = (uint16_t)one->hp * (tiles * 8);
    uint8_t pixels = (uint8_t)(all / one->hp_max);
    return one->hp && !pixels ? 1 : pixels; // a life is never invisible
}

static void write_bar(uint8_t column, const volatile struct creature *one, uint8_t line) {
    uint8_t i, part, pixels = pixels_of(one, BAR_TILES);
    for (i = 0; i < BAR_TILES; i++) {
        part = pixels < 8 ? pixels : 8;
        pixels -= part;
        row[column++] = TILE_BAR + part * 2 + line;
    }
}

static void write_thin_bar(uint8_t column, const volatile struct creature *one) {
    uint8_t i, part, pixels = pixels_of(one, THIN_BAR_TILES);
    for (i = 0; i < THIN_BAR_TILES; i++) {
        part = pixels < 8 ? pixels : 8;
        pixels -= part;
        row[column++] = TILE_THIN_BAR + part;
    }
}

static void write_picture(uint8_t column, uint8_t tile, uint8_t line) {
    uint8_t i;
    for (i = 0; i < 4; i++)
        row[column++] = tile + i * 4 + line;
}

// --- the arena -------------------------------------------------------------

// Whoever is struck flickers while the blow is told.
static uint8_t flickers(uint8_t by_opponent) {
    return ram.screen == TELLING && tale.what == STRIKES && tale.by_opponent == by_opponent &&
           ram.frame & 4;
}

static void status_row(void) {
    write_text(0, "NO");
    write_number(3, ram.encounter, 2);
    write_text(6, ram.wild ? "WILD" : "RIVAL");
    write_text(14, "WON");
    write_number(17, ram.wins + ram.catches, 3);
}

static void opponent_row(uint8_t line) {
    uint8_t i;
    if (line < PICTURE_ROWS && ram.opponent.hp && !flickers(0) && ram.outcome != CAUGHT)
        write_picture(OPPONENT_COLUMN, TILE_OPPONENT, line);
    if (line == 0) {
        write_text(1, kinds[ram.opponent.species].name);
        write_text(8, "LV");
        write_number(11, ram.opponent_level, 2);
    } else if (line < 3) {
        write_type(1, ram.opponent.type, line - 1);
        write_bar(4, &ram.opponent, line - 1);
    } else if (line < 5) {
        for (i = 0; i < ram.opponent_potions; i++)
            write_icon(4 + i * 2, TILE_POTION, line - 3);
    }
}

static void own_row(uint8_t line) {
    uint8_t i;
    if (line < PICTURE_ROWS && party[0].hp && !flickers(1))
        write_picture(OWN_COLUMN, TILE_OWN, line);
    if (line == 0) {
        write_text(6, kinds[party[0].species].name);
        write_text(13, "LV");
        write_number(16, ram.own_level, 2);
    } else if (line < 3) {
        write_type(6, party[0].type, line - 1);
        write_bar(9, &party[0], line - 1);
    } else {
        for (i = 0; i < ram.boosts; i++)
            write_icon(9 + i * 2, TILE_BOOST, line - 3);
    }
}

// --- the menu --------------------------------------------------------------

static void write_cell(uint8_t cell, uint8_t column, uint8_t line) {
    const volatile struct creature *member = &party[cell];
    uint8_t move = ram.own_moves[cell];
    switch (ram.screen) {
    case COMMANDS:
        write_icon(column, TILE_SWORD + cell * 4, line);
        if (line == 0)
            write_text(column + 2, command_names[cell]);
        break;
    case MOVES:
        write_type(column, MOVE_TYPE(move), line);
        if (line == 0)
            write_text(column + 2, move_names[MOVE_TYPE(move)][move >= HEAVY]);
        else if (move & HEAVY)
            write_text(column + 2, "HEAVY");
        break;
    case BAG:
        if (cell == ITEMS)
            return;
        write_icon(column, TILE_POTION + cell * 4, line);
        if (line == 0)
            write_text(column + 2, item_names[cell]);
        else
            write_number(column + 2, ram.items[cell], 1);
        break;
    case TEAM:
        if (cell >= ram.party_size)
            return;
        write_type(column, member->type, line);
        if (line == 0)
            write_text(column + 2, kinds[member->species].name);
        else
            write_thin_bar(column + 2, member);
        break;
    }
}

static void menu_row(uint8_t line) {
    uint8_t first = 0;
    if (line == 2 || line == 5)
        return;
    if (line > 2) {
        first = 2;
        line -= 3;
    }
    write_cell(first, 2, line);
    write_cell(first + 1, 12, line);
    if ((ram.cursor & 2) == first)
        write_icon(ram.cursor & 1 ? 10 : 0, TILE_ARROW, line);
}

// --- what is told ----------------------------------------------------------

static uint8_t tale_icon(void) {
    switch (tale.what) {
    case DRINKS:
        return TILE_POTION;
    case GROWS:
        return TILE_BOOST;
    case THROWS:
        return TILE_BALL;
    case GUARDS:
        return TILE_SHIELD;
    case ENTERS:
        return TILE_CHANGE;
    default:
        return TILE_SPARK + MOVE_TYPE(tale.move) * 4;
    }
}

static const char *tale_text(void) {
    switch (tale.what) {
    case DRINKS:
        return "DRINKS";
    case GROWS:
        return "GROWS";
    case THROWS:
        return "BALL";
    case GUARDS:
        return "ON GUARD";
    case ENTERS:
        return "ENTERS";
    default:
        return move_names[MOVE_TYPE(tale.move)][tale.move >= HEAVY];
    }
}

static void telling_row(uint8_t line) {
    uint8_t species = tale.by_opponent ? ram.opponent.species : party[0].species;
    if (line < 2)
        write_icon(tale.by_opponent ? 17 : 1, tale_icon(), line);
    if (line == 0)
        write_text(4, kinds[species].name);
    else if (line == 1)
        write_text(4, tale_text());
    else if (line == 3) {
        if (tale.what == MISSES)
            write_text(4, "MISSES");
        else if (tale.what == THROWS)
            write_text(4, ram.outcome == CAUGHT ? "IT STAYS" : "IT BREAKS FREE");
        else if (tale.what == STRIKES && tale.effect == GREAT)
            write_text(4, "A GREAT HIT");
        else if (tale.what == STRIKES && tale.effect == WEAK)
            write_text(4, "A WEAK HIT");
    }
}

static void opening_row(uint8_t line) {
    if (line == 0)
        write_text(4, ram.wild ? "A WILD" : "A RIVAL HAS");
    else if (line == 1)
        write_text(4, kinds[ram.opponent.species].name);
    else if (line == 3)
        write_text(4, type_names[ram.opponent.type]);
    if (line < 2)
        write_type(1, ram.opponent.type, line);
}

static void result_row(uint8_t line) {
    static const char *const words[] = {"", "YOU WIN", "IT IS YOURS", "YOU LOSE"};
    static const uint8_t icons[] = {0, TILE_CROWN, TILE_BALL, TILE_SKULL};
    if (line == 1)
        write_text(4, words[ram.outcome]);
    if (line == 1 || line == 2) {
        write_icon(1, icons[ram.outcome], line - 1);
        write_icon(17, icons[ram.outcome], line - 1);
    }
}

static void title_row(uint8_t y) {
    uint8_t i;
    if (y == 3 || y == 4)
        for (i = 0; i < 8; i++)
            row[6 + i] = TILE_LOGO + i * 2 + (y - 3);
    else if (y >= 7 && y < 11)
        write_picture(8, TILE_OPPONENT, y - 7);
    else if (y == 12)
        write_text(6, kinds[opponents[chosen_encounter - 1].species].name);
    else if (y == 14) {
        write_text(3, "ENCOUNTER");
        write_number(14, chosen_encounter, 2);
    } else if (y == 16)
        write_text(4, "PRESS START");
}

// --- whole screens ---------------------------------------------------------

static void compose(uint8_t y) {
    uint8_t i;
    for (i = 0; i < COLUMNS; i++)
        row[i] = y == RULE_ROW && ram.screen != TITLE ? TILE_RULE : TILE_BLANK;
    if (ram.screen == TITLE)
        title_row(y);
    else if (y == 0)
        status_row();
    else if (y < OPPONENT_ROW)
        return;
    else if (y < OWN_ROW)
        opponent_row(y - OPPONENT_ROW);
    else if (y < RULE_ROW)
        own_row(y - OWN_ROW);
    else if (y == RULE_ROW)
        return;
    else if (ram.screen == TELLING)
        telling_row(y - MENU_ROW);
    else if (ram.screen == OPENING)
        opening_row(y - MENU_ROW);
    else if (ram.screen == RESULT)
        result_row(y - MENU_ROW);
    else
        menu_row(y - MENU_ROW);
}

void touch(uint8_t first, uint8_t last) {
    for (; first <= last; first++)
        stale[first] = 1;
}

void prepare_picture(void) {
    uint16_t i;
    uint8_t x, y;
    uint8_t *map = MAP;
    while (LY != 144) // the screen may only be switched off inside VBlank
        ;
    LCDC = 0;
    for (i = 0; i < sizeof tile_data; i++)
        TILES[i] = tile_data[i];
    row = rows[0];
    for (y = 0; y < ROWS; y++) {
        compose(y);
        for (x = 0; x < COLUMNS; x++)
            map[x] = row[x];
        map += MAP_WIDTH;
    }
    SCX = SCY = 0;
    BGP = DAY;
    LCDC = LCD_ON;
}

static void draw_portrait(struct portrait *portrait, uint8_t species, uint8_t tile) {
    if (portrait->species != species) {
        portrait->species = species;
        portrait->pieces = 0;
    }
    if (chunk || portrait->pieces == PIECES)
        return;
    chunk = creature_data[species] + portrait->pieces * PIECE_BYTES;
    chunk_address = TILES + tile * 16 + portrait->pieces * PIECE_BYTES;
    portrait->pieces++;
}

void draw(void) {
    uint8_t y;
    if (ram.screen == TITLE) {
        draw_portrait(&opponent_portrait, opponents[chosen_encounter - 1].species, TILE_OPPONENT);
    } else {
        draw_portrait(&opponent_portrait, ram.opponent.species, TILE_OPPONENT);
        draw_portrait(&own_portrait, party[0].species, TILE_OWN);
    }
    if (ram.screen == TELLING && tale.what == STRIKES && !(ram.frame & 3)) {
        y = tale.by_opponent ? OWN_ROW : OPPONENT_ROW;
        touch(y, y + PICTURE_ROWS - 1);
    }
    // From the bottom: the menu is what the player waits for.
    y = ROWS;
    while (y-- > 0 && rows_ready < ROWS_PER_FRAME) {
        if (!stale[y])
            continue;
        stale[y] = 0;
        row = rows[rows_ready];
        row_addresses[rows_ready] = MAP + y * MAP_WIDTH;
        compose(y);
        rows_ready++;
    }
}

void commit_picture(void) {
    present();
}
