/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that files are read up to a limit and replaced as a whole or not at all, that a short
 * write(2) is continued, and what is refused because strangers may have put it there.
 */
#include "common/file.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* As a kernel that does not know this flag of memfd_create(2). */
static unsigned refused_flag;

int __real_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    if ((flags & refused_flag) != 0) {
        errno = EINVAL;
        return -1;
    }
    return __real_memfd_create(name, flags);
}

struct fixture {
    char *dir;
};

static int set_up(void **state)
{
    static struct fixture fixture;
    fixture.dir = ct_tmpdir_new();
    *state = &fixture;
    return 0;
}

static int tear_down(void **state)
{
    ct_tmpdir_free(((struct fixture *)*state)->dir);
    return 0;
}

static void test_reading_a_file_appends_to_the_buffer(void **state)
{
    char *path = ct_tmpdir_write(((struct fixture *)*state)->dir, "f", "content", 7);
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_buf_append(&buf, ">", 1), 0);
    assert_int_equal(ct_file_read(path, 7, &buf, &err), 0);
    assert_string_equal(ct_buf_cstr(&buf), ">content");
    ct_buf_fini(&buf);
    free(path);
}

static void test_limit_counts_the_file_only(void **state)
{
    char *path = ct_tmpdir_write(((struct fixture *)*state)->dir, "f", "content", 7);
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_file_read(path, 6, &buf, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "larger than 6 bytes"));
    ct_buf_fini(&buf);
    free(path);
}

static void test_empty_and_large_files_are_read(void **state)
{
    char *dir = ((struct fixture *)*state)->dir;
    struct ct_buf buf = CT_BUF_INIT;
    char *empty = ct_tmpdir_write(dir, "empty", NULL, 0);
    assert_int_equal(ct_file_read(empty, 0, &buf, NULL), 0);
    assert_int_equal(buf.len, 0);

    /* Larger than one read, and not a multiple of it. */
    size_t len = 300001;
    unsigned char *bytes = malloc(len);
    assert_non_null(bytes);
    for (size_t i = 0; i < len; i++) {
        bytes[i] = (unsigned char)(i * 31 >> 3);
    }
    char *large = ct_tmpdir_write(dir, "large", bytes, len);
    assert_int_equal(ct_file_read(large, len, &buf, NULL), 0);
    assert_int_equal(buf.len, len);
    assert_memory_equal(ct_buf_bytes(&buf), bytes, len);
    /* The limit counts all reads together, not each. */
    assert_int_equal(ct_file_read(large, len - 1, &buf, NULL), CT_ELIMIT);
    ct_buf_fini(&buf);
    free(bytes);
    free(empty);
    free(large);
}

static void test_failures_name_path_and_reason(void **state)
{
    char *dir = ((struct fixture *)*state)->dir;
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    char *missing = ct_tmpdir_path(dir, "missing");
    assert_int_equal(ct_file_read(missing, 10, &buf, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, missing));
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(err.sys, ENOENT);

    assert_int_equal(ct_file_read(dir, 10, &buf, &err), CT_EIO);
    assert_non_null(strstr(err.text, "Is a directory"));
    assert_int_equal(ct_file_read(dir, 10, &buf, NULL), CT_EIO);
    ct_buf_fini(&buf);
    free(missing);
}

static void test_only_a_regular_file_is_read_if_strangers_can_put_one_there(void **state)
{
    char *dir = ((struct fixture *)*state)->dir;
    char *path = ct_tmpdir_write(dir, "f", "content", 7);
    char *fifo = ct_tmpdir_path(dir, "fifo"), *missing = ct_tmpdir_path(dir, "missing");
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_file_read_regular(path, 7, &buf, &err), 0);
    assert_string_equal(ct_buf_cstr(&buf), "content");
    assert_int_equal(ct_file_read_regular(path, 6, &buf, &err), CT_ELIMIT);
    assert_int_equal(ct_file_read_regular(missing, 6, &buf, &err), CT_ENOENT);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    const char *others[] = {fifo, dir, "/dev/zero"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(ct_file_read_regular(others[i], 1 << 20, &buf, &err), CT_EFORMAT);
        assert_non_null(strstr(err.text, others[i]));
        assert_non_null(strstr(err.text, "is not a regular file"));
    }
    ct_buf_fini(&buf);
    free(missing);
    free(fifo);
    free(path);
}

