/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulation of CUDA's blocks: right kernels give their result in any order of threads, and each
 * kind of mistake is seen.
 */
#include "tests/lib/ct_test.h"

#include "tests/lib/fake_gpu/fake_gpu.h"
#include "tests/lib/fake_gpu/fake_view.h"
#include "tests/unit/kernels/cuda/fake_block_kernels.h"

#define MOST 1024
#define SEEDS 8u

static unsigned out[MOST];

static void run(enum kernel kernel, unsigned threads, unsigned seed)
{
    fake_gpu_begin(&(struct fake_gpu){.seed = seed});
    memset(out, 0, sizeof out);
    assert_int_equal(run_kernel(kernel, out, threads), cudaSuccess);
    assert_int_equal(out[0], 0); /* queued, not done */
    assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
}

/* How many of `count` are not what they should be. */
static unsigned wrong(unsigned count, unsigned expected)
{
    unsigned found = 0;
    for (unsigned i = 0; i < MOST; i++) {
        found += out[i] != (i < count ? expected : 0);
    }
    return found;
}

static void right_kernels_are_right_in_any_order(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        run(SUM, 0, seed);
        assert_int_equal(wrong(480, 96 * 95 / 2), 0);
        for (unsigned threads = 1; threads <= MOST; threads = threads * 5 + 2) {
            run(ROUNDS, threads, seed);
            assert_int_equal(wrong(threads, 0 + 1 + 2 + 3), 0);
        }
        run(WARP, 128, seed);
        assert_int_equal(wrong(128, 1), 0);
        assert_int_equal(fake.violations, 0);
    }
}

static void a_missing_barrier_shows(void **state)
{
    (void)state;
    for (unsigned seed = 0; seed < SEEDS; seed++) {
        run(SUM_WITHOUT_BARRIER, 0, seed);
        assert_true(wrong(480, 96 * 95 / 2) > 0);
        run(ROUNDS_WITHOUT_SECOND, 64, seed);
        assert_true(wrong(64, 0 + 1 + 2 + 3) > 0);
    }
}

/* How often blocks that tell each other something come to the right sum. */
static unsigned right_sums(enum kernel kernel)
{
    unsigned right = 0;
    for (unsigned seed = 0; seed < 8 * SEEDS; seed++) {
        run(kernel, 64, seed);
        assert_int_equal(fake.violations, 0);
        assert_int_equal(out[1], 9);
        right += out[0] == 9 * 10 / 2;
    }
    return right;
}

static void a_missing_fence_shows(void **state)
{
    (void)state;
    assert_int_equal(right_sums(TELL), 8 * SEEDS);
    assert_true(right_sums(TELL_WITHOUT_FIRST_FENCE) < 7 * SEEDS);
    assert_true(right_sums(TELL_WITHOUT_SECOND_FENCE) < 4 * SEEDS);
}

static void what_cuda_leaves_undefined_is_told(void **state)
{
    (void)state;
    static const struct {
        enum kernel kernel;
        unsigned threads;
        const char *words;
    } cases[] = {
        {HALF_WARP, 32, "warp_kernel, line 51: threads wait for others that do not come"},
        {HALF_BARRIER, 32, "threads wait for others that do not come"},
        {OTHER_BARRIER, 32, "__syncthreads() for threads that wait at another one"},
        {OTHER_CALL, 32, "lanes of a warp meet at different calls"},
        {ABSENT_LANE, 32, "a shuffle from a lane that takes no part"},
        {WARP, 48, "lanes that do not exist"},
        {EARLY_WITHOUT_WAIT, 32, "an early kernel that does not wait for the work in front of it"},
        {TOO_LARGE, 32, "more shared memory than a block has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (unsigned seed = 0; seed < SEEDS; seed++) {
            run(cases[i].kernel, cases[i].threads, seed);
            assert_int_equal(fake.violations, 1);
            if (strstr(fake.first_violation, cases[i].words) == NULL) {
                fail_msg("%s, not: %s", cases[i].words, fake.first_violation);
            }
            /* And the next kernel runs as if nothing had been. */
            run(ROUNDS, 100, seed);
            assert_int_equal(wrong(100, 0 + 1 + 2 + 3), 0);
            assert_int_equal(fake.violations, 0);
        }
    }
}

static void wrong_launches_fail(void **state)
{
    (void)state;
    fake_gpu_begin(&(struct fake_gpu){.fail_cuda_call = 1});
    assert_int_equal(run_kernel(SUM, out, 0), cudaErrorLaunchFailure);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(run_kernel(ROUNDS, out, MOST + 1), cudaErrorInvalidConfiguration);
    assert_int_equal(run_kernel(ROUNDS, out, 0), cudaErrorInvalidConfiguration);
    assert_int_equal(fake.violations, 2);
    assert_int_equal(run_kernel(EARLY, out, 32), cudaSuccess);
    fake_gpu_begin(&(struct fake_gpu){.capability = 80});
    assert_int_equal(run_kernel(EARLY, out, 32), cudaSuccess);
    assert_int_equal(fake.violations, 1);
}

int main(void)
{
    fake_view_add(out, sizeof out);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_are_right_in_any_order),
        cmocka_unit_test(a_missing_barrier_shows),
        cmocka_unit_test(a_missing_fence_shows),
        cmocka_unit_test(what_cuda_leaves_undefined_is_told),
        cmocka_unit_test(wrong_launches_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
