/* SPDX-License-Identifier: Apache-2.0
 *
 * When a training saves and stops between two steps: by steps, by time, when a notice asks for it,
 * and not at all.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/clock.h"
#include "common/handover.h"
#include "trainer/loop/between_steps.h"

#include <stdlib.h>

static struct ct_train_options options;
static struct ctw_job *job;
static struct ct_trainer *trainer;
static char *dir, *checkpoint, *notice;
static int steps_told, warnings;

static void on_step(void *data, const struct ct_step_report *report)
{
    (void)data;
    assert_int_equal(report->step, trainer->optimizer.step);
    steps_told++;
}

static void on_warning(void *data, struct ct_err *err)
{
    (void)data;
    assert_non_null(strstr(err->text, "going on without this checkpoint"));
    warnings++;
}

static const struct ct_train_events events = {.step = on_step, .warn = on_warning};

static int setup(void **state)
{
    (void)state;
    dir = ct_tmpdir_new();
    checkpoint = ct_tmpdir_path(dir, "c.safetensors");
    notice = ct_tmpdir_path(dir, "notice");
    options = (struct ct_train_options){
        .data = "synthetic",
        .hidden = {.count = 1, .size = {16}},
        .epochs = 2,
        .batch_size = 500,
        .lr = 0.01,
        .seed = 1,
        .device = CT_CHOOSE_CPU,
        .checkpoint = checkpoint,
        .pipeline_stages = 1,
    };
    steps_told = warnings = 0;
    return setenv(CT_PREEMPT_ENV, notice, 1);
}

static int teardown(void **state)
{
    (void)state;
    ct_trainer_free(trainer);
    ctw_job_free(job);
    trainer = NULL;
    job = NULL;
    free(checkpoint);
    free(notice);
    ct_tmpdir_free(dir);
    return unsetenv(CT_PREEMPT_ENV);
}

/* A trainer in its first epoch, before the first step. */
static void start(void)
{
    struct ct_err err = {0};
    if (ctw_job_open(NULL, &job, &err) != 0 ||
        ct_trainer_new(&options, job, NULL, NULL, &trainer, &err) != 0) {
        fail_msg("%s", err.text);
    }
    ct_between_steps_start(trainer, &events);
}

/* Counts one more step as done, and says what happens after it. */
static int step(void)
{
    trainer->optimizer.step++;
    trainer->at.batch++;
    return ct_between_steps_step(trainer, &events, 1, NULL);
}

/* Checkpoints that were taken. One that meets a write under way is skipped, so this waits. */
static uint64_t taken(void)
{
    struct ct_saver *saver = trainer->saving.saver;
    assert_int_equal(ct_saver_wait(saver, NULL), 0);
    return ct_saver_count(saver).written;
}

static void test_a_checkpoint_comes_after_so_many_steps(void **state)
{
    (void)state;
    options.checkpoint_every.steps = 3;
    start();
    for (uint64_t i = 1; i <= 7; i++) {
        assert_int_equal(step(), 0);
        assert_int_equal(taken(), i / 3);
    }
    assert_int_equal(trainer->saving.last_step, 6);
}

static void test_a_checkpoint_comes_after_so_much_time(void **state)
{
    (void)state;
    options.checkpoint_every.seconds = 3600;
    start();
    assert_int_equal(step(), 0);
    assert_int_equal(taken(), 0);
    trainer->saving.last_ns -= 3601 * CT_NS_PER_S;
    trainer->preempt.next = trainer->preempt.steps + 1; /* ranks exchange after the next step */
    assert_int_equal(step(), 0);
    assert_int_equal(taken(), 1);
    /* The time counts from that one on. */
    trainer->preempt.next = trainer->preempt.steps + 1;
    assert_int_equal(step(), 0);
    assert_int_equal(taken(), 1);
}

static void test_lines_of_metrics_come_when_they_are_due(void **state)
{
    (void)state;
    options.metrics_every = 2;
    start();
    for (int i = 1; i <= 8; i++) {
        /* Until step 4 ranks would exchange nothing without a line, then after each step. */
        trainer->preempt.next = i <= 4 ? 1000 : trainer->preempt.steps + 1;
        assert_int_equal(step(), 0);
        assert_int_equal(steps_told, i / 2);
    }
}

