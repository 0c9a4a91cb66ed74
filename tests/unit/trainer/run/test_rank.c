/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank writes, when signals are caught, and which errors another start would meet again.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"
#include "trainer/run/rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct ct_train_options small = {
    .data = "synthetic",
    .hidden = {.count = 1, .size = {16}},
    .epochs = 1,
    .batch_size = 2000,
    .lr = 0.01,
    .momentum = 0.9,
    .seed = 1,
    .device = CT_CHOOSE_CPU,
};

/* What became of each rank. */
static struct outcomes {
    struct outcome {
        int rc, catches;
        bool permanent, trained;
        bool took;            /* what was made ready */
        off_t snapshot_bytes; /* when signals were caught */
        char out[4096];       /* what a person reads */
    } rank[RANKS_MAX];
} * outcomes;

static int catches;
static bool is_warm; /* a data set was made ready */
static atomic_int stop;
static int snapshot = -1; /* the memory of a snapshot; -1 = there is none */
static off_t snapshot_bytes;

static void count_catch(const struct ct_train_options *options)
{
    struct stat st;
    (void)options;
    catches++;
    if (snapshot >= 0) {
        CHECK(fstat(snapshot, &st) == 0);
        snapshot_bytes = st.st_size;
        stop = 1; /* a signal comes as soon as it is caught */
    }
}

static void train(int rank, void *data)
{
    struct outcome *outcome = &outcomes->rank[rank];
    struct ct_err err = {0};
    FILE *out = fmemopen(outcome->out, sizeof outcome->out, "w");
    CHECK(out != NULL);
    struct ct_rank_run run = {.options = data, .stop_asked = &stop, .catch_signals = count_catch};
    ct_loggers_init(&run.loggers, out, false, stderr);
    if (is_warm) {
        CHECK(ct_dataset_load(run.options->data, &run.warm.set, &err) == 0);
        run.warm.loaded = true;
    }
    struct ctw_job *job = rank_open_job();
    outcome->rc = ct_rank_train(job, &run, &err);
    outcome->took = is_warm && !run.warm.loaded;
    ct_warm_parts_fini(&run.warm);
    outcome->permanent = ct_rank_error_is_permanent(&run, outcome->rc);
    outcome->trained = atomic_load(&run.trains);
    outcome->catches = catches;
    outcome->snapshot_bytes = snapshot_bytes;
    ctw_job_free(job);
    ct_loggers_fini(&run.loggers);
    CHECK(fclose(out) == 0);
}

static void only_rank_0_writes_what_becomes_of_the_training(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "metrics");
    struct ct_train_options options = small;
    options.metrics = path;
    ranks_run(2, train, &options);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(outcomes->rank[rank].rc, 0);
        assert_true(outcomes->rank[rank].trained);
        assert_int_equal(outcomes->rank[rank].catches, 1);
    }
    assert_non_null(strstr(outcomes->rank[0].out, "epoch"));
    assert_string_equal(outcomes->rank[1].out, "");
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[1024];
    assert_non_null(fgets(line, sizeof line, file));
    assert_int_equal(line[0], '{');
    (void)fclose(file);
    free(path);
    ct_tmpdir_free(dir);
}

static void a_refused_option_is_permanent_and_leaves_the_signals_alone(void **state)
{
    (void)state;
    struct ct_train_options options = small;
    options.shards = 1;
    ranks_run(2, train, &options);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(outcomes->rank[rank].rc, CT_EINVAL);
        assert_true(outcomes->rank[rank].permanent);
        assert_false(outcomes->rank[rank].trained);
        assert_int_equal(outcomes->rank[rank].catches, 0);
    }
}

/* Between a restore from memory and the first step, a signal ended the process: what was in memory
 * only was lost. */
