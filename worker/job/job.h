/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of a job, for the communicators.
 */
#ifndef CT_WORKER_JOB_JOB_H
#define CT_WORKER_JOB_JOB_H

#include "worker/ctworker.h"

#include "common/buf.h"
#include "rendezvous/client/client.h"
#include "worker/job/order_reader.h"
#include "worker/job/progress.h"

struct ctw_job {
    struct ctw_env env;
    struct ct_client *client; /* NULL: a job of one process without a launcher */
    int64_t timeout_ms;
    bool lazy; /* connect when the store is needed */
    struct progress_page progress;
    struct order_reader handover;
    struct ctw_crew *crew; /* this rank's crew, borrowed; NULL if it has none */
    unsigned comms;        /* number of opened ones, which names the next; the same on every rank */
};

/* Connects to the store that job->env names. */
CT_MUST_CHECK int job_connect(struct ctw_job *job, struct ct_err *err);

/* Connects a job that was opened without a connection; does nothing if it has one. */
CT_MUST_CHECK int job_need_store(struct ctw_job *job, struct ct_err *err);

/* As ctw_job_get() with its own timeout; appends to `out`. */
CT_MUST_CHECK int ctw_job_get_within(struct ctw_job *job, const char *key, int64_t timeout_ms,
                                     struct ct_buf *out, struct ct_err *err);

#endif
