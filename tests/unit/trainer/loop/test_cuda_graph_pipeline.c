/* SPDX-License-Identifier: Apache-2.0
 *
 * Training steps of several GPUs, with a pipeline and without, whose ranks are threads over the
 * stand-in: recorded with their messages and replayed, they end with the same parameters as queued
 * one by one.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fake_gpu/fake_gpu_engine.h"
#include "tests/lib/nccl_ranks.h"

#include "kernels/cuda/cuda_plugin.h"
#include "trainer/loop/cuda_graph.h"
#include "trainer/loop/train.h"

#include <stdlib.h>

extern const struct ct_cuda_plugin ct_cuda_plugin;

#define SAMPLES ((size_t)53)
#define BATCH ((size_t)16)
#define FEATURES ((size_t)12)
#define CLASSES ((size_t)5)
#define RANKS 4
#define STAGES 2
#define EPOCHS 3
/* Bytes; a value is exchanged as four floats, and there is room for one of each rank and kind. */
#define EXCHANGE (CT_GROUP_VALUES_MAX * 4 * RANKS * sizeof(float))
/* A deadline that passes only where a rank has failed, also on a machine that others use. */
#define SHORT_MS 20000
/* Replays that time both ways to launch kernels, before the first step. */
#define TIMED 4

/* What all ranks know, and what becomes of them. */
struct scene {
    enum ct_cuda_graph_choice choice;
    int stages;  /* 1 = no pipeline */
    int fail_at; /* of the calls while the first step is recorded; 0 = none */
    atomic_int ready;
    struct ct_device *dev[RANKS];
    int rc[RANKS];
    bool warned[RANKS];
    float *params[RANKS]; /* the whole model, of which a rank has updated its stage's */
};

static cudaStream_t stream_of(struct nccl_rank *r)
{
    struct scene *scene = r->all->data;
    struct ct_err err = {0};
    if (ct_cuda_plugin.open(r->rank, &scene->dev[r->rank], &err) != 0) {
        nccl_rank_check_failed(r, __FILE__, __LINE__, err.text);
    }
    return scene->dev[r->rank]->side;
}

static void *block(struct ct_device *dev, size_t bytes, const void *content)
{
    void *p = NULL;
    if (dev->ops->alloc(dev, bytes, &p, NULL) != 0 ||
        (content != NULL && dev->ops->upload(dev, p, content, bytes, NULL) != 0)) {
        abort();
    }
    return p;
}

static void fill(struct ct_trainer *t)
{
    uint8_t images[SAMPLES * FEATURES], labels[SAMPLES];
    for (size_t i = 0; i < sizeof images; i++) {
        images[i] = (uint8_t)(i * i % 251);
    }
    for (size_t i = 0; i < sizeof labels; i++) {
        labels[i] = (uint8_t)(i % CLASSES);
    }
    t->data.uploaded[0] = block(t->dev, sizeof images, images);
    t->data.uploaded[1] = block(t->dev, sizeof labels, labels);
    t->data.train = (struct ct_device_dataset){
        .images = t->data.uploaded[0], .labels = t->data.uploaded[1], .stddev = 0.5f};
    float *host = calloc(t->layout.count, sizeof *host);
    ct_layout_draw(&t->layout, 3, host);
    t->memory.params = block(t->dev, t->layout.count * sizeof *host, host);
    t->optimizer.state[0] = block(t->dev, t->layout.count * sizeof *host, NULL);
    t->memory.totals = block(t->dev, 2 * sizeof(double), NULL);
    free(host);
}

static int open_pipeline(struct ct_trainer *t, int rank, struct ct_err *err)
{
    const struct ct_pipeline_options options = {.stages = STAGES,
                                                .micros = 3,
                                                .rows = BATCH * STAGES / RANKS,
                                                .test_rows = 4,
                                                .layers = 3,
                                                .world = RANKS,
                                                .rank = rank};
    return ct_pipeline_open(&options, &t->group, t->dev, &t->layout, NULL, &t->pipe, err);
}

/* Each layer's gradient is summed as soon as it is there. */
static int open_model(struct ct_trainer *t, struct ct_err *err)
{
    int rc = ct_model_init(&t->model, &t->layout, t->dev, BATCH / RANKS, err);
    if (rc == 0) {
        rc = ct_group_alloc_gradients(&t->group, t->layout.count, &t->memory.grads, err);
    }
    if (rc == 0) {
        ct_buckets_init(&t->buckets, &t->layout, 1, &t->group, t->memory.grads);
        ct_buckets_update(&t->buckets, &t->optimizer, t->memory.params);
        t->model.layer_done = ct_buckets_layer_done;
        t->model.layer_done_data = &t->buckets;
    }
    return rc;
}

