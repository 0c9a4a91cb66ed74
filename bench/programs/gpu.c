/* SPDX-License-Identifier: Apache-2.0
 *
 * How long train's steps take on GPU 0, with random data that is already there:
 *
 *     bench-gpu mlp BATCH PRECISION FEATURES HIDDEN[,HIDDEN...] CLASSES SECONDS
 * [nccl|whole|fused|apart|consistent|plan|short]...
 *
 * Steps are queued by the trainer's own code, as CUDA graphs, and timed by whole epochs. "nccl"
 * sums gradients with NCCL although there is no peer; "consistent" cuts batches into eight shards;
 * "whole", "fused" and "apart" are the ways to compute the last layer, of which the fastest one is
 * taken when none is given. Prints one line of JSON; with "plan" also a line for each choice that
 * was made (struct ct_device_ops, explain()). "short" is for tests: epochs of four steps.
 * tools/gpu-check builds it without Meson and runs it.
 */
#include "common/alloc.h"
#include "common/clock.h"
#include "common/num.h"
#include "trainer/formats/rng.h"
#include "trainer/loop/cuda_graph.h"
#include "trainer/loop/train.h"
#include "worker/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Images of one epoch take no more than this on the device. */
#define IMAGES_MAX ((size_t)1 << 30)
#define SAMPLES ((size_t)60000) /* of MNIST */
#define EPOCHS_MAX 100000
#define SHARDS 8 /* --consistent's default */

struct bench {
    struct ct_trainer t;
    const char *precision;
    size_t features, classes;
    double seconds;
    bool nccl, consistent, plan, short_epochs;
    double open_ms, nccl_ms, first_ms; /* before the first figure */
    const char *head;
    void *images, *labels;
};

static void need(int rc, struct ct_err *err)
{
    if (rc != 0) {
        (void)fprintf(stderr, "bench-gpu: %s\n", err->text);
        exit(EXIT_FAILURE);
    }
}

static double now_ms(void)
{
    return (double)ct_clock_now(NULL) / 1e6;
}

static void *block(struct ct_device *dev, size_t bytes)
{
    struct ct_err err = {0};
    void *p = NULL;
    need(dev->ops->alloc(dev, bytes, &p, &err), &err);
    return p;
}

static void open_device(struct bench *b)
{
    struct ct_err err = {0};
    static const enum ct_precision all[] = {CT_PRECISION_F32, CT_PRECISION_TF32, CT_PRECISION_BF16,
                                            CT_PRECISION_FP8};
    b->open_ms = -now_ms();
    need(ct_device_open(CT_DEVICE_CUDA, 0, &b->t.dev, &err), &err);
    b->open_ms += now_ms();
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(ct_precision_name(all[i]), b->precision) == 0) {
            need(ct_device_set_precision(b->t.dev, all[i], &err), &err);
        }
    }
    b->t.group = (struct ct_group){.dev = b->t.dev, .world = 1};
    if (b->nccl) {
        const struct comm_setup alone = {
            .size = 1, .local_size = 1, .stream = b->t.dev->side, .timeout_ms = 60 * 1000};
        b->nccl_ms = -now_ms();
        need(comm_nccl_open(&alone, &b->t.group.comm, &err), &err);
        b->nccl_ms += now_ms();
    }
}

static void fill(struct bench *b, size_t samples)
{
    struct ct_trainer *t = &b->t;
    struct ct_err err = {0};
    size_t bytes = samples * b->features;
    uint8_t *host = ct_malloc(bytes + samples);
    float *params = ct_calloc(t->layout.count, sizeof *params);
    if (host == NULL || params == NULL) {
        need(ct_err_set(&err, CT_ENOMEM, "out of memory"), &err);
    }
    for (size_t i = 0; i < bytes; i++) {
        host[i] = (uint8_t)(ct_rng_u64(1, 1, i / 8) >> i % 8 * 8);
    }
    for (size_t i = 0; i < samples; i++) {
        host[bytes + i] = (uint8_t)(ct_rng_u64(1, 2, i) % b->classes);
    }
    b->images = block(t->dev, bytes);
    b->labels = block(t->dev, samples);
    need(t->dev->ops->upload(t->dev, b->images, host, bytes, &err), &err);
    need(t->dev->ops->upload(t->dev, b->labels, host + bytes, samples, &err), &err);
    t->data.train = (struct ct_device_dataset){
        .images = b->images, .labels = b->labels, .mean = 0.5f, .stddev = 0.3f};
    ct_layout_draw(&t->layout, 1, params);
    need(t->dev->ops->upload(t->dev, t->memory.params, params, t->layout.count * sizeof *params,
                             &err),
         &err);
    if (t->memory.narrow != NULL) {
        need(t->dev->ops->narrow(t->dev, t->layout.count, t->memory.params, t->memory.narrow, &err),
             &err);
    }
    ct_free(host);
    ct_free(params);
}

