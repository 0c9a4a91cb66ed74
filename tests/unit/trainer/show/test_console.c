/* SPDX-License-Identifier: Apache-2.0
 *
 * What a person reads of a training, and that a failing output costs only that output.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/show/loggers.h"

#include <stdlib.h>

/* Both streams of the loggers, in memory. */
struct screen {
    struct ct_loggers loggers;
    FILE *out, *complaints;
    char *text, *complained;
    size_t len, complained_len;
};

static void open_screen(struct screen *s, bool terminal)
{
    *s = (struct screen){0};
    s->out = open_memstream(&s->text, &s->len);
    s->complaints = open_memstream(&s->complained, &s->complained_len);
    assert_true(s->out != NULL && s->complaints != NULL);
    ct_loggers_init(&s->loggers, s->out, terminal, s->complaints);
}

static void expect_text(struct screen *s, const char *text, const char *complained)
{
    assert_int_equal(fflush(s->out), 0);
    assert_int_equal(fflush(s->complaints), 0);
    assert_string_equal(s->text, text);
    assert_string_equal(s->complained, complained);
}

static void close_screen(struct screen *s)
{
    ct_loggers_fini(&s->loggers);
    (void)fclose(s->out);
    (void)fclose(s->complaints);
    free(s->text);
    free(s->complained);
}

static const struct ct_step_report half_way = {
    .epoch = 1,
    .epochs = 2,
    .batch = 3,
    .batches = 6,
    .loss = 0.5,
    .accuracy = 0.75,
    .samples_per_s = 1000,
    .comm_share = 0.25,
    .eta_s = 75,
};

static const struct ct_epoch_report whole = {
    .epoch = 1,
    .epochs = 2,
    .loss = 0.5,
    .test_loss = 0.25,
    .test_accuracy = 0.75,
    .samples_per_s = 1000,
    .us_per_step = 12,
};

#define EPOCH_LINE \
    "epoch 1/2: loss 0.5000, test loss 0.2500, test accuracy 0.7500, 1000 samples/s, 12 us/step\n"

/* ---- the screen ------------------------------------------------------------------------------ */

static void within_an_epoch_only_a_terminal_shows_something(void **state)
{
    (void)state;
    struct screen s;
    open_screen(&s, false);
    ct_console_tick(&s.loggers.console, &half_way);
    assert_null(ct_loggers_events(&s.loggers).tick);
    expect_text(&s, "", "");
    close_screen(&s);
}

static void a_terminals_line_is_rewritten_and_then_erased(void **state)
{
    (void)state;
    struct screen s;
    open_screen(&s, true);
    ct_loggers_events(&s.loggers).tick(&s.loggers, &half_way);
    ct_console_epoch(&s.loggers.console, &whole);
    expect_text(&s,
                "\r\033[Kepoch 1/2: step 3/6, loss 0.5000, accuracy 0.7500, 1000 samples/s, "
                "all-reduce 25 %, 75 s left"
                "\r\033[K" EPOCH_LINE,
                "");
    close_screen(&s);
}

static void time_left_is_in_seconds_minutes_or_hours(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *want;
    } cases[] = {
        {99.4, " 99 s left"}, {100, " 2 min left"}, {5999, " 100 min left"}, {9000, " 2.5 h left"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct screen s;
        struct ct_step_report report = half_way;
        report.eta_s = cases[i].seconds;
        open_screen(&s, true);
        ct_console_tick(&s.loggers.console, &report);
        assert_non_null(strstr(s.text, cases[i].want));
        close_screen(&s);
    }
}

