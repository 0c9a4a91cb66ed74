/* SPDX-License-Identifier: Apache-2.0
 *
 * Every instruction set variant of the CPU loops that this machine runs. The matrix products, which
 * the device table uses only where oneDNN is missing, are checked against the float64 reference;
 * the element-wise loops must agree between variants and alignments to the bit, and the updates
 * with PyTorch's.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/cpu/cpu_loops.h"
#include "tests/gpu/reference.h"

#include <math.h>

static const size_t sizes[] = {1, 3, 5, 17, 33, 66, 300};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))
#define MOST 1024

static float *floats(size_t count, struct ct_random *rng)
{
    float *p = ct_malloc(count * sizeof(*p));
    assert_non_null(p);
    for (size_t i = 0; i < count; i++) {
        p[i] = rng != NULL ? ct_random_float(rng) : NAN;
    }
    return p;
}

static void expect(const struct ct_cpu_loops *loops, const char *what, const float *got,
                   const double *ref, size_t count, size_t terms)
{
    double tol = 1e-6 * (sqrt((double)terms) + 1.0);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - ref[i]) <= tol + fabs(ref[i]) * 2e-6)) {
            fail_msg("%s %s[%zu]: %.9g, reference %.9g", loops->name, what, i, (double)got[i],
                     ref[i]);
        }
    }
}

static void check_products(const struct ct_cpu_loops *loops, size_t batch, size_t in, size_t out)
{
    struct ct_random rng = {batch * 1000003 + in * 1009 + out};
    float *x = floats(batch * in, &rng), *w = floats(out * in, &rng), *b = floats(out, &rng);
    float *dy = floats(batch * out, &rng), *y = floats(batch * out, NULL);
    float *dw = floats(out * in, NULL), *dx = floats(batch * in, NULL);
    float *scratch = floats(CT_PRODUCT_SCRATCH, NULL);
    size_t most = batch * in + batch * out + out * in + out;
    double *ref = ct_calloc(most, sizeof(*ref)), *ref_dx = ct_calloc(most, sizeof(*ref_dx));
    double *ref_db = ct_calloc(most, sizeof(*ref_db));
    assert_true(ref != NULL && ref_dx != NULL && ref_db != NULL);

    struct ct_linear linear = {batch, in, out, x, w, b, y, (batch + in + out) % 2, false};
    ct_ref_linear(&linear, ref);
    struct ct_product p = {batch, out, in, {x, in, 1}, {w, 1, in}, y, scratch};
    loops->product(&p);
    loops->add_bias(&linear);
    expect(loops, "y", y, ref, batch * out, in);
    /* The other way round, as small batches go. */
    float *yt = floats(batch * out, NULL), *again = floats(batch * out, NULL);
    p = (struct ct_product){out, batch, in, {w, in, 1}, {x, 1, in}, yt, scratch};
    loops->product(&p);
    linear.y = again;
    loops->finish(&linear, yt);
    expect(loops, "y turned", again, ref, batch * out, in);
    ct_free(yt), ct_free(again);

    struct ct_linear_grad grad = {.batch = batch, .in = in, .out = out, .x = x, .w = w, .dy = dy};
    ct_ref_linear_grad(&grad, ref, ref_db, ref_dx);
    p = (struct ct_product){out, in, batch, {dy, 1, out}, {x, in, 1}, dw, scratch};
    loops->product(&p);
    expect(loops, "dw", dw, ref, out * in, batch);
    p = (struct ct_product){batch, in, out, {dy, out, 1}, {w, in, 1}, dx, scratch};
    loops->product(&p);
    expect(loops, "dx", dx, ref_dx, batch * in, out);

    ct_free(x), ct_free(w), ct_free(b), ct_free(dy), ct_free(y), ct_free(dw), ct_free(dx);
    ct_free(scratch), ct_free(ref), ct_free(ref_dx), ct_free(ref_db);
}

