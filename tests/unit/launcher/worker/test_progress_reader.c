/* SPDX-License-Identifier: Apache-2.0
 *
 * Both ends of the progress page: the worker library stamps, the launcher reads.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/worker/progress_reader.h"
#include "worker/ctworker.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static struct ctw_job *open_job(const char *place)
{
    struct ctw_job *job = NULL;
    assert_int_equal(setenv(CT_PROGRESS_ENV, place, 1), 0);
    assert_int_equal(unsetenv("RANK"), 0);
    assert_int_equal(unsetenv("WORLD_SIZE"), 0);
    assert_int_equal(ctw_job_open(NULL, &job, NULL), 0);
    return job;
}

static struct ctw_job *open_slot(const struct ct_progress_reader *pages, int rank)
{
    char place[128];
    (void)snprintf(place, sizeof(place), "%s:%d", pages->path, rank * CT_PROGRESS_SLOT);
    return open_job(place);
}

static void what_a_worker_stamps_is_read(void **state)
{
    (void)state;
    struct ct_progress_reader pages;
    struct ct_progress progress;
    ct_progress_reader_open(&pages, 100, NULL);
    assert_true(pages.fd >= 0);
    assert_false(ct_progress_reader_read(&pages, 70, ct_clock_now(NULL), &progress));

    struct ctw_job *job = open_slot(&pages, 70); /* beyond the first page of memory */
    assert_true(ct_progress_reader_read(&pages, 70, ct_clock_now(NULL), &progress));
    assert_int_equal(progress.phase, CT_PHASE_STARTING);
    assert_true(isnan(progress.loss));

    int64_t before = ct_clock_now(NULL);
    ctw_progress(job, CTW_PHASE_DATA, 12);
    ctw_progress_metrics(job, 0.25, 1000);
    assert_true(ct_progress_reader_read(&pages, 70, ct_clock_now(NULL), &progress));
    assert_int_equal(progress.phase, CT_PHASE_DATA);
    assert_int_equal(progress.step, 12);
    assert_int_equal(progress.turns, 0); /* it goes on at 12: no step is done yet */
    assert_true(progress.stamp_ns >= before && progress.stamp_ns <= ct_clock_now(NULL));
    assert_true(progress.loss == 0.25 && progress.rate == 1000);
    ctw_progress(job, CTW_PHASE_COMPUTE, 12);
    ctw_progress(job, CTW_PHASE_COMPUTE, 13);
    assert_true(ct_progress_reader_read(&pages, 70, ct_clock_now(NULL), &progress));
    assert_int_equal(progress.turns, 1);
    int64_t first_ns = progress.first_ns;
    assert_true(first_ns >= before && first_ns <= progress.stamp_ns);
    ctw_progress(job, CTW_PHASE_COMPUTE, 14);
    assert_int_equal(ct_progress_reader_first_step_ns(&pages, ct_clock_now(NULL)), first_ns);
    struct ctw_job *later = open_slot(&pages, 3);
    ctw_progress(later, CTW_PHASE_COMPUTE, 12);
    ctw_progress(later, CTW_PHASE_COMPUTE, 13);
    assert_int_equal(ct_progress_reader_first_step_ns(&pages, ct_clock_now(NULL)), first_ns);
    ctw_job_free(later);
    ctw_job_free(job);

    struct ct_progress all[100];
    bool valid[100];
    ct_progress_reader_read_all(&pages, ct_clock_now(NULL), all, valid);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(valid[i], i == 70 || i == 3);
    }
    assert_int_equal(all[70].step, 14);
    assert_false(ct_progress_reader_read(&pages, 100, ct_clock_now(NULL), &progress));
    assert_false(ct_progress_reader_read(&pages, -1, ct_clock_now(NULL), &progress));

    for (int i = 0; i < 100; i++) {
        ct_progress_reader_reset(&pages, i, false);
    }
    assert_int_equal(ct_progress_reader_first_step_ns(&pages, ct_clock_now(NULL)), 0);
    assert_false(ct_progress_reader_read(&pages, 70, ct_clock_now(NULL), &progress));
    ct_progress_reader_fini(&pages);
    ct_progress_reader_fini(&pages);
}

