/* SPDX-License-Identifier: Apache-2.0
 *
 * The curves of the live page: one point for each sample, in memory of a fixed size. When all
 * places are taken, neighbours are merged and each further point covers twice the time. So the
 * record always reaches back to the beginning of the job. Pure.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_HISTORY_H
#define CT_RENDEZVOUS_HTTP_PAGE_HISTORY_H

#include "common/buf.h"

#include <stdint.h>

/* Points kept: a curve of 1,000 pixels shows no more. */
#define CT_PAGE_POINTS 512

struct ct_page_point {
    double t_s;           /* time since the store was opened */
    int generation;       /* the highest of those merged */
    int64_t step;         /* the same */
    double loss, rate;    /* NAN = not told */
    double collective;    /* share of the workers that were in a collective, NAN = none tells */
    double memory;        /* mean resident memory of a worker in MiB, NAN = none tells */
    double most_memory;   /* that of the largest worker */
    int running, missing; /* workers */
};

struct ct_page_history {
    struct ct_page_point points[CT_PAGE_POINTS];
    unsigned count;
    unsigned each;    /* samples that one point covers, a power of two; 0 = 1 */
    unsigned pending; /* samples in the last point so far */
    uint64_t merges;  /* how often neighbours were merged */
};

/* Zeroed memory is an empty history. */
void ct_page_history_add(struct ct_page_history *history, const struct ct_page_point *sample);

/* Appends `[[t, generation, step, loss, rate, collective, running, missing, memory,
 * most memory], ...]`, from the point with the number `from` on; NAN is null. */
void ct_page_history_print(const struct ct_page_history *history, unsigned from,
                           struct ct_buf *out);

#endif
