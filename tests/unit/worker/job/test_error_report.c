/* SPDX-License-Identifier: Apache-2.0
 *
 * The error file that a worker leaves for the launcher.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/buf.h"
#include "common/file.h"
#include "common/progress_page.h"
#include "worker/job/job.h"

#include <cjson/cJSON.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int setup(void **state)
{
    *state = ct_tmpdir_new();
    return 0;
}

static int teardown(void **state)
{
    ct_tmpdir_free(*state);
    return 0;
}

static void job_for(struct ctw_job *job, const char *dir, const char *name)
{
    memset(job, 0, sizeof(*job));
    (void)snprintf(job->env.error_file, sizeof(job->env.error_file), "%s/%s", dir, name);
}

static cJSON *read_json(const char *path)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_file_read(path, 1 << 20, &text, NULL), 0);
    cJSON *root = cJSON_ParseWithOpts(ct_buf_cstr(&text), NULL, 1);
    ct_buf_fini(&text);
    assert_non_null(root);
    return root;
}

static const char *message_in(const cJSON *root)
{
    const cJSON *outer = cJSON_GetObjectItemCaseSensitive(root, "message");
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(outer, "message"));
}

static void writes_what_torchrun_reads(void **state)
{
    struct ctw_job job;
    job_for(&job, *state, "error.json");
    time_t before = time(NULL);
    assert_int_equal(ctw_job_report_error(&job, "LossError: \"nan\"\nat step 3", NULL), 0);

    cJSON *root = read_json(job.env.error_file);
    assert_string_equal(message_in(root), "LossError: \"nan\"\nat step 3");
    const cJSON *extra = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(root, "message"), "extraInfo");
    const char *stack =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(extra, "py_callstack"));
    assert_string_equal(stack, "");
    const char *stamp = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(extra, "timestamp"));
    assert_non_null(stamp);
    long long seconds = strtoll(stamp, NULL, 10);
    assert_true(seconds >= before && seconds <= time(NULL));
    cJSON_Delete(root);
}

static void replaces_the_old_one_and_leaves_nothing_beside(void **state)
{
    struct ctw_job job;
    job_for(&job, *state, "error.json");
    assert_int_equal(ctw_job_report_error(&job, "first, and quite a bit longer", NULL), 0);
    assert_int_equal(ctw_job_report_error(&job, "second", NULL), 0);
    cJSON *root = read_json(job.env.error_file);
    assert_string_equal(message_in(root), "second");
    cJSON_Delete(root);

    DIR *dir = opendir(*state);
    assert_non_null(dir);
    int files = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        files += e->d_name[0] != '.';
    }
    (void)closedir(dir);
    assert_int_equal(files, 1);
}

/* Truncated, overlong, surrogate, stray continuation; good sequences of each length stay. */
static void makes_any_bytes_valid_utf8(void **state)
{
    struct ctw_job job;
    job_for(&job, *state, "error.json");
    const char *bad =
        "\xc3\xa9 \xe2\x82\xac \xe0\xa0\x80 \xf0\x9f\x98\x80 \xff \x80 \xc0\xaf \xe0\x80\x80 "
        "\xed\xa0\x80 \xf4\x90\x80\x80 \xe2\x82";
    const char *good = "\xc3\xa9 \xe2\x82\xac \xe0\xa0\x80 \xf0\x9f\x98\x80 ? ? ?? ??? ??? ???? ??";
    assert_int_equal(ctw_job_report_error(&job, bad, NULL), 0);
    cJSON *root = read_json(job.env.error_file);
    assert_string_equal(message_in(root), good);
    cJSON_Delete(root);
}

static void does_nothing_without_a_file(void **state)
{
    (void)state;
    struct ctw_job job = {0};
    assert_int_equal(ctw_job_report_error(&job, "x", NULL), 0);
    assert_int_equal(unsetenv("TORCHELASTIC_ERROR_FILE"), 0);
    assert_int_equal(ctw_job_report_error(NULL, "x", NULL), 0);
}

