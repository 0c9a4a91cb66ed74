/* SPDX-License-Identifier: Apache-2.0 */
#include "common/clock.h"
#include "trainer/param_hash.h"
#include "trainer/trainer.h"

#include <math.h>

/* How often rank 0 tells where it is within an epoch. */
#define TICK_NS (100 * CT_NS_PER_MS)

struct stopwatch {
    int64_t start;
    double training_s; /* without evaluation and checkpoints */
    int64_t samples;
};

static double seconds_since(int64_t start)
{
    return (double)(ct_clock_now(NULL) - start) / (double)CT_NS_PER_S;
}

static int run_steps(struct ct_trainer *t, const struct ct_train_events *events, struct ct_err *err)
{
    size_t batches = ct_sampler_batches(&t->sampler);
    int64_t start = ct_clock_now(NULL), next = start + TICK_NS;
    bool ticking = events->tick != NULL && t->team.rank == 0;
    for (size_t i = 0; i < batches; i++) {
        int rc = ct_trainer_step(t, i, err);
        if (rc != 0) {
            return rc;
        }
        int64_t now = ticking ? ct_clock_now(NULL) : 0;
        if (ticking && now >= next) {
            double done = (double)(i + 1) / (double)batches;
            double seconds = (double)(now - start) / (double)CT_NS_PER_S;
            events->tick(events->data, t->epoch + 1, t->options.epochs, done,
                         done * (double)t->sampler.count / seconds);
            next = now + TICK_NS;
        }
    }
    return 0;
}

/* What is true of the model as it stands. */
static int judge(struct ct_trainer *t, struct ct_epoch_report *report, struct ct_err *err)
{
    int rc = ct_trainer_evaluate(t, &report->test_loss, &report->test_accuracy, err);
    return rc == 0 ? ct_trainer_hash(t, &report->param_hash, err) : rc;
}

static int run_epoch(struct ct_trainer *t, const struct ct_train_events *events,
                     struct stopwatch *watch, struct ct_epoch_report *report, struct ct_err *err)
{
    double totals[2];
    int64_t start = ct_clock_now(NULL);
    ct_sampler_shuffle(&t->sampler, (unsigned)t->epoch);
    int rc = t->dev->ops->clear(t->dev, t->totals, sizeof totals, err);
    if (rc == 0) {
        rc = run_steps(t, events, err);
    }
    if (rc == 0) {
        rc = ct_team_sync(&t->team, err);
    }
    double seconds = seconds_since(start);
    if (rc == 0) {
        rc = t->dev->ops->download(t->dev, totals, t->totals, sizeof totals, err);
    }
    if (rc == 0) {
        rc = ct_team_sum(&t->team, totals, 2, err);
    }
    if (rc != 0) {
        return rc;
    }
    watch->training_s += seconds;
    watch->samples += (int64_t)t->sampler.count;
    t->epoch++;
    *report = (struct ct_epoch_report){
        .epoch = t->epoch,
        .epochs = t->options.epochs,
        .world_size = t->team.world,
        .loss = totals[0] / (double)t->sampler.count,
        .samples_per_s = (double)t->sampler.count / seconds,
        .us_per_step = 1e6 * seconds / (double)ct_sampler_batches(&t->sampler),
    };
    ctw_progress_metrics(t->job, report->loss, report->samples_per_s);
    /* Every rank holds the same sums, so all stop here together, before a checkpoint is replaced.
     */
    if (!isfinite(report->loss)) {
        return ct_err_set(err, CT_ELIMIT,
                          "the loss of epoch %d is not a number any more: training diverged, try a "
                          "smaller --lr than %g",
                          t->epoch, t->options.lr);
    }
    return judge(t, report, err);
}

int ct_trainer_run(struct ct_trainer *t, const struct ct_train_events *events,
                   struct ct_train_result *result, struct ct_err *err)
{
    struct stopwatch watch = {.start = ct_clock_now(NULL)};
    struct ct_epoch_report report = {0};
    int rc = 0;
    if (t->epoch >= t->options.epochs) {
        rc = judge(t, &report, err);
    }
    while (rc == 0 && t->epoch < t->options.epochs) {
        rc = run_epoch(t, events, &watch, &report, err);
        if (rc == 0 && t->team.rank == 0 && events->epoch != NULL) {
            events->epoch(events->data, &report);
        }
        /* Peers may compute their next gradients meanwhile, but nobody changes the shared model
         * before rank 0 has come to the next step's reduction. */
        if (rc == 0 && t->team.rank == 0 && t->options.checkpoint != NULL) {
            rc = ct_trainer_save(t, err);
        }
    }
    if (rc == 0) {
        ctw_progress(t->job, CTW_PHASE_DONE, t->optimizer.step);
        *result = (struct ct_train_result){
            .test_accuracy = report.test_accuracy,
            .param_hash = report.param_hash,
            .seconds = seconds_since(watch.start),
            .samples_per_s = watch.training_s > 0 ? (double)watch.samples / watch.training_s : 0,
        };
    }
    return rc;
}