static void a_signal_before_the_state_is_restored_is_heard_at_the_first_step(void **state)
{
    (void)state;
    char text[64], *dir = ct_tmpdir_new(), *checkpoint = ct_tmpdir_path(dir, "checkpoint");
    struct ct_train_options options = small;
    options.checkpoint = checkpoint; /* without one it would not stop when asked */
    options.snapshot = CT_SNAPSHOT_STEP;
    snapshot = memfd_create("snapshot", 0);
    assert_true(snapshot >= 0);
    (void)snprintf(text, sizeof text, "/proc/%ld/fd/%d", (long)getpid(), snapshot);
    assert_int_equal(setenv("CTRUN_SNAPSHOT", text, 1), 0);
    ranks_run(2, train, &options);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(outcomes->rank[rank].rc, 0);
        assert_int_equal(outcomes->rank[rank].catches, 1);
    }
    /* Rank 0 fills it for all, and had not touched it. */
    assert_int_equal(outcomes->rank[0].snapshot_bytes, 0);
    assert_non_null(
        strstr(outcomes->rank[0].out, "preempted: the state after step 1 is saved, go on"));
    assert_int_equal(access(checkpoint, R_OK), 0);
    assert_int_equal(unsetenv("CTRUN_SNAPSHOT"), 0);
    (void)close(snapshot);
    snapshot = -1;
    free(checkpoint);
    ct_tmpdir_free(dir);
}

static void a_metrics_file_in_a_missing_folder_is_a_permanent_error(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "missing/metrics");
    struct ct_train_options options = small;
    options.metrics = path;
    ranks_run(1, train, &options);
    assert_int_equal(outcomes->rank[0].rc, CT_ENOENT);
    assert_true(outcomes->rank[0].permanent);
    assert_false(outcomes->rank[0].trained);
    free(path);
    ct_tmpdir_free(dir);
}

static void a_training_that_diverges_is_not_a_permanent_error(void **state)
{
    (void)state;
    struct ct_train_options options = small;
    options.lr = 1e30;
    ranks_run(2, train, &options);
    assert_int_equal(outcomes->rank[0].rc, CT_ELIMIT);
    assert_true(outcomes->rank[0].trained);
    assert_false(outcomes->rank[0].permanent);
}

static void train_warm(int gpus)
{
    struct ct_train_options options = small;
    options.gpus = gpus;
    is_warm = true;
    ranks_run(2, train, &options);
    is_warm = false;
    assert_int_equal(outcomes->rank[0].rc, 0);
    assert_int_equal(outcomes->rank[1].rc, 0);
    assert_true(outcomes->rank[0].took);
}

static void each_process_takes_what_it_has_made_ready(void **state)
{
    (void)state;
    train_warm(0);
    assert_true(outcomes->rank[1].took);
}

/* All threads have the same parts before them. */
static void of_the_threads_of_a_process_one_takes_what_was_made_ready(void **state)
{
    (void)state;
    train_warm(2);
    assert_false(outcomes->rank[1].took);
}

static void only_configuration_before_the_first_step_is_permanent(void **state)
{
    (void)state;
    static const int configuration[] = {CT_EINVAL, CT_ENOENT, CT_EPERM, CT_EFORMAT,
                                        CT_EUNSUPPORTED};
    struct ct_rank_run run = {0};
    for (size_t i = 0; i < sizeof configuration / sizeof *configuration; i++) {
        atomic_store(&run.trains, false);
        assert_true(ct_rank_error_is_permanent(&run, configuration[i]));
        atomic_store(&run.trains, true);
        assert_false(ct_rank_error_is_permanent(&run, configuration[i]));
    }
    atomic_store(&run.trains, false);
    assert_false(ct_rank_error_is_permanent(&run, CT_EPEER));
    assert_false(ct_rank_error_is_permanent(&run, CT_ENOMEM));
    assert_false(ct_rank_error_is_permanent(&run, CT_EIO));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(only_rank_0_writes_what_becomes_of_the_training, outcomes),
        RANKS_TEST_SHARING(a_refused_option_is_permanent_and_leaves_the_signals_alone, outcomes),
        RANKS_TEST_SHARING(a_signal_before_the_state_is_restored_is_heard_at_the_first_step,
                           outcomes),
        RANKS_TEST_SHARING(a_metrics_file_in_a_missing_folder_is_a_permanent_error, outcomes),
        RANKS_TEST_SHARING(a_training_that_diverges_is_not_a_permanent_error, outcomes),
        RANKS_TEST_SHARING(each_process_takes_what_it_has_made_ready, outcomes),
        RANKS_TEST_SHARING(of_the_threads_of_a_process_one_takes_what_was_made_ready, outcomes),
        cmocka_unit_test(only_configuration_before_the_first_step_is_permanent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
