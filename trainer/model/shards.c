/* SPDX-License-Identifier: Apache-2.0
 *
 * The model computes all shards of this rank in one pass that is divided into parts (struct
 * ct_partition), and the device adds the parts' gradients as a tree. A rank whose shards are beyond
 * the end of a short batch contributes zeros. It allocates nothing.
 */
#include "trainer/model/shards.h"

int ct_shards_check(size_t count, int world, struct ct_err *err)
{
    size_t n = (size_t)world;
    if (count == 0 || (n <= count && count % n == 0)) {
        return 0;
    }
    if ((n & (n - 1)) != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "--consistent: %d workers cannot share %zu shards evenly: their number "
                          "must be a power of two, at most %zu",
                          world, count, count);
    }
    return ct_err_set(
        err, CT_EINVAL,
        "--consistent: %d workers cannot share %zu shards evenly: take --consistent=%d "
        "or more shards",
        world, count, world);
}

int ct_shards_check_machines(size_t count, const struct ctw_env *env, struct ct_err *err)
{
    int machines = env->node_count, here = env->local_world_size;
    if (count == 0 || env->world_size == here ||
        ((machines & (machines - 1)) == 0 && (int64_t)here * machines == env->world_size)) {
        return 0;
    }
    return ct_err_set(err, CT_EINVAL,
                      "--consistent: on CPUs each machine must have as many workers as the others, "
                      "and the number of machines must be a power of two: here are %d of %d "
                      "workers, on one of %d machines",
                      here, env->world_size, machines);
}

void ct_shards_init(struct ct_shards *shards, size_t count, int rank, int world)
{
    *shards = (struct ct_shards){.count = count, .mine = count / (size_t)world};
    shards->first = shards->mine * (size_t)rank;
}

static size_t rows_of_one(const struct ct_shards *shards, size_t total)
{
    return (total - 1) / shards->count + 1;
}

size_t ct_shards_rows(const struct ct_shards *shards, size_t total)
{
    return shards->mine * rows_of_one(shards, total);
}

size_t ct_shards_begin(const struct ct_shards *shards, size_t total)
{
    return shards->first * rows_of_one(shards, total);
}

int ct_shards_run(const struct ct_shards *shards, struct ct_model *model, const float *params,
                  const struct ct_device_dataset *data, const uint32_t *index, size_t total,
                  float *grads, double *totals, struct ct_err *err)
{
    size_t rows = ct_shards_rows(shards, total), begin = ct_shards_begin(shards, total);
    if (begin >= total) {
        return model->dev->ops->clear(model->dev, grads, model->layout->count * sizeof(float), err);
    }
    rows = total - begin < rows ? total - begin : rows;
    model->partition = (struct ct_partition){
        .rows = rows_of_one(shards, total), .parts = shards->mine, .of = shards->count};
    const uint32_t *mine = index != NULL ? index + begin : NULL;
    int rc = ct_model_run(model, params, data, mine, rows, 1.0f / (float)total, grads, totals, err);
    model->partition = (struct ct_partition){0};
    return rc;
}