static void works_when_the_job_could_not_be_opened(void **state)
{
    char *path = ct_tmpdir_path(*state, "error.json");
    assert_int_equal(setenv("TORCHELASTIC_ERROR_FILE", path, 1), 0);
    assert_int_equal(ctw_job_report_error(NULL, "no store", NULL), 0);
    assert_int_equal(unsetenv("TORCHELASTIC_ERROR_FILE"), 0);
    cJSON *root = read_json(path);
    assert_string_equal(message_in(root), "no store");
    cJSON_Delete(root);
    free(path);
}

static void names_the_file_it_cannot_write(void **state)
{
    struct ctw_job job;
    struct ct_err err = {0};
    job_for(&job, *state, "missing/error.json");
    assert_int_equal(ctw_job_report_error(&job, "x", &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "missing/error.json"));
    /* The target is a folder: the file beside it is taken away again. */
    job_for(&job, *state, ".");
    assert_int_not_equal(ctw_job_report_error(&job, "x", &err), 0);
    assert_int_equal(ctw_job_report_error(&job, NULL, &err), CT_EINVAL);
}

static void a_permanent_error_is_marked_on_the_page_with_or_without_a_job(void **state)
{
    (void)state;
    struct ct_progress_slot slot = {0};
    struct ctw_job job = {.progress.slot = &slot};
    assert_int_equal(ctw_job_report_permanent_error(&job, NULL, NULL), CT_EINVAL);
    assert_int_equal(slot.permanent, 0);
    assert_int_equal(ctw_job_report_permanent_error(&job, "x", NULL), 0);
    assert_int_equal(slot.permanent, CT_PROGRESS_PERMANENT);

    int fd = memfd_create("page", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, CT_PROGRESS_SLOT), 0);
    char place[64];
    (void)snprintf(place, sizeof(place), "/proc/self/fd/%d:0", fd);
    assert_int_equal(setenv(CT_PROGRESS_ENV, place, 1), 0);
    assert_int_equal(ctw_job_report_permanent_error(NULL, "x", NULL), 0);
    assert_int_equal(unsetenv(CT_PROGRESS_ENV), 0);
    assert_int_equal(pread(fd, &slot, sizeof(slot), 0), sizeof(slot));
    assert_true(ct_progress_permanent(&slot));
    (void)close(fd);
}

static void a_page_beyond_the_end_of_its_file_is_not_used(void **state)
{
    (void)state;
    struct progress_page page;
    int fd = memfd_create("page", MFD_CLOEXEC); /* empty: a write to it would kill the process */
    assert_true(fd >= 0);
    char place[64];
    (void)snprintf(place, sizeof(place), "/proc/self/fd/%d:0", fd);
    progress_open(&page, place);
    assert_null(page.slot);
    progress_close(&page);
    (void)close(fd);
}

static int report(void *data)
{
    return ctw_job_report_error(data, "swept", NULL);
}

static void survives_allocation_failures(void **state)
{
    struct ctw_job job;
    job_for(&job, *state, "error.json");
    assert_true(ct_fault_sweep(report, &job, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_what_torchrun_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(replaces_the_old_one_and_leaves_nothing_beside, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(makes_any_bytes_valid_utf8, setup, teardown),
        cmocka_unit_test(does_nothing_without_a_file),
        cmocka_unit_test_setup_teardown(works_when_the_job_could_not_be_opened, setup, teardown),
        cmocka_unit_test_setup_teardown(names_the_file_it_cannot_write, setup, teardown),
        cmocka_unit_test(a_permanent_error_is_marked_on_the_page_with_or_without_a_job),
        cmocka_unit_test(a_page_beyond_the_end_of_its_file_is_not_used),
        cmocka_unit_test_setup_teardown(survives_allocation_failures, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
