/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16 on the CPU: the loops in every instruction set, and the device's operations against the
 * float64 reference on inputs that bfloat16 holds exactly, so that only their own rounding is left.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/cpu/cpu_loops.h"
#include "tests/gpu/reference.h"
#include "tests/lib/fault.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>

static float widen(uint16_t narrow)
{
    uint32_t bits = (uint32_t)narrow << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* ---- loops ----------------------------------------------------------------------------------- */

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void test_narrow_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        uint32_t wide;
        uint16_t narrow;
    } cases[] = {
        {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80}, {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81},
        {0x3f818000, 0x3f82}, {0xbf818000, 0xbf82}, {0x00000000, 0x0000}, {0x80000000, 0x8000},
        {0x00000001, 0x0000}, {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f7fffff, 0x7f80},
        {0x7fc00000, 0x7fc0}, {0x7f800001, 0x7fc0}, {0xffffffff, 0x7fc0},
    };
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        /* Many copies, so that both the vectors and the rest behind them are met. */
        for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
            float from[67];
            uint16_t to[68] = {0};
            for (size_t i = 0; i < 67; i++) {
                from[i] = from_bits(cases[c].wide);
            }
            to[67] = 0x1234;
            loops->narrow(67, from, to);
            for (size_t i = 0; i < 67; i++) {
                assert_int_equal(to[i], cases[c].narrow);
            }
            assert_int_equal(to[67], 0x1234);
        }
    }
}

static void test_gather_mask_and_sum(void **state)
{
    (void)state;
    enum { SAMPLES = 40, ROWS = 19, COLS = 37 };
    uint8_t images[SAMPLES * COLS], labels[SAMPLES], y[ROWS];
    uint32_t index[ROWS];
    struct ct_random rng = {5};
    for (size_t i = 0; i < sizeof images; i++) {
        images[i] = (uint8_t)ct_random_below(&rng, 256);
    }
    for (size_t i = 0; i < SAMPLES; i++) {
        labels[i] = (uint8_t)i;
    }
    for (size_t i = 0; i < ROWS; i++) {
        index[i] = (uint32_t)ct_random_below(&rng, SAMPLES);
    }
    const struct ct_cpu_loops *loops;
    for (size_t v = 0; (loops = ct_cpu_loops_get(v)) != NULL; v++) {
        uint16_t x[ROWS * COLS], want[ROWS * COLS], masked[ROWS * COLS];
        float wide[ROWS * COLS], sum[COLS];
        struct ct_gather op = {images, labels, index, ROWS, COLS, 0.3f, 0.4f, wide, y};
        loops->gather(&op);
        loops->narrow((size_t)ROWS * COLS, wide, want);
        op.x = x;
        memset(y, 0xff, sizeof y);
        loops->gather16(&op);
        assert_memory_equal(x, want, sizeof x);
        for (size_t r = 0; r < ROWS; r++) {
            assert_int_equal(y[r], index[r]);
        }
        loops->column_sum16(ROWS, COLS, x, sum);
        for (size_t c = 0; c < COLS; c++) {
            double ref = 0;
            for (size_t r = 0; r < ROWS; r++) {
                ref += (double)widen(x[r * COLS + c]);
            }
            assert_true(fabs((double)sum[c] - ref) < 1e-5);
        }
        memcpy(masked, x, sizeof x);
        x[3] = 0x8000; /* -0 is not positive */
        loops->mask16((size_t)ROWS * COLS, masked, x);
        for (size_t i = 0; i < (size_t)ROWS * COLS; i++) {
            assert_int_equal(masked[i], widen(x[i]) > 0 ? want[i] : 0);
        }
    }
}

/* ---- device ---------------------------------------------------------------------------------- */

struct numbers {
    float *wide;
    uint16_t *narrow;
    size_t count;
};

