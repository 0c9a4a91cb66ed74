/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers in every precision that the device has, and recorded work.
 */
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

#include "common/alloc.h"

#include <math.h>
#include <string.h>

struct sizes {
    size_t batch, in, out;
};

/* A sum of about zero is above zero or not, as the device rounds it, and bits of cuBLASLt count a
 * zero as above (struct ct_linear). So where y is 0 of such a sum, dx may also be what it is
 * without the mask: there `rdx` gets that if it is what the device has. */
static void accept_either_side(const struct ct_linear *op, const struct ct_linear_grad *grad,
                               const struct test_tensor *dx, double zero, double tolerance,
                               double *rdx)
{
    const float *y = grad->mask;
    struct ct_linear without_relu = *op;
    struct ct_linear_grad without_mask = *grad;
    without_relu.relu = false;
    without_mask.mask = NULL;
    double *sums = ct_check_doubles(dx->count), *all = ct_check_doubles(dx->count);
    double *dw = ct_check_doubles(grad->out * grad->in), *db = ct_check_doubles(grad->out);
    ct_ref_linear(&without_relu, sums);
    ct_ref_linear_grad(&without_mask, dw, db, all);
    for (size_t i = 0; i < dx->count; i++) {
        if (y[i] == 0 && fabs(sums[i]) <= zero && fabs((double)dx->host[i] - all[i]) <= tolerance) {
            rdx[i] = all[i];
        }
    }
    ct_free(sums), ct_free(all), ct_free(dw), ct_free(db);
}

/* Two layers, the lower one with a ReLU, whose bits the upper one's gradient uses where the device
 * keeps them. The reference of the gradient begins with what the device left of the lower one. */
static void check_layers(struct ct_device *dev, struct sizes s, double forward, double backward)
{
    struct ct_err err = {0};
    struct ct_random rng = {s.batch * 31 + s.in};
    size_t act = s.batch * s.out;
    struct ct_numbers x = ct_numbers_filled(dev, s.batch * s.in, &rng),
                      w = ct_numbers_filled(dev, s.out * s.in, &rng);
    struct ct_numbers up = ct_numbers_filled(dev, s.out * s.out, &rng),
                      dy = ct_numbers_filled(dev, act, &rng);
    struct ct_numbers b = ct_numbers_filled(dev, s.out, &rng);
    struct test_tensor y = test_tensor_poisoned(dev, act), dx = test_tensor_poisoned(dev, act);
    struct test_tensor dw = test_tensor_poisoned(dev, s.out * s.out),
                       db = test_tensor_poisoned(dev, s.out);
    void *bits = NULL;
    bool narrow = ct_precision_narrow(dev->precision);
    if (dev->kind != CT_DEVICE_CPU) {
        ct_check_need(dev->ops->alloc(dev, ct_relu_bits_bytes(s.batch, s.out), &bits, &err), &err);
    }
    /* The bias counts as bfloat16 where there is a copy of it, so it is that in both. */
    test_tensor_push(&b.wide);
    struct ct_linear op = {.batch = s.batch, .in = s.in, .out = s.out, .relu = true, .bits = bits};
    op.x = x.data, op.w = w.data, op.b = b.wide.data, op.y = y.data;
    op.b16 = narrow ? b.data : NULL;
    ct_check_need(dev->ops->linear(dev, &op, &err), &err);
    struct ct_linear_grad grad = {.batch = s.batch, .in = s.out, .out = s.out, .bits = bits};
    grad.x = grad.mask = y.data, grad.w = up.data, grad.dy = dy.data;
    grad.dw = dw.data, grad.db = db.data, grad.dx = dx.data;
    ct_check_need(dev->ops->linear_grad(dev, &grad, &err), &err);
    ct_numbers_pull(&y), ct_numbers_pull(&dx);
    test_tensor_pull(&dw), test_tensor_pull(&db);
    double *ry = ct_check_doubles(act), *rdx = ct_check_doubles(act);
    double *rdw = ct_check_doubles(s.out * s.out), *rdb = ct_check_doubles(s.out);
    op.x = x.wide.host, op.w = w.wide.host, op.b = b.wide.host;
    ct_ref_linear(&op, ry);
    grad.x = grad.mask = y.host, grad.w = up.wide.host, grad.dy = dy.wide.host;
    ct_ref_linear_grad(&grad, rdw, rdb, rdx);
    double near_y = forward * sqrt((double)s.in), near_dx = backward * sqrt((double)s.out);
    accept_either_side(&op, &grad, &dx, near_y, near_dx, rdx);
    test_tensor_expect("y", &y, ry, near_y);
    test_tensor_expect("dw", &dw, rdw, backward * sqrt((double)s.batch * (double)s.in));
    /* Biases are summed before dy is rounded to 8 bits. */
    test_tensor_expect("db", &db, rdb, fmin(backward, 1e-2) * sqrt((double)s.batch));
    test_tensor_expect("dx", &dx, rdx, near_dx);
    ct_free(ry), ct_free(rdx), ct_free(rdw), ct_free(rdb);
    dev->ops->release(dev, bits);
    test_tensor_drop(&y), test_tensor_drop(&dx), test_tensor_drop(&dw), test_tensor_drop(&db);
    ct_numbers_drop(&x), ct_numbers_drop(&w), ct_numbers_drop(&up), ct_numbers_drop(&dy),
        ct_numbers_drop(&b);
}