static bool is_offered(const char *name)
{
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        if (strcmp(loops->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static void test_every_variant_that_runs_here_comes_once_the_fastest_first(void **state)
{
    (void)state;
    static const char *const fastest_first[] = {"avx512", "avx2", "generic"};
    size_t v = 0;
    for (size_t i = 0; i < 3; i++) {
        if (is_offered(fastest_first[i])) {
            assert_string_equal(ct_cpu_loops_get(v)->name, fastest_first[i]);
            v++;
        }
    }
    assert_null(ct_cpu_loops_get(v));
    assert_true(is_offered("generic"));
#if defined(__x86_64__)
    assert_int_equal(is_offered("avx2"), __builtin_cpu_supports("avx2") != 0);
    /* No processor has these two without the rest of what the variant needs. */
    assert_int_equal(is_offered("avx512"), __builtin_cpu_supports("avx512dq") != 0 &&
                                               __builtin_cpu_supports("avx512bw") != 0);
#endif
}

static void test_products_agree_with_the_reference(void **state)
{
    (void)state;
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        for (size_t b = 0; b < SIZES; b++) {
            for (size_t i = 0; i < SIZES; i++) {
                for (size_t o = 0; o < SIZES; o++) {
                    check_products(loops, sizes[b], sizes[i], sizes[o]);
                }
            }
        }
    }
}

static void test_a_product_of_nothing_is_zero(void **state)
{
    (void)state;
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        float c[6] = {NAN, NAN, NAN, NAN, NAN, NAN};
        struct ct_product p = {.m = 2, .n = 3, .k = 0, .c = c};
        loops->product(&p);
        for (size_t i = 0; i < 6; i++) {
            assert_true(c[i] == 0.0f);
        }
    }
}

/* Everything element-wise, on data that starts `offset` floats past an aligned address. */
struct outcome {
    float x[MOST], sum[MOST], masked[MOST], dlogits[MOST], p[MOST], v[MOST], q[MOST], m[MOST];
    double totals[2];
};

static void run_all(const struct ct_cpu_loops *loops, size_t offset, struct outcome *out)
{
    struct ct_random rng = {77};
    static const size_t rows = 30, cols = 33, count = 990;
    _Alignas(64) float space[5][MOST + 16];
    _Alignas(64) uint8_t images[MOST + 16], labels[64], y[64];
    uint32_t index[64];
    float *at[5];
    for (size_t n = 0; n < 5; n++) {
        at[n] = space[n] + offset;
        for (size_t i = 0; i < count; i++) {
            at[n][i] = ct_random_float(&rng);
        }
    }
    for (size_t i = 0; i < count; i++) {
        images[offset + i] = (uint8_t)ct_random_below(&rng, 256);
        at[4][i] *= at[4][i]; /* serves as AdamW's second moment */
    }
    for (size_t i = 0; i < rows; i++) {
        index[i] = (uint32_t)ct_random_below(&rng, rows);
        labels[i] = (uint8_t)ct_random_below(&rng, cols);
    }
    memset(out, 0, sizeof(*out));
    struct ct_gather gather = {images + offset, labels, index, rows, cols, 0.3f, 0.4f, at[3], y};
    loops->gather(&gather);
    memcpy(out->x, at[3], count * sizeof(float));
    loops->column_sum(rows, cols, at[0], at[3]);
    memcpy(out->sum, at[3], cols * sizeof(float));
    memcpy(at[3], at[0], count * sizeof(float));
    loops->mask(count, at[3], at[1]);
    memcpy(out->masked, at[3], count * sizeof(float));
    struct ct_loss loss = {rows, cols, at[0], labels, 0.125f, at[3], out->totals};
    loops->loss(&loss);
    memcpy(out->dlogits, at[3], count * sizeof(float));
    struct ct_sgd sgd = {count, at[0], at[1], at[2], 0.1f, 0.9f, 0.01f, NULL};
    loops->sgd(&sgd);
    memcpy(out->p, at[0], count * sizeof(float));
    memcpy(out->v, at[1], count * sizeof(float));
    struct ct_adamw adamw = {count, at[0], at[1], at[4], at[2], 0.1f,
                             0.9f,  0.99f, 1e-8f, 0.1f,  3,     NULL};
    loops->adamw(&adamw);
    memcpy(out->q, at[0], count * sizeof(float));
    memcpy(out->m, at[1], count * sizeof(float));
}

static void test_same_bits_everywhere(void **state)
{
    (void)state;
    static struct outcome first, other;
    run_all(ct_cpu_loops_get(0), 0, &first);
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        for (size_t offset = 0; offset < 16; offset += 3) {
            run_all(loops, offset, &other);
            assert_memory_equal(first.x, other.x, sizeof(first.x));
            assert_memory_equal(first.sum, other.sum, sizeof(first.sum));
            assert_memory_equal(first.masked, other.masked, sizeof(first.masked));
            assert_memory_equal(first.dlogits, other.dlogits, sizeof(first.dlogits));
            assert_memory_equal(first.totals, other.totals, sizeof(first.totals));
            assert_memory_equal(first.p, other.p, sizeof(first.p));
            assert_memory_equal(first.v, other.v, sizeof(first.v));
            assert_memory_equal(first.q, other.q, sizeof(first.q));
            assert_memory_equal(first.m, other.m, sizeof(first.m));
        }
    }
}

