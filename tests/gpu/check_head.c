/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer at once with its loss, in each way and precision that there is.
 */
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

#include "common/alloc.h"

#include <math.h>

#define SCALE 0.25f

struct head_sizes {
    size_t batch, in, classes;
    bool dx;
};

/* Rows whose label is so near to the largest logit that either answer is right. */
static size_t unclear(const float *logits, const uint8_t *labels, const struct head_sizes *s,
                      double margin)
{
    size_t found = 0;
    for (size_t b = 0; b < s->batch; b++) {
        const float *row = logits + b * s->classes;
        double best = -INFINITY;
        for (size_t c = 0; c < s->classes; c++) {
            best = c != labels[b] ? fmax(best, (double)row[c]) : best;
        }
        found += fabs(best - (double)row[labels[b]]) <= margin;
    }
    return found;
}

struct scene {
    struct head_sizes s;
    struct ct_numbers x, w;
    struct test_tensor b, logits, d, dw, db, dx;
    uint8_t *labels;
    void *dlabels;
    double *dtotals;
};

static struct scene begin(struct ct_device *dev, struct head_sizes s)
{
    struct ct_err err = {0};
    struct ct_random rng = {s.batch * 31 + s.in * 7 + s.classes};
    const double before[2] = {100.0, 7.0};
    struct scene scene = {
        .s = s,
        .x = ct_numbers_filled(dev, s.batch * s.in, &rng),
        .w = ct_numbers_filled(dev, s.classes * s.in, &rng),
        .b = test_tensor_filled(dev, s.classes, &rng),
        .logits = test_tensor_poisoned(dev, s.batch * s.classes),
        .d = test_tensor_poisoned(dev, s.batch * s.classes),
        .dw = test_tensor_poisoned(dev, s.classes * s.in),
        .db = test_tensor_poisoned(dev, s.classes),
        .dx = test_tensor_poisoned(dev, s.batch * s.in),
        .labels = ct_malloc(s.batch + 1),
    };
    CHECK(scene.labels != NULL);
    for (size_t i = 0; i < s.batch; i++) {
        scene.labels[i] = (uint8_t)ct_random_below(&rng, s.classes);
    }
    void *totals;
    ct_check_need(dev->ops->alloc(dev, s.batch + 1, &scene.dlabels, &err), &err);
    ct_check_need(dev->ops->alloc(dev, sizeof before, &totals, &err), &err);
    ct_check_need(dev->ops->upload(dev, scene.dlabels, scene.labels, s.batch, &err), &err);
    ct_check_need(dev->ops->upload(dev, totals, before, sizeof before, &err), &err);
    scene.dtotals = totals;
    return scene;
}

static void end(struct ct_device *dev, struct scene *n)
{
    dev->ops->release(dev, n->dlabels), dev->ops->release(dev, n->dtotals);
    ct_numbers_drop(&n->x), ct_numbers_drop(&n->w);
    test_tensor_drop(&n->b), test_tensor_drop(&n->logits), test_tensor_drop(&n->d);
    test_tensor_drop(&n->dw), test_tensor_drop(&n->db), test_tensor_drop(&n->dx);
    ct_free(n->labels);
}

static void run(struct ct_device *dev, const struct scene *n)
{
    struct ct_err err = {0};
    const struct head_sizes s = n->s;
    struct ct_head op = {
        .linear = {.batch = s.batch, .in = s.in, .out = s.classes, .wide = true},
        .loss = {.batch = s.batch, .classes = s.classes, .scale = SCALE},
        .grad = {.batch = s.batch, .in = s.in, .out = s.classes},
    };
    op.linear.x = op.grad.x = n->x.data, op.linear.w = op.grad.w = n->w.data;
    op.linear.b = n->b.data, op.linear.y = n->logits.data;
    op.loss.logits = n->logits.data, op.loss.labels = n->dlabels, op.loss.totals = n->dtotals;
    op.loss.dlogits = n->d.data, op.grad.dy = n->d.data;
    op.grad.dw = n->dw.data, op.grad.db = n->db.data;
    op.grad.dx = s.dx ? n->dx.data : NULL, op.grad.mask = s.dx ? n->x.data : NULL;
    ct_check_need(dev->ops->head(dev, &op, &err), &err);
}

