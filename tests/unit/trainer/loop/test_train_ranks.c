/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainings of several ranks on CPUs: that cutting the work in another way, stopping and going on
 * change nothing, and what is refused.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"
#include "trainer/loop/param_hash.h"
#include "trainer/loop/train.h"
#include "worker/comm/comm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct ct_train_options small = {
    .data = "synthetic",
    .hidden = {.count = 1, .size = {16}},
    .epochs = 2,
    .batch_size = 500,
    .lr = 0.01,
    .momentum = 0.9,
    .seed = 1,
    .device = CT_CHOOSE_CPU,
};

/* What became of each rank. */
struct outcome {
    int rc;
    char text[sizeof(((struct ct_err *)NULL)->text)];
    struct ct_train_result result;
    double loss; /* of the last epoch; rank 0 only */
    int warnings;
    char early[256];       /* warnings from before the run */
    int64_t snapshot_step; /* that the snapshot held at the start */
};
static struct outcomes {
    struct outcome rank[RANKS_MAX];
} * outcomes;

struct scenario {
    struct ct_train_options options;
    const struct ct_train_options *other; /* of rank 1; NULL: the same */
    bool stops;                           /* at the first chance, as after a notice of preemption */
    int64_t dies_after;                   /* steps; rank 0; 0: does not */
    const char *blocked; /* at the end of epoch 1 this path becomes a folder; NULL: none does */
    int freed;           /* after which epoch it goes again */
    struct ct_trainer *trainer; /* of this rank */
};

static void on_epoch(void *data, const struct ct_epoch_report *report)
{
    const struct scenario *scenario = data;
    outcomes->rank[0].loss = report->loss;
    if (scenario->blocked != NULL && report->epoch == 1) {
        CHECK(mkdir(scenario->blocked, 0700) == 0);
    }
    if (scenario->blocked != NULL && report->epoch == scenario->freed) {
        /* The checkpoint of epoch 1 may still be being written, and must meet the folder. */
        CHECK(ct_saver_begin(scenario->trainer->saving.saver, true) != NULL);
        CHECK(rmdir(scenario->blocked) == 0);
    }
}

static void on_warning(void *data, struct ct_err *err)
{
    (void)data;
    CHECK(strstr(err->text, "going on without this checkpoint") != NULL);
    outcomes->rank[0].warnings++;
}

static void on_step(void *data, const struct ct_step_report *report)
{
    const struct scenario *scenario = data;
    if (scenario->dies_after > 0 && report->step >= scenario->dies_after) {
        _exit(0);
    }
}

static void train(int rank, void *data)
{
    static const atomic_int stop = 1;
    struct scenario *scenario = data;
    struct outcome *out = &outcomes->rank[rank];
    struct ct_err err = {0};
    struct ct_trainer *trainer = NULL;
    struct ctw_job *job = rank_open_job();
    const struct ct_train_events events = {
        .epoch = on_epoch,
        .step = on_step,
        .warn = on_warning,
        .stop_asked = scenario->stops ? &stop : NULL,
        .data = scenario,
    };
    if (rank == 1 && scenario->other != NULL) {
        scenario->options = *scenario->other;
    }
    out->rc = ct_trainer_new(&scenario->options, job, NULL, NULL, &trainer, &err);
    if (out->rc == 0) {
        out->snapshot_step = (int64_t)trainer->step_snapshot.found.step;
        const char *early = ct_buf_cstr(&trainer->warnings);
        CHECK(early != NULL);
        scenario->trainer = trainer;
        (void)snprintf(out->early, sizeof out->early, "%s", early);
        out->rc = ct_trainer_run(trainer, &events, &out->result, &err);
        if (out->rc != 0) {
            ct_trainer_abort(trainer);
        }
    }
    memcpy(out->text, err.text, sizeof out->text);
    ct_trainer_free(trainer);
    ctw_job_free(job);
}

/* Rank 0's outcome of a training on as many ranks on each host. */
static struct outcome run_hosts(const int *hosts, struct scenario *scenario)
{
    ranks_run_hosts(hosts, train, scenario);
    return outcomes->rank[0];
}

static struct outcome run_scenario(int count, struct scenario *scenario)
{
    return run_hosts((const int[]){count, 0}, scenario);
}