static void test_a_notice_saves_and_stops(void **state)
{
    (void)state;
    start();
    assert_int_equal(step(), 0);
    free(ct_tmpdir_write(dir, "notice", "{}", 2));
    trainer->preempt.next = trainer->preempt.steps + 1;
    assert_int_equal(step(), CT_BETWEEN_STEPS_E_STOP);
    assert_true(trainer->preempted);
    assert_int_equal(trainer->saving.last_step, 2);
    assert_int_equal(taken(), 1);
}

/* The checkpoint of this epoch is the one that the stop needs. */
static void test_a_notice_at_the_end_of_an_epoch_saves_once(void **state)
{
    (void)state;
    start();
    free(ct_tmpdir_write(dir, "notice", "{}", 2));
    trainer->optimizer.step = 24;
    trainer->at.epoch = 1;
    assert_int_equal(ct_between_steps_epoch(trainer, &events, NULL), CT_BETWEEN_STEPS_E_STOP);
    assert_int_equal(taken(), 1);
    assert_true(trainer->preempted);
}

static void test_after_the_last_epoch_a_notice_changes_nothing(void **state)
{
    (void)state;
    start();
    free(ct_tmpdir_write(dir, "notice", "{}", 2));
    trainer->optimizer.step = 48;
    trainer->at.epoch = 2;
    assert_int_equal(ct_between_steps_epoch(trainer, &events, NULL), 0);
    assert_int_equal(taken(), 1);
    assert_false(trainer->preempted);
}

/* A stop would lose everything. */
static void test_without_checkpoints_a_notice_is_not_heard(void **state)
{
    (void)state;
    options.checkpoint = NULL;
    start();
    assert_null(trainer->saving.saver);
    free(ct_tmpdir_write(dir, "notice", "{}", 2));
    assert_int_equal(step(), 0);
    assert_false(trainer->preempted);
    assert_int_equal(ct_between_steps_end(&trainer->saving, NULL), 0);
}

static void test_a_checkpoint_that_cannot_be_written_is_a_warning_once(void **state)
{
    (void)state;
    options.checkpoint_every.steps = 1;
    start();
    ct_tmpdir_free(dir);
    dir = NULL;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(step(), 0);
        /* Waits for the write. ct_saver_wait() would also report the failure. */
        assert_non_null(ct_saver_begin(trainer->saving.saver, true));
    }
    assert_int_equal(warnings, 1);
    /* Nothing would write the last one later. */
    assert_int_not_equal(ct_between_steps_end(&trainer->saving, NULL), 0);
}

static void expect_free(int64_t step, size_t want)
{
    trainer->optimizer.step = step;
    assert_int_equal(ct_between_steps_free(trainer), want);
}

static void test_steps_are_free_until_something_is_due(void **state)
{
    (void)state;
    options.metrics_every = 10;
    options.checkpoint_every.steps = 25;
    start();
    trainer->preempt.steps = 0;
    trainer->preempt.next = 8;
    expect_free(0, 8);  /* the exchange */
    expect_free(7, 3);  /* a line of metrics */
    expect_free(23, 2); /* a checkpoint */
    expect_free(30, 8); /* none of both: 10 and 20 steps away */
    trainer->preempt.next = 0;
    expect_free(0, 1); /* the exchange is late, and comes after the next step */
    trainer->preempt.next = 1000;
    trainer->options.metrics_every = 0;
    trainer->options.checkpoint_every.steps = 0;
    expect_free(7, 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_checkpoint_comes_after_so_many_steps),
        TEST(test_a_checkpoint_comes_after_so_much_time),
        TEST(test_lines_of_metrics_come_when_they_are_due),
        TEST(test_a_notice_saves_and_stops),
        TEST(test_a_notice_at_the_end_of_an_epoch_saves_once),
        TEST(test_after_the_last_epoch_a_notice_changes_nothing),
        TEST(test_without_checkpoints_a_notice_is_not_heard),
        TEST(test_a_checkpoint_that_cannot_be_written_is_a_warning_once),
        TEST(test_steps_are_free_until_something_is_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
