/* SPDX-License-Identifier: Apache-2.0
 *
 * ct_probe_run() in a thread of its own: asking workers takes up to seconds, and the loop goes on
 * meanwhile.
 */
#ifndef CT_LAUNCHER_STACKS_PROBE_UV_H
#define CT_LAUNCHER_STACKS_PROBE_UV_H

#include "launcher/stacks/debug_server.h"
#include "launcher/stacks/probe.h"

#include <uv.h>

struct ct_probe_task;

/* Called once from the loop, unless the task is stopped. `probe` is borrowed for the call; its
 * answers are as far as they came. */
typedef void (*ct_probe_done_fn)(void *data, const struct ct_probe *probe);

struct ct_probe_task_options {
    /* Paths by source, as in struct ct_probe. Borrowed until `done` is called, or until the loop
     * has ended after ct_probe_task_stop(). */
    char *const *tools;
    const struct ct_probe_target *targets; /* copied */
    int count, first;                      /* as in struct ct_probe */
    struct ct_debug_store store;           /* copied */
    int64_t budget_ms;
    ct_probe_done_fn done;
    void *data;
};

/* Begins to ask. CT_ENOMEM, CT_EIO. Gives *out, which is valid until `done` is called. */
CT_MUST_CHECK int ct_probe_task_start(uv_loop_t *loop, const struct ct_probe_task_options *options,
                                      struct ct_probe_task **out, struct ct_err *err);

/* Ends the task; `done` is not called. NULL is allowed. */
void ct_probe_task_stop(struct ct_probe_task *task);

#endif
