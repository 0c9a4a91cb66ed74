/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the sampler finds no hang.
 *
 * Other paths: the sampler finds a hang, and the verdict is printed. With --on-hang restart or
 * abort the suspect and its process group get SIGKILL, because a process that hangs may react to no
 * other signal. The other workers are stopped in the usual two phases.
 *
 * When the machines of a job find the suspect together and it runs here, their verdict is treated
 * like one of the sampler. When it runs elsewhere, it is only printed.
 *
 * Failure modes: a suspect in uninterruptible sleep does not end. The job goes on hanging, and the
 * verdict stays on the screen.
 *
 * Who frees: the sampler frees itself in its close callback.
 */
#include "launcher/agent/hang_monitor_uv.h"

#include "common/clock.h"
#include "common/text.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static pid_t pid_of(void *data, int local_rank)
{
    const struct ct_hang_monitor *monitor = data;
    const struct ct_worker *worker = &monitor->workers[local_rank];
    bool alive =
        !*monitor->stopping && !worker->kept && worker->proc != NULL && ct_proc_alive(worker->proc);
    return alive ? ct_proc_pid(worker->proc) : 0;
}

static void on_verdict(void *data, const struct ct_hang_verdict *verdict, const char *text)
{
    struct ct_hang_monitor *monitor = data;
    struct ct_worker *worker = &monitor->workers[verdict->local_rank];
    int64_t seconds = verdict->still_ns / CT_NS_PER_S;
    ct_output_say(monitor->output, CT_OUTPUT_ERR, text, strlen(text));
    if (monitor->job->options->on_hang == CT_ON_HANG_REPORT) {
        return;
    }
    worker->ended_for = (struct ct_worker_end){
        .kind = verdict->reason == CT_HANG_ALL ? CT_END_ALL_HUNG : CT_END_HUNG,
        .value = seconds < INT_MAX ? (int)seconds : INT_MAX,
        .final = monitor->job->options->on_hang == CT_ON_HANG_ABORT,
    };
    ct_proc_signal_group(worker->proc, SIGKILL);
}

int ct_hang_monitor_open(struct ct_hang_monitor *monitor, uv_loop_t *loop, struct ct_err *err)
{
    if (monitor->job->options->hang_timeout_ns < 0) {
        return 0;
    }
    const struct ct_hang_sampler_options options = {
        .workers = monitor->job->resolved->workers,
        .first_rank = monitor->worker_env->first_rank,
        .whole_job = monitor->worker_env->world_size == monitor->job->resolved->workers,
        .timeout_ns = monitor->job->options->hang_timeout_ns,
        .progress = monitor->progress,
        .prefix = CT_REPORT_PREFIX,
        .pid_of = pid_of,
        .on_verdict = on_verdict,
        .data = monitor,
    };
    return ct_hang_sampler_start(loop, &options, &monitor->sampler, err);
}

void ct_hang_monitor_reset(struct ct_hang_monitor *monitor)
{
    ct_hang_sampler_reset(monitor->sampler, monitor->worker_env->first_rank,
                          monitor->worker_env->world_size == monitor->job->resolved->workers);
}

void ct_hang_monitor_vote(const struct ct_hang_monitor *monitor, struct ct_hang_vote *out)
{
    ct_hang_sampler_vote(monitor->sampler, out);
    out->generation = monitor->worker_env->generation;
}

/* Prints a line for the users of the other machines. The suspect's machine prints the details. */
static void tell_of_another(struct ct_hang_monitor *monitor, const struct ct_hang_vote *verdict,
                            const char *host)
{
    static const char *const what[CT_HANG_VOTE_KINDS] = {
        [CT_HANG_VOTE_STOPPED] = "it is stopped",
        [CT_HANG_VOTE_BUSY] = "the others wait for it",
        [CT_HANG_VOTE_STUCK] = "it is stuck in the kernel",
        [CT_HANG_VOTE_NAPPING] = "it sleeps in another place than the others",
        [CT_HANG_VOTE_BEHIND] = "it waits in an earlier step than the others",
        [CT_HANG_VOTE_ALL] = "none stands out",
    };
    char name[CT_HOST_MAX], line[CT_HOST_MAX + 160];
    (void)snprintf(name, sizeof(name), "%.*s", CT_HOST_MAX - 1, host);
    ct_text_clean(name); /* it goes to a terminal */
    int len = verdict->kind == CT_HANG_VOTE_ALL
                  ? snprintf(line, sizeof(line), CT_REPORT_PREFIX "the job hangs")
                  : snprintf(line, sizeof(line), CT_REPORT_PREFIX "rank %d hangs on %s",
                             verdict->rank, name);
    len += snprintf(line + len, sizeof(line) - (size_t)len,
                    ": no rank of the job has moved for %.1f s, and %s\n",
                    (double)verdict->still_ms / 1000, what[verdict->kind]);
    ct_output_say(monitor->output, CT_OUTPUT_ERR, line, (size_t)len);
}

void ct_hang_monitor_take_job_verdict(struct ct_hang_monitor *monitor,
                                      const struct ct_hang_vote *verdict, const char *host)
{
    int local_rank = verdict->rank - monitor->worker_env->first_rank;
    if (monitor->sampler == NULL || *monitor->stopping || !ct_hang_vote_is_verdict(verdict) ||
        verdict->generation != monitor->worker_env->generation) {
        return;
    }
    if (local_rank >= 0 && local_rank < monitor->job->resolved->workers) {
        ct_hang_sampler_take_job_verdict(monitor->sampler, verdict);
    } else {
        tell_of_another(monitor, verdict, host);
    }
}

void ct_hang_monitor_close(struct ct_hang_monitor *monitor)
{
    ct_hang_sampler_stop(monitor->sampler);
    monitor->sampler = NULL;
}
