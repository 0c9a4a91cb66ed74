/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of the live line: what the job on this machine is doing, in one row of a terminal. Pure:
 * facts in, text out.
 */
#ifndef CT_LAUNCHER_OUTPUT_LIVE_LINE_H
#define CT_LAUNCHER_OUTPUT_LIVE_LINE_H

#include "common/progress_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a line with its NUL; a wider terminal than this shows no more. */
#define CT_LIVE_LINE_MAX 1024

enum ct_live_state {
    CT_LIVE_JOINING, /* no worker runs, because the generation has not begun */
    CT_LIVE_STARTING,
    CT_LIVE_RUNNING,
    CT_LIVE_STOPPING,
};

struct ct_live_facts {
    enum ct_live_state state;
    int64_t for_ns;          /* how long the state has lasted */
    const char *awaited;     /* borrowed, not trusted; what JOINING waits for, "" = not known */
    int workers, first_rank; /* of this machine */
    int alive;
    int restarts, max_restarts;
    /* from here on as ct_live_line_progress() fills it in; zero is valid */
    int reporting;          /* workers that write a progress page */
    bool stepped;           /* one of them has completed a step */
    int64_t step;           /* the highest */
    int64_t total;          /* steps of the whole training; 0 = not told */
    double loss, rate;      /* NAN = not told */
    double eta_s;           /* NAN = not known */
    int slowest;            /* rank; -1 = none stands out */
    int64_t behind;         /* steps of the slowest; 0 = the others wait for it within a step */
    int64_t slowest_for_ns; /* how long the slowest has not stamped its page */
};

/* Fills in what the pages of the workers say (ct_progress_reader_read_all()). */
void ct_live_line_progress(const struct ct_progress *pages, const bool *valid, int count,
                           int64_t now_ns, struct ct_live_facts *facts);

/* Writes at most `columns` columns: a part that does not fit is left out, the first one is cut. */
void ct_live_line(const struct ct_live_facts *facts, size_t columns, char out[CT_LIVE_LINE_MAX]);

#endif
