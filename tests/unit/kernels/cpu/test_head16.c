/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer in bfloat16 against the float64 reference, on inputs that bfloat16 holds exactly.
 * Its source is compiled once more, with AVX-512 in plain C (tests/lib/avx512_in_c), so that it
 * runs on every processor. Where the processor has the instructions, the real one runs as well.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "kernels/cpu/cpu_head16.h"
#include "tests/gpu/reference.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#define SCALE 0.25f
/* What stands in new memory. */
#define UNTOUCHED 0x5a

/* kernels/cpu/cpu_head16.c with AVX-512 in C. */
bool in_c_head16_fits(const struct ct_head *op);
size_t in_c_head16_scratch(const struct ct_head *op);
void in_c_head16_run(const struct ct_cpu_loops *loops, const struct ct_head *op, uint32_t *scratch);

static const char *missing = ""; /* a feature that the processor does not have */

bool avx512_in_c_has(const char *feature);
bool avx512_in_c_has(const char *feature)
{
    return strcmp(feature, missing) != 0;
}

static const struct head16 {
    const char *name;
    bool (*fits)(const struct ct_head *op);
    size_t (*scratch)(const struct ct_head *op);
    void (*run)(const struct ct_cpu_loops *loops, const struct ct_head *op, uint32_t *scratch);
} variants[] = {
    {"in C", in_c_head16_fits, in_c_head16_scratch, in_c_head16_run},
    {"AVX512-BF16", ct_head16_fits, ct_head16_scratch, ct_head16_run},
};
#define VARIANTS (sizeof variants / sizeof variants[0])

/* ---- one layer --------------------------------------------------------------------------------
 */

/* An array at whose end a page begins that nobody may read or write. */
struct array {
    unsigned char *bytes;
    size_t size;
};

