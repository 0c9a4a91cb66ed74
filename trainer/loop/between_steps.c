/* SPDX-License-Identifier: Apache-2.0
 *
 * What happens between steps. Ranks exchange what they know about 20 times a second, or when a line
 * of metrics is due. Rank 0 saves; if the model is scattered, all ranks help. A checkpoint that
 * cannot be written is a warning, except the last one, whose failure is the run's.
 * ct_between_steps_close() waits for the write under way.
 */
#include "trainer/loop/between_steps.h"

#include "common/clock.h"
#include "common/handover.h"
#include "trainer/recovery/checkpoint_dir.h"
#include "trainer/session/gpu_backup.h"

#include <stdlib.h>

/* Are checkpoints asked for? The same on every rank. */
static bool saves(const struct ct_train_options *options)
{
    return options->checkpoint != NULL || options->checkpoint_dir != NULL;
}

int ct_between_steps_open(struct ct_trainer *t, struct ct_err *err)
{
    if (!saves(&t->options) || t->group.rank != 0 || t->options.eval_only) {
        return 0;
    }
    int rc = 0;
    if (t->options.checkpoint_dir != NULL) {
        rc = ct_checkpoint_dir_start(t->options.checkpoint_dir, t->optimizer.step,
                                     ct_train_resumes_itself(&t->options), err);
    }
    const struct ct_saver_options options = {
        .file = t->options.checkpoint,
        .dir = t->options.checkpoint_dir,
        .keep = t->options.keep_checkpoints,
        .layout = &t->layout,
        .optimizer = t->optimizer.kind,
    };
    return rc == 0 ? ct_saver_open(&options, &t->saving.saver, err) : rc;
}

void ct_between_steps_close(struct ct_saving *saving)
{
    ct_saver_free(saving->saver);
    saving->saver = NULL;
}

