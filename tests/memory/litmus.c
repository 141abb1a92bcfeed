/* Two threads and the fence of rtagent: how often what must not be seen was seen.
 *
 *     litmus message ROUNDS    a word says that others are there
 *     litmus gather ROUNDS     frames are published as frames.py does it, and gathered by gather.c
 *
 * With -DREORDERED the writer stores in the order in which ARM64 may carry out its stores if there
 * is no fence: the harness must notice. So that it does on a machine where the two threads hardly
 * ever run at once, the writer waits in that state, in one round, until the reader has looked.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME = 512, CAPACITY = 16, STACK = 2, NEAR = 15, WORDS = 32 };

/* As in gather.c. */
struct job {
    const int64_t *newest, *floor, *numbers, *episode_starts;
    const char *frames;
    const int64_t *wanted;
    char *out;
    uint8_t *right;
    int64_t capacity, frame_bytes, stack, guard, count, length;
};

void rtagent_fence(void);
int64_t rtagent_gather(const struct job *job);

static _Alignas(256) _Atomic int64_t newest = -1;
static _Alignas(256) _Atomic int64_t message[WORDS];
static _Alignas(256) _Atomic int64_t numbers[CAPACITY];
static _Alignas(256) _Atomic int64_t starts[CAPACITY];
static _Alignas(256) volatile char frames[CAPACITY][FRAME];
static const int64_t floor_word = 0;
static _Alignas(256) _Atomic int64_t looks;
static int64_t rounds;

static void set(_Atomic int64_t *word, int64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static int64_t get(_Atomic int64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

#ifdef REORDERED
/* Returns at once but in the round in the middle. */
static void wait_until_looked_at(int64_t round)
{
    int64_t enough = get(&looks) + 2 * NEAR;
    while (round == rounds / 2 && get(&looks) < enough)
        sched_yield();
}
#endif

static void write_message(int64_t round)
{
    for (int i = 0; i < WORDS; i++)
        set(&message[i], round);
}

static void *send_messages(void *nothing)
{
    for (int64_t round = 0; round < rounds; round++) {
#ifdef REORDERED
        set(&newest, round);
        wait_until_looked_at(round);
        write_message(round);
#else
        write_message(round);
        rtagent_fence();
        set(&newest, round);
#endif
    }
    return nothing;
}

static int64_t receive_messages(void)
{
    int64_t wrong = 0, seen = -1;
    while (seen < rounds - 1) {
        seen = get(&newest);
        rtagent_fence();
        for (int i = 0; i < WORDS; i++)
            wrong += get(&message[i]) < seen;
        set(&looks, get(&looks) + 1);
    }
    return wrong;
}

static void fill(int64_t number)
{
    volatile char *frame = frames[number % CAPACITY];
    for (int i = 0; i < FRAME; i++)
        frame[i] = (char)number;
}

static void *publish(void *nothing)
{
    for (int64_t number = 0; number < rounds; number++) {
        int64_t slot = number % CAPACITY;
        set(&numbers[slot], -1);
        rtagent_fence();
#ifdef REORDERED
        set(&numbers[slot], number);
        set(&newest, number);
        wait_until_looked_at(number);
        fill(number);
#else
        fill(number);
        set(&starts[slot], 0);
        rtagent_fence();
        set(&numbers[slot], number);
        rtagent_fence();
        set(&newest, number);
#endif
    }
    return nothing;
}

static int64_t gather(void)
{
    int64_t wrong = 0, right_ones = 0, wanted = 0;
    char out[STACK * FRAME], expected[FRAME];
    uint8_t right[STACK];
    struct job job = {
        (const int64_t *)&newest, &floor_word, (const int64_t *)numbers, (const int64_t *)starts,
        (const char *)frames, &wanted, out, right, CAPACITY, FRAME, STACK, 1, 1, STACK,
    };
    for (int64_t turn = 0, last = -1; last < rounds - 1; turn++) {
        last = get(&newest);
        rtagent_fence();
        set(&looks, turn);
        wanted = last - turn % NEAR;
        if (wanted < STACK)
            continue;
        rtagent_gather(&job);
        for (int i = 0; i < STACK; i++) {
            memset(expected, (char)(wanted + 1 - STACK + i), FRAME);
            right_ones += right[i];
            wrong += right[i] && memcmp(expected, out + i * FRAME, FRAME) != 0;
        }
    }
    if (!right_ones) {
        fputs("nothing was gathered\n", stderr);
        exit(1);
    }
    return wrong;
}

int main(int count, char **words)
{
    int messages = count == 3 && !strcmp(words[1], "message");
    pthread_t writer;
    if (count != 3)
        return 2;
    rounds = atoll(words[2]);
    for (int i = 0; i < CAPACITY; i++)
        set(&numbers[i], -1);
    if (pthread_create(&writer, NULL, messages ? send_messages : publish, NULL))
        return 1;
    printf("%lld\n", (long long)(messages ? receive_messages() : gather()));
    return pthread_join(writer, NULL);
}
