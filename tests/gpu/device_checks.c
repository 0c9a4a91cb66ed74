/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/gpu/device_checks.h"

#include "common/alloc.h"
#include "tests/gpu/reference.h"
#include "tests/lib/ct_test.h"

#include <math.h>
#include <stdio.h>

/* Sizes around vector, tile and warp widths; a layer of one; the real first layer's 784. */
static const size_t odd_sizes[] = {1, 3, 17, 33, 64, 130};
#define ODD_SIZES (sizeof(odd_sizes) / sizeof(odd_sizes[0]))

static void need(int rc, const struct ct_err *err)
{
    if (rc != 0) {
        fail_msg("%s", err->text);
    }
}

/* ---- device memory that starts poisoned and ends in a guard ------------------------------------
 */

#define GUARD 16
#define POISON 0x7fc0deadu /* a NaN: whatever reads it shows */

struct tensor {
    struct ct_device *dev;
    size_t count;
    float *host; /* count + GUARD */
    float *data; /* on the device */
};

static void push(struct tensor *t)
{
    struct ct_err err = {0};
    need(t->dev->ops->upload(t->dev, t->data, t->host, (t->count + GUARD) * sizeof(float), &err),
         &err);
}

static struct tensor poisoned(struct ct_device *dev, size_t count)
{
    struct ct_err err = {0};
    struct tensor t = {.dev = dev, .count = count};
    t.host = ct_malloc((count + GUARD) * sizeof(float));
    assert_non_null(t.host);
    for (size_t i = 0; i < count + GUARD; i++) {
        uint32_t bits = POISON;
        memcpy(&t.host[i], &bits, sizeof(bits));
    }
    void *data = NULL;
    need(dev->ops->alloc(dev, (count + GUARD) * sizeof(float), &data, &err), &err);
    t.data = data;
    push(&t);
    return t;
}

static struct tensor filled(struct ct_device *dev, size_t count, struct ct_random *rng)
{
    struct tensor t = poisoned(dev, count);
    for (size_t i = 0; i < count; i++) {
        t.host[i] = ct_random_float(rng);
    }
    push(&t);
    return t;
}

/* Brings the data back and checks that nothing was written past its end. */
static void pull(struct tensor *t)
{
    struct ct_err err = {0};
    need(t->dev->ops->download(t->dev, t->host, t->data, (t->count + GUARD) * sizeof(float), &err),
         &err);
    for (size_t i = t->count; i < t->count + GUARD; i++) {
        uint32_t bits;
        memcpy(&bits, &t->host[i], sizeof(bits));
        if (bits != POISON) {
            fail_msg("written %zu floats past the end of %zu", i - t->count + 1, t->count);
        }
    }
}

static void drop(struct tensor *t)
{
    t->dev->ops->release(t->dev, t->data);
    ct_free(t->host);
}

static void expect(const char *what, const struct tensor *got, const double *ref, double abs_tol)
{
    for (size_t i = 0; i < got->count; i++) {
        double diff = fabs((double)got->host[i] - ref[i]);
        if (!(diff <= abs_tol + fabs(ref[i]) * 2e-6)) {
            fail_msg("%s[%zu of %zu]: %.9g, reference %.9g", what, i, got->count,
                     (double)got->host[i], ref[i]);
        }
    }
}

static double *doubles(size_t count)
{
    double *p = ct_calloc(count, sizeof(*p));
    assert_non_null(p);
    return p;
}

/* Rounding of a sum of k products of numbers below 1, with room for any order of adding. */
static double sum_tol(size_t k)
{
    return 1e-6 * (sqrt((double)k) + 1.0);
}

/* ---- linear ------------------------------------------------------------------------------------
 */

static void check_linear_size(struct ct_device *dev, size_t batch, size_t in, size_t out, bool relu)
{
    struct ct_err err = {0};
    struct ct_random rng = {batch * 1000003 + in * 1009 + out};
    struct tensor x = filled(dev, batch * in, &rng), w = filled(dev, out * in, &rng);
    struct tensor b = filled(dev, out, &rng), y = poisoned(dev, batch * out);
    struct ct_linear op = {batch, in, out, x.data, w.data, b.data, y.data, relu};
    need(dev->ops->linear(dev, &op, &err), &err);
    pull(&y);
    double *ref = doubles(batch * out);
    op.x = x.host, op.w = w.host, op.b = b.host;
    ct_ref_linear(&op, ref);
    expect("y", &y, ref, sum_tol(in));
    ct_free(ref);
    drop(&x), drop(&w), drop(&b), drop(&y);
}

