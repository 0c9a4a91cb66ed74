/* SPDX-License-Identifier: Apache-2.0
 *
 * Times one training step of an MLP (784-512-10, SGD) on the CPU table, operation by operation, and
 * the share of the bare matrix products in it. Every figure is the least of many rounds, so that a
 * busy machine disturbs it little.
 *
 * bench-gemm [--bf16] [BATCH...]        default 32 128 1024
 */
#include "kernels/cpu/cpu_gemm.h"
#include "common/clock.h"
#include "common/num.h"
#include "kernels/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IN 784
#define HIDDEN 512
#define OUT 10
#define SAMPLES 60000
#define BATCH_MAX 65536

enum op { GATHER, LINEAR1, HEAD, GRAD1, SGD, ADAMW, LINEAR2, LOSS, GRAD2, STEP, GEMM, OPS };

static const char *const op_names[OPS] = {
    [GATHER] = "gather",
    [LINEAR1] = "linear1",
    [HEAD] = "head",
    [GRAD1] = "grad1",
    [SGD] = "sgd",
    [ADAMW] = "adamw",
    [LINEAR2] = "(of head: linear2",
    [LOSS] = "loss",
    [GRAD2] = "grad2)",
    [STEP] = "step",
    [GEMM] = "gemms",
};

struct bench {
    struct ct_device *dev;
    struct ct_gemm *gemm;
    uint32_t *index;
    struct ct_gather gather;
    struct ct_linear linear1, linear2;
    struct ct_loss loss;
    struct ct_linear_grad grad1, grad2;
    struct ct_sgd sgd;
    struct ct_adamw adamw;
};

static void need(int rc, const struct ct_err *err)
{
    if (rc != 0) {
        (void)fprintf(stderr, "bench-gemm: %s\n", err->text);
        exit(1);
    }
}

static void *space(struct bench *b, size_t bytes)
{
    struct ct_err err = {0};
    void *ptr = NULL;
    need(b->dev->ops->alloc(b->dev, bytes, &ptr, &err), &err);
    return ptr;
}

/* Random numbers: real kernels slow down neither on zeros nor on subnormals. */
static float *noise(struct bench *b, size_t count)
{
    float *p = space(b, count * sizeof(float));
    for (size_t i = 0; i < count; i++) {
        p[i] = (float)(random() % 2001 - 1000) / 20000.0f;
    }
    return p;
}

/* The same as the device keeps activations. */
static void *activations(struct bench *b, size_t count)
{
    float *wide = noise(b, count);
    if (b->dev->precision == CT_PRECISION_F32) {
        return wide;
    }
    struct ct_err err = {0};
    uint16_t *narrow = space(b, count * sizeof(*narrow));
    need(b->dev->ops->narrow(b->dev, count, wide, narrow, &err), &err);
    return narrow;
}

static void prepare(struct bench *b, size_t batch)
{
    size_t w1 = (size_t)HIDDEN * IN, w2 = (size_t)OUT * HIDDEN, count = w1 + HIDDEN + w2 + OUT;
    uint8_t *images = space(b, (size_t)SAMPLES * IN), *labels = space(b, SAMPLES);
    for (size_t i = 0; i < (size_t)SAMPLES * IN; i++) {
        images[i] = (uint8_t)random();
    }
    b->index = space(b, batch * sizeof(*b->index));
    for (size_t i = 0; i < SAMPLES; i++) {
        labels[i] = (uint8_t)(random() % OUT);
    }
    float *param = noise(b, count), *grad = noise(b, count), *v = noise(b, count);
    float *m = noise(b, count), *logits = noise(b, batch * OUT);
    void *x = activations(b, batch * IN), *h = activations(b, batch * HIDDEN);
    void *dlogits = activations(b, batch * OUT), *dh = activations(b, batch * HIDDEN);
    uint16_t *narrow = b->dev->precision == CT_PRECISION_BF16 ? activations(b, count) : NULL;
    const void *weight1 = narrow != NULL ? (const void *)narrow : param;
    const void *weight2 =
        narrow != NULL ? (const void *)(narrow + w1 + HIDDEN) : param + w1 + HIDDEN;
    uint8_t *y = space(b, batch);
    double *totals = space(b, 2 * sizeof(double));
    b->gather = (struct ct_gather){images, labels, b->index, batch, IN, 0.286f, 0.353f, x, y};
    b->linear1 = (struct ct_linear){batch, IN, HIDDEN, x, weight1, param + w1, h, true, false};
    b->linear2 = (struct ct_linear){batch,  HIDDEN, OUT, h, weight2, param + w1 + HIDDEN + w2,
                                    logits, false,  true};
    b->loss = (struct ct_loss){batch, OUT, logits, y, 1.0f / (float)batch, dlogits, totals};
    b->grad2 = (struct ct_linear_grad){batch,
                                       HIDDEN,
                                       OUT,
                                       h,
                                       b->linear2.w,
                                       dlogits,
                                       h,
                                       grad + w1 + HIDDEN,
                                       grad + w1 + HIDDEN + w2,
                                       dh};
    b->grad1 =
        (struct ct_linear_grad){batch, IN, HIDDEN, x, weight1, dh, NULL, grad, grad + w1, NULL};
    b->sgd = (struct ct_sgd){count, param, v, grad, 0.01f, 0.9f, 1e-4f, narrow};
    b->adamw =
        (struct ct_adamw){count, param, m, v, grad, 1e-4f, 0.9f, 0.999f, 1e-8f, 1e-2f, 1, narrow};
}

