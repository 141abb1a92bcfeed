/* Copies stacks of frames out of the frame ring: what Gather in gather.py does, sooner.
 *
 * A batch lies scattered over hundreds of MiB, so the time goes into waiting for memory. The next
 * piece is asked for before the one at hand is copied, and consecutive frames are one stretch.
 */
#include <stdint.h>
#include <string.h>

enum { LINE = 64, PIECE = 8192, BLOCK = 64 };

/* As _Job in gather.py: the words and arrays of the ring, which frames, and where to. */
struct job {
    const int64_t *newest, *floor, *numbers, *episode_starts;
    const char *frames;
    const int64_t *wanted;
    char *out;
    uint8_t *right;
    int64_t capacity, frame_bytes, stack, guard, count, length;
};

struct piece {
    char *to;
    const char *from;
    int64_t bytes;
};

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t slot_of(const struct job *job, int64_t number)
{
    int64_t slot = number % job->capacity;
    return slot < 0 ? slot + job->capacity : slot;
}

static void copy(struct piece piece) { memcpy(piece.to, piece.from, (size_t)piece.bytes); }

/* Asks for a stretch piece by piece, and copies what was asked for before each. */
static void follow(struct piece *asked, struct piece stretch)
{
    while (stretch.bytes > 0) {
        struct piece next = {stretch.to, stretch.from, least(stretch.bytes, PIECE)};
        for (int64_t at = 0; at < next.bytes; at += LINE)
            __builtin_prefetch(next.from + at);
        copy(*asked);
        *asked = next;
        stretch.to += next.bytes;
        stretch.from += next.bytes;
        stretch.bytes -= next.bytes;
    }
}

/* Copies a run of frames: the stack that ends with frame `number`, clamped at `start`, and those
 * that come next. */
static void copy_run(const struct job *job, int64_t number, int64_t start, char *out,
                     struct piece *asked)
{
    int64_t first = number + 1 - job->stack;
    struct piece stretch = {out, out, 0};
    for (int64_t i = 0; i < job->length; i++) {
        int64_t slot = slot_of(job, most(first + i, start));
        const char *frame = job->frames + slot * job->frame_bytes;
        if (frame != stretch.from + stretch.bytes) {
            follow(asked, stretch);
            stretch = (struct piece){out + i * job->frame_bytes, frame, 0};
        }
        stretch.bytes += job->frame_bytes;
    }
    follow(asked, stretch);
}

/* Says which frames of a run are the wanted ones; how many are not. */
static int64_t check_run(const struct job *job, int64_t number, int64_t start, int64_t oldest,
                         uint8_t *right)
{
    int64_t first = number + 1 - job->stack, wrong = 0;
    for (int64_t i = 0; i < job->length; i++) {
        int64_t wanted = most(first + i, start);
        int64_t found = __atomic_load_n(job->numbers + slot_of(job, wanted), __ATOMIC_RELAXED);
        right[i] = found == wanted && wanted >= oldest;
        wrong += !right[i];
    }
    return wrong;
}

/* The oldest frame that can be read safely: RingBounds.oldest. */
static int64_t oldest_of(const struct job *job)
{
    int64_t newest = __atomic_load_n(job->newest, __ATOMIC_RELAXED);
    int64_t floor = __atomic_load_n(job->floor, __ATOMIC_RELAXED);
    return most(newest - job->capacity + 1 + job->guard, floor);
}

/* Copies and checks at most BLOCK runs, from run `done` on; how many frames are not right. */
static int64_t gather_block(const struct job *job, int64_t done, int64_t runs)
{
    const int64_t *wanted = job->wanted + done;
    char *out = job->out + done * job->length * job->frame_bytes;
    uint8_t *right = job->right + done * job->length;
    int64_t starts[BLOCK], wrong = 0;
    struct piece asked = {out, out, 0};
    for (int64_t i = 0; i < runs; i++) {
        int64_t slot = slot_of(job, wanted[i]);
        int64_t start = __atomic_load_n(job->episode_starts + slot, __ATOMIC_RELAXED);
        /* The slot of a lost frame has its successor's start, which may lie after it. */
        starts[i] = least(start, wanted[i]);
        __builtin_prefetch(job->numbers + slot);
    }
    for (int64_t i = 0; i < runs; i++)
        copy_run(job, wanted[i], starts[i], out + i * job->length * job->frame_bytes, &asked);
    copy(asked);
    /* First the copy, then the look at what was copied. */
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    int64_t oldest = oldest_of(job);
    for (int64_t i = 0; i < runs; i++)
        wrong += check_run(job, wanted[i], starts[i], oldest, right + i * job->length);
    return wrong;
}

/* Does the job; how many frames are not right. */
int64_t rtagent_gather(const struct job *job)
{
    int64_t wrong = 0;
    for (int64_t done = 0; done < job->count; done += BLOCK)
        wrong += gather_block(job, done, least(job->count - done, BLOCK));
    return wrong;
}
