/* SPDX-License-Identifier: Apache-2.0
 *
 * Who may write the progress page: the worker, and whoever comes after it, but no child of it.
 */
#include "tests/lib/ct_test.h"

#include "worker/job/job.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char place[64];
static int fd;

static int setup(void **state)
{
    (void)state;
    fd = memfd_create("page", MFD_CLOEXEC);
    (void)snprintf(place, sizeof(place), "/proc/self/fd/%d:0", fd);
    return fd < 0 || ftruncate(fd, CT_PROGRESS_SLOT) != 0;
}

static int teardown(void **state)
{
    (void)state;
    return close(fd);
}

/* Opens the page in a child, tells something there, and waits for the child's end. */
static void open_in_child(uint32_t turns, uint32_t stay)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct progress_page page;
        progress_open(&page, place);
        if (turns > 0) {
            page.slot->turns = turns;
        }
        progress_stay(&page, stay);
        progress_close(&page);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A data loader that imported the main script again had turned off the detection of hangs on its
 * machine, because the worker seemed to have completed no step yet. */
static void test_a_child_does_not_reset_what_its_parent_has_told(void **state)
{
    struct progress_page page;
    (void)state;
    progress_open(&page, place);
    assert_int_equal(page.slot->version, CT_PROGRESS_VERSION);
    page.slot->turns = 3;
    progress_stay(&page, 6);
    progress_permanent(&page);
    open_in_child(0, 0);
    assert_int_equal(page.slot->turns, 3);
    assert_int_equal(page.slot->stay, 6);
    assert_int_equal(page.slot->permanent, CT_PROGRESS_PERMANENT);
    progress_close(&page);
}

static void tell(struct ctw_job *job)
{
    ctw_progress(job, CTW_PHASE_DATA, 0);
    ctw_progress(job, CTW_PHASE_CHECKPOINT, 1);
    ctw_progress_metrics(job, 9, 9);
    ctw_progress_total(job, 9);
    progress_end_wait(&job->progress, progress_begin_wait(&job->progress));
}

/* A data loader that tells its phases had set the page of its parent to step 0. */
static void test_a_child_does_not_tell_its_own_progress(void **state)
{
    struct ctw_job job = {0}, own = {0};
    struct ct_progress_slot before;
    (void)state;
    progress_open(&job.progress, place);
    ctw_progress(&job, CTW_PHASE_COMPUTE, 7);
    ctw_progress(&job, CTW_PHASE_COMPUTE, 8);
    ctw_progress_metrics(&job, 0.5, 100);
    ctw_progress_total(&job, 1000);
    before = *job.progress.slot;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tell(&job);
        progress_open(&own.progress, place);
        tell(&own);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_memory_equal(job.progress.slot, &before, sizeof(before));
    tell(&job); /* it still may */
    assert_int_equal(ct_progress_step(job.progress.slot->where), 1);
    assert_int_equal(job.progress.slot->waits, 1);
    progress_close(&job.progress);
}

static void test_a_process_that_follows_a_dead_one_begins_anew(void **state)
{
    struct progress_page page;
    (void)state;
    open_in_child(3, 6);
    progress_map(&page, place);
    assert_int_equal(page.slot->turns, 3);
    assert_int_equal(page.slot->stay, 6);
    progress_close(&page);
    progress_open(&page, place);
    assert_int_equal(page.slot->turns, 0);
    assert_int_equal(page.slot->stay, 0);
    assert_int_equal(page.slot->writer, getpid());
    page.slot->turns = 4;
    progress_close(&page);
    progress_open(&page, place); /* the same process, with another job */
    assert_int_equal(page.slot->turns, 0);
    progress_close(&page);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_child_does_not_reset_what_its_parent_has_told),
        TEST(test_a_child_does_not_tell_its_own_progress),
        TEST(test_a_process_that_follows_a_dead_one_begins_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
