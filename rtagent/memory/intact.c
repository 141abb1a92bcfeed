/* Which rows of the ledger carry the checksum of their contents: what checksum in ledger.py says of
 * each, sooner. */
#include <stdint.h>

/* As _Job in ledger.py: copies of rows, where in each its checksum and its contents lie, and where
 * to write the answers. */
struct rows {
    const uint8_t *rows;
    uint8_t *intact;
    int64_t count, row_bytes, crc_at, action_at, action_end;
};

enum { VALUES = 256, BITS = 8 };

/* The table of CRC-32 as in zlib (reflected polynomial 0xEDB88320). */
static void fill(uint32_t table[VALUES])
{
    for (uint32_t value = 0; value < VALUES; value++) {
        uint32_t crc = value;
        for (int bit = 0; bit < BITS; bit++)
            crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
        table[value] = crc;
    }
}

static uint32_t update(const uint32_t table[VALUES], uint32_t crc, const uint8_t *from,
                       const uint8_t *end)
{
    for (; from < end; from++)
        crc = table[(crc ^ *from) & 0xFF] ^ (crc >> 8);
    return crc;
}

static uint32_t low_word(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Does the job; how many rows are damaged. */
int64_t rtagent_intact(const struct rows *job)
{
    uint32_t table[VALUES];
    int64_t damaged = 0;
    fill(table);
    for (int64_t i = 0; i < job->count; i++) {
        const uint8_t *row = job->rows + i * job->row_bytes;
        uint32_t crc = update(table, ~0u, row, row + job->crc_at);
        crc = ~update(table, crc, row + job->action_at, row + job->action_end);
        job->intact[i] = crc == low_word(row + job->crc_at);
        damaged += !job->intact[i];
    }
    return damaged;
}
