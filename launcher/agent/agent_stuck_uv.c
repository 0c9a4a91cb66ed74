/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a look at the state of each worker's process now and then; none is in uninterruptible
 * sleep (D) for longer than a moment.
 *
 * Other paths: one is at every look, for TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT seconds. No
 * signal reaches it, and what it holds of a device or a file system a new worker would need: it has
 * failed, whether its process ends or not, and no restart follows, as in torchrun 2.15.
 *
 * Failure modes: a state that cannot be read is not known, and stands for nothing.
 *
 * Who frees: ct_agent_stuck_close(); the handle belongs to the loop until it has run dry.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/clock.h"
#include "common/num.h"
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

static void look(struct ct_agent_run *run, int local_rank, int64_t now_ns)
{
    struct ct_worker *worker = &run->workers[local_rank];
    struct ct_proctree_entry entry;
    if (run->agent.states[local_rank] != CT_WORKER_ALIVE || worker->proc == NULL ||
        !ct_proc_alive(worker->proc) || !ct_proctree_read_pid(ct_proc_pid(worker->proc), &entry) ||
        entry.state != 'D') {
        worker->stuck_since_ns = 0;
        return;
    }
    if (worker->stuck_since_ns == 0) {
        worker->stuck_since_ns = now_ns;
    }
    int64_t stuck_ns = now_ns - worker->stuck_since_ns;
    if (stuck_ns < run->stuck_timeout_ns) {
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
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_EXITED,
                                                   .local_rank = local_rank,
                                                   .end = worker->ended_for});
}

static void on_look(uv_timer_t *timer)
{
    struct ct_agent_run *run = timer->data;
    int64_t now_ns = ct_clock_now(NULL);
    /* The first one stops the generation. */
    for (int i = 0; i < run->job->workers && !run->stopping && run->stuck_open; i++) {
        look(run, i, now_ns);
    }
}

int ct_agent_stuck_open(struct ct_agent_run *run, struct ct_err *err)
{
    run->stuck_timeout_ns = timeout_ns(run->job->env);
    if (run->stuck_timeout_ns == 0) {
        return 0;
    }
    int64_t ms = run->stuck_timeout_ns / CT_NS_PER_MS / LOOKS;
    ms = ms < PERIOD_MIN_MS ? PERIOD_MIN_MS : ms > PERIOD_MAX_MS ? PERIOD_MAX_MS : ms;
    int rc = uv_timer_init(&run->loop, &run->stuck);
    if (rc == 0) {
        run->stuck.data = run;
        run->stuck_open = true;
        rc = uv_timer_start(&run->stuck, on_look, (uint64_t)ms, (uint64_t)ms);
    }
    return rc == 0 ? 0 : ct_err_set(err, CT_EIO, "cannot set a timer: %s", uv_strerror(rc));
}

void ct_agent_stuck_close(struct ct_agent_run *run)
{
    if (run->stuck_open) {
        run->stuck_open = false;
        uv_close((uv_handle_t *)&run->stuck, NULL);
    }
}
