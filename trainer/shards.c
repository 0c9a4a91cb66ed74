/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/shards.h"

int ct_shards_check(size_t count, int world, struct ct_err *err)
{
    size_t n = (size_t)world;
    if (count == 0 || (n <= count && count % n == 0)) {
        return 0;
    }
    return ct_err_set(err, CT_EINVAL,
                      "--consistent: %d workers cannot share %zu shards evenly: let their number "
                      "divide %zu, or choose with --consistent=SHARDS",
                      world, count, count);
}

int ct_shards_init(struct ct_shards *shards, size_t count, int rank, int world,
                   struct ct_device *dev, size_t floats, struct ct_err *err)
{
    struct ct_shards made = {.count = count, .mine = count / (size_t)world};
    made.first = made.mine * (size_t)rank;
    int rc = 0;
    size_t level = 0;
    for (size_t n = made.mine; rc == 0 && n > 1; n /= 2) {
        void *memory = NULL;
        rc = dev->ops->alloc(dev, floats * sizeof(float), &memory, err);
        made.partial[level++] = memory;
    }
    if (rc != 0) {
        ct_shards_fini(&made, dev);
        return rc;
    }
    *shards = made;
    return 0;
}

void ct_shards_fini(struct ct_shards *shards, struct ct_device *dev)
{
    for (size_t i = 0; i < CT_SHARD_LEVELS_MAX; i++) {
        dev->ops->release(dev, shards->partial[i]);
    }
    *shards = (struct ct_shards){0};
}

size_t ct_shards_rows(const struct ct_shards *shards, size_t total)
{
    return (total - 1) / shards->count + 1;
}

struct pass {
    const struct ct_shards *shards;
    struct ct_model *model;
    const float *params;
    const struct ct_resident *data;
    const uint32_t *index;
    size_t total;
    double *totals;
};

static int run_shard(const struct pass *p, size_t shard, float *grads, struct ct_err *err)
{
    size_t rows = ct_shards_rows(p->shards, p->total);
    size_t begin = shard * rows;
    if (begin >= p->total) {
        const struct ct_device_ops *ops = p->model->dev->ops;
        return ops->clear(p->model->dev, grads, p->model->layout->count * sizeof(float), err);
    }
    rows = p->total - begin < rows ? p->total - begin : rows;
    return ct_model_run(p->model, p->params, p->data, p->index + begin, rows,
                        1.0f / (float)p->total, grads, p->totals, err);
}

static void add(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

/* Sum of `n` shards from `first` on; `level` of the scratch memory is free for it. */
static int run_tree(const struct pass *p, size_t first, size_t n, size_t level, float *grads,
                    struct ct_err *err)
{
    if (n == 1) {
        return run_shard(p, first, grads, err);
    }
    float *right = p->shards->partial[level];
    int rc = run_tree(p, first, n / 2, level + 1, grads, err);
    if (rc == 0) {
        rc = run_tree(p, first + n / 2, n / 2, level + 1, right, err);
    }
    if (rc == 0) {
        add(grads, right, p->model->layout->count);
    }
    return rc;
}

int ct_shards_run(const struct ct_shards *shards, struct ct_model *model, const float *params,
                  const struct ct_resident *data, const uint32_t *index, size_t total, float *grads,
                  double *totals, struct ct_err *err)
{
    const struct pass pass = {shards, model, params, data, index, total, totals};
    return run_tree(&pass, shards->first, shards->mine, 0, grads, err);
}
