/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether training with --consistent gives the same bits twice, and on every number of GPUs that
 * this machine has: by the trainer's own steps, recorded and not, a thread for each GPU. Prints
 * TAP; exit code 77 without a GPU. tools/gpu-check builds it without Meson. "small" is for tests.
 */
#include "common/alloc.h"
#include "trainer/formats/rng.h"
#include "trainer/loop/cuda_graph.h"
#include "trainer/loop/param_hash.h"
#include "trainer/loop/train.h"
#include "trainer/model/gpu_ranks.h"

#include <stdio.h>
#include <string.h>

#define EXIT_SKIP 77
#define SHARDS 8
#define CLASSES ((size_t)10)
#define EPOCHS 2

/* The last shard of a batch is smaller, and the last batch leaves some empty. */
struct sizes {
    size_t samples, batch, features;
    struct ct_hidden hidden;
};

static const struct sizes of_gpus = {20000, 1020, 784, {.count = 2, .size = {512, 200}}};
static const struct sizes of_tests = {260, 60, 30, {.count = 2, .size = {40, 24}}};

struct run {
    const struct sizes *sizes;
    enum ct_precision precision;
    bool recorded;
    uint64_t hash[CTW_CREW_MAX]; /* of each rank's parameters at the end */
};

struct rank {
    struct ct_trainer t;
    const struct sizes *s;
    void *images, *labels, *params, *state[CT_OPTIMIZER_STATES_MAX], *narrow, *totals;
};

static int fill(struct rank *r, struct ct_err *err)
{
    struct ct_trainer *t = &r->t;
    size_t pixels = r->s->samples * r->s->features;
    const struct ct_device_ops *ops = t->dev->ops;
    uint8_t *bytes = ct_malloc(pixels + r->s->samples);
    float *params = ct_calloc(t->layout.count, sizeof *params);
    int rc = bytes != NULL && params != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < pixels; i++) {
        bytes[i] = (uint8_t)ct_rng_u64(1, 1, i);
    }
    for (size_t i = 0; rc == 0 && i < r->s->samples; i++) {
        bytes[pixels + i] = (uint8_t)(ct_rng_u64(1, 2, i) % CLASSES);
    }
    if (rc == 0) {
        ct_layout_draw(&t->layout, 1, params);
        rc = ops->upload(t->dev, r->images, bytes, pixels, err);
    }
    if (rc == 0) {
        rc = ops->upload(t->dev, r->labels, bytes + pixels, r->s->samples, err);
    }
    if (rc == 0) {
        rc = ops->upload(t->dev, t->memory.params, params, t->layout.count * sizeof *params, err);
    }
    if (rc == 0 && t->memory.narrow != NULL) {
        rc = ops->narrow(t->dev, t->layout.count, t->memory.params, t->memory.narrow, err);
    }
    ct_free(bytes);
    ct_free(params);
    return rc;
}

static int alloc_all(struct rank *r, struct ct_err *err)
{
    struct ct_trainer *t = &r->t;
    size_t floats = t->layout.count * sizeof(float);
    bool narrow = ct_precision_narrow(t->dev->precision);
    const struct {
        void **to;
        size_t bytes;
    } blocks[] = {
        {&r->images, r->s->samples * r->s->features},
        {&r->labels, r->s->samples},
        {&r->params, floats},
        {&r->state[0], floats},
        {&r->state[1], floats},
        {&r->totals, 2 * sizeof(double)},
        {&r->narrow, narrow ? t->layout.count * sizeof(uint16_t) : 0},
    };
    int rc = ct_group_alloc_gradients(&t->group, t->layout.count, &t->memory.grads, err);
    for (size_t i = 0; rc == 0 && i < sizeof blocks / sizeof blocks[0]; i++) {
        rc = t->dev->ops->alloc(t->dev, blocks[i].bytes, blocks[i].to, err);
    }
    t->memory.params = r->params, t->memory.totals = r->totals;
    t->optimizer.state[0] = r->state[0], t->optimizer.state[1] = r->state[1];
    t->memory.narrow = narrow ? r->narrow : NULL;
    t->model.narrow = t->optimizer.narrow = t->memory.narrow;
    t->data.train = (struct ct_device_dataset){
        .images = r->images, .labels = r->labels, .mean = 0.5f, .stddev = 0.3f};
    return rc;
}

