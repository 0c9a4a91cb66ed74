/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the sampler finds no hang.
 *
 * Other paths: it finds one, and the verdict is printed. With --on-hang restart or abort the
 * suspect and its group get SIGKILL, because what stands still may react to nothing else. Its peers
 * are stopped in the usual two phases.
 *
 * The machines of a job may find together who holds all of them up. A verdict on a worker of this
 * machine then counts as one of its own.
 *
 * Failure modes: a suspect that is stuck in the kernel does not end. The job goes on hanging, and
 * the verdict stays on the screen.
 *
 * Who frees: the sampler frees itself in its close callback.
 */
#include "launcher/agent/hang_guard_uv.h"

#include "common/clock.h"
#include "common/text.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static pid_t pid_of(void *data, int local_rank)
{
    const struct ct_hang_guard *guard = data;
    const struct ct_worker *worker = &guard->workers[local_rank];
    bool alive =
        !*guard->stopping && !worker->kept && worker->proc != NULL && ct_proc_alive(worker->proc);
    return alive ? ct_proc_pid(worker->proc) : 0;
}

static void on_verdict(void *data, const struct ct_hang_verdict *verdict, const char *text)
{
    struct ct_hang_guard *guard = data;
    struct ct_worker *worker = &guard->workers[verdict->local_rank];
    int64_t seconds = verdict->still_ns / CT_NS_PER_S;
    ct_output_say(guard->output, CT_OUTPUT_ERR, text, strlen(text));
    if (guard->job->options->on_hang == CT_ON_HANG_REPORT) {
        return;
    }
    worker->ended_for = (struct ct_worker_end){
        .kind = verdict->reason == CT_HANG_ALL ? CT_END_ALL_HUNG : CT_END_HUNG,
        .value = seconds < INT_MAX ? (int)seconds : INT_MAX,
        .final = guard->job->options->on_hang == CT_ON_HANG_ABORT,
    };
    ct_proc_signal_group(worker->proc, SIGKILL);
}

int ct_hang_guard_open(struct ct_hang_guard *guard, uv_loop_t *loop, struct ct_err *err)
{
    if (guard->job->options->hang_timeout_ns < 0) {
        return 0;
    }
    const struct ct_hang_sampler_options options = {
        .workers = guard->job->workers,
        .first_rank = guard->worker_env->first_rank,
        .whole_job = guard->worker_env->world_size == guard->job->workers,
        .timeout_ns = guard->job->options->hang_timeout_ns,
        .progress = guard->progress,
        .prefix = CT_REPORT_PREFIX,
        .pid_of = pid_of,
        .on_verdict = on_verdict,
        .data = guard,
    };
    return ct_hang_sampler_start(loop, &options, &guard->sampler, err);
}

void ct_hang_guard_reset(struct ct_hang_guard *guard)
{
    ct_hang_sampler_reset(guard->sampler, guard->worker_env->first_rank,
                          guard->worker_env->world_size == guard->job->workers);
}

void ct_hang_guard_still(const struct ct_hang_guard *guard, struct ct_hang_vote *out)
{
    ct_hang_sampler_vote(guard->sampler, out);
    out->generation = guard->worker_env->generation;
}

/* For people at the other machines; that one's ctrun tells what its rank was seen doing. */
static void tell_of_another(struct ct_hang_guard *guard, const struct ct_hang_vote *verdict,
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
    ct_output_say(guard->output, CT_OUTPUT_ERR, line, (size_t)len);
}

void ct_hang_guard_hear(struct ct_hang_guard *guard, const struct ct_hang_vote *verdict,
                        const char *host)
{
    int local_rank = verdict->rank - guard->worker_env->first_rank;
    if (guard->sampler == NULL || *guard->stopping || verdict->kind == CT_HANG_VOTE_WAITING ||
        verdict->kind == CT_HANG_VOTE_QUIET ||
        verdict->generation != guard->worker_env->generation) {
        return;
    }
    if (local_rank >= 0 && local_rank < guard->job->workers) {
        ct_hang_sampler_accuse(guard->sampler, verdict);
    } else {
        tell_of_another(guard, verdict, host);
    }
}

void ct_hang_guard_close(struct ct_hang_guard *guard)
{
    ct_hang_sampler_stop(guard->sampler);
    guard->sampler = NULL;
}