static void test_linear(void **state)
{
    struct ct_device *dev = *state;
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
    struct tensor x = filled(dev, batch * in, &rng), w = filled(dev, out * in, &rng);
    struct tensor dy = filled(dev, batch * out, &rng);
    /* Exact zeros are what a ReLU leaves, and the edge of the comparison. */
    for (size_t i = 0; i < x.count; i += 3) {
        x.host[i] = 0.0f;
    }
    push(&x);
    struct tensor dw = poisoned(dev, out * in), db = poisoned(dev, out);
    struct tensor dxs = poisoned(dev, batch * in);
    struct ct_linear_grad op = {.batch = batch, .in = in, .out = out, .x = x.data, .w = w.data};
    op.dy = dy.data, op.mask = mask ? x.data : NULL, op.dw = dw.data, op.db = db.data;
    op.dx = dx ? dxs.data : NULL;
    need(dev->ops->linear_grad(dev, &op, &err), &err);
    pull(&dw), pull(&db), pull(&dxs);
    double *rdw = doubles(out * in), *rdb = doubles(out), *rdx = doubles(batch * in);
    op.x = x.host, op.w = w.host, op.dy = dy.host, op.mask = mask ? x.host : NULL;
    ct_ref_linear_grad(&op, rdw, rdb, rdx);
    expect("dw", &dw, rdw, sum_tol(batch));
    expect("db", &db, rdb, sum_tol(batch));
    if (dx) {
        expect("dx", &dxs, rdx, sum_tol(out));
    }
    ct_free(rdw), ct_free(rdb), ct_free(rdx);
    drop(&x), drop(&w), drop(&dy), drop(&dw), drop(&db), drop(&dxs);
}

