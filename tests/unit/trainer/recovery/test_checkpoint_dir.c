/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder of checkpoints: the newest whole one is found, old ones go, others are set aside.
 */
#include "common/alloc.h"
#include "common/file.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/recovery/checkpoint_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool folder_breaks;   /* after its first entry */
static const char *vanishes; /* a file that is removed when the folder has been read; NULL = none */

struct dirent *__real_readdir64(DIR *dir);
struct dirent *__wrap_readdir64(DIR *dir);
struct dirent *__wrap_readdir64(DIR *dir)
{
    if (folder_breaks && telldir(dir) != 0) {
        errno = EIO;
        return NULL;
    }
    struct dirent *entry = __real_readdir64(dir);
    if (entry == NULL && vanishes != NULL) {
        assert_int_equal(unlink(vanishes), 0);
        vanishes = NULL;
        errno = 0;
    }
    return entry;
}

static const char *away; /* a file that cannot be opened; NULL = none */

int __real_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (away != NULL && strcmp(path, away) == 0) {
        errno = ESTALE;
        return -1;
    }
    return __real_open64(path, flags, mode);
}

static struct stat synced; /* what was synced last */
static int sync_error;     /* 0 = none */

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    assert_int_equal(fstat(fd, &synced), 0);
    errno = sync_error;
    return sync_error == 0 ? __real_fsync(fd) : -1;
}

struct folder {
    char *dir;
    struct ct_layout layout;
    float *params;
};

static struct folder make_folder(void)
{
    struct folder f = {.dir = ct_tmpdir_new()};
    const struct ct_hidden sizes = {.count = 1, .size = {7}};
    assert_int_equal(ct_layout_init(&f.layout, 5, &sizes, 3, NULL), 0);
    f.params = calloc(2 * f.layout.count, sizeof(float));
    ct_layout_draw(&f.layout, 1, f.params);
    return f;
}

static void free_folder(struct folder *f)
{
    free(f->params);
    ct_tmpdir_free(f->dir);
}

static void save(struct folder *f, int64_t step, int64_t told_step)
{
    char *path = ct_checkpoint_dir_path(f->dir, step);
    const struct ct_state_view view = {.layout = &f->layout,
                                       .optimizer = CT_OPTIMIZER_SGD,
                                       .params = f->params,
                                       .state = {f->params + f->layout.count}};
    const struct ct_progress_point point = {.step = told_step, .batch = 3, .batch_size = 8};
    assert_int_equal(ct_checkpoint_save(path, &view, &point, NULL), 0);
    ct_free(path);
}

/* Inverts the byte at `offset`; from the end when negative. */
static void damage(struct folder *f, int64_t step, off_t offset)
{
    char *path = ct_checkpoint_dir_path(f->dir, step);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;
    off_t at = lseek(fd, offset, offset < 0 ? SEEK_END : SEEK_SET);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    (void)close(fd);
    ct_free(path);
}

static void expect_steps(struct folder *f, const int64_t *want, size_t count)
{
    int64_t *steps;
    size_t found;
    assert_int_equal(ct_checkpoint_dir_list(f->dir, &steps, &found, NULL), 0);
    assert_int_equal(found, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(steps[i], want[i]);
    }
    ct_free(steps);
}

static int newest(struct folder *f, struct ct_progress_point *point, struct ct_buf *warnings,
                  struct ct_err *err)
{
    struct ct_safetensors file = {.fd = -1};
    int rc =
        ct_checkpoint_dir_newest(f->dir, &f->layout, CT_OPTIMIZER_SGD, &file, point, warnings, err);
    ct_safetensors_fini(&file);
    return rc;
}

