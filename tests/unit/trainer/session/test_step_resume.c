/* SPDX-License-Identifier: Apache-2.0
 *
 * When a training goes on from the snapshot of a step, and what becomes of the sums of its epoch.
 */
#include "tests/lib/ct_test.h"
#include "trainer/session/step_resume.h"

#define EARLIER 640 /* samples that an earlier generation has trained of the epoch */

static double totals[2];
static struct ct_trainer trainer;

/* Found after step 7, which was the third one of its epoch. */
static int setup(void **state)
{
    (void)state;
    totals[0] = 1, totals[1] = 2;
    trainer = (struct ct_trainer){
        .memory = {.totals = totals},
        .optimizer = {.step = 7},
        .at = {.epoch = 1, .batch = 3},
        .step_snapshot = {.fd = -1,
                          .found = {.step = 7, .samples = EARLIER, .loss = 10, .hits = 20}},
    };
    return 0;
}

static void expect(size_t samples, double loss, double hits)
{
    assert_int_equal(ct_step_resume_epoch(&trainer), samples);
    assert_true(totals[0] == loss && totals[1] == hits);
}

static void test_the_sums_of_an_epoch_go_on_on_rank_0(void **state)
{
    (void)state;
    expect(EARLIER, 11, 22);
    trainer.group.rank = 1;
    expect(EARLIER, 11, 22); /* the same number of samples, but nothing is added twice */
}

static void test_without_a_snapshot_nothing_is_summed(void **state)
{
    (void)state;
    trainer.step_snapshot.found = (struct ct_snapshot_point){0};
    expect(0, 1, 2);
}

/* This epoch begins at its first step, so the sums were those of the epoch before. */
static void test_at_the_start_of_an_epoch_nothing_is_summed(void **state)
{
    (void)state;
    trainer.at.batch = 0;
    expect(0, 1, 2);
}

/* The next epoch of the same generation: the snapshot is long past. */
static void test_after_further_steps_nothing_is_summed(void **state)
{
    (void)state;
    trainer.optimizer.step = 9;
    expect(0, 1, 2);
}

static void test_a_job_without_a_snapshot_file_opens_none(void **state)
{
    (void)state;
    struct ct_device dev = {.kind = CT_DEVICE_CPU};
    struct ctw_env env = {.world_size = 1, .local_world_size = 1, .snapshot = ""};
    trainer.dev = &dev;
    trainer.options.snapshot = CT_SNAPSHOT_STEP;
    ct_step_resume_open(&trainer, &env, 1);
    assert_int_equal(trainer.warnings.len, 0);
    assert_int_equal(trainer.step_snapshot.fd, -1);
    assert_int_equal(trainer.optimizer.step, 7);
}

/* A checkpoint is enough to go on, so the training is not refused. */
static void test_a_snapshot_file_that_is_gone_is_a_warning(void **state)
{
    (void)state;
    struct ct_device dev = {.kind = CT_DEVICE_CPU};
    struct ctw_env env = {
        .world_size = 1, .local_world_size = 1, .snapshot = "/proc/self/fd/1000000"};
    trainer.dev = &dev;
    trainer.options.snapshot = CT_SNAPSHOT_STEP;
    ct_step_resume_open(&trainer, &env, 1);
    const char *warning = ct_buf_cstr(&trainer.warnings);
    assert_non_null(warning);
    assert_non_null(strstr(warning, "after a failure, training goes on from a checkpoint"));
    assert_int_equal(trainer.optimizer.step, 7);
    ct_buf_fini(&trainer.warnings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_the_sums_of_an_epoch_go_on_on_rank_0, setup),
        cmocka_unit_test_setup(test_without_a_snapshot_nothing_is_summed, setup),
        cmocka_unit_test_setup(test_at_the_start_of_an_epoch_nothing_is_summed, setup),
        cmocka_unit_test_setup(test_after_further_steps_nothing_is_summed, setup),
        cmocka_unit_test_setup(test_a_job_without_a_snapshot_file_opens_none, setup),
        cmocka_unit_test_setup(test_a_snapshot_file_that_is_gone_is_a_warning, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
