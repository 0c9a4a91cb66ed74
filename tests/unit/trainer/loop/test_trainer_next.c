/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer that goes on in the next generation without leaving its process. The test is the
 * launcher: it gives the orders and writes the contracts.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"

#include "launcher/worker/order_writer.h"
#include "launcher/worker/progress_reader.h"
#include "trainer/loop/train.h"
#include "trainer/run/rank.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The step of the first generation after which something happens: a multiple of metrics_every. */
#define FATEFUL 10

static const struct ct_train_options small = {
    .data = "synthetic",
    .hidden = {.count = 1, .size = {16}},
    .epochs = 2,
    .batch_size = 500,
    .lr = 0.01,
    .momentum = 0.9,
    .seed = 1,
    .device = CT_CHOOSE_CPU,
    .snapshot = CT_SNAPSHOT_STEP,
    .in_process = CT_IN_PROCESS_ON,
    .metrics_every = 5,
};

static struct outcomes {
    _Atomic int reached, killed; /* rank 0 has come to FATEFUL; its peer is dead */
    atomic_int stop;             /* the ranks are asked to end */
    struct outcome {
        int first_rc, rc;
        char text[sizeof(((struct ct_err *)NULL)->text)];
        int64_t went_on; /* the step after which the next generation began */
        enum ct_stay stay;
        struct ct_train_result result;
        char out[4096]; /* what a person reads */
    } rank[RANKS_MAX];
} * outcomes;

static struct ct_order_writer orders;
static struct ct_progress_reader pages;

/* Tells rank 0 where its launcher is. */
static void launcher_begin(void)
{
    char place[128];
    ct_order_writer_open(&orders, 1, NULL);
    ct_progress_reader_open(&pages, 1, NULL);
    (void)snprintf(place, sizeof place, "%s:0", orders.path);
    assert_int_equal(setenv(CT_HANDOVER_ENV, place, 1), 0);
    (void)snprintf(place, sizeof place, "%s:0", pages.path);
    assert_int_equal(setenv(CT_PROGRESS_ENV, place, 1), 0);
}

static void launcher_end(void)
{
    assert_int_equal(unsetenv(CT_HANDOVER_ENV), 0);
    assert_int_equal(unsetenv(CT_PROGRESS_ENV), 0);
    ct_progress_reader_fini(&pages);
    ct_order_writer_fini(&orders);
}

static void await_parked(int generation)
{
    for (int i = 0; i < 60000; i++) {
        if (ct_progress_reader_stay(&pages, 0, generation) == CT_STAY_PARKED) {
            return;
        }
        (void)usleep(1000);
    }
    fail_msg("rank 0 has not parked");
}

/* Rank 0's contract for this generation; `world` is 2, or nonsense. */
static void go(int generation, int world, const char *snapshot)
{
    struct ct_strlist vars = {0};
    assert_int_equal(ct_strlist_printf(&vars, "RANK=0"), 0);
    assert_int_equal(ct_strlist_printf(&vars, "WORLD_SIZE=%d", world), 0);
    assert_int_equal(ct_strlist_printf(&vars, "LOCAL_RANK=0"), 0);
    assert_int_equal(ct_strlist_printf(&vars, "LOCAL_WORLD_SIZE=%d", world), 0);
    assert_int_equal(ct_strlist_printf(&vars, "CTRUN_GENERATION=%d", generation), 0);
    assert_int_equal(ct_strlist_printf(&vars, "CTRUN_SNAPSHOT=%s", snapshot), 0);
    assert_int_equal(ct_strlist_printf(&vars, "MASTER_ADDR=127.0.0.1"), 0);
    assert_int_equal(ct_strlist_printf(&vars, "MASTER_PORT=%d", (int)ranks.port), 0);
    assert_int_equal(ct_strlist_printf(&vars, "TORCHELASTIC_USE_AGENT_STORE=True"), 0);
    assert_int_equal(ct_strlist_printf(&vars, "TORCHELASTIC_RUN_ID=test"), 0);
    assert_int_equal(ct_strlist_close(&vars), 0);
    assert_int_equal(ct_order_writer_go(&orders, 0, generation, &vars), 0);
    ct_strlist_fini(&vars);
}

/* ---- with a peer ----------------------------------------------------------------------------- */

struct scenario {
    struct ct_train_options options;
    bool loses_peer;
};

static void on_step(void *data, const struct ct_step_report *report)
{
    const struct scenario *scenario = data;
    if (scenario->loses_peer && report->step == FATEFUL) {
        atomic_store(&outcomes->reached, 1);
        ranks_await(&outcomes->killed, 1);
    }
}

