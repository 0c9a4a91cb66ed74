/* SPDX-License-Identifier: Apache-2.0
 *
 * Looks at the workers' processes now and then, and reports one that is in uninterruptible sleep
 * for too long as a failed worker, with CT_END_UNINTERRUPTIBLE for its end. What "too long" means
 * is decided by launcher/hang/uninterruptible.h.
 */
#ifndef CT_LAUNCHER_AGENT_UNINTERRUPTIBLE_MONITOR_UV_H
#define CT_LAUNCHER_AGENT_UNINTERRUPTIBLE_MONITOR_UV_H

#include "common/err.h"
#include "launcher/monitor/worker_uv.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* The worker's report already holds its end when this is called. */
typedef void (*ct_uninterruptible_fn)(void *data, int local_rank, const struct ct_worker_end *end);

struct ct_uninterruptible_monitor {
    /* borrowed */
    struct ct_worker *workers; /* by local rank */
    int count;                 /* of the workers */
    const uint8_t *states;     /* enum ct_agent_worker, by local rank */
    const bool *stopping;      /* while it is true, no process is looked at */
    ct_uninterruptible_fn on_failed;
    void *data;
    /* own */
    uv_timer_t timer;
    bool open;
    int64_t timeout_ns; /* 0 = the check is off */
};

/* Call it with the borrowed fields filled in. Does nothing unless `env` turns the check on. */
CT_MUST_CHECK int ct_uninterruptible_monitor_open(struct ct_uninterruptible_monitor *monitor,
                                                  uv_loop_t *loop, char *const *env,
                                                  struct ct_err *err);

/* Repeated calls are allowed. The memory must stay until the loop has run dry. */
void ct_uninterruptible_monitor_close(struct ct_uninterruptible_monitor *monitor);

#endif
