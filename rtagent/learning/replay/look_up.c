/* Copies chosen transitions out of the index: what LookUp in look_up.py does, but faster. */
#include <stdint.h>
#include <string.h>

/* As _Job in look_up.py: the columns of the index, the serial numbers, and the memory to fill. */
struct job {
    const int64_t *frames;
    const char *rows;
    const int64_t *serials;
    int64_t *frame_out, *next_frame_out;
    char *rows_out;
    int64_t capacity, row_bytes, shift_at, count;
};

/* Copies; returns the frames from state to successor if they are the same for all, else 0. */
int64_t rtagent_look_up(const struct job *job)
{
    int64_t common = 0;
    for (int64_t i = 0; i < job->count; i++) {
        int64_t slot = job->serials[i] % job->capacity;
        char *row = job->rows_out + i * job->row_bytes;
        int32_t shift;
        memcpy(row, job->rows + slot * job->row_bytes, (size_t)job->row_bytes);
        memcpy(&shift, row + job->shift_at, sizeof shift);
        job->frame_out[i] = job->frames[slot];
        job->next_frame_out[i] = job->frame_out[i] + shift;
        common = i == 0 || shift == common ? shift : 0;
    }
    return common;
}