/* Random numbers that are the same in both. */
static struct numbers draw(const struct ct_cpu_loops *loops, size_t count, struct ct_random *rng)
{
    struct numbers n = {ct_calloc(count, sizeof(float)), ct_calloc(count, sizeof(uint16_t)), count};
    assert_true(n.wide != NULL && n.narrow != NULL);
    for (size_t i = 0; i < count; i++) {
        n.wide[i] = ct_random_float(rng);
    }
    loops->narrow(count, n.wide, n.narrow);
    for (size_t i = 0; i < count; i++) {
        n.wide[i] = widen(n.narrow[i]);
    }
    return n;
}

static void drop(struct numbers *n)
{
    ct_free(n->wide);
    ct_free(n->narrow);
}

/* `step` is what rounding the result may cost, relative to it. */
static void expect(const char *what, size_t i, double got, double ref, size_t terms, double step)
{
    if (!(fabs(got - ref) <= fabs(ref) * step + 1e-6 * (sqrt((double)terms) + 1))) {
        fail_msg("%s[%zu] is %.9g, reference %.9g", what, i, got, ref);
    }
}

static void check_size(struct ct_device *dev, size_t batch, size_t in, size_t out, bool wide)
{
    const struct ct_cpu_loops *loops = ct_cpu_loops_get(0);
    struct ct_random rng = {batch * 1000003 + in * 1009 + out};
    struct numbers x = draw(loops, batch * in, &rng), w = draw(loops, out * in, &rng),
                   b = draw(loops, out, &rng), dy = draw(loops, batch * out, &rng),
                   y = draw(loops, batch * out, &rng), dx = draw(loops, batch * in, &rng),
                   dw = draw(loops, out * in, &rng), db = draw(loops, out, &rng);
    size_t most = (batch + 1) * (in + out) + in * out;
    double *ref = ct_calloc(most, sizeof *ref), *ref_dx = ct_calloc(most, sizeof *ref),
           *ref_db = ct_calloc(most, sizeof *ref);
    assert_true(ref != NULL && ref_dx != NULL && ref_db != NULL);

    struct ct_linear linear = {
        batch, in, out, x.narrow, w.narrow, b.wide, wide ? (void *)y.wide : y.narrow, !wide, wide};
    assert_int_equal(dev->ops->linear(dev, &linear, NULL), 0);
    linear.x = x.wide, linear.w = w.wide;
    ct_ref_linear(&linear, ref);
    for (size_t i = 0; i < y.count; i++) {
        double got = (double)(wide ? y.wide[i] : widen(y.narrow[i]));
        expect("y", i, got, ref[i], in, wide ? 2e-6 : 0x1p-8);
    }

    struct ct_linear_grad grad = {.batch = batch, .in = in, .out = out, .x = x.narrow};
    grad.w = w.narrow, grad.dy = dy.narrow, grad.mask = x.narrow;
    grad.dw = dw.wide, grad.db = db.wide, grad.dx = dx.narrow;
    assert_int_equal(dev->ops->linear_grad(dev, &grad, NULL), 0);
    grad.x = x.wide, grad.w = w.wide, grad.dy = dy.wide, grad.mask = x.wide;
    ct_ref_linear_grad(&grad, ref, ref_db, ref_dx);
    for (size_t i = 0; i < dw.count; i++) {
        expect("dw", i, (double)dw.wide[i], ref[i], batch, 2e-6);
    }
    for (size_t i = 0; i < db.count; i++) {
        expect("db", i, (double)db.wide[i], ref_db[i], batch, 2e-6);
    }
    for (size_t i = 0; i < dx.count; i++) {
        expect("dx", i, (double)widen(dx.narrow[i]), ref_dx[i], out, 0x1p-8);
    }
    drop(&x), drop(&w), drop(&b), drop(&dy), drop(&y), drop(&dx), drop(&dw), drop(&db);
    ct_free(ref), ct_free(ref_dx), ct_free(ref_db);
}

static struct ct_device *open_bf16(void)
{
    struct ct_device *dev = NULL;
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    assert_int_equal(ct_device_set_precision(dev, CT_PRECISION_BF16, NULL), 0);
    return dev;
}

