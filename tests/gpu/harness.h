/* SPDX-License-Identifier: Apache-2.0
 *
 * A few lines of test harness that need libc only, since a machine with a GPU often has neither
 * Meson nor cmocka: checks that print TAP, and tensors that start poisoned and end in a guard.
 */
#ifndef CT_TESTS_GPU_HARNESS_H
#define CT_TESTS_GPU_HARNESS_H

#include "kernels/device/device.h"

#include "tests/gpu/reference.h"

#include <stdnoreturn.h>

struct ct_check {
    const char *name; /* NULL ends a list */
    void (*run)(struct ct_device *dev);
};

/* How often a check does what must give the same bits each time; a few times unless set. */
extern int ct_check_repeats;

/* Runs all of `lists` (NULL ends it) on `dev` and prints TAP. Returns how many failed. */
int ct_check_run(const struct ct_check *const *lists, struct ct_device *dev);

/* The same within a test that has its own TAP: prints only what failed, as comments. */
int ct_check_quietly(const struct ct_check *const *lists, struct ct_device *dev);

/* Ends the running check. What it allocated is lost: the process ends soon. */
noreturn void ct_check_fail(const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#define CHECK(cond) ((cond) ? (void)0 : ct_check_fail(__FILE__, __LINE__, "%s", #cond))

/* Fails with err's text unless rc is 0. */
void ct_check_need(int rc, const struct ct_err *err);
/* Zeroed, to be freed with ct_free(); never NULL. */
double *ct_check_doubles(size_t count);
/* Rounding of a sum of k products of numbers below 1, with room for any order of adding. */
double ct_check_sum_tol(size_t k);

/* What products may be wrong by in each precision, to be multiplied by the root of the number of
 * terms, with which errors grow: some five times what rounding gives, which is 2^-24, 2^-11 and
 * 2^-9 of each number, 2^-4 of each factor in e4m3 and 2^-3 of one in e5m2, as dy is. */
#define CT_CHECK_MARGINS 4
extern const struct ct_check_margin {
    enum ct_precision precision;
    double forward, backward;
} ct_check_margins[CT_CHECK_MARGINS];

struct test_tensor {
    struct ct_device *dev;
    size_t count;
    float *host; /* a copy with the guard behind it */
    float *data; /* on the device, likewise */
};

/* Device memory of NaNs, and of random numbers in [-1, 1) with NaNs behind them. */
struct test_tensor test_tensor_poisoned(struct ct_device *dev, size_t count);
struct test_tensor test_tensor_filled(struct ct_device *dev, size_t count, struct ct_random *rng);
void test_tensor_push(struct test_tensor *t);
/* Brings the data back and fails when something was written past its end. */
void test_tensor_pull(struct test_tensor *t);
void test_tensor_drop(struct test_tensor *t);
/* Fails unless |host - ref| <= abs_tol + |ref| * 2e-6 everywhere; NaN never passes. */
void test_tensor_expect(const char *what, const struct test_tensor *got, const double *ref,
                        double abs_tol);

/* Random numbers in the device's precision; `wide` has what they are worth. */
struct ct_numbers {
    struct test_tensor wide;
    void *data;
};

struct ct_numbers ct_numbers_filled(struct ct_device *dev, size_t count, struct ct_random *rng);
void ct_numbers_drop(struct ct_numbers *n);
/* Brings back what the device left in its precision, as floats. */
void ct_numbers_pull(struct test_tensor *t);

#endif