static int open_trainer(struct ct_trainer *t, struct nccl_rank *r, struct ct_err *err)
{
    struct scene *scene = r->all->data;
    int stages = scene->stages;
    const struct ct_hidden hidden = {.count = 2, .size = {16, 9}};
    t->dev = scene->dev[r->rank];
    t->options = (struct ct_train_options){.lr = 0.1,
                                           .epochs = EPOCHS,
                                           .pipeline_stages = (size_t)stages,
                                           .cuda_graph = scene->choice};
    t->group = (struct ct_group){.dev = t->dev, .comm = r->comm, .rank = r->rank, .world = RANKS};
    t->group.exchange = block(t->dev, EXCHANGE, NULL);
    t->group.words = calloc(1, EXCHANGE);
    t->optimizer = (struct ct_optimizer){.kind = CT_OPTIMIZER_SGD, .momentum = 0.9f};
    if (ct_layout_init(&t->layout, FEATURES, &hidden, CLASSES, err) != 0 ||
        ct_sampler_init(&t->sampler, SAMPLES, BATCH, r->rank / stages, RANKS / stages, 1) != 0) {
        abort();
    }
    fill(t);
    int rc = stages > 1 ? open_pipeline(t, r->rank, err) : open_model(t, err);
    rc = rc == 0 ? ct_cuda_graph_open(t, err) : rc;
    t->dev->head_way = CT_HEAD_FUSED; /* the fastest is a matter of luck here */
    return rc;
}

static void close_trainer(struct ct_trainer *t)
{
    ct_cuda_graph_close(t);
    ct_model_fini(&t->model);
    ct_pipeline_free(t->pipe);
    ctw_comm_free(t->group.comm);
    void *blocks[] = {t->data.uploaded[0], t->data.uploaded[1],   t->memory.params,
                      t->memory.totals,    t->optimizer.state[0], t->group.exchange};
    free(t->group.words);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        t->dev->ops->release(t->dev, blocks[i]);
    }
    t->dev->ops->close(t->dev);
    ct_sampler_fini(&t->sampler);
    ct_buf_fini(&t->warnings);
}

static int step(struct ct_trainer *t, size_t *done, struct ct_err *err)
{
    int rc = ct_cuda_graph_run(t, ct_sampler_batches(&t->sampler) - t->at.batch, done, err);
    if (rc != 0 || *done > 0) {
        return rc;
    }
    size_t rows, global;
    const uint32_t *index = ct_sampler_batch(&t->sampler, t->at.batch, &rows, &global);
    t->optimizer.lr = (float)ct_trainer_rate(t, t->at.batch);
    rc = ct_trainer_await_queue(t, rows, err);
    rc = rc == 0 ? ct_trainer_queue(t, index, rows, global, err) : rc;
    t->optimizer.step++;
    *done = 1;
    return rc;
}

/* Messages of a pipeline, and then a collective, as in the trainer. */
static int evaluate(struct ct_trainer *t, struct ct_err *err)
{
    const uint32_t index[] = {0, 1, 2, 3};
    int rc = t->pipe != NULL ? ct_pipeline_evaluate(t->pipe, t->memory.params, &t->data.train,
                                                    index, 4, t->memory.totals, err)
                             : 0;
    t->queued.rows = 0; /* as the trainer does: the next step waits first */
    rc = rc == 0 ? ct_group_sync(&t->group, err) : rc;
    return rc == 0 ? ctw_comm_barrier(t->group.comm, err) : rc;
}

/* Lets a call fail when all ranks are here. */
static void fail_soon(struct scene *scene)
{
    FAKE_ALONE;
    if (++scene->ready == RANKS) {
        fake.fail_cuda_call = fake.calls + scene->fail_at;
    }
}

static int run_epochs(struct ct_trainer *t, struct scene *scene, struct ct_err *err)
{
    int rc = 0;
    for (; rc == 0 && t->at.epoch < EPOCHS; t->at.epoch++) {
        ct_sampler_shuffle(&t->sampler, (unsigned)t->at.epoch);
        t->at.batch = 0;
        rc = ct_cuda_graph_epoch(t, err);
        while (rc == 0 && t->at.batch < ct_sampler_batches(&t->sampler)) {
            size_t done = 0;
            if (scene->fail_at > 0 && t->at.epoch == 0 && t->at.batch == 1) {
                rc = ct_group_sync(&t->group, err);
                fail_soon(scene);
                nccl_ranks_await(&scene->ready, RANKS);
            }
            rc = rc == 0 ? step(t, &done, err) : rc;
            t->at.batch += done;
        }
        rc = rc == 0 ? evaluate(t, err) : rc;
    }
    return rc;
}

