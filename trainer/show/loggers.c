/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens every output before training starts, so that a wrong path fails at once. Later a full disk,
 * or a reader that ends, costs only a warning and that output. ct_loggers_fini() closes the files.
 */
#include "trainer/show/loggers.h"

#include "common/text.h"

#include <errno.h>
#include <string.h>

void ct_loggers_complain(FILE *to, struct ct_err *err)
{
    ct_text_clean(err->text);
    (void)fprintf(to, "train: %s\n", err->text);
}

void ct_loggers_init(struct ct_loggers *loggers, FILE *out, bool terminal, FILE *complaints)
{
    *loggers = (struct ct_loggers){
        .console = {.out = out, .terminal = terminal},
        .metrics = CT_METRICS_INIT,
        .board = CT_TENSORBOARD_INIT,
        .complaints = complaints,
    };
}

void ct_loggers_fini(struct ct_loggers *loggers)
{
    ct_console_break(&loggers->console);
    ct_metrics_close(&loggers->metrics);
    ct_tensorboard_close(&loggers->board);
}

/* Reports a failed logger; training continues without it. */
static void check(struct ct_loggers *loggers, int rc, struct ct_err *err)
{
    if (rc != 0) {
        ct_console_break(&loggers->console);
        ct_loggers_complain(loggers->complaints, err);
    }
}

static bool is_of_the_disk(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
}

/* A full or broken disk only costs the logger, even if it shows while opening. A path that can
 * never work is an error before any work. */
static int check_opened(struct ct_loggers *loggers, int rc, const char *option, struct ct_err *err)
{
    if (rc == 0 || !is_of_the_disk(err->sys)) {
        return rc;
    }
    (void)ct_err_wrap(err, "going on without %s", option);
    check(loggers, rc, err);
    *err = (struct ct_err){0};
    return 0;
}

int ct_loggers_open(struct ct_loggers *loggers, const struct ct_train_options *options,
                    struct ct_err *err)
{
    if (options->metrics != NULL) {
        int rc = ct_metrics_open(&loggers->metrics, options->metrics, err);
        rc = check_opened(loggers, rc, "--metrics", err);
        if (rc != 0) {
            return rc;
        }
    }
    if (options->tensorboard != NULL) {
        int rc = ct_tensorboard_open(&loggers->board, options->tensorboard, err);
        return check_opened(loggers, rc, "--tensorboard", err);
    }
    return 0;
}

void ct_loggers_start(struct ct_loggers *loggers, struct ct_trainer *trainer)
{
    const char *line = ct_buf_cstr(&trainer->warnings);
    while (line != NULL && *line != '\0') {
        size_t len = strcspn(line, "\n");
        struct ct_err err = {0};
        int rc = ct_err_set(&err, CT_EFORMAT, "%.*s", (int)len, line);
        check(loggers, rc, &err);
        line += len + (line[len] == '\n');
    }
    loggers->trainer = trainer;
    ct_console_start(&loggers->console, trainer);
}

static void on_tick(void *data, const struct ct_step_report *report)
{
    struct ct_loggers *loggers = data;
    ct_console_tick(&loggers->console, report);
}

static void on_step(void *data, const struct ct_step_report *report)
{
    struct ct_loggers *loggers = data;
    struct ct_err err = {0};
    check(loggers, ct_metrics_step(&loggers->metrics, report, &err), &err);
    const struct ct_scalar scalars[] = {
        {"step/loss", report->loss},
        {"step/accuracy", report->accuracy},
        {"step/samples_per_s", report->samples_per_s},
        {"step/learning_rate", report->lr},
    };
    check(loggers,
          ct_tensorboard_add(&loggers->board, report->step, scalars,
                             sizeof scalars / sizeof scalars[0], &err),
          &err);
}

static void on_epoch(void *data, const struct ct_epoch_report *report)
{
    struct ct_loggers *loggers = data;
    struct ct_err err = {0};
    ct_console_epoch(&loggers->console, report);
    check(loggers, ct_metrics_epoch(&loggers->metrics, report, &err), &err);
    const struct ct_scalar scalars[] = {
        {"loss/train", report->loss},
        {"loss/test", report->test_loss},
        {"accuracy/test", report->test_accuracy},
        {"samples_per_s", report->samples_per_s},
    };
    check(loggers,
          ct_tensorboard_add(&loggers->board, loggers->trainer->optimizer.step, scalars,
                             sizeof scalars / sizeof scalars[0], &err),
          &err);
}

static void on_warn(void *data, struct ct_err *warning)
{
    check(data, warning->code, warning);
}

struct ct_train_events ct_loggers_events(struct ct_loggers *loggers)
{
    return (struct ct_train_events){
        .tick = loggers->console.terminal ? on_tick : NULL,
        .step = on_step,
        .epoch = on_epoch,
        .warn = on_warn,
        .data = loggers,
    };
}

void ct_loggers_done(struct ct_loggers *loggers, const struct ct_train_result *result)
{
    struct ct_err err = {0};
    ct_console_done(&loggers->console, result);
    if (!result->preempted) {
        check(loggers, ct_metrics_done(&loggers->metrics, result, &err), &err);
    }
}