static size_t pages_of(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

static struct array array_of(size_t count, size_t each)
{
    size_t size = count * each, pages = pages_of(size);
    unsigned char *memory =
        mmap(NULL, pages + pages_of(1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + pages, pages_of(1), PROT_NONE), 0);
    memset(memory + pages - size, UNTOUCHED, size);
    return (struct array){memory + pages - size, size};
}

static void drop(struct array *array)
{
    size_t pages = pages_of(array->size);
    assert_int_equal(munmap(array->bytes + array->size - pages, pages + pages_of(1)), 0);
}

static float widen(uint16_t narrow)
{
    uint32_t bits = (uint32_t)narrow << 16;
    float wide;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

/* Both have the same numbers. */
struct numbers {
    struct array narrow, wide;
    size_t count;
};

static struct numbers numbers_of(size_t count)
{
    return (struct numbers){array_of(count, sizeof(uint16_t)), array_of(count, sizeof(float)),
                            count};
}

static void drop_numbers(struct numbers *n)
{
    drop(&n->narrow);
    drop(&n->wide);
}

static void widen_all(struct numbers *n)
{
    const uint16_t *narrow = (const void *)n->narrow.bytes;
    float *wide = (void *)n->wide.bytes;
    for (size_t i = 0; i < n->count; i++) {
        wide[i] = widen(narrow[i]);
    }
}

/* After a ReLU about half of the numbers are zero. */
static struct numbers draw(size_t count, bool relu, struct ct_random *rng)
{
    struct numbers n = numbers_of(count);
    float *wide = (void *)n.wide.bytes;
    for (size_t i = 0; i < count; i++) {
        wide[i] = ct_random_float(rng);
        wide[i] = relu && wide[i] < 0.0f ? 0.0f : wide[i];
    }
    ct_cpu_loops_get(0)->narrow(count, wide, (void *)n.narrow.bytes);
    widen_all(&n);
    return n;
}

struct layer {
    size_t batch, in, classes;
    struct numbers x, w, d, dx;
    struct array b, y, labels, dw, db;
    double totals[2];
    struct ct_head op;
};

static void begin(struct layer *l, size_t batch, size_t in, size_t classes)
{
    struct ct_random rng = {batch * 1000003 + in * 1009 + classes};
    *l = (struct layer){.batch = batch, .in = in, .classes = classes, .totals = {100.0, 7.0}};
    l->x = draw(batch * in, true, &rng);
    l->w = draw(classes * in, false, &rng);
    l->d = numbers_of(batch * classes);
    l->dx = numbers_of(batch * in);
    l->b = array_of(classes, sizeof(float));
    l->y = array_of(batch * classes, sizeof(float));
    l->labels = array_of(batch, 1);
    l->dw = array_of(classes * in, sizeof(float));
    l->db = array_of(classes, sizeof(float));
    for (size_t i = 0; i < classes; i++) {
        ((float *)(void *)l->b.bytes)[i] = ct_random_float(&rng);
    }
    for (size_t i = 0; i < batch; i++) {
        l->labels.bytes[i] = (uint8_t)ct_random_below(&rng, classes);
    }
    const void *x = l->x.narrow.bytes, *w = l->w.narrow.bytes, *b = l->b.bytes;
    void *d = l->d.narrow.bytes;
    l->op = (struct ct_head){
        .linear = {batch, in, classes, x, w, b, l->y.bytes, .wide = true},
        .loss = {batch, classes, (void *)l->y.bytes, l->labels.bytes, SCALE, d, l->totals},
        .grad = {batch, in, classes, x, w, d, x, (void *)l->dw.bytes, (void *)l->db.bytes,
                 l->dx.narrow.bytes},
    };
}

static void end(struct layer *l)
{
    for (size_t i = 0; i < l->y.size; i++) { /* logits do not go to memory */
        assert_int_equal(l->y.bytes[i], UNTOUCHED);
    }
    drop_numbers(&l->x), drop_numbers(&l->w), drop_numbers(&l->d), drop_numbers(&l->dx);
    drop(&l->b), drop(&l->y), drop(&l->labels), drop(&l->dw), drop(&l->db);
}

static void run(const struct head16 *head, const struct ct_cpu_loops *loops, struct layer *l)
{
    assert_true(head->fits(&l->op));
    struct array scratch = array_of(head->scratch(&l->op), sizeof(uint32_t));
    head->run(loops, &l->op, (void *)scratch.bytes);
    drop(&scratch);
}

/* ---- the reference ----------------------------------------------------------------------------
 */

static double *doubles(size_t count)
{
    double *p = ct_calloc(count, sizeof(*p));
    assert_non_null(p);
    return p;
}

/* `step` is what rounding the result may cost, relative to it. */
static void expect(const struct layer *l, const char *what, const void *got, const double *ref,
                   size_t count, size_t terms, double step)
{
    const float *numbers = got;
    for (size_t i = 0; i < count; i++) {
        double off = fabs((double)numbers[i] - ref[i]);
        if (!(off <= fabs(ref[i]) * step + 1e-6 * (sqrt((double)terms) + 1))) {
            fail_msg("%zu x %zu -> %zu: %s[%zu] is %.9g, reference %.9g", l->batch, l->in,
                     l->classes, what, i, (double)numbers[i], ref[i]);
        }
    }
}

/* Rows whose label is so near to the largest other logit that either answer is right. */
static double unclear(const struct layer *l, const double *logits)
{
    double found = 0;
    for (size_t r = 0; r < l->batch; r++) {
        const double *row = logits + r * l->classes;
        double best = -INFINITY;
        for (size_t c = 0; c < l->classes; c++) {
            best = c != l->labels.bytes[r] ? fmax(best, row[c]) : best;
        }
        found += fabs(best - row[l->labels.bytes[r]]) < 1e-4;
    }
    return found;
}

/* The reference of each part begins with what came of the one before. */
static void compare(struct layer *l)
{
    size_t count = l->batch * l->classes;
    double *logits = doubles(count), *d = doubles(count), *dw = doubles(l->classes * l->in);
    double *db = doubles(l->classes), *dx = doubles(l->batch * l->in);
    float *rounded = ct_calloc(count, sizeof(*rounded));
    double totals[2] = {100.0, 7.0};
    assert_non_null(rounded);

    struct ct_linear linear = l->op.linear;
    linear.x = l->x.wide.bytes, linear.w = l->w.wide.bytes;
    ct_ref_linear(&linear, logits);
    for (size_t i = 0; i < count; i++) {
        rounded[i] = (float)logits[i];
    }
    struct ct_loss loss = l->op.loss;
    loss.logits = rounded;
    ct_ref_loss(&loss, d, totals);
    widen_all(&l->d);
    expect(l, "dlogits", l->d.wide.bytes, d, count, l->in, 0x1p-8);
    assert_true(fabs(l->totals[0] - totals[0]) <= 1e-5 * (double)l->batch);
    assert_true(fabs(l->totals[1] - totals[1]) <= unclear(l, logits));

    struct ct_linear_grad grad = l->op.grad;
    grad.x = grad.mask = l->x.wide.bytes, grad.w = l->w.wide.bytes,
    grad.dy = (void *)l->d.wide.bytes;
    ct_ref_linear_grad(&grad, dw, db, dx);
    widen_all(&l->dx);
    expect(l, "dw", l->dw.bytes, dw, l->classes * l->in, l->batch, 2e-6);
    expect(l, "db", l->db.bytes, db, l->classes, l->batch, 2e-6);
    expect(l, "dx", l->dx.wide.bytes, dx, l->batch * l->in, l->classes, 0x1p-8);
    for (size_t i = 0; i < l->batch * l->in; i++) { /* exactly, where the ReLU gave nothing */
        bool on = ((const float *)(void *)l->x.wide.bytes)[i] > 0.0f;
        assert_true(on || ((const uint16_t *)(void *)l->dx.narrow.bytes)[i] == 0);
    }
    ct_free(logits), ct_free(d), ct_free(dw), ct_free(db), ct_free(dx), ct_free(rounded);
}

static void check(size_t batch, size_t in, size_t classes)
{
    for (size_t v = 0; v < VARIANTS; v++) {
        const struct ct_cpu_loops *loops;
        for (size_t rank = 0; (loops = ct_cpu_loops_get(rank)) != NULL; rank++) {
            struct layer l;
            begin(&l, batch, in, classes);
            bool runs_here = variants[v].fits(&l.op);
            assert_true(v > 0 || runs_here);
            if (runs_here) {
                run(&variants[v], loops, &l);
                compare(&l);
                end(&l);
            } else {
                end(&l);
                break;
            }
        }
    }
}

/* ---- tests ------------------------------------------------------------------------------------
 */

static void every_number_of_classes_agrees_with_the_reference(void **state)
{
    (void)state;
    for (size_t classes = 1; classes <= 16; classes++) {
        check(1, 64, classes);
        check(35, 64, classes);
    }
}

/* Tiles are of 4 rows, and blocks of 32. */
static void every_rest_of_a_batch_agrees_with_the_reference(void **state)
{
    static const size_t batches[] = {2, 3, 4, 5, 6, 7, 8, 31, 32, 33, 63, 64, 65, 97};
    (void)state;
    for (size_t i = 0; i < sizeof batches / sizeof batches[0]; i++) {
        check(batches[i], 64, 3);
        check(batches[i], 128, 10);
    }
}

static void wide_layers_agree_with_the_reference(void **state)
{
    (void)state;
    check(3, 192, 16);
    check(40, 512, 10);
    check(9, 1024, 7);
}

/* A number that is none must not be hidden, and must not reach other rows. */
static void a_nan_shows_in_its_row_and_in_the_loss(void **state)
{
    (void)state;
    for (size_t v = 0; v < VARIANTS; v++) {
        struct layer l;
        begin(&l, 7, 64, 5);
        if (!variants[v].fits(&l.op)) {
            end(&l);
            continue;
        }
        ((uint16_t *)(void *)l.x.narrow.bytes)[2 * 64 + 9] = 0x7fc0;
        run(&variants[v], ct_cpu_loops_get(0), &l);
        assert_true(isnan(l.totals[0]));
        widen_all(&l.d), widen_all(&l.dx);
        for (size_t i = 0; i < l.d.count; i++) {
            assert_int_equal(isnan(((float *)(void *)l.d.wide.bytes)[i]) != 0, i / 5 == 2);
        }
        for (size_t i = 0; i < l.dx.count; i++) {
            assert_true(!isnan(((float *)(void *)l.dx.wide.bytes)[i]) || i / 64 == 2);
        }
        end(&l);
    }
}

static void it_is_for_some_shapes_and_processors_only(void **state)
{
    static const char *const features[] = {"avx512bf16", "avx512bw"};
    struct layer l;
    (void)state;
    begin(&l, 5, 128, 16);
    const struct ct_head good = l.op;
    assert_true(in_c_head16_fits(&good));
    assert_int_equal(in_c_head16_scratch(&good), 8 * 128);
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        missing = features[i];
        assert_false(in_c_head16_fits(&good));
    }
    missing = "";
    struct ct_head op = good;
    op.grad.batch = 0;
    assert_false(in_c_head16_fits(&op));
    op = good, op.loss.classes = 0;
    assert_false(in_c_head16_fits(&op));
    op.loss.classes = 17;
    assert_false(in_c_head16_fits(&op));
    op = good, op.grad.in = 96;
    assert_false(in_c_head16_fits(&op));
    op = good, op.grad.dx = NULL;
    assert_false(in_c_head16_fits(&op));
    op = good, op.grad.mask = NULL;
    assert_false(in_c_head16_fits(&op));
    op = good, op.loss.classes = 7;
    assert_int_equal(in_c_head16_scratch(&op), 4 * 128);
#if defined(__x86_64__)
    bool known = CT_WITH_HEAD16 && __builtin_cpu_supports("avx512bf16");
    assert_int_equal(ct_head16_fits(&good), known);
#endif
    end(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_classes_agrees_with_the_reference),
        cmocka_unit_test(every_rest_of_a_batch_agrees_with_the_reference),
        cmocka_unit_test(wide_layers_agree_with_the_reference),
        cmocka_unit_test(a_nan_shows_in_its_row_and_in_the_loss),
        cmocka_unit_test(it_is_for_some_shapes_and_processors_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
