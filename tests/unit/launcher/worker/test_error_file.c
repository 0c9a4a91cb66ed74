/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that both shapes of torchrun's error file are read, that a bad file or one that is too
 * large does no harm, and that a copy has the worker's exit code.
 */
#include "tests/lib/ct_test.h"

#include "common/file.h"
#include "launcher/worker/error_file.h"
#include "tests/lib/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FULL                                                               \
    "{\"message\": {\"message\": \"ValueError: \\u00e9\", \"extraInfo\": " \
    "{\"py_callstack\": \"Traceback\\nline\", \"timestamp\": \"12\"}}}"

struct rig {
    char *dir, *file;
};

static int set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->dir = ct_tmpdir_new();
    rig->file = ct_tmpdir_path(rig->dir, "error.json");
    *state = rig;
    return 0;
}

static int tear_down(void **state)
{
    struct rig *rig = *state;
    free(rig->file);
    ct_tmpdir_free(rig->dir);
    free(rig);
    return 0;
}

static void put(const struct rig *rig, const char *text)
{
    free(ct_tmpdir_write(rig->dir, "error.json", text, strlen(text)));
}

static void reads_both_shapes(void **state)
{
    const struct rig *rig = *state;
    struct ct_error_file file;
    put(rig, FULL);
    assert_int_equal(ct_error_file_read(rig->file, &file, NULL), 0);
    assert_string_equal(file.message, "ValueError: \xc3\xa9");
    assert_string_equal(file.traceback, "Traceback\nline");
    ct_error_file_fini(&file);
    put(rig, "{\"message\": \"just text\", \"timestamp\": \"3\"}");
    assert_int_equal(ct_error_file_read(rig->file, &file, NULL), 0);
    assert_string_equal(file.message, "just text");
    assert_null(file.traceback);
    ct_error_file_fini(&file);
    put(rig, "{\"message\": {\"message\": \"C\", \"extraInfo\": {\"py_callstack\": \"\"}}}");
    assert_int_equal(ct_error_file_read(rig->file, &file, NULL), 0);
    assert_null(file.traceback);
    ct_error_file_fini(&file);
}

static void refuses_what_is_no_error_file(void **state)
{
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "3",
        "{}",
        "{\"message\": 3}",
        "{\"message\": {}}",
        "{\"message\": {\"message\": null}}",
        "\xff\xfe",
    };
    const struct rig *rig = *state;
    struct ct_error_file file = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_error_file_read(rig->file, &file, &err), CT_ENOENT);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        put(rig, bad[i]);
        if (ct_error_file_read(rig->file, &file, &err) != CT_EFORMAT) {
            fail_msg("'%s' was accepted", bad[i]);
        }
        assert_non_null(strstr(err.text, rig->file));
    }
    assert_null(file.message);
}

static void is_bounded_and_never_waits(void **state)
{
    const struct rig *rig = *state;
    struct ct_error_file file = {0};
    FILE *stream = fopen(rig->file, "w");
    assert_non_null(stream);
    (void)fputs("{\"message\": \"start", stream);
    for (size_t i = 0; i < CT_ERROR_FILE_SHOWN; i++) {
        (void)fputs("\xc3\xa9", stream);
    }
    (void)fputs("end\"}", stream);
    (void)fclose(stream);
    assert_int_equal(ct_error_file_read(rig->file, &file, NULL), 0);
    size_t len = strlen(file.message);
    assert_in_range(len, CT_ERROR_FILE_SHOWN - 8, CT_ERROR_FILE_SHOWN + 8);
    assert_memory_equal(file.message, "...\xc3\xa9", 5);
    assert_string_equal(file.message + len - 3, "end");
    ct_error_file_fini(&file);

    assert_int_equal(truncate(rig->file, CT_ERROR_FILE_MAX + 1), 0);
    assert_int_equal(ct_error_file_read(rig->file, &file, NULL), CT_ELIMIT);
    assert_int_equal(unlink(rig->file), 0);
    assert_int_equal(mkfifo(rig->file, 0600), 0);
    assert_int_equal(ct_error_file_read(rig->file, &file, NULL), CT_EFORMAT);
}

static void copy_adds_the_exit_code(void **state)
{
    static const struct {
        const char *from;
        int code;
        const char *to;
    } rows[] = {
        {"{\"message\":{\"message\":\"m\",\"errorCode\":1}}", -9,
         "{\"message\":{\"message\":\"m\",\"errorCode\":-9}}"},
        {"{\"message\":\"m\"}", 3, "{\"message\":\"m\"}"},
    };
    const struct rig *rig = *state;
    char *to = ct_tmpdir_write(rig->dir, "own.json", "old", 3);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_buf text = CT_BUF_INIT;
        put(rig, rows[i].from);
        assert_int_equal(ct_error_file_copy(rig->file, to, rows[i].code, NULL), 0);
        assert_int_equal(ct_file_read(to, 4096, &text, NULL), 0);
        assert_string_equal(ct_buf_cstr(&text), rows[i].to);
        ct_buf_fini(&text);
    }
    struct ct_err err = {0};
    assert_true(ct_error_file_copy(rig->file, "/nonexistent/e.json", 1, &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/e.json"));
    free(to);
}

static int sweep_body(void *data)
{
    const struct rig *rig = data;
    struct ct_error_file file = {0};
    char to[4096];
    (void)snprintf(to, sizeof(to), "%s/own.json", rig->dir);
    int rc = ct_error_file_read(rig->file, &file, NULL);
    /* cJSON does not tell lack of memory from a syntax error. */
    rc = rc == CT_EFORMAT ? CT_ENOMEM : rc;
    ct_error_file_fini(&file);
    if (rc == 0) {
        rc = ct_error_file_copy(rig->file, to, 1, NULL);
        rc = rc == CT_EFORMAT ? CT_ENOMEM : rc;
    }
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    put(*state, FULL);
    assert_true(ct_fault_sweep(sweep_body, *state, 0) >= 10);
}

int main(void)
{
#define CASE(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(reads_both_shapes),          CASE(refuses_what_is_no_error_file),
        CASE(is_bounded_and_never_waits), CASE(copy_adds_the_exit_code),
        CASE(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
