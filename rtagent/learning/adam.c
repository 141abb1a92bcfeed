/* One step of Adam from one copy of weights and moments to another (Kingma and Ba, 2015). */
#include <math.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__) && defined(__GLIBC__)
#define WITH_AVX2 __attribute__((target_clones("avx2", "default")))
#else
#define WITH_AVX2
#endif
#define INLINE static inline __attribute__((always_inline))

/* As _Copy and _Job in adam.py; each array has `count` values, and no two arrays overlap. */
struct copy {
    float *weights, *mean, *square;
};

struct job {
    struct copy old, new;
    const float *gradient;
    int64_t count;
    /* 1 - beta1, beta2, 1 - beta2, rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t), epsilon */
    float mean_share, square_kept, square_share, rate, root, epsilon;
};

/* The arrays are parameters, so that `restrict` tells the compiler that none overlaps another. */
INLINE void step(
    const struct job *job, const float *restrict gradient,
    const float *restrict weights, const float *restrict means, const float *restrict squares,
    float *restrict new_weights, float *restrict new_means, float *restrict new_squares)
{
    struct job of = *job;
    for (int64_t index = 0; index < of.count; index++) {
        float derivative = gradient[index];
        float mean = means[index] + (derivative - means[index]) * of.mean_share;
        float square = of.square_kept * squares[index] + of.square_share * derivative * derivative;
        float size = sqrtf(square) * of.root + of.epsilon;
        new_means[index] = mean;
        new_squares[index] = square;
        new_weights[index] = weights[index] - of.rate * mean / size;
    }
}

WITH_AVX2 int64_t rtagent_adam(const struct job *job)
{
    const struct copy *old = &job->old, *new = &job->new;
    step(job, job->gradient, old->weights, old->mean, old->square,
         new->weights, new->mean, new->square);
    return 0;
}
