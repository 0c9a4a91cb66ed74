/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of event files, byte for byte.
 */
#include "common/file.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"
#include "trainer/show/tensorboard.h"

#include <dirent.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void test_checksum_is_castagnolis(void **state)
{
    (void)state;
    /* RFC 3720, B.4. */
    static const unsigned char zeros[32];
    assert_int_equal(ct_tensorboard_crc32c(zeros, sizeof zeros), 0x8a9136aa);
    assert_int_equal(ct_tensorboard_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(ct_tensorboard_crc32c("", 0), 0);
}

/* What RecordWriter of the Python package tensorboard 2.21 writes for the same events. */
static void test_records_are_as_tensorboard_writes_them(void **state)
{
    (void)state;
    static const unsigned char first[] = {
        0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xa3, 0x7f, 0x4b, 0x22, 0x09, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x1a, 0x0d, 0x62, 0x72, 0x61, 0x69, 0x6e,
        0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x2a, 0x28, 0x64, 0x6c};
    static const unsigned char second[] = {
        0x1b, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x1a, 0x0d, 0x9e, 0x13, 0x09, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0xf8, 0x3f, 0x10, 0xac, 0x02, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a, 0x04,
        0x6c, 0x6f, 0x73, 0x73, 0x15, 0x00, 0x00, 0x00, 0x3f, 0x69, 0xf9, 0x31, 0x5b};
    const struct ct_scalar scalar = {"loss", 0.5};
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_tensorboard_encode(1.5, 7, NULL, 0, &out), 0);
    assert_int_equal(out.len, sizeof first);
    assert_memory_equal(ct_buf_bytes(&out), first, sizeof first);
    ct_buf_reset(&out);
    assert_int_equal(ct_tensorboard_encode(1.5, 300, &scalar, 1, &out), 0);
    assert_int_equal(out.len, sizeof second);
    assert_memory_equal(ct_buf_bytes(&out), second, sizeof second);
    ct_buf_fini(&out);
}

static int encode_body(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_tensorboard_encode(1, 1, data, 1, &out);
    ct_buf_fini(&out);
    return rc;
}

static void test_events_survive_lack_of_memory(void **state)
{
    (void)state;
    struct ct_scalar scalar = {"loss", 0.5};
    assert_true(ct_fault_sweep(encode_body, &scalar, 0) >= 4);
}

/* The only file of a folder. */
static char *find_file(const char *dir)
{
    char *path = NULL;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.') {
            assert_null(path);
            path = ct_tmpdir_path(dir, e->d_name);
        }
    }
    (void)closedir(d);
    assert_non_null(path);
    return path;
}

/* The wall time of the record at *at, which must say what encoding it again with that time does. */
static double check_record(const struct ct_buf *file, size_t *at, int64_t step,
                           const struct ct_scalar *scalars, size_t count)
{
    double wall;
    struct ct_buf want = CT_BUF_INIT;
    assert_in_range(*at + 12 + 1 + sizeof wall, 0, file->len);
    memcpy(&wall, ct_buf_bytes(file) + *at + 12 + 1, sizeof wall);
    assert_int_equal(ct_tensorboard_encode(wall, step, scalars, count, &want), 0);
    assert_in_range(*at + want.len, 0, file->len);
    assert_memory_equal(ct_buf_bytes(file) + *at, ct_buf_bytes(&want), want.len);
    *at += want.len;
    ct_buf_fini(&want);
    return wall;
}

/* time() may still give the last second when the clock that the writer asks has begun the next. */
static time_t seconds_now(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &now), 0);
    return now.tv_sec;
}

static void test_files_are_named_by_the_time_and_grow_event_by_event(void **state)
{
    (void)state;
    static const char name[] = "events.out.tfevents.";
    const struct ct_scalar scalar = {"loss", 0.5};
    struct ct_tensorboard board = CT_TENSORBOARD_INIT;
    struct ct_buf file = CT_BUF_INIT;
    char *parent = ct_tmpdir_new(), *dir = ct_tmpdir_path(parent, "runs");
    time_t before = seconds_now();
    assert_int_equal(ct_tensorboard_open(&board, dir, NULL), 0);
    assert_int_equal(ct_tensorboard_add(&board, 300, &scalar, 1, NULL), 0);
    time_t after = seconds_now();
    char *path = find_file(dir);
    const char *seconds = strstr(path, name);
    assert_non_null(seconds);
    char *end, host[256] = ".";
    assert_in_range(strtoll(seconds + strlen(name), &end, 10), before, after);
    assert_int_equal(gethostname(host + 1, sizeof host - 2), 0);
    assert_memory_equal(end, host, strlen(host));
    assert_int_equal(ct_file_read(path, 4096, &file, NULL), 0); /* it is not closed yet */
    size_t at = 0;
    double first = check_record(&file, &at, 0, NULL, 0);
    double second = check_record(&file, &at, 300, &scalar, 1);
    assert_int_equal(at, file.len);
    assert_true(first >= (double)before && first <= second && second < (double)after + 1);
    ct_tensorboard_close(&board);
    ct_tensorboard_close(&board);
    ct_buf_fini(&file);
    free(path);
    free(dir);
    ct_tmpdir_free(parent);
}

static void test_what_cannot_be_written_is_named(void **state)
{
    (void)state;
    struct ct_tensorboard board = CT_TENSORBOARD_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_tensorboard_open(&board, "/no/such/folder", &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    assert_int_equal(ct_tensorboard_add(&board, 1, NULL, 0, NULL), 0); /* nothing is open */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum_is_castagnolis),
        cmocka_unit_test(test_records_are_as_tensorboard_writes_them),
        cmocka_unit_test(test_events_survive_lack_of_memory),
        cmocka_unit_test(test_files_are_named_by_the_time_and_grow_event_by_event),
        cmocka_unit_test(test_what_cannot_be_written_is_named),
    };
    return cmocka_run_group_tests_name("tensorboard", tests, NULL, NULL);
}
