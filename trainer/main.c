/* SPDX-License-Identifier: Apache-2.0
 *
 * train: data-parallel training of a multi-layer perceptron, alone or as a worker of ctrun.
 *
 * Exit codes: 0 done; 1 training could not start or continue (data, files, memory, a peer); 2
 * usage. Errors that a restart would meet again are reported to ctrun.
 */
#include "common/buf.h"
#include "trainer/model/gpu_ranks.h"
#include "trainer/run/rank.h"
#include "trainer/run/stop_signals.h"
#include "trainer/session/train_options.h"
#include "trainer/show/loggers.h"
#include "trainer/show/plot.h"
#include "worker/ctworker.h"

#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

CTW_OFFERS_SPARES;

enum exit_code { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

static int complain(struct ct_err *err, int exit_code)
{
    ct_loggers_complain(stderr, err);
    return exit_code;
}

static bool saves_when_stopped(const struct ct_train_options *options)
{
    return options->checkpoint != NULL || options->checkpoint_dir != NULL;
}

/* Called when nothing but a peer's death keeps the first step from coming, because steps look at
 * the flag. Without a checkpoint a stop would save nothing, so the signals keep their default
 * effect. */
static void catch_stop_signals(const struct ct_train_options *options)
{
    if (saves_when_stopped(options)) {
        ct_stop_signals_catch();
    }
}

/* A launcher blames the worker that fails first, so this gives it time to see the peer whose end
 * made this one fail. Usually the launcher's signal ends the wait and the process. */
static void let_peer_be_first(int rc)
{
    for (int i = 0; i < 30 && rc == CT_EPEER && !*ct_stop_signals_asked(); i++) {
        (void)poll(NULL, 0, 10);
    }
}

/* With `ctrun --warm` this process may be a spare. Then it makes ready what a worker needs, and
 * waits until it is one. A spare that is not needed ends without a word. */
static int await_turn(const struct ct_train_options *options, struct ct_warm_parts *parts)
{
    struct ct_err err = {0};
    struct ctw_spare *spare;
    struct ctw_env guess; /* of the ranks, for the size of the rehearsal only */
    int rc = ctw_spare_open(&spare, &err);
    if (rc != 0 || spare == NULL) {
        return rc;
    }
    rc = ctw_env_read(&guess, &err);
    if (rc == 0) {
        rc = ct_warm_parts_make(parts, options, guess.rank, guess.world_size, &err);
    }
    if (rc != 0) {
        ctw_spare_refuse(spare, err.text);
        return rc;
    }
    return ctw_spare_wait(spare, ct_warm_parts_check, parts, &err);
}

static int run(const struct ct_train_options *options)
{
    struct ct_err err = {0};
    struct ctw_job *job;
    struct ct_rank_run here = {.options = options,
                               .stop_asked = ct_stop_signals_asked(),
                               .catch_signals = catch_stop_signals};
    if (saves_when_stopped(options) && ct_stop_signals_apart(&err) != 0) {
        return complain(&err, EXIT_FAILED);
    }
    if (await_turn(options, &here.warm) != 0) {
        return EXIT_FAILED;
    }
    if (ctw_job_open(NULL, &job, &err) != 0) {
        (void)ctw_job_report_error(NULL, err.text, NULL);
        return complain(&err, EXIT_FAILED);
    }
    int ranks = options->gpus > 0 ? options->gpus : ctw_job_env(job)->world_size;
    if (ct_shards_check(options->shards, ranks, &err) != 0) {
        (void)complain(&err, EXIT_USAGE);
        (void)ctw_job_report_permanent_error(job, err.text, NULL);
        ctw_job_free(job);
        return EXIT_USAGE;
    }
    if (options->shards > 0) {
        /* Several threads divide products in other places, which changes the rounding. */
        (void)unsetenv("OMP_NUM_THREADS");
    }
    ct_loggers_init(&here.loggers, stdout, isatty(STDOUT_FILENO) == 1, stderr);
    int rc = options->gpus > 0 ? ct_gpu_ranks_run(options->gpus, job, ct_rank_train, &here, &err)
                               : ct_rank_train(job, &here, &err);
    /* A worker that the launcher dismisses at the end of the job has not failed. */
    bool dismissed = rc == CT_EABORTED && ctw_job_ended(job);
    if (rc != 0 && !dismissed) {
        ct_console_break(&here.loggers.console);
        (void)complain(&err, EXIT_FAILED);
        /* The launcher reads the error there. Without a launcher the line above is all. */
        (void)(ct_rank_error_is_permanent(&here, rc)
                   ? ctw_job_report_permanent_error(job, err.text, NULL)
                   : ctw_job_report_error(job, err.text, NULL));
        let_peer_be_first(rc);
    }
    ct_loggers_fini(&here.loggers);
    ct_warm_parts_fini(&here.warm);
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
    return rc == 0 && fflush(stdout) == 0 && !ferror(stdout) ? EXIT_DONE : EXIT_FAILED;
}

/* Idle threads of libgomp spin for milliseconds. If another process needs a processor, a step of
 * many small products then takes 20 times as long. libgomp reads the limit only when it is loaded,
 * so this executes the program again. A value of the user's is kept. */
static void calm_openmp(char *argv[])
{
    const char *threads = getenv("OMP_NUM_THREADS");
    if (threads == NULL || strcmp(threads, "1") == 0 || getenv("OMP_WAIT_POLICY") != NULL ||
        getenv("GOMP_SPINCOUNT") != NULL) {
        return;
    }
    /* The path instead of the link, so that ps shows the program's name. Without /proc the program
     * is only slower. */
    char self[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    /* A few microseconds, which is longer than the gap between two products of a step. */
    if (len > 0 && setenv("GOMP_SPINCOUNT", "1000", 1) == 0) {
        self[len] = '\0';
        (void)execv(self, argv);
    }
}

int main(int argc, char *argv[])
{
    calm_openmp(argv);
    /* Streams share the GPU's hardware queues, of which there are 8 by default. In one queue the
     * second stream waits for the first: an update for a product, or a message that the next stage
     * needs for a later one, which is a deadlock. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    /* ctrun forwards lines, so each must be written at once. */
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    (void)setvbuf(stderr, NULL, _IOLBF, 0);

    /* Writing to a file at its size limit must fail like a full disk, which training survives. */
    (void)signal(SIGXFSZ, SIG_IGN);

    struct ct_train_options options;
    struct ct_err err = {0};
    if (ct_train_options_parse(argc, argv, &options, &err) != 0) {
        (void)ctw_job_report_permanent_error(NULL, err.text, NULL);
        return complain(&err, EXIT_USAGE);
    }
    if (options.metrics != NULL) {
        /* Training must continue when the reader of a metrics pipe ends. */
        (void)signal(SIGPIPE, SIG_IGN);
    }
    if (options.help) {
        return print_help();
    }
    if (options.version) {
        return printf("train %s\n", ct_train_version()) > 0 ? EXIT_DONE : EXIT_FAILED;
    }
    if (options.plot != NULL) {
        bool plotted = ct_plot_file(options.plot, options.output, &err) == 0;
        return plotted ? EXIT_DONE : complain(&err, EXIT_FAILED);
    }
    return run(&options);
}
