/* SPDX-License-Identifier: Apache-2.0 */
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
        {{CT_END_EXPIRED, SIGKILL, .timer = "a.py#7"},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_end_has_words_and_a_code),
        cmocka_unit_test(advice_fits_the_end),
        cmocka_unit_test(commands_have_the_shells_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
