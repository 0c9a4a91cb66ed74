/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/boundary.h"

#include "common/clock.h"
#include "trainer/checkpoint_dir.h"

#include <stdlib.h>

/* The same on every rank. */
static bool saving(const struct ct_trainer *t)
{
    return t->options.checkpoint != NULL || t->options.checkpoint_dir != NULL;
}

int ct_boundary_open(struct ct_trainer *t, struct ct_err *err)
{
    if (!saving(t) || t->team.rank != 0 || t->options.eval_only) {
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
    return rc == 0 ? ct_saver_open(&options, &t->saver, err) : rc;
}

void ct_boundary_close(struct ct_trainer *t)
{
    ct_saver_free(t->saver);
    t->saver = NULL;
}

void ct_boundary_start(struct ct_trainer *t, const struct ct_train_events *events)
{
    ct_preempt_init(&t->preempt, getenv(CT_PREEMPT_FILE_VARIABLE), events->stop_asked);
    t->saved_ns = ct_clock_now(NULL);
    t->saved_step = t->optimizer.step;
}

/* ---- saving, on rank 0 ----------------------------------------------------------------------- */

static void tell_news(struct ct_trainer *t, const struct ct_train_events *events)
{
    struct ct_err reason = {0};
    if (ct_saver_news(t->saver, &reason) && events->warn != NULL) {
        (void)ct_err_wrap(&reason, "going on without this checkpoint, the one before stays");
        events->warn(events->data, &reason);
    }
}

/* The position is counted in whole epochs where it can be, so that a checkpoint says the same
 * whether it was taken after an epoch's last step or before the next one's first. */
static int save(struct ct_trainer *t, bool wait, struct ct_err *err)
{
    float *snapshot = ct_saver_begin(t->saver, wait);
    t->saved_ns = ct_clock_now(NULL);
    if (snapshot == NULL) {
        return 0;
    }
    int rc = ct_trainer_snapshot(t, snapshot, err);
    if (rc == 0) {
        const struct ct_progress_point point = {
            .step = t->optimizer.step,
            .epoch = t->epoch,
            .seed = t->options.seed,
            .batch = t->batch,
            .batch_size = t->sampler.batch,
        };
        ct_saver_commit(t->saver, &point);
        t->saved_step = t->optimizer.step;
    }
    return rc;
}

static bool due(const struct ct_trainer *t)
{
    const struct ct_interval *every = &t->options.checkpoint_every;
    if (every->steps > 0) {
        return t->optimizer.step % every->steps == 0;
    }
    return every->seconds > 0 && ct_clock_now(NULL) - t->saved_ns >= every->seconds * CT_NS_PER_S;
}

static int stop_here(struct ct_trainer *t, struct ct_err *err)
{
    t->preempted = true;
    int rc = 0;
    if (t->saver != NULL && t->saved_step != t->optimizer.step) {
        rc = save(t, true, err);
    }
    return rc == 0 ? CT_BOUNDARY_E_STOP : rc;
}

/* ---- the boundaries -------------------------------------------------------------------------- */

int ct_boundary_step(struct ct_trainer *t, const struct ct_train_events *events, struct ct_err *err)
{
    if (!saving(t)) {
        return 0;
    }
    bool stop;
    int rc = ct_preempt_agree(&t->preempt, &t->team, &stop, err);
    if (rc == 0 && stop) {
        return stop_here(t, err);
    }
    /* Peers may compute their next gradients meanwhile, but nobody changes the shared model before
     * rank 0 has come to the next step's reduction. */
    if (rc == 0 && t->saver != NULL) {
        tell_news(t, events);
        rc = due(t) ? save(t, false, err) : 0;
    }
    return rc;
}

int ct_boundary_epoch(struct ct_trainer *t, const struct ct_train_events *events,
                      struct ct_err *err)
{
    if (!saving(t)) {
        return 0;
    }
    bool last = t->epoch >= t->options.epochs, stop;
    int rc = ct_preempt_agree(&t->preempt, &t->team, &stop, err);
    if (rc == 0 && t->saver != NULL) {
        tell_news(t, events);
        bool each =
            t->options.checkpoint_every.steps == 0 && t->options.checkpoint_every.seconds == 0;
        if (last || each || due(t)) {
            rc = save(t, last || each, err);
        }
    }
    return rc == 0 && stop && !last ? stop_here(t, err) : rc;
}

int ct_boundary_end(struct ct_trainer *t, struct ct_err *err)
{
    return t->saver != NULL ? ct_saver_wait(t->saver, err) : 0;
}
