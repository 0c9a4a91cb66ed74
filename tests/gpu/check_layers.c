/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory, linear layers and the gathering of batches.
 */
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

#include "common/alloc.h"

#include <string.h>

/* Sizes around vector, tile and warp widths; a layer of one; the real first layer's 784. */
static const size_t odd_sizes[] = {1, 3, 17, 33, 64, 130};
#define ODD_SIZES (sizeof(odd_sizes) / sizeof(odd_sizes[0]))

/* ---- linear --------------------------------------------------------------------------------- */

static void check_linear_size(struct ct_device *dev, size_t batch, size_t in, size_t out, bool relu)
{
    struct ct_err err = {0};
    struct ct_random rng = {batch * 1000003 + in * 1009 + out};
    struct test_tensor x = test_tensor_filled(dev, batch * in, &rng),
                       w = test_tensor_filled(dev, out * in, &rng);
    struct test_tensor b = test_tensor_filled(dev, out, &rng),
                       y = test_tensor_poisoned(dev, batch * out);
    struct ct_linear op = {batch, in, out, x.data, w.data, b.data, y.data, relu, false};
    ct_check_need(dev->ops->linear(dev, &op, &err), &err);
    test_tensor_pull(&y);
    double *ref = ct_check_doubles(batch * out);
    op.x = x.host, op.w = w.host, op.b = b.host;
    ct_ref_linear(&op, ref);
    test_tensor_expect("y", &y, ref, ct_check_sum_tol(in));
    ct_free(ref);
    test_tensor_drop(&x), test_tensor_drop(&w), test_tensor_drop(&b), test_tensor_drop(&y);
}

static void check_linear(struct ct_device *dev)
{
    for (size_t b = 0; b < ODD_SIZES; b++) {
        for (size_t i = 0; i < ODD_SIZES; i++) {
            for (size_t o = 0; o < ODD_SIZES; o++) {
                check_linear_size(dev, odd_sizes[b], odd_sizes[i], odd_sizes[o], (b + i + o) % 2);
            }
        }
    }
    check_linear_size(dev, 32, 784, 512, true);
    check_linear_size(dev, 7, 2048, 10, false);
}

static void check_grad_size(struct ct_device *dev, size_t batch, size_t in, size_t out, bool dx,
                            bool mask)
{
    struct ct_err err = {0};
    struct ct_random rng = {batch * 1000003 + in * 1009 + out + 1};
    struct test_tensor x = test_tensor_filled(dev, batch * in, &rng),
                       w = test_tensor_filled(dev, out * in, &rng);
    struct test_tensor dy = test_tensor_filled(dev, batch * out, &rng);
    /* Exact zeros are what a ReLU leaves, and the edge of the comparison. */
    for (size_t i = 0; i < x.count; i += 3) {
        x.host[i] = 0.0f;
    }
    test_tensor_push(&x);
    struct test_tensor dw = test_tensor_poisoned(dev, out * in),
                       db = test_tensor_poisoned(dev, out);
    struct test_tensor dxs = test_tensor_poisoned(dev, batch * in);
    struct ct_linear_grad op = {.batch = batch, .in = in, .out = out, .x = x.data, .w = w.data};
    op.dy = dy.data, op.mask = mask ? x.data : NULL, op.dw = dw.data, op.db = db.data;
    op.dx = dx ? dxs.data : NULL;
    ct_check_need(dev->ops->linear_grad(dev, &op, &err), &err);
    test_tensor_pull(&dw), test_tensor_pull(&db), test_tensor_pull(&dxs);
    double *rdw = ct_check_doubles(out * in), *rdb = ct_check_doubles(out),
           *rdx = ct_check_doubles(batch * in);
    op.x = x.host, op.w = w.host, op.dy = dy.host, op.mask = mask ? x.host : NULL;
    ct_ref_linear_grad(&op, rdw, rdb, rdx);
    test_tensor_expect("dw", &dw, rdw, ct_check_sum_tol(batch));
    test_tensor_expect("db", &db, rdb, ct_check_sum_tol(batch));
    if (dx) {
        test_tensor_expect("dx", &dxs, rdx, ct_check_sum_tol(out));
    }
    ct_free(rdw), ct_free(rdb), ct_free(rdx);
    test_tensor_drop(&x), test_tensor_drop(&w), test_tensor_drop(&dy), test_tensor_drop(&dw),
        test_tensor_drop(&db), test_tensor_drop(&dxs);
}

