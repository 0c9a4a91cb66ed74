/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that lines with one of the words are copied, and how the words are written.
 */
#include "tests/lib/ct_test.h"

#include "launcher/output/line_filter.h"
#include "tests/lib/tmpdir.h"

#include <stdio.h>
#include <stdlib.h>

static void words_stand_between_commas(void **state)
{
    static const struct {
        const char *text;
        const char *words[4];
    } rows[] = {
        {"", {NULL}},
        {",", {NULL}},
        {"apple,orange", {"apple", "orange"}},
        {"a b ,c", {"a b ", "c"}},
        {"a,,b,c", {"a,b", "c"}},
        {",,", {","}},
        {",a,", {"a"}},
        {"a,,", {"a,"}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_strlist words = {0};
        size_t count = 0;
        assert_int_equal(ct_line_filter_words(rows[i].text, &words), 0);
        for (; rows[i].words[count] != NULL; count++) {
            assert_true(count < words.count);
            assert_string_equal(words.list[count], rows[i].words[count]);
        }
        assert_int_equal(words.count, count);
        ct_strlist_fini(&words);
    }
}

static int copy(void *data)
{
    const struct ct_line_filter_options options = {"loss,err", data, "[loss\n] "};
    static const char text[] = "a loss\nnothing\n\nan er";
    struct ct_line_filter *filter = NULL;
    struct ct_err err = {0};
    int rc = ct_line_filter_open(&options, &filter, &err);
    rc = rc != 0 ? rc : ct_line_filter_feed(filter, text, strlen(text));
    rc = rc != 0 ? rc : ct_line_filter_feed(filter, "r!", 2);
    ct_line_filter_free(filter);
    return rc;
}

static void matching_lines_are_copied(void **state)
{
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "filtered.log");
    char text[256] = "";
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(copy(path), 0);
    assert_int_equal(copy(path), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    (void)fclose(file);
    /* The prefix does not count; the other stream's lines stay. */
    assert_string_equal(text,
                        "[loss\n] a loss\n[loss\n] an err!\n[loss\n] a loss\n[loss\n] an err!\n");
    assert_true(ct_fault_sweep(copy, path, 0) > 0);

    const struct ct_line_filter_options nowhere = {"a", "/nonexistent/x", ""};
    struct ct_line_filter *filter = NULL;
    assert_int_equal(ct_line_filter_open(&nowhere, &filter, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "/nonexistent/x"));
    free(path);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_stand_between_commas),
        cmocka_unit_test(matching_lines_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