/* Three steps from {1, -2, 0.5}; the expected values were printed by PyTorch 2.15. */
static const float golden_grads[3][3] = {
    {0.5f, -0.25f, 0.0f}, {-1.0f, 0.75f, 0.125f}, {0.1f, 2.0f, -3.0f}};
static const float golden_start[3] = {1.0f, -2.0f, 0.5f};

static void expect_golden(const float got[3], const float want[3])
{
    for (size_t i = 0; i < 3; i++) {
        assert_true(fabsf(got[i] - want[i]) <= 2.5e-7f * fabsf(want[i])); /* 2 units of rounding */
    }
}

static void test_sgd_is_pytorchs(void **state)
{
    (void)state;
    const float want[3][3] = {{0.9490000009536743f, -1.9730000495910645f, 0.49950000643730164f},
                              {1.0021510124206543f, -2.0217270851135254f, 0.4860505163669586f},
                              {1.038984775543213f, -2.263559579849243f, 0.7734599113464355f}};
    float p[3], v[3] = {0};
    memcpy(p, golden_start, sizeof(p));
    for (size_t step = 0; step < 3; step++) {
        struct ct_sgd op = {3, p, v, golden_grads[step], 0.1f, 0.9f, 0.01f, NULL};
        ct_cpu_loops_get(0)->sgd(&op);
        expect_golden(p, want[step]);
    }
}

static void test_adamw_is_pytorchs(void **state)
{
    (void)state;
    const float want[3][3] = {{0.9890000224113464f, -1.9880000352859497f, 0.49950000643730164f},
                              {0.9916720986366272f, -1.990954041481018f, 0.49155914783477783f},
                              {0.9929297566413879f, -1.9963080883026123f, 0.497210830450058f}};
    float p[3], m[3] = {0}, v[3] = {0};
    memcpy(p, golden_start, sizeof(p));
    for (int64_t step = 1; step <= 3; step++) {
        struct ct_adamw op = {3,     p,    m,    v,   golden_grads[step - 1], 0.01f, 0.9f, 0.999f,
                              1e-8f, 0.1f, step, NULL};
        ct_cpu_loops_get(0)->adamw(&op);
        expect_golden(p, want[step - 1]);
    }
}

/* ---- gradients as a tree ----------------------------------------------------------------------
 */

static float widen(uint16_t narrow)
{
    uint32_t bits = (uint32_t)narrow << 16;
    float wide;
    memcpy(&wide, &bits, sizeof(wide));
    return wide;
}

/* The rows of the batch from `first` on. */
static void tree(const struct ct_cpu_loops *loops, const struct ct_tree *whole, size_t first,
                 size_t rows, struct ct_partition partition, float *dw, float *db)
{
    size_t number = whole->bf16 ? sizeof(uint16_t) : sizeof(float);
    struct ct_tree op = *whole;
    op.batch = rows;
    op.partition = partition;
    op.x = (const char *)op.x + first * op.in * number;
    op.dy = (const char *)op.dy + first * op.out * number;
    op.dw = dw, op.db = db;
    op.scratch = floats(ct_tree_scratch(rows, op.out), NULL);
    loops->tree(&op);
    ct_free(op.scratch);
}

/* The gradients of parts [first, first + parts) as the balanced tree that the header describes. */
static void add_up(const struct ct_cpu_loops *loops, const struct ct_tree *op, size_t first,
                   size_t parts, float *dw, float *db)
{
    size_t rows = op->partition.rows, from = first * rows < op->batch ? first * rows : op->batch;
    if (parts == 1) {
        size_t left = op->batch - from;
        tree(loops, op, from, left < rows ? left : rows, (struct ct_partition){rows, 1, 1}, dw, db);
        return;
    }
    float *right_dw = floats(op->out * op->in, NULL), *right_db = floats(op->out, NULL);
    add_up(loops, op, first, parts / 2, dw, db);
    add_up(loops, op, first + parts / 2, parts / 2, right_dw, right_db);
    for (size_t i = 0; i < op->out * op->in; i++) {
        dw[i] += right_dw[i];
    }
    for (size_t i = 0; i < op->out; i++) {
        db[i] += right_db[i];
    }
    ct_free(right_dw), ct_free(right_db);
}