static void check_linear_grad(struct ct_device *dev)
{
    for (size_t b = 0; b < ODD_SIZES; b++) {
        for (size_t i = 0; i < ODD_SIZES; i++) {
            for (size_t o = 0; o < ODD_SIZES; o++) {
                check_grad_size(dev, odd_sizes[b], odd_sizes[i], odd_sizes[o], (b + i + o) % 4,
                                (b + i + o) % 2);
            }
        }
    }
    check_grad_size(dev, 32, 784, 512, false, false);
    check_grad_size(dev, 1000, 512, 10, true, true);
    check_grad_size(dev, 40, 300, 300, true, true);
}

static void check_linear_empty_batch(struct ct_device *dev)
{
    check_linear_size(dev, 0, 17, 3, true);
    check_grad_size(dev, 0, 17, 3, true, true); /* dw and db must become 0 */
}

/* More shapes than any cache of them holds, each used again after it was dropped. */
static void check_linear_many_shapes(struct ct_device *dev)
{
    for (int round = 0; round < 2; round++) {
        for (size_t batch = 1; batch <= 100; batch++) {
            check_linear_size(dev, batch, 5, 4, true);
        }
    }
}

/* ---- gather --------------------------------------------------------------------------------- */

static void check_gather_size(struct ct_device *dev, size_t samples, size_t batch, size_t features)
{
    struct ct_err err = {0};
    struct ct_random rng = {samples + features};
    uint8_t *images = ct_malloc(samples * features), *labels = ct_malloc(samples);
    uint32_t *index = ct_malloc(batch * sizeof(*index));
    CHECK(images != NULL && labels != NULL && index != NULL);
    for (size_t i = 0; i < samples * features; i++) {
        images[i] = (uint8_t)ct_random_below(&rng, 256);
    }
    for (size_t i = 0; i < samples; i++) {
        labels[i] = (uint8_t)ct_random_below(&rng, 256);
    }
    for (size_t i = 0; i < batch; i++) {
        index[i] = (uint32_t)ct_random_below(&rng, samples);
    }
    void *dimages, *dlabels, *dy;
    ct_check_need(dev->ops->alloc(dev, samples * features, &dimages, &err), &err);
    ct_check_need(dev->ops->alloc(dev, samples, &dlabels, &err), &err);
    ct_check_need(dev->ops->alloc(dev, batch + 1, &dy, &err), &err);
    ct_check_need(dev->ops->upload(dev, dimages, images, samples * features, &err), &err);
    ct_check_need(dev->ops->upload(dev, dlabels, labels, samples, &err), &err);
    struct test_tensor x = test_tensor_poisoned(dev, batch * features);
    struct ct_gather op = {dimages, dlabels, index, batch, features, 0.2860f, 0.3530f, x.data, dy};
    uint8_t *y = ct_malloc(batch + 1);
    double *ref = ct_check_doubles(batch * features);
    CHECK(y != NULL);
    for (size_t b = 0; b < batch; b++) {
        for (size_t i = 0; i < features; i++) {
            double pixel = (double)images[index[b] * features + i] / 255.0;
            ref[b * features + i] = (pixel - (double)op.mean) / (double)op.stddev;
        }
    }
    uint32_t *saved = ct_malloc(batch * sizeof(*saved));
    CHECK(saved != NULL);
    memcpy(saved, index, batch * sizeof(*index));
    ct_check_need(dev->ops->gather(dev, &op, &err), &err);
    memset(index, 0xff, batch * sizeof(*index)); /* the call may no longer need it */
    test_tensor_pull(&x);
    ct_check_need(dev->ops->download(dev, y, dy, batch + 1, &err), &err);
    test_tensor_expect("x", &x, ref, 5e-7);
    for (size_t b = 0; b < batch; b++) {
        CHECK(y[b] == labels[saved[b]]);
    }
    CHECK(y[batch] == 0);
    test_tensor_drop(&x);
    dev->ops->release(dev, dimages), dev->ops->release(dev, dlabels), dev->ops->release(dev, dy);
    ct_free(images), ct_free(labels), ct_free(index), ct_free(saved), ct_free(ref), ct_free(y);
}

