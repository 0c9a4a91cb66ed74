/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the timer reads the state of each worker's process, and no state lasts too long.
 *
 * Other paths: a process has been in uninterruptible sleep at every look for the whole timeout. No
 * signal reaches it, and a new worker would need the device or file system that it waits for. So
 * the worker counts as failed, whether its process ends or not, and no restart follows, as in
 * torchrun 2.15.
 *
 * Failure modes: a state that cannot be read counts as another state.
 *
 * Who frees: ct_uninterruptible_monitor_close(); the handle belongs to the loop until it has run
 * dry.
 */
#include "launcher/agent/uninterruptible_monitor_uv.h"

#include "common/clock.h"
#include "launcher/agent/agent.h"
#include "launcher/process/proctree.h"

#include <limits.h>

/* Returns the state of the worker's process; '?' if it cannot be read. */
static char state_of(const struct ct_worker *worker)
{
    struct ct_proctree_entry entry;
    bool alive = worker->proc != NULL && ct_proc_alive(worker->proc);
    return alive && ct_proctree_read_pid(ct_proc_pid(worker->proc), &entry) ? entry.state : '?';
}

static void look(struct ct_uninterruptible_monitor *monitor, int local_rank, int64_t now_ns)
{
    struct ct_worker *worker = &monitor->workers[local_rank];
    char state = monitor->states[local_rank] == CT_WORKER_ALIVE ? state_of(worker) : '?';
    int64_t slept_ns =
        ct_uninterruptible_step(&worker->uninterruptible, state, monitor->timeout_ns, now_ns);
    if (slept_ns < 0) {
        return;
    }
    int64_t seconds = slept_ns / CT_NS_PER_S;
    worker->ended_for = (struct ct_worker_end){
        .kind = CT_END_UNINTERRUPTIBLE,
        .value = seconds < INT_MAX ? (int)seconds : INT_MAX,
        .final = true,
    };
    worker->report.ended = true;
    worker->report.end = worker->ended_for;
    monitor->on_failed(monitor->data, local_rank, &worker->ended_for);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_uninterruptible_monitor *monitor = timer->data;
    int64_t now_ns = ct_clock_now(NULL);
    /* The first worker that has failed stops the generation. */
    for (int i = 0; i < monitor->count && !*monitor->stopping && monitor->open; i++) {
        look(monitor, i, now_ns);
    }
}

int ct_uninterruptible_monitor_open(struct ct_uninterruptible_monitor *monitor, uv_loop_t *loop,
                                    char *const *env, struct ct_err *err)
{
    monitor->timeout_ns = ct_uninterruptible_timeout_ns(env);
    if (monitor->timeout_ns == 0) {
        return 0;
    }
    uint64_t ms = (uint64_t)ct_uninterruptible_period_ms(monitor->timeout_ns);
    int rc = uv_timer_init(loop, &monitor->timer);
    if (rc == 0) {
        monitor->timer.data = monitor;
        monitor->open = true;
        rc = uv_timer_start(&monitor->timer, on_timer, ms, ms);
    }
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot set a timer: %s", uv_strerror(rc));
}

void ct_uninterruptible_monitor_close(struct ct_uninterruptible_monitor *monitor)
{
    if (monitor->open) {
        monitor->open = false;
        uv_close((uv_handle_t *)&monitor->timer, NULL);
    }
}
