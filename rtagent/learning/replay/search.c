/* Finds transitions by their frames: what Search in search.py does, but faster. */
#include <stdint.h>

/* As _Job in search.py: the column of the index, its serial numbers, and the frames to find. */
struct job {
    const int64_t *column;
    int64_t capacity, first, end;
    int64_t count;
    const int64_t *frames;
    int64_t *serials;
};

struct point {
    int64_t serial, frame;
};

static struct point point_at(const struct job *job, int64_t serial)
{
    return (struct point){serial, job->column[serial % job->capacity]};
}

/* The serial number of a frame between those of two points, if both grow evenly. */
static int64_t guess(struct point below, struct point above, int64_t frame)
{
    double share = (double)(frame - below.frame) / (double)(above.frame - below.frame);
    return below.serial + (int64_t)(share * (double)(above.serial - below.serial));
}

/* The serial number of a frame between those of two points, or -1. The guess is close if decisions
 * come at an even rate; every other step halves the interval, so that a bad guess costs little. */
static int64_t find(const struct job *job, struct point below, struct point above, int64_t frame)
{
    int64_t low = below.serial + 1, high = above.serial - 1;
    for (int halve = 0; low <= high; halve = !halve) {
        int64_t serial = halve ? low + (high - low) / 2 : guess(below, above, frame);
        serial = serial < low ? low : serial > high ? high : serial;
        struct point at = point_at(job, serial);
        int64_t away = frame - at.frame;
        if (away == 0)
            return serial;
        /* Frames grow with every serial number, so the wanted one is at most `away` further. */
        if (away > 0) {
            below = at;
            low = serial + 1;
            high = high < serial + away ? high : serial + away;
        } else {
            above = at;
            high = serial - 1;
            low = low > serial + away ? low : serial + away;
        }
    }
    return -1;
}

/* Puts the serial numbers of `frames` into `serials`, -1 for frames that the index does not hold;
 * returns the number of these. */
int64_t rtagent_search(const struct job *job)
{
    struct point below = point_at(job, job->first), above = point_at(job, job->end - 1);
    for (int64_t k = 0; k < job->count; k++)
        if (job->frames[k] > below.frame && job->frames[k] < above.frame)
            __builtin_prefetch(
                job->column + guess(below, above, job->frames[k]) % job->capacity);
    int64_t missing = 0;
    for (int64_t k = 0; k < job->count; k++) {
        int64_t frame = job->frames[k], serial = -1;
        if (frame == below.frame)
            serial = below.serial;
        else if (frame == above.frame)
            serial = above.serial;
        else if (frame > below.frame && frame < above.frame)
            serial = find(job, below, above, frame);
        job->serials[k] = serial;
        missing += serial < 0;
    }
    return missing;
}
