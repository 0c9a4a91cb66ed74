/* SPDX-License-Identifier: Apache-2.0
 *
 * Training steps of a GPU with peers, against the stand-in: queued one by one and recorded, in any
 * order that streams and events leave open, they end with the same parameters.
 */
#include "tests/lib/ct_test.h"

#include "kernels/cuda/cuda_plugin.h"
#include "tests/lib/fake_gpu/fake_gpu.h"
#include "trainer/loop/cuda_graph.h"
#include "trainer/loop/train.h"
#include "worker/comm/comm.h"

#include <nccl.h>
#include <stdlib.h>

extern const struct ct_cuda_plugin ct_cuda_plugin;
extern const struct comm_nccl_module ctworker_nccl_module;

#define SAMPLES ((size_t)53)
#define BATCH ((size_t)8)
#define FEATURES ((size_t)12)
#define CLASSES ((size_t)5)
#define WORLD 4
#define LONG_MS (20 * 1000)

/* What a scene is made with. */
struct setting {
    enum ct_optimizer_kind kind;
    bool record;
    bool beside; /* each layer is updated as soon as it can be */
    bool alone;  /* without peers */
};

struct scene {
    struct ct_trainer t;
    void *images, *labels, *params;
};

static const struct setting recorded = {.kind = CT_OPTIMIZER_SGD, .record = true, .beside = true};

