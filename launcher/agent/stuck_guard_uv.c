/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the timer looks at the state of each worker's process; none is in uninterruptible
 * sleep (D) for longer than a moment.
 *
 * Other paths: one is in it at every look, for TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT seconds.
 * No signal reaches it, and a new worker would need the device or file system that it holds. So it
 * counts as failed, whether its process ends or not, and no restart follows, as in torchrun 2.15.
 *
 * Failure modes: a state that cannot be read counts as another one than D.
 *
 * Who frees: ct_stuck_guard_close(); the handle belongs to the loop until it has run dry.
 */
#include "launcher/agent/stuck_guard_uv.h"

#include "common/clock.h"
#include "common/num.h"
#include "launcher/agent/agent.h"
#include "launcher/cli/option_values.h"
#include "launcher/process/proctree.h"
#include "launcher/util/environ.h"

#include <limits.h>

#define TIMEOUT_ENV "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"
/* Years are as good as never. */
#define TIMEOUT_MAX_S 1e9
/* So many looks in the time, but neither a busy loop nor a late one. */
#define LOOKS 10
#define PERIOD_MIN_MS 100
#define PERIOD_MAX_MS 1000

/* 0 = off, as in torchrun also where it is no number. */
static int64_t timeout_ns(char *const *env)
{
    const char *value = ct_environ_get(env, TIMEOUT_ENV);
    char number[CT_OPTION_NUMBER_MAX];
    double seconds;
    if (value == NULL ||
        ct_parse_double(ct_option_trim(value, number), 0, TIMEOUT_MAX_S, &seconds) != 0) {
        return 0;
    }
    return (int64_t)(seconds * (double)CT_NS_PER_S);
}

static void look(struct ct_stuck_guard *guard, int local_rank, int64_t now_ns)
{
    struct ct_worker *worker = &guard->workers[local_rank];
    struct ct_proctree_entry entry;
    if (guard->states[local_rank] != CT_WORKER_ALIVE || worker->proc == NULL ||
        !ct_proc_alive(worker->proc) || !ct_proctree_read_pid(ct_proc_pid(worker->proc), &entry) ||
        entry.state != 'D') {
        worker->stuck_since_ns = 0;
        return;
    }
    if (worker->stuck_since_ns == 0) {
        worker->stuck_since_ns = now_ns;
    }
    int64_t stuck_ns = now_ns - worker->stuck_since_ns;
    if (stuck_ns < guard->timeout_ns) {
        return;
    }
    int64_t seconds = stuck_ns / CT_NS_PER_S;
    worker->ended_for = (struct ct_worker_end){
        .kind = CT_END_STUCK,
        .value = seconds < INT_MAX ? (int)seconds : INT_MAX,
        .final = true,
    };
    worker->report.ended = true;
    worker->report.end = worker->ended_for;
    guard->on_stuck(guard->data, local_rank, &worker->ended_for);
}

static void on_look(uv_timer_t *timer)
{
    struct ct_stuck_guard *guard = timer->data;
    int64_t now_ns = ct_clock_now(NULL);
    /* The first one stops the generation. */
    for (int i = 0; i < guard->job->workers && !*guard->stopping && guard->open; i++) {
        look(guard, i, now_ns);
    }
}

int ct_stuck_guard_open(struct ct_stuck_guard *guard, uv_loop_t *loop, struct ct_err *err)
{
    guard->timeout_ns = timeout_ns(guard->job->env);
    if (guard->timeout_ns == 0) {
        return 0;
    }
    int64_t ms = guard->timeout_ns / CT_NS_PER_MS / LOOKS;
    ms = ms < PERIOD_MIN_MS ? PERIOD_MIN_MS : ms > PERIOD_MAX_MS ? PERIOD_MAX_MS : ms;
    int rc = uv_timer_init(loop, &guard->timer);
    if (rc == 0) {
        guard->timer.data = guard;
        guard->open = true;
        rc = uv_timer_start(&guard->timer, on_look, (uint64_t)ms, (uint64_t)ms);
    }
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot set a timer: %s", uv_strerror(rc));
}

void ct_stuck_guard_close(struct ct_stuck_guard *guard)
{
    if (guard->open) {
        guard->open = false;
        uv_close((uv_handle_t *)&guard->timer, NULL);
    }
}
