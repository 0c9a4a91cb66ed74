/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done about verdicts of the membership, with real processes for workers. What the samples
 * say is given by the test.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "launcher/monitor/hang_monitor_uv.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define WORKERS 2

/* The workers of this machine stand still. */
void __wrap_ct_hang_sampler_vote(const struct ct_hang_sampler *sampler, struct ct_hang_vote *out);
void __wrap_ct_hang_sampler_vote(const struct ct_hang_sampler *sampler, struct ct_hang_vote *out)
{
    (void)sampler;
    *out = (struct ct_hang_vote){.kind = CT_HANG_VOTE_QUIET};
}

/* What ctrun has, as far as the monitor needs it. */
struct rig {
    uv_loop_t loop;
    struct ct_procs *procs;
    struct ct_output *output;
    struct ct_options options;
    struct ct_resolved resolved;
    struct ct_machine machine;
    struct ct_job_spec job;
    struct ct_worker_env env;
    struct ct_progress_reader progress;
    struct ct_stack_asker asker;
    struct ct_hang_log log;
    struct ct_worker workers[WORKERS];
    struct ct_hang_monitor monitor;
    bool stopping, stopped, has_ended;
    int ended; /* the local rank of the worker that has ended first */
};

static void on_exit_of(void *data, struct ct_proc *proc, const struct ct_exit *end)
{
    struct rig *rig = data;
    if (!rig->has_ended) {
        assert_int_equal(end->signal, SIGKILL);
        rig->ended = proc == rig->workers[1].proc;
        rig->has_ended = true;
    }
}

static void on_stopped(void *data, const struct ct_procs_stopped *result)
{
    struct rig *rig = data;
    assert_int_equal(result->left, 0);
    rig->stopped = true;
}

static void on_report(void *data)
{
    (void)data;
}

static void on_stands(void *data, const struct ct_stands *stands)
{
    (void)data;
    assert_null(stands); /* nobody is asked */
}

/* Starts a worker that SIGABRT does not end. Returns when it is deaf to it. */
static void start_worker(struct rig *rig, int local_rank)
{
    char shell[] = "/bin/sh", flag[] = "-c", script[] = "trap '' ABRT; echo; exec sleep 600";
    char *argv[] = {shell, flag, script, NULL};
    char byte;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    const struct ct_spawn_options options = {
        .path = shell, .argv = argv, .envp = environ, .stdio = {-1, ends[1], -1}};
    assert_int_equal(
        ct_proc_start(rig->procs, &options, on_exit_of, rig, &rig->workers[local_rank].proc, NULL),
        0);
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    (void)close(ends[0]);
}

static void rig_open(struct rig *rig, int null)
{
    struct ct_err err = {0};
    const struct ct_output_options output = {.out_fd = null, .err_fd = null};
    *rig = (struct rig){
        .options = {.hang_timeout_ns = INT64_C(3600) * CT_NS_PER_S,
                    .on_hang = CT_ON_HANG_RESTART,
                    .hang_stacks_ms = 0},
        .resolved = {.workers = WORKERS},
        .env = {.world_size = 2 * WORKERS},
        .progress = CT_PROGRESS_READER_INIT,
    };
    rig->job = (struct ct_job_spec){
        .options = &rig->options, .resolved = &rig->resolved, .machine = &rig->machine};
    rig->monitor = (struct ct_hang_monitor){
        .job = &rig->job,
        .worker_env = &rig->env,
        .progress = &rig->progress,
        .workers = rig->workers,
        .stopping = &rig->stopping,
        .asker = &rig->asker,
        .log = &rig->log,
        .on_report = on_report,
        .on_stands = on_stands,
        .data = rig,
    };
    ct_loop_begin(&rig->loop);
    assert_int_equal(ct_procs_open(&rig->loop, NULL, NULL, &rig->procs, &err), 0);
    assert_int_equal(ct_output_open(&rig->loop, &output, &rig->output, &err), 0);
    rig->monitor.output = rig->output;
    for (int i = 0; i < WORKERS; i++) {
        start_worker(rig, i);
    }
    assert_int_equal(ct_hang_monitor_open(&rig->monitor, &rig->loop, &err), 0);
}

static void rig_close(struct rig *rig)
{
    ct_hang_monitor_close(&rig->monitor);
    ct_procs_stop(rig->procs, SIGTERM, 0, on_stopped, rig);
    ct_loop_run_until(&rig->loop, &rig->stopped);
    for (int i = 0; i < WORKERS; i++) {
        ct_worker_clear(&rig->workers[i]);
    }
    ct_procs_close(rig->procs, NULL, NULL);
    ct_output_close(rig->output, 0, NULL, NULL);
    ct_loop_end(&rig->loop);
}

/* While the suspect may still write its stack, the membership asks once more where the workers
 * stand. That names nobody, and the kill is still meant for the suspect. */
static void test_another_verdict_does_not_change_who_is_killed(void **state)
{
    const struct ct_hang_vote named = {.kind = CT_HANG_VOTE_NAMED, .rank = 1, .still_ms = 60000};
    const struct ct_hang_vote asks = {
        .kind = CT_HANG_VOTE_ALL, .rank = WORKERS, .still_ms = 60000, .asks = true};
    struct rig rig;
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    (void)state;
    rig_open(&rig, null);
    rig.monitor.awaits = true; /* the membership was told where the workers stand */
    rig.workers[1].hang.may_dump = true;
    ct_hang_monitor_take_job_verdict(&rig.monitor, &named, "the others wait for it");
    assert_true(rig.monitor.has_killed);
    ct_hang_monitor_take_job_verdict(&rig.monitor, &asks, "");
    ct_loop_run_until(&rig.loop, &rig.has_ended);
    assert_int_equal(rig.ended, 1);
    rig_close(&rig);
    (void)close(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_verdict_does_not_change_who_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
