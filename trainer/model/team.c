/* SPDX-License-Identifier: Apache-2.0
 *
 * The team. Without a communicator (one rank) each function does only what remains on one device.
 * Failures of collectives are returned unchanged: the death of a peer is CT_EPEER. ct_team_close()
 * frees the memory.
 */
#include "trainer/model/team.h"

#include "common/alloc.h"

#include <stdint.h>
#include <string.h>

/* A double is sent as four numbers of 16 bits, which floats hold exactly. */
#define PIECES (sizeof(double) / sizeof(uint16_t))
#define ROW (CT_TEAM_VALUES_MAX * PIECES)

static int take_device_block(struct ct_team *team, size_t count, float **out, struct ct_err *err)
{
    CT_ASSERT(team->block_count < CT_TEAM_BLOCKS_MAX);
    void *memory;
    int rc = team->dev->ops->alloc(team->dev, count * sizeof(float), &memory, err);
    if (rc == 0) {
        team->block[team->block_count++] = memory;
        *out = memory;
    }
    return rc;
}

static int take_comm_block(struct ct_team *team, enum ctw_memory kind, size_t count, float **out,
                           struct ct_err *err)
{
    void *memory;
    int rc = ctw_comm_alloc(team->comm, kind, count * sizeof(float), &memory, err);
    if (rc == 0) {
        *out = memory;
    }
    return rc;
}

static int tree_sum(void *data, size_t n, size_t count, size_t step, const float *from, float *to,
                    struct ct_err *err)
{
    struct ct_device *dev = data;
    const struct ct_tree_sum op = {.n = n, .count = count, .step = step, .from = from, .to = to};
    return dev->ops->tree_sum(dev, &op, err);
}

