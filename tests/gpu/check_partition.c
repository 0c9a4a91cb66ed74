/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch that is cut into parts (struct ct_partition): however many of them are computed at a
 * time, the bits are the same.
 */
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

#include "common/alloc.h"

#include <math.h>
#include <string.h>

#define OF ((size_t)8)

struct sizes {
    size_t rows, in, out;
    size_t batch; /* of OF * rows */
};

struct layer {
    struct ct_device *dev;
    struct sizes s;
    struct ct_numbers x, w, dy;
    struct test_tensor b;
};

/* `y` and `dx` are in the device's precision, as floats, and begin at number `shift`: where arrays
 * lie is nothing that bits may depend on, either. */
struct result {
    size_t shift;
    struct test_tensor y, dx, dw, db;
};

static void begin_result(struct layer *l, size_t shift, struct result *r)
{
    size_t rows = OF * l->s.rows;
    r->shift = shift;
    r->y = test_tensor_poisoned(l->dev, shift + rows * l->s.out);
    r->dx = test_tensor_poisoned(l->dev, shift + rows * l->s.in);
    r->dw = test_tensor_poisoned(l->dev, l->s.in * l->s.out);
    r->db = test_tensor_poisoned(l->dev, l->s.out);
}

static void drop_result(struct result *r)
{
    test_tensor_drop(&r->y), test_tensor_drop(&r->dx);
    test_tensor_drop(&r->dw), test_tensor_drop(&r->db);
}

/* Number `i` of an array in the device's precision. */
static void *number_of(const struct layer *l, const void *array, size_t i)
{
    return (char *)(uintptr_t)array + i * ct_precision_bytes(l->dev->precision);
}

/* `parts` parts from number `first` on, at once; their gradients of weights go to the host. */
static void run_parts(struct layer *l, struct result *r, size_t first, size_t parts, float *dw,
                      float *db)
{
    struct ct_err err = {0};
    size_t in = l->s.in, out = l->s.out, row = first * l->s.rows, most = parts * l->s.rows;
    size_t left = row < l->s.batch ? l->s.batch - row : 0;
    struct ct_linear forward = {.batch = left < most ? left : most, .in = in, .out = out};
    forward.x = number_of(l, l->x.data, row * in), forward.w = l->w.data, forward.b = l->b.data;
    forward.y = number_of(l, r->y.data, r->shift + row * out), forward.relu = true;
    forward.partition = (struct ct_partition){.rows = l->s.rows, .parts = parts, .of = OF};
    ct_check_need(l->dev->ops->linear(l->dev, &forward, &err), &err);
    struct ct_linear_grad back = {.batch = forward.batch, .in = in, .out = out};
    back.x = back.mask = forward.x, back.w = l->w.data;
    back.dy = number_of(l, l->dy.data, row * out);
    back.dx = number_of(l, r->dx.data, r->shift + row * in);
    back.dw = r->dw.data, back.db = r->db.data, back.partition = forward.partition;
    ct_check_need(l->dev->ops->linear_grad(l->dev, &back, &err), &err);
    test_tensor_pull(&r->dw), test_tensor_pull(&r->db);
    memcpy(dw, r->dw.host, in * out * sizeof *dw);
    memcpy(db, r->db.host, out * sizeof *db);
}

static void add(float *to, const float *right, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += right[i];
    }
}

/* The tree over parts, of which `at_once` at the bottom are left to the device. */
static void run_tree(struct layer *l, struct result *r, size_t first, size_t parts, size_t at_once,
                     float *dw, float *db)
{
    if (parts == at_once) {
        run_parts(l, r, first, parts, dw, db);
        return;
    }
    size_t weights = l->s.in * l->s.out;
    float *right = ct_malloc((weights + l->s.out) * sizeof *right);
    CHECK(right != NULL);
    run_tree(l, r, first, parts / 2, at_once, dw, db);
    run_tree(l, r, first + parts / 2, parts / 2, at_once, right, right + weights);
    add(dw, right, weights);
    add(db, right + weights, l->s.out);
    ct_free(right);
}

