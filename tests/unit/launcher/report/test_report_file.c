/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of --report for a job that could not be started.
 */
#include "tests/lib/ct_test.h"

#include "common/file.h"
#include "launcher/report/report_file.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/tmpdir.h"

#include <stdlib.h>
#include <string.h>

static const struct ct_job_end end = {
    .run_id = "j", .host = "gpu-0", .exit_code = 127, .max_restarts = 1};

static void a_job_that_did_not_start_has_a_report(void **state)
{
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "report.json");
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_report_file_not_started(path, &end, "prog: not found", NULL), 0);
    assert_int_equal(ct_file_read(path, 65536, &text, NULL), 0);
    cJSON *root = cJSON_Parse(ct_buf_cstr(&text));
    assert_true(ct_json_number(root, "exit_code", 0) == 127);
    assert_string_equal(ct_json_text(root, "why", ""), "prog: not found");
    assert_true(ct_json_number(root, "generation", 0) == -1);
    assert_true(ct_json_number(root, "node_rank", 0) == -1);
    cJSON_Delete(root);
    ct_buf_fini(&text);
    free(path);
    ct_tmpdir_free(dir);
}

static void a_file_that_cannot_be_written_is_an_error(void **state)
{
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_report_file_not_started(NULL, &end, "why", &err), 0);
    assert_int_not_equal(ct_report_file_not_started("/nowhere/report", &end, "why", &err), 0);
    assert_non_null(strstr(err.text, "--report: "));
}

static int write_report(void *path)
{
    return ct_report_file_not_started(path, &end, "why", NULL);
}

/* What cJSON allocates is counted, too. */
static void lack_of_memory_is_an_error_and_nothing_is_left(void **state)
{
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "report.json");
    (void)state;
    assert_true(ct_fault_sweep(write_report, path, 0) >= 20);
    free(path);
    ct_tmpdir_free(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* The first one: cJSON has our memory from here on. */
        cmocka_unit_test(lack_of_memory_is_an_error_and_nothing_is_left),
        cmocka_unit_test(a_job_that_did_not_start_has_a_report),
        cmocka_unit_test(a_file_that_cannot_be_written_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
