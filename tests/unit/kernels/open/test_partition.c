/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations on a cut batch: the bits are those of its parts, computed alone and added as a tree.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/device/device.h"

#include <math.h>

/* No multiple of any tile. */
#define IN 83
#define OUT 29
#define ROWS 5
#define PARTS 8
#define BATCH (ROWS * 6 + 2) /* the seventh part is short, the last one empty */

static float values(size_t i)
{
    return (float)sin((double)i * 1.7) * 0.3f;
}

struct data {
    struct ct_device *dev;
    float x[BATCH * IN], w[OUT * IN], b[OUT], dy[BATCH * OUT];
};

static struct data *open_data(void)
{
    struct data *d = ct_calloc(1, sizeof(*d));
    assert_non_null(d);
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &d->dev, NULL), 0);
    for (size_t i = 0; i < BATCH * IN; i++) {
        d->x[i] = values(i);
    }
    for (size_t i = 0; i < OUT * IN; i++) {
        d->w[i] = values(i + 7);
    }
    for (size_t i = 0; i < BATCH * OUT; i++) {
        d->dy[i] = values(i + 11);
    }
    return d;
}

static void close_data(struct data *d)
{
    d->dev->ops->close(d->dev);
    ct_free(d);
}

struct gradient {
    float dw[OUT * IN], db[OUT], dx[BATCH * IN];
};

/* Of rows [first, end) in parts of ROWS. */
static struct gradient *gradient(struct data *d, size_t first, size_t end, size_t parts)
{
    struct gradient *g = ct_calloc(1, sizeof(*g));
    assert_non_null(g);
    if (first >= end) {
        return g;
    }
    const struct ct_linear_grad op = {
        .batch = end - first,
        .in = IN,
        .out = OUT,
        .x = d->x + first * IN,
        .w = d->w,
        .dy = d->dy + first * OUT,
        .mask = d->x + first * IN,
        .dw = g->dw,
        .db = g->db,
        .dx = g->dx + first * IN,
        .partition = {.rows = ROWS, .parts = parts},
    };
    assert_int_equal(d->dev->ops->linear_grad(d->dev, &op, NULL), 0);
    return g;
}

static void add(struct gradient *to, const struct gradient *right)
{
    for (size_t i = 0; i < OUT * IN; i++) {
        to->dw[i] += right->dw[i];
    }
    for (size_t i = 0; i < OUT; i++) {
        to->db[i] += right->db[i];
    }
    for (size_t i = 0; i < BATCH * IN; i++) {
        to->dx[i] += right->dx[i]; /* one of them is 0 */
    }
}

/* The same tree, whose subtrees of `leaf` parts are left to the operation. */
static struct gradient *tree(struct data *d, size_t part, size_t parts, size_t leaf)
{
    if (parts == leaf) {
        size_t first = part * ROWS, end = (part + parts) * ROWS;
        return gradient(d, first, end < BATCH ? end : BATCH, parts);
    }
    struct gradient *left = tree(d, part, parts / 2, leaf);
    struct gradient *right = tree(d, part + parts / 2, parts / 2, leaf);
    add(left, right);
    ct_free(right);
    return left;
}

static void gradients_are_the_tree_over_the_parts(void **state)
{
    (void)state;
    struct data *d = open_data();
    struct gradient *whole = gradient(d, 0, BATCH, PARTS);
    for (size_t leaf = 1; leaf < PARTS; leaf *= 2) {
        struct gradient *made = tree(d, 0, PARTS, leaf);
        assert_memory_equal(made, whole, sizeof(*made));
        ct_free(made);
    }
    ct_free(whole);
    close_data(d);
}

static void gradients_are_right(void **state)
{
    (void)state;
    struct data *d = open_data();
    struct gradient *g = gradient(d, 0, BATCH, PARTS);
    for (size_t o = 0; o < OUT; o++) {
        double db = 0;
        for (size_t r = 0; r < BATCH; r++) {
            db += (double)d->dy[r * OUT + o];
        }
        assert_true(fabs(db - (double)g->db[o]) < 1e-5);
        for (size_t i = 0; i < IN; i++) {
            double dw = 0;
            for (size_t r = 0; r < BATCH; r++) {
                dw += (double)d->dy[r * OUT + o] * (double)d->x[r * IN + i];
            }
            assert_true(fabs(dw - (double)g->dw[o * IN + i]) < 1e-5);
        }
    }
    ct_free(g);
    close_data(d);
}

static void rows_do_not_know_of_their_neighbours(void **state)
{
    (void)state;
    struct data *d = open_data();
    static float whole[BATCH * OUT], alone[BATCH * OUT];
    struct ct_linear op = {
        .batch = BATCH,
        .in = IN,
        .out = OUT,
        .x = d->x,
        .w = d->w,
        .b = d->b,
        .y = whole,
        .relu = true,
        .partition = {.rows = ROWS, .parts = PARTS},
    };
    assert_int_equal(d->dev->ops->linear(d->dev, &op, NULL), 0);
    for (size_t row = 0; row < BATCH; row += ROWS) {
        op.batch = BATCH - row < ROWS ? BATCH - row : ROWS;
        op.x = d->x + row * IN;
        op.y = alone + row * OUT;
        assert_int_equal(d->dev->ops->linear(d->dev, &op, NULL), 0);
    }
    assert_memory_equal(whole, alone, sizeof(whole));
    close_data(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_the_tree_over_the_parts),
        cmocka_unit_test(gradients_are_right),
        cmocka_unit_test(rows_do_not_know_of_their_neighbours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