static int open_rank(struct rank *r, struct ctw_job *job, const struct run *run, struct ct_err *err)
{
    struct ct_trainer *t = &r->t;
    const struct ctw_env *env = ctw_job_env(job);
    r->s = run->sizes;
    t->options = (struct ct_train_options){.lr = 0.002,
                                           .epochs = EPOCHS,
                                           .shards = SHARDS,
                                           .cuda_graph = run->recorded ? CT_CUDA_GRAPH_AUTO
                                                                       : CT_CUDA_GRAPH_OFF};
    t->optimizer = (struct ct_optimizer){.kind = CT_OPTIMIZER_ADAMW, .weight_decay = 0.01f};
    int rc = ct_device_open(CT_DEVICE_CUDA, env->device_index, &t->dev, err);
    if (rc == 0) {
        rc = ct_device_set_precision(t->dev, run->precision, err);
    }
    if (rc == 0) {
        rc = ct_group_open(job, t->dev, CTW_ORDER_TREE, &t->group, err);
    }
    if (rc == 0) {
        rc = ct_layout_init(&t->layout, r->s->features, &r->s->hidden, CLASSES, err);
    }
    if (rc == 0 && ct_sampler_init(&t->sampler, r->s->samples, r->s->batch, 0, 1, 1) != 0) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    ct_shards_init(&t->shards, SHARDS, env->rank, env->world_size);
    if (rc == 0) {
        rc = ct_model_init(&t->model, &t->layout, t->dev, ct_shards_rows(&t->shards, r->s->batch),
                           err);
    }
    if (rc == 0) {
        rc = alloc_all(r, err);
    }
    if (rc == 0 && t->group.comm != NULL) {
        ct_buckets_init(&t->buckets, &t->layout, 1, &t->group,
                        t->memory.grads); /* one for each layer */
        ct_buckets_update(&t->buckets, &t->optimizer, t->memory.params);
        t->model.layer_done = ct_buckets_layer_done;
        t->model.layer_done_data = &t->buckets;
    }
    if (rc == 0) {
        rc = fill(r, err);
    }
    return rc == 0 ? ct_cuda_graph_open(t, err) : rc;
}

static void close_rank(struct rank *r)
{
    struct ct_trainer *t = &r->t;
    if (t->dev != NULL) {
        ct_cuda_graph_close(t);
        ct_model_fini(&t->model);
        void *blocks[] = {r->images,   r->labels, r->params, r->state[0],
                          r->state[1], r->totals, r->narrow};
        for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
            t->dev->ops->release(t->dev, blocks[i]);
        }
        ct_group_close(&t->group);
        t->dev->ops->close(t->dev);
    }
    ct_sampler_fini(&t->sampler);
    ct_buf_fini(&t->warnings);
    ct_free(r);
}

static int run_step(struct ct_trainer *t, struct ct_err *err)
{
    size_t done = 0, rows, global;
    int rc = ct_cuda_graph_run(t, ct_sampler_batches(&t->sampler) - t->at.batch, &done, err);
    if (rc == 0 && done == 0) {
        const uint32_t *index = ct_sampler_batch(&t->sampler, t->at.batch, &rows, &global);
        t->optimizer.lr = (float)ct_trainer_rate(t, t->at.batch);
        rc = ct_trainer_await_queue(t, rows, err);
        rc = rc == 0 ? ct_trainer_queue(t, index, rows, global, err) : rc;
        t->optimizer.step++;
        done = 1;
    }
    t->at.batch += done;
    return rc;
}