static void check_precisions(struct ct_device *dev)
{
    static const struct sizes all[] = {{64, 128, 96}, {33, 17, 65}, {16, 16, 16}};
    for (size_t p = 0; p < CT_CHECK_MARGINS; p++) {
        if (ct_device_set_precision(dev, ct_check_margins[p].precision, NULL) != 0) {
            continue;
        }
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            check_layers(dev, all[i], ct_check_margins[p].forward, ct_check_margins[p].backward);
            if (dev->precision == CT_PRECISION_FP8) {
                dev->fp8_always = true; /* these sizes are too small for it to be faster */
                check_layers(dev, all[i], ct_check_margins[p].forward,
                             ct_check_margins[p].backward);
                dev->fp8_always = false;
            }
        }
    }
    struct ct_err err = {0};
    ct_check_need(ct_device_set_precision(dev, CT_PRECISION_F32, &err), &err);
}

struct scaled {
    struct ct_device *dev;
    struct ct_numbers dy;
    struct test_tensor dx;
    struct ct_linear_grad op;
};

/* Gives dy numbers of that size and checks dx, queued or replayed. */
static void check_scaled(struct scaled *s, float size, struct ct_recording *recording)
{
    struct ct_err err = {0};
    struct ct_device *dev = s->dev;
    struct ct_random rng = {11};
    struct test_tensor *wide = &s->dy.wide;
    for (size_t i = 0; i < wide->count; i++) {
        /* Multiples of 1/64 are bfloat16 numbers as they are. */
        wide->host[i] = size * (float)((int)ct_random_below(&rng, 129) - 64) / 64;
    }
    test_tensor_push(wide);
    ct_check_need(dev->ops->narrow(dev, wide->count, wide->data, s->dy.data, &err), &err);
    ct_check_need(recording != NULL ? dev->ops->replay(dev, recording, &err)
                                    : dev->ops->linear_grad(dev, &s->op, &err),
                  &err);
    ct_numbers_pull(&s->dx);
}

static void expect_scaled(struct scaled *s, const struct ct_numbers *w, float size)
{
    const size_t n = s->op.in;
    double *ref = ct_check_doubles(n * n), *unused = ct_check_doubles(n * n);
    double *sums = ct_check_doubles(n);
    struct ct_linear_grad host = s->op;
    host.x = host.w = w->wide.host, host.dy = s->dy.wide.host;
    ct_ref_linear_grad(&host, unused, sums, ref);
    test_tensor_expect("dx", &s->dx, ref, 0.25 * (double)size * sqrt((double)n));
    ct_free(ref), ct_free(unused), ct_free(sums);
}

/* Scales follow the numbers one step later, in replays of a recording, too: right after dy has
 * grown it saturates, and the step after that is as good as any. */
