/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun does about a hang. It does not decide whether there is one: hang.h does that for the
 * workers of this machine, hang_vote.h for the workers of all machines. A verdict is printed; with
 * --on-hang restart or abort the suspect is also killed, so that it is a failed worker like any
 * other, with CT_END_HUNG for its end.
 */
#ifndef CT_LAUNCHER_AGENT_HANG_MONITOR_UV_H
#define CT_LAUNCHER_AGENT_HANG_MONITOR_UV_H

#include "common/err.h"
#include "launcher/agent/worker_uv.h"
#include "launcher/hang/hang_sampler_uv.h"

#include <stdbool.h>

/* Zeroed memory watches nothing. Everything is borrowed. */
struct ct_hang_monitor {
    const struct ct_job_spec *job;
    const struct ct_worker_env *worker_env;
    const struct ct_progress_reader *progress;
    struct ct_output *output;
    struct ct_worker *workers; /* by local rank */
    const bool *stopping;      /* the workers were told to end, so no progress is no hang */
    struct ct_hang_sampler *sampler;
};

/* Call it with the other fields filled in. Does nothing without --hang-timeout. */
CT_MUST_CHECK int ct_hang_monitor_open(struct ct_hang_monitor *monitor, uv_loop_t *loop,
                                       struct ct_err *err);

/* Starts anew, because a new generation of workers begins. */
void ct_hang_monitor_reset(struct ct_hang_monitor *monitor);

/* Gives what the next beat tells the other machines about the workers here. */
void ct_hang_monitor_vote(const struct ct_hang_monitor *monitor, struct ct_hang_vote *out);

/* Takes the verdict on all machines' votes from the membership. The suspect is on `host`. */
void ct_hang_monitor_take_job_verdict(struct ct_hang_monitor *monitor,
                                      const struct ct_hang_vote *verdict, const char *host);

void ct_hang_monitor_close(struct ct_hang_monitor *monitor); /* repeated calls are allowed */

#endif