static void check_tree(const struct ct_cpu_loops *loops, size_t batch, size_t in, size_t out,
                       size_t parts, bool bf16)
{
    struct ct_random rng = {batch * 1000003 + in * 1009 + out};
    float *x = floats(batch * in, &rng), *dy = floats(batch * out, &rng);
    float *w = floats(out * in, &rng), *dw = floats(out * in, NULL), *db = floats(out, NULL);
    float *sum_dw = floats(out * in, NULL), *sum_db = floats(out, NULL);
    uint16_t *x16 = ct_calloc(batch * in, sizeof(*x16)),
             *dy16 = ct_calloc(batch * out, sizeof(*dy16));
    double *ref_dw = ct_calloc(out * in, sizeof(*ref_dw)),
           *ref_db = ct_calloc(out, sizeof(*ref_db));
    double *ref_dx = ct_calloc(batch * in, sizeof(*ref_dx));
    assert_true(x16 != NULL && dy16 != NULL && ref_dw != NULL && ref_db != NULL && ref_dx != NULL);
    loops->narrow(batch * in, x, x16);
    loops->narrow(batch * out, dy, dy16);
    for (size_t i = 0; bf16 && i < batch * in; i++) {
        x[i] = widen(x16[i]);
    }
    for (size_t i = 0; bf16 && i < batch * out; i++) {
        dy[i] = widen(dy16[i]);
    }
    const struct ct_tree op = {.batch = batch,
                               .in = in,
                               .out = out,
                               .partition = {(batch + parts - 1) / parts, parts, parts},
                               .bf16 = bf16,
                               .x = bf16 ? (const void *)x16 : x,
                               .dy = bf16 ? (const void *)dy16 : dy};
    tree(loops, &op, 0, batch, op.partition, dw, db);
    struct ct_linear_grad grad = {.batch = batch, .in = in, .out = out, .x = x, .w = w, .dy = dy};
    ct_ref_linear_grad(&grad, ref_dw, ref_db, ref_dx);
    expect(loops, "dw", dw, ref_dw, out * in, batch);
    expect(loops, "db", db, ref_db, out, batch);
    /* The parts may be on several machines, so their order is fixed to the bit. */
    add_up(loops, &op, 0, parts, sum_dw, sum_db);
    assert_memory_equal(dw, sum_dw, out * in * sizeof(*dw));
    assert_memory_equal(db, sum_db, out * sizeof(*db));
    ct_free(x), ct_free(dy), ct_free(w), ct_free(dw), ct_free(db), ct_free(sum_dw);
    ct_free(sum_db), ct_free(x16), ct_free(dy16), ct_free(ref_dw), ct_free(ref_db), ct_free(ref_dx);
}

/* Of the batches some leave parts that are shorter than the others, or have no row at all. */
static void test_gradients_add_up_as_a_tree(void **state)
{
    static const size_t batches[] = {1, 5, 24, 33}, ins[] = {1, 31, 33, 70},
                        outs[] = {1, 3, 13, 24};
    (void)state;
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        for (size_t i = 0; i < 4 * 4 * 4; i++) {
            for (size_t parts = 1; parts <= 16; parts *= 4) {
                size_t b = batches[i / 16], in = ins[i / 4 % 4], out = outs[i % 4];
                check_tree(loops, b, in, out, parts, false);
                check_tree(loops, b, in, out, 2 * parts, true);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_variant_that_runs_here_comes_once_the_fastest_first),
        cmocka_unit_test(test_products_agree_with_the_reference),
        cmocka_unit_test(test_a_product_of_nothing_is_zero),
        cmocka_unit_test(test_gradients_add_up_as_a_tree),
        cmocka_unit_test(test_same_bits_everywhere),
        cmocka_unit_test(test_sgd_is_pytorchs),
        cmocka_unit_test(test_adamw_is_pytorchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
