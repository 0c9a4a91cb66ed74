/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare matrix products of a training step on GPU 0, without biases, masks, copies and updates:
 * what a step cannot be faster than.
 *
 *     bench-gpu-gemm BATCH PRECISION SIZE,SIZE,... SECONDS      features, hidden layers, classes
 *
 * Each product is run by the kernel that the plug-in chooses for it. All are recorded as a CUDA
 * graph, as the step itself is, so that small products are timed and not the host. They run for so
 * many seconds, since a chip under load lowers its clock; with 0 only three times. Prints
 * one line of JSON.
 */
#include "common/clock.h"
#include "common/num.h"
#include "kernels/cuda/cuda_plugin.h"
#include "kernels/cuda/gemm_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SIZES_MAX 34
#define LAYERS_MAX (SIZES_MAX - 1)
/* A recording takes about this long at 1e6 multiplications a microsecond, and so does not wait for
 * the host; a round, in which the clock is looked at, some tens of milliseconds. */
#define RECORDED_WORK 1e9
#define STEPS_MAX 32
#define ROUND_WORK 4e10

extern const struct ct_cuda_plugin ct_cuda_plugin;

static struct ct_err err;

static void need(int rc)
{
    if (rc != 0) {
        (void)fprintf(stderr, "bench-gpu-gemm: %s\n", err.text);
        exit(EXIT_FAILURE);
    }
}

/* Random numbers: on zeros the chip draws less power and runs faster. */
static void *numbers(struct ct_device *dev, size_t count)
{
    void *p = NULL, *narrow = NULL;
    float *host = malloc(count * sizeof *host);
    need(host != NULL ? 0 : ct_err_set(&err, CT_ENOMEM, "out of memory"));
    uint64_t state = count;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        host[i] = (float)(int32_t)(state >> 32) / 2147483648.0f;
    }
    need(dev->ops->alloc(dev, count * sizeof *host, &p, &err));
    need(dev->ops->upload(dev, p, host, count * sizeof *host, &err));
    free(host);
    if (!ct_precision_narrow(dev->precision)) {
        return p;
    }
    need(dev->ops->alloc(dev, count * sizeof(uint16_t), &narrow, &err));
    need(dev->ops->narrow(dev, count, p, narrow, &err));
    need(dev->ops->sync(dev, &err));
    dev->ops->release(dev, p);
    return narrow;
}

struct layer {
    size_t in, out;
    bool first, last;
    void *x, *w, *dy, *y, *dw, *dx;
};

struct bench {
    struct ct_device *dev;
    struct ct_gemm_cache *cache;
    size_t batch, count;
    struct layer layers[LAYERS_MAX];
};

static void open_layer(struct bench *b, struct layer *l)
{
    const struct ct_device_ops *ops = b->dev->ops;
    l->x = numbers(b->dev, b->batch * l->in);
    l->w = numbers(b->dev, l->out * l->in);
    l->dy = numbers(b->dev, b->batch * l->out);
    need(ops->alloc(b->dev, b->batch * l->out * sizeof(float), &l->y, &err));
    need(ops->alloc(b->dev, l->out * l->in * sizeof(float), &l->dw, &err));
    need(ops->alloc(b->dev, b->batch * l->in * sizeof(float), &l->dx, &err));
}

static void close_layer(struct bench *b, struct layer *l)
{
    void *all[] = {l->x, l->w, l->dy, l->y, l->dw, l->dx};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        b->dev->ops->release(b->dev, all[i]);
    }
}

static void product(struct bench *b, const struct layer *l, enum ct_gemm_product which, bool wide,
                    const struct ct_gemm_operands *o)
{
    const struct ct_gemm_key k = {.product = which,
                                  .precision = b->dev->precision,
                                  .batch = b->batch,
                                  .in = l->in,
                                  .out = l->out,
                                  .wide = wide};
    need(ct_gemm_run(b->cache, ct_cuda_of(b->dev), k, o, &err));
}

/* In a step's order: forward, then for each layer from the last one dw and dx. */
static void queue_step(struct bench *b)
{
    for (size_t i = 0; i < b->count; i++) {
        const struct layer *l = &b->layers[i];
        product(b, l, CT_PRODUCT_Y, l->last,
                &(struct ct_gemm_operands){.a = l->w, .b = l->x, .d = l->y});
    }
    for (size_t i = b->count; i-- > 0;) {
        const struct layer *l = &b->layers[i];
        product(b, l, CT_PRODUCT_DW, true,
                &(struct ct_gemm_operands){.a = l->x, .b = l->dy, .d = l->dw});
        if (!l->first) {
            product(b, l, CT_PRODUCT_DX, false,
                    &(struct ct_gemm_operands){.a = l->w, .b = l->dy, .d = l->dx});
        }
    }
}

