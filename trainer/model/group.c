/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a training. Without a communicator (one rank) each function does only what remains
 * on one device. Failures of collectives are returned unchanged: the death of a peer is CT_EPEER.
 * ct_group_close() frees the memory.
 */
#include "trainer/model/group.h"

#include "common/alloc.h"

#include <stdint.h>
#include <string.h>

/* A double is sent as four numbers of 16 bits, which floats hold exactly. */
#define PIECES (sizeof(double) / sizeof(uint16_t))
#define ROW (CT_GROUP_VALUES_MAX * PIECES)

static int take_device_block(struct ct_group *group, size_t count, float **out, struct ct_err *err)
{
    CT_ASSERT(group->block_count < CT_GROUP_BLOCKS_MAX);
    void *memory;
    int rc = group->dev->ops->alloc(group->dev, count * sizeof(float), &memory, err);
    if (rc != 0) {
        return rc;
    }
    group->block[group->block_count++] = memory;
    *out = memory;
    return 0;
}

static int take_comm_block(struct ct_group *group, enum ctw_memory kind, size_t count, float **out,
                           struct ct_err *err)
{
    void *memory;
    int rc = ctw_comm_alloc(group->comm, kind, count * sizeof(float), &memory, err);
    if (rc != 0) {
        return rc;
    }
    *out = memory;
    return 0;
}

static int tree_sum(void *data, size_t n, size_t count, size_t step, const float *from, float *to,
                    struct ct_err *err)
{
    struct ct_device *dev = data;
    const struct ct_tree_sum op = {.n = n, .count = count, .step = step, .from = from, .to = to};
    return dev->ops->tree_sum(dev, &op, err);
}

int ct_group_open(struct ctw_job *job, struct ct_device *dev, enum ctw_order order,
                  struct ct_group *out, struct ct_err *err)
{
    const struct ctw_env *env = ctw_job_env(job);
    struct ct_group group = {
        .dev = dev,
        .rank = env->rank,
        .world = env->world_size,
        .shares_model = dev->kind == CT_DEVICE_CPU,
    };
    int rc = 0;
    if (group.shares_model || group.world > 1) {
        const struct ctw_comm_options options = {
            .backend = group.shares_model ? CTW_BACKEND_HOST : CTW_BACKEND_NCCL,
            .device = dev->index,
            .stream = dev->side,
            .order = order,
            .tree_sum = dev->ops->tree_sum != NULL ? tree_sum : NULL,
            .tree_sum_data = dev,
        };
        rc = ctw_comm_open(job, &options, &group.comm, err);
        if (rc != 0) {
            goto fail;
        }
    }
    rc = ct_group_alloc_gradients(&group, ROW * (size_t)group.world, &group.exchange, err);
    if (rc != 0) {
        goto fail;
    }
    group.words = ct_calloc(ROW * (size_t)group.world, sizeof *group.words);
    if (group.words == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
        goto fail;
    }
    *out = group;
    return 0;
fail:
    ct_group_close(&group);
    return rc;
}

void ct_group_close(struct ct_group *group)
{
    if (group == NULL) {
        return;
    }
    for (size_t i = 0; i < group->block_count; i++) {
        group->dev->ops->release(group->dev, group->block[i]);
    }
    ct_free(group->words);
    ctw_comm_free(group->comm);
    *group = (struct ct_group){0};
}

int ct_group_alloc_gradients(struct ct_group *group, size_t count, float **out, struct ct_err *err)
{
    return group->comm != NULL ? take_comm_block(group, CTW_MEMORY_OWN, count, out, err)
                               : take_device_block(group, count, out, err);
}

int ct_group_alloc_model(struct ct_group *group, size_t count, float **out, struct ct_err *err)
{
    return group->shares_model ? take_comm_block(group, CTW_MEMORY_SHARED, count, out, err)
                               : take_device_block(group, count, out, err);
}

int ct_group_reduce_scatter(struct ct_group *group, float *gradients, size_t count, size_t *begin,
                            size_t *end, struct ct_err *err)
{
    if (group->comm == NULL) {
        *begin = 0;
        *end = count;
        return 0;
    }
    return ctw_comm_reduce_scatter(group->comm, gradients, count, begin, end, err);
}

int ct_group_all_reduce(struct ct_group *group, float *range, size_t count, struct ct_err *err)
{
    int rc = group->dev->ops->fork(group->dev, err);
    if (rc != 0) {
        return rc;
    }
    return ctw_comm_all_reduce(group->comm, range, range, count, err);
}

int ct_group_all_reduce_wait(struct ct_group *group, struct ct_err *err)
{
    return group->dev->ops->join(group->dev, err);
}