static void need(int rc, const struct ct_err *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

static void *block(struct ct_device *dev, size_t bytes)
{
    struct ct_err err = {0};
    void *p;
    need(dev->ops->alloc(dev, bytes, &p, &err), &err);
    return p;
}

static int no_store(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    (void)data;
    (void)key;
    (void)value;
    (void)len;
    (void)err;
    return 0;
}

/* Rank 0 of four, whose peers send what it sends. */
static void open_group(struct ct_group *group, struct ct_device *dev, int64_t timeout_ms)
{
    const struct comm_setup setup = {
        .size = WORLD,
        .local_size = WORLD,
        .stream = dev->side,
        .timeout_ms = timeout_ms,
        .set = no_store,
    };
    struct ct_err err = {0};
    *group = (struct ct_group){.dev = dev, .world = WORLD};
    need(ctworker_nccl_module.open(&setup, &group->comm, &err), &err);
    need(ct_group_alloc_gradients(group, 1, &group->exchange, &err), &err);
    group->words = calloc(1, sizeof *group->words);
}

static void close_group(struct ct_group *group)
{
    free(group->words);
    ctw_comm_free(group->comm);
}

static void fill(struct scene *s)
{
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    uint8_t images[SAMPLES * FEATURES], labels[SAMPLES];
    for (size_t i = 0; i < sizeof images; i++) {
        images[i] = (uint8_t)(i * i % 251);
    }
    for (size_t i = 0; i < sizeof labels; i++) {
        labels[i] = (uint8_t)(i % CLASSES);
    }
    s->images = block(t->dev, sizeof images);
    s->labels = block(t->dev, sizeof labels);
    need(t->dev->ops->upload(t->dev, s->images, images, sizeof images, &err), &err);
    need(t->dev->ops->upload(t->dev, s->labels, labels, sizeof labels, &err), &err);
    t->data.train =
        (struct ct_device_dataset){.images = s->images, .labels = s->labels, .stddev = 0.5f};
    float *host = calloc(t->layout.count, sizeof *host);
    ct_layout_draw(&t->layout, 3, host);
    need(t->dev->ops->upload(t->dev, t->memory.params, host, t->layout.count * sizeof *host, &err),
         &err);
    free(host);
}

static struct scene *begin(const struct fake_gpu *script, struct setting set)
{
    int world = set.alone ? 1 : WORLD;
    struct scene *s = calloc(1, sizeof *s);
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    const struct ct_hidden hidden = {.count = 2, .size = {16, 9}};
    fake_gpu_begin(script);
    t->options = (struct ct_train_options){
        .lr = 0.1, .epochs = 3, .cuda_graph = set.record ? CT_CUDA_GRAPH_AUTO : CT_CUDA_GRAPH_OFF};
    need(ct_cuda_plugin.open(0, &t->dev, &err), &err);
    t->group = (struct ct_group){.dev = t->dev, .world = 1};
    if (!set.alone) {
        open_group(&t->group, t->dev, LONG_MS);
    }
    need(ct_layout_init(&t->layout, FEATURES, &hidden, CLASSES, &err), &err);
    assert_int_equal(ct_sampler_init(&t->sampler, SAMPLES, BATCH, 0, world, 1), 0);
    need(ct_model_init(&t->model, &t->layout, t->dev, BATCH, &err), &err);
    need(ct_group_alloc_gradients(&t->group, t->layout.count, &t->memory.grads, &err), &err);
    t->memory.params = block(t->dev, t->layout.count * sizeof(float));
    t->memory.totals = block(t->dev, 2 * sizeof(double));
    t->optimizer = (struct ct_optimizer){.kind = set.kind, .momentum = 0.9f, .weight_decay = 0.01f};
    for (size_t i = 0; i < 2; i++) {
        t->optimizer.state[i] = block(t->dev, t->layout.count * sizeof(float));
    }
    /* So small that each layer is a bucket of its own. */
    ct_buckets_init(&t->buckets, &t->layout, 1, &t->group, t->memory.grads);
    if (set.beside) {
        ct_buckets_update(&t->buckets, &t->optimizer, t->memory.params);
    }
    t->model.layer_done = ct_buckets_layer_done;
    t->model.layer_done_data = &t->buckets;
    fill(s);
    need(ct_cuda_graph_open(t, &err), &err);
    assert_int_equal(t->dev->head_way, set.record ? CT_HEAD_FASTEST : CT_HEAD_APART);
    t->dev->head_way = CT_HEAD_FUSED; /* the fastest is a matter of luck here */
    return s;
}

static void end(struct scene *s)
{
    struct ct_trainer *t = &s->t;
    ct_cuda_graph_close(t);
    ct_model_fini(&t->model);
    void *blocks[] = {s->images,
                      s->labels,
                      t->memory.params,
                      t->memory.totals,
                      t->optimizer.state[0],
                      t->optimizer.state[1]};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        t->dev->ops->release(t->dev, blocks[i]);
    }
    for (size_t i = 0; i < t->group.block_count; i++) {
        t->dev->ops->release(t->dev, t->group.block[i]);
    }
    close_group(&t->group);
    t->dev->ops->close(t->dev);
    ct_sampler_fini(&t->sampler);
    ct_buf_fini(&t->warnings);
    free(s);
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
    assert_int_equal(fake.memory + fake.streams + fake.events + fake.graphs + fake.execs, 0);
    assert_int_equal(fake.comms + fake.descriptors, 0);
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

static int run_epochs(struct ct_trainer *t, int epochs, struct ct_err *err)
{
    int rc = 0;
    for (; rc == 0 && t->at.epoch < epochs; t->at.epoch++) {
        ct_sampler_shuffle(&t->sampler, (unsigned)t->at.epoch);
        t->at.batch = 0;
        rc = ct_cuda_graph_epoch(t, err);
        while (rc == 0 && t->at.batch < ct_sampler_batches(&t->sampler)) {
            size_t done = 0;
            rc = step(t, &done, err);
            t->at.batch += done;
        }
        rc = rc == 0 && t->at.epoch + 1 < epochs ? ct_cuda_graph_prepare(t, err) : rc;
        rc = rc == 0 ? ct_group_sync(&t->group, err) : rc;
    }
    return rc == 0 ? ct_group_sync(&t->group, err) : rc;
}

/* Replays that time both ways to launch kernels, before the first step, and what is recorded for
 * them. */
#define TIMED 4
#define TIMED_NODES 56

static float *train(const struct fake_gpu *script, struct setting set)
{
    struct ct_err err = {0};
    struct scene *s = begin(script, set);
    struct ct_trainer *t = &s->t;
    need(run_epochs(t, 3, &err), &err);
    assert_int_equal(t->optimizer.step, 3 * 7);
    assert_int_equal(t->warnings.len, 0);
    float *params = calloc(t->layout.count, sizeof *params);
    size_t bytes = t->layout.count * sizeof *params;
    need(ct_group_download(&t->group, params, t->memory.params, bytes, &err), &err);
    if (set.record) {
        /* 18 whole batches but for the first: in the first epoch 5, then 6 and 6. */
        assert_int_equal(fake.graph_launches, TIMED + 5 + 6 + 6);
        assert_int_equal(fake.captured_collectives, set.alone ? 0 : 3);
        /* Sums and updates beside the backward pass. */
        assert_true((fake.widest > 1) == (set.beside || !set.alone));
    } else {
        assert_int_equal(fake.graph_launches, 0);
        assert_true(set.alone || fake.collectives >= 3 * 7 * 3);
    }
    end(s);
    return params;
}

static void recorded_steps_are_the_queued_ones(void **state)
{
    (void)state;
    const enum ct_optimizer_kind kinds[] = {CT_OPTIMIZER_SGD, CT_OPTIMIZER_ADAMW};
    struct ct_layout layout;
    const struct ct_hidden hidden = {.count = 2, .size = {16, 9}};
    assert_int_equal(ct_layout_init(&layout, FEATURES, &hidden, CLASSES, NULL), 0);
    for (size_t k = 0; k < 4; k++) {
        struct setting set = {.kind = kinds[k % 2], .alone = k / 2 > 0};
        /* On each chip other epilogues are refused, and kernels add in another order. */
        struct fake_gpu script = {.chip = (unsigned)k};
        float *expected = train(&script, set);
        for (unsigned seed = 1; seed <= 12; seed++) {
            script.seed = seed;
            script.call_turns = (int)(seed % 3);
            script.nccl_threads = seed % 8 > 3;
            set.record = seed % 2 == 0;
            set.beside = seed % 4 > 1;
            float *got = train(&script, set);
            assert_memory_equal(got, expected, layout.count * sizeof *got);
            free(got);
        }
        free(expected);
    }
}

/* Several steps in one replay where the model is small against the host's part of a step. */
static void several_steps_at_once(void **state)
{
    (void)state;
    struct scene *s = begin(NULL, recorded);
    assert_int_equal(s->t.graph.steps, 32);
    s->t.graph.steps = 2;
    struct ct_err err = {0};
    need(run_epochs(&s->t, 1, &err), &err);
    /* 1 as ever, 2 + 2 + 1 replayed, the short one as ever. */
    assert_int_equal(fake.graph_launches, TIMED + 3);
    assert_int_equal(s->t.optimizer.step, 7);
    assert_int_equal(s->t.graph.counted, 6);
    end(s);
}

/* Nothing is queued, and nobody waits, between the end of an epoch and the first step of the next.
 */
static void the_next_epoch_is_prepared_behind_this_one(void **state)
{
    (void)state;
    struct scene *s = begin(NULL, recorded);
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    need(run_epochs(t, 1, &err), &err);
    t->at.epoch = 0;
    need(ct_cuda_graph_prepare(t, &err), &err);
    need(ct_group_sync(&t->group, &err), &err);
    t->at.epoch = 1, t->at.batch = 0;
    int waits = fake.waits, queued = fake.queued;
    ct_sampler_shuffle(&t->sampler, 1);
    need(ct_cuda_graph_epoch(t, &err), &err);
    assert_int_equal(fake.waits, waits);
    assert_int_equal(fake.queued, queued);
    /* Another one than was prepared is brought there as ever. */
    t->at.batch = 3;
    need(ct_cuda_graph_epoch(t, &err), &err);
    assert_int_equal(fake.queued, queued + 1);
    end(s);
}

/* 784-512-10 at a batch of 1024 on one GPU takes 30 to 80 us a step. */
static void a_batch_of_a_thousand_is_several_steps_at_once(void **state)
{
    (void)state;
    struct scene *s = begin(NULL, recorded);
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    ct_cuda_graph_close(t);
    /* As much work with the rows of this rank. */
    t->layout.parameters = (size_t)407050 * 1024 / (BATCH / WORLD);
    need(ct_cuda_graph_open(t, &err), &err);
    assert_int_equal(t->graph.steps, 8);
    end(s);
}

/* Two steps, then three epochs from the beginning; the second step with that call failing. */
static struct scene *run_with_failure(struct setting set, int call, int *rc)
{
    struct scene *s = begin(NULL, set);
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    size_t done;
    ct_sampler_shuffle(&t->sampler, 0);
    need(ct_cuda_graph_epoch(t, &err), &err);
    need(step(t, &done, &err), &err);
    t->at.batch++;
    fake.fail_cuda_call = call > 0 ? fake.calls + call : 0;
    *rc = step(t, &done, &err);
    t->at.batch++;
    fake.fail_cuda_call = 0;
    return s;
}

static float *finish_after_failure(struct scene *s)
{
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    size_t bytes = t->layout.count * sizeof(float);
    float *params = calloc(1, bytes);
    need(run_epochs(t, 3, &err), &err);
    need(ct_group_download(&t->group, params, t->memory.params, bytes, &err), &err);
    end(s);
    return params;
}

/* Whatever goes wrong while recording, the training goes on without, to the same parameters. */
static void training_goes_on_without_recording(void **state)
{
    (void)state;
    struct ct_err err = {0};
    int rc;
    struct setting eager = recorded;
    eager.record = false;
    struct scene *plain = run_with_failure(eager, 0, &rc);
    size_t bytes = plain->t.layout.count * sizeof(float);
    float *expected = finish_after_failure(plain);
    /* How many calls there are before the first recording. */
    int seen = 0;
    for (int n = 1; n < 2000 && seen < 20; n++) {
        struct scene *s = run_with_failure(recorded, n, &rc);
        struct ct_trainer *t = &s->t;
        if (rc != 0) {
            ctw_comm_abort(t->group.comm);
        } else {
            need(ct_group_sync(&t->group, &err), &err);
        }
        if (t->warnings.len == 0) {
            seen++; /* past the end of the recording */
            end(s);
        } else {
            assert_int_equal(rc, 0);
            assert_false(t->graph.on);
            float *params = finish_after_failure(s);
            assert_memory_equal(params, expected, bytes);
            free(params);
        }
    }
    assert_int_equal(seen, 20);
    free(expected);
}

static void a_dead_peer_ends_a_replay(void **state)
{
    (void)state;
    struct scene *s = begin(NULL, recorded);
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    need(run_epochs(t, 1, &err), &err);
    fake.stream_turns = FAKE_NEVER; /* the kernel waits for the peer, */
    fake.fail_after = 5;            /* until NCCL notices */
    fake.async_error = ncclRemoteError;
    assert_int_equal(run_epochs(t, 2, &err), CT_EPEER);
    assert_int_equal(fake.aborts, 1);
    /* In the same process, a new communicator and new recordings. */
    fake.stream_turns = 0;
    fake.async_error = 0;
    ct_cuda_graph_close(t);
    close_group(&t->group);
    open_group(&t->group, t->dev, LONG_MS);
    need(ct_group_alloc_gradients(&t->group, t->layout.count, &t->memory.grads, &err), &err);
    ct_buckets_init(&t->buckets, &t->layout, 1, &t->group, t->memory.grads);
    ct_buckets_update(&t->buckets, &t->optimizer, t->memory.params);
    need(ct_cuda_graph_open(t, &err), &err);
    int launches = fake.graph_launches;
    t->at.epoch = 1;
    need(run_epochs(t, 3, &err), &err);
    assert_true(fake.graph_launches > launches);
    end(s);
}

/* The communicator breaks while a step is recorded: what was kept must be gone before it is given
 * up, and the failure is the peers', not the recording's. */
static void a_dead_peer_ends_a_recording(void **state)
{
    (void)state;
    struct scene *s = begin(NULL, recorded);
    struct ct_trainer *t = &s->t;
    struct ct_err err = {0};
    size_t done;
    ct_sampler_shuffle(&t->sampler, 0);
    need(ct_cuda_graph_epoch(t, &err), &err);
    need(step(t, &done, &err), &err);
    t->at.batch++;
    fake.call_turns = FAKE_NEVER;
    fake.fail_after = 3;
    fake.async_error = ncclRemoteError;
    assert_int_equal(step(t, &done, &err), CT_EPEER);
    assert_int_equal(fake.aborts, 1);
    assert_int_equal(fake.capturing + fake.holding, 0);
    end(s);
}

/* What a step of the small model costs in launches: gathering, a product for each layer with bias
 * and ReLU in it, the loss with its gradient, for each layer a product with the gradient of its
 * bias and, but for the first, one with the mask of the layer below in it, and one update of
 * everything. The last layer's head is one launch in place of three, or of four with
 * the gradient of its weights. */
static void a_small_step_is_few_launches(void **state)
{
    (void)state;
    const size_t saved[] = {[CT_HEAD_WHOLE] = 3, [CT_HEAD_FUSED] = 2, [CT_HEAD_APART] = 0};
    for (enum ct_head_way way = CT_HEAD_WHOLE; way <= CT_HEAD_APART; way++) {
        struct scene *s = begin(NULL, (struct setting){.kind = CT_OPTIMIZER_ADAMW, .record = true});
        struct ct_err err = {0};
        size_t layers = s->t.layout.layer_count;
        s->t.dev->head_way = way;
        s->t.graph.steps = 2;
        need(run_epochs(&s->t, 1, &err), &err);
        /* Recorded are two steps and one; the loss counts them. */
        size_t step = 1 + layers + 1 + (2 * layers - 1) + 1 - saved[way];
        assert_int_equal(step, 11 - saved[way]);
        assert_int_equal(fake.captured - TIMED_NODES - fake.captured_collectives, 3 * step);
        end(s);
    }
}

/* The three ways to compute the last layer are replayed twice for each size of a batch, the whole
 * one and the epoch's short one, and never again. */
static void the_last_layer_is_timed_once(void **state)
{
    (void)state;
    struct scene *s = begin(NULL, recorded);
    struct ct_err err = {0};
    s->t.dev->head_way = CT_HEAD_FASTEST;
    need(run_epochs(&s->t, 1, &err), &err);
    assert_int_equal(fake.graph_launches, TIMED + 2 * 6 + 5);
    need(run_epochs(&s->t, 3, &err), &err);
    assert_int_equal(fake.graph_launches, TIMED + 2 * 6 + 5 + 6 + 6);
    end(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recorded_steps_are_the_queued_ones),
        cmocka_unit_test(several_steps_at_once),
        cmocka_unit_test(the_next_epoch_is_prepared_behind_this_one),
        cmocka_unit_test(a_batch_of_a_thousand_is_several_steps_at_once),
        cmocka_unit_test(training_goes_on_without_recording),
        cmocka_unit_test(a_dead_peer_ends_a_replay),
        cmocka_unit_test(a_dead_peer_ends_a_recording),
        cmocka_unit_test(a_small_step_is_few_launches),
        cmocka_unit_test(the_last_layer_is_timed_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
