/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing behind the training: what was written, skipped or failed, and who is told.
 */
#include "common/alloc.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/recovery/checkpoint_dir.h"
#include "trainer/recovery/saver.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* A writer reads from this pipe before it syncs anything, and so waits for its end; -1 = none. */
static int held_by = -1;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    char byte;
    assert_true(held_by < 0 || read(held_by, &byte, 1) == 0);
    return __real_fsync(fd);
}

struct fixture {
    char *dir;
    struct ct_layout layout;
    struct ct_saver_options options;
    struct ct_saver *saver;
};

static void set_up(struct fixture *f, const char *file)
{
    f->dir = ct_tmpdir_new();
    const struct ct_hidden sizes = {.count = 1, .size = {7}};
    assert_int_equal(ct_layout_init(&f->layout, 5, &sizes, 3, NULL), 0);
    f->options = (struct ct_saver_options){.file = file,
                                           .dir = f->dir,
                                           .keep = 2,
                                           .layout = &f->layout,
                                           .optimizer = CT_OPTIMIZER_SGD};
    assert_int_equal(ct_saver_open(&f->options, &f->saver, NULL), 0);
}

static void tear_down(struct fixture *f)
{
    ct_saver_free(f->saver);
    ct_tmpdir_free(f->dir);
}

static void save(struct fixture *f, int64_t step, float value)
{
    float *snapshot = ct_saver_begin(f->saver, true);
    assert_non_null(snapshot);
    for (size_t i = 0; i < 2 * f->layout.count; i++) {
        snapshot[i] = value;
    }
    ct_saver_commit(f->saver, &(struct ct_progress_point){.step = step});
}

static void test_writes_behind_and_keeps_the_last(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, NULL);
    for (int64_t step = 1; step <= 4; step++) {
        save(&f, step, (float)step);
    }
    struct ct_err none;
    assert_non_null(ct_saver_begin(f.saver, true)); /* written, without asking how */
    assert_false(ct_saver_news(f.saver, &none));
    assert_int_equal(ct_saver_wait(f.saver, NULL), 0);
    int64_t *steps;
    size_t count;
    assert_int_equal(ct_checkpoint_dir_list(f.dir, &steps, &count, NULL), 0);
    assert_true(count == 2 && steps[0] == 4 && steps[1] == 3);
    ct_free(steps);
    struct ct_saver_counts counts = ct_saver_count(f.saver);
    assert_true(counts.written == 4 && counts.failed == 0 && counts.skipped == 0);
    assert_false(ct_saver_news(f.saver, &none));
    tear_down(&f);
}

/* The writer is held while it writes. */
static void test_who_does_not_wait_is_counted(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, NULL);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    held_by = ends[0];
    save(&f, 1, 1);
    assert_null(ct_saver_begin(f.saver, false));
    assert_null(ct_saver_begin(f.saver, false));
    assert_int_equal(close(ends[1]), 0);
    assert_int_equal(ct_saver_wait(f.saver, NULL), 0);
    held_by = -1;
    assert_non_null(ct_saver_begin(f.saver, false));
    assert_int_equal(ct_saver_count(f.saver).skipped, 2);
    (void)close(ends[0]);
    tear_down(&f);
}

static void test_a_series_of_failures_is_told_once(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, "/no/such/folder/file");
    struct ct_err err = {0}, last = {0};
    for (int64_t step = 1; step <= 3; step++) {
        save(&f, step, 1);
        assert_non_null(ct_saver_begin(f.saver, true)); /* written, without asking how */
        assert_true(ct_saver_news(f.saver, &err) == (step == 1));
    }
    assert_non_null(strstr(err.text, "/no/such/folder/file"));
    assert_int_equal(ct_saver_wait(f.saver, &last), CT_ENOENT);
    assert_non_null(strstr(last.text, "/no/such/folder/file"));
    assert_int_equal(ct_saver_count(f.saver).failed, 3);
    assert_int_equal(ct_saver_count(f.saver).written, 0);
    /* The folder got its files all the same. */
    int64_t *steps;
    size_t count;
    assert_int_equal(ct_checkpoint_dir_list(f.dir, &steps, &count, NULL), 0);
    assert_int_equal(count, 2);
    ct_free(steps);
    tear_down(&f);
}

static void test_what_is_no_number_is_not_kept(void **state)
{
    (void)state;
    struct fixture f;
    struct ct_err err = {0};
    set_up(&f, NULL);
    save(&f, 1, NAN);
    assert_int_equal(ct_saver_wait(f.saver, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "contain NaN or infinity"));
    save(&f, 2, 1);
    assert_int_equal(ct_saver_wait(f.saver, NULL), 0);
    tear_down(&f);
}

static void test_freeing_finishes_the_write(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, NULL);
    save(&f, 9, 1);
    ct_saver_free(f.saver);
    char *path = ct_checkpoint_dir_path(f.dir, 9);
    assert_int_equal(access(path, F_OK), 0);
    ct_free(path);
    ct_tmpdir_free(f.dir);
    ct_saver_free(NULL);
}

static void test_signals_stay_with_the_thread_that_trains(void **state)
{
    (void)state;
    struct fixture f;
    sigset_t before, after;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    set_up(&f, NULL);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    for (int s = 1; s < SIGRTMIN; s++) {
        assert_int_equal(sigismember(&after, s), sigismember(&before, s));
    }
    tear_down(&f);
}

static int open_body(void *data)
{
    struct fixture *f = data;
    struct ct_saver *saver;
    int rc = ct_saver_open(&f->options, &saver, NULL);
    if (rc == 0) {
        ct_saver_free(saver);
    }
    return rc;
}

static void test_opening_survives_lack_of_memory(void **state)
{
    (void)state;
    struct fixture f;
    set_up(&f, NULL);
    assert_int_equal(ct_fault_sweep(open_body, &f, 0), 2);
    tear_down(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writes_behind_and_keeps_the_last),
        cmocka_unit_test(test_who_does_not_wait_is_counted),
        cmocka_unit_test(test_a_series_of_failures_is_told_once),
        cmocka_unit_test(test_what_is_no_number_is_not_kept),
        cmocka_unit_test(test_freeing_finishes_the_write),
        cmocka_unit_test(test_signals_stay_with_the_thread_that_trains),
        cmocka_unit_test(test_opening_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("saver", tests, NULL, NULL);
}
