/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun does about a hang: tells it, and with --on-hang restart or abort ends the suspect, so
 * that it is a failed worker like any other, with CT_END_HUNG for its end.
 */
#ifndef CT_LAUNCHER_AGENT_HANG_GUARD_UV_H
#define CT_LAUNCHER_AGENT_HANG_GUARD_UV_H

#include "common/err.h"
#include "launcher/agent/worker_uv.h"
#include "launcher/hang/hang_sampler_uv.h"

#include <stdbool.h>

/* Zeroed memory is "not watching". Everything is borrowed. */
struct ct_hang_guard {
    const struct ct_job_spec *job;
    const struct ct_worker_env *worker_env;
    const struct ct_progress_reader *progress;
    struct ct_output *output;
    struct ct_worker *workers; /* by local rank */
    const bool *stopping;      /* they have been told to end: standing still is no hang then */
    struct ct_hang_sampler *sampler;
};

/* With the other fields filled in; does nothing without --hang-timeout. */
CT_MUST_CHECK int ct_hang_guard_open(struct ct_hang_guard *guard, uv_loop_t *loop,
                                     struct ct_err *err);

/* A new generation. */
void ct_hang_guard_reset(struct ct_hang_guard *guard);

/* What a beat says of our workers. */
void ct_hang_guard_still(const struct ct_hang_guard *guard, struct ct_hang_vote *out);

/* To be called when the machines of the job have found together who holds it up, on `host`. */
void ct_hang_guard_hear(struct ct_hang_guard *guard, const struct ct_hang_vote *verdict,
                        const char *host);

void ct_hang_guard_close(struct ct_hang_guard *guard); /* repeated calls are allowed */

#endif
