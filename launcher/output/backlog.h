/* SPDX-License-Identifier: Apache-2.0
 *
 * How many bytes of one writer are still in a queue that it shares with other writers. Pure:
 * positions go in, a number of bytes comes out. The queue itself need not know its writers. In
 * return the answer is not exact: it may be too high by a CT_BACKLOG_MARKS-th of the limit.
 */
#ifndef CT_LAUNCHER_OUTPUT_BACKLOG_H
#define CT_LAUNCHER_OUTPUT_BACKLOG_H

#include <stddef.h>
#include <stdint.h>

#define CT_BACKLOG_MARKS 16

/* Zeroed memory belongs to a writer that has put nothing yet. */
struct ct_backlog {
    uint64_t put;  /* all bytes that the writer has put */
    uint64_t gone; /* how many of them are known to have left the queue */
    /* One for each piece that may still be in the queue: when everything up to `end` has left the
     * queue, this writer's first `put` bytes have left. */
    struct {
        uint64_t end, put;
    } marks[CT_BACKLOG_MARKS];
    unsigned first, count; /* a ring */
};

/* To be called when the writer has put `len` bytes. `end` counts all bytes that were ever put into
 * the queue. A piece has at least a CT_BACKLOG_MARKS-th of `limit` bytes. */
void ct_backlog_put(struct ct_backlog *backlog, size_t len, uint64_t end, size_t limit);

/* How many bytes of the writer may still be in the queue when its first `begin` bytes have left. */
uint64_t ct_backlog_left(struct ct_backlog *backlog, uint64_t begin);

#endif
