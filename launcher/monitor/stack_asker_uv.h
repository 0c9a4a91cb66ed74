/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the workers of this node where they stand (launcher/stacks/), for the monitor of hangs and
 * for people who ask. Knows the workers' processes and which tools are installed.
 */
#ifndef CT_LAUNCHER_MONITOR_STACK_ASKER_UV_H
#define CT_LAUNCHER_MONITOR_STACK_ASKER_UV_H

#include "launcher/monitor/worker_uv.h"
#include "launcher/stacks/explain.h"
#include "launcher/stacks/probe_uv.h"

/* Starts as zeroed memory with the first four fields set. These are borrowed. */
struct ct_stack_asker {
    uv_loop_t *loop;
    const struct ct_job_spec *job;
    const struct ct_worker_env *worker_env;
    const struct ct_worker *workers; /* by local rank */
    char *tools[CT_PROBE_SOURCES];   /* paths; NULL = not installed, or not looked for */
    bool looked;
};

/* Whom to ask. */
struct ct_stack_question {
    int only;    /* this local rank; -1 = all */
    int suspect; /* the local rank that is asked first and shown first; -1 = none */
    int64_t budget_ms;
};

/* Begins to ask. `done` is called as in probe_uv.h. CT_ENOMEM, CT_EIO. */
CT_MUST_CHECK int ct_stack_asker_ask(struct ct_stack_asker *asker,
                                     const struct ct_stack_question *question,
                                     ct_probe_done_fn done, void *data, struct ct_probe_task **out,
                                     struct ct_err *err);

/* Fills in what explain.h needs about an answer. */
struct ct_explain ct_stack_asker_explain(const struct ct_stack_asker *asker,
                                         const struct ct_probe *probe, int suspect);

/* To be called when the loop has ended. */
void ct_stack_asker_fini(struct ct_stack_asker *asker);

#endif
