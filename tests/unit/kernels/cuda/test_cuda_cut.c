/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers of a batch that is cut into parts, where cuBLASLt lacks some of the kernels that they
 * would rather have: the bits do not depend on how many parts are computed at a time, and it is
 * told what was refused and why.
 */
#include "tests/lib/ct_test.h"

#include "common/buf.h"
#include "kernels/device/device.h"
#include "tests/gpu/device_checks.h"
#include "tests/gpu/harness.h"
#include "tests/lib/fake_gpu/fake_plugin.h"

#include <cublasLt.h>
#include <string.h>

/* Of the plans, `said` must be told and `unsaid` must not. */
static void check_bits(const struct fake_gpu *script, const char *said, const char *unsaid)
{
    const struct ct_check parts[] = {ct_checks_cut[0], {0}};
    const struct ct_check *const lists[] = {parts, NULL};
    struct ct_device *dev = fake_plugin_open(script);
    struct ct_buf plans = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_check_quietly(lists, dev), 0);
    assert_int_equal(dev->ops->explain(dev, &plans, &err), 0);
    if (strstr(ct_buf_cstr(&plans), said) == NULL || strstr(ct_buf_cstr(&plans), unsaid) != NULL) {
        fail_msg("no %s, or %s, in %s", said, unsaid, ct_buf_cstr(&plans));
    }
    ct_buf_fini(&plans);
    fake_plugin_close(dev);
}

#define IN_TURN "\"in_turn\": true, \"refused\": false"
#define AT_ONCE "\"in_turn\": false, \"refused\": false"

static void all_at_once_where_there_is_a_kernel(void **state)
{
    (void)state;
    check_bits(&(struct fake_gpu){.seed = 1}, AT_ONCE, "\"in_turn\": true");
}

/* Whatever the kernels of another chip add in which order, and whatever epilogues it lacks. */
static void one_after_the_other_where_there_is_none(void **state)
{
    (void)state;
    const struct {
        int no_kernels, no_epilogues;
        const char *why;
    } rows[] = {
        {FAKE_OF_BATCHES, 0, "\"why\": \"cuBLASLt has no kernel\"}"},
        {FAKE_OF_BATCHES, CUBLASLT_EPILOGUE_RELU_BIAS, "\"why\": \"cuBLASLt has no kernel\"}"},
        {FAKE_OF_BATCHES | FAKE_WITHOUT_SPLITS, 0, "\"split_k\": 2"},
        {FAKE_OF_SMALLER_BATCHES, 0,
         "for 8 parts (4) does every number of them: the last one refused 1"},
        {FAKE_WITHOUT_WORKSPACE, 0, "that cuBLASLt offers (4) wants a workspace"},
        {FAKE_WITHOUT_WORKSPACE | FAKE_WITHOUT_SPLITS, 0, "\"split_k\": 2"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct fake_gpu script = {.seed = (unsigned)i,
                                        .any_wins = true,
                                        .chip = (unsigned)i,
                                        .no_kernels = rows[i].no_kernels,
                                        .no_epilogues = rows[i].no_epilogues};
        check_bits(&script, IN_TURN, AT_ONCE);
        check_bits(&script, rows[i].why, AT_ONCE);
    }
}

/* One part of two, of a layer with as many inputs as outputs. */
static int run_layer(struct ct_device *dev, struct ct_err *err)
{
    enum { ROWS = 16, WIDTH = 16 };
    void *p;
    int rc = dev->ops->alloc(dev, 3 * ROWS * WIDTH * sizeof(float), &p, err);
    if (rc != 0) {
        return rc;
    }
    const struct ct_linear op = {.batch = ROWS,
                                 .in = WIDTH,
                                 .out = WIDTH,
                                 .x = p,
                                 .w = p,
                                 .b = p,
                                 .y = (float *)p + ROWS * WIDTH,
                                 .partition = {.rows = ROWS, .parts = 1, .of = 2}};
    rc = dev->ops->linear(dev, &op, err);
    struct ct_err ignored;
    (void)dev->ops->sync(dev, &ignored);
    dev->ops->release(dev, p);
    return rc;
}

static void a_refusal_tells_what_and_why(void **state)
{
    (void)state;
    struct ct_device *dev = fake_plugin_open(&(struct fake_gpu){.no_kernels = FAKE_AT_ALL});
    struct ct_err err = {0};
    for (int again = 0; again < 2; again++) {
        assert_int_equal(run_layer(dev, &err), CT_EUNSUPPORTED);
        assert_string_equal(err.text, "y of 1 of 2 parts at once, batch 16 each, layer 16 -> 16: "
                                      "cuBLASLt has no kernel; then: "
                                      "y of 1 of 2 parts one after the other, batch 16 each, "
                                      "layer 16 -> 16: cuBLASLt has no kernel");
    }
    fake_plugin_close(dev);
}

/* Ranks with another number of parts would go on at once, and have other bits. */
static void what_was_offered_and_cannot_be_run_is_a_failure(void **state)
{
    (void)state;
    struct ct_device *dev = fake_plugin_open(&(struct fake_gpu){.no_kernels = FAKE_RUNNABLE});
    struct ct_err err = {0};
    assert_int_equal(run_layer(dev, &err), CT_EIO);
    assert_string_equal(err.text, "cuBLASLt refuses the kernel that it offered");
    fake_plugin_close(dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_at_once_where_there_is_a_kernel),
        cmocka_unit_test(one_after_the_other_where_there_is_none),
        cmocka_unit_test(a_refusal_tells_what_and_why),
        cmocka_unit_test(what_was_offered_and_cannot_be_run_is_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