static void test_linear_grad(void **state)
{
    struct ct_device *dev = *state;
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

static void test_linear_empty_batch(void **state)
{
    struct ct_device *dev = *state;
    check_linear_size(dev, 0, 17, 3, true);
    check_grad_size(dev, 0, 17, 3, true, true); /* dw and db must become 0 */
}

/* More shapes than any cache of them holds, each used again after it was dropped. */
static void test_linear_many_shapes(void **state)
{
    struct ct_device *dev = *state;
    for (int round = 0; round < 2; round++) {
        for (size_t batch = 1; batch <= 100; batch++) {
            check_linear_size(dev, batch, 5, 4, true);
        }
    }
}

/* ---- gather ------------------------------------------------------------------------------------
 */

static void check_gather_size(struct ct_device *dev, size_t samples, size_t batch, size_t features)
{
    struct ct_err err = {0};
    struct ct_random rng = {samples + features};
    uint8_t *images = ct_malloc(samples * features), *labels = ct_malloc(samples);
    uint32_t *index = ct_malloc(batch * sizeof(*index));
    assert_true(images != NULL && labels != NULL && index != NULL);
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
    need(dev->ops->alloc(dev, samples * features, &dimages, &err), &err);
    need(dev->ops->alloc(dev, samples, &dlabels, &err), &err);
    need(dev->ops->alloc(dev, batch + 1, &dy, &err), &err);
    need(dev->ops->upload(dev, dimages, images, samples * features, &err), &err);
    need(dev->ops->upload(dev, dlabels, labels, samples, &err), &err);
    struct tensor x = poisoned(dev, batch * features);
    struct ct_gather op = {dimages, dlabels, index, batch, features, 0.2860f, 0.3530f, x.data, dy};
    uint8_t *y = ct_malloc(batch + 1);
    double *ref = doubles(batch * features);
    assert_non_null(y);
    for (size_t b = 0; b < batch; b++) {
        for (size_t i = 0; i < features; i++) {
            double pixel = (double)images[index[b] * features + i] / 255.0;
            ref[b * features + i] = (pixel - (double)op.mean) / (double)op.stddev;
        }
    }
    uint32_t *saved = ct_malloc(batch * sizeof(*saved));
    assert_non_null(saved);
    memcpy(saved, index, batch * sizeof(*index));
    need(dev->ops->gather(dev, &op, &err), &err);
    memset(index, 0xff, batch * sizeof(*index)); /* the call may no longer need it */
    pull(&x);
    need(dev->ops->download(dev, y, dy, batch + 1, &err), &err);
    expect("x", &x, ref, 5e-7);
    for (size_t b = 0; b < batch; b++) {
        assert_int_equal(y[b], labels[saved[b]]);
    }
    assert_int_equal(y[batch], 0);
    drop(&x);
    dev->ops->release(dev, dimages), dev->ops->release(dev, dlabels), dev->ops->release(dev, dy);
    ct_free(images), ct_free(labels), ct_free(index), ct_free(saved), ct_free(ref), ct_free(y);
}

static void test_gather(void **state)
{
    struct ct_device *dev = *state;
    check_gather_size(dev, 1, 1, 1);
    check_gather_size(dev, 10, 33, 17);
    check_gather_size(dev, 100, 3, 784);
    check_gather_size(dev, 500, 1024, 784);
    check_gather_size(dev, 10, 0, 784);
}

/* ---- loss --------------------------------------------------------------------------------------
 */

/* Runs the operation on `logits` and returns the totals that it added to what was there. */
static void run_loss(struct ct_device *dev, const struct tensor *logits, const uint8_t *labels,
                     struct ct_loss *op, double totals[2])
{
    struct ct_err err = {0};
    const double before[2] = {100.0, 7.0};
    void *dlabels, *dtotals;
    need(dev->ops->alloc(dev, op->batch + 1, &dlabels, &err), &err);
    need(dev->ops->alloc(dev, sizeof(before), &dtotals, &err), &err);
    need(dev->ops->upload(dev, dlabels, labels, op->batch, &err), &err);
    need(dev->ops->upload(dev, dtotals, before, sizeof(before), &err), &err);
    op->logits = logits->data, op->labels = dlabels, op->totals = dtotals;
    need(dev->ops->loss(dev, op, &err), &err);
    need(dev->ops->download(dev, totals, dtotals, sizeof(before), &err), &err);
    totals[0] -= before[0], totals[1] -= before[1];
    dev->ops->release(dev, dlabels), dev->ops->release(dev, dtotals);
}

static void check_loss_size(struct ct_device *dev, size_t batch, size_t classes, float spread)
{
    struct ct_random rng = {batch * 7919 + classes};
    struct tensor logits = filled(dev, batch * classes, &rng);
    struct tensor d = poisoned(dev, batch * classes);
    uint8_t *labels = ct_malloc(batch);
    assert_non_null(labels);
    for (size_t i = 0; i < logits.count; i++) {
        logits.host[i] *= spread;
    }
    push(&logits);
    for (size_t i = 0; i < batch; i++) {
        labels[i] = (uint8_t)ct_random_below(&rng, classes);
    }
    struct ct_loss op = {.batch = batch, .classes = classes, .scale = 0.25f, .dlogits = d.data};
    double totals[2], expected[2] = {0.0, 0.0}, *ref = doubles(batch * classes);
    run_loss(dev, &logits, labels, &op, totals);
    pull(&d);
    struct ct_loss host = op;
    host.logits = logits.host, host.labels = labels;
    ct_ref_loss(&host, ref, expected);
    expect("dlogits", &d, ref, 1e-7);
    assert_true(fabs(totals[0] - expected[0]) <= 1e-6 * (double)batch + 1e-6 * expected[0]);
    assert_true(totals[1] == expected[1]);
    /* Without dlogits the totals are the same to the bit. */
    double again[2];
    op.dlogits = NULL;
    run_loss(dev, &logits, labels, &op, again);
    assert_true(fabs(again[0] - totals[0]) <= 1e-12 * (100.0 + totals[0]));
    assert_true(again[1] == totals[1]);
    ct_free(ref), ct_free(labels);
    drop(&logits), drop(&d);
}

static void test_loss(void **state)
{
    struct ct_device *dev = *state;
    const size_t batches[] = {0, 1, 3, 17, 33, 1000};
    const size_t classes[] = {1, 2, 10, 33, 256};
    for (size_t b = 0; b < sizeof(batches) / sizeof(batches[0]); b++) {
        for (size_t c = 0; c < sizeof(classes) / sizeof(classes[0]); c++) {
            check_loss_size(dev, batches[b], classes[c], 3.0f);
            check_loss_size(dev, batches[b], classes[c], 300.0f); /* exp() alone would overflow */
        }
    }
}

static void test_loss_ties_and_nan(void **state)
{
    struct ct_device *dev = *state;
    const float rows[5][3] = {{2, 2, 1}, {2, 2, 1}, {0, 5, 5}, {-1e30f, 1e30f, 0}, {NAN, 0, 1}};
    const uint8_t labels[5] = {0, 1, 2, 1, 2};
    struct tensor logits = poisoned(dev, 15);
    memcpy(logits.host, rows, sizeof(rows));
    push(&logits);
    double totals[2];
    struct ct_loss op = {.batch = 4, .classes = 3, .scale = 1.0f};
    run_loss(dev, &logits, labels, &op, totals);
    assert_true(totals[1] == 2.0); /* rows 0 and 3; 1 and 2 lose their tie */
    assert_true(isfinite(totals[0]));
    op.batch = 5;
    run_loss(dev, &logits, labels, &op, totals);
    assert_true(isnan(totals[0])); /* a run that diverges must show it */
    drop(&logits);
}

static void test_loss_refuses_classes(void **state)
{
    struct ct_device *dev = *state;
    struct ct_err err = {0};
    struct ct_loss op = {.batch = 1, .classes = 257};
    assert_int_equal(dev->ops->loss(dev, &op, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "257"));
    op.classes = 0;
    assert_int_equal(dev->ops->loss(dev, &op, &err), CT_EINVAL);
}

/* The analytic gradient against central differences of the operation's own loss. */
static void test_loss_gradient(void **state)
{
    struct ct_device *dev = *state;
    struct ct_random rng = {11};
    const uint8_t labels[2] = {3, 0};
    struct tensor logits = filled(dev, 10, &rng), d = poisoned(dev, 10);
    double totals[2];
    struct ct_loss op = {.batch = 2, .classes = 5, .scale = 1.0f, .dlogits = d.data};
    run_loss(dev, &logits, labels, &op, totals);
    pull(&d);
    op.dlogits = NULL;
    const float h = 1.0f / 128.0f;
    for (size_t i = 0; i < 10; i++) {
        double side[2][2];
        float middle = logits.host[i];
        for (int s = 0; s < 2; s++) {
            logits.host[i] = s == 0 ? middle - h : middle + h;
            push(&logits);
            run_loss(dev, &logits, labels, &op, side[s]);
        }
        logits.host[i] = middle;
        double slope = (side[1][0] - side[0][0]) / (2.0 * (double)h);
        assert_true(fabs(slope - (double)d.host[i]) < 1e-4);
    }
    drop(&logits), drop(&d);
}

/* ---- updates -----------------------------------------------------------------------------------
 */

static void check_sgd(struct ct_device *dev, size_t count, float momentum, float decay, bool buffer)
{
    struct ct_err err = {0};
    struct ct_random rng = {count + 5};
    struct tensor p = filled(dev, count, &rng), g = filled(dev, count, &rng);
    struct tensor v = filled(dev, count, &rng);
    struct ct_sgd op = {count, p.data, buffer ? v.data : NULL, g.data, 0.1f, momentum, decay};
    double *rp = doubles(count), *rv = doubles(count);
    for (size_t i = 0; i < count; i++) {
        rp[i] = (double)p.host[i], rv[i] = (double)v.host[i];
    }
    for (int step = 0; step < 3; step++) {
        need(dev->ops->sgd(dev, &op, &err), &err);
        ct_ref_sgd(&op, g.host, rp, rv);
    }
    pull(&p), pull(&v), pull(&g);
    expect("p", &p, rp, 1e-6);
    if (buffer) {
        expect("v", &v, rv, 1e-6);
    }
    ct_free(rp), ct_free(rv);
    drop(&p), drop(&g), drop(&v);
}

static void test_sgd(void **state)
{
    struct ct_device *dev = *state;
    const size_t counts[] = {0, 1, 17, 1000, 401920};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_sgd(dev, counts[i], 0.9f, 0.01f, true);
        check_sgd(dev, counts[i], 0.0f, 0.0f, true);
        check_sgd(dev, counts[i], 0.0f, 0.01f, false);
    }
}

