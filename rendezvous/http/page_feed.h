/* SPDX-License-Identifier: Apache-2.0
 *
 * What the live page is told: whole snapshots, and the changes from one sample to the next. Pure:
 * a status document and the workers' rows go in, JSON text comes out. docs/PROTOCOL.md describes
 * the text.
 *
 * A worker is a cell of a few small numbers. Its step is told as the lag behind the median of its
 * job, and its silence only from CT_PAGE_QUIET_S on, so a cell of a healthy job hardly ever changes
 * and equal neighbours are told as one run: 10,000 healthy workers take some 20 bytes.
 */
#ifndef CT_RENDEZVOUS_HTTP_PAGE_FEED_H
#define CT_RENDEZVOUS_HTTP_PAGE_FEED_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/control/worker_rows.h"
#include "rendezvous/http/page_history.h"
#include "rendezvous/store/budget.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* Cells of all jobs together; further workers are not shown. */
#define CT_PAGE_CELLS_MAX 65536
/* Jobs that are shown. */
#define CT_PAGE_JOBS_MAX 16
/* A worker that has said nothing for so long is shown as quiet, in units of this. */
#define CT_PAGE_QUIET_S 10
/* The largest lag that is told. */
#define CT_PAGE_LAG_MAX 9999

/* A place of the grid whose worker no node has told of. */
#define CT_PAGE_NOBODY CT_ROW_STATES

struct ct_page_cell {
    int16_t lag;   /* steps behind the median; negative = ahead */
    uint8_t state; /* enum ct_row_state, or CT_PAGE_NOBODY */
    uint8_t quiet; /* units of CT_PAGE_QUIET_S since its last progress, 255 at most */
};

struct ct_page_job {
    int first_cell, cells;
    int64_t median; /* step; -1 = no worker tells one */
};

struct ct_page_feed {
    struct ct_budget *budget; /* counts what it keeps; may be NULL. Borrowed */
    size_t charged;
    double opened;                       /* Unix time at which `now_s` was 0 */
    uint64_t seq;                        /* of the present sample; 0 = none yet */
    struct ct_page_cell *cells, *before; /* of the present sample and of the one before */
    size_t count, count_before;
    struct ct_page_job jobs[CT_PAGE_JOBS_MAX];
    int num_jobs;
    struct ct_buf head;  /* the status without nodes and workers: members of an object */
    struct ct_buf nodes; /* the nodes as an array */
    int num_nodes;
    bool nodes_changed; /* since the sample before */
    struct ct_page_history history;
    unsigned points_before;
    uint64_t merges_before;
    bool had_job;
    bool done; /* the only job of the present sample has ended */
    bool over; /* the job of the present sample has ended, so nothing changes any more */
};

/* Charges the feed itself. `budget` may be NULL. */
void ct_page_feed_init(struct ct_page_feed *feed, struct ct_budget *budget, double opened);
void ct_page_feed_fini(struct ct_page_feed *feed);

/* Takes a sample. `status` is changed: what the page does not need is removed. `rows` was collected
 * with it. When the only job has ended, or is no longer in the status, the sample before stays
 * with a new number and without changes: nodes and workers leave, but the page can be read.
 * CT_ENOMEM leaves the sample before. */
CT_MUST_CHECK int ct_page_feed_take(struct ct_page_feed *feed, struct cJSON *status,
                                    const struct ct_status_rows *rows, double now_s);

/* Appends the whole present sample, or what has changed since the one before, as one line of JSON
 * without a newline. CT_ENOMEM. */
CT_MUST_CHECK int ct_page_feed_print(const struct ct_page_feed *feed, bool whole,
                                     struct ct_buf *out);

#endif
