/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer of one rank: order of samples, accuracy, learning rate, and failing allocations.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/loop/param_hash.h"
#include "trainer/loop/train.h"

#include <math.h>
#include <stdlib.h>

#define EPOCHS 3

static const struct ct_train_options small = {
    .data = "synthetic",
    .hidden = {.count = 1, .size = {16}},
    .epochs = EPOCHS,
    .batch_size = 500,
    .lr = 0.01,
    .momentum = 0.9,
    .seed = 1,
    .device = CT_CHOOSE_CPU,
};

struct alone {
    struct ctw_job *job;
    struct ct_trainer *trainer;
};

static struct alone start(const struct ct_train_options *options)
{
    struct alone a = {0};
    struct ct_err err = {0};
    if (ctw_job_open(NULL, &a.job, &err) != 0 ||
        ct_trainer_new(options, a.job, NULL, NULL, &a.trainer, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return a;
}

static void stop(struct alone *a)
{
    ct_trainer_free(a->trainer);
    ctw_job_free(a->job);
}

/* ---- the run --------------------------------------------------------------------------------- */

struct record {
    struct ct_trainer *trainer;
    struct ct_epoch_report report[EPOCHS];
    uint32_t *order[EPOCHS];
    int epochs;
};

static void on_epoch(void *data, const struct ct_epoch_report *report)
{
    struct record *r = data;
    const struct ct_sampler *sampler = &r->trainer->sampler;
    assert_true(r->epochs < EPOCHS);
    r->report[r->epochs] = *report;
    r->order[r->epochs] = malloc(sampler->count * sizeof(uint32_t));
    memcpy(r->order[r->epochs], sampler->order, sampler->count * sizeof(uint32_t));
    r->epochs++;
}

static void test_epochs_are_told_and_differ_in_order(void **state)
{
    (void)state;
    struct alone a = start(&small);
    struct record r = {.trainer = a.trainer};
    struct ct_train_result result;
    const struct ct_train_events events = {.epoch = on_epoch, .data = &r};
    assert_int_equal(ct_trainer_run(a.trainer, &events, &result, NULL), 0);
    assert_int_equal(r.epochs, EPOCHS);
    size_t bytes = a.trainer->sampler.count * sizeof(uint32_t);
    for (int e = 0; e < EPOCHS; e++) {
        assert_int_equal(r.report[e].epoch, e + 1);
        assert_int_equal(r.report[e].world_size, 1);
        assert_true(e == 0 || r.report[e].loss < r.report[e - 1].loss);
        assert_true(e == 0 || memcmp(r.order[e], r.order[e - 1], bytes) != 0);
    }
    assert_true(result.test_accuracy == r.report[EPOCHS - 1].test_accuracy);
    assert_int_equal(a.trainer->optimizer.step, EPOCHS * 24);
    for (int e = 0; e < EPOCHS; e++) {
        free(r.order[e]);
    }
    stop(&a);
}

static void test_accuracy_is_that_of_the_parameters(void **state)
{
    (void)state;
    struct alone a = start(&small);
    double loss, accuracy;
    /* All parameters zero: every logit is equal, so the loss is ln 10 and class 0 is predicted. */
    memset(a.trainer->memory.params, 0, a.trainer->layout.count * sizeof(float));
    assert_int_equal(ct_trainer_evaluate(a.trainer, &loss, &accuracy, NULL), 0);
    size_t zeros = 0;
    const struct ct_split *test = &a.trainer->data.set.test;
    for (size_t i = 0; i < test->count; i++) {
        zeros += test->labels[i] == 0;
    }
    assert_true(fabs(loss - log(10)) < 1e-6);
    assert_true(accuracy == (double)zeros / (double)test->count);
    stop(&a);
}

static void test_hash_is_that_of_the_parameters(void **state)
{
    (void)state;
    struct alone a = start(&small);
    uint64_t hash, other;
    assert_int_equal(ct_trainer_hash(a.trainer, &hash, NULL), 0);
    size_t count = a.trainer->layout.count;
    float *params = a.trainer->memory.params;
    assert_int_equal(hash, ct_param_hash_of(ct_param_hash_part(params, 0, count)));
    params[count - 1] += 1;
    assert_int_equal(ct_trainer_hash(a.trainer, &other, NULL), 0);
    assert_true(other != hash);
    stop(&a);
}

static void test_rate_follows_the_schedule(void **state)
{
    (void)state;
    struct alone a = start(&small);
    assert_int_equal(ct_trainer_step(a.trainer, 0, NULL), 0);
    assert_true(a.trainer->optimizer.lr == (float)small.lr);
    a.trainer->at.epoch = EPOCHS - 1;
    assert_int_equal(ct_trainer_step(a.trainer, 23, NULL), 0);
    assert_true(a.trainer->optimizer.lr > 0 && a.trainer->optimizer.lr < 0.001f * (float)small.lr);
    stop(&a);
}

/* ---- going on -------------------------------------------------------------------------------- */

/* Writes a checkpoint of untrained parameters that says it was taken there. */
static void save(const char *path, struct ct_progress_point point)
{
    struct ct_train_options options = small;
    options.checkpoint = path;
    struct alone a = start(&options);
    point.seed = options.seed;
    float *copy = ct_saver_begin(a.trainer->saving.saver, true);
    assert_int_equal(ct_trainer_copy_state(a.trainer, copy, NULL), 0);
    ct_saver_commit(a.trainer->saving.saver, &point);
    assert_int_equal(ct_saver_wait(a.trainer->saving.saver, NULL), 0);
    stop(&a);
}

/* An epoch has 24 batches of 500 samples. */
static void test_goes_on_only_within_an_epoch(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "c");
    struct ct_train_options options = small;
    options.resume = path;
    save(path, (struct ct_progress_point){.epoch = 1, .batch = 23, .batch_size = 500, .step = 47});
    struct alone a = start(&options);
    assert_int_equal(a.trainer->at.epoch, 1);
    assert_int_equal(a.trainer->at.batch, 23);
    assert_int_equal(a.trainer->optimizer.step, 47);
    stop(&a);

    save(path, (struct ct_progress_point){.epoch = 1, .batch = 24, .batch_size = 500});
    struct ct_err err = {0};
    assert_int_equal(ctw_job_open(NULL, &a.job, &err), 0);
    assert_int_equal(ct_trainer_new(&options, a.job, NULL, NULL, &a.trainer, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "after 24 batches of an epoch, but this data set has no more "
                                     "than 24"));
    ctw_job_free(a.job);
    free(path);
    ct_tmpdir_free(dir);
}

/* ---- exact sums ------------------------------------------------------------------------------ */

static void test_sum_alone_is_the_value(void **state)
{
    (void)state;
    struct alone a = start(&small);
    double values[CT_GROUP_VALUES_MAX] = {0.1, -1e300, 9007199254740993.0, 0};
    double same[CT_GROUP_VALUES_MAX];
    memcpy(same, values, sizeof same);
    assert_int_equal(ct_group_sum(&a.trainer->group, values, CT_GROUP_VALUES_MAX, NULL), 0);
    assert_memory_equal(values, same, sizeof same);
    stop(&a);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static int new_body(void *data)
{
    struct ctw_job *job;
    struct ct_trainer *trainer;
    int rc = ctw_job_open(NULL, &job, NULL);
    if (rc != 0) {
        return rc;
    }
    rc = ct_trainer_new(data, job, NULL, NULL, &trainer, NULL);
    if (rc == 0) {
        ct_trainer_free(trainer);
    }
    ctw_job_free(job);
    return rc;
}

static void test_a_trainer_survives_lack_of_memory(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "c");
    struct ct_train_options options = small;
    save(path, (struct ct_progress_point){0});
    options.checkpoint = options.resume = path;
    assert_true(ct_fault_sweep(new_body, &options, 0) > 10);
    free(path);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs_are_told_and_differ_in_order),
        cmocka_unit_test(test_accuracy_is_that_of_the_parameters),
        cmocka_unit_test(test_hash_is_that_of_the_parameters),
        cmocka_unit_test(test_rate_follows_the_schedule),
        cmocka_unit_test(test_goes_on_only_within_an_epoch),
        cmocka_unit_test(test_sum_alone_is_the_value),
        cmocka_unit_test(test_a_trainer_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("trainer", tests, NULL, NULL);
}