static void test_adamw(void **state)
{
    struct ct_device *dev = *state;
    struct ct_err err = {0};
    const size_t counts[] = {0, 1, 33, 100003};
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        size_t count = counts[n];
        struct ct_random rng = {count + 9};
        struct tensor p = filled(dev, count, &rng), g = filled(dev, count, &rng);
        struct tensor m = filled(dev, count, &rng), v = filled(dev, count, &rng);
        double *rp = doubles(count), *rm = doubles(count), *rv = doubles(count);
        for (size_t i = 0; i < count; i++) {
            v.host[i] *= v.host[i];
            rp[i] = (double)p.host[i], rm[i] = (double)m.host[i], rv[i] = (double)v.host[i];
        }
        push(&v);
        struct ct_adamw op = {.count = count, .param = p.data, .m = m.data, .v = v.data};
        op.grad = g.data, op.lr = 0.01f, op.beta1 = 0.9f, op.beta2 = 0.999f, op.eps = 1e-8f;
        op.weight_decay = 0.1f;
        for (op.step = 1; op.step <= 4; op.step++) {
            need(dev->ops->adamw(dev, &op, &err), &err);
            ct_ref_adamw(&op, g.host, rp, rm, rv);
        }
        pull(&p), pull(&m), pull(&v), pull(&g);
        expect("m", &m, rm, 1e-6);
        expect("v", &v, rv, 1e-6);
        expect("p", &p, rp, 2e-5); /* m / sqrt(v) reaches 10: steps of 0.1 */
        ct_free(rp), ct_free(rm), ct_free(rv);
        drop(&p), drop(&g), drop(&m), drop(&v);
    }
}

