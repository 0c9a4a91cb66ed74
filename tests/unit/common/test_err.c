/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that an error has its code, its reason and one clean line of text, whatever is formatted
 * into it, and how numbers of errno become codes.
 */
#include "common/err.h"
#include "tests/lib/ct_test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_set_returns_code_and_formats(void **state)
{
    (void)state;
    struct ct_err err = {.sys = 5};
    assert_int_equal(ct_err_set(&err, CT_EFORMAT, "key '%s' has %d bytes", "k", 3), CT_EFORMAT);
    assert_int_equal(err.code, CT_EFORMAT);
    assert_int_equal(err.sys, 0);
    assert_string_equal(err.text, "key 'k' has 3 bytes");
}

static void test_null_err_keeps_the_code(void **state)
{
    (void)state;
    assert_int_equal(ct_err_set(NULL, CT_ELIMIT, "x"), CT_ELIMIT);
    assert_int_equal(ct_err_sys(NULL, CT_EIO, EIO, "x"), CT_EIO);
    assert_int_equal(ct_err_wrap(NULL, "x"), CT_EINVAL);
}

static void test_sys_appends_the_reason(void **state)
{
    (void)state;
    struct ct_err err = {0};
    assert_int_equal(ct_err_sys(&err, CT_ENOENT, ENOENT, "cannot open %s", "a.idx"), CT_ENOENT);
    assert_string_equal(err.text, "cannot open a.idx: No such file or directory");
    assert_int_equal(err.sys, ENOENT);
}

static void test_wrap_prefixes_and_keeps_code_and_errno(void **state)
{
    (void)state;
    struct ct_err err = {0};
    assert_int_equal(ct_err_wrap(&err, "nothing failed"), CT_EINVAL);
    assert_int_equal(err.code, 0);
    (void)ct_err_sys(&err, CT_EPERM, EACCES, "cannot write %s", "f");
    assert_int_equal(ct_err_wrap(&err, "rank %d", 2), CT_EPERM);
    assert_int_equal(ct_err_wrap(&err, "train"), CT_EPERM);
    assert_string_equal(err.text, "train: rank 2: cannot write f: Permission denied");
    assert_int_equal(err.sys, EACCES);
}

static void test_arguments_may_point_into_the_text(void **state)
{
    (void)state;
    struct ct_err err = {0};
    (void)ct_err_set(&err, CT_EIO, "inner");
    (void)ct_err_set(&err, CT_EIO, "outer(%s)(%s)", err.text, err.text);
    assert_string_equal(err.text, "outer(inner)(inner)");
}

static void test_long_text_is_cut_and_terminated(void **state)
{
    (void)state;
    static char big[3 * CT_ERR_TEXT_MAX];
    memset(big, 'z', sizeof(big) - 1);
    struct ct_err err = {0};
    (void)ct_err_set(&err, CT_EIO, "%s", big);
    assert_int_equal(strlen(err.text), CT_ERR_TEXT_MAX - 1);
    (void)ct_err_sys(&err, CT_EIO, EIO, "%s", big);
    assert_int_equal(strlen(err.text), CT_ERR_TEXT_MAX - 1);
    (void)ct_err_set(&err, CT_EIO, "end");
    (void)ct_err_wrap(&err, "%s", big);
    assert_int_equal(strlen(err.text), CT_ERR_TEXT_MAX - 1);
}

static void test_text_is_one_clean_line(void **state)
{
    (void)state;
    struct ct_err err = {0};
    (void)ct_err_set(&err, CT_EIO, "file 'a\nb\x1b[2J' is odd\n");
    assert_string_equal(err.text, "file 'a?b?[2J' is odd?");
}

static void test_every_code_has_its_own_text(void **state)
{
    (void)state;
#define CT_ONE(name, value, text) name,
    static const int codes[] = {CT_ERR_CODES(CT_ONE)};
#undef CT_ONE
    const int count = (int)(sizeof(codes) / sizeof(codes[0]));
    for (int i = 0; i < count; i++) {
        assert_true(codes[i] < 0);
        assert_string_not_equal(ct_code_text(codes[i]), "unknown error");
        for (int j = 0; j < i; j++) {
            assert_int_not_equal(codes[i], codes[j]);
            assert_string_not_equal(ct_code_text(codes[i]), ct_code_text(codes[j]));
        }
    }
    assert_string_equal(ct_code_text(0), "success");
    assert_string_equal(ct_code_text(1), "unknown error");
    assert_string_equal(ct_code_text(-1000), "unknown error");
}

static void test_errno_values_become_codes(void **state)
{
    (void)state;
    static const struct {
        int errnum, code;
    } cases[] = {
        {ENOMEM, CT_ENOMEM},       {EISDIR, CT_EINVAL},    {EINVAL, CT_EINVAL},
        {ETIMEDOUT, CT_ETIMEDOUT}, {EPIPE, CT_ECLOSED},    {ECONNRESET, CT_ECLOSED},
        {ENOENT, CT_ENOENT},       {ENOTDIR, CT_ENOENT},   {ESRCH, CT_ENOENT},
        {EADDRINUSE, CT_EBUSY},    {EACCES, CT_EPERM},     {EPERM, CT_EPERM},
        {EROFS, CT_EPERM},         {EMFILE, CT_ELIMIT},    {ENOSPC, CT_ELIMIT},
        {ENOSYS, CT_EUNSUPPORTED}, {EHOSTUNREACH, CT_EIO}, {0, CT_EIO},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(ct_code_from_errno(cases[i].errnum), cases[i].code);
    }
}

static void test_assert_aborts_with_the_rule(void **state)
{
    (void)state;
    CT_ASSERT(1 + 1 == 2);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    (void)fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(fds[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        CT_ASSERT(1 + 1 == 3);
        _exit(0);
    }
    (void)close(fds[1]);
    char text[512] = "";
    ssize_t n = read(fds[0], text, sizeof(text) - 1);
    (void)close(fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(n > 0);
    assert_non_null(strstr(text, "internal error: 1 + 1 == 3"));
    assert_non_null(strstr(text, "test_err.c:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_returns_code_and_formats),
        cmocka_unit_test(test_null_err_keeps_the_code),
        cmocka_unit_test(test_sys_appends_the_reason),
        cmocka_unit_test(test_wrap_prefixes_and_keeps_code_and_errno),
        cmocka_unit_test(test_arguments_may_point_into_the_text),
        cmocka_unit_test(test_long_text_is_cut_and_terminated),
        cmocka_unit_test(test_text_is_one_clean_line),
        cmocka_unit_test(test_every_code_has_its_own_text),
        cmocka_unit_test(test_errno_values_become_codes),
        cmocka_unit_test(test_assert_aborts_with_the_rule),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
