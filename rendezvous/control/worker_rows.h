/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node tells of its workers: one row for each, of fixed size, so that no peer decides how
 * much of it is kept. On the wire a row is an object of its numbers; in the status
 * (man/ctstatus.5) it is an object of `workers`. Pure.
 *
 * The status of thousands of workers is printed while all other clients wait, so rows are printed
 * straight into the text, without a cJSON item for each number.
 */
#ifndef CT_RENDEZVOUS_CONTROL_WORKER_ROWS_H
#define CT_RENDEZVOUS_CONTROL_WORKER_ROWS_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* Workers of one node: as many rows, with every number at its longest, fit into a frame. */
#define CT_MAX_NODE_WORKERS 4096

enum ct_row_state {
    CT_ROW_WAITING,
    CT_ROW_STARTING,
    CT_ROW_RUNNING,
    CT_ROW_PARKED,
    CT_ROW_SUCCEEDED,
    CT_ROW_STOPPED,
    CT_ROW_FAILED,
    CT_ROW_STATES,
};

/* enum ct_phase and one more: the worker says nothing of itself. */
#define CT_ROW_UNTOLD 6
#define CT_ROW_PHASES (CT_ROW_UNTOLD + 1)

/* "-1.23456789e-300" */
#define CT_ROW_REAL_MAX 18

struct ct_worker_row {
    int rank, local_rank;
    int generation; /* it belongs to; -1 = before the first */
    int state;      /* enum ct_row_state */
    int exit_code;  /* or the negative number of a signal; only if `ended` */
    int phase;      /* what follows is told unless this is CT_ROW_UNTOLD */
    bool ended;
    int64_t pid; /* 0 = not started */
    int64_t step;
    int64_t age_ms;    /* since it said anything */
    double loss, rate; /* NAN = not told */
    /* Both as the status and the metrics show them, "" = not told: printing them costs more than
     * all the rest of a row, so it is done once, when the row is read from JSON. */
    char loss_text[CT_ROW_REAL_MAX], rate_text[CT_ROW_REAL_MAX];
};

/* "waiting", ... */
const char *ct_row_state_name(enum ct_row_state state);

/* Gives *out, a JSON array (cJSON_Delete). CT_ENOMEM. */
CT_MUST_CHECK int ct_rows_to_json(const struct ct_worker_row *rows, int count, struct cJSON **out);

/* Gives *out (ct_free), NULL with no row. CT_EFORMAT names the row and the field: the types and
 * ranges of all, local ranks 0, 1, 2 ... in this order, and ranks that follow each other as well;
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_rows_from_json(const struct cJSON *array, struct ct_worker_row **out,
                                    int *count, struct ct_err *err);

/* ---- in the status -------------------------------------------------------------------------- */

/* Rows of all jobs that one document shows: some 10 ms of work. */
#define CT_STATUS_ROWS_MAX 16384

/* The rows of a node; they are the membership's and stay until it hears something. */
struct ct_row_span {
    int job; /* which one of the document, from 0 */
    int first_rank;
    int count;
    const struct ct_worker_row *rows;
};

/* What becomes of the rows while a status is made: `print`ed into the document, or collected.
 * Zeroed memory but for `print`; ct_status_rows_fini() frees. */
struct ct_status_rows {
    bool print;
    bool more; /* there were further ones */
    int job;   /* that is being made */
    int taken;
    struct ct_row_span *spans;
    size_t count, room;
};

void ct_status_rows_fini(struct ct_status_rows *rows);

/* One node's: `host` stands in JSON's quotes already. Prints into `out`, with a comma before each
 * row but the document's first one of this array, or collects. CT_ENOMEM. */
CT_MUST_CHECK int ct_status_rows_add(struct ct_status_rows *rows, const struct ct_row_span *span,
                                     const char *host, struct ct_buf *out);

#endif
