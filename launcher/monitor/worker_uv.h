/* SPDX-License-Identifier: Apache-2.0
 *
 * One worker in one generation: its streams, its process, and how it ended. A process may go on in
 * the next generation, with the same streams.
 */
#ifndef CT_LAUNCHER_MONITOR_WORKER_UV_H
#define CT_LAUNCHER_MONITOR_WORKER_UV_H

#include "launcher/hang/oom.h"
#include "launcher/hang/uninterruptible.h"
#include "launcher/output/output_uv.h"
#include "launcher/process/proc_uv.h"
#include "launcher/report/report.h"
#include "launcher/setup/job_spec.h"
#include "launcher/stacks/probe.h"
#include "launcher/worker/order_writer.h"
#include "launcher/worker/worker_env.h"

/* Zeroed memory is no worker. */
struct ct_worker {
    struct ct_proc *proc;
    struct ct_output_stream *out, *err;
    struct ct_report_worker report;
    int64_t started_ns;                      /* when its process was started */
    char server_socket[CT_PROBE_SOCKET_MAX]; /* where its worker server may listen; "" = nowhere */
    int rss_mib; /* resident memory of its process when that was looked at last; 0 = not known */
    struct ct_worker_end ended_for; /* why ctrun has ended it; CT_END_EXITED = ctrun has not */
    struct ct_worker_hang {
        char place[CT_END_DETAIL_MAX]; /* "at train.py:15 in main"; "" = not known */
        char *stack;                   /* in lines; NULL = not known */
        char *kernel_stack;            /* to be printed with the report of its end; NULL = none */
        bool may_dump; /* it runs Python and told nobody, but may write its stack at SIGABRT */
    } hang;            /* where it stood when it hung */
    struct ct_uninterruptible uninterruptible; /* what the monitor has seen of its process */
    bool told_to_park;                         /* the stop under way has told it to park */
    bool parked;                               /* it had parked when the stop looked last */
    bool kept; /* its generation is over, and it waits for the next one */
};

/* Borrowed for the call. */
struct ct_worker_options {
    const struct ct_job_spec *job;
    const struct ct_worker_env *worker_env;
    struct ct_output *output;
    struct ct_procs *procs;
    ct_proc_exit_fn on_exit;
    void *data;
    /* Returns a process that was kept ready for this rank with these arguments and is the worker
     * from now on, with the given environment and streams; or NULL, if there is none. NULL = never
     * ask. */
    struct ct_proc *(*take_spare)(void *spares, int local_rank, char *const *argv, char *const *env,
                                  const int stdio[3], ct_proc_exit_fn on_exit, void *data);
    void *spares;
};

/* Gives the arguments and the environment of a worker that options->worker_env is for, and where
 * its worker server may listen. The lists must be empty before. CT_ENOMEM; CT_ENOENT: the number of
 * a port in the arguments is not known. */
CT_MUST_CHECK int ct_worker_describe(const struct ct_worker_options *options, int local_rank,
                                     char socket[CT_PROBE_SOCKET_MAX], struct ct_strlist *args,
                                     struct ct_strlist *vars, struct ct_err *err);

/* Starts the worker; its log folder must be there. On failure the worker is as
 * ct_worker_clear() leaves it, report.end says what follows for ctrun, and the text of `err`
 * names what is in the way. */
CT_MUST_CHECK int ct_worker_start(struct ct_worker *worker, int local_rank,
                                  const struct ct_worker_options *options, struct ct_err *err);

/* Lets a worker that is kept go on in the generation of options->worker_env. On failure the
 * process is ended and the worker cleared. */
CT_MUST_CHECK int ct_worker_go_on(struct ct_worker *worker, int local_rank,
                                  const struct ct_worker_options *options,
                                  struct ct_order_writer *orders, struct ct_err *err);

/* Fills in the report of a worker whose process has ended. `was_asked`: it had been told to stop
 * before. `permanent`: it has said that a restart cannot help; that only counts if it failed. */
void ct_worker_ended(struct ct_worker *worker, const struct ct_exit *end, bool was_asked,
                     bool permanent, struct ct_oom *oom);

/* Keeps where a worker that hangs stands, for the report of its end. An empty stack changes
 * nothing.
 */
void ct_worker_keep_stack(struct ct_worker *worker, const struct ct_stack *stack);
void ct_worker_forget_stack(struct ct_worker *worker);

/* Frees streams and process, which must have ended. Keeps the report. */
void ct_worker_clear(struct ct_worker *worker);

/* Is this worker's standard error shown, perhaps among lines of other workers? */
bool ct_worker_err_is_shown(const struct ct_job_spec *job, int local_rank);

/* Does this worker write to ctrun's own standard output? */
bool ct_worker_inherits_stdout(const struct ct_worker_options *options, int local_rank);

/* Will this worker's standard error be seen by itself, right above ctrun's own words? */
bool ct_worker_err_is_seen(const struct ct_job_spec *job, int local_rank);

#endif