static void open_training(struct bench *b, size_t batch, const struct ct_hidden *hidden)
{
    struct ct_trainer *t = &b->t;
    struct ct_err err = {0};
    t->options = (struct ct_train_options){.lr = 0.001, .epochs = EPOCHS_MAX, .bucket_mb = 25};
    t->optimizer = (struct ct_optimizer){.kind = CT_OPTIMIZER_ADAMW, .weight_decay = 0.01f};
    need(ct_layout_init(&t->layout, b->features, hidden, b->classes, &err), &err);
    size_t samples = b->short_epochs ? 4 * batch : SAMPLES;
    while (samples * b->features > IMAGES_MAX && samples > 4 * batch) {
        samples /= 2;
    }
    samples -= samples > batch ? samples % batch : 0;
    if (ct_sampler_init(&t->sampler, samples, batch, 0, 1, 1) != 0) {
        need(ct_err_set(&err, CT_ENOMEM, "out of memory"), &err);
    }
    if (b->consistent) {
        ct_shards_init(&t->shards, SHARDS, 0, 1);
    }
    size_t rows = b->consistent ? ct_shards_rows(&t->shards, batch) : batch;
    need(ct_model_init(&t->model, &t->layout, t->dev, rows, &err), &err);
    need(ct_group_alloc_gradients(&t->group, t->layout.count, &t->memory.grads, &err), &err);
    t->memory.params = block(t->dev, t->layout.count * sizeof(float));
    t->memory.totals = block(t->dev, 2 * sizeof *t->memory.totals);
    for (size_t i = 0; i < CT_OPTIMIZER_STATES_MAX; i++) {
        t->optimizer.state[i] = block(t->dev, t->layout.count * sizeof(float));
    }
    if (ct_precision_narrow(t->dev->precision)) {
        t->memory.narrow = block(t->dev, t->layout.count * sizeof *t->memory.narrow);
        t->model.narrow = t->optimizer.narrow = t->memory.narrow;
    }
    size_t bucket = b->nccl ? t->options.bucket_mb << 20 : CT_BUCKET_UPDATE_BYTES;
    ct_buckets_init(&t->buckets, &t->layout, bucket, &t->group, t->memory.grads);
    ct_buckets_update(&t->buckets, &t->optimizer, t->memory.params);
    t->model.layer_done = ct_buckets_layer_done;
    t->model.layer_done_data = &t->buckets;
    fill(b, samples);
    need(ct_cuda_graph_open(t, &err), &err);
}

static size_t run_epoch(struct ct_trainer *t)
{
    struct ct_err err = {0};
    size_t batches = ct_sampler_batches(&t->sampler);
    ct_sampler_shuffle(&t->sampler, (unsigned)t->at.epoch);
    t->at.batch = 0;
    need(t->dev->ops->clear(t->dev, t->memory.totals, 2 * sizeof *t->memory.totals, &err), &err);
    need(ct_cuda_graph_epoch(t, &err), &err);
    while (t->at.batch < batches) {
        size_t done;
        need(ct_cuda_graph_run(t, batches - t->at.batch, &done, &err), &err);
        if (done == 0) {
            size_t rows, global;
            const uint32_t *index = ct_sampler_batch(&t->sampler, t->at.batch, &rows, &global);
            t->optimizer.lr = (float)ct_trainer_rate(t, t->at.batch);
            need(ct_trainer_queue(t, index, rows, global, &err), &err);
            t->optimizer.step++;
            done = 1;
        }
        t->at.batch += done;
    }
    need(ct_cuda_graph_prepare(t, &err), &err);
    need(ct_group_sync(&t->group, &err), &err);
    t->at.epoch++;
    return batches;
}

struct figures {
    double best, mean; /* microseconds of a step, in the fastest epoch and in all */
    double loss;
};

static void tell(struct bench *b, const char *hidden, const struct figures *f)
{
    const struct ct_trainer *t = &b->t;
    printf("{\"program\": \"train\", \"features\": %zu, \"hidden\": \"%s\", \"classes\": %zu, "
           "\"batch\": %zu, \"precision\": \"%s\", \"nccl\": %s, \"consistent\": %s, "
           "\"head\": \"%s\", \"recorded\": %s, ",
           b->features, hidden, b->classes, t->sampler.batch, b->precision,
           b->nccl ? "true" : "false", b->consistent ? "true" : "false", b->head,
           t->graph.on ? "true" : "false");
    printf("\"us_per_step\": %.3f, \"us_mean\": %.3f, \"samples_per_s\": %.0f, \"loss\": %.4f, "
           "\"open_ms\": %.1f, \"nccl_ms\": %.1f, \"first_epoch_ms\": %.1f, "
           "\"steps_of_an_epoch\": %zu}\n",
           f->best, f->mean, 1e6 * (double)t->sampler.batch / f->best, f->loss, b->open_ms,
           b->nccl_ms, b->first_ms, ct_sampler_batches(&t->sampler));
}