int ct_team_open(struct ctw_job *job, struct ct_device *dev, enum ctw_order order,
                 struct ct_team *out, struct ct_err *err)
{
    const struct ctw_env *env = ctw_job_env(job);
    struct ct_team team = {
        .dev = dev,
        .rank = env->rank,
        .world = env->world_size,
        .shares_model = dev->kind == CT_DEVICE_CPU,
    };
    int rc = 0;
    if (team.shares_model || team.world > 1) {
        const struct ctw_comm_options options = {
            .backend = team.shares_model ? CTW_BACKEND_HOST : CTW_BACKEND_NCCL,
            .device = dev->index,
            .stream = dev->side,
            .order = order,
            .tree_sum = dev->ops->tree_sum != NULL ? tree_sum : NULL,
            .tree_sum_data = dev,
        };
        rc = ctw_comm_open(job, &options, &team.comm, err);
    }
    if (rc == 0) {
        rc = ct_team_alloc_gradients(&team, ROW * (size_t)team.world, &team.exchange, err);
    }
    if (rc == 0) {
        team.words = ct_calloc(ROW * (size_t)team.world, sizeof *team.words);
        rc = team.words != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    if (rc != 0) {
        ct_team_close(&team);
        return rc;
    }
    *out = team;
    return 0;
}

void ct_team_close(struct ct_team *team)
{
    if (team == NULL) {
        return;
    }
    for (size_t i = 0; i < team->block_count; i++) {
        team->dev->ops->release(team->dev, team->block[i]);
    }
    ct_free(team->words);
    ctw_comm_free(team->comm);
    *team = (struct ct_team){0};
}

int ct_team_alloc_gradients(struct ct_team *team, size_t count, float **out, struct ct_err *err)
{
    return team->comm != NULL ? take_comm_block(team, CTW_MEMORY_OWN, count, out, err)
                              : take_device_block(team, count, out, err);
}

int ct_team_alloc_model(struct ct_team *team, size_t count, float **out, struct ct_err *err)
{
    return team->shares_model ? take_comm_block(team, CTW_MEMORY_SHARED, count, out, err)
                              : take_device_block(team, count, out, err);
}

int ct_team_reduce_scatter(struct ct_team *team, float *gradients, size_t count, size_t *begin,
                           size_t *end, struct ct_err *err)
{
    if (team->comm == NULL) {
        *begin = 0;
        *end = count;
        return 0;
    }
    return ctw_comm_reduce_scatter(team->comm, gradients, count, begin, end, err);
}

int ct_team_all_reduce(struct ct_team *team, float *range, size_t count, struct ct_err *err)
{
    int rc = team->dev->ops->fork(team->dev, err);
    return rc == 0 ? ctw_comm_all_reduce(team->comm, range, range, count, err) : rc;
}

int ct_team_all_reduce_wait(struct ct_team *team, struct ct_err *err)
{
    return team->dev->ops->join(team->dev, err);
}

int ct_team_barrier(struct ct_team *team, struct ct_err *err)
{
    /* On GPUs nothing is shared: every rank has made the same update to its own copy. */
    return team->shares_model ? ctw_comm_barrier(team->comm, err) : 0;
}

int ct_team_broadcast(struct ct_team *team, void *block, size_t bytes, struct ct_err *err)
{
    return team->shares_model ? ct_team_broadcast_from(team, block, bytes, 0, err) : 0;
}

int ct_team_broadcast_from(struct ct_team *team, void *block, size_t bytes, int root,
                           struct ct_err *err)
{
    if (team->comm == NULL) {
        return 0;
    }
    /* The broadcast must come after the queued work, like every collective of a GPU. */
    int rc = team->dev->ops->fork != NULL ? team->dev->ops->fork(team->dev, err) : 0;
    if (rc == 0) {
        rc = ctw_comm_broadcast(team->comm, block, bytes, root, err);
    }
    return rc == 0 ? ct_team_sync(team, err) : rc;
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

int ct_team_all_gather(struct ct_team *team, const double *mine, size_t n, double *all,
                       struct ct_err *err)
{
    CT_ASSERT(n <= CT_TEAM_VALUES_MAX);
    if (team->world == 1) {
        memcpy(all, mine, n * sizeof *all);
        return 0;
    }
    /* Every rank fills its own row and leaves zeros elsewhere, so the sum contains all rows. */
    size_t count = ROW * (size_t)team->world, bytes = count * sizeof(float);
    const struct ct_device_ops *ops = team->dev->ops;
    memset(team->words, 0, bytes);
    for (size_t i = 0; i < n; i++) {
        split(mine[i], team->words + (size_t)team->rank * ROW + i * PIECES);
    }
    /* Queued work may wait for a peer, whose death an upload would not notice. */
    int rc = team->dev->kind != CT_DEVICE_CPU ? ct_team_sync(team, err) : 0;
    if (rc == 0) {
        rc = ops->upload(team->dev, team->exchange, team->words, bytes, err);
    }
    if (rc == 0) {
        rc = ctw_comm_all_reduce(team->comm, team->exchange, team->exchange, count, err);
    }
    if (rc == 0) {
        rc = ct_team_sync(team, err);
    }
    if (rc == 0) {
        rc = ops->download(team->dev, team->words, team->exchange, bytes, err);
    }
    for (size_t r = 0; rc == 0 && r < (size_t)team->world; r++) {
        for (size_t i = 0; i < n; i++) {
            all[r * n + i] = join(team->words + r * ROW + i * PIECES);
        }
    }
    return rc;
}

int ct_team_sum(struct ct_team *team, double *values, size_t n, struct ct_err *err)
{
    double *all = ct_calloc((size_t)team->world * n, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_team_all_gather(team, values, n, all, err);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        values[i] = 0;
        for (size_t r = 0; r < (size_t)team->world; r++) {
            values[i] += all[r * n + i];
        }
    }
    ct_free(all);
    return rc;
}

int ct_team_sync(struct ct_team *team, struct ct_err *err)
{
    /* The communicator's wait ends when a peer dies; the device's own wait would not. So the first
     * must cover the device's work as well, because that contains replayed collectives. */
    bool forks = team->comm != NULL && team->dev->ops->fork != NULL;
    int rc = forks ? team->dev->ops->fork(team->dev, err) : 0;
    if (rc == 0 && team->comm != NULL) {
        rc = ctw_comm_sync(team->comm, err);
    }
    return rc == 0 ? team->dev->ops->sync(team->dev, err) : rc;
}

int ct_team_download(struct ct_team *team, void *dst, const void *src, size_t bytes,
                     struct ct_err *err)
{
    int rc = team->dev->kind != CT_DEVICE_CPU ? ct_team_sync(team, err) : 0;
    return rc == 0 ? team->dev->ops->download(team->dev, dst, src, bytes, err) : rc;
}