static int read_path(void *data)
{
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    int rc = ct_file_read(data, 1 << 20, &buf, &err);
    assert_int_equal(err.code, rc);
    ct_buf_fini(&buf);
    return rc;
}

static void test_reading_survives_lack_of_memory(void **state)
{
    static const char bytes[100000];
    char *path = ct_tmpdir_write(((struct fixture *)*state)->dir, "f", bytes, sizeof(bytes));
    int before = dup(0);
    assert_true(ct_fault_sweep(read_path, path, 0) >= 2);
    int after = dup(0);
    /* No descriptor stays open on the error paths. */
    assert_int_equal(after, before + 1);
    (void)close(before);
    (void)close(after);
    free(path);
}

/* More bytes than a pipe holds: write(2) is cut short until the reader drains it. */
#define PIPE_BYTES (1 << 20)

static void *drain(void *data)
{
    static unsigned char seen[PIPE_BYTES];
    const int fd = *(const int *)data;
    size_t total = 0;
    while (total < sizeof(seen)) {
        ssize_t n = read(fd, seen + total, sizeof(seen) - total);
        if (n <= 0) {
            break;
        }
        total += (size_t)n;
    }
    return total == sizeof(seen) ? seen : NULL;
}

/* `flags` are those of the end that is written to. */
static void write_more_than_fits(int flags)
{
    static unsigned char bytes[PIPE_BYTES];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (unsigned char)(i ^ i >> 8);
    }
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(fcntl(fds[1], F_SETFL, flags), 0);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, drain, &fds[0]), 0);
    assert_int_equal(ct_fd_write_all(fds[1], bytes, sizeof(bytes)), 0);
    (void)close(fds[1]);
    void *seen = NULL;
    assert_int_equal(pthread_join(reader, &seen), 0);
    assert_non_null(seen);
    assert_memory_equal(seen, bytes, sizeof(bytes));
    (void)close(fds[0]);
}

static void test_write_all_survives_short_writes(void **state)
{
    (void)state;
    write_more_than_fits(0);
}

static void test_write_all_waits_for_room(void **state)
{
    (void)state;
    write_more_than_fits(O_NONBLOCK);
}

static void test_write_all_maps_errors(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    (void)close(fds[0]);
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(ct_fd_write_all(fds[1], "x", 1), CT_ECLOSED);
    assert_int_equal(errno, EPIPE);
    assert_int_equal(ct_fd_write_all(fds[1], NULL, 0), 0);
    (void)signal(SIGPIPE, SIG_DFL);
    (void)close(fds[1]);

    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    assert_int_equal(ct_fd_write_all(full, "x", 1), CT_ELIMIT);
    assert_int_equal(errno, ENOSPC);
    (void)close(full);
}

static void expect_content(const char *path, const char *content)
{
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_file_read(path, 100, &buf, NULL), 0);
    assert_string_equal(ct_buf_cstr(&buf), content);
    ct_buf_fini(&buf);
}

static void test_the_folder_of_a_path_is_synced(void **state)
{
    const struct fixture *f = *state;
    struct ct_err err = {0};
    char *inside = ct_tmpdir_path(f->dir, "file"), *missing = ct_tmpdir_path(f->dir, "a/file");
    assert_int_equal(ct_file_sync_folder(inside, &err), 0);
    assert_int_equal(ct_file_sync_folder("no-folder-in-it", &err), 0);
    assert_int_equal(ct_file_sync_folder("/no-such-file", &err), 0); /* that of / */
    assert_int_equal(ct_file_sync_folder(missing, &err), CT_EIO);
    assert_non_null(strstr(err.text, "/a: "));
    free(inside);
    free(missing);
}