static void check_gather(struct ct_device *dev)
{
    check_gather_size(dev, 1, 1, 1);
    check_gather_size(dev, 10, 33, 17);
    check_gather_size(dev, 100, 3, 784);
    check_gather_size(dev, 500, 1024, 784);
    check_gather_size(dev, 10, 0, 784);
    check_gather_size(dev, 10, 33, 0); /* labels alone, for a pipeline's last stage */
}

/* The host queues more batches than a device has room for indices, which it may only write again
 * when the device has read them. */
static void check_gather_ahead(struct ct_device *dev)
{
    enum { AHEAD = 13, ROWS = 4, SAMPLES = 64 };
    struct ct_err err = {0};
    uint8_t host[SAMPLES], found[AHEAD * ROWS];
    void *samples, *labels, *x;
    for (size_t i = 0; i < SAMPLES; i++) {
        host[i] = (uint8_t)i;
    }
    ct_check_need(dev->ops->alloc(dev, SAMPLES, &samples, &err), &err);
    ct_check_need(dev->ops->alloc(dev, AHEAD * ROWS, &labels, &err), &err);
    ct_check_need(dev->ops->alloc(dev, ROWS * sizeof(float), &x, &err), &err);
    ct_check_need(dev->ops->upload(dev, samples, host, SAMPLES, &err), &err);
    for (uint32_t i = 0; i < AHEAD; i++) {
        const uint32_t index[ROWS] = {i, i + 13, i + 26, i + 39};
        uint8_t *y = (uint8_t *)labels + (size_t)i * ROWS;
        const struct ct_gather op = {samples, samples, index, ROWS, 1, 0, 1, x, y, NULL};
        ct_check_need(dev->ops->gather(dev, &op, &err), &err);
    }
    ct_check_need(dev->ops->download(dev, found, labels, sizeof found, &err), &err);
    for (size_t i = 0; i < AHEAD * ROWS; i++) {
        CHECK(found[i] == i / ROWS + 13 * (i % ROWS));
    }
    dev->ops->release(dev, samples), dev->ops->release(dev, labels), dev->ops->release(dev, x);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void check_memory(struct ct_device *dev)
{
    struct ct_err err = {0};
    const size_t sizes[] = {0, 1, 63, 4096, 1000003};
    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        size_t size = sizes[n];
        void *ptr = NULL;
        ct_check_need(dev->ops->alloc(dev, size, &ptr, &err), &err);
        uint8_t *host = ct_malloc(size);
        CHECK(host != NULL);
        memset(host, 0xee, size);
        ct_check_need(dev->ops->download(dev, host, ptr, size, &err), &err);
        for (size_t i = 0; i < size; i++) {
            CHECK(host[i] == 0); /* fresh memory is zeroed */
            host[i] = (uint8_t)(i * 7 + 1);
        }
        ct_check_need(dev->ops->upload(dev, ptr, host, size, &err), &err);
        ct_check_need(dev->ops->clear(dev, ptr, size / 2, &err), &err);
        ct_check_need(dev->ops->sync(dev, &err), &err);
        memset(host, 0, size);
        ct_check_need(dev->ops->download(dev, host, ptr, size, &err), &err);
        for (size_t i = 0; i < size; i++) {
            CHECK(host[i] == (i < size / 2 ? 0 : (uint8_t)(i * 7 + 1)));
        }
        ct_free(host);
        dev->ops->release(dev, ptr);
    }
    dev->ops->release(dev, NULL);
    void *none = NULL;
    CHECK(dev->ops->alloc(dev, SIZE_MAX - 4, &none, &err) == CT_ENOMEM);
    CHECK(none == NULL);
    /* The failure leaves the device usable. */
    ct_check_need(dev->ops->alloc(dev, 16, &none, &err), &err);
    dev->ops->release(dev, none);
}

const struct ct_check ct_checks_layers[] = {
    {"memory", check_memory},
    {"linear", check_linear},
    {"linear_grad", check_linear_grad},
    {"linear_empty_batch", check_linear_empty_batch},
    {"linear_many_shapes", check_linear_many_shapes},
    {"gather", check_gather},
    {"gather_ahead", check_gather_ahead},
    {NULL, NULL},
};