static int run(struct bench *b, enum op op, struct ct_err *err)
{
    const struct ct_device_ops *ops = b->dev->ops;
    int rc = 0;
    switch (op) {
    case GATHER:
        return ops->gather(b->dev, &b->gather, err);
    case LINEAR1:
        return ops->linear(b->dev, &b->linear1, err);
    case HEAD:
        return ops->head(b->dev,
                         &(struct ct_head){.linear = b->linear2, .loss = b->loss, .grad = b->grad2},
                         err);
    case LINEAR2:
        return ops->linear(b->dev, &b->linear2, err);
    case LOSS:
        return ops->loss(b->dev, &b->loss, err);
    case GRAD2:
        return ops->linear_grad(b->dev, &b->grad2, err);
    case GRAD1:
        return ops->linear_grad(b->dev, &b->grad1, err);
    case SGD:
        return ops->sgd(b->dev, &b->sgd, err);
    case ADAMW:
        return ops->adamw(b->dev, &b->adamw, err);
    case STEP:
        for (enum op part = GATHER; part <= SGD && rc == 0; part++) {
            rc = run(b, part, err);
        }
        return rc;
    case GEMM:
        rc = ct_gemm_linear(b->gemm, &b->linear1, err);
        rc = rc != 0 ? rc : ct_gemm_linear(b->gemm, &b->linear2, err);
        rc = rc != 0 ? rc : ct_gemm_dw(b->gemm, &b->grad2, err);
        rc = rc != 0 ? rc : ct_gemm_dx(b->gemm, &b->grad2, err);
        return rc != 0 ? rc : ct_gemm_dw(b->gemm, &b->grad1, err);
    case OPS:
    default:
        return 0;
    }
}

/* Other samples each time, as in training: they are not in the caches. */
static void draw(struct bench *b, size_t batch)
{
    for (size_t i = 0; i < batch; i++) {
        b->index[i] = (uint32_t)(random() % SAMPLES);
    }
}

static double now_us(void)
{
    return (double)ct_clock_now(NULL) / 1e3;
}

static void measure(size_t batch, enum ct_precision precision)
{
    struct ct_err err = {0};
    struct bench b = {0};
    double best[OPS];
    need(ct_device_open(CT_DEVICE_CPU, 0, &b.dev, &err), &err);
    need(ct_device_set_precision(b.dev, precision, &err), &err);
    need(ct_gemm_new(ct_cpu_loops_get(0), &b.gemm, &err), &err);
    need(ct_gemm_set_precision(b.gemm, precision, &err), &err);
    prepare(&b, batch);
    size_t rounds = 40960 / batch < 40 ? 40 : 40960 / batch;
    for (int op = 0; op < OPS; op++) {
        best[op] = 1e30;
    }
    for (size_t round = 0; round < rounds; round++) {
        draw(&b, batch);
        for (int op = STEP; op < OPS; op++) {
            double start = now_us();
            need(run(&b, (enum op)op, &err), &err);
            double took = now_us() - start;
            best[op] = took < best[op] ? took : best[op];
        }
        draw(&b, batch);
        for (int op = 0; op < STEP; op++) { /* in the step's order, caches as there */
            double start = now_us();
            need(run(&b, (enum op)op, &err), &err);
            double took = now_us() - start;
            best[op] = took < best[op] ? took : best[op];
        }
    }
    printf("batch %5zu %s on %s, us:", batch, precision == CT_PRECISION_BF16 ? "bf16" : "f32",
           b.dev->name);
    for (int op = 0; op < OPS; op++) {
        printf(" %s %.1f", op_names[op], best[op]);
    }
    printf(" step/gemms %.3f\n", best[STEP] / best[GEMM]);
    /* The buffers go with the process. */
    ct_gemm_free(b.gemm);
    b.dev->ops->close(b.dev);
}

int main(int argc, char **argv)
{
    static const size_t defaults[] = {32, 128, 1024};
    enum ct_precision precision = CT_PRECISION_F32;
    if (argc > 1 && strcmp(argv[1], "--bf16") == 0) {
        precision = CT_PRECISION_BF16;
        argc--, argv++;
    }
    if (argc == 1) {
        for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++) {
            measure(defaults[i], precision);
        }
    }
    for (int i = 1; i < argc; i++) {
        int batch;
        if (ct_parse_int(argv[i], 1, BATCH_MAX, &batch) != 0) {
            (void)fprintf(stderr, "bench-gemm: bad batch size \"%s\": 1 to %d\n", argv[i],
                          BATCH_MAX);
            return 2;
        }
        measure((size_t)batch, precision);
    }
    return 0;
}