static void tell_plan(struct bench *b)
{
    struct ct_err err = {0};
    struct ct_buf plan = CT_BUF_INIT;
    if (b->plan && b->t.dev->ops->explain != NULL) {
        need(b->t.dev->ops->explain(b->t.dev, &plan, &err), &err);
        printf("%s", ct_buf_cstr(&plan));
    }
    ct_buf_fini(&plan);
}

/* The fastest epoch counts: others were disturbed, by clocks that rise or by somebody else. */
static void run(struct bench *b, const char *hidden)
{
    struct ct_trainer *t = &b->t;
    struct ct_err err = {0};
    double sum = 0, loss[2];
    int epochs = 0;
    struct figures f = {0};
    int64_t until = ct_clock_now(NULL) + (int64_t)(b->seconds * (double)CT_NS_PER_S);
    b->first_ms = -now_ms();
    (void)run_epoch(t); /* chooses kernels and records */
    b->first_ms += now_ms();
    for (; epochs < 3 || ct_clock_now(NULL) < until; epochs++) {
        int64_t start = ct_clock_now(NULL);
        size_t steps = run_epoch(t);
        double us = (double)(ct_clock_now(NULL) - start) / 1e3 / (double)steps;
        f.best = epochs == 0 || us < f.best ? us : f.best;
        sum += us;
    }
    if (t->warnings.len > 0) {
        (void)fprintf(stderr, "bench-gpu: %s", ct_buf_cstr(&t->warnings));
    }
    need(t->dev->ops->download(t->dev, loss, t->memory.totals, sizeof loss, &err), &err);
    f.mean = sum / epochs;
    f.loss = loss[0] / (double)t->sampler.count;
    tell(b, hidden, &f);
    tell_plan(b);
}

static void close_training(struct bench *b)
{
    struct ct_trainer *t = &b->t;
    ct_cuda_graph_close(t);
    ct_model_fini(&t->model);
    void *blocks[] = {b->images,
                      b->labels,
                      t->memory.params,
                      t->memory.totals,
                      t->memory.narrow,
                      t->optimizer.state[0],
                      t->optimizer.state[1]};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        t->dev->ops->release(t->dev, blocks[i]);
    }
    ct_group_close(&t->group);
    ct_sampler_fini(&t->sampler);
    ct_buf_fini(&t->warnings);
    t->dev->ops->close(t->dev);
}

static size_t number(const char *text, struct ct_err *err)
{
    int64_t value = 0;
    need(ct_parse_i64(text, 1, 1 << 20, &value) == 0
             ? 0
             : ct_err_set(err, CT_EINVAL, "'%s' is not a size", text),
         err);
    return (size_t)value;
}

static void usage(void)
{
    (void)fprintf(stderr, "usage: bench-gpu mlp BATCH PRECISION FEATURES HIDDEN[,HIDDEN...] "
                          "CLASSES SECONDS [nccl|fused|apart|consistent|plan|short]...\n");
    exit(2);
}

int main(int argc, char *argv[])
{
    struct ct_err err = {0};
    if (argc < 8 || strcmp(argv[1], "mlp") != 0) {
        usage();
    }
    struct bench b = {.precision = argv[3], .head = "fastest"};
    for (int i = 8; i < argc; i++) {
        if (strcmp(argv[i], "nccl") == 0) {
            b.nccl = true;
        } else if (strcmp(argv[i], "consistent") == 0) {
            b.consistent = true;
        } else if (strcmp(argv[i], "plan") == 0) {
            b.plan = true;
        } else if (strcmp(argv[i], "short") == 0) {
            b.short_epochs = true;
        } else if (strcmp(argv[i], "whole") == 0 || strcmp(argv[i], "fused") == 0 ||
                   strcmp(argv[i], "apart") == 0) {
            b.head = argv[i];
        } else {
            usage();
        }
    }
    struct ct_hidden hidden = {0};
    size_t batch = number(argv[2], &err);
    b.features = number(argv[4], &err);
    b.classes = number(argv[6], &err);
    need(ct_parse_double(argv[7], 0, 600, &b.seconds) == 0
             ? 0
             : ct_err_set(&err, CT_EINVAL, "'%s' is not a time", argv[7]),
         &err);
    for (const char *p = argv[5]; p != NULL && hidden.count < CT_HIDDEN_MAX;) {
        char item[16];
        size_t len = strcspn(p, ",");
        (void)snprintf(item, sizeof item, "%.*s", (int)len, p);
        hidden.size[hidden.count++] = number(item, &err);
        p = p[len] == ',' ? p + len + 1 : NULL;
    }
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); /* as train does */
    open_device(&b);
    b.t.dev->head_way = strcmp(b.head, "whole") == 0   ? CT_HEAD_WHOLE
                        : strcmp(b.head, "fused") == 0 ? CT_HEAD_FUSED
                        : strcmp(b.head, "apart") == 0 ? CT_HEAD_APART
                                                       : CT_HEAD_FASTEST;
    open_training(&b, batch, &hidden);
    run(&b, argv[5]);
    close_training(&b);
    return EXIT_SUCCESS;
}
