/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves the timers of workers through a named pipe, with TORCHELASTIC_ENABLE_FILE_TIMER=1 as
 * torchrun does. file_timer.h keeps the timers and says which one has expired. A worker whose timer
 * expires is ended here; it is then a failed worker like any other, with CT_END_EXPIRED for its
 * end.
 */
#ifndef CT_LAUNCHER_MONITOR_FILE_TIMER_SERVER_UV_H
#define CT_LAUNCHER_MONITOR_FILE_TIMER_SERVER_UV_H

#include "launcher/hang/file_timer.h"
#include "launcher/monitor/worker_uv.h"

#include <uv.h>

struct ct_file_timer_server {
    /* borrowed */
    const struct ct_job_spec *job;
    struct ct_output *output;
    struct ct_worker *workers; /* by local rank */
    const bool *stopping;      /* while it is true, no worker is ended for a timer */
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

/* Does nothing where the environment does not ask for it. On failure the server is as
 * ct_file_timer_server_close() leaves it, and the text names the pipe. */
CT_MUST_CHECK int ct_file_timer_server_open(struct ct_file_timer_server *server, uv_loop_t *loop,
                                            struct ct_err *err);

/* Forgets the timers of a worker, because a worker of a new generation takes its place. */
void ct_file_timer_server_reset(struct ct_file_timer_server *server, int local_rank);

/* Repeated calls are allowed. The memory must stay until the loop has run dry. */
void ct_file_timer_server_close(struct ct_file_timer_server *server);

#endif
