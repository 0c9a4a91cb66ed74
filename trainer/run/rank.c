/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank. Happy path: rank 0 opens the outputs, each rank makes its trainer and runs it. If a
 * peer fails and this process may continue, the trainer joins the next generation, in which another
 * process may be rank 0. Any other failure aborts the trainer, so that the peers fail, too. The
 * trainer is freed here.
 *
 * Signals that ask to stop are caught from the moment when all ranks are there, before the state is
 * taken from memory or a file. Then they are heard at the first step, after which the state is
 * saved. Before that moment they end the process at once, since it may wait for a peer that never
 * comes.
 */
#include "trainer/run/rank.h"

#include "trainer/loop/train.h"

bool ct_rank_error_is_permanent(const struct ct_rank_run *run, int code)
{
    bool configuration = code == CT_EINVAL || code == CT_ENOENT || code == CT_EPERM ||
                         code == CT_EFORMAT || code == CT_EUNSUPPORTED;
    return configuration && !atomic_load(&run->trains);
}

static int open_loggers(struct ct_rank_run *run, struct ct_err *err)
{
    int rc = run->opened ? 0 : ct_loggers_open(&run->loggers, run->options, err);
    run->opened = run->opened || rc == 0;
    return rc;
}

/* Trains in one generation. Rank 0 reports; that is not the same process in every generation. */
static int train_on(struct ct_trainer *trainer, struct ct_rank_run *run, struct ct_err *err)
{
    bool leads = ctw_job_env(trainer->job)->rank == 0;
    struct ct_loggers *loggers = &run->loggers;
    if (leads) {
        int rc = open_loggers(run, err);
        if (rc != 0) {
            return rc;
        }
        ct_loggers_start(loggers, trainer);
    }
    struct ct_train_result result;
    struct ct_train_events events =
        leads ? ct_loggers_events(loggers) : (struct ct_train_events){0};
    events.stop_asked = run->stop_asked;
    atomic_store(&run->trains, true);
    int rc = ct_trainer_run(trainer, &events, &result, err);
    if (rc == 0 && leads) {
        ct_loggers_done(loggers, &result);
    }
    return rc;
}

int ct_rank_train(struct ctw_job *job, void *data, struct ct_err *err)
{
    struct ct_rank_run *run = data;
    bool leads = ctw_job_env(job)->rank == 0; /* one of the threads, with --gpus */
    int rc = leads ? open_loggers(run, err) : 0;
    if (rc != 0) {
        return rc;
    }
    struct ct_trainer *trainer = NULL;
    /* Only one of the threads may take what was made ready. */
    struct ct_warm_parts *warm = leads || run->options->gpus == 0 ? &run->warm : NULL;
    rc = ct_trainer_new(run->options, job, warm, run->catch_signals, &trainer, err);
    if (rc != 0) {
        return rc;
    }
    rc = train_on(trainer, run, err);
    while (rc != 0 && ct_trainer_goes_on(trainer, rc)) {
        ct_console_break(&run->loggers.console);
        rc = ct_trainer_next(trainer, err);
        if (rc == 0) {
            rc = train_on(trainer, run, err);
        }
    }
    if (rc != 0) {
        ct_trainer_abort(trainer);
    }
    ct_trainer_free(trainer);
    return rc;
}