/* For what multiplies no matrices, and so needs no such instructions. */
static struct ct_device *open_narrow(void)
{
    struct ct_device *dev = NULL;
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    if (ct_device_set_precision(dev, CT_PRECISION_BF16, NULL) != 0) {
        dev->precision = CT_PRECISION_BF16;
    }
    return dev;
}

/* Without oneDNN, and on a processor without such instructions, the CPU knows f32 alone. */
static void test_refused_where_nothing_multiplies_it(void **state)
{
    (void)state;
    struct ct_device *dev = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    assert_int_equal(ct_device_set_precision(dev, CT_PRECISION_BF16, &err), CT_EUNSUPPORTED);
    assert_int_equal(dev->precision, CT_PRECISION_F32);
    assert_non_null(strstr(err.text, CT_WITH_ONEDNN
                                         ? "this processor has no instructions for bfloat16"
                                         : "needs oneDNN"));
    dev->ops->close(dev);
}

static void test_layers_agree_with_the_reference(void **state)
{
    (void)state;
    struct ct_device *dev = open_bf16();
    static const size_t sizes[] = {1, 3, 17, 66, 130};
    for (size_t b = 0; b < 5; b++) {
        for (size_t i = 0; i < 5; i++) {
            for (size_t o = 0; o < 5; o++) {
                check_size(dev, sizes[b], sizes[i], sizes[o], (b + i + o) % 2);
            }
        }
    }
    check_size(dev, 32, 784, 512, false);
    check_size(dev, 300, 512, 10, true);
    dev->ops->close(dev);
}

static void test_loss_is_that_of_f32_rounded(void **state)
{
    (void)state;
    enum { ROWS = 301, CLASSES = 10 };
    struct ct_device *dev = open_narrow();
    static float logits[ROWS * CLASSES], wide[ROWS * CLASSES];
    static uint16_t narrow[ROWS * CLASSES], want[ROWS * CLASSES];
    uint8_t labels[ROWS];
    struct ct_random rng = {3};
    for (size_t i = 0; i < (size_t)ROWS * CLASSES; i++) {
        logits[i] = 9 * ct_random_float(&rng);
    }
    for (size_t i = 0; i < ROWS; i++) {
        labels[i] = (uint8_t)ct_random_below(&rng, CLASSES);
    }
    double totals[2] = {0}, reference[2] = {0};
    struct ct_loss op = {ROWS, CLASSES, logits, labels, 0.25f, narrow, totals};
    assert_int_equal(dev->ops->loss(dev, &op, NULL), 0);
    const struct ct_cpu_loops *loops = ct_cpu_loops_get(0);
    op.dlogits = wide, op.totals = reference;
    loops->loss(&op);
    loops->narrow((size_t)ROWS * CLASSES, wide, want);
    assert_memory_equal(narrow, want, sizeof want);
    assert_true(fabs(totals[0] / reference[0] - 1) < 1e-12 && totals[1] == reference[1]);
    dev->ops->close(dev);
}

static void test_updates_keep_the_copy(void **state)
{
    (void)state;
    enum { COUNT = 5003 }; /* more than two blocks */
    struct ct_device *dev = open_narrow();
    static float p[2][COUNT], g[COUNT], m[2][COUNT], v[2][COUNT];
    static uint16_t narrow[COUNT + 1], want[COUNT];
    struct ct_random rng = {8};
    for (int adamw = 0; adamw < 2; adamw++) {
        for (size_t i = 0; i < COUNT; i++) {
            p[0][i] = p[1][i] = ct_random_float(&rng), g[i] = ct_random_float(&rng);
            m[0][i] = m[1][i] = 0.1f, v[0][i] = v[1][i] = 0.2f;
        }
        narrow[COUNT] = 77;
        for (int side = 0; side < 2; side++) {
            uint16_t *copy = side == 0 ? narrow : NULL;
            struct ct_sgd sgd = {COUNT, p[side], m[side], g, 0.1f, 0.9f, 0.01f, copy};
            struct ct_adamw aw = {COUNT, p[side], m[side], v[side], g, 0.1f,
                                  0.9f,  0.99f,   1e-8f,   0.1f,    3, copy};
            assert_int_equal(
                adamw ? dev->ops->adamw(dev, &aw, NULL) : dev->ops->sgd(dev, &sgd, NULL), 0);
        }
        assert_memory_equal(p[0], p[1], sizeof p[0]);
        assert_memory_equal(m[0], m[1], sizeof m[0]);
        assert_memory_equal(v[0], v[1], sizeof v[0]);
        assert_int_equal(dev->ops->narrow(dev, COUNT, p[1], want, NULL), 0);
        assert_memory_equal(narrow, want, sizeof want);
        assert_int_equal(narrow[COUNT], 77);
    }
    dev->ops->close(dev);
}