static void check_scales(struct ct_device *dev)
{
    enum { N = 64 };
    struct ct_err err = {0};
    if (dev->ops->record == NULL || ct_device_set_precision(dev, CT_PRECISION_FP8, NULL) != 0) {
        return;
    }
    dev->fp8_always = true;
    struct ct_random rng = {5};
    struct ct_numbers w = ct_numbers_filled(dev, (size_t)N * N, &rng);
    struct scaled s = {.dev = dev, .dy = ct_numbers_filled(dev, (size_t)N * N, &rng)};
    s.dx = test_tensor_poisoned(dev, (size_t)N * N);
    struct test_tensor dw = test_tensor_poisoned(dev, (size_t)N * N),
                       db = test_tensor_poisoned(dev, N);
    s.op = (struct ct_linear_grad){.batch = N, .in = N, .out = N, .x = w.data, .w = w.data};
    s.op.dy = s.dy.data, s.op.dw = dw.data, s.op.db = db.data, s.op.dx = s.dx.data;
    check_scaled(&s, 1, NULL);
    expect_scaled(&s, &w, 1);
    struct ct_recording *recording = NULL;
    ct_check_need(dev->ops->record(dev, &err), &err);
    ct_check_need(dev->ops->linear_grad(dev, &s.op, &err), &err);
    ct_check_need(dev->ops->record_end(dev, &recording, &err), &err);
    check_scaled(&s, 1024, recording);
    for (size_t i = 0; i < s.dx.count; i++) {
        CHECK(fabsf(s.dx.host[i]) < 1024); /* saturated, and finite */
    }
    check_scaled(&s, 1024, recording);
    expect_scaled(&s, &w, 1024);
    dev->fp8_always = false;
    dev->ops->forget(dev, recording);
    ct_numbers_drop(&w), ct_numbers_drop(&s.dy), test_tensor_drop(&s.dx);
    test_tensor_drop(&dw), test_tensor_drop(&db);
    ct_check_need(ct_device_set_precision(dev, CT_PRECISION_F32, &err), &err);
}

/* A recording does again what was queued, on what is there then, and counts. */
static void check_recording(struct ct_device *dev)
{
    struct ct_err err = {0};
    if (dev->ops->record == NULL) {
        return;
    }
    struct ct_random rng = {7};
    struct test_tensor x = test_tensor_filled(dev, 32 * 48, &rng),
                       w = test_tensor_filled(dev, 64 * 48, &rng);
    struct test_tensor b = test_tensor_filled(dev, 64, &rng),
                       y = test_tensor_poisoned(dev, 32 * 64);
    const struct ct_linear op = {32, 48, 64, x.data, w.data, b.data, y.data, true, false};
    void *now = NULL;
    struct ct_recording *steps = NULL;
    ct_check_need(dev->ops->alloc(dev, sizeof(uint64_t), &now, &err), &err);
    ct_check_need(dev->ops->linear(dev, &op, &err), &err); /* chooses the kernel */
    ct_check_need(dev->ops->record(dev, &err), &err);
    for (int i = 0; i < 2; i++) {
        ct_check_need(dev->ops->fork(dev, &err), &err);
        ct_check_need(dev->ops->linear(dev, &op, &err), &err);
        ct_check_need(dev->ops->join(dev, &err), &err);
        ct_check_need(dev->ops->advance(dev, now, 1, &err), &err);
    }
    ct_check_need(dev->ops->record_end(dev, &steps, &err), &err);
    /* Other numbers than those that were there when it was recorded. */
    for (size_t i = 0; i < x.count; i++) {
        x.host[i] = ct_random_float(&rng);
    }
    test_tensor_push(&x);
    for (int i = 0; i < 3; i++) {
        ct_check_need(dev->ops->replay(dev, steps, &err), &err);
    }
    uint64_t count = 0;
    ct_check_need(dev->ops->download(dev, &count, now, sizeof count, &err), &err);
    CHECK(count == 6);
    double *ref = ct_check_doubles(32 * 64);
    struct ct_linear host = op;
    host.x = x.host, host.w = w.host, host.b = b.host;
    ct_ref_linear(&host, ref);
    test_tensor_pull(&y);
    test_tensor_expect("y", &y, ref, ct_check_sum_tol(48));
    dev->ops->forget(dev, steps);
    dev->ops->release(dev, now);
    ct_free(ref);
    test_tensor_drop(&x), test_tensor_drop(&w), test_tensor_drop(&b), test_tensor_drop(&y);
}

