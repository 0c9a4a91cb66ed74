/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/gpu_backup.h"

#include "common/alloc.h"
#include "common/clock.h"

/* A copy reads and writes; even small GPUs copy more than 100 bytes in a nanosecond, large ones a
 * thousand. A fiftieth of the time at 500 of them leaves 10 bytes for each nanosecond that passes.
 */
#define BYTES_PER_NS 10

static float *array_of(const struct ct_trainer *t, size_t i)
{
    return i == 0 ? t->params : t->optimizer.state[i - 1];
}

static size_t array_count(const struct ct_trainer *t)
{
    size_t count = 1;
    while (ct_optimizer_state_name(t->optimizer.kind, count - 1) != NULL) {
        count++;
    }
    return count;
}

void ct_gpu_backup_open(struct ct_trainer *t)
{
    struct ct_err err = {0};
    /* Of a pipeline's stages a dead one's would be missing, unless another pipeline has it, too. */
    if (t->dev->kind == CT_DEVICE_CPU || t->keep.copy != NULL || t->pipe != NULL) {
        return;
    }
    void *memory;
    if (t->dev->ops->alloc(t->dev, array_count(t) * t->layout.count * sizeof(float), &memory,
                           &err) == 0) {
        t->keep.copy = memory;
        return;
    }
    int rc = ct_buf_printf(
        &t->warnings, "%s: when a worker dies, training goes on from a checkpoint\n", err.text);
    (void)rc; /* without memory for words there is nobody to tell */
}

void ct_gpu_backup_close(struct ct_trainer *t)
{
    if (t->dev != NULL) {
        t->dev->ops->release(t->dev, t->keep.copy);
    }
    t->keep = (struct ct_keep){0};
}

int ct_gpu_backup_point(struct ct_trainer *t, bool must, struct ct_err *err)
{
    struct ct_keep *k = &t->keep;
    if (k->copy == NULL || k->step == t->optimizer.step) {
        return 0;
    }
    int64_t now = ct_clock_now(NULL);
    if (!must && now < k->next_ns) {
        return 0;
    }
    size_t bytes = t->layout.count * sizeof(float), count = array_count(t);
    int rc = 0;
    k->step = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = t->dev->ops->copy(t->dev, k->copy + i * t->layout.count, array_of(t, i), bytes, err);
    }
    if (rc == 0) {
        k->step = t->optimizer.step;
        k->epoch = t->epoch;
        k->batch = t->batch;
        k->next_ns = now + (int64_t)(count * bytes / BYTES_PER_NS);
    }
    return rc;
}

int ct_gpu_backup_agree(struct ct_trainer *t, struct ct_err *err)
{
    enum { KEPT, RESUMED, EPOCH, BATCH, VALUES };
    _Static_assert(VALUES <= CT_TEAM_VALUES_MAX, "they fit into one exchange");
    t->keep.from = 0;
    if (t->dev->kind == CT_DEVICE_CPU || ctw_job_env(t->job)->generation == 0) {
        return 0;
    }
    const struct ct_keep *k = &t->keep;
    const double mine[VALUES] = {(double)k->step, (double)t->optimizer.step, (double)k->epoch,
                                 (double)k->batch};
    double *all = ct_calloc(VALUES * (size_t)t->team.world, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_team_all_gather(&t->team, mine, VALUES, all, err);
    const double *best = all;
    double resumed = 0;
    for (int r = 0; rc == 0 && r < t->team.world; r++) {
        const double *theirs = all + (size_t)r * VALUES;
        best = theirs[KEPT] > best[KEPT] ? theirs : best;
        resumed = theirs[RESUMED] > resumed ? theirs[RESUMED] : resumed;
    }
    if (rc == 0 && best[KEPT] > 0 && best[KEPT] >= resumed) {
        t->keep.from = 1 + (int)((best - all) / VALUES);
        t->optimizer.step = (int64_t)best[KEPT];
        t->epoch = (int)best[EPOCH];
        t->batch = (size_t)best[BATCH];
        t->at_boundary = t->batch == 0 && t->epoch > 0;
    }
    ct_free(all);
    return rc;
}

int ct_gpu_backup_fill(struct ct_trainer *t, struct ct_err *err)
{
    int root = t->keep.from - 1;
    size_t bytes = t->layout.count * sizeof(float);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_count(t); i++) {
        float *array = array_of(t, i);
        if (t->team.rank == root) {
            rc = t->dev->ops->copy(t->dev, array, t->keep.copy + i * t->layout.count, bytes, err);
        }
        rc = rc == 0 ? ct_team_broadcast_from(&t->team, array, bytes, root, err) : rc;
    }
    return rc;
}