static struct outcome run(int count, const struct ct_train_options *options)
{
    struct scenario scenario = {.options = *options};
    struct outcome out = run_scenario(count, &scenario);
    if (out.rc != 0) {
        fail_msg("%s", out.text);
    }
    return out;
}

static void expect_same(const struct outcome *a, const struct outcome *b)
{
    assert_int_equal(a->rc, 0);
    assert_int_equal(b->rc, 0);
    assert_int_equal(a->result.step, b->result.step);
    assert_true(a->result.param_hash == b->result.param_hash);
    assert_true(a->result.test_accuracy == b->result.test_accuracy);
}

/* ---- other cuts ------------------------------------------------------------------------------ */

static void consistent_training_does_not_depend_on_the_number_of_ranks_or_hosts(void **state)
{
    (void)state;
    struct scenario scenario = {.options = small};
    scenario.options.shards = 4;
    scenario.options.epochs = 1;
    struct outcome alone = run_scenario(1, &scenario), two = run_scenario(2, &scenario),
                   four = run_scenario(4, &scenario);
    struct outcome hosts = run_hosts((const int[]){2, 2, 0}, &scenario);
    expect_same(&alone, &two);
    expect_same(&alone, &four);
    expect_same(&alone, &hosts);
}

static void augmented_images_do_not_depend_on_the_number_of_ranks(void **state)
{
    (void)state;
    struct ct_train_options options = small;
    options.shards = 4;
    options.epochs = 1;
    struct outcome plain = run(1, &options);
    options.augment = (struct ct_augment_choice){.flip = true, .shift = true};
    struct outcome alone = run(1, &options), four = run(4, &options);
    expect_same(&alone, &four);
    assert_true(alone.result.param_hash != plain.result.param_hash);
}

static void a_pipeline_learns_what_one_rank_learns(void **state)
{
    (void)state;
    struct ct_train_options options = small;
    struct outcome alone = run(1, &options);
    options.pipeline_stages = 2;
    struct outcome piped = run(2, &options), replicas = run(4, &options);
    assert_true(fabs(alone.loss - piped.loss) < 1e-3 * alone.loss);
    assert_true(fabs(alone.loss - replicas.loss) < 1e-3 * alone.loss);
    assert_true(fabs(alone.result.test_accuracy - piped.result.test_accuracy) < 0.01);
}

/* No host has all layers: the checkpoint is brought together from both. */
static void a_checkpoint_of_scattered_stages_holds_the_whole_model(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "c");
    struct scenario scenario = {.options = small};
    scenario.options.pipeline_stages = 2;
    scenario.options.checkpoint = path;
    scenario.options.epochs = 1;
    struct outcome piped = run_hosts((const int[]){1, 1, 0}, &scenario);
    struct ct_train_options options = small;
    options.resume = path;
    options.eval_only = true;
    struct outcome alone = run(1, &options);
    expect_same(&piped, &alone);
    free(path);
    ct_tmpdir_free(dir);
}

/* ---- going on -------------------------------------------------------------------------------- */

static void a_preempted_training_goes_on_as_if_it_had_not_stopped(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    struct outcome whole = run(2, &small);
    struct scenario scenario = {.options = small, .stops = true};
    scenario.options.checkpoint_dir = dir;
    scenario.options.keep_checkpoints = 1;
    scenario.options.resume = CT_RESUME_AUTO;
    struct outcome first = run_scenario(2, &scenario);
    assert_int_equal(first.rc, 0);
    assert_true(first.result.preempted);
    assert_in_range(first.result.step, 1, 23); /* within the first epoch */
    scenario.stops = false;
    struct outcome second = run_scenario(2, &scenario);
    assert_false(second.result.preempted);
    expect_same(&whole, &second);
    ct_tmpdir_free(dir);
}

static void only_the_last_checkpoint_must_be_written(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "c");
    struct scenario scenario = {.options = small, .blocked = path, .freed = 2};
    scenario.options.checkpoint = path;
    struct outcome first = run_scenario(2, &scenario);
    assert_int_equal(first.rc, 0);
    assert_int_equal(first.warnings, 1);
    assert_int_equal(unlink(path), 0);
    scenario.freed = 0;
    assert_int_not_equal(run_scenario(2, &scenario).rc, 0);
    assert_int_equal(rmdir(path), 0);
    free(path);
    ct_tmpdir_free(dir);
}