/* ---- memory ------------------------------------------------------------------------------------
 */

static void test_memory(void **state)
{
    struct ct_device *dev = *state;
    struct ct_err err = {0};
    const size_t sizes[] = {0, 1, 63, 4096, 1000003};
    for (size_t n = 0; n < sizeof(sizes) / sizeof(sizes[0]); n++) {
        size_t size = sizes[n];
        void *ptr = NULL;
        need(dev->ops->alloc(dev, size, &ptr, &err), &err);
        uint8_t *host = ct_malloc(size);
        assert_non_null(host);
        memset(host, 0xee, size);
        need(dev->ops->download(dev, host, ptr, size, &err), &err);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(host[i], 0); /* fresh memory is zeroed */
            host[i] = (uint8_t)(i * 7 + 1);
        }
        need(dev->ops->upload(dev, ptr, host, size, &err), &err);
        need(dev->ops->clear(dev, ptr, size / 2, &err), &err);
        need(dev->ops->sync(dev, &err), &err);
        memset(host, 0, size);
        need(dev->ops->download(dev, host, ptr, size, &err), &err);
        for (size_t i = 0; i < size; i++) {
            assert_int_equal(host[i], i < size / 2 ? 0 : (uint8_t)(i * 7 + 1));
        }
        ct_free(host);
        dev->ops->release(dev, ptr);
    }
    dev->ops->release(dev, NULL);
    void *none = NULL;
    assert_int_equal(dev->ops->alloc(dev, SIZE_MAX - 4, &none, &err), CT_ENOMEM);
    assert_null(none);
    /* The failure leaves the device usable. */
    need(dev->ops->alloc(dev, 16, &none, &err), &err);
    dev->ops->release(dev, none);
}

/* ---- the group ---------------------------------------------------------------------------------
 */

static int open_cpu(void **state)
{
    struct ct_device *dev = NULL;
    int rc = ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL);
    *state = dev;
    return rc;
}

static int open_cuda(void **state)
{
    struct ct_err err = {0};
    struct ct_device *dev = NULL;
    int rc = ct_device_open(CT_DEVICE_CUDA, 0, &dev, &err);
    if (rc != 0) {
        print_error("%s\n", err.text);
    }
    *state = dev;
    return rc;
}

static int close_device(void **state)
{
    struct ct_device *dev = *state;
    dev->ops->close(dev);
    return 0;
}

int ct_device_checks_run(const char *group, enum ct_device_kind kind)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_linear),
        cmocka_unit_test(test_linear_grad),
        cmocka_unit_test(test_linear_empty_batch),
        cmocka_unit_test(test_linear_many_shapes),
        cmocka_unit_test(test_loss),
        cmocka_unit_test(test_loss_ties_and_nan),
        cmocka_unit_test(test_loss_refuses_classes),
        cmocka_unit_test(test_loss_gradient),
        cmocka_unit_test(test_sgd),
        cmocka_unit_test(test_adamw),
    };
    return _cmocka_run_group_tests(group, tests, sizeof(tests) / sizeof(tests[0]),
                                   kind == CT_DEVICE_CUDA ? open_cuda : open_cpu, close_device);
}
