// Everything the player sees. Sprites and one background row are prepared in
// RAM and copied to video memory at the start of the next VBlank; the two
// background maps (title, game) are written once, before the screen is on.
#include "game.h"
#include "tiles.h"

#define LCDC (*(volatile uint8_t *)0xFF40)
#define SCY (*(volatile uint8_t *)0xFF42)
#define SCX (*(volatile uint8_t *)0xFF43)
#define LY (*(volatile uint8_t *)0xFF44)
#define BGP (*(volatile uint8_t *)0xFF47)
#define OBP0 (*(volatile uint8_t *)0xFF48)

#define LCD_ON_TITLE_MAP 0x97 // tiles at 0x8000, sprites of 8x16
#define LCD_ON_GAME_MAP 0x9F
#define NIGHT 0x1B // colour 0 is black, colour 3 is white

#define TILES ((uint8_t *)0x8000)
#define TITLE_MAP 0x9800
#define GAME_MAP 0x9C00
#define MAP_WIDTH 32
#define OAM ((uint8_t *)0xFE00)
#define OAM_BYTES 160

#define COLUMNS 20
#define ROWS 18
#define LOGO_ROW 4
#define MOTTO_ROW 8
#define PROMPT_ROW 11
#define HILLS_ROW 14
#define SEA_ROW 16
#define PANEL_ROW 5
#define PANEL_ROWS 8

struct sprite {
    uint8_t y, x, tile, attributes;
};
enum { PADDLE_SPRITE = 0, STAR_SPRITE = 4, TWINKLE_SPRITE = 8, SPRITES = 12 };
#define TWINKLES (SPRITES - TWINKLE_SPRITE)

struct sprite sprites[SPRITES];
uint8_t row[COLUMNS];
uint16_t row_address;

static uint8_t lcdc;
static uint8_t drawn_screen, rows_drawn;

// --- background rows -------------------------------------------------------

static const struct {
    uint8_t row, column, tile;
} dots[] = {
    {1, 3, TILE_DOTS},      {1, 12, TILE_DOTS + 1}, {2, 7, TILE_DOTS + 2},
    {3, 17, TILE_DOTS},     {4, 1, TILE_DOTS + 1},  {5, 10, TILE_DOTS + 2},
    {6, 15, TILE_DOTS + 1}, {7, 4, TILE_DOTS},      {9, 18, TILE_DOTS + 2},
    {9, 1, TILE_DOTS},      {10, 8, TILE_DOTS + 1}, {12, 13, TILE_DOTS},
    {12, 3, TILE_DOTS + 2}, {13, 17, TILE_DOTS + 1},
};

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
    static const uint16_t powers[] = {10000, 1000, 100, 10, 1};
    uint16_t power;
    uint8_t i, tile;
    for (i = 5 - digits; i < 5; i++) {
        power = powers[i];
        tile = TILE_DIGITS;
        while (value >= power) {
            value -= power;
            tile++;
        }
        row[column++] = tile;
    }
}

static void landscape_row(uint8_t y) {
    uint8_t i, tile;
    for (i = 0; i < COLUMNS; i++) {
        tile = TILE_BLANK;
        if (y >= SEA_ROW)
            tile = TILE_SEA + (i & 3) * 2 + (y - SEA_ROW);
        else if (y >= HILLS_ROW)
            tile = TILE_HILLS + (i & 7) * 2 + (y - HILLS_ROW);
        row[i] = tile;
    }
    for (i = 0; i < sizeof dots / sizeof dots[0]; i++)
        if (dots[i].row == y)
            row[dots[i].column] = dots[i].tile;
}

static void title_row(uint8_t y) {
    static const uint8_t letters[] = {0, 1, 2, 3, 4, 2, 5, 5}; // STAR FALL
    uint8_t i;
    landscape_row(y);
    if (y < 3)
        for (i = 0; i < 3; i++)
            row[15 + i] = TILE_MOON + i * 3 + y;
    if (y >= LOGO_ROW && y < LOGO_ROW + 3)
        for (i = 0; i < 16; i++)
            row[2 + i] = TILE_LOGO + (letters[i / 2] * 2 + i % 2) * 3 + (y - LOGO_ROW);
    if (y == MOTTO_ROW)
        write_text(2, "CATCH EVERY STAR");
    if (y == PROMPT_ROW && !(ram.frame & 0x20))
        write_text(4, "PRESS START");
}

static void status_row(void) {
    uint8_t i;
    for (i = 0; i < COLUMNS; i++)
        row[i] = TILE_BLANK;
    row[0] = TILE_SCORE;
    write_number(2, ram.score, 5);
    write_text(9, "LV");
    write_number(12, ram.level, 2);
    for (i = 0; i < ram.lives; i++)
        row[19 - i] = TILE_HEART;
}