static void expect_right(struct layer *l, struct result *r, double tolerance)
{
    size_t in = l->s.in, out = l->s.out, rows = OF * l->s.rows;
    double *y = ct_check_doubles(rows * out), *dx = ct_check_doubles(rows * in);
    double *dw = ct_check_doubles(in * out), *db = ct_check_doubles(out);
    const struct ct_linear forward = {.batch = l->s.batch,
                                      .in = in,
                                      .out = out,
                                      .x = l->x.wide.host,
                                      .w = l->w.wide.host,
                                      .b = l->b.host,
                                      .relu = true};
    ct_ref_linear(&forward, y);
    const struct ct_linear_grad back = {.batch = l->s.batch,
                                        .in = in,
                                        .out = out,
                                        .x = l->x.wide.host,
                                        .w = l->w.wide.host,
                                        .dy = l->dy.wide.host,
                                        .mask = l->x.wide.host};
    ct_ref_linear_grad(&back, dw, db, dx);
    test_tensor_expect("dw", &r->dw, dw, tolerance * sqrt((double)rows));
    test_tensor_expect("db", &r->db, db, tolerance * sqrt((double)rows));
    r->y.count = l->s.batch * out, r->dx.count = l->s.batch * in; /* behind it: padding */
    test_tensor_expect("y", &r->y, y, tolerance * sqrt((double)in));
    test_tensor_expect("dx", &r->dx, dx, tolerance * sqrt((double)out));
    ct_free(y), ct_free(dx), ct_free(dw), ct_free(db);
}

/* Behind the batch are zeros, as gather and loss leave them. */
static void pad(struct layer *l, struct ct_numbers *n, size_t width)
{
    struct ct_err err = {0};
    size_t from = l->s.batch * width, rest = OF * l->s.rows * width - from;
    size_t bytes = rest * ct_precision_bytes(l->dev->precision);
    memset(n->wide.host + from, 0, rest * sizeof(float));
    ct_check_need(l->dev->ops->clear(l->dev, number_of(l, n->data, from), bytes, &err), &err);
}

static void check_sizes(struct ct_device *dev, struct sizes s, double tolerance)
{
    struct ct_random rng = {s.rows * 31 + s.in};
    size_t rows = OF * s.rows, weights = s.in * s.out;
    struct layer l = {.dev = dev, .s = s};
    l.x = ct_numbers_filled(dev, rows * s.in, &rng), l.w = ct_numbers_filled(dev, weights, &rng);
    l.dy = ct_numbers_filled(dev, rows * s.out, &rng), l.b = test_tensor_filled(dev, s.out, &rng);
    pad(&l, &l.x, s.in), pad(&l, &l.dy, s.out);
    float *dw = ct_malloc(weights * sizeof *dw), *db = ct_malloc(s.out * sizeof *db);
    CHECK(dw != NULL && db != NULL);
    struct result whole;
    begin_result(&l, 0, &whole);
    run_parts(&l, &whole, 0, OF, dw, db);
    ct_numbers_pull(&whole.y), ct_numbers_pull(&whole.dx);
    for (size_t at_once = 1; at_once < OF; at_once *= 2) {
        struct result pieces;
        begin_result(&l, 16, &pieces);
        run_tree(&l, &pieces, 0, OF, at_once, dw, db);
        ct_numbers_pull(&pieces.y), ct_numbers_pull(&pieces.dx);
        CHECK(memcmp(dw, whole.dw.host, weights * sizeof *dw) == 0);
        CHECK(memcmp(db, whole.db.host, s.out * sizeof *db) == 0);
        size_t y = s.batch * s.out * sizeof(float), dx = s.batch * s.in * sizeof(float);
        CHECK(memcmp(pieces.y.host + pieces.shift, whole.y.host, y) == 0);
        CHECK(memcmp(pieces.dx.host + pieces.shift, whole.dx.host, dx) == 0);
        drop_result(&pieces);
    }
    expect_right(&l, &whole, tolerance);
    drop_result(&whole);
    ct_free(dw), ct_free(db);
    ct_numbers_drop(&l.x), ct_numbers_drop(&l.w), ct_numbers_drop(&l.dy);
    test_tensor_drop(&l.b);
}

static void check_parts(struct ct_device *dev)
{
    static const struct {
        enum ct_precision precision;
        double tolerance;
    } rows[] = {{CT_PRECISION_F32, 2e-6}, {CT_PRECISION_TF32, 2e-3}, {CT_PRECISION_BF16, 1e-2}};
    static const struct sizes all[] = {
        {16, 64, 48, 128}, {5, 83, 29, 32}, {3, 1, 1, 24}, {1, 17, 3, 8}, {32, 40, 1, 256}};
    for (size_t p = 0; p < sizeof rows / sizeof rows[0]; p++) {
        for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
            if (ct_device_set_precision(dev, rows[p].precision, NULL) == 0) {
                check_sizes(dev, all[i], rows[p].tolerance);
            }
        }
    }
    struct ct_err err = {0};
    if (ct_device_set_precision(dev, CT_PRECISION_FP8, NULL) == 0) {
        const struct ct_linear op = {.batch = 16, .in = 16, .out = 16, .partition = {16, 1, 1}};
        CHECK(dev->ops->linear(dev, &op, &err) == CT_EUNSUPPORTED);
    }
    ct_check_need(ct_device_set_precision(dev, CT_PRECISION_F32, &err), &err);
}