/* As trainer/run/rank.c does. */
static void train(int rank, void *data)
{
    struct scenario *scenario = data;
    struct outcome *out = &outcomes->rank[rank];
    struct ct_err err = {0};
    struct ct_trainer *trainer = NULL;
    const struct ct_train_events events = {.step = on_step, .data = scenario};
    if (rank > 0) {
        CHECK(unsetenv(CT_HANDOVER_ENV) == 0);
        CHECK(unsetenv(CT_PROGRESS_ENV) == 0);
    }
    struct ctw_job *job = rank_open_job();
    CHECK(ct_trainer_new(&scenario->options, job, NULL, NULL, &trainer, &err) == 0);
    out->rc = out->first_rc = ct_trainer_run(trainer, &events, &out->result, &err);
    while (out->rc != 0 && ct_trainer_goes_on(trainer, out->rc)) {
        out->rc = ct_trainer_next(trainer, &err);
        if (out->rc == 0) {
            out->went_on = trainer->optimizer.step;
            out->rc = ct_trainer_run(trainer, &events, &out->result, &err);
        }
    }
    memcpy(out->text, err.text, sizeof out->text);
    ct_trainer_free(trainer);
    ctw_job_free(job);
}

static void a_process_that_stays_goes_on_with_a_new_peer(void **state)
{
    (void)state;
    char snapshot[64];
    struct scenario scenario = {.options = small};
    ranks_run(2, train, &scenario);
    const struct outcome whole = outcomes->rank[0];
    assert_int_equal(whole.rc, 0);

    int fd = memfd_create("snapshot", 0);
    assert_true(fd >= 0);
    (void)snprintf(snapshot, sizeof snapshot, "/proc/%ld/fd/%d", (long)getpid(), fd);
    assert_int_equal(setenv("CTRUN_SNAPSHOT", snapshot, 1), 0);
    launcher_begin();
    scenario.loses_peer = true;
    ranks.world_size = 2;
    ranks.generation++;
    ranks_start(2, train, &scenario);
    ranks_await(&outcomes->reached, 1);
    pid_t dead = ranks.pids[1];
    assert_int_equal(kill(dead, SIGKILL), 0);
    atomic_store(&outcomes->killed, 1);
    ct_order_writer_order(&orders, 0, ranks.generation, CT_ORDER_PARK);
    await_parked(ranks.generation);
    ranks.generation++;
    ranks_start_one(1, train, &scenario);
    go(ranks.generation, 2, snapshot);
    ranks_join_killed(dead, SIGKILL);

    const struct outcome *out = &outcomes->rank[0];
    assert_int_equal(out->first_rc, CT_EPEER);
    if (out->rc != 0) {
        fail_msg("%s", out->text);
    }
    assert_in_range(out->went_on, FATEFUL, FATEFUL + 1);
    assert_int_equal(out->result.step, whole.result.step);
    assert_true(out->result.param_hash == whole.result.param_hash);
    launcher_end();
    assert_int_equal(unsetenv("CTRUN_SNAPSHOT"), 0);
    (void)close(fd);
}

/* ---- as the program does it ------------------------------------------------------------------ */

static void catch_nothing(const struct ct_train_options *options)
{
    (void)options;
}

static void train_as_program(int rank, void *data)
{
    struct outcome *out = &outcomes->rank[rank];
    struct ct_err err = {0};
    if (rank > 0) {
        CHECK(unsetenv(CT_HANDOVER_ENV) == 0);
        CHECK(unsetenv(CT_PROGRESS_ENV) == 0);
    }
    FILE *stream = fmemopen(out->out, sizeof out->out, "w");
    CHECK(stream != NULL);
    struct ct_rank_run run = {
        .options = data, .stop_asked = &outcomes->stop, .catch_signals = catch_nothing};
    ct_loggers_init(&run.loggers, stream, false, stderr);
    struct ctw_job *job = rank_open_job();
    out->rc = ct_rank_train(job, &run, &err);
    memcpy(out->text, err.text, sizeof out->text);
    ctw_job_free(job);
    ct_loggers_fini(&run.loggers);
    CHECK(fclose(stream) == 0);
}

/* Until the file has become larger than that. */
static off_t await_growth(const char *path, off_t bytes)
{
    struct stat st;
    for (int i = 0; i < 60000; i++) {
        if (stat(path, &st) == 0 && st.st_size > bytes) {
            return st.st_size;
        }
        (void)usleep(1000);
    }
    fail_msg("%s does not grow", path);
    return 0;
}

static void the_program_goes_on_with_the_files_that_it_has_open(void **state)
{
    (void)state;
    char snapshot[64], *dir = ct_tmpdir_new(), *metrics = ct_tmpdir_path(dir, "metrics");
    char *checkpoint = ct_tmpdir_path(dir, "checkpoint");
    struct ct_train_options options = small;
    options.epochs = 100000;
    options.metrics = metrics;
    options.checkpoint = checkpoint; /* without one it would not stop when asked */
    int fd = memfd_create("snapshot", 0);
    assert_true(fd >= 0);
    (void)snprintf(snapshot, sizeof snapshot, "/proc/%ld/fd/%d", (long)getpid(), fd);
    assert_int_equal(setenv("CTRUN_SNAPSHOT", snapshot, 1), 0);
    launcher_begin();
    ranks.world_size = 2;
    ranks.generation++;
    ranks_start(2, train_as_program, &options);
    (void)await_growth(metrics, 0);
    pid_t dead = ranks.pids[1];
    assert_int_equal(kill(dead, SIGKILL), 0);
    ct_order_writer_order(&orders, 0, ranks.generation, CT_ORDER_PARK);
    await_parked(ranks.generation);
    off_t written = await_growth(metrics, 0);
    ranks.generation++;
    ranks_start_one(1, train_as_program, &options);
    go(ranks.generation, 2, snapshot);
    (void)await_growth(metrics, written);
    outcomes->stop = 1;
    ranks_join_killed(dead, SIGKILL);
    assert_int_equal(outcomes->rank[0].rc, outcomes->rank[1].rc);
    assert_non_null(strstr(outcomes->rank[0].out, "from memory after step "));
    assert_string_equal(outcomes->rank[1].out, "");
    launcher_end();
    assert_int_equal(unsetenv("CTRUN_SNAPSHOT"), 0);
    (void)close(fd);
    free(checkpoint);
    free(metrics);
    ct_tmpdir_free(dir);
}

