/* SPDX-License-Identifier: Apache-2.0
 *
 * train: data-parallel training of a multi-layer perceptron, alone or as a worker of ctrun.
 *
 * Exit codes: 0 done; 1 training could not start or go on (data, files, memory, a peer); 2 usage.
 */
#include "common/buf.h"
#include "common/text.h"
#include "trainer/metrics.h"
#include "trainer/options.h"
#include "trainer/progress.h"
#include "trainer/trainer.h"
#include "worker/ctworker.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct sinks {
    struct ct_progress progress;
    struct ct_metrics metrics;
};

/* One line, whatever strange name the message quotes. */
static void complain(struct ct_err *err)
{
    ct_text_clean(err->text);
    (void)fprintf(stderr, "train: %s\n", err->text);
}

static void on_tick(void *data, int epoch, int epochs, double done, double samples_per_s)
{
    struct sinks *sinks = data;
    ct_progress_tick(&sinks->progress, epoch, epochs, done, samples_per_s);
}

static void on_epoch(void *data, const struct ct_epoch_report *report)
{
    struct sinks *sinks = data;
    struct ct_err err = {0};
    ct_progress_epoch(&sinks->progress, report);
    if (ct_metrics_epoch(&sinks->metrics, report, &err) != 0) {
        complain(&err);
    }
}

static void on_done(struct sinks *sinks, const struct ct_train_result *result)
{
    struct ct_err err = {0};
    ct_progress_done(&sinks->progress, result);
    if (ct_metrics_done(&sinks->metrics, result, &err) != 0) {
        complain(&err);
    }
}

/* Trains on this rank. What fails here ends the peers' collectives too. */
static int train(const struct ct_train_options *options, struct ctw_job *job, struct sinks *sinks,
                 struct ct_err *err)
{
    bool leads = ctw_job_env(job)->rank == 0;
    int rc = 0;
    if (leads && options->metrics != NULL) {
        rc = ct_metrics_open(&sinks->metrics, options->metrics, err);
    }
    struct ct_trainer *trainer = NULL;
    if (rc == 0) {
        rc = ct_trainer_new(options, job, &trainer, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (leads) {
        ct_progress_start(&sinks->progress, trainer);
    }
    struct ct_train_result result;
    const struct ct_train_events events = {
        .tick = sinks->progress.terminal ? on_tick : NULL, .epoch = on_epoch, .data = sinks};
    rc = ct_trainer_run(trainer, &events, &result, err);
    if (rc != 0) {
        ct_trainer_abort(trainer);
    } else if (leads) {
        on_done(sinks, &result);
    }
    ct_trainer_free(trainer);
    return rc;
}

static int run(const struct ct_train_options *options)
{
    struct ct_err err = {0};
    struct ctw_job *job;
    if (ctw_job_open(NULL, &job, &err) != 0) {
        complain(&err);
        return EXIT_FAILED;
    }
    if (ct_shards_check(options->shards, ctw_job_env(job)->world_size, &err) != 0) {
        complain(&err);
        (void)ctw_job_report_error(job, err.text, NULL);
        ctw_job_free(job);
        return EXIT_USAGE;
    }
    if (options->shards > 0) {
        /* Products that several threads share are cut in other places, and so rounded elsewhere. */
        (void)unsetenv("OMP_NUM_THREADS");
    }
    struct sinks sinks = {
        .progress = {.out = stdout, .terminal = isatty(STDOUT_FILENO) == 1},
        .metrics = CT_METRICS_INIT,
    };
    int rc = train(options, job, &sinks, &err);
    if (rc != 0) {
        ct_progress_break(&sinks.progress);
        complain(&err);
        /* The launcher reads it there; without a launcher the line above is all there is. */
        (void)ctw_job_report_error(job, err.text, NULL);
    }
    ct_metrics_close(&sinks.metrics);
    ctw_job_free(job);
    return rc == 0 ? EXIT_DONE : EXIT_FAILED;
}

static int print_help(void)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_train_options_help(&text);
    if (rc == 0) {
        (void)fwrite(ct_buf_bytes(&text), 1, text.len, stdout);
    }
    ct_buf_fini(&text);
    return rc == 0 && fflush(stdout) == 0 ? EXIT_DONE : EXIT_FAILED;
}

/* libgomp's threads spin for milliseconds when they have nothing to do, so that a step of many
 * small products takes 20 times as long as soon as another process wants a processor. libgomp reads
 * the limit only while it is loaded, hence the second exec. What the user chose stays. */
static void calm_openmp(char *argv[])
{
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads == NULL || strcmp(threads, "1") == 0 || getenv("OMP_WAIT_POLICY") != NULL ||
        getenv("GOMP_SPINCOUNT") != NULL) {
        return;
    }
    /* The path by name, so that ps shows the program's. Without /proc: slower, not wrong. */
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    /* A few microseconds: longer than the gap between two products of a step. */
    if (len > 0 && setenv("GOMP_SPINCOUNT", "1000", 1) == 0) {
        self[len] = '\0';
        (void)execv(self, argv);
    }
}

int main(int argc, char *argv[])
{
    calm_openmp(argv);
    /* ctrun forwards lines; they should leave when they are written, not when a buffer is full. */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)setvbuf(stderr, NULL, _IOLBF, 0);

    struct ct_train_options options;
    struct ct_err err = {0};
    if (ct_train_options_parse(argc, argv, &options, &err) != 0) {
        complain(&err);
        return EXIT_USAGE;
    }
    if (options.help) {
        return print_help();
    }
    if (options.version) {
        return printf("train %s\n", ct_train_version()) > 0 ? EXIT_DONE : EXIT_FAILED;
    }
    return run(&options);
}
