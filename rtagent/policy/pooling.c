/* Max pooling of bfloat16, channels last, windows of 3 x 3 two apart: as torch does it, sooner. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* LANES: channels that are compared at once; as many as a register holds. */
#if defined(__x86_64__) && defined(__GLIBC__)
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#define IN_A_REGISTER 16
#else
#define WITH_AVX2
#define IN_A_REGISTER 8
#endif
#ifndef LANES
#define LANES IN_A_REGISTER
#endif
#define INLINE static inline __attribute__((always_inline))

enum { SIDE = 3, STRIDE = 2 };

typedef int16_t lanes __attribute__((vector_size(2 * LANES)));
typedef uint32_t pairs __attribute__((vector_size(2 * LANES)));
typedef float floats __attribute__((vector_size(2 * LANES)));

/* As _Job in pooling.py. `whole` is (images, height, width, channels), `pooled` and `chosen` are
 * (images, (height - 1) / 2, (width - 1) / 2, channels), channels in multiples of LANES. */
struct job {
    int16_t *whole, *pooled, *chosen;
    int64_t images, height, width, channels;
};

/* Bits of bfloat16 as integers of the same order; anything that is not a number is the largest. */
INLINE void read_ordered(const int16_t *bits, lanes *value)
{
    memcpy(value, bits, sizeof *value);
    lanes unknown = (*value & 0x7fff) > 0x7f80;
    *value ^= (*value >> 15) & 0x7fff;
    *value = (*value & ~unknown) | (unknown & 0x7fff);
}

/* Puts the largest value of each window into `pooled`, and which of the nine it is into `chosen`:
 * the first of equal ones. */
WITH_AVX2 int64_t rtagent_max_pool(const struct job *job)
{
    int64_t rows = (job->height - 1) / STRIDE, columns = (job->width - 1) / STRIDE;
    int64_t channels = job->channels;
    int16_t *pooled = job->pooled, *chosen = job->chosen;
    for (int64_t line = 0; line < job->images * rows; line++) {
        int64_t row = line / rows * job->height + STRIDE * (line % rows);
        const int16_t *window = job->whole + row * job->width * channels;
        for (int64_t column = 0; column < columns; column++) {
            for (int64_t channel = 0; channel < channels; channel += LANES) {
                lanes best, value, place = {0};
                read_ordered(window + channel, &best);
                for (int16_t other = 1; other < SIDE * SIDE; other++) {
                    int64_t away = other / SIDE * job->width + other % SIDE;
                    read_ordered(window + away * channels + channel, &value);
                    lanes more = value > best;
                    best = (best & ~more) | (value & more);
                    place = (place & ~more) | (more & other);
                }
                best ^= (best >> 15) & 0x7fff;
                memcpy(pooled + channel, &best, sizeof best);
                memcpy(chosen + channel, &place, sizeof place);
            }
            window += STRIDE * channels;
            pooled += channels;
            chosen += channels;
        }
    }
    return 0;
}

/* To the nearest bfloat16, and to the even one of two; the other half of the bits is of no use.
 * What is not a number stays so: it comes from bfloat16, so its lower half is 0. */
INLINE void round_to_bfloat16(floats *sum)
{
    pairs bits = (pairs)*sum;
    bits += 0x7fff + (bits >> 16 & 1);
    *sum = (floats)bits;
}

/* Windows that contain a row or a column: the first, and one past the last. */
INLINE void windows_of(int64_t place, int64_t windows, int64_t *first, int64_t *end)
{
    *first = place < SIDE ? 0 : (place - SIDE + STRIDE) / STRIDE;
    *end = place / STRIDE < windows ? place / STRIDE + 1 : windows;
}

/* The gradient of each value, in `whole`: the sum of those, in `pooled`, of the windows that chose
 * it. Two bfloat16 that lie in one word are widened to a float each. */
WITH_AVX2 int64_t rtagent_max_pool_backward(const struct job *job)
{
    int64_t rows = (job->height - 1) / STRIDE, columns = (job->width - 1) / STRIDE;
    int64_t channels = job->channels;
    int16_t *whole = job->whole;
    for (int64_t line = 0; line < job->images * job->height; line++) {
        int64_t image = line / job->height, row = line % job->height, first_row, end_row;
        windows_of(row, rows, &first_row, &end_row);
        for (int64_t column = 0; column < job->width; column++) {
            int64_t first_column, end_column;
            windows_of(column, columns, &first_column, &end_column);
            for (int64_t channel = 0; channel < channels; channel += LANES) {
                floats even = {0}, odd = {0};
                for (int64_t i = first_row; i < end_row; i++)
                    for (int64_t j = first_column; j < end_column; j++) {
                        int64_t at = ((image * rows + i) * columns + j) * channels + channel;
                        int64_t place = SIDE * (row - STRIDE * i) + column - STRIDE * j;
                        lanes chosen, gradient;
                        memcpy(&chosen, job->chosen + at, sizeof chosen);
                        memcpy(&gradient, job->pooled + at, sizeof gradient);
                        pairs both = (pairs)(gradient & (chosen == (int16_t)place));
                        even += (floats)(both << 16);
                        odd += (floats)(both & 0xffff0000);
                    }
                round_to_bfloat16(&even);
                round_to_bfloat16(&odd);
                pairs both = (pairs)even >> 16 | ((pairs)odd & 0xffff0000);
                memcpy(whole + channel, &both, sizeof both);
            }
            whole += channels;
        }
    }
    return 0;
}