/* Updates of one array, by turns on both streams, with a copy of it after each. */
struct chain {
    struct ct_sgd update; /* adds 1 */
    size_t links;
    uint16_t *copies; /* [links, update.count] */
};

static void queue_chain(struct ct_device *dev, const struct chain *c)
{
    struct ct_err err = {0};
    struct ct_sgd update = c->update;
    for (size_t i = 0; i < c->links; i++) {
        update.beside = i % 2 > 0;
        if (update.beside) {
            ct_check_need(dev->ops->fork_updates(dev, false, &err), &err);
        }
        ct_check_need(dev->ops->sgd(dev, &update, &err), &err);
        if (update.beside) {
            ct_check_need(dev->ops->join_updates(dev, &err), &err);
        }
        ct_check_need(
            dev->ops->narrow(dev, update.count, update.param, c->copies + i * update.count, &err),
            &err);
    }
}

/* After so many updates before the chain. Whole numbers up to 256 are bfloat16 numbers as they are.
 */
static void expect_chain(struct ct_device *dev, const struct chain *c, size_t before)
{
    struct ct_err err = {0};
    size_t count = c->links * c->update.count;
    uint16_t *copies = ct_malloc(count * sizeof *copies);
    CHECK(copies != NULL);
    ct_check_need(dev->ops->download(dev, copies, c->copies, count * sizeof *copies, &err), &err);
    for (size_t i = 0; i < count; i++) {
        float value = (float)(before + i / c->update.count + 1);
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        if (copies[i] != bits >> 16) {
            ct_check_fail(__FILE__, __LINE__, "number %zu after update %zu has bits %04x, not %04x",
                          i % c->update.count, i / c->update.count, copies[i],
                          (unsigned)(bits >> 16));
        }
    }
    ct_free(copies);
}

/* Each kernel reads what the one before wrote, and writes what it read. After prepare_record()
 * kernels may be launched early, as in every step; here their order shows. */
static void check_order(struct ct_device *dev)
{
    struct ct_err err = {0};
    if (dev->ops->record == NULL) {
        return;
    }
    const bool small = ct_check_repeats < 100;
    const size_t count = small ? 300 : (size_t)1 << 20;
    struct ct_random rng = {13};
    struct test_tensor param = test_tensor_filled(dev, count, &rng),
                       grad = test_tensor_filled(dev, count, &rng);
    for (size_t i = 0; i < count; i++) {
        param.host[i] = 0.0f, grad.host[i] = 1.0f;
    }
    test_tensor_push(&param), test_tensor_push(&grad);
    struct chain c = {.links = small ? 6 : 24};
    c.update = (struct ct_sgd){.count = count, .param = param.data, .grad = grad.data, .lr = -1.0f};
    void *copies = NULL;
    struct ct_recording *recording = NULL;
    ct_check_need(dev->ops->alloc(dev, c.links * count * sizeof(uint16_t), &copies, &err), &err);
    c.copies = copies;
    ct_check_need(dev->ops->prepare_record(dev, &err), &err);
    queue_chain(dev, &c);
    expect_chain(dev, &c, 0);
    ct_check_need(dev->ops->record(dev, &err), &err);
    queue_chain(dev, &c);
    ct_check_need(dev->ops->record_end(dev, &recording, &err), &err);
    for (size_t replays = 1; replays < (small ? 3 : 10); replays++) {
        ct_check_need(dev->ops->replay(dev, recording, &err), &err);
        expect_chain(dev, &c, replays * c.links);
    }
    dev->ops->forget(dev, recording);
    dev->ops->release(dev, copies);
    test_tensor_drop(&param), test_tensor_drop(&grad);
}

const struct ct_check ct_checks_precision[] = {
    {"precisions", check_precisions},
    {"scales", check_scales},
    {"recording", check_recording},
    {"order", check_order},
    {NULL, NULL},
};