static void a_permanent_error_is_told_till_the_next_worker_comes(void **state)
{
    (void)state;
    struct ct_progress_reader pages;
    ct_progress_reader_open(&pages, 2, NULL);
    struct ctw_job *job = open_slot(&pages, 1);
    assert_int_equal(unsetenv("TORCHELASTIC_ERROR_FILE"), 0);
    assert_int_equal(ctw_job_report_error(job, "a restart may help", NULL), 0);
    assert_false(ct_progress_reader_permanent(&pages, 1));
    assert_int_equal(ctw_job_report_permanent_error(job, NULL, NULL), CT_EINVAL);
    assert_false(ct_progress_reader_permanent(&pages, 1));
    assert_int_equal(ctw_job_report_permanent_error(job, "no such option", NULL), 0);
    assert_true(ct_progress_reader_permanent(&pages, 1));
    assert_false(ct_progress_reader_permanent(&pages, 0));
    assert_false(ct_progress_reader_permanent(&pages, 2));
    ctw_job_free(job);
    assert_true(ct_progress_reader_permanent(&pages, 1)); /* it is the last word of the process */

    job = open_slot(&pages, 1); /* a script may try another program */
    assert_false(ct_progress_reader_permanent(&pages, 1));
    ctw_job_free(job);

    assert_int_equal(ctw_job_report_permanent_error(NULL, "before any job is open", NULL), 0);
    assert_true(ct_progress_reader_permanent(&pages, 1));
    ct_progress_reader_reset(&pages, 1, true);
    assert_false(ct_progress_reader_permanent(&pages, 1));
    assert_int_equal(unsetenv(CT_PROGRESS_ENV), 0);
    assert_int_equal(ctw_job_report_permanent_error(NULL, "nobody listens", NULL), 0);
    ct_progress_reader_fini(&pages);
}

/* A barrier of one says so only while it lasts, so the end is all there is to see here. */
static void a_collective_leaves_the_phase_as_it_was(void **state)
{
    (void)state;
    struct ct_progress_reader pages;
    struct ct_progress progress;
    struct ctw_comm *comm;
    ct_progress_reader_open(&pages, 1, NULL);
    struct ctw_job *job = open_slot(&pages, 0);
    assert_int_equal(ctw_comm_open(job, NULL, &comm, NULL), 0);
    ctw_progress(job, CTW_PHASE_COMPUTE, 3);
    int64_t between = ct_clock_now(NULL);
    assert_int_equal(ctw_comm_barrier(comm, NULL), 0);
    assert_true(ct_progress_reader_read(&pages, 0, ct_clock_now(NULL), &progress));
    assert_int_equal(progress.phase, CT_PHASE_COMPUTE);
    assert_int_equal(progress.step, 3);
    assert_true(progress.stamp_ns >= between);
    ctw_comm_free(comm);
    ctw_job_free(job);
    ct_progress_reader_fini(&pages);
}

static void no_page_is_no_failure(void **state)
{
    (void)state;
    char path[] = "/tmp/ctrun-test-XXXXXX", place[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, CT_PROGRESS_SLOT + 1), 0);
    (void)snprintf(place, sizeof(place), "%s:%d", path, CT_PROGRESS_SLOT); /* ends beyond */
    const char *const places[] = {"", "nonsense", "/nowhere:0", "/dev/zero:0", "/tmp:0", place};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        struct ctw_job *job = open_job(places[i]);
        ctw_progress(job, CTW_PHASE_DATA, 1);
        ctw_progress_metrics(job, 1, 1);
        ctw_job_free(job);
    }
    ctw_progress(NULL, CTW_PHASE_DATA, 1);
    ctw_progress_metrics(NULL, 1, 1);
    (void)close(fd);
    (void)unlink(path);
}

/* Whoever shrank the file would kill all who have mapped it. */
static void the_file_cannot_shrink(void **state)
{
    (void)state;
    struct ct_progress_reader pages;
    ct_progress_reader_open(&pages, 2, NULL);
    int fd = open(pages.path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_not_equal(ftruncate(fd, 0), 0);
    assert_int_not_equal(ftruncate(fd, 1 << 20), 0);
    (void)close(fd);
    ct_progress_reader_fini(&pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_worker_stamps_is_read),
        cmocka_unit_test(a_permanent_error_is_told_till_the_next_worker_comes),
        cmocka_unit_test(a_collective_leaves_the_phase_as_it_was),
        cmocka_unit_test(no_page_is_no_failure),
        cmocka_unit_test(the_file_cannot_shrink),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
