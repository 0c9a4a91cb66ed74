/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs checks and prints TAP; a check that fails leaves by longjmp(3). Tensors begin as NaNs and
 * have NaNs behind their end, so that a value that was not written, and a write past the end, are
 * found.
 */
#include "tests/gpu/harness.h"

#include "common/alloc.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int ct_check_repeats = 4;

/* Where a failing check goes back to; checks are functions of many levels, as in cmocka. */
static jmp_buf on_failure;

void ct_check_fail(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("# %s:%d: ", file, line);
    (void)vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    longjmp(on_failure, 1);
}

static bool passes(const struct ct_check *check, struct ct_device *dev)
{
    if (setjmp(on_failure) != 0) {
        return false;
    }
    check->run(dev);
    return true;
}

int ct_check_run(const struct ct_check *const *lists, struct ct_device *dev)
{
    int number = 0, failed = 0;
    for (; *lists != NULL; lists++) {
        for (const struct ct_check *check = *lists; check->name != NULL; check++) {
            bool ok = passes(check, dev);
            failed += !ok;
            printf("%s %d - %s\n", ok ? "ok" : "not ok", ++number, check->name);
            (void)fflush(stdout);
        }
    }
    printf("1..%d\n", number);
    return failed;
}

int ct_check_quietly(const struct ct_check *const *lists, struct ct_device *dev)
{
    int failed = 0;
    for (; *lists != NULL; lists++) {
        for (const struct ct_check *check = *lists; check->name != NULL; check++) {
            failed += !passes(check, dev);
        }
    }
    return failed;
}

void ct_check_need(int rc, const struct ct_err *err)
{
    if (rc != 0) {
        ct_check_fail(__FILE__, __LINE__, "%s", err->text);
    }
}

double *ct_check_doubles(size_t count)
{
    double *p = ct_calloc(count, sizeof(*p));
    CHECK(p != NULL);
    return p;
}

const struct ct_check_margin ct_check_margins[CT_CHECK_MARGINS] = {
    {CT_PRECISION_F32, 2e-6, 2e-6},
    {CT_PRECISION_TF32, 2e-3, 2e-3},
    {CT_PRECISION_BF16, 1e-2, 1e-2},
    {CT_PRECISION_FP8, 0.15, 0.25},
};

double ct_check_sum_tol(size_t k)
{
    return 1e-6 * (sqrt((double)k) + 1.0);
}

/* ---- device memory that starts poisoned and ends in a guard --------------------------------- */

#define GUARD 16
#define POISON 0x7fc0deadu /* a NaN: whatever reads it shows */

void test_tensor_push(struct test_tensor *t)
{
    struct ct_err err = {0};
    ct_check_need(
        t->dev->ops->upload(t->dev, t->data, t->host, (t->count + GUARD) * sizeof(float), &err),
        &err);
}

struct test_tensor test_tensor_poisoned(struct ct_device *dev, size_t count)
{
    struct ct_err err = {0};
    struct test_tensor t = {.dev = dev, .count = count};
    t.host = ct_malloc((count + GUARD) * sizeof(float));
    CHECK(t.host != NULL);
    for (size_t i = 0; i < count + GUARD; i++) {
        uint32_t bits = POISON;
        memcpy(&t.host[i], &bits, sizeof(bits));
    }
    void *data = NULL;
    ct_check_need(dev->ops->alloc(dev, (count + GUARD) * sizeof(float), &data, &err), &err);
    t.data = data;
    test_tensor_push(&t);
    return t;
}

struct test_tensor test_tensor_filled(struct ct_device *dev, size_t count, struct ct_random *rng)
{
    struct test_tensor t = test_tensor_poisoned(dev, count);
    for (size_t i = 0; i < count; i++) {
        t.host[i] = ct_random_float(rng);
    }
    test_tensor_push(&t);
    return t;
}

void test_tensor_pull(struct test_tensor *t)
{
    struct ct_err err = {0};
    ct_check_need(
        t->dev->ops->download(t->dev, t->host, t->data, (t->count + GUARD) * sizeof(float), &err),
        &err);
    for (size_t i = t->count; i < t->count + GUARD; i++) {
        uint32_t bits;
        memcpy(&bits, &t->host[i], sizeof(bits));
        if (bits != POISON) {
            ct_check_fail(__FILE__, __LINE__, "written %zu floats past the end of %zu",
                          i - t->count + 1, t->count);
        }
    }
}

void test_tensor_drop(struct test_tensor *t)
{
    t->dev->ops->release(t->dev, t->data);
    ct_free(t->host);
}

void test_tensor_expect(const char *what, const struct test_tensor *got, const double *ref,
                        double abs_tol)
{
    for (size_t i = 0; i < got->count; i++) {
        double diff = fabs((double)got->host[i] - ref[i]);
        if (!(diff <= abs_tol + fabs(ref[i]) * 2e-6)) {
            ct_check_fail(__FILE__, __LINE__, "%s[%zu of %zu]: %.9g, reference %.9g", what, i,
                          got->count, (double)got->host[i], ref[i]);
        }
    }
}

/* ---- numbers in the device's precision ------------------------------------------------------- */

static float rounded(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits += 0x7fffu + (bits >> 16 & 1); /* to the nearest, ties to even; no NaN comes here */
    bits &= 0xffff0000u;
    memcpy(&f, &bits, sizeof f);
    return f;
}

struct ct_numbers ct_numbers_filled(struct ct_device *dev, size_t count, struct ct_random *rng)
{
    struct ct_err err = {0};
    struct ct_numbers n = {.wide = test_tensor_filled(dev, count, rng)};
    n.data = n.wide.data;
    if (ct_precision_narrow(dev->precision)) {
        ct_check_need(dev->ops->alloc(dev, count * sizeof(uint16_t), &n.data, &err), &err);
        ct_check_need(dev->ops->narrow(dev, count, n.wide.data, n.data, &err), &err);
        for (size_t i = 0; i < count; i++) {
            n.wide.host[i] = rounded(n.wide.host[i]);
        }
    }
    return n;
}

void ct_numbers_drop(struct ct_numbers *n)
{
    if (n->data != (void *)n->wide.data) {
        n->wide.dev->ops->release(n->wide.dev, n->data);
    }
    test_tensor_drop(&n->wide);
}

void ct_numbers_pull(struct test_tensor *t)
{
    struct ct_err err = {0};
    test_tensor_pull(t);
    if (!ct_precision_narrow(t->dev->precision)) {
        return;
    }
    uint16_t *narrow = ct_malloc(t->count * sizeof *narrow);
    CHECK(narrow != NULL);
    ct_check_need(t->dev->ops->download(t->dev, narrow, t->data, t->count * sizeof *narrow, &err),
                  &err);
    for (size_t i = 0; i < t->count; i++) {
        uint32_t bits = (uint32_t)narrow[i] << 16;
        memcpy(&t->host[i], &bits, sizeof bits);
    }
    ct_free(narrow);
}
