/* SPDX-License-Identifier: Apache-2.0
 *
 * One training step, the hot path. Nothing here allocates. Failures are those of the device and of
 * collectives; a peer's death is CT_EPEER.
 */
#include "trainer/loop/train.h"
#include "trainer/session/gpu_backup.h"
#include "trainer/session/step_resume.h"

#include "common/clock.h"

double ct_trainer_rate_of(const struct ct_trainer *t, int epoch, size_t batch)
{
    const struct ct_train_options *o = &t->options;
    double step = 1.0 / (double)ct_sampler_batches(&t->sampler);
    const struct ct_rate rate = {
        .schedule = o->schedule,
        .full = ct_lr_schedule_scaled(o->scale_lr, o->lr, o->batch_size, o->base_batch),
        .warmup = o->warmup_epochs,
        .epochs = o->epochs,
    };
    return ct_lr_schedule_rate(&rate, (double)epoch + (double)batch * step, step);
}

double ct_trainer_rate(const struct ct_trainer *t, size_t batch)
{
    return ct_trainer_rate_of(t, t->at.epoch, batch);
}

static int update(struct ct_trainer *t, struct ct_err *err)
{
    size_t begin = 0, end = t->layout.count;
    int64_t start = ct_clock_now(NULL);
    int rc = t->buckets.count > 0 ? ct_buckets_finish(&t->buckets, err)
                                  : ct_group_reduce_scatter(&t->group, t->memory.grads,
                                                            t->layout.count, &begin, &end, err);
    t->comm_ns += ct_clock_now(NULL) - start;
    if (rc == 0 && t->buckets.optimizer == NULL) {
        rc = ct_optimizer_apply(&t->optimizer, t->dev, t->memory.params, t->memory.grads, begin,
                                end, err);
    }
    if (rc == 0) {
        ct_step_resume_step(t, begin, end);
    }
    return rc;
}

/* A stage's arrays are a part of the model's. */
static int update_stage(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_pipeline *pipe = t->pipe;
    struct ct_optimizer part = t->optimizer;
    size_t begin, end;
    for (size_t i = 0; ct_optimizer_state_name(part.kind, i) != NULL; i++) {
        part.state[i] += pipe->base;
    }
    if (part.narrow != NULL) {
        part.narrow += pipe->base;
    }
    int64_t start = ct_clock_now(NULL);
    int rc = ct_pipeline_reduce(pipe, &begin, &end, err);
    t->comm_ns += ct_clock_now(NULL) - start;
    if (rc == 0) {
        rc = ct_optimizer_apply(&part, t->dev, t->memory.params + pipe->base, pipe->grads, begin,
                                end, err);
    }
    if (rc == 0) {
        ct_step_resume_step(t, pipe->base + begin, pipe->base + end);
    }
    return rc;
}

int ct_trainer_queue(struct ct_trainer *t, const uint32_t *index, size_t rows, size_t global_rows,
                     struct ct_err *err)
{
    int rc;
    t->buckets.sent = 0; /* an earlier step that could not be recorded may have stopped anywhere */
    if (t->pipe != NULL) {
        rc = ct_pipeline_run(t->pipe, t->memory.params, &t->data.train, index, rows,
                             1.0f / (float)global_rows, t->memory.totals, err);
    } else if (t->shards.count > 0) {
        rc = ct_shards_run(&t->shards, &t->model, t->memory.params, &t->data.train, index,
                           global_rows, t->memory.grads, t->memory.totals, err);
    } else if (rows > 0) {
        /* The loss is divided by the global batch size, so that the sum over ranks is the gradient,
         * however the batch was divided. */
        rc = ct_model_run(&t->model, t->memory.params, &t->data.train, index, rows,
                          1.0f / (float)global_rows, t->memory.grads, t->memory.totals, err);
    } else {
        /* A short last batch can leave a rank without samples, which then adds zero. */
        rc = t->dev->ops->clear(t->dev, t->memory.grads, t->layout.count * sizeof(float), err);
    }
    if (rc == 0 && t->pipe != NULL) {
        rc = update_stage(t, err);
    } else if (rc == 0) {
        rc = update(t, err);
    }
    return rc;
}

/* The device has CT_DEVICE_BATCHES_AHEAD buffers for indices, which it uses in turn. To enlarge one
 * it frees the old one, which waits for the device. Until so many of the largest batches have come
 * in a row, one of the buffers may still be too small. */
static bool may_grow(struct ct_queued *queued, size_t rows)
{
    bool in_a_row = rows == queued->most_rows && queued->rows != 0;
    if (rows > queued->most_rows) {
        queued->most_rows = rows;
        queued->growing = CT_DEVICE_BATCHES_AHEAD;
    } else if (queued->growing > 0 && !in_a_row) {
        queued->growing = CT_DEVICE_BATCHES_AHEAD;
    }
    bool grows = queued->growing > 0;
    queued->growing -= grows && rows == queued->most_rows;
    return grows;
}

int ct_trainer_await_queue(struct ct_trainer *t, size_t rows, struct ct_err *err)
{
    /* Pipelines have their own waits. */
    if (t->group.comm == NULL || t->dev->kind == CT_DEVICE_CPU || t->pipe != NULL) {
        return 0;
    }
    bool grows = may_grow(&t->queued, rows);
    /* The host waits anyway when a new shape is timed, or for the copy of augmented images. */
    bool goes_on = rows == t->queued.rows && !grows && t->data.train.augment == NULL;
    if (goes_on && ++t->queued.steps < CT_DEVICE_BATCHES_AHEAD) {
        return 0;
    }
    t->queued.rows = rows;
    t->queued.steps = 0;
    return ct_group_sync(&t->group, err);
}

int ct_trainer_step(struct ct_trainer *t, size_t batch, struct ct_err *err)
{
    size_t rows, global_rows;
    const uint32_t *index = ct_sampler_batch(&t->sampler, batch, &rows, &global_rows);
    t->optimizer.lr = (float)ct_trainer_rate(t, batch);
    int rc = ct_trainer_await_queue(t, rows, err);
    if (rc == 0 && t->queued.steps == 0) {
        rc = ct_gpu_backup_point(t, false, err);
    }
    if (rc == 0) {
        rc = ct_trainer_queue(t, index, rows, global_rows, err);
    }
    if (rc == 0) {
        int64_t start = ct_clock_now(NULL);
        rc = ct_group_barrier(&t->group, err);
        t->comm_ns += ct_clock_now(NULL) - start;
    }
    if (rc == 0) {
        t->optimizer.step++;
    }
    return rc;
}