static int run_epochs(struct ct_trainer *t, struct ct_err *err)
{
    int rc = 0;
    for (; rc == 0 && t->at.epoch < EPOCHS; t->at.epoch++) {
        ct_sampler_shuffle(&t->sampler, (unsigned)t->at.epoch);
        t->at.batch = 0;
        rc = ct_cuda_graph_epoch(t, err);
        while (rc == 0 && t->at.batch < ct_sampler_batches(&t->sampler)) {
            rc = run_step(t, err);
        }
        rc = rc == 0 ? ct_group_sync(&t->group, err) : rc;
    }
    return rc;
}

static int train(struct ctw_job *job, void *data, struct ct_err *err)
{
    struct run *run = data;
    struct rank *r = ct_calloc(1, sizeof *r);
    if (r == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    struct ct_trainer *t = &r->t;
    int rc = open_rank(r, job, run, err);
    rc = rc == 0 ? run_epochs(t, err) : rc;
    float *params = ct_calloc(t->layout.count + 1, sizeof *params);
    if (rc == 0 && params != NULL) {
        rc = ct_group_download(&t->group, params, t->memory.params,
                               t->layout.count * sizeof *params, err);
        run->hash[ctw_job_env(job)->rank] =
            ct_param_hash_of(ct_param_hash_part(params, 0, t->layout.count));
    }
    ct_free(params);
    close_rank(r);
    return rc;
}

/* ---- all world sizes --------------------------------------------------------------------- */

/* CT_EUNSUPPORTED: neither good nor bad. */
static int check_world(struct ctw_job *job, struct run run, int world, uint64_t *expected)
{
    enum ct_precision precision = run.precision;
    struct ct_err err = {0};
    int rc = ct_gpu_ranks_run(world, job, train, &run, &err);
    if (rc != 0) {
        printf("# %s on %d GPUs: %s\n", ct_precision_name(precision), world, err.text);
        return rc;
    }
    *expected = *expected == 0 ? run.hash[0] : *expected;
    for (int r = 0; r < world; r++) {
        printf("# %s on %d GPUs, %s, rank %d: %016llx\n", ct_precision_name(precision), world,
               run.recorded ? "recorded" : "queued", r, (unsigned long long)run.hash[r]);
        rc = run.hash[r] == *expected ? rc : CT_EIO;
    }
    return rc;
}

static bool check_precision(struct ctw_job *job, struct run run, int gpus)
{
    uint64_t expected = 0;
    bool good = true;
    for (int world = 1; world <= gpus && world <= SHARDS; world *= 2) {
        for (int i = 0; i < 3; i++) { /* queued once, and recorded twice */
            run.recorded = i > 0;
            int rc = check_world(job, run, world, &expected);
            good = good && (rc == 0 || rc == CT_EUNSUPPORTED);
        }
    }
    return good;
}

int main(int argc, char *argv[])
{
    static const enum ct_precision all[] = {CT_PRECISION_F32, CT_PRECISION_TF32, CT_PRECISION_BF16};
    const int count = (int)(sizeof all / sizeof all[0]), gpus = ct_device_cuda_count();
    struct ctw_job *job = NULL;
    struct ct_err err = {0};
    int failed = 0;
    bool small = argc == 2 && strcmp(argv[1], "small") == 0;
    if (gpus == 0) {
        printf("1..0 # SKIP no GPU\n");
        return EXIT_SKIP;
    }
    if (ctw_job_open(NULL, &job, &err) != 0) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        const struct run run = {.sizes = small ? &of_tests : &of_gpus, .precision = all[i]};
        bool good = check_precision(job, run, gpus);
        failed += !good;
        printf("%s %d - the same bits on any number of GPUs, %s\n", good ? "ok" : "not ok", i + 1,
               ct_precision_name(all[i]));
    }
    printf("1..%d\n", count);
    ctw_job_free(job);
    return failed > 0;
}
