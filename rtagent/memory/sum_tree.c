/* Searches and changes the sum tree: what SumTree in sum_tree.py does with NumPy, sooner.
 *
 * What a batch wants lies scattered over memory that no cache holds by now. So the tree is walked
 * level by level for the whole batch, and what the next step needs is asked for in this one. */
#include <math.h>
#include <stdint.h>

enum { CHILDREN = 16, DEEPEST = 16, LINE = 8 };

/* As _Job in sum_tree.py: the tree, and what to do with `count` leaves. */
struct job {
    double *levels[DEEPEST]; /* from the leaves up */
    int64_t widths[DEEPEST];
    int64_t depth, leaves;
    int64_t *dirty, *owner_of;
    int64_t count;
    int64_t *nodes, *owners;
    double *numbers;
    double largest;
};

static double below(double value, double limit)
{
    return value < limit ? value : nextafter(limit, 0.0);
}

static const double *children_of(const struct job *job, int64_t level, int64_t node)
{
    return job->levels[level - 1] + node * CHILDREN;
}

static void ask_for_children(const struct job *job, int64_t level, int64_t node)
{
    for (int64_t i = 0; i < CHILDREN; i += LINE)
        __builtin_prefetch(children_of(job, level, node) + i);
}

/* The first of CHILDREN values at which their running sum exceeds *rest; takes the sum before it
 * from *rest. A sum in another order than the parent's may end a little lower: then it is the last
 * that adds anything. */
static int64_t descend(const double *values, double *rest)
{
    double sum = 0.0, before = 0.0;
    int64_t last = 0;
    for (int64_t i = 0; i < CHILDREN; i++) {
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

/* Cuts the total into `count` equal parts. Puts the nodes of the highest level that lie at the places
 * `numbers` of the parts into `nodes`, and the rest of each way into `numbers`; 0 if the total is 0. */
static int64_t find_at_top(const struct job *job)
{
    const double *top = job->levels[job->depth - 1];
    int64_t width = job->widths[job->depth - 1], at = 0;
    double total = 0.0, before = 0.0;
    for (int64_t i = 0; i < width; i++)
        total += top[i];
    if (!(total > 0.0))
        return 0;
    double part = total / (double)job->count;
    for (int64_t k = 0; k < job->count; k++) {
        double rest = below(((double)k + job->numbers[k]) * part, total);
        while (at + 1 < width && before + top[at] <= rest)
            before += top[at++];
        job->nodes[k] = at;
        job->numbers[k] = rest - before;
        if (job->depth > 1)
            ask_for_children(job, job->depth - 1, at);
    }
    return 1;
}

/* Puts the leaves that lie at the places `numbers` of equal parts of the total into `nodes`, their
 * owners into `owners` and their values into `numbers`; 0 if the total is 0. */
int64_t rtagent_sum_tree_draw(const struct job *job)
{
    if (!find_at_top(job))
        return 0;
    for (int64_t level = job->depth - 1; level > 0; level--)
        for (int64_t k = 0; k < job->count; k++) {
            int64_t *node = job->nodes + k;
            int64_t child = descend(children_of(job, level, *node), job->numbers + k);
            *node = *node * CHILDREN + child;
            if (level > 1)
                ask_for_children(job, level - 1, *node);
            else
                __builtin_prefetch(job->owner_of + *node);
        }
    for (int64_t k = 0; k < job->count; k++) {
        job->owners[k] = job->owner_of[job->nodes[k]];
        job->numbers[k] = job->levels[0][job->nodes[k]];
    }
    return 1;
}

static void add_up(const double *children, double *parent)
{
    double sum = 0.0;
    for (int64_t i = 0; i < CHILDREN; i++)
        sum += children[i];
    *parent = sum;
}

/* Computes the sums above the leaves in `nodes`, which are overwritten. */
int64_t rtagent_sum_tree_follow(const struct job *job)
{
    for (int64_t level = 1; level < job->depth; level++)
        for (int64_t k = 0; k < job->count; k++) {
            int64_t parent = job->nodes[k] /= CHILDREN;
            if (k == 0 || parent != job->nodes[k - 1])
                add_up(children_of(job, level, parent), job->levels[level] + parent);
        }
    return 1;
}

/* Leaves those of `nodes`, `owners` and `numbers` whose leaves are theirs, and says which leaves. */
static void keep_live(struct job *job)
{
    int64_t kept = 0;
    for (int64_t k = 0; k < job->count; k++) {
        job->nodes[k] = job->owners[k] % job->leaves;
        __builtin_prefetch(job->owner_of + job->nodes[k]);
        ask_for_children(job, 1, job->nodes[k] / CHILDREN);
    }
    for (int64_t k = 0; k < job->count; k++) {
        int64_t leaf = job->nodes[k];
        if (job->owner_of[leaf] == job->owners[k] && job->levels[0][leaf] > 0.0
            && isfinite(job->numbers[k])) {
            job->nodes[kept] = leaf;
            job->numbers[kept++] = job->numbers[k];
        }
    }
    job->count = kept;
}

/* Gives the leaves of `owners` the values `numbers`, as far as they are finite and the leaves still
 * theirs; `largest` becomes the largest of these values. */
int64_t rtagent_sum_tree_change(struct job *job)
{
    keep_live(job);
    job->largest = 0.0;
    if (!job->count)
        return 0;
    /* What a killed process has stored is what came first: the compiler must not change that. */
    __atomic_store_n(job->dirty, 1, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    for (int64_t k = 0; k < job->count; k++) {
        job->levels[0][job->nodes[k]] = job->numbers[k];
        job->largest = fmax(job->largest, job->numbers[k]);
    }
    rtagent_sum_tree_follow(job);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(job->dirty, 0, __ATOMIC_RELAXED);
    return 1;
}