/* Runs a last layer; tells whether its logits went to memory, which three operations need. */
static bool writes_logits(enum ct_head_way way, int *rc)
{
    enum { ROWS = 5, IN = 64, CLASSES = 3 };
    uint16_t x[ROWS * IN] = {0}, w[CLASSES * IN] = {0}, d[ROWS * CLASSES], dx[ROWS * IN];
    float b[CLASSES] = {1, 2, 3}, y[ROWS * CLASSES] = {77}, dw[CLASSES * IN], db[CLASSES];
    uint8_t labels[ROWS] = {0};
    double totals[2] = {0};
    const struct ct_head op = {
        .linear = {ROWS, IN, CLASSES, x, w, b, y, .wide = true},
        .loss = {ROWS, CLASSES, y, labels, 1.0f, d, totals},
        .grad = {ROWS, IN, CLASSES, x, w, d, x, dw, db, dx},
    };
    struct ct_device *dev = open_bf16();
    dev->head_way = way;
    ct_fault_begin(*rc != 0 ? 0 : -1);
    *rc = dev->ops->head(dev, &op, NULL);
    (void)ct_fault_end();
    dev->ops->close(dev);
    return y[0] != 77;
}

static void test_last_layer_at_once_on_one_thread(void **state)
{
    (void)state;
    int rc = 0;
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    assert_int_equal(writes_logits(CT_HEAD_FASTEST, &rc), !CT_WITH_HEAD16);
    assert_true(writes_logits(CT_HEAD_APART, &rc));
    void (*set_threads)(int);
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    assert_non_null(set_threads);
    assert_int_equal(setenv("OMP_NUM_THREADS", "2", 1), 0);
    set_threads(2);
    assert_true(writes_logits(CT_HEAD_FASTEST, &rc));
    assert_int_equal(writes_logits(CT_HEAD_FUSED, &rc), !CT_WITH_HEAD16);
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
    assert_int_equal(rc, 0);
    rc = CT_ENOMEM; /* is what the room for its weights finds */
    (void)writes_logits(CT_HEAD_FASTEST, &rc);
    assert_int_equal(rc, CT_WITH_HEAD16 ? CT_ENOMEM : 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_narrow_rounds_to_nearest_even),
        cmocka_unit_test(test_gather_mask_and_sum),
        cmocka_unit_test(test_layers_agree_with_the_reference),
        cmocka_unit_test(test_loss_is_that_of_f32_rounded),
        cmocka_unit_test(test_updates_keep_the_copy),
        cmocka_unit_test(test_last_layer_at_once_on_one_thread),
    };
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(test_narrow_rounds_to_nearest_even),
        cmocka_unit_test(test_gather_mask_and_sum),
        cmocka_unit_test(test_loss_is_that_of_f32_rounded),
        cmocka_unit_test(test_updates_keep_the_copy),
        cmocka_unit_test(test_refused_where_nothing_multiplies_it),
    };
    /* AMD's processors have these instructions since Zen 4, Intel's since Cooper Lake. */
    bool known = false;
#if defined(__x86_64__)
    known = CT_WITH_ONEDNN && __builtin_cpu_supports("avx512bf16");
#endif
    return known ? cmocka_run_group_tests_name("bf16", tests, NULL, NULL)
                 : cmocka_run_group_tests_name("bf16", plain, NULL, NULL);
}