static void after_a_death_training_goes_on_from_the_snapshot(void **state)
{
    (void)state;
    struct outcome whole = run(2, &small);
    char path[32];
    int fd = memfd_create("snapshot", 0);
    assert_true(fd >= 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(setenv("CTRUN_SNAPSHOT", path, 1), 0);
    struct scenario scenario = {.options = small, .dies_after = 15};
    scenario.options.snapshot = CT_SNAPSHOT_STEP;
    scenario.options.metrics_every = 5;
    (void)run_scenario(2, &scenario);
    assert_int_equal(outcomes->rank[1].rc, CT_EPEER);
    scenario.dies_after = 0;
    struct outcome second = run_scenario(2, &scenario);
    assert_in_range(second.snapshot_step, 15, 16);
    expect_same(&whole, &second);
    assert_true(fabs(whole.loss - second.loss) < 1e-9);
    assert_int_equal(unsetenv("CTRUN_SNAPSHOT"), 0);
    (void)close(fd);
}

static void training_without_room_for_snapshots_goes_on_with_a_warning(void **state)
{
    (void)state;
    struct ct_train_options options = small;
    options.epochs = 1;
    options.snapshot = CT_SNAPSHOT_STEP;
    struct outcome with = run(1, &options);
    assert_string_equal(with.early, "");
    assert_int_equal(setenv("CTRUN_SNAPSHOT", "/dev/null/none", 1), 0);
    struct outcome without = run(1, &options);
    assert_int_equal(unsetenv("CTRUN_SNAPSHOT"), 0);
    expect_same(&with, &without);
    assert_non_null(strstr(without.early, "cannot open the memory for snapshots"));
    assert_non_null(strstr(without.early, ": after a failure, training goes on from a checkpoint"));
}

/* ---- results --------------------------------------------------------------------------------- */

static void predictions_are_as_good_as_the_accuracy_says(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "p.csv");
    struct ct_train_options options = small;
    options.predict = path;
    struct outcome out = run(2, &options);
    struct ct_dataset set;
    assert_int_equal(ct_dataset_load("synthetic", &set, NULL), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char line[128];
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "index,class,probability\n");
    size_t rows = 0, hits = 0;
    for (; fgets(line, sizeof line, file) != NULL; rows++) {
        size_t index, class;
        double probability;
        assert_int_equal(sscanf(line, "%zu,%zu,%lf", &index, &class, &probability), 3);
        assert_int_equal(index, rows);
        assert_true(probability >= 0.1 && probability <= 1); /* the largest of ten */
        assert_true(rows < set.test.count);
        hits += set.test.labels[rows] == class;
    }
    (void)fclose(file);
    assert_int_equal(rows, set.test.count);
    assert_true(out.result.test_accuracy == (double)hits / (double)rows);
    ct_dataset_fini(&set);
    free(path);
    ct_tmpdir_free(dir);
}

static void hash_other_parameters(int rank, void *data)
{
    struct outcome *out = &outcomes->rank[rank];
    struct ct_err err = {0};
    struct ct_trainer *trainer = NULL;
    struct ctw_job *job = rank_open_job();
    CHECK(ct_trainer_new(data, job, NULL, NULL, &trainer, &err) == 0);
    float *shared = trainer->memory.params;
    float *own = calloc(trainer->layout.count, sizeof *own);
    CHECK(own != NULL);
    trainer->memory.params = rank == 1 ? own : shared;
    uint64_t hash;
    out->rc = ct_trainer_hash(trainer, &hash, &err);
    memcpy(out->text, err.text, sizeof out->text);
    trainer->memory.params = shared;
    free(own);
    ct_trainer_free(trainer);
    ctw_job_free(job);
}