/* ---- alone ----------------------------------------------------------------------------------- */

static void end_generation(void *data, const struct ct_step_report *report)
{
    const struct ct_trainer *trainer = data;
    (void)report;
    ct_order_writer_order(&orders, 0, ctw_job_env(trainer->job)->generation, CT_ORDER_PARK);
}

/* Runs until the launcher ends the generation; `data` gives END, or NULL: the test decides. */
static void lose_generation(int rank, void *data)
{
    struct outcome *out = &outcomes->rank[rank];
    struct ct_err err = {0};
    struct ct_trainer *trainer = NULL;
    struct ctw_job *job = rank_open_job();
    CHECK(ct_trainer_new(&small, job, NULL, NULL, &trainer, &err) == 0);
    CHECK(!ct_trainer_goes_on(trainer, CT_EIO)); /* a failure of its own */
    const struct ct_train_events events = {.step = end_generation, .data = trainer};
    CHECK(ct_trainer_run(trainer, &events, &out->result, &err) == CT_EPEER);
    rank_check_text(&err, "the launcher has ended this generation");
    CHECK(ct_trainer_goes_on(trainer, CT_EPEER));
    CHECK(ct_trainer_goes_on(trainer, CT_EIO));
    CHECK(!ct_trainer_goes_on(trainer, CT_EINVAL));
    if (data != NULL) {
        ct_order_writer_order(&orders, 0, ctw_job_env(job)->generation, CT_ORDER_END);
    }
    out->rc = ct_trainer_next(trainer, &err);
    memcpy(out->text, err.text, sizeof out->text);
    CHECK(!ct_trainer_goes_on(trainer, CT_EPEER));
    ct_trainer_free(trainer);
    ctw_job_free(job);
}

static void at_the_end_of_the_job_nothing_follows(void **state)
{
    (void)state;
    launcher_begin();
    ranks_run(1, lose_generation, &orders);
    assert_int_equal(outcomes->rank[0].rc, CT_EABORTED);
    assert_string_equal(outcomes->rank[0].text, "the launcher has ended the job");
    launcher_end();
}

static void without_a_usable_contract_the_first_failure_is_the_result(void **state)
{
    (void)state;
    launcher_begin();
    ranks.generation++;
    ranks_start(1, lose_generation, NULL);
    await_parked(ranks.generation);
    go(ranks.generation + 1, 0, "");
    ranks_join();
    assert_int_equal(outcomes->rank[0].rc, CT_EPEER);
    assert_non_null(strstr(outcomes->rank[0].text, "the launcher has ended this generation"));
    launcher_end();
}

static void only_make(int rank, void *data)
{
    struct ct_err err = {0};
    struct ct_trainer *trainer = NULL;
    struct ctw_job *job = rank_open_job();
    CHECK(ct_trainer_new(data, job, NULL, NULL, &trainer, &err) == 0);
    outcomes->rank[rank].stay = ct_progress_reader_stay(&pages, 0, ctw_job_env(job)->generation);
    ct_trainer_free(trainer);
    ctw_job_free(job);
}

static enum ct_stay stay_of(enum ct_in_process choice)
{
    struct ct_train_options options = small;
    options.in_process = choice;
    launcher_begin();
    ranks_run(1, only_make, &options);
    launcher_end();
    return outcomes->rank[0].stay;
}

static void on_cpus_a_process_stays_only_when_told_to(void **state)
{
    (void)state;
    assert_int_equal(stay_of(CT_IN_PROCESS_AUTO), CT_STAY_NOT);
    assert_int_equal(stay_of(CT_IN_PROCESS_OFF), CT_STAY_NOT);
    assert_int_equal(stay_of(CT_IN_PROCESS_ON), CT_STAY_ABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(a_process_that_stays_goes_on_with_a_new_peer, outcomes),
        RANKS_TEST_SHARING(the_program_goes_on_with_the_files_that_it_has_open, outcomes),
        RANKS_TEST_SHARING(at_the_end_of_the_job_nothing_follows, outcomes),
        RANKS_TEST_SHARING(without_a_usable_contract_the_first_failure_is_the_result, outcomes),
        RANKS_TEST_SHARING(on_cpus_a_process_stays_only_when_told_to, outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