static double work_of(const struct bench *b)
{
    double work = 0;
    for (size_t i = 0; i < b->count; i++) {
        work += 3.0 * (double)b->batch * (double)b->layers[i].in * (double)b->layers[i].out;
    }
    return work;
}

/* Microseconds of a step in the fastest round, and on average. */
static double run(struct bench *b, double seconds, double *mean)
{
    const struct ct_device_ops *ops = b->dev->ops;
    struct ct_recording *steps = NULL;
    int count = 1, replays = 1, rounds = 0;
    for (; count < STEPS_MAX && 2 * count * work_of(b) <= RECORDED_WORK;) {
        count *= 2;
    }
    for (; seconds > 0 && replays < 1000 && 2 * replays * count * work_of(b) <= ROUND_WORK;) {
        replays *= 2;
    }
    queue_step(b); /* chooses the kernels */
    need(ops->sync(b->dev, &err));
    need(ops->record(b->dev, &err));
    for (int i = 0; i < count; i++) {
        queue_step(b);
    }
    need(ops->record_end(b->dev, &steps, &err));
    need(ops->replay(b->dev, steps, &err));
    need(ops->sync(b->dev, &err));
    double best = 0, sum = 0;
    int64_t until = ct_clock_now(NULL) + (int64_t)(seconds * (double)CT_NS_PER_S);
    for (; rounds < 3 || ct_clock_now(NULL) < until; rounds++) {
        int64_t start = ct_clock_now(NULL);
        for (int i = 0; i < replays; i++) {
            need(ops->replay(b->dev, steps, &err));
        }
        need(ops->sync(b->dev, &err));
        double us = (double)(ct_clock_now(NULL) - start) / 1e3 / replays / count;
        best = rounds == 0 || us < best ? us : best;
        sum += us;
    }
    ops->forget(b->dev, steps);
    *mean = sum / rounds;
    return best;
}

static void parse_sizes(struct bench *b, const char *text)
{
    int64_t size = 0, before = 0;
    for (const char *p = text; p != NULL; before = size) {
        char item[16];
        size_t len = strcspn(p, ",");
        (void)snprintf(item, sizeof item, "%.*s", (int)len, p);
        need(ct_parse_i64(item, 1, 1 << 20, &size) == 0 && b->count < LAYERS_MAX
                 ? 0
                 : ct_err_set(&err, CT_EINVAL, "'%s' is not a size", item));
        if (before > 0) {
            b->layers[b->count++] = (struct layer){.in = (size_t)before, .out = (size_t)size};
        }
        p = p[len] == ',' ? p + len + 1 : NULL;
    }
    need(b->count > 0 ? 0 : ct_err_set(&err, CT_EINVAL, "two sizes make a layer"));
    b->layers[0].first = true;
    b->layers[b->count - 1].last = true;
}

int main(int argc, char *argv[])
{
    static const enum ct_precision all[] = {CT_PRECISION_F32, CT_PRECISION_TF32, CT_PRECISION_BF16};
    struct bench b = {0};
    int64_t batch;
    double seconds, mean = 0;
    if (argc != 5 || ct_parse_i64(argv[1], 1, 1 << 20, &batch) != 0 ||
        ct_parse_double(argv[4], 0, 600, &seconds) != 0) {
        (void)fprintf(stderr, "usage: bench-gpu-gemm BATCH f32|tf32|bf16 SIZE,SIZE,... SECONDS\n");
        return 2;
    }
    parse_sizes(&b, argv[3]);
    b.batch = (size_t)batch;
    need(ct_cuda_plugin.open(0, &b.dev, &err));
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(ct_precision_name(all[i]), argv[2]) == 0 && all[i] != b.dev->precision) {
            need(b.dev->ops->set_precision(b.dev, all[i], &err));
        }
    }
    need(ct_gemm_cache_new(&b.cache, &err));
    for (size_t i = 0; i < b.count; i++) {
        open_layer(&b, &b.layers[i]);
    }
    double us = run(&b, seconds, &mean);
    printf("{\"program\": \"gemm\", \"sizes\": \"%s\", \"batch\": %lld, \"precision\": \"%s\", "
           "\"us_per_step\": %.3f, \"us_mean\": %.3f}\n",
           argv[3], (long long)batch, ct_precision_name(b.dev->precision), us, mean);
    for (size_t i = 0; i < b.count; i++) {
        close_layer(&b, &b.layers[i]);
    }
    ct_gemm_cache_free(b.cache);
    b.dev->ops->close(b.dev);
    return EXIT_SUCCESS;
}