static void every_rank_learns_which_one_has_other_parameters(void **state)
{
    (void)state;
    struct ct_train_options options = small;
    ranks_run(3, hash_other_parameters, &options);
    for (int rank = 0; rank < 3; rank++) {
        assert_int_equal(outcomes->rank[rank].rc, CT_EPEER);
        assert_non_null(strstr(outcomes->rank[rank].text,
                               "the parameters of rank 1 differ from those of rank 0 after "
                               "step 0"));
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void expect_refusal(int count, struct scenario *scenario, int code, const char *why)
{
    struct outcome out = run_scenario(count, scenario);
    if (out.rc != code || strstr(out.text, why) == NULL) {
        fail_msg("%d '%s', expected %d '%s'", out.rc, out.text, code, why);
    }
}

static void a_rank_with_other_options_is_named(void **state)
{
    (void)state;
    struct ct_train_options rate = small, tests_only = small;
    rate.lr = 0.02;
    tests_only.eval_only = true;
    const struct ct_train_options *const others[] = {&rate, &tests_only};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct scenario scenario = {.options = small, .other = others[i]};
        expect_refusal(2, &scenario, CT_EINVAL,
                       "rank 1 has other options, data or checkpoint than rank 0");
    }
}

static void a_diverging_training_ends_and_names_the_learning_rate(void **state)
{
    (void)state;
    struct scenario scenario = {.options = small};
    scenario.options.lr = 1e30;
    expect_refusal(2, &scenario, CT_ELIMIT, "try a smaller --lr than 1e+30");
}

static void a_checkpoint_within_an_epoch_fits_only_the_same_batches(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "c");
    struct scenario scenario = {.options = small, .stops = true};
    scenario.options.checkpoint = path;
    assert_int_equal(run_scenario(1, &scenario).rc, 0);
    scenario = (struct scenario){.options = small};
    scenario.options.resume = path;
    scenario.options.seed = 2;
    expect_refusal(1, &scenario, CT_EINVAL, "was trained with --seed 1, not 2");
    scenario.options.seed = 1;
    scenario.options.batch_size = 400;
    expect_refusal(1, &scenario, CT_EINVAL, "go on with --batch-size 500, not 400");
    scenario.options.batch_size = 500;
    scenario.options.hidden.size[0] = 17;
    expect_refusal(1, &scenario, CT_EINVAL, path);
    free(path);
    ct_tmpdir_free(dir);
}

static void evaluation_alone_needs_a_checkpoint(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    struct scenario scenario = {.options = small};
    scenario.options.checkpoint_dir = dir;
    scenario.options.resume = CT_RESUME_AUTO;
    scenario.options.eval_only = true;
    expect_refusal(1, &scenario, CT_ENOENT,
                   "holds no whole checkpoint that --eval-only could test");
    ct_tmpdir_free(dir);
}

static void more_ranks_than_shards_are_refused(void **state)
{
    (void)state;
    struct scenario scenario = {.options = small};
    scenario.options.shards = 2;
    expect_refusal(4, &scenario, CT_EINVAL, "--consistent");
}

/* The sums of one host would not be a subtree of the whole sum. */
static void hosts_that_are_no_balanced_tree_are_refused_by_consistent_training(void **state)
{
    (void)state;
    static const int three[] = {1, 1, 1, 0};
    struct scenario scenario = {.options = small};
    scenario.options.shards = 3;
    struct outcome out = run_hosts(three, &scenario);
    assert_int_equal(out.rc, CT_EINVAL);
    assert_non_null(strstr(out.text, "the number of machines must be a power of two"));
}

static void ranks_that_do_not_fill_a_pipeline_are_refused(void **state)
{
    (void)state;
    struct scenario scenario = {.options = small};
    scenario.options.pipeline_stages = 2;
    expect_refusal(3, &scenario, CT_EINVAL, "--pipeline-stages");
}

/* -1: a rank is to wait for the device of rank 0 in vain, which gives for how long it wants to. */
static int64_t device_wait_ms;

int __real_ctw_job_get_within(struct ctw_job *job, const char *key, int64_t timeout_ms,
                              struct ct_buf *out, struct ct_err *err);
int __wrap_ctw_job_get_within(struct ctw_job *job, const char *key, int64_t timeout_ms,
                              struct ct_buf *out, struct ct_err *err);
int __wrap_ctw_job_get_within(struct ctw_job *job, const char *key, int64_t timeout_ms,
                              struct ct_buf *out, struct ct_err *err)
{
    if (device_wait_ms < 0 && strncmp(key, "device/", 7) == 0) {
        device_wait_ms = timeout_ms;
        return ct_err_set(err, CT_ETIMEDOUT, "it did not come");
    }
    return __real_ctw_job_get_within(job, key, timeout_ms, out, err);
}