void ct_between_steps_start(struct ct_trainer *t, const struct ct_train_events *events)
{
    /* Without checkpoints a stop would lose everything, so notices are ignored. */
    bool stoppable = saves(&t->options) && !t->options.eval_only;
    ct_preempt_init(&t->preempt, stoppable ? getenv(CT_PREEMPT_ENV) : NULL,
                    stoppable ? events->stop_asked : NULL);
    t->saving.last_ns = ct_clock_now(NULL);
    t->saving.last_step = t->optimizer.step;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Passes on the saver's news. `saver` is NULL if this rank writes no checkpoints. */
static void tell_news(struct ct_saver *saver, const struct ct_train_events *events)
{
    struct ct_err reason = {0};
    if (saver != NULL && ct_saver_news(saver, &reason) && events->warn != NULL) {
        (void)ct_err_wrap(
            &reason, "going on without this checkpoint; an earlier one, if there is any, stays");
        events->warn(events->data, &reason);
    }
}

/* Called on rank 0, and on all ranks if the model is scattered. The position after an epoch's last
 * step is written as that before the next epoch's first, so that it has only one form. */
static int save(struct ct_trainer *t, bool wait, struct ct_err *err)
{
    float *copy = t->saving.saver != NULL ? ct_saver_begin(t->saving.saver, wait) : NULL;
    t->saving.last_ns = ct_clock_now(NULL);
    if (copy == NULL && !t->memory.scattered) {
        return 0;
    }
    int rc = ct_trainer_copy_state(t, copy, err);
    if (rc == 0 && copy != NULL) {
        const struct ct_progress_point point = {
            .step = t->optimizer.step,
            .epoch = t->at.epoch,
            .seed = t->options.seed,
            .batch = t->at.batch,
            .batch_size = t->sampler.batch,
        };
        ct_saver_commit(t->saving.saver, &point);
        t->saving.last_step = t->optimizer.step;
    }
    return rc;
}

/* Is it time to save? Decided by rank 0's clock; the next exchange tells the others. */
static bool late(const struct ct_saving *saving, const struct ct_interval *every)
{
    return saving->saver != NULL && every->seconds > 0 &&
           ct_clock_now(NULL) - saving->last_ns >= every->seconds * CT_NS_PER_S;
}

/* Is a checkpoint due? The same on every rank. `wants` is the exchange's result, 0 without one. */
static bool due(const struct ct_interval *every, int64_t step, unsigned wants)
{
    return (wants & CT_PREEMPT_SAVE) != 0 || (every->steps > 0 && step % every->steps == 0);
}

static int stop_here(struct ct_trainer *t, struct ct_err *err)
{
    t->preempted = true;
    /* Only rank 0 knows which step it has saved. */
    bool saved = t->saving.saver != NULL && t->saving.last_step == t->optimizer.step;
    int rc = !saved || t->memory.scattered ? save(t, true, err) : 0;
    return rc == 0 ? CT_BETWEEN_STEPS_E_STOP : rc;
}

/* ---- reports and the exchange ---------------------------------------------------------------- */

/* Reports progress on rank 0. `sums` are the loss and the hits of all ranks in this epoch. */
static void report(struct ct_trainer *t, const struct ct_train_events *events, const double *sums,
                   bool line)
{
    size_t batches = ct_sampler_batches(&t->sampler);
    size_t trained = ct_sampler_first(&t->sampler, t->at.batch) -
                     ct_sampler_first(&t->sampler, t->in_epoch.first_batch);
    const struct ct_rates_point now = {
        .ns = ct_clock_now(NULL),
        .comm_ns = t->comm_ns,
        .loss = sums[0],
        .hits = sums[1],
        .samples = t->in_epoch.earlier_samples + trained,
        .trained = trained,
    };
    struct ct_step_report r = {
        .epoch = t->at.epoch + 1,
        .epochs = t->options.epochs,
        .batch = t->at.batch,
        .batches = batches,
        .step = t->optimizer.step,
        .lr = (double)t->optimizer.lr,
    };
    ct_rates_means(&t->in_epoch.rates.start, &now, &r);
    double steps = (double)(batches - t->at.batch) +
                   (double)batches * (double)(t->options.epochs - t->at.epoch - 1);
    double per_step = (double)(now.ns - t->in_epoch.rates.start.ns) /
                      (double)(t->at.batch - t->in_epoch.first_batch);
    r.eta_s = steps * per_step / (double)CT_NS_PER_S;
    ctw_progress_metrics(t->job, r.loss, r.samples_per_s);
    if (events->tick != NULL) {
        events->tick(events->data, &r);
    }
    if (line && events->step != NULL) {
        ct_rates_means(&t->in_epoch.rates.line, &now, &r);
        events->step(events->data, &r);
        t->in_epoch.rates.line = now;
    }
}

/* Collective, called once per step. *wants is as in ct_preempt_agree(). */
static int exchange(struct ct_trainer *t, const struct ct_train_events *events, unsigned *wants,
                    struct ct_err *err)
{
    double sums[CT_PREEMPT_SUMS] = {0};
    int every = t->options.metrics_every;
    bool line = every > 0 && t->optimizer.step % every == 0;
    bool exchange_due = ct_preempt_due(&t->preempt);
    *wants = 0;
    if (!exchange_due && !line) {
        return 0;
    }
    *wants = late(&t->saving, &t->options.checkpoint_every) ? CT_PREEMPT_SAVE : 0;
    bool within = t->at.batch > 0; /* otherwise an epoch is over, and its report says more */
    int rc = within ? ct_group_download(&t->group, sums, t->memory.totals, sizeof sums, err) : 0;
    if (rc == 0) {
        rc = ct_preempt_agree(&t->preempt, &t->group, sums, wants, err);
    }
    if (rc == 0 && within && t->group.rank == 0) {
        report(t, events, sums, line);
    }
    return rc == 0 && within ? ct_gpu_backup_point(t, false, err)
                             : rc; /* the exchange has waited for the device */
}

/* ---- after a step and after an epoch --------------------------------------------------------- */

/* Returns how many steps are left until `every` divides the number of steps. */
static int64_t until(int64_t step, int64_t every)
{
    return every > 0 ? every - step % every : INT64_MAX;
}

size_t ct_between_steps_free(const struct ct_trainer *t)
{
    int64_t steps = t->preempt.next - t->preempt.steps;
    int64_t line = until(t->optimizer.step, t->options.metrics_every);
    int64_t checkpoint = until(t->optimizer.step, t->options.checkpoint_every.steps);
    steps = line < steps ? line : steps;
    steps = checkpoint < steps ? checkpoint : steps;
    return steps > 1 ? (size_t)steps : 1;
}

int ct_between_steps_step(struct ct_trainer *t, const struct ct_train_events *events, size_t steps,
                          struct ct_err *err)
{
    unsigned wants;
    t->preempt.steps += (int64_t)steps - 1; /* the last one is counted by ct_preempt_due() */
    int rc = exchange(t, events, &wants, err);
    if (rc == 0 && (wants & CT_PREEMPT_STOP) != 0) {
        return stop_here(t, err);
    }
    /* Peers may already compute their next gradients, but no rank changes the shared model before
     * rank 0 reaches the next step's reduction. */
    if (rc == 0) {
        tell_news(t->saving.saver, events);
    }
    bool save_now = rc == 0 && due(&t->options.checkpoint_every, t->optimizer.step, wants);
    return save_now ? save(t, false, err) : rc;
}

int ct_between_steps_epoch(struct ct_trainer *t, const struct ct_train_events *events,
                           struct ct_err *err)
{
    const struct ct_interval *every = &t->options.checkpoint_every;
    bool last = t->at.epoch >= t->options.epochs;
    bool waits = last || (every->steps == 0 && every->seconds == 0);
    unsigned wants = 0;
    /* The model has been evaluated and the report is out. The copy keeps it from being repeated. */
    int rc = ct_gpu_backup_point(t, true, err);
    if (rc == 0) {
        rc = exchange(t, events, &wants, err);
    }
    if (rc == 0) {
        tell_news(t->saving.saver, events);
    }
    if (rc == 0 && saves(&t->options) && (waits || due(every, t->optimizer.step, wants))) {
        rc = save(t, waits, err);
    }
    return rc == 0 && (wants & CT_PREEMPT_STOP) != 0 && !last ? stop_here(t, err) : rc;
}

int ct_between_steps_end(struct ct_saving *saving, struct ct_err *err)
{
    return saving->saver != NULL ? ct_saver_wait(saving->saver, err) : 0;
}
