/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which words, advice and exit code belong to each way in which a worker can end, and after
 * which of them a restart may follow.
 */
#include "tests/lib/ct_test.h"

#include "launcher/report/worker_end.h"

#include <errno.h>
#include <signal.h>

static void each_end_has_words_and_a_code(void **state)
{
    static const struct {
        struct ct_worker_end end;
        int code;
        const char *words;
    } rows[] = {
        {{CT_END_EXITED, 0, false}, 0, "exited with code 0"},
        {{CT_END_EXITED, 255, false}, 255, "exited with code 255"},
        {{CT_END_SIGNALED, SIGKILL, false}, 137, "was killed by signal 9 (SIGKILL)"},
        {{CT_END_SIGNALED, SIGSEGV, true},
         139,
         "was killed by signal 11 (SIGSEGV) and dumped its core"},
        {{CT_END_EXPIRED, SIGKILL, .detail = "a.py#7"},
         137,
         "was ended with signal 9 (SIGKILL): its timer 'a.py#7' had expired"},
        {{CT_END_UNINTERRUPTIBLE, 5},
         122,
         "is stuck in the kernel: it has been in uninterruptible sleep for 5 s"},
        {{CT_END_SIGNALED, 40, false}, 168, "was killed by signal 40 (a real-time signal)"},
        {{CT_END_NOT_STARTED, ENOENT, false},
         127,
         "could not be started: No such file or directory"},
        {{CT_END_NOT_STARTED, EACCES, false}, 126, "could not be started: Permission denied"},
        {{CT_END_NOT_STARTED, ENOEXEC, false}, 126, "could not be started: Exec format error"},
        {{CT_END_NOT_STARTED, EAGAIN, false},
         1,
         "could not be started: Resource temporarily unavailable"},
        {{CT_END_NOT_STARTED, 0, false}, 1, "could not be started: its set-up failed"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_buf words = CT_BUF_INIT;
        assert_int_equal(ct_worker_end_exit_code(&rows[i].end), rows[i].code);
        assert_int_equal(ct_worker_end_is_success(&rows[i].end), i == 0);
        assert_int_equal(ct_worker_end_describe(&rows[i].end, &words), 0);
        assert_string_equal(ct_buf_cstr(&words), rows[i].words);
        assert_non_null(ct_worker_end_advice(&rows[i].end, false));
        ct_buf_fini(&words);
    }
}

static void advice_fits_the_end(void **state)
{
    const struct ct_worker_end killed = {CT_END_SIGNALED, SIGKILL, false};
    const struct ct_worker_end crashed = {CT_END_SIGNALED, SIGSEGV, false};
    const struct ct_worker_end script = {CT_END_NOT_STARTED, ENOEXEC, false};
    const struct ct_worker_end failed = {CT_END_EXITED, 1, false};
    (void)state;
    assert_non_null(strstr(ct_worker_end_advice(&killed, true), "memory"));
    assert_non_null(strstr(ct_worker_end_advice(&crashed, true), "debugger"));
    assert_non_null(strstr(ct_worker_end_advice(&script, true), "#!"));
    assert_null(strstr(ct_worker_end_advice(&failed, true), "--tee"));
    assert_non_null(strstr(ct_worker_end_advice(&failed, false), "--tee"));
}

static void commands_have_the_shells_codes(void **state)
{
    (void)state;
    assert_int_equal(ct_worker_end_of_command(CT_ENOENT), 127);
    assert_int_equal(ct_worker_end_of_command(CT_EPERM), 126);
    assert_int_equal(ct_worker_end_of_command(CT_ENOMEM), 1);
}

static void signals_that_people_send_are_told_from_crashes(void **state)
{
    static const int sent[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    static const int own[] = {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGXCPU};
    (void)state;
    for (size_t i = 0; i < sizeof(sent) / sizeof(sent[0]); i++) {
        const struct ct_worker_end signaled = {.kind = CT_END_SIGNALED, .value = sent[i]};
        const struct ct_worker_end exited = {.kind = CT_END_EXITED, .value = sent[i]};
        assert_true(ct_worker_end_by_another(&signaled));
        assert_false(ct_worker_end_by_another(&exited));
    }
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        const struct ct_worker_end crashed = {.kind = CT_END_SIGNALED, .value = own[i]};
        assert_false(ct_worker_end_by_another(&crashed));
    }
}

static void python_has_negative_codes_for_signals(void **state)
{
    static const struct {
        int kind, value, code;
    } rows[] = {
        {CT_END_EXITED, 3, 3},
        {CT_END_SIGNALED, SIGSEGV, -SIGSEGV},
        {CT_END_EXPIRED, SIGKILL, -SIGKILL},
        {CT_END_HUNG, 7, CT_EXIT_HUNG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct ct_worker_end end = {.kind = rows[i].kind, .value = rows[i].value};
        assert_int_equal(ct_worker_end_python_code(&end), rows[i].code);
    }
}

static void only_what_was_started_and_is_not_final_may_restart(void **state)
{
    struct ct_worker_end end = {.kind = CT_END_EXITED, .value = 1};
    (void)state;
    assert_true(ct_worker_end_may_restart(&end));
    end.final = true;
    assert_false(ct_worker_end_may_restart(&end));
    end = (struct ct_worker_end){.kind = CT_END_NOT_STARTED};
    assert_false(ct_worker_end_may_restart(&end));
}

static void test_a_worker_that_was_stopped_is_called_so(void **state)
{
    struct ct_worker_end end = {.kind = CT_END_HUNG, .value = 7, .detail = "a.py:3 in f"};
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_worker_end_describe(&end, &text), 0);
    assert_string_equal(ct_buf_cstr(&text), "hung: it stood still for 7 s at a.py:3 in f");
    ct_buf_reset(&text);
    end.stopped = true;
    assert_int_equal(ct_worker_end_describe(&end, &text), 0);
    assert_string_equal(ct_buf_cstr(&text),
                        "hung: it was stopped (SIGSTOP) and stood still for 7 s "
                        "at a.py:3 in f");
    ct_buf_fini(&text);
    assert_non_null(strstr(ct_worker_end_advice(&end, true), "find out who stopped it"));
}

static void test_an_unfit_machine_ends_with_its_own_code(void **state)
{
    const struct ct_worker_end end = {.kind = CT_END_UNFIT};
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_worker_end_describe(&end, &text), 0);
    assert_string_equal(ct_buf_cstr(&text), "was not started: its machine is not fit");
    ct_buf_fini(&text);
    assert_int_equal(ct_worker_end_exit_code(&end), 118);
    assert_true(ct_worker_end_may_restart(&end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_that_was_stopped_is_called_so),
        cmocka_unit_test(test_an_unfit_machine_ends_with_its_own_code),
        cmocka_unit_test(each_end_has_words_and_a_code),
        cmocka_unit_test(advice_fits_the_end),
        cmocka_unit_test(commands_have_the_shells_codes),
        cmocka_unit_test(signals_that_people_send_are_told_from_crashes),
        cmocka_unit_test(python_has_negative_codes_for_signals),
        cmocka_unit_test(only_what_was_started_and_is_not_final_may_restart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