static void test_only_names_of_ours_count(void **state)
{
    (void)state;
    struct folder f = make_folder();
    static const char *const others[] = {
        "step-1.safetensors",
        "step-00000000000x.safetensors",
        "step-000000000005.safetensors.0123456789abcdef.tmp",
        "step-000000000006.safetensors.torn",
        "model.safetensors",
        "step-99999999999999999999.safetensors",
        "step--00000000001.safetensors",
        "step-0000000000007.safetensors", /* step 7 has one zero less */
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        free(ct_tmpdir_write(f.dir, others[i], "x", 1));
    }
    save(&f, 0, 0);
    save(&f, 1200, 1200);
    save(&f, INT64_C(1234567890123), 1);
    expect_steps(&f, (int64_t[]){INT64_C(1234567890123), 1200, 0}, 3);
    free_folder(&f);
}

static void test_no_folder_holds_none(void **state)
{
    (void)state;
    int64_t *steps;
    size_t count;
    assert_int_equal(ct_checkpoint_dir_list("/no/such/folder", &steps, &count, NULL), 0);
    assert_int_equal(count, 0);
    ct_free(steps);
    assert_true(ct_checkpoint_dir_list("/dev/null", &steps, &count, NULL) < 0);
}

/* Half a list would look like a folder without the newest checkpoints: training from the start. */
static void test_half_a_folder_is_none(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_progress_point point;
    struct ct_buf warnings = CT_BUF_INIT;
    struct ct_err err = {0};
    save(&f, 1, 1);
    folder_breaks = true;
    int rc = newest(&f, &point, &warnings, &err);
    folder_breaks = false;
    assert_int_equal(rc, CT_EIO);
    assert_non_null(strstr(err.text, f.dir));
    assert_non_null(strstr(err.text, strerror(EIO)));
    ct_buf_fini(&warnings);
    free_folder(&f);
}

static void test_newest_whole_one_is_taken(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_buf warnings = CT_BUF_INIT;
    struct ct_progress_point point;
    assert_int_equal(newest(&f, &point, &warnings, NULL), CT_CHECKPOINT_DIR_E_NONE);
    for (int64_t step = 10; step <= 60; step += 10) {
        save(&f, step, step == 60 ? 59 : step); /* one that lies about its step */
    }
    damage(&f, 50, -1);                                    /* the last tensor's last byte */
    damage(&f, 40, 8 + 2 + (off_t)strlen("__metadata__")); /* inside the header's text */
    char *path = ct_checkpoint_dir_path(f.dir, 30);
    assert_int_equal(truncate(path, 100), 0);
    ct_free(path);
    assert_int_equal(newest(&f, &point, &warnings, NULL), 0);
    assert_int_equal(point.step, 20);
    assert_int_equal(point.batch, 3);
    const char *text = ct_buf_cstr(&warnings);
    assert_non_null(strstr(text, "step-000000000060.safetensors: holds step 59\n"));
    assert_non_null(strstr(text, "step-000000000050.safetensors: damaged: the checksum of its "
                                 "tensors is "));
    assert_non_null(strstr(text, "step-000000000040.safetensors: "));
    assert_non_null(strstr(text, "step-000000000030.safetensors: truncated"));
    ct_buf_fini(&warnings);
    free_folder(&f);
}

/* A process of a machine that the launcher has lost may still save, and remove the oldest. */
static void test_one_that_vanishes_meanwhile_is_passed_over(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_buf warnings = CT_BUF_INIT;
    struct ct_progress_point point;
    save(&f, 10, 10);
    save(&f, 20, 20);
    char *path = ct_checkpoint_dir_path(f.dir, 20);
    vanishes = path;
    assert_int_equal(newest(&f, &point, &warnings, NULL), 0);
    assert_int_equal(point.step, 10);
    assert_int_equal(warnings.len, 0);
    ct_free(path);
    ct_buf_fini(&warnings);
    free_folder(&f);
}

