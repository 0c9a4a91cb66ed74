/* SPDX-License-Identifier: Apache-2.0
 *
 * The run: epochs of steps, each followed by evaluation, the report and what between_steps.h does.
 * The first failure ends the run with its code. CT_BETWEEN_STEPS_E_STOP ends it, too, with
 * everything saved. The caller frees the trainer.
 */
#include "trainer/loop/train.h"

#include "common/clock.h"
#include "trainer/loop/between_steps.h"
#include "trainer/loop/cuda_graph.h"
#include "trainer/loop/param_hash.h"
#include "trainer/loop/predict.h"
#include "trainer/session/gpu_backup.h"
#include "trainer/session/step_resume.h"

#include <math.h>

struct stopwatch {
    int64_t start;
    double training_s; /* without evaluation and checkpoints */
    int64_t samples;
};

static double seconds_since(int64_t start)
{
    return (double)(ct_clock_now(NULL) - start) / (double)CT_NS_PER_S;
}

/* Runs the rest of the epoch. Returns CT_BETWEEN_STEPS_E_STOP if it stopped before the end. */
static int run_steps(struct ct_trainer *t, const struct ct_train_events *events, struct ct_err *err)
{
    size_t batches = ct_sampler_batches(&t->sampler);
    t->queued.rows = 0; /* an evaluation may have run since the last step */
    ct_rates_start(&t->in_epoch.rates, ct_clock_now(NULL), t->comm_ns);
    while (t->at.batch < batches) {
        size_t done;
        if (ctw_job_ended(t->job)) { /* a rank without peers learns it in no collective */
            return ct_err_set(err, CT_EPEER, "the launcher has ended this generation");
        }
        ctw_progress(t->job, CTW_PHASE_COMPUTE, t->optimizer.step);
        int rc = ct_cuda_graph_run(t, ct_between_steps_free(t), &done, err);
        if (rc != 0) {
            return rc;
        }
        bool waited = done > 0 && t->graph.lead == 0;
        if (done == 0) {
            rc = ct_trainer_step(t, t->at.batch, err);
            if (rc != 0) {
                return rc;
            }
            done = 1;
        }
        t->at.batch += done;
        if (t->at.batch >= batches) {
            break;
        }
        if (waited) {
            rc = ct_gpu_backup_point(t, false, err);
            if (rc != 0) {
                return rc;
            }
        }
        rc = ct_between_steps_step(t, events, done, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Evaluates and hashes the model. */
static int judge(struct ct_trainer *t, struct ct_epoch_report *report, struct ct_err *err)
{
    int rc = ct_trainer_evaluate(t, &report->test_loss, &report->test_accuracy, err);
    if (rc != 0) {
        return rc;
    }
    return ct_trainer_hash(t, &report->param_hash, err);
}

static int run_epoch(struct ct_trainer *t, const struct ct_train_events *events,
                     struct stopwatch *watch, struct ct_epoch_report *report, struct ct_err *err)
{
    double totals[2];
    size_t samples = t->sampler.count - ct_sampler_first(&t->sampler, t->at.batch);
    size_t steps = ct_sampler_batches(&t->sampler) - t->at.batch;
    int64_t start = ct_clock_now(NULL);
    ct_sampler_shuffle(&t->sampler, (unsigned)t->at.epoch);
    t->augment.epoch = (unsigned)t->at.epoch;
    int rc = t->dev->ops->clear(t->dev, t->memory.totals, sizeof totals, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_cuda_graph_epoch(t, err);
    if (rc != 0) {
        return rc;
    }
    t->in_epoch.first_batch = t->at.batch;
    t->in_epoch.earlier_samples = ct_step_resume_epoch(t);
    rc = run_steps(t, events, err);
    if (rc != 0) {
        return rc;
    }
    if (t->at.epoch + 1 < t->options.epochs) {
        rc = ct_cuda_graph_prepare(t, err); /* while the device computes the last steps */
        if (rc != 0) {
            return rc;
        }
    }
    rc = ct_group_sync(&t->group, err);
    if (rc != 0) {
        return rc;
    }
    double seconds = seconds_since(start);
    rc = t->dev->ops->download(t->dev, totals, t->memory.totals, sizeof totals, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_group_sum(&t->group, totals, 2, err);
    if (rc != 0) {
        return rc;
    }
    watch->training_s += seconds;
    watch->samples += (int64_t)samples;
    t->at.epoch++;
    t->at.batch = 0;
    *report = (struct ct_epoch_report){
        .epoch = t->at.epoch,
        .epochs = t->options.epochs,
        .world_size = t->group.world,
        .step = t->optimizer.step,
        .loss = totals[0] / (double)(samples + t->in_epoch.earlier_samples),
        .samples_per_s = (double)samples / seconds,
        .us_per_step = steps > 0 ? 1e6 * seconds / (double)steps : 0,
    };
    ctw_progress_metrics(t->job, report->loss, report->samples_per_s);
    /* Every rank has the same sums, so all stop here, before a checkpoint is replaced. */
    if (!isfinite(report->loss)) {
        return ct_err_set(err, CT_ELIMIT,
                          "the loss of epoch %d is not a number any more: training diverged, try a "
                          "smaller --lr than %g",
                          t->at.epoch, t->options.lr);
    }
    return judge(t, report, err);
}

/* The step after the last epoch. */
static int64_t steps_in_all(const struct ct_trainer *t, int last_epoch)
{
    int64_t left = (int64_t)ct_sampler_batches(&t->sampler) * (last_epoch - t->at.epoch);
    return left > 0 ? t->optimizer.step + left - (int64_t)t->at.batch : t->optimizer.step;
}

int ct_trainer_run(struct ct_trainer *t, const struct ct_train_events *events,
                   struct ct_train_result *result, struct ct_err *err)
{
    struct stopwatch watch = {.start = ct_clock_now(NULL)};
    struct ct_epoch_report report = {0};
    int rc = 0;
    int last = t->options.eval_only ? t->at.epoch : t->options.epochs;
    if (t->at.epoch >= last) {
        rc = judge(t, &report, err);
    }
    ctw_progress_total(t->job, steps_in_all(t, last));
    ct_between_steps_start(t, events);
    if (rc == 0 && t->at.after_report) {
        rc = ct_between_steps_epoch(t, events, err);
    }
    while (rc == 0 && t->at.epoch < last) {
        rc = run_epoch(t, events, &watch, &report, err);
        if (rc == 0 && t->group.rank == 0 && events->epoch != NULL) {
            events->epoch(events->data, &report);
            /* At once: other ranks may already be dead, and the report must not be repeated. */
            ct_step_snapshot_tell(&t->step_snapshot, t->at.epoch);
        }
        if (rc == 0) {
            rc = ct_between_steps_epoch(t, events, err);
        }
    }
    if (rc == 0 || rc == CT_BETWEEN_STEPS_E_STOP) {
        rc = ct_between_steps_end(&t->saving, err);
    }
    if (rc == 0 && t->options.predict != NULL && t->group.rank == 0 && !t->preempted) {
        rc = ct_predict(t, t->options.predict, err);
    }
    if (rc == 0) {
        ctw_progress(t->job, CTW_PHASE_DONE, t->optimizer.step);
        *result = (struct ct_train_result){
            .test_accuracy = report.test_accuracy,
            .param_hash = report.param_hash,
            .seconds = seconds_since(watch.start),
            .samples_per_s = watch.training_s > 0 ? (double)watch.samples / watch.training_s : 0,
            .preempted = t->preempted,
            .step = t->optimizer.step,
        };
        if (t->saving.saver != NULL) {
            result->checkpoints = ct_saver_count(t->saving.saver);
        }
    }
    return rc;
}