/* ---- what is behind the batch ---------------------------------------------------------------- */

static void check_padding(struct ct_device *dev)
{
    enum { ROWS = 4, PARTS = 2, BATCH = 5, WIDTH = 3, ALL = ROWS * PARTS * WIDTH };
    struct ct_err err = {0};
    const struct ct_partition partition = {.rows = ROWS, .parts = PARTS, .of = PARTS};
    const uint32_t index[BATCH] = {0};
    if (dev->kind == CT_DEVICE_CPU) {
        return; /* it needs no padding */
    }
    struct test_tensor x = test_tensor_poisoned(dev, ALL), d = test_tensor_poisoned(dev, ALL);
    struct ct_random rng = {3};
    struct test_tensor logits = test_tensor_filled(dev, ALL, &rng);
    void *samples, *labels, *totals;
    ct_check_need(dev->ops->alloc(dev, WIDTH, &samples, &err), &err);
    ct_check_need(dev->ops->alloc(dev, ROWS * PARTS, &labels, &err), &err);
    ct_check_need(dev->ops->alloc(dev, 2 * sizeof(double), &totals, &err), &err);
    const struct ct_gather gather = {.images = samples,
                                     .labels = samples,
                                     .index = index,
                                     .batch = BATCH,
                                     .features = WIDTH,
                                     .mean = 1,
                                     .stddev = 1,
                                     .x = x.data,
                                     .y = labels,
                                     .partition = partition};
    ct_check_need(dev->ops->gather(dev, &gather, &err), &err);
    const struct ct_loss loss = {.batch = BATCH,
                                 .classes = WIDTH,
                                 .logits = logits.data,
                                 .labels = labels,
                                 .scale = 1,
                                 .dlogits = d.data,
                                 .totals = totals,
                                 .partition = partition};
    ct_check_need(dev->ops->loss(dev, &loss, &err), &err);
    test_tensor_pull(&x), test_tensor_pull(&d);
    for (size_t i = 0; i < ALL; i++) {
        CHECK((x.host[i] == 0) == (i >= BATCH * WIDTH));
        CHECK((d.host[i] == 0) == (i >= BATCH * WIDTH));
    }
    dev->ops->release(dev, samples), dev->ops->release(dev, labels);
    dev->ops->release(dev, totals);
    test_tensor_drop(&x), test_tensor_drop(&d), test_tensor_drop(&logits);
}

/* ---- trees ----------------------------------------------------------------------------------- */

static float tree(const float *from, size_t n, size_t step)
{
    return n == 1 ? *from : tree(from, n / 2, step) + tree(from + n / 2 * step, n / 2, step);
}

static void check_tree_of(struct ct_device *dev, size_t n, size_t count)
{
    struct ct_err err = {0};
    struct ct_random rng = {n};
    size_t step = count + n % 3;
    struct test_tensor from = test_tensor_filled(dev, n * step, &rng);
    float *sums = ct_malloc(count * sizeof *sums);
    CHECK(sums != NULL);
    for (size_t i = 0; i < count; i++) {
        sums[i] = tree(from.host + i, n, step);
    }
    /* In the place of one of them, as a communicator wants it. */
    size_t place = (n - 1) * step;
    const struct ct_tree_sum op = {n, count, step, from.data, from.data + place};
    ct_check_need(dev->ops->fork(dev, &err), &err);
    ct_check_need(dev->ops->tree_sum(dev, &op, &err), &err);
    ct_check_need(dev->ops->join(dev, &err), &err);
    test_tensor_pull(&from);
    CHECK(memcmp(from.host + place, sums, count * sizeof *sums) == 0);
    ct_free(sums);
    test_tensor_drop(&from);
}

static void check_trees(struct ct_device *dev)
{
    for (size_t n = 1; dev->ops->tree_sum != NULL && n <= 1024; n *= 2) {
        check_tree_of(dev, n, 1);
        check_tree_of(dev, n, 700);
    }
}

const struct ct_check ct_checks_cut[] = {
    {"cut_parts", check_parts},
    {"cut_padding", check_padding},
    {"tree_sum", check_trees},
    {NULL, NULL},
};
