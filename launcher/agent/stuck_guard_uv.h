/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches for workers that are stuck in the kernel, if the environment asks for it by
 * TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT: such a worker is a failed one like any other, with
 * CT_END_STUCK for its end.
 */
#ifndef CT_LAUNCHER_AGENT_STUCK_GUARD_UV_H
#define CT_LAUNCHER_AGENT_STUCK_GUARD_UV_H

#include "common/err.h"
#include "launcher/agent/worker_uv.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* The worker's report says it already. */
typedef void (*ct_stuck_fn)(void *data, int local_rank, const struct ct_worker_end *end);

struct ct_stuck_guard {
    /* borrowed */
    const struct ct_job_spec *job;
    struct ct_worker *workers; /* by local rank */
    const uint8_t *states;     /* enum ct_agent_worker, by local rank */
    const bool *stopping;      /* while it is true nobody is looked at */
    ct_stuck_fn on_stuck;
    void *data;
    /* own */
    uv_timer_t timer;
    bool open;
    int64_t timeout_ns; /* 0 = nobody is watched */
};

/* With the borrowed fields filled in. */
CT_MUST_CHECK int ct_stuck_guard_open(struct ct_stuck_guard *guard, uv_loop_t *loop,
                                      struct ct_err *err);

/* Repeated calls are allowed. The memory must stay until the loop has run dry. */
void ct_stuck_guard_close(struct ct_stuck_guard *guard);

#endif