/* Nobody can execute it, where the kernel can say so, and it takes seals only if it is to. */
static void test_a_file_in_memory_is_only_data(void **state)
{
    struct stat st;
    (void)state;
    int plain = ct_file_in_memory("test", false), sealable = ct_file_in_memory("test", true);
    assert_true(plain >= 0 && sealable >= 0);
    assert_int_equal(fcntl(plain, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(sealable, F_GETFD), FD_CLOEXEC);
    assert_int_equal(fcntl(plain, F_ADD_SEALS, F_SEAL_SHRINK), -1);
    assert_int_equal(fcntl(sealable, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    int known = memfd_create("test", MFD_NOEXEC_SEAL);
    if (known >= 0) {
        assert_int_equal(fstat(plain, &st), 0);
        assert_int_equal(st.st_mode & 0111, 0);
        assert_int_equal(fchmod(sealable, 0777), -1);
        (void)close(known);
    }
    refused_flag = MFD_NOEXEC_SEAL;
    int older = ct_file_in_memory("test", true);
    refused_flag = 0;
    assert_true(older >= 0);
    assert_int_equal(fcntl(older, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    (void)close(older);
    (void)close(plain);
    (void)close(sealable);
}

static void test_replace_is_whole_or_not_at_all(void **state)
{
    char *dir = ((struct fixture *)*state)->dir;
    char *path = ct_tmpdir_write(dir, "f", "old and longer", 14);
    struct ct_err err = {0};
    assert_int_equal(ct_file_replace_check(path, &err), 0);
    expect_content(path, "old and longer");
    assert_int_equal(ct_file_replace(path, "new", 3, &err), 0);
    expect_content(path, "new");

    const struct rlimit small = {2, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(ct_file_replace(path, "newer", 5, &err), CT_ELIMIT);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_non_null(strstr(err.text, path));
    expect_content(path, "new");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0); /* nothing stayed beside it */
    assert_int_equal(mkdir(dir, 0700), 0);

    assert_int_equal(ct_file_replace_check(dir, &err), CT_EINVAL);
    assert_non_null(strstr(err.text, "Is a directory"));
    assert_int_equal(ct_file_replace_check("/no/such/folder/f", &err), CT_ENOENT);
    assert_int_equal(ct_file_replace("/no/such/folder/f", "x", 1, &err), CT_ENOENT);
    free(path);
}

/* As root one could replace even /dev/null. */
static void test_replace_spares_what_is_no_plain_file(void **state)
{
    char *path = ct_tmpdir_path(((struct fixture *)*state)->dir, "pipe");
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    struct ct_err err = {0};
    assert_true(ct_file_is_special(path));
    assert_int_equal(ct_file_replace_check(path, &err), 0);
    assert_int_equal(ct_file_replace(path, "text", 4, &err), 0);
    char text[8] = "";
    assert_int_equal(read(fd, text, sizeof(text)), 4);
    assert_string_equal(text, "text");
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    (void)close(fd);
    free(path);

    assert_true(ct_file_is_special("/dev/null"));
    assert_true(ct_file_is_special("/proc/self/exe"));
    assert_false(ct_file_is_special("/dev"));
    assert_false(ct_file_is_special("/no/such/file"));
}

static int replace_body(void *data)
{
    return ct_file_replace(data, "swept", 5, NULL);
}

static void test_replace_survives_faults(void **state)
{
    char *path = ct_tmpdir_path(((struct fixture *)*state)->dir, "f");
    assert_true(ct_fault_sweep(replace_body, path, 0) > 0);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_reading_a_file_appends_to_the_buffer, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_limit_counts_the_file_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_empty_and_large_files_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures_name_path_and_reason, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_only_a_regular_file_is_read_if_strangers_can_put_one_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_reading_survives_lack_of_memory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace_is_whole_or_not_at_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_replace_spares_what_is_no_plain_file, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_replace_survives_faults, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_folder_of_a_path_is_synced, set_up, tear_down),
        cmocka_unit_test(test_a_file_in_memory_is_only_data),
        cmocka_unit_test(test_write_all_survives_short_writes),
        cmocka_unit_test(test_write_all_waits_for_room),
        cmocka_unit_test(test_write_all_maps_errors),
    };
    return cmocka_run_group_tests_name("file", tests, NULL, NULL);
}
