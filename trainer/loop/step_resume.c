/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/step_resume.h"

#include <string.h>

static size_t arrays_of(const struct ct_trainer *t, float *arrays[CT_SNAPSHOT_ARRAYS_MAX])
{
    size_t count = 0;
    arrays[count++] = t->params;
    while (ct_optimizer_state_name(t->optimizer.kind, count - 1) != NULL) {
        arrays[count] = t->optimizer.state[count - 1];
        count++;
    }
    return count;
}
_Static_assert(CT_SNAPSHOT_ARRAYS_MAX == 1 + CT_OPTIMIZER_STATES_MAX, "room for all arrays");

static void warn(struct ct_trainer *t, const struct ct_err *err)
{
    int rc = ct_buf_printf(&t->warnings,
                           "%s: after a failure, training goes on from a checkpoint\n", err->text);
    (void)rc; /* without memory for words there is nobody to tell */
}

void ct_step_resume_open(struct ct_trainer *t, const struct ctw_env *env, uint64_t fingerprint)
{
    if (env->snapshot[0] == '\0' || t->options.snapshot == CT_SNAPSHOT_OFF ||
        t->options.eval_only || t->dev->kind != CT_DEVICE_CPU ||
        env->local_world_size != env->world_size) {
        return;
    }
    float *arrays[CT_SNAPSHOT_ARRAYS_MAX];
    const struct ct_snapshot_shape shape = {
        .fingerprint = fingerprint, .floats = t->layout.count, .arrays = arrays_of(t, arrays)};
    struct ct_err err = {0};
    if (ct_step_snapshot_open(&t->snapshot, env->snapshot, &shape, env->rank, env->world_size,
                              env->generation, &err) != 0) {
        warn(t, &err);
        return;
    }
    const struct ct_snapshot_point *found = &t->snapshot.found;
    if (found->step == 0 || found->step < t->optimizer.step) {
        t->snapshot.found = (struct ct_snapshot_point){0};
        return;
    }
    t->optimizer.step = found->step;
    t->epoch = found->epoch;
    t->batch = found->batch;
    if (t->snapshot.told > found->epoch) { /* it was the epoch's last step */
        t->epoch++;
        t->batch = 0;
        t->at_boundary = true;
    }
}

bool ct_step_resume_fill(struct ct_trainer *t)
{
    float *arrays[CT_SNAPSHOT_ARRAYS_MAX];
    bool found = t->snapshot.found.step > 0;
    if (found) {
        (void)arrays_of(t, arrays);
        ct_step_snapshot_load(&t->snapshot, arrays);
    }
    struct ct_err err = {0};
    if (ct_step_snapshot_prepare(&t->snapshot, &err) != 0) {
        warn(t, &err);
    }
    return found;
}

void ct_step_resume_start(struct ct_trainer *t)
{
    struct ct_err err = {0};
    if (ct_step_snapshot_map(&t->snapshot, &err) != 0) {
        warn(t, &err);
    }
}

size_t ct_step_resume_epoch(struct ct_trainer *t)
{
    t->first = t->batch;
    t->counted = 0;
    const struct ct_snapshot_point *found = &t->snapshot.found;
    if (found->step == 0 || found->step != t->optimizer.step || t->batch == 0) {
        return 0;
    }
    if (t->team.rank == 0) {
        t->totals[0] += found->loss;
        t->totals[1] += found->hits;
    }
    t->counted = found->samples;
    return t->counted;
}

void ct_step_resume_step(struct ct_trainer *t, size_t begin, size_t end)
{
    if (t->snapshot.map == NULL) {
        return;
    }
    float *arrays[CT_SNAPSHOT_ARRAYS_MAX];
    (void)arrays_of(t, arrays);
    const struct ct_snapshot_point point = {
        .step = t->optimizer.step + 1,
        .epoch = t->epoch,
        .batch = (uint32_t)t->batch + 1,
        .samples = t->counted + ct_sampler_first(&t->sampler, t->batch + 1) -
                   ct_sampler_first(&t->sampler, t->first),
        .loss = t->totals[0],
        .hits = t->totals[1],
    };
    ct_step_snapshot_write(&t->snapshot, &point, arrays, begin, end);
}

void ct_step_resume_told(struct ct_trainer *t)
{
    ct_step_snapshot_tell(&t->snapshot, t->epoch);
}

void ct_step_resume_close(struct ct_trainer *t)
{
    ct_step_snapshot_fini(&t->snapshot);
}
