/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of each verdict, and what each state of a process is called.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/hang/hang.h"

#include <stdio.h>

#define S CT_NS_PER_S
#define MANY 12

static struct ct_hang_sample one_sample(char state, const char *wchan)
{
    struct ct_hang_sample sample = {.alive = true, .pid = 42, .state = state};
    (void)snprintf(sample.wchan, sizeof(sample.wchan), "%s", wchan);
    return sample;
}

static void describe(const struct ct_hang_sample *samples, int ranks,
                     const struct ct_hang_verdict *verdict, struct ct_buf *out)
{
    const struct ct_hang hang = {.ranks = ranks};
    ct_buf_reset(out);
    assert_int_equal(ct_hang_describe(&hang, verdict, samples, 0, 20 * S, "", out), 0);
}

static void test_each_reason_has_its_words(void **state)
{
    static const struct {
        enum ct_hang_reason reason;
        const char *want;
    } cases[] = {
        {CT_HANG_STOPPED, "rank 0 hangs: it has stood still for 7.5 s (allowed are 5.0 s): it is "
                          "stopped, by SIGSTOP or by a terminal\n"},
        {CT_HANG_BUSY, "(allowed are 5.0 s): in phase data of step 6, while others wait for it\n"},
        {CT_HANG_BEHIND, ": it is in step 6, the others in a later one\n"},
        {CT_HANG_UNINTERRUPTIBLE,
         ": it is stuck in the kernel (a disk or a device that gives no answer)\n"},
        {CT_HANG_SLEEPS_ELSEWHERE, ": it sleeps in nfs_wait, the others elsewhere\n"},
        {CT_HANG_LOOPS,
         "rank 0 hangs: the others have waited for it for 7.5 s (allowed are 5.0 s): "
         "it uses the CPU, but does not leave one place of its program\n"},
        {CT_HANG_ALL, "the job hangs: no rank has made progress for 7.5 s (allowed are 5.0 s)\n"},
    };
    struct ct_hang_sample sample = one_sample('S', "nfs_wait");
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    sample.has_page = true;
    sample.page = (struct ct_progress){.phase = CT_PHASE_DATA, .step = 6, .stamp_ns = 18 * S};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ct_hang_verdict verdict = {
            .reason = cases[i].reason, .still_ns = 7500000000, .timeout_ns = 5 * S};
        describe(&sample, 1, &verdict, &out);
        if (strstr(ct_buf_cstr(&out), cases[i].want) == NULL) {
            fail_msg("'%s' instead of '%s'", ct_buf_cstr(&out), cases[i].want);
        }
        assert_non_null(strstr(ct_buf_cstr(&out), "\nrank 0: process 42 is asleep in nfs_wait; "
                                                  "phase data of step 6 for 2.0 s\n"));
    }
    ct_buf_fini(&out);
}

static void test_each_state_of_a_process_has_its_word(void **state)
{
    static const struct {
        char state;
        const char *wchan, *want;
    } cases[] = {
        {'R', "", "process 42 is running\n"},
        {'S', "0", "process 42 is asleep\n"},
        {'D', "io_schedule", "process 42 is stuck in the kernel in io_schedule\n"},
        {'T', "", "process 42 is stopped\n"},
        {'t', "", "process 42 is traced\n"},
        {'Z', "", "process 42 is dead\n"},
        {'?', "", "process 42 is in a state that is not known\n"},
    };
    const struct ct_hang_verdict verdict = {.reason = CT_HANG_ALL};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ct_hang_sample sample = one_sample(cases[i].state, cases[i].wchan);
        describe(&sample, 1, &verdict, &out);
        assert_non_null(strstr(ct_buf_cstr(&out), cases[i].want));
    }
    ct_buf_fini(&out);
}

static void test_what_is_judged_is_said_where_workers_tell_nothing(void **state)
{
    static const struct {
        enum ct_hang_reason reason;
        bool has_page, is_said;
    } cases[] = {
        {CT_HANG_ALL, false, true},
        {CT_HANG_SLEEPS_ELSEWHERE, false, true},
        {CT_HANG_ALL, true, false},
        {CT_HANG_STOPPED, false, false}, /* that is certain */
    };
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_hang_sample samples[2] = {one_sample('S', ""), one_sample('S', "")};
        const struct ct_hang_verdict verdict = {.reason = cases[i].reason};
        samples[1].has_page = cases[i].has_page;
        describe(samples, 2, &verdict, &out);
        const char *said = strstr(ct_buf_cstr(&out), "the workers tell no steps, so use of less");
        assert_int_equal(said != NULL, cases[i].is_said);
        assert_true(said == NULL || strstr(said, "\n") == said + strlen(said) - 1);
    }
    ct_buf_fini(&out);
}

static void test_the_suspect_comes_first(void **state)
{
    struct ct_hang_sample samples[3] = {one_sample('S', ""), one_sample('D', ""),
                                        one_sample('R', "")};
    const struct ct_hang_verdict verdict = {.reason = CT_HANG_UNINTERRUPTIBLE, .local_rank = 1};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    samples[2].alive = false; /* of which there is nothing to say */
    describe(samples, 3, &verdict, &out);
    assert_non_null(strstr(ct_buf_cstr(&out), "\nrank 1: process 42 is stuck in the kernel\n"
                                              "rank 0: process 42 is asleep\n"));
    assert_null(strstr(ct_buf_cstr(&out), "rank 2"));
    ct_buf_fini(&out);
}

static void test_eight_others_are_shown_and_the_rest_counted(void **state)
{
    struct ct_hang_sample samples[MANY];
    const struct ct_hang_verdict verdict = {.reason = CT_HANG_STOPPED};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    for (int i = 0; i < MANY; i++) {
        samples[i] = one_sample('R', "");
    }
    describe(samples, 9, &verdict, &out);
    assert_non_null(strstr(ct_buf_cstr(&out), "rank 8: "));
    assert_null(strstr(ct_buf_cstr(&out), "more ranks"));
    describe(samples, MANY, &verdict, &out);
    assert_non_null(strstr(ct_buf_cstr(&out), "rank 8: process 42 is running\nand 3 more ranks\n"));
    assert_null(strstr(ct_buf_cstr(&out), "rank 9: "));
    ct_buf_fini(&out);
}

static int describe_once(void *data)
{
    const struct ct_hang hang = {.ranks = 1};
    const struct ct_hang_verdict verdict = {.reason = CT_HANG_BUSY};
    const struct ct_hang_sample sample = one_sample('R', "");
    struct ct_buf out = CT_BUF_INIT;
    (void)data;
    int rc = ct_hang_describe(&hang, &verdict, &sample, 0, 0, "", &out);
    ct_buf_fini(&out);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(describe_once, NULL, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_reason_has_its_words),
        cmocka_unit_test(test_each_state_of_a_process_has_its_word),
        cmocka_unit_test(test_the_suspect_comes_first),
        cmocka_unit_test(test_what_is_judged_is_said_where_workers_tell_nothing),
        cmocka_unit_test(test_eight_others_are_shown_and_the_rest_counted),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
