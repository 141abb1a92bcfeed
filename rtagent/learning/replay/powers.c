/* The powers of prioritized sampling: what Powers in powers.py does, but faster. */
#include <math.h>
#include <stdint.h>

/* As _Job in powers.py: `count` numbers, which are replaced by their powers. */
struct job {
    int64_t count;
    double *numbers;
    double exponent, smallest;
};

/* Replaces errors by priorities. */
int64_t rtagent_priorities(const struct job *job)
{
    for (int64_t k = 0; k < job->count; k++)
        job->numbers[k] = pow(fabs(job->numbers[k]) + job->smallest, job->exponent);
    return 1;
}

/* Replaces priorities by weights. */
int64_t rtagent_weights(const struct job *job)
{
    double least = INFINITY;
    for (int64_t k = 0; k < job->count; k++)
        least = fmin(least, job->numbers[k]);
    for (int64_t k = 0; k < job->count; k++)
        job->numbers[k] = pow(least / job->numbers[k], job->exponent);
    return 1;
}