/* The reference of each part begins with what the device left of the one before. */
static void compare(struct ct_device *dev, struct scene *n, double forward, double backward)
{
    struct ct_err err = {0};
    const struct head_sizes s = n->s;
    double totals[2], expected[2] = {100.0, 7.0};
    ct_check_need(dev->ops->download(dev, totals, n->dtotals, sizeof totals, &err), &err);
    ct_numbers_pull(&n->d), ct_numbers_pull(&n->dx);
    test_tensor_pull(&n->logits), test_tensor_pull(&n->dw), test_tensor_pull(&n->db);
    size_t count = s.batch * s.classes;
    double *wide = ct_check_doubles(count), *rd = ct_check_doubles(count);
    double *rdw = ct_check_doubles(s.classes * s.in), *rdb = ct_check_doubles(s.classes),
           *rdx = ct_check_doubles(s.batch * s.in);
    float *logits = ct_malloc((count + 1) * sizeof *logits);
    CHECK(logits != NULL);
    const struct ct_linear linear = {.batch = s.batch,
                                     .in = s.in,
                                     .out = s.classes,
                                     .x = n->x.wide.host,
                                     .w = n->w.wide.host,
                                     .b = n->b.host};
    ct_ref_linear(&linear, wide);
    for (size_t i = 0; i < count; i++) {
        logits[i] = (float)wide[i];
    }
    const struct ct_loss loss = {.batch = s.batch,
                                 .classes = s.classes,
                                 .logits = logits,
                                 .labels = n->labels,
                                 .scale = SCALE};
    ct_ref_loss(&loss, rd, expected);
    double off = forward * (sqrt((double)s.in) + 1.0);
    /* A gradient of bfloat16 is rounded in its last bit, 2^-9 of at most SCALE. */
    double step = ct_precision_narrow(dev->precision) ? (double)SCALE / 512.0 : 0.0;
    test_tensor_expect("dlogits", &n->d, rd, off * (double)SCALE + step + 1e-7);
    CHECK(fabs(totals[0] - expected[0]) <= (2.0 * off + 1e-6) * (double)s.batch + 1e-4 * off);
    CHECK(fabs(totals[1] - expected[1]) <= (double)unclear(logits, n->labels, &s, 2.0 * off));
    const struct ct_linear_grad grad = {
        .batch = s.batch,
        .in = s.in,
        .out = s.classes,
        .x = n->x.wide.host,
        .w = n->w.wide.host,
        .dy = n->d.host,
        .mask = n->x.wide.host,
    };
    ct_ref_linear_grad(&grad, rdw, rdb, rdx);
    test_tensor_expect("dw", &n->dw, rdw, backward * sqrt((double)s.batch));
    test_tensor_expect("db", &n->db, rdb, backward * sqrt((double)s.batch));
    if (s.dx) {
        test_tensor_expect("dx", &n->dx, rdx, backward * sqrt((double)s.classes));
    }
    ct_free(wide), ct_free(rd), ct_free(rdw), ct_free(rdb), ct_free(rdx), ct_free(logits);
}

static void check_way(struct ct_device *dev, struct head_sizes s, enum ct_head_way way, size_t p)
{
    struct scene n = begin(dev, s);
    /* Exact zeros are what a ReLU leaves, and the edge of the comparison. */
    for (size_t i = 0; i < n.x.wide.count; i += 3) {
        n.x.wide.host[i] = 0.0f;
    }
    test_tensor_push(&n.x.wide);
    if (ct_precision_narrow(dev->precision)) {
        struct ct_err err = {0};
        int rc = dev->ops->narrow(dev, n.x.wide.count, n.x.wide.data, n.x.data, &err);
        ct_check_need(rc, &err);
    }
    dev->head_way = way;
    run(dev, &n);
    compare(dev, &n, ct_check_margins[p].forward, ct_check_margins[p].backward);
    end(dev, &n);
}

