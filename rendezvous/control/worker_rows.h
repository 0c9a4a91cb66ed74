/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node reports about its workers: one row for each. Rows have a fixed size, so that no peer
 * can make them take more memory. On the wire a row is a JSON object; in the status
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

/* Workers of one node. So many rows fit into a frame, even with every number at its longest. */
#define CT_MAX_NODE_WORKERS 4096

/* A node with more workers does not tell their memory: their rows would not fit into a frame. */
#define CT_ROW_MEMORY_WORKERS 2048

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

/* The values of enum ct_phase, and one more: the worker writes no progress. */
#define CT_ROW_UNTOLD 6
#define CT_ROW_PHASES (CT_ROW_UNTOLD + 1)

/* "-1.23456789e-300" */
#define CT_ROW_REAL_MAX 18

struct ct_worker_row {
    int rank, local_rank;
    int generation; /* of this worker; -1 = before the first */
    int state;      /* enum ct_row_state */
    int exit_code;  /* or minus the number of a signal; valid if `ended` */
    int phase;      /* CT_ROW_UNTOLD = step, age, loss and rate are not known */
    bool ended;
    int64_t pid; /* 0 = not started */
    int64_t step;
    int64_t age_ms;    /* time since it wrote its progress */
    int rss_mib;       /* memory of its process that is resident, in MiB; 0 = not known */
    double loss, rate; /* NAN = not known */
    /* Loss and rate as the status and the metrics show them; "" = not known. Printing them costs
     * more than all the rest of a row, so it is done once, when the row is read from JSON. */
    char loss_text[CT_ROW_REAL_MAX], rate_text[CT_ROW_REAL_MAX];
};

/* "waiting", ... */
const char *ct_row_state_name(enum ct_row_state state);

/* Gives *out, a JSON array (cJSON_Delete). CT_ENOMEM. */
CT_MUST_CHECK int ct_rows_to_json(const struct ct_worker_row *rows, int count, struct cJSON **out);

/* Gives *out (ct_free), NULL if there is no row. Checks types and ranges, that local ranks are 0,
 * 1, 2 ... in this order, and that ranks follow each other. CT_EFORMAT names the row and the field;
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_rows_from_json(const struct cJSON *array, struct ct_worker_row **out,
                                    int *count, struct ct_err *err);

/* ---- in the status -------------------------------------------------------------------------- */

/* How many rows one document shows, for all jobs together. Printing them takes some 10 ms. */
#define CT_STATUS_ROWS_MAX 16384

/* Bytes of the last lines of one failed worker. */
#define CT_STATUS_TAIL_MAX ((size_t)4096)

/* The rows of one node, borrowed from the membership until its next event. */
struct ct_row_span {
    int job; /* number of its job in the document, from 0 */
    int first_rank;
    int count;
    const struct ct_worker_row *rows;
};

/* What happens with the rows while a status is made: they are printed into the document (`print`)
 * or collected as spans. Zeroed memory but for `print`; ct_status_rows_fini() frees. */
struct ct_status_rows {
    bool print;
    bool tails; /* the last lines of failed workers are wanted, too */
    bool more;  /* there are rows that the document does not show */
    int job;    /* number of the job that is being made */
    int taken;  /* rows so far */
    struct ct_row_span *spans;
    size_t count, room;
};

void ct_status_rows_fini(struct ct_status_rows *rows);

/* Takes the rows of one node. `host` has its JSON quotes already. Prints them into `out`, the array
 * of `workers`, or collects them. CT_ENOMEM. */
CT_MUST_CHECK int ct_status_rows_add(struct ct_status_rows *rows, const struct ct_row_span *span,
                                     const char *host, struct ct_buf *out);

#endif
