/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens every output before training starts, so that a wrong path fails at once. Later a full disk,
 * or a reader that ends, costs only a warning and that output. ct_sinks_fini() closes the files.
 */
#include "trainer/show/sinks.h"

#include "common/text.h"

#include <errno.h>
#include <string.h>

void ct_complain(FILE *to, struct ct_err *err)
{
    ct_text_clean(err->text);
    (void)fprintf(to, "train: %s\n", err->text);
}

void ct_sinks_init(struct ct_sinks *sinks, FILE *out, bool terminal, FILE *complaints)
{
    *sinks = (struct ct_sinks){
        .screen = {.out = out, .terminal = terminal},
        .metrics = CT_METRICS_INIT,
        .board = CT_TENSORBOARD_INIT,
        .complaints = complaints,
    };
}

void ct_sinks_fini(struct ct_sinks *sinks)
{
    ct_console_break(&sinks->screen);
    ct_metrics_close(&sinks->metrics);
    ct_tensorboard_close(&sinks->board);
}

/* Reports a failed sink; training continues without it. */
static void check(struct ct_sinks *sinks, int rc, struct ct_err *err)
{
    if (rc != 0) {
        ct_console_break(&sinks->screen);
        ct_complain(sinks->complaints, err);
    }
}

static bool is_of_the_disk(int error)
{
    return error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
}

/* A full or broken disk only costs the sink, even if it shows while opening. A path that can never
 * work is an error before any work. */
static int check_opened(struct ct_sinks *sinks, int rc, const char *option, struct ct_err *err)
{
    if (rc == 0 || !is_of_the_disk(err->sys)) {
        return rc;
    }
    (void)ct_err_wrap(err, "going on without %s", option);
    check(sinks, rc, err);
    *err = (struct ct_err){0};
    return 0;
}

int ct_sinks_open(struct ct_sinks *sinks, const struct ct_train_options *options,
                  struct ct_err *err)
{
    if (options->metrics != NULL) {
        int rc = ct_metrics_open(&sinks->metrics, options->metrics, err);
        rc = check_opened(sinks, rc, "--metrics", err);
        if (rc != 0) {
            return rc;
        }
    }
    if (options->tensorboard != NULL) {
        int rc = ct_tensorboard_open(&sinks->board, options->tensorboard, err);
        return check_opened(sinks, rc, "--tensorboard", err);
    }
    return 0;
}

void ct_sinks_start(struct ct_sinks *sinks, struct ct_trainer *trainer)
{
    const char *line = ct_buf_cstr(&trainer->warnings);
    while (line != NULL && *line != '\0') {
        size_t len = strcspn(line, "\n");
        struct ct_err err = {0};
        int rc = ct_err_set(&err, CT_EFORMAT, "%.*s", (int)len, line);
        check(sinks, rc, &err);
        line += len + (line[len] == '\n');
    }
    sinks->trainer = trainer;
    ct_console_start(&sinks->screen, trainer);
}

static void on_tick(void *data, const struct ct_step_report *report)
{
    struct ct_sinks *sinks = data;
    ct_console_tick(&sinks->screen, report);
}

static void on_step(void *data, const struct ct_step_report *report)
{
    struct ct_sinks *sinks = data;
    struct ct_err err = {0};
    check(sinks, ct_metrics_step(&sinks->metrics, report, &err), &err);
    const struct ct_scalar scalars[] = {
        {"step/loss", report->loss},
        {"step/accuracy", report->accuracy},
        {"step/samples_per_s", report->samples_per_s},
        {"step/learning_rate", report->lr},
    };
    check(sinks,
          ct_tensorboard_add(&sinks->board, report->step, scalars,
                             sizeof scalars / sizeof scalars[0], &err),
          &err);
}

static void on_epoch(void *data, const struct ct_epoch_report *report)
{
    struct ct_sinks *sinks = data;
    struct ct_err err = {0};
    ct_console_epoch(&sinks->screen, report);
    check(sinks, ct_metrics_epoch(&sinks->metrics, report, &err), &err);
    const struct ct_scalar scalars[] = {
        {"loss/train", report->loss},
        {"loss/test", report->test_loss},
        {"accuracy/test", report->test_accuracy},
        {"samples_per_s", report->samples_per_s},
    };
    check(sinks,
          ct_tensorboard_add(&sinks->board, sinks->trainer->optimizer.step, scalars,
                             sizeof scalars / sizeof scalars[0], &err),
          &err);
}

static void on_warn(void *data, struct ct_err *warning)
{
    check(data, warning->code, warning);
}

struct ct_train_events ct_sinks_events(struct ct_sinks *sinks)
{
    return (struct ct_train_events){
        .tick = sinks->screen.terminal ? on_tick : NULL,
        .step = on_step,
        .epoch = on_epoch,
        .warn = on_warn,
        .data = sinks,
    };
}

void ct_sinks_done(struct ct_sinks *sinks, const struct ct_train_result *result)
{
    struct ct_err err = {0};
    ct_console_done(&sinks->screen, result);
    if (!result->preempted) {
        check(sinks, ct_metrics_done(&sinks->metrics, result, &err), &err);
    }
}
