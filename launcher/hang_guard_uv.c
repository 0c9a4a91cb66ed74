/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the watch never says a word.
 *
 * Other paths: a verdict is printed. If the suspect is to be ended it gets SIGKILL, its group with
 * it: what stands still answers to nothing else, and its peers are stopped in the usual two phases.
 *
 * Failure modes: a suspect that is stuck in the kernel does not end. Then the job goes on hanging,
 * and the verdict stands on the screen.
 *
 * Who frees: the watch frees itself in its close callback.
 */
#include "launcher/hang_guard_uv.h"

#include "common/clock.h"

#include <limits.h>
#include <signal.h>
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
    worker->hung = (struct ct_end){
        .kind = CT_END_HUNG,
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
    const struct ct_watch_options options = {
        .workers = guard->job->workers,
        .first_rank = guard->plan->first_rank,
        .whole_job = guard->plan->world_size == guard->job->workers,
        .timeout_ns = guard->job->options->hang_timeout_ns,
        .pages = guard->pages,
        .prefix = CT_REPORT_PREFIX,
        .pid_of = pid_of,
        .on_verdict = on_verdict,
        .data = guard,
    };
    return ct_watch_start(loop, &options, &guard->watch, err);
}

void ct_hang_guard_reset(struct ct_hang_guard *guard)
{
    ct_watch_reset(guard->watch, guard->plan->first_rank,
                   guard->plan->world_size == guard->job->workers);
}

void ct_hang_guard_close(struct ct_hang_guard *guard)
{
    ct_watch_stop(guard->watch);
    guard->watch = NULL;
}
