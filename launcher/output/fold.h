/* SPDX-License-Identifier: Apache-2.0
 *
 * Equal lines of many workers become one: "[0-63] text". Pure: lines go in, lines come out; the
 * caller passes the time in.
 *
 * A line waits until all workers have written the same line, but at most for CT_FOLD_WINDOW_NS. It
 * is merged with an equal line that already waits, unless an older line of its own worker waits
 * behind that one. Lines leave in the order in which the first of each arrived, so the lines of one
 * worker keep their order.
 */
#ifndef CT_LAUNCHER_OUTPUT_FOLD_H
#define CT_LAUNCHER_OUTPUT_FOLD_H

#include "common/buf.h"
#include "common/err.h"
#include "common/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longer than the time by which workers of one machine differ between two barriers, and too short
 * for a user to notice. */
#define CT_FOLD_WINDOW_NS (100 * INT64_C(1000000))
/* When more than this waits, the first line leaves, because a new line is compared with every one
 * that waits. */
#define CT_FOLD_LINES_MAX 256
#define CT_FOLD_BYTES_MAX ((size_t)256 * 1024)
/* The ranks of one fold differ by less than this: as many as a machine can have workers. */
#define CT_FOLD_RANKS_MAX 4096

enum { CT_FOLD_NONE_DUE = 1 };

struct ct_fold {
    struct ct_list lines; /* the longest waiting first */
    size_t count, bytes;
};

/* One line of one worker. Everything is borrowed for the call, `host` and `owner` until the line
 * leaves. */
struct ct_fold_line {
    int rank;          /* the worker's */
    int first_rank;    /* the lowest rank with which the line may be merged */
    int workers;       /* when as many have written the line, it leaves; 0 = not known */
    const char *bytes; /* the line with its prefix and '\n' */
    size_t len, prefix_len;
    const char *host; /* of the prefix of a folded line; NULL = none */
    bool colour;
    void *owner; /* ct_fold_next() returns that of the first of the equal lines */
};

void ct_fold_init(struct ct_fold *fold);
/* Drops what waits. NULL and zeroed memory are allowed. */
void ct_fold_fini(struct ct_fold *fold);

/* Adds a line. CT_ENOMEM: the line is lost. */
CT_MUST_CHECK int ct_fold_add(struct ct_fold *fold, const struct ct_fold_line *line,
                              int64_t now_ns);

/* Appends the next line that is due at `now_ns` (INT64_MAX: the next line of all) to `out`, with
 * its prefix, and sets *owner. CT_FOLD_NONE_DUE; CT_ENOMEM: the line is lost. */
CT_MUST_CHECK int ct_fold_next(struct ct_fold *fold, int64_t now_ns, struct ct_buf *out,
                               void **owner);

/* When the next line is due; INT64_MAX = nothing waits. */
int64_t ct_fold_due_ns(const struct ct_fold *fold);

#endif
