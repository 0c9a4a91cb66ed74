/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy is one block of device memory, allocated once for the life of the trainer. When a
 * generation begins, ranks compare the age of their copies. The rank with the newest broadcasts it,
 * unless a checkpoint is newer. Without memory for the copy a warning says that training will
 * continue from a checkpoint.
 */
#include "trainer/session/gpu_backup.h"

#include "common/alloc.h"
#include "common/clock.h"

/* A copy reads and writes. At 500 bytes per nanosecond, which large GPUs exceed, a fiftieth of the
 * time is enough for 10 bytes in each nanosecond that passes. */
#define BYTES_PER_NS 10

void ct_gpu_backup_open(struct ct_trainer *t)
{
    struct ct_err err = {0};
    /* A pipeline could not continue from copies, because those of a dead stage may be missing. */
    if (t->dev->kind == CT_DEVICE_CPU || t->backup.copy != NULL || t->pipe != NULL) {
        return;
    }
    void *memory;
    if (t->dev->ops->alloc(t->dev,
                           ct_trainer_arrays(t->memory.params, &t->optimizer).count *
                               t->layout.count * sizeof(float),
                           &memory, &err) == 0) {
        t->backup.copy = memory;
        return;
    }
    int rc = ct_buf_printf(
        &t->warnings, "%s: when a worker dies, training goes on from a checkpoint\n", err.text);
    (void)rc; /* without memory for the text there is no warning */
}

void ct_gpu_backup_close(struct ct_gpu_backup *backup, struct ct_device *dev)
{
    if (dev != NULL) {
        dev->ops->release(dev, backup->copy);
    }
    *backup = (struct ct_gpu_backup){0};
}

int ct_gpu_backup_point(struct ct_trainer *t, bool must, struct ct_err *err)
{
    struct ct_gpu_backup *k = &t->backup;
    if (k->copy == NULL || k->step == t->optimizer.step) {
        return 0;
    }
    int64_t now = ct_clock_now(NULL);
    if (!must && now < k->next_ns) {
        return 0;
    }
    const struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
    size_t bytes = t->layout.count * sizeof(float);
    k->step = 0;
    for (size_t i = 0; i < arrays.count; i++) {
        int rc = t->dev->ops->copy(t->dev, k->copy + i * t->layout.count, arrays.at[i], bytes, err);
        if (rc != 0) {
            return rc;
        }
    }
    k->step = t->optimizer.step;
    k->epoch = t->at.epoch;
    k->batch = t->at.batch;
    k->next_ns = now + (int64_t)(arrays.count * bytes / BYTES_PER_NS);
    return 0;
}

int ct_gpu_backup_agree(struct ct_trainer *t, struct ct_err *err)
{
    enum { COPIED, RESUMED, EPOCH, BATCH, VALUES };
    _Static_assert(VALUES <= CT_GROUP_VALUES_MAX, "they fit into one exchange");
    t->backup.from = 0;
    if (t->dev->kind == CT_DEVICE_CPU || ctw_job_env(t->job)->generation == 0) {
        return 0;
    }
    const struct ct_gpu_backup *k = &t->backup;
    const double mine[VALUES] = {(double)k->step, (double)t->optimizer.step, (double)k->epoch,
                                 (double)k->batch};
    double *all = ct_calloc(VALUES * (size_t)t->group.world, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_group_all_gather(&t->group, mine, VALUES, all, err);
    const double *best = all;
    double resumed = 0;
    for (int r = 0; rc == 0 && r < t->group.world; r++) {
        const double *theirs = all + (size_t)r * VALUES;
        best = theirs[COPIED] > best[COPIED] ? theirs : best;
        resumed = theirs[RESUMED] > resumed ? theirs[RESUMED] : resumed;
    }
    if (rc == 0 && best[COPIED] > 0 && best[COPIED] >= resumed) {
        t->backup.from = 1 + (int)((best - all) / VALUES);
        t->optimizer.step = (int64_t)best[COPIED];
        t->at.epoch = (int)best[EPOCH];
        t->at.batch = (size_t)best[BATCH];
        t->at.after_report = t->at.batch == 0 && t->at.epoch > 0;
    }
    ct_free(all);
    return rc;
}

int ct_gpu_backup_fill(struct ct_trainer *t, struct ct_err *err)
{
    int root = t->backup.from - 1;
    size_t bytes = t->layout.count * sizeof(float);
    const struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < arrays.count; i++) {
        if (t->group.rank == root) {
            rc = t->dev->ops->copy(t->dev, arrays.at[i], t->backup.copy + i * t->layout.count,
                                   bytes, err);
        }
        if (rc == 0) {
            rc = ct_group_broadcast_from(&t->group, arrays.at[i], bytes, root, err);
        }
    }
    return rc;
}
