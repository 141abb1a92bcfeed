/* Pictures of bytes, plane by plane, to numbers of 16 bits, channels last. */
#include <stddef.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

enum { STACK = 4 };

/* As _Job in pixels.py. `planes` is (images, channels, area), `pixels` is (images, area, channels),
 * `numbers` says what each of the 256 bytes becomes. */
struct job {
    const uint8_t *planes;
    uint16_t *pixels;
    const uint16_t *numbers;
    int64_t images, channels, area;
};

INLINE void lay_out(const struct job *job, int64_t channels)
{
    const uint16_t *numbers = job->numbers;
    for (int64_t image = 0; image < job->images; image++) {
        const uint8_t *planes = job->planes + image * channels * job->area;
        uint16_t *pixels = job->pixels + image * channels * job->area;
        for (int64_t place = 0; place < job->area; place++)
            for (int64_t channel = 0; channel < channels; channel++)
                pixels[place * channels + channel] = numbers[planes[channel * job->area + place]];
    }
}

int64_t rtagent_pixels(const struct job *job)
{
    /* The usual stack of frames, so that the inner loop is none. */
    if (job->channels == STACK)
        lay_out(job, STACK);
    else
        lay_out(job, job->channels);
    return 0;
}
