/* SPDX-License-Identifier: Apache-2.0
 *
 * From which checkpoints a training may continue, and where it does.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/recovery/checkpoint.h"
#include "trainer/session/trainer.h"

#include <stdlib.h>

#define SAMPLES 1000
#define BATCH 300 /* four batches, the last one of 100 samples */

static struct ct_layout layout;

/* Saves a checkpoint of this point, and opens it for a training of BATCH and seed 1. */
static int resume(const struct ct_progress_point *point, struct ct_trainer *t, struct ct_err *err)
{
    const struct ct_hidden sizes = {.count = 1, .size = {4}};
    char *dir = ct_tmpdir_new(), *path = ct_tmpdir_path(dir, "c.safetensors");
    struct ct_safetensors file = {.fd = -1};
    assert_int_equal(ct_layout_init(&layout, 5, &sizes, 3, NULL), 0);
    struct ct_state_view view = {.layout = &layout, .optimizer = CT_OPTIMIZER_SGD};
    view.params = calloc(layout.count, sizeof(float));
    view.state[0] = calloc(layout.count, sizeof(float));
    assert_int_equal(ct_checkpoint_save(path, &view, point, err), 0);
    t->options.resume = path;
    t->options.seed = 1;
    t->options.batch_size = BATCH;
    t->layout = layout;
    t->data.set.train.count = SAMPLES;
    int rc = ct_trainer_open_resume(t, &file, err);
    ct_safetensors_fini(&file);
    free(view.params);
    free(view.state[0]);
    free(path);
    ct_tmpdir_free(dir);
    return rc;
}

static void expect(const struct ct_progress_point *point, const char *why)
{
    static struct ct_trainer t;
    struct ct_err err = {0};
    t = (struct ct_trainer){.at = {.epoch = 0}};
    int rc = resume(point, &t, &err);
    if (*why == '\0') {
        assert_int_equal(rc, 0);
        assert_true(t.at.epoch == point->epoch && t.at.batch == point->batch);
        assert_true(t.optimizer.step == point->step);
    } else {
        assert_int_equal(rc, CT_EINVAL);
        assert_non_null(strstr(err.text, why));
        assert_true(t.at.epoch == 0 && t.optimizer.step == 0);
    }
}

static void test_a_training_continues_where_the_checkpoint_was_taken(void **state)
{
    (void)state;
    expect(&(struct ct_progress_point){.step = 8, .epoch = 2, .seed = 1, .batch_size = BATCH}, "");
    expect(
        &(struct ct_progress_point){
            .step = 11, .epoch = 2, .seed = 1, .batch = 3, .batch_size = BATCH},
        "");
    /* Between epochs the size of a batch may change. */
    expect(&(struct ct_progress_point){.step = 8, .epoch = 2, .seed = 1, .batch_size = 7}, "");
}

static void test_another_seed_is_refused(void **state)
{
    (void)state;
    expect(&(struct ct_progress_point){.step = 8, .epoch = 2, .seed = 2, .batch_size = BATCH},
           "was trained with --seed 2, not 1");
}

static void test_within_an_epoch_the_batches_must_be_the_same(void **state)
{
    (void)state;
    expect(
        &(struct ct_progress_point){
            .step = 10, .epoch = 2, .seed = 1, .batch = 2, .batch_size = 200},
        "go on with --batch-size 200, not 300");
    expect(
        &(struct ct_progress_point){
            .step = 12, .epoch = 2, .seed = 1, .batch = 4, .batch_size = BATCH},
        "has no more than 4");
}

static void test_a_folder_without_checkpoints_is_a_start_but_not_to_be_tested(void **state)
{
    (void)state;
    static struct ct_trainer t;
    char *dir = ct_tmpdir_new();
    struct ct_safetensors file = {.fd = -1};
    struct ct_err err = {0};
    t = (struct ct_trainer){.options = {.resume = CT_RESUME_AUTO, .checkpoint_dir = dir}};
    assert_int_equal(ct_trainer_open_resume(&t, &file, &err), 0);
    assert_int_equal(file.fd, -1);
    t.options.eval_only = true;
    assert_int_equal(ct_trainer_open_resume(&t, &file, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "no whole checkpoint"));
    t.options.resume = NULL;
    assert_int_equal(ct_trainer_open_resume(&t, &file, &err), 0);
    ct_buf_fini(&t.warnings);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_training_continues_where_the_checkpoint_was_taken),
        cmocka_unit_test(test_another_seed_is_refused),
        cmocka_unit_test(test_within_an_epoch_the_batches_must_be_the_same),
        cmocka_unit_test(test_a_folder_without_checkpoints_is_a_start_but_not_to_be_tested),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
