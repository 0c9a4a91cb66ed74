/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves the timers of workers (file_timer.h) through a named pipe, with
 * TORCHELASTIC_ENABLE_FILE_TIMER=1 as torchrun does. A worker whose timer expires is ended, and is
 * then a failed worker like any other, with CT_END_EXPIRED for its end.
 */
#ifndef CT_LAUNCHER_AGENT_TIMER_GUARD_UV_H
#define CT_LAUNCHER_AGENT_TIMER_GUARD_UV_H

#include "launcher/agent/worker_uv.h"
#include "launcher/hang/file_timer.h"

#include <uv.h>

struct ct_timer_guard {
    /* borrowed */
    const struct ct_job_spec *job;
    struct ct_output *output;
    struct ct_worker *workers; /* by local rank */
    const bool *stopping;      /* while it is true nobody is ended */
    const int *first_rank;     /* of local rank 0 */
    /* own */
    char *path; /* NULL = no timers are served */
    int fd;
    bool open;
    uv_poll_t pipe;
    uv_timer_t timer;
    struct ct_file_timers timers;
    struct ct_file_timer_lines lines;
    bool said_bad, said_foreign, said_many;
};

/* Does nothing where the environment does not ask for it. On failure the guard is as
 * ct_timer_guard_close() leaves it, and the text names the pipe. */
CT_MUST_CHECK int ct_timer_guard_open(struct ct_timer_guard *guard, uv_loop_t *loop,
                                      struct ct_err *err);

/* A worker of a new generation takes the place of an old one. */
void ct_timer_guard_reset(struct ct_timer_guard *guard, int local_rank);

/* Repeated calls are allowed. The memory must stay until the loop has run dry. */
void ct_timer_guard_close(struct ct_timer_guard *guard);

#endif