static void the_model_and_where_it_goes_on_are_told_first(void **state)
{
    (void)state;
    static const struct {
        struct ct_position at;
        int64_t snapshot;
        const char *want;
    } cases[] = {
        {{0}, 0, ""},
        {{.epoch = 2}, 0, "resuming after epoch 2\n"},
        {{.epoch = 2, .batch = 5}, 0, "resuming after epoch 2 and 5 steps\n"},
        {{.epoch = 2, .batch = 5}, 45, "going on from memory after step 45\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ct_device dev = {.name = "a device"};
        struct ct_trainer trainer = {
            .dev = &dev,
            .layout = {.layer_count = 2,
                       .layer = {{.in = 4, .out = 3}, {.in = 3, .out = 2}},
                       .parameters = 23},
            .data = {.set = {.train = {.count = 60}, .test = {.count = 10}}},
            .group = {.world = 2},
            .sampler = {.batch = 30},
            .optimizer = {.kind = CT_OPTIMIZER_SGD, .step = 45},
            .at = cases[i].at,
            .step_snapshot = {.found = {.step = (uint64_t)cases[i].snapshot}},
        };
        char want[256];
        (void)snprintf(want, sizeof want,
                       "model 4-3-2 (23 parameters), sgd, 60 training and 10 test images\n"
                       "2 workers on a device, 30 samples per step\n%s",
                       cases[i].want);
        struct screen s;
        open_screen(&s, false);
        ct_loggers_start(&s.loggers, &trainer);
        expect_text(&s, want, "");
        close_screen(&s);
        ct_buf_fini(&trainer.warnings);
    }
}

static void the_end_says_what_became_of_the_checkpoints(void **state)
{
    (void)state;
    struct screen s;
    open_screen(&s, false);
    const struct ct_train_result done = {
        .test_accuracy = 0.5,
        .seconds = 2,
        .samples_per_s = 300,
        .param_hash = 0xabc,
        .checkpoints = {.written = 3, .failed = 1},
    };
    ct_loggers_done(&s.loggers, &done);
    expect_text(&s,
                "checkpoints: 3 written, 1 failed, 0 skipped because one was still being written\n"
                "parameters: hash 0000000000000abc\n"
                "done: test accuracy 0.5000 in 2.0 s, 300 samples/s\n",
                "");
    close_screen(&s);
}

static void a_preempted_run_says_how_to_go_on_and_has_no_result(void **state)
{
    (void)state;
    struct screen s;
    open_screen(&s, false);
    ct_loggers_done(&s.loggers, &(struct ct_train_result){.preempted = true, .step = 7});
    expect_text(&s, "preempted: the state after step 7 is saved, go on with --resume\n", "");
    close_screen(&s);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void a_path_that_cannot_be_right_fails_at_once(void **state)
{
    (void)state;
    struct screen s;
    struct ct_err err = {0};
    open_screen(&s, false);
    const struct ct_train_options metrics = {.metrics = "/no/such/folder/m.jsonl"};
    assert_int_equal(ct_loggers_open(&s.loggers, &metrics, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    const struct ct_train_options board = {.tensorboard = "/proc/no/such/folder"};
    assert_true(ct_loggers_open(&s.loggers, &board, &err) < 0);
    close_screen(&s);
}

/* The line of the terminal ends first, so that the complaint stands on its own. */
static void a_full_disk_costs_a_complaint_and_not_the_training(void **state)
{
    (void)state;
    struct screen s;
    struct ct_err err = {0};
    open_screen(&s, true);
    const struct ct_train_options options = {.metrics = "/dev/full"};
    assert_int_equal(ct_loggers_open(&s.loggers, &options, &err), 0);
    const struct ct_train_events events = ct_loggers_events(&s.loggers);
    struct ct_trainer trainer = {0};
    s.loggers.trainer = &trainer;
    events.tick(events.data, &half_way);
    events.epoch(events.data, &whole);
    events.epoch(events.data, &whole);
    (void)fflush(s.out);
    (void)fflush(s.complaints);
    assert_non_null(strstr(s.complained, "train: "));
    assert_non_null(strstr(s.complained, "No space left"));
    assert_true(strchr(s.complained, '\n') == s.complained + s.complained_len - 1); /* one */
    const char *first = strstr(s.text, EPOCH_LINE);
    assert_non_null(first);
    assert_non_null(strstr(first + 1, EPOCH_LINE));
    close_screen(&s);
}

static void steps_and_epochs_reach_every_file(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *metrics = ct_tmpdir_path(dir, "m.jsonl");
    struct screen s;
    struct ct_err err = {0};
    open_screen(&s, false);
    const struct ct_train_options options = {.metrics = metrics, .tensorboard = dir};
    assert_int_equal(ct_loggers_open(&s.loggers, &options, &err), 0);
    struct ct_trainer trainer = {0};
    s.loggers.trainer = &trainer;
    const struct ct_train_events events = ct_loggers_events(&s.loggers);
    events.step(events.data, &half_way);
    events.epoch(events.data, &whole);
    ct_loggers_done(&s.loggers, &(struct ct_train_result){.test_accuracy = 0.5});
    close_screen(&s);
    FILE *file = fopen(metrics, "r");
    assert_non_null(file);
    char line[1024];
    int lines = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        lines++;
    }
    (void)fclose(file);
    assert_int_equal(lines, 3); /* a step, an epoch, the result */
    free(metrics);
    ct_tmpdir_free(dir);
}

static void warnings_are_told_before_training_one_a_line(void **state)
{
    (void)state;
    struct ct_device dev = {.name = "a device"};
    struct ct_trainer trainer = {.dev = &dev};
    assert_int_equal(ct_buf_printf(&trainer.warnings, "first\nsecond\n"), 0);
    struct screen s;
    open_screen(&s, false);
    ct_loggers_start(&s.loggers, &trainer);
    const struct ct_train_events events = ct_loggers_events(&s.loggers);
    struct ct_err err = {0};
    assert_int_equal(ct_err_set(&err, CT_EIO, "third\033"), CT_EIO);
    events.warn(events.data, &err);
    (void)fflush(s.complaints);
    assert_non_null(strstr(s.complained, "train: first\ntrain: second\ntrain: third"));
    assert_null(strchr(s.complained, '\033'));
    close_screen(&s);
    ct_buf_fini(&trainer.warnings);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(within_an_epoch_only_a_terminal_shows_something),
        cmocka_unit_test(a_terminals_line_is_rewritten_and_then_erased),
        cmocka_unit_test(time_left_is_in_seconds_minutes_or_hours),
        cmocka_unit_test(the_model_and_where_it_goes_on_are_told_first),
        cmocka_unit_test(the_end_says_what_became_of_the_checkpoints),
        cmocka_unit_test(a_preempted_run_says_how_to_go_on_and_has_no_result),
        cmocka_unit_test(a_path_that_cannot_be_right_fails_at_once),
        cmocka_unit_test(a_full_disk_costs_a_complaint_and_not_the_training),
        cmocka_unit_test(steps_and_epochs_reach_every_file),
        cmocka_unit_test(warnings_are_told_before_training_one_a_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