/* It was taken for a damaged one and set aside, so that the training went back. */
static void test_one_that_cannot_be_opened_now_is_not_damaged(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_buf warnings = CT_BUF_INIT;
    struct ct_progress_point point;
    struct ct_err err = {0};
    save(&f, 10, 10);
    save(&f, 20, 20);
    char *path = ct_checkpoint_dir_path(f.dir, 20);
    away = path;
    assert_int_equal(newest(&f, &point, &warnings, &err), CT_EIO);
    assert_non_null(strstr(err.text, "Stale file handle"));
    assert_int_equal(warnings.len, 0);
    away = NULL;
    assert_int_equal(newest(&f, &point, &warnings, &err), 0);
    assert_int_equal(point.step, 20);
    ct_free(path);
    ct_buf_fini(&warnings);
    free_folder(&f);
}

/* Every single byte of a file that changes is found out, or changes nothing that is read. */
static void test_each_damaged_byte_is_found(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_buf warnings = CT_BUF_INIT, whole = CT_BUF_INIT;
    struct ct_progress_point point;
    save(&f, 7, 7);
    char *path = ct_checkpoint_dir_path(f.dir, 7);
    assert_int_equal(ct_file_read(path, 1 << 20, &whole, NULL), 0);
    ct_free(path);
    size_t found = 0;
    for (size_t i = 0; i < whole.len; i++) {
        damage(&f, 7, (off_t)i);
        struct ct_err err = {0};
        point = (struct ct_progress_point){0};
        int rc = newest(&f, &point, &warnings, &err);
        found += rc != 0;
        assert_true(rc != 0 || (point.step == 7 && point.batch == 3 && point.batch_size == 8));
        damage(&f, 7, (off_t)i);
    }
    /* What remains is the names of the two checksums' own keys, without which a file tells none. */
    assert_true(whole.len - found <= strlen("crc32") + strlen("crc32_metadata"));
    ct_buf_fini(&whole);
    ct_buf_fini(&warnings);
    free_folder(&f);
}

static void test_another_model_is_an_error(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_buf warnings = CT_BUF_INIT;
    struct ct_progress_point point;
    struct ct_err err = {0};
    save(&f, 10, 10);
    const struct ct_hidden sizes = {.count = 1, .size = {9}};
    assert_int_equal(ct_layout_init(&f.layout, 5, &sizes, 3, NULL), 0);
    assert_int_equal(newest(&f, &point, &warnings, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "another shape"));
    assert_int_equal(warnings.len, 0);
    free_folder(&f);
}

static void test_a_new_folder_outlives_a_loss_of_power(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct stat parent;
    struct ct_err err = {0};
    assert_int_equal(stat(f.dir, &parent), 0);
    char *given[] = {ct_tmpdir_path(f.dir, "new"), ct_tmpdir_path(f.dir, "other/")};
    for (size_t i = 0; i < 2; i++) {
        synced = (struct stat){0};
        assert_int_equal(ct_checkpoint_dir_probe(given[i], NULL), 0);
        assert_true(synced.st_ino == parent.st_ino && synced.st_dev == parent.st_dev);
    }
    sync_error = EIO;
    assert_int_equal(ct_checkpoint_dir_probe(given[0], &err), CT_EIO);
    assert_non_null(strstr(err.text, "cannot sync the folder"));
    sync_error = EACCES; /* a parent that we may not read */
    assert_int_equal(ct_checkpoint_dir_probe(given[0], NULL), 0);
    sync_error = 0;
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(rmdir(given[i]), 0);
        free(given[i]);
    }
    free_folder(&f);
}