static void panel_row(uint8_t y) {
    landscape_row(y);
    if (ram.screen != GAME_OVER)
        return;
    switch (y - PANEL_ROW) {
    case 0:
        write_text(5, "GAME OVER");
        row[3] = row[15] = TILE_SCORE;
        break;
    case 2:
        write_text(4, "SCORE");
        write_number(10, ram.score, 5);
        break;
    case 4:
        write_text(4, "BEST");
        write_number(10, best_score, 5);
        break;
    case 7:
        write_text(4, "PRESS START");
        break;
    }
}

// --- sprites ---------------------------------------------------------------

// Sprites are 8x16; the hardware counts from 8 left of and 16 above the screen.
static void put(uint8_t sprite, uint8_t x, uint8_t y, uint8_t tile) {
    struct sprite *s = &sprites[sprite];
    s->x = x + 8;
    s->y = y + 16;
    s->tile = tile;
}

static void hide_sprites(void) {
    uint8_t i;
    for (i = 0; i < SPRITES; i++)
        sprites[i].y = 0;
}

static void draw_paddle(void) {
    uint8_t i, x = ram.paddle_x;
    for (i = 0; i < PADDLE_WIDTH / 8; i++)
        put(PADDLE_SPRITE + i, x + i * 8, PADDLE_Y, TILE_BOAT + i * 2);
}

static void draw_16x16(uint8_t sprite, uint8_t x, uint8_t y, uint8_t tile) {
    put(sprite, x, y, tile);
    put(sprite + 1, x + 8, y, tile + 2);
}

static void draw_stars(void) {
    uint8_t i;
    for (i = 0; i < STARS; i++) {
        if (ram.star[i].y != NOWHERE)
            draw_16x16(STAR_SPRITE + i * 2, ram.star[i].x, ram.star[i].y, TILE_STAR);
        else if (effects[i].frames)
            draw_16x16(STAR_SPRITE + i * 2, effects[i].x, LANDING_Y,
                       effects[i].kind == CAUGHT ? TILE_SPARKS : TILE_SPLASH);
    }
}

// The star of the title screen sits in the boat: at equal x the sprite that
// comes first, the boat, is in front.
static void draw_passenger(void) {
    uint8_t bob = (uint8_t)(ram.frame >> 4) & 1;
    draw_16x16(STAR_SPRITE, ram.paddle_x + 8, PADDLE_Y - 8 + bob, TILE_STAR);
}

static void draw_twinkles(void) {
    static const uint8_t where[TWINKLES][2] = {{20, 12}, {96, 16}, {10, 84}, {64, 104}};
    uint8_t i, phase;
    for (i = 0; i < TWINKLES; i++) {
        phase = ((uint8_t)(ram.frame >> 3) + i * 5) & 7;
        if (phase < 3)
            put(TWINKLE_SPRITE + i, where[i][0], where[i][1], TILE_TWINKLE + (phase == 1) * 2);
    }
}

// --- whole screens ---------------------------------------------------------

static void draw_map(uint16_t address, void (*compose)(uint8_t)) {
    uint8_t x, y;
    uint8_t *map = (uint8_t *)address;
    for (y = 0; y < ROWS; y++) {
        compose(y);
        for (x = 0; x < COLUMNS; x++)
            map[x] = row[x];
        map += MAP_WIDTH;
    }
}

void prepare_picture(void) {
    uint16_t i;
    while (LY != 144) // the screen may only be switched off inside VBlank
        ;
    LCDC = 0;
    for (i = 0; i < sizeof tile_data; i++)
        TILES[i] = tile_data[i];
    for (i = 0; i < OAM_BYTES; i++)
        OAM[i] = 0;
    draw_map(TITLE_MAP, title_row);
    draw_map(GAME_MAP, landscape_row);
    SCX = SCY = 0;
    BGP = OBP0 = NIGHT;
    LCDC = LCD_ON_TITLE_MAP;
}

// One row of video memory changes per frame. After a change of screen these are
// the status row, then the rows of the panel (drawn, or cleaned of it), and
// from then on the status row again.
static void draw_game_row(void) {
    uint8_t y = 0;
    if (rows_drawn <= PANEL_ROWS) {
        if (rows_drawn > 0)
            y = PANEL_ROW - 1 + rows_drawn;
        rows_drawn++;
    }
    row_address = GAME_MAP + y * MAP_WIDTH;
    if (y == 0)
        status_row();
    else
        panel_row(y);
}

void draw(void) {
    if (drawn_screen != ram.screen) {
        drawn_screen = ram.screen;
        rows_drawn = 0;
    }
    hide_sprites();
    draw_paddle();
    if (ram.screen == TITLE) {
        draw_passenger();
        draw_twinkles();
        title_row(PROMPT_ROW);
        row_address = TITLE_MAP + PROMPT_ROW * MAP_WIDTH;
    } else {
        if (ram.screen == PLAYING)
            draw_stars();
        draw_game_row();
    }
    lcdc = ram.screen == TITLE ? LCD_ON_TITLE_MAP : LCD_ON_GAME_MAP;
}

void commit_picture(void) {
    present();
    LCDC = lcdc;
}