static void begin_without_rank_0(int rank, void *data)
{
    const struct ctw_job_options soon = {.timeout_ms = SHORT_MS};
    struct ct_train_options options = small;
    struct ct_trainer *trainer = NULL;
    struct ctw_job *job = NULL;
    struct ct_err err = {0};
    (void)rank;
    (void)data;
    options.device = CT_CHOOSE_AUTO;
    device_wait_ms = -1;
    CHECK(ctw_job_open(&soon, &job, NULL) == 0);
    CHECK(ct_trainer_new(&options, job, NULL, NULL, &trainer, &err) == CT_ETIMEDOUT);
    rank_check_text(&err, "cannot learn what rank 0 computes on: it did not come");
    CHECK(device_wait_ms == COMM_TIMEOUT_MS);
    ctw_job_free(job);
}

/* A rank that came late had the time of a communicator, but its peers had given up after half of
 * it, with no word of whom they had waited for. */
static void rank_0_is_awaited_like_any_other(void **state)
{
    static const int two[] = {1, 1, 0};
    (void)state;
    ranks.hosts = two;
    ranks.world_size = 2;
    ranks_start_one(1, begin_without_rank_0, NULL);
    ranks_join();
}

static void without_a_gpu_only_cuda_is_refused(void **state)
{
    (void)state;
    if (ct_device_cuda_count() > 0) {
        skip();
    }
    struct scenario scenario = {.options = small};
    scenario.options.epochs = 1;
    struct outcome cpu = run_scenario(2, &scenario);
    scenario.options.device = CT_CHOOSE_AUTO;
    struct outcome choice = run_scenario(2, &scenario);
    expect_same(&cpu, &choice);
    scenario.options.device = CT_CHOOSE_CUDA;
    expect_refusal(2, &scenario, CT_EIO, "CUDA"); /* later it has been lost, which may be mended */
    ranks.generation = -1;                        /* the next one is the first */
    expect_refusal(2, &scenario, CT_EUNSUPPORTED, "CUDA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(consistent_training_does_not_depend_on_the_number_of_ranks_or_hosts,
                           outcomes),
        RANKS_TEST_SHARING(augmented_images_do_not_depend_on_the_number_of_ranks, outcomes),
        RANKS_TEST_SHARING(a_pipeline_learns_what_one_rank_learns, outcomes),
        RANKS_TEST_SHARING(a_checkpoint_of_scattered_stages_holds_the_whole_model, outcomes),
        RANKS_TEST_SHARING(a_preempted_training_goes_on_as_if_it_had_not_stopped, outcomes),
        RANKS_TEST_SHARING(only_the_last_checkpoint_must_be_written, outcomes),
        RANKS_TEST_SHARING(after_a_death_training_goes_on_from_the_snapshot, outcomes),
        RANKS_TEST_SHARING(training_without_room_for_snapshots_goes_on_with_a_warning, outcomes),
        RANKS_TEST_SHARING(predictions_are_as_good_as_the_accuracy_says, outcomes),
        RANKS_TEST_SHARING(every_rank_learns_which_one_has_other_parameters, outcomes),
        RANKS_TEST_SHARING(a_rank_with_other_options_is_named, outcomes),
        RANKS_TEST_SHARING(a_diverging_training_ends_and_names_the_learning_rate, outcomes),
        RANKS_TEST_SHARING(a_checkpoint_within_an_epoch_fits_only_the_same_batches, outcomes),
        RANKS_TEST_SHARING(evaluation_alone_needs_a_checkpoint, outcomes),
        RANKS_TEST_SHARING(more_ranks_than_shards_are_refused, outcomes),
        RANKS_TEST_SHARING(hosts_that_are_no_balanced_tree_are_refused_by_consistent_training,
                           outcomes),
        RANKS_TEST_SHARING(ranks_that_do_not_fill_a_pipeline_are_refused, outcomes),
        RANKS_TEST_SHARING(rank_0_is_awaited_like_any_other, outcomes),
        RANKS_TEST_SHARING(without_a_gpu_only_cuda_is_refused, outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
