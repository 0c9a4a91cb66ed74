/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the completion scripts offer what --help lists, in words that each shell reads as
 * they are meant.
 */
#include "tests/lib/ct_test.h"

#include "launcher/cli/completion.h"
#include "launcher/cli/option_table.h"

static int print(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_completion_print(*(const enum ct_shell *)data, &out);
    for (size_t i = 0; rc == 0 && i < ct_option_count; i++) {
        const char *name = ct_option_table[i].name;
        if ((strstr(ct_buf_cstr(&out), name) != NULL) != (ct_option_table[i].help != NULL)) {
            fail_msg("--%s", name);
        }
    }
    ct_buf_fini(&out);
    return rc;
}

static void offers_what_help_lists(void **state)
{
    enum ct_shell shells[] = {CT_SHELL_BASH, CT_SHELL_ZSH};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(print(&shells[i]), 0);
        assert_true(ct_fault_sweep(print, &shells[i], 0) > 0);
    }
}

/* Words of the scripts that the shells would misread if they were written another way. */
static void options_are_written_as_each_shell_reads_them(void **state)
{
    static const struct {
        enum ct_shell shell;
        const char *line;
    } cases[] = {
        {CT_SHELL_BASH, "\n        -np | -n | --nproc-per-node) values=\""},
        {CT_SHELL_BASH, "\n        --max-restarts) values=\""},
        {CT_SHELL_ZSH, "\n    '--max-restarts=[how often to restart all workers after one "},
    };
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ct_buf_reset(&out);
        assert_int_equal(ct_completion_print(cases[i].shell, &out), 0);
        if (strstr(ct_buf_cstr(&out), cases[i].line) == NULL) {
            fail_msg("no '%s' in\n%s", cases[i].line, ct_buf_cstr(&out));
        }
    }
    ct_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(offers_what_help_lists),
        cmocka_unit_test(options_are_written_as_each_shell_reads_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
