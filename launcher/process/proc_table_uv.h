/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of processes: proc_uv.c starts, watches and reaps them, proc_stop_uv.c stops them all.
 * Private to these two.
 */
#ifndef CT_LAUNCHER_PROCESS_PROC_TABLE_UV_H
#define CT_LAUNCHER_PROCESS_PROC_TABLE_UV_H

#include "common/list.h"
#include "launcher/process/proc_uv.h"
#include "launcher/process/proctree.h"
#include "launcher/process/stop.h"

struct ct_proc {
    struct ct_list link; /* in procs->all */
    struct ct_procs *procs;
    uv_poll_t poll; /* on the pidfd; freed with the object in its close callback */
    struct ct_child child;
    bool alive;
    struct ct_exit end;
    struct ct_stop_target target;
    enum ct_proc_stay stay; /* as answered last, in a stop */
    ct_proc_exit_fn on_exit;
    void *data;
};

/* A stop under way. */
struct stopping {
    bool active;
    int sig;
    struct ct_stop policy;
    struct ct_stop_target strays;
    struct ct_procs_stopped result;
    bool confirming;   /* the last look found nothing left to end */
    uint64_t pause_ms; /* until the next look at what cannot be watched */
    ct_procs_stopped_fn done;
    void *data;
};

struct ct_procs {
    uv_loop_t *loop;
    struct ct_guard *guard;
    const struct ct_log *log;
    struct ct_list all; /* struct ct_proc, ended or not, until freed */
    uv_signal_t sigchld;
    uv_timer_t timer; /* of the stop */
    struct stopping stop;
    ct_proc_stay_fn stay;
    void *stay_data;
    struct ct_proctree tree;
    bool blind; /* that /proc cannot be read was told */
    int open_handles;
    bool closing;
    ct_procs_close_fn close_cb;
    void *close_data;
};

#endif