int ct_group_barrier(struct ct_group *group, struct ct_err *err)
{
    /* On GPUs nothing is shared: every rank has made the same update to its own copy. */
    return group->shares_model ? ctw_comm_barrier(group->comm, err) : 0;
}

int ct_group_broadcast(struct ct_group *group, void *block, size_t bytes, struct ct_err *err)
{
    return group->shares_model ? ct_group_broadcast_from(group, block, bytes, 0, err) : 0;
}

int ct_group_broadcast_from(struct ct_group *group, void *block, size_t bytes, int root,
                            struct ct_err *err)
{
    if (group->comm == NULL) {
        return 0;
    }
    /* The broadcast must come after the queued work, like every collective of a GPU. */
    int rc = group->dev->ops->fork != NULL ? group->dev->ops->fork(group->dev, err) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = ctw_comm_broadcast(group->comm, block, bytes, root, err);
    if (rc != 0) {
        return rc;
    }
    return ct_group_sync(group, err);
}

static void split(double value, float *words)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (size_t i = 0; i < PIECES; i++) {
        words[i] = (float)(bits >> (16 * i) & UINT16_MAX);
    }
}

static double join(const float *words)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < PIECES; i++) {
        bits |= (uint64_t)words[i] << (16 * i);
    }
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Replaces the first words by their sums over the ranks. */
static int sum_words(struct ct_group *group, size_t count, struct ct_err *err)
{
    size_t bytes = count * sizeof(float);
    const struct ct_device_ops *ops = group->dev->ops;
    /* Queued work may wait for a peer, whose death an upload would not notice. */
    int rc = group->dev->kind != CT_DEVICE_CPU ? ct_group_sync(group, err) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = ops->upload(group->dev, group->exchange, group->words, bytes, err);
    if (rc != 0) {
        return rc;
    }
    rc = ctw_comm_all_reduce(group->comm, group->exchange, group->exchange, count, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_group_sync(group, err);
    if (rc != 0) {
        return rc;
    }
    return ops->download(group->dev, group->words, group->exchange, bytes, err);
}

int ct_group_all_gather(struct ct_group *group, const double *mine, size_t n, double *all,
                        struct ct_err *err)
{
    CT_ASSERT(n <= CT_GROUP_VALUES_MAX);
    if (group->world == 1) {
        memcpy(all, mine, n * sizeof *all);
        return 0;
    }
    /* Every rank fills its own row and leaves zeros elsewhere, so the sum contains all rows. */
    size_t count = ROW * (size_t)group->world;
    memset(group->words, 0, count * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        split(mine[i], group->words + (size_t)group->rank * ROW + i * PIECES);
    }
    int rc = sum_words(group, count, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t r = 0; r < (size_t)group->world; r++) {
        for (size_t i = 0; i < n; i++) {
            all[r * n + i] = join(group->words + r * ROW + i * PIECES);
        }
    }
    return 0;
}

int ct_group_agree(struct ct_group *group, bool mine, bool *all, struct ct_err *err)
{
    *all = mine;
    if (group->world == 1) {
        return 0;
    }
    group->words[0] = mine ? 1 : 0;
    int rc = sum_words(group, 1, err);
    *all = rc == 0 && group->words[0] == (float)group->world;
    return rc;
}

int ct_group_sum(struct ct_group *group, double *values, size_t n, struct ct_err *err)
{
    double *all = ct_calloc((size_t)group->world * n, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_group_all_gather(group, values, n, all, err);
    if (rc != 0) {
        goto out;
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = 0;
        for (size_t r = 0; r < (size_t)group->world; r++) {
            values[i] += all[r * n + i];
        }
    }
out:
    ct_free(all);
    return rc;
}

int ct_group_sync(struct ct_group *group, struct ct_err *err)
{
    /* The communicator's wait ends when a peer dies; the device's own wait would not. So the first
     * must cover the device's work as well, because that contains replayed collectives. */
    bool forks = group->comm != NULL && group->dev->ops->fork != NULL;
    int rc = forks ? group->dev->ops->fork(group->dev, err) : 0;
    if (rc != 0) {
        return rc;
    }
    if (group->comm != NULL) {
        rc = ctw_comm_sync(group->comm, err);
        if (rc != 0) {
            return rc;
        }
    }
    return group->dev->ops->sync(group->dev, err);
}

int ct_group_download(struct ct_group *group, void *dst, const void *src, size_t bytes,
                      struct ct_err *err)
{
    int rc = group->dev->kind != CT_DEVICE_CPU ? ct_group_sync(group, err) : 0;
    if (rc != 0) {
        return rc;
    }
    return group->dev->ops->download(group->dev, dst, src, bytes, err);
}
