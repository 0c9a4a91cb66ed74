/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of marks notes where pieces of this writer end in the shared queue. A mark whose end has
 * left the queue is taken off; what the remaining marks cover is still in there. Small pieces share
 * a mark, so the ring never grows.
 */
#include "launcher/output/backlog.h"

void ct_backlog_put(struct ct_backlog *backlog, size_t len, uint64_t end, size_t limit)
{
    unsigned last = (backlog->first + backlog->count - 1) % CT_BACKLOG_MARKS;
    uint64_t piece_begin = backlog->gone; /* of the last mark */
    if (backlog->count > 1) {
        piece_begin = backlog->marks[(last + CT_BACKLOG_MARKS - 1) % CT_BACKLOG_MARKS].put;
    }
    backlog->put += len;
    /* When the ring is full, the limit has been passed, so the last piece may become longer. */
    if (backlog->count == 0 ||
        (backlog->count < CT_BACKLOG_MARKS &&
         backlog->marks[last].put - piece_begin >= limit / CT_BACKLOG_MARKS)) {
        last = (backlog->first + backlog->count) % CT_BACKLOG_MARKS;
        backlog->count++;
    }
    backlog->marks[last].end = end;
    backlog->marks[last].put = backlog->put;
}

uint64_t ct_backlog_left(struct ct_backlog *backlog, uint64_t begin)
{
    while (backlog->count > 0 && backlog->marks[backlog->first].end <= begin) {
        backlog->gone = backlog->marks[backlog->first].put;
        backlog->first = (backlog->first + 1) % CT_BACKLOG_MARKS;
        backlog->count--;
    }
    return backlog->put - backlog->gone;
}
