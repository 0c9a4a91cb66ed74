/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a device, with failing allocations, and what is said of CUDA where there is none.
 */
#include "tests/lib/ct_test.h"

#include "common/err.h"
#include "kernels/cpu/cpu_gemm.h"
#include "kernels/device/device.h"
#include "tests/lib/tmpdir.h"

#include <dlfcn.h>
#include <stdlib.h>

static int open_and_use(void *data)
{
    (void)data;
    struct ct_device *dev = NULL;
    int rc = ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL);
    if (rc != 0) {
        assert_null(dev);
        return rc;
    }
    void *ptr = NULL;
    rc = dev->ops->alloc(dev, 100, &ptr, NULL);
    /* The second batch needs more scratch memory than the first. */
    for (size_t batch = 1; batch <= 2 && rc == 0; batch++) {
        float x[6] = {1, 2, 3, 4, 5, 6}, w[12] = {1, 1, 1}, b[4] = {0}, y[8] = {0};
        struct ct_linear op = {batch, 3, 4, x, w, b, y, false, false};
        rc = dev->ops->linear(dev, &op, NULL);
    }
    dev->ops->release(dev, ptr);
    dev->ops->close(dev);
    return rc;
}

static void test_open_survives_faults(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(open_and_use, NULL, 0) >= 3);
}

static void test_cpu_describes_itself(void **state)
{
    (void)state;
    struct ct_device *dev = NULL;
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    assert_int_equal(dev->kind, CT_DEVICE_CPU);
    assert_null(dev->stream);
    assert_int_equal(strncmp(dev->name, "cpu (", 5), 0);
    const struct ct_device_ops *ops = dev->ops;
    ops->close(dev);
    ops->close(NULL);
}

/* On both sides of where large pages begin. */
static void test_cpu_memory_is_aligned_and_zeroed(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, (1 << 20) - 1, 1 << 20, (2 << 20) + 1, 5 << 20};
    struct ct_device *dev = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_device_open(CT_DEVICE_CPU, 0, &dev, NULL), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        void *ptr = NULL;
        assert_int_equal(dev->ops->alloc(dev, sizes[i], &ptr, &err), 0);
        assert_int_equal((uintptr_t)ptr % (sizes[i] < 1 << 20 ? 64 : 2 << 20), 0);
        unsigned char *bytes = ptr;
        for (size_t at = 0; at < sizes[i]; at++) {
            if (bytes[at] != 0) {
                fail_msg("byte %zu of %zu is %d", at, sizes[i], bytes[at]);
            }
        }
        memset(ptr, 0xff, sizes[i]);
        dev->ops->release(dev, ptr);
    }
    void *none = NULL;
    assert_int_equal(dev->ops->alloc(dev, SIZE_MAX, &none, &err), CT_ENOMEM);
    assert_int_equal(dev->ops->alloc(dev, SIZE_MAX - 64, &none, &err), CT_ENOMEM);
    assert_null(none);
    dev->ops->release(dev, NULL);
    dev->ops->close(dev);
}

static void test_gemm_frees_null(void **state)
{
    (void)state;
    ct_gemm_free(NULL);
}

static bool is_single(void)
{
    struct ct_gemm *gemm = NULL;
    assert_int_equal(ct_gemm_new(ct_cpu_loops_get(0), &gemm, NULL), 0);
    bool single = ct_gemm_single(gemm);
    ct_gemm_free(gemm);
    return single;
}

static void test_products_run_on_one_thread_unless_the_user_says_more(void **state)
{
    (void)state;
    void (*set_threads)(int);
    *(void **)&set_threads = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (set_threads == NULL) {
        return; /* built without oneDNN: plain loops have no threads */
    }
    static const char *const nothing[] = {NULL, ""};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(setenv("OMP_NUM_THREADS", "2", 1), 0);
        set_threads(2);
        assert_false(is_single());
        assert_int_equal(nothing[i] == NULL ? unsetenv("OMP_NUM_THREADS")
                                            : setenv("OMP_NUM_THREADS", nothing[i], 1),
                         0);
        assert_true(is_single());
    }
    assert_int_equal(unsetenv("OMP_NUM_THREADS"), 0);
}

static void test_cuda_says_why_not(void **state)
{
    (void)state;
    int count = ct_device_cuda_count();
    assert_true(count >= 0);
    if (count > 0) {
        return; /* tests/gpu has its turn there */
    }
    struct ct_device *dev = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_device_open(CT_DEVICE_CUDA, 0, &dev, &err), CT_EUNSUPPORTED);
    assert_null(dev);
    assert_non_null(strstr(err.text, "CUDA"));
}

/* A file of that name which is no plug-in, and no file at all. */
static void test_cuda_refuses_other_files(void **state)
{
    (void)state;
    struct ct_device *dev = NULL;
    struct ct_err err = {0};
    char *dir = ct_tmpdir_new();
    assert_int_equal(setenv("CTRUN_PLUGIN_DIR", dir, 1), 0);
    assert_int_equal(ct_device_open(CT_DEVICE_CUDA, 0, &dev, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, CT_WITH_CUDA ? dir : "this build has no CUDA"));
    char *path = ct_tmpdir_write(dir, "ctrun-cuda.so", "no library", 10);
    assert_int_equal(ct_device_open(CT_DEVICE_CUDA, 0, &dev, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, CT_WITH_CUDA ? "cannot load" : "this build has no CUDA"));
    assert_non_null(strstr(err.text, CT_WITH_CUDA ? path : "CUDA"));
    assert_null(dev);
    assert_int_equal(unsetenv("CTRUN_PLUGIN_DIR"), 0);
    free(path);
    ct_tmpdir_free(dir);
}

static void test_cuda_refuses_bad_index(void **state)
{
    (void)state;
    struct ct_device *dev = NULL;
    struct ct_err err = {0};
    assert_true(ct_device_open(CT_DEVICE_CUDA, -1, &dev, &err) < 0);
    assert_true(ct_device_open(CT_DEVICE_CUDA, 100000, &dev, &err) < 0);
    assert_null(dev);
    assert_true(err.text[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_survives_faults),
        cmocka_unit_test(test_cpu_describes_itself),
        cmocka_unit_test(test_cpu_memory_is_aligned_and_zeroed),
        cmocka_unit_test(test_gemm_frees_null),
        cmocka_unit_test(test_products_run_on_one_thread_unless_the_user_says_more),
        cmocka_unit_test(test_cuda_says_why_not),
        cmocka_unit_test(test_cuda_refuses_other_files),
        cmocka_unit_test(test_cuda_refuses_bad_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
