/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots of each step. Without a file in memory every function does nothing. A failure here
 * never fails the training: it becomes a line of trainer->warnings, and a later failure of a worker
 * then goes back to a checkpoint.
 */
#include "trainer/session/step_resume.h"

_Static_assert(CT_SNAPSHOT_ARRAYS_MAX == 1 + CT_OPTIMIZER_STATES_MAX, "room for all arrays");

static void warn(struct ct_buf *warnings, const struct ct_err *err)
{
    int rc = ct_buf_printf(warnings, "%s: after a failure, training goes on from a checkpoint\n",
                           err->text);
    (void)rc; /* without memory for the text there is no warning */
}

void ct_step_resume_open(struct ct_trainer *t, const struct ctw_env *env, uint64_t fingerprint)
{
    if (env->snapshot[0] == '\0' || t->options.snapshot == CT_SNAPSHOT_OFF ||
        t->options.eval_only || t->dev->kind != CT_DEVICE_CPU ||
        env->local_world_size != env->world_size) {
        return;
    }
    const struct ct_snapshot_shape shape = {
        .fingerprint = fingerprint,
        .floats = t->layout.count,
        .arrays = ct_trainer_arrays(t->memory.params, &t->optimizer).count};
    struct ct_err err = {0};
    if (ct_step_snapshot_open(&t->step_snapshot, env->snapshot, &shape, env->rank, env->world_size,
                              env->generation, &err) != 0) {
        warn(&t->warnings, &err);
        return;
    }
    const struct ct_snapshot_point *found = &t->step_snapshot.found;
    if (found->step == 0 || found->step < t->optimizer.step) {
        t->step_snapshot.found = (struct ct_snapshot_point){0};
        return;
    }
    t->optimizer.step = found->step;
    t->at.epoch = found->epoch;
    t->at.batch = found->batch;
    if (t->step_snapshot.told > found->epoch) { /* the snapshot was of the epoch's last step */
        t->at.epoch++;
        t->at.batch = 0;
        t->at.after_report = true;
    }
}

bool ct_step_resume_fill(struct ct_trainer *t)
{
    bool found = t->step_snapshot.found.step > 0;
    if (found) {
        const struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
        ct_step_snapshot_load(&t->step_snapshot, arrays.at);
    }
    struct ct_err err = {0};
    if (ct_step_snapshot_prepare(&t->step_snapshot, &err) != 0) {
        warn(&t->warnings, &err);
    }
    return found;
}

void ct_step_resume_start(struct ct_step_snapshot *snapshot, struct ct_buf *warnings)
{
    struct ct_err err = {0};
    if (ct_step_snapshot_map(snapshot, &err) != 0) {
        warn(warnings, &err);
    }
}

size_t ct_step_resume_epoch(struct ct_trainer *t)
{
    const struct ct_snapshot_point *found = &t->step_snapshot.found;
    if (found->step == 0 || found->step != t->optimizer.step || t->at.batch == 0) {
        return 0;
    }
    if (t->group.rank == 0) {
        t->memory.totals[0] += found->loss;
        t->memory.totals[1] += found->hits;
    }
    return found->samples;
}

void ct_step_resume_step(struct ct_trainer *t, size_t begin, size_t end)
{
    if (t->step_snapshot.map == NULL) {
        return;
    }
    const struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
    const struct ct_snapshot_point point = {
        .step = t->optimizer.step + 1,
        .epoch = t->at.epoch,
        .batch = (uint32_t)t->at.batch + 1,
        .samples = t->in_epoch.earlier_samples + ct_sampler_first(&t->sampler, t->at.batch + 1) -
                   ct_sampler_first(&t->sampler, t->in_epoch.first_batch),
        .loss = t->memory.totals[0],
        .hits = t->memory.totals[1],
    };
    ct_step_snapshot_write(&t->step_snapshot, &point, arrays.at, begin, end);
}