static void test_start_makes_the_folder_ready(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_err err = {0};
    save(&f, 10, 10);
    save(&f, 20, 20);
    static const char left[] = "step-000000000030.safetensors.0123456789abcdef.tmp";
    free(ct_tmpdir_write(f.dir, left, "x", 1));
    free(ct_tmpdir_write(f.dir, "other.0123456789abcdef.tmp", "x", 1));
    assert_int_equal(ct_checkpoint_dir_start(f.dir, 10, false, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "step 20, beyond step 10"));
    assert_non_null(strstr(err.text, "--resume auto"));
    assert_int_equal(ct_checkpoint_dir_start(f.dir, 10, true, NULL), 0);
    expect_steps(&f, (int64_t[]){10}, 1);
    char *torn = ct_tmpdir_path(f.dir, "step-000000000020.safetensors.torn");
    char *half = ct_tmpdir_path(f.dir, left);
    char *other = ct_tmpdir_path(f.dir, "other.0123456789abcdef.tmp");
    assert_int_equal(access(torn, F_OK), 0);
    assert_int_equal(access(half, F_OK), -1);
    assert_int_equal(access(other, F_OK), 0);
    free(torn);
    free(half);
    free(other);
    free_folder(&f);
}

static void test_prune_keeps_the_newest(void **state)
{
    (void)state;
    struct folder f = make_folder();
    for (int64_t step = 1; step <= 6; step++) {
        save(&f, step, step);
    }
    ct_checkpoint_dir_prune(f.dir, 5, 2);
    expect_steps(&f, (int64_t[]){6, 5, 4}, 3);
    ct_checkpoint_dir_prune(f.dir, 6, 1);
    expect_steps(&f, (int64_t[]){6}, 1);
    free_folder(&f);
}

/* The lowest descriptor that is free. */
static int free_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(close(fd), 0);
    return fd;
}

static void test_no_file_stays_open(void **state)
{
    (void)state;
    struct folder f = make_folder();
    struct ct_buf warnings = CT_BUF_INIT;
    struct ct_progress_point point;
    save(&f, 10, 10);
    save(&f, 20, 19);
    save(&f, 30, 30);
    damage(&f, 30, -1);
    int before = free_descriptor();
    expect_steps(&f, (int64_t[]){30, 20, 10}, 3);
    assert_int_equal(free_descriptor(), before);
    assert_int_equal(newest(&f, &point, &warnings, NULL), 0);
    assert_int_equal(free_descriptor(), before);
    assert_int_equal(ct_checkpoint_dir_start(f.dir, 10, true, NULL), 0);
    assert_int_equal(free_descriptor(), before);
    ct_buf_fini(&warnings);
    free_folder(&f);
}

static int sweep_body(void *data)
{
    struct folder *f = data;
    struct ct_progress_point point;
    struct ct_buf warnings = CT_BUF_INIT;
    int rc = ct_checkpoint_dir_probe(f->dir, NULL);
    if (rc == 0) {
        rc = newest(f, &point, &warnings, NULL);
    }
    if (rc == 0) {
        rc = ct_checkpoint_dir_start(f->dir, point.step, false, NULL);
    }
    ct_buf_fini(&warnings);
    return rc;
}

static void test_a_folder_survives_lack_of_memory(void **state)
{
    (void)state;
    struct folder f = make_folder();
    save(&f, 10, 10);
    assert_true(ct_fault_sweep(sweep_body, &f, 0) > 5);
    free_folder(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_names_of_ours_count),
        cmocka_unit_test(test_no_folder_holds_none),
        cmocka_unit_test(test_half_a_folder_is_none),
        cmocka_unit_test(test_newest_whole_one_is_taken),
        cmocka_unit_test(test_one_that_vanishes_meanwhile_is_passed_over),
        cmocka_unit_test(test_one_that_cannot_be_opened_now_is_not_damaged),
        cmocka_unit_test(test_each_damaged_byte_is_found),
        cmocka_unit_test(test_another_model_is_an_error),
        cmocka_unit_test(test_a_new_folder_outlives_a_loss_of_power),
        cmocka_unit_test(test_start_makes_the_folder_ready),
        cmocka_unit_test(test_prune_keeps_the_newest),
        cmocka_unit_test(test_no_file_stays_open),
        cmocka_unit_test(test_a_folder_survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("checkpoint_dir", tests, NULL, NULL);
}