static void check_head(struct ct_device *dev)
{
    static const struct head_sizes all[] = {
        {1, 1, 1, true},     {3, 17, 2, true},   {33, 64, 10, true},  {70, 100, 10, true},
        {16, 32, 16, true},  {5, 130, 17, true}, {40, 48, 32, false}, {7, 20, 33, true},
        {0, 8, 3, true},     {9, 3, 31, false},  {40, 512, 10, true}, {71, 128, 7, true},
        {37, 192, 16, true}, {1, 64, 1, true},   {0, 64, 10, true},
    };
    for (size_t p = 0; p < CT_CHECK_MARGINS; p++) {
        if (ct_device_set_precision(dev, ct_check_margins[p].precision, NULL) != 0) {
            continue;
        }
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            check_way(dev, all[i], CT_HEAD_WHOLE, p);
            check_way(dev, all[i], CT_HEAD_FUSED, p);
            check_way(dev, all[i], CT_HEAD_APART, p);
            if (i % 3 == 0) {
                check_way(dev, all[i], CT_HEAD_FASTEST, p);
            }
        }
    }
    struct ct_err err = {0};
    ct_check_need(ct_device_set_precision(dev, CT_PRECISION_F32, &err), &err);
}

/* Where all logits are the same, the first class is the answer; a NaN is never one, and shows. */
static void check_head_ties_and_nan(struct ct_device *dev)
{
    const struct head_sizes s = {50, 12, 20, true};
    for (int way = CT_HEAD_WHOLE; way <= CT_HEAD_APART; way++) {
        struct ct_err err = {0};
        struct scene n = begin(dev, s);
        double totals[2], firsts = 0;
        ct_check_need(dev->ops->clear(dev, n.w.data, s.in * s.classes * sizeof(float), &err), &err);
        for (size_t c = 0; c < s.classes; c++) {
            n.b.host[c] = -300.0f; /* exp() of that alone would be 0 */
        }
        test_tensor_push(&n.b);
        for (size_t i = 0; i < s.batch; i++) {
            firsts += n.labels[i] == 0;
        }
        CHECK(firsts > 0);
        dev->head_way = (enum ct_head_way)way;
        run(dev, &n);
        ct_check_need(dev->ops->download(dev, totals, n.dtotals, sizeof totals, &err), &err);
        CHECK(fabs(totals[0] - 100.0 - 50.0 * log(20.0)) < 1e-4);
        CHECK(totals[1] == 7.0 + firsts);
        for (size_t i = 0; i < s.in * s.batch; i++) {
            n.x.wide.host[i] = NAN;
        }
        test_tensor_push(&n.x.wide);
        run(dev, &n);
        ct_check_need(dev->ops->download(dev, totals, n.dtotals, sizeof totals, &err), &err);
        CHECK(isnan(totals[0]));
        CHECK(totals[1] == 7.0 + firsts);
        end(dev, &n);
    }
    dev->head_way = CT_HEAD_FASTEST;
}

/* The same bits each time, however the threads ran. On a GPU with more rows: of several blocks the
 * last one adds up what all have left. */
static void check_repeats(struct ct_device *dev, enum ct_head_way way)
{
    const struct head_sizes s = {ct_check_repeats > 100 ? 2000 : 100, 60, 10, true};
    dev->head_way = way;
    double first[2], totals[2];
    float first_dw = 0;
    for (int i = 0; i < ct_check_repeats; i++) {
        struct ct_err err = {0};
        struct scene n = begin(dev, s);
        run(dev, &n);
        ct_check_need(
            dev->ops->download(dev, i == 0 ? first : totals, n.dtotals, sizeof totals, &err), &err);
        CHECK(i == 0 || (totals[0] == first[0] && totals[1] == first[1]));
        if (way == CT_HEAD_WHOLE) { /* else a product of cuBLASLt's */
            test_tensor_pull(&n.dw);
            first_dw = i == 0 ? n.dw.host[s.in + 1] : first_dw;
            CHECK(n.dw.host[s.in + 1] == first_dw);
        }
        end(dev, &n);
    }
    dev->head_way = CT_HEAD_FASTEST;
}

static void check_head_repeats(struct ct_device *dev)
{
    check_repeats(dev, CT_HEAD_WHOLE);
    check_repeats(dev, CT_HEAD_FUSED);
    check_repeats(dev, CT_HEAD_APART);
}

const struct ct_check ct_checks_head[] = {
    {"head", check_head},
    {"head_ties_and_nan", check_head_ties_and_nan},
    {"head_repeats", check_head_repeats},
    {NULL, NULL},
};