static void train(struct nccl_rank *r)
{
    struct scene *scene = r->all->data;
    struct ct_trainer t = {0};
    struct ct_err err = {0};
    int rc = open_trainer(&t, r, &err);
    if (rc != 0) {
        nccl_rank_check_failed(r, __FILE__, __LINE__, err.text);
    }
    rc = run_epochs(&t, scene, &err);
    size_t bytes = t.layout.count * sizeof(float);
    scene->params[r->rank] = calloc(1, bytes);
    if (rc == 0) {
        rc = ct_group_download(&t.group, scene->params[r->rank], t.memory.params, bytes, &err);
    }
    if (rc != 0) {
        ct_pipeline_abort(t.pipe);
        ctw_comm_abort(t.group.comm);
    }
    scene->rc[r->rank] = rc;
    scene->warned[r->rank] = t.warnings.len > 0;
    close_trainer(&t);
    r->comm = NULL;
}

static void run(struct scene *scene, const struct fake_gpu *script)
{
    nccl_ranks_run(&(struct nccl_ranks){.size = RANKS,
                                        .script = *script,
                                        .timeout_ms = scene->fail_at > 0 ? SHORT_MS : 0,
                                        .stream_of = stream_of,
                                        .data = scene},
                   train);
    assert_int_equal(fake.graphs + fake.execs + fake.capturing + fake.holding, 0);
}

static void free_params(struct scene *scene)
{
    for (int i = 0; i < RANKS; i++) {
        free(scene->params[i]);
    }
}

static void check_same(const struct scene *got, const struct scene *want)
{
    struct ct_layout layout;
    const struct ct_hidden hidden = {.count = 2, .size = {16, 9}};
    assert_int_equal(ct_layout_init(&layout, FEATURES, &hidden, CLASSES, NULL), 0);
    for (int i = 0; i < RANKS; i++) {
        assert_memory_equal(got->params[i], want->params[i], layout.count * sizeof(float));
    }
}

static struct scene queued_one_by_one(int stages)
{
    struct scene scene = {.choice = CT_CUDA_GRAPH_OFF, .stages = stages};
    run(&scene, &(struct fake_gpu){.seed = 1});
    assert_int_equal(fake.graph_launches, 0);
    return scene;
}

static void recorded_steps_are_the_queued_ones(void **state)
{
    (void)state;
    struct scene want = queued_one_by_one(STAGES);
    for (unsigned seed = 1; seed <= 6; seed++) {
        const struct fake_gpu script = {
            .seed = seed, .call_turns = (int)seed % 3, .nccl_threads = seed % 2 > 0};
        struct scene got = {.choice = CT_CUDA_GRAPH_AUTO, .stages = STAGES};
        run(&got, &script);
        /* Of each epoch's four batches the short one is queued as ever, and so is the very first.
         */
        assert_int_equal(fake.graph_launches, RANKS * (TIMED + 3 * EPOCHS - 1));
        check_same(&got, &want);
        free_params(&got);
    }
    free_params(&want);
}

/* Some rank's recording fails. Either all ranks go on without, or a communicator of it has failed,
 * and all ranks end. */
static void go_on_without_recordings(int stages)
{
    struct scene want = queued_one_by_one(stages);
    int went_on = 0;
    for (int n = 1; n < 300; n += 23) {
        struct scene got = {.choice = CT_CUDA_GRAPH_AUTO, .stages = stages, .fail_at = n};
        run(&got, &(struct fake_gpu){.seed = (unsigned)n});
        int warned = 0, failed = 0;
        for (int i = 0; i < RANKS; i++) {
            warned += got.warned[i];
            failed += got.rc[i] != 0;
        }
        assert_true(failed == 0 || failed == RANKS);
        if (warned > 0 && failed == 0) { /* else the call may have been one that times a product */
            assert_int_equal(warned, RANKS);
            check_same(&got, &want);
            went_on++;
        }
        free_params(&got);
    }
    assert_true(went_on > 0);
    free_params(&want);
}

static void ranks_go_on_without_recordings_if_one_cannot_record(void **state)
{
    (void)state;
    go_on_without_recordings(STAGES);
    go_on_without_recordings(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_steps_are_the_queued_ones),
        cmocka_unit_test(ranks_go_on_without_recordings_if_one_cannot_record),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
