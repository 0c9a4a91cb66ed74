/* SPDX-License-Identifier: Apache-2.0
 *
 * How much of what one writer has put into a queue that it shares with others is still in there.
 * Pure: positions in, bytes out. The queue knows nothing of it, and nothing of it outlives the
 * writer; the price is that the answer is coarse, by a CT_BACKLOG_MARKS-th of the limit.
 */
#ifndef CT_LAUNCHER_OUTPUT_BACKLOG_H
#define CT_LAUNCHER_OUTPUT_BACKLOG_H

#include <stddef.h>
#include <stdint.h>

#define CT_BACKLOG_MARKS 16

/* Zeroed memory is "nothing put yet". */
struct ct_backlog {
    uint64_t put;  /* bytes in all */
    uint64_t gone; /* of them, known to have left */
    /* Piece k, of those not known to have left: when the queue has let go of everything up to
     * `end`, this writer's bytes up to `put` are gone. */
    struct {
        uint64_t end, put;
    } marks[CT_BACKLOG_MARKS];
    unsigned first, count; /* a ring */
};

/* `len` bytes were put; the queue's end is at `end` now, counted in bytes ever put into it by
 * anybody. Pieces are as long as a CT_BACKLOG_MARKS-th of `limit` at least. */
void ct_backlog_put(struct ct_backlog *backlog, size_t len, uint64_t end, size_t limit);

/* Bytes that may still be in a queue that has let go of everything up to `begin`. */
uint64_t ct_backlog_left(struct ct_backlog *backlog, uint64_t begin);

#endif
