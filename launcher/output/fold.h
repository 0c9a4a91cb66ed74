/* SPDX-License-Identifier: Apache-2.0
 *
 * Equal lines of many workers become one: "[0-63] text". Pure: lines in, lines out, no clock.
 *
 * A line waits until all workers have written the same, at most CT_FOLD_WINDOW_NS, and joins an
 * equal one that waits already, unless a line of its own worker waits behind that. Lines leave in
 * the order in which the first of each came, so those of one worker never change places.
 */
#ifndef CT_LAUNCHER_OUTPUT_FOLD_H
#define CT_LAUNCHER_OUTPUT_FOLD_H

#include "common/buf.h"
#include "common/err.h"
#include "common/list.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Longer than workers on one machine drift apart between two barriers, shorter than what a person
 * takes for a delay. */
#define CT_FOLD_WINDOW_NS (100 * INT64_C(1000000))
/* When more than this waits, the first line leaves: each new one is compared with all of them. */
#define CT_FOLD_LINES_MAX 256
#define CT_FOLD_BYTES_MAX ((size_t)256 * 1024)
/* Ranks of one fold lie within this many; as many as workers of a machine. */
#define CT_FOLD_RANKS_MAX 4096

enum { CT_FOLD_NONE_DUE = 1 };

struct ct_fold {
    struct ct_list lines; /* the longest waiting first */
    size_t count, bytes;
};

/* One line of one worker; all is borrowed for the call but `host` and `owner`. */
struct ct_fold_line {
    int rank, first_rank; /* its own, and the lowest of those that it may be folded with */
    int workers;          /* whose equal lines need not wait for more; 0 = not known */
    const char *bytes;    /* the line with its prefix and '\n' */
    size_t len, prefix_len;
    const char *host; /* of the prefix of a folded line; NULL = none */
    bool colour;
    void *owner; /* of the first of the equal lines, is handed out with them */
};

void ct_fold_init(struct ct_fold *fold);
/* Drops what waits. NULL and zeroed memory are allowed. */
void ct_fold_fini(struct ct_fold *fold);

/* Takes a line down. CT_ENOMEM: it is lost. */
CT_MUST_CHECK int ct_fold_add(struct ct_fold *fold, const struct ct_fold_line *line,
                              int64_t now_ns);

/* Appends the next line that is due at `now_ns` (INT64_MAX: any) to `out`, with its prefix, and
 * says whose it was. CT_FOLD_NONE_DUE; CT_ENOMEM: it is lost. */
CT_MUST_CHECK int ct_fold_next(struct ct_fold *fold, int64_t now_ns, struct ct_buf *out,
                               void **owner);

/* When the next line is due; INT64_MAX = nothing waits. */
int64_t ct_fold_due_ns(const struct ct_fold *fold);

#endif
