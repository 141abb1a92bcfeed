/* Searches and changes the sum tree: what NumpyTree in sum_tree.py does, sooner. */
#include <math.h>
#include <stdint.h>

enum { CHILDREN = 16, DEEPEST = 16 };

/* As _Job in sum_tree.py: the levels from the leaves up, and what to do with `count` of them. */
struct job {
    double *levels[DEEPEST];
    int64_t widths[DEEPEST];
    int64_t depth, count;
    const double *fractions;
    int64_t *nodes;
};

static double below(double value, double limit)
{
    return value < limit ? value : nextafter(limit, 0.0);
}

/* The first of `width` values at which their running sum exceeds *rest; takes the sum before it
 * from *rest. A sum in another order than the parent's may end a little lower: then it is the last
 * that adds anything. */
static int64_t descend(const double *values, int64_t width, double *rest)
{
    double sum = 0.0, before = 0.0;
    int64_t last = 0;
    for (int64_t i = 0; i < width; i++) {
        double next = sum + values[i];
        if (next > *rest) {
            *rest -= sum;
            return i;
        }
        if (next > sum) {
            before = sum;
            last = i;
        }
        sum = next;
    }
    *rest = below(*rest, sum) - before;
    return last;
}

static void add_up(const double *children, double *parent)
{
    double sum = 0.0;
    for (int64_t i = 0; i < CHILDREN; i++)
        sum += children[i];
    *parent = sum;
}

/* Puts the leaves that lie at the fractions of the total into `nodes`; 0 if the total is 0. */
int64_t rtagent_sum_tree_find(const struct job *job)
{
    const double *top = job->levels[job->depth - 1];
    int64_t width = job->widths[job->depth - 1], at = 0;
    double total = 0.0, before = 0.0;
    for (int64_t i = 0; i < width; i++)
        total += top[i];
    if (!(total > 0.0))
        return 0;
    for (int64_t k = 0; k < job->count; k++) {
        double rest = below(job->fractions[k] * total, total);
        /* Fractions in ascending order share one walk along the highest level. */
        if (rest < before)
            at = 0, before = 0.0;
        while (at + 1 < width && before + top[at] <= rest)
            before += top[at++];
        int64_t node = at;
        rest -= before;
        for (int64_t level = job->depth - 2; level >= 0; level--) {
            node *= CHILDREN;
            node += descend(job->levels[level] + node, CHILDREN, &rest);
        }
        job->nodes[k] = node;
    }
    return 1;
}

/* Computes the sums above the leaves in `nodes`, which are overwritten. */
int64_t rtagent_sum_tree_follow(const struct job *job)
{
    for (int64_t level = 0; level + 1 < job->depth; level++)
        for (int64_t k = 0; k < job->count; k++) {
            int64_t parent = job->nodes[k] /= CHILDREN;
            if (k == 0 || parent != job->nodes[k - 1])
                add_up(job->levels[level] + parent * CHILDREN, job->levels[level + 1] + parent);
        }
    return 1;
}
