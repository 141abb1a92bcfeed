// The rules: how the paddle moves, where stars appear, what a catch is worth.
#include "game.h"

#define PADDLE_SPEED 4
#define PADDLE_MAX (FIELD_WIDTH - PADDLE_WIDTH)
#define MIN_OVERLAP 4
#define START_LIVES 3
#define CATCHES_PER_LEVEL 8
#define LAST_LEVEL 99
#define TWO_STARS_LEVEL 4
#define PAUSE_FRAMES 10
#define EFFECT_FRAMES 8

// Speeds and heights in 1/256 pixel.
#define FIRST_SPEED 0x200
#define SPEED_STEP 0x040
#define TOP_SPEED 0x480
#define HALF_WAY ((FIELD_TOP + LANDING_Y) / 2)

// Stars appear on a grid of cells of 4 pixels.
#define CELL 4
#define LAST_CELL ((FIELD_WIDTH - STAR_WIDTH) / CELL)
#define FAR_CELLS 12

struct effect effects[STARS];
uint16_t best_score;

static uint16_t random_state, speed;
static uint16_t height[STARS];
static uint8_t pause, last_cell;

static uint8_t random_byte(void) {
    random_state ^= random_state << 7;
    random_state ^= random_state >> 9;
    random_state ^= random_state << 8;
    return (uint8_t)(random_state >> 8);
}

static uint8_t random_below(uint8_t n) {
    return (uint8_t)(((uint16_t)random_byte() * n) >> 8);
}

void seed_random(uint16_t seed) {
    uint8_t i;
    random_state = seed ? seed : 1; // zero is the one state it never leaves
    for (i = 0; i < 8; i++)
        random_byte(); // neighbouring seeds start out alike
}

void start_game(void) {
    uint8_t i;
    ram.score = 0;
    ram.lives = START_LIVES;
    ram.level = 1;
    ram.paddle_x = PADDLE_CENTRE;
    ram.stars_in_flight = 0;
    for (i = 0; i < STARS; i++) {
        ram.star[i].x = 0;
        ram.star[i].y = NOWHERE;
        effects[i].frames = 0;
    }
    speed = FIRST_SPEED;
    pause = PAUSE_FRAMES;
    last_cell = LAST_CELL / 2;
}

static void move_paddle(uint8_t keys) {
    uint8_t x = ram.paddle_x;
    keys &= KEY_LEFT | KEY_RIGHT;
    if (keys == KEY_LEFT && x > 0)
        ram.paddle_x = x - PADDLE_SPEED;
    else if (keys == KEY_RIGHT && x < PADDLE_MAX)
        ram.paddle_x = x + PADDLE_SPEED;
}

// A lone star appears well away from the last one, so that a paddle that
// stands still loses and every catch takes a decision.
static uint8_t far_cell(void) {
    uint8_t left = 0, right = 0, first_right = last_cell + FAR_CELLS, pick;
    if (last_cell >= FAR_CELLS)
        left = last_cell - FAR_CELLS + 1;
    if (first_right <= LAST_CELL)
        right = LAST_CELL - first_right + 1;
    pick = random_below(left + right);
    return pick < left ? pick : first_right + (pick - left);
}

// A second star lands later than the first by the distance between them over
// the speed. Even at top speed the paddle covers 4 / 4.5 of that distance in
// that time; 7/8 of it is always within reach.
static uint8_t reachable_cell(uint8_t other) {
    uint8_t ahead = ram.star[other].y - FIELD_TOP;
    uint8_t reach = (uint8_t)(ahead - ahead / 8) / CELL;
    uint8_t cell = ram.star[other].x / CELL;
    uint8_t low = cell > reach ? cell - reach : 0;
    uint8_t high = cell + reach < LAST_CELL ? cell + reach : LAST_CELL;
    return low + random_below(high - low + 1);
}

static void spawn_star(uint8_t slot) {
    uint8_t other = slot ^ 1;
    if (ram.star[slot].y != NOWHERE)
        return;
    if (ram.star[other].y == NOWHERE) {
        last_cell = far_cell();
    } else {
        if (ram.level < TWO_STARS_LEVEL || ram.star[other].y < HALF_WAY)
            return;
        last_cell = reachable_cell(other);
    }
    height[slot] = FIELD_TOP << 8;
    ram.star[slot].x = last_cell * CELL;
    ram.star[slot].y = FIELD_TOP;
    ram.stars_in_flight++;
}

static void score_catch(void) {
    uint16_t score = ram.score + 1;
    ram.score = score;
    if (score > best_score)
        best_score = score;
    if (score % CATCHES_PER_LEVEL == 0 && ram.level < LAST_LEVEL) {
        ram.level++;
        if (speed < TOP_SPEED)
            speed += SPEED_STEP;
    }
}

static void land_star(uint8_t slot) {
    uint8_t star = ram.star[slot].x, paddle = ram.paddle_x;
    uint8_t caught = star + STAR_WIDTH >= paddle + MIN_OVERLAP &&
                     paddle + PADDLE_WIDTH >= star + MIN_OVERLAP;
    effects[slot].kind = caught ? CAUGHT : MISSED;
    effects[slot].frames = EFFECT_FRAMES;
    effects[slot].x = star;
    ram.star[slot].x = 0;
    ram.star[slot].y = NOWHERE;
    ram.stars_in_flight--;
    pause = PAUSE_FRAMES;
    if (caught)
        score_catch();
    else
        ram.lives--;
}

static void move_star(uint8_t slot) {
    if (effects[slot].frames)
        effects[slot].frames--;
    if (ram.star[slot].y == NOWHERE || ram.lives == 0)
        return;
    height[slot] += speed;
    ram.star[slot].y = (uint8_t)(height[slot] >> 8);
    if (ram.star[slot].y >= LANDING_Y)
        land_star(slot);
}

void play(uint8_t keys) {
    move_paddle(keys);
    move_star(0);
    move_star(1);
    if (ram.lives == 0)
        return;
    if (pause) {
        pause--;
        return;
    }
    spawn_star(0);
    spawn_star(1);
}
