/* SPDX-License-Identifier: Apache-2.0
 *
 * A store with a journal: over a new start, with a disk that is full, breaks or promises nothing.
 * The calls by which a disk does so are ours here (linked with --wrap).
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/store/journal.h"
#include "rendezvous/store/journal_file.h"
#include "tests/lib/server_fixture.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

/* What the disk answers; 0 = as it is. */
static struct {
    int fallocate, pwrite, fsync;
    size_t pwrite_takes; /* of each write that fails later */
} disk;

int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
    errno = disk.fallocate;
    return disk.fallocate != 0 ? -1 : __real_fallocate64(fd, mode, offset, len);
}

ssize_t __real_pwrite64(int fd, const void *bytes, size_t len, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *bytes, size_t len, off_t offset)
{
    if (disk.pwrite != 0 && disk.pwrite_takes == 0) {
        errno = disk.pwrite;
        return -1;
    }
    if (disk.pwrite != 0) {
        len = disk.pwrite_takes;
        disk.pwrite_takes = 0;
    }
    return __real_pwrite64(fd, bytes, len, offset);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    errno = disk.fsync;
    return disk.fsync != 0 ? -1 : __real_fsync(fd);
}

struct fixture {
    char *dir, *path;
    struct ct_store *store;
    struct ct_journal *journal;
    struct ct_clock clock;
    int64_t now;
    struct ct_log log;
    char said[8192];
};

static int64_t now_of(void *data)
{
    return ((struct fixture *)data)->now;
}

static void note(void *data, enum ct_log_level level, const char *line)
{
    struct fixture *f = data;
    size_t len = strlen(f->said);
    if (level <= CT_LOG_WARNING) {
        (void)snprintf(f->said + len, sizeof(f->said) - len, "%s\n", line);
    }
}

static int open_store(struct fixture *f)
{
    const struct ct_journal_options options = {
        .path = f->path, .log = &f->log, .clock = &f->clock, .sync = true};
    int rc = ct_store_new(&f->store);
    if (rc == 0) {
        rc = ct_journal_open(&options, f->store, &f->journal, NULL);
    }
    return rc;
}

static void close_store(struct fixture *f)
{
    ct_journal_close(f->journal);
    f->journal = NULL;
    ct_store_free(f->store);
    f->store = NULL;
}

/* As after kill -9: only what the file holds is left. */
static void open_again(struct fixture *f)
{
    close_store(f);
    assert_int_equal(open_store(f), 0);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    memset(&disk, 0, sizeof(disk));
    f->dir = ct_tmpdir_new();
    f->path = ct_tmpdir_path(f->dir, "journal");
    f->clock = (struct ct_clock){now_of, f};
    f->log = (struct ct_log){note, f, CT_LOG_DEBUG};
    assert_int_equal(open_store(f), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    memset(&disk, 0, sizeof(disk));
    close_store(f);
    free(f->path);
    ct_tmpdir_free(f->dir);
    free(f);
    return 0;
}

static struct ct_bytes b(const char *text)
{
    return (struct ct_bytes){(const unsigned char *)text, strlen(text)};
}

static int set(struct fixture *f, const char *key, const char *value)
{
    return ct_store_set(f->store, b(key), b(value));
}

static void expect(struct fixture *f, const char *key, const char *value)
{
    const struct ct_blob *blob = ct_store_get(f->store, b(key));
    if (value == NULL) {
        assert_null(blob);
        return;
    }
    assert_non_null(blob);
    assert_int_equal(blob->len, strlen(value));
    assert_memory_equal(blob->bytes, value, blob->len);
}

static off_t file_size(const struct fixture *f)
{
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    return st.st_size;
}

static uint64_t rewrites(const struct fixture *f)
{
    struct ct_journal_stats stats;
    ct_journal_stats(f->journal, &stats);
    assert_int_equal(stats.size, file_size(f));
    return stats.rewrites;
}

/* ---- a good disk ---------------------------------------------------------------------------- */

static void test_is_written_with_the_commit(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(set(f, "k", "v"), 0);
    assert_int_equal(file_size(f), CT_JOURNAL_HEADER_LEN);
    assert_int_equal(ct_journal_commit(f->journal), 0);
    assert_int_equal(file_size(f), CT_JOURNAL_HEADER_LEN + CT_JOURNAL_HEAD_LEN + 2);
    open_again(f);
    expect(f, "k", "v");
    assert_string_equal(f->said, "");
}

static void test_large_changes_do_not_wait_for_the_commit(void **state)
{
    struct fixture *f = *state;
    static unsigned char big[1 << 20];
    assert_int_equal(ct_store_set(f->store, b("k"), (struct ct_bytes){big, sizeof(big)}), 0);
    assert_true(file_size(f) > (off_t)sizeof(big));
}

static void test_queues_come_back_in_order(void **state)
{
    struct fixture *f = *state;
    struct ct_waiter nobody = {0};
    size_t len;
    struct ct_blob *first = NULL;
    for (const char *p = "abc"; *p != '\0'; p++) {
        assert_int_equal(ct_store_push(f->store, b("q"), (struct ct_bytes){(const void *)p, 1}), 0);
    }
    assert_int_equal(ct_store_pop(f->store, &nobody, b("q"), &len, &first), 0);
    ct_blob_unref(first);
    open_again(f);
    for (const char *p = "bc"; *p != '\0'; p++) {
        struct ct_blob *out = NULL;
        assert_int_equal(ct_store_pop(f->store, &nobody, b("q"), &len, &out), 0);
        assert_non_null(out);
        assert_int_equal(out->bytes[0], *p);
        ct_blob_unref(out);
    }
    open_again(f);
    assert_int_equal(ct_store_queue_len(f->store, b("q")), 0);
}

static void test_written_anew_when_most_is_dead(void **state)
{
    struct fixture *f = *state;
    static unsigned char value[300000];
    assert_int_equal(set(f, "other", "kept"), 0);
    assert_int_equal(ct_store_push(f->store, b("q"), b("element")), 0);
    for (int i = 0; i < 10; i++) {
        value[0] = (unsigned char)i;
        assert_int_equal(ct_store_set(f->store, b("k"), (struct ct_bytes){value, sizeof(value)}),
                         0);
        assert_int_equal(ct_journal_commit(f->journal), 0);
    }
    assert_int_equal(rewrites(f), 1); /* at the sixth: 1 MiB and twice the live 300 kB */
    open_again(f);
    expect(f, "other", "kept");
    assert_int_equal(ct_store_queue_len(f->store, b("q")), 1);
    assert_int_equal(ct_store_get(f->store, b("k"))->bytes[0], 9);
}

static void test_written_anew_also_when_all_was_written_before_the_commit(void **state)
{
    struct fixture *f = *state;
    static unsigned char value[1 << 21];
    for (int i = 0; i < 6; i++) {
        assert_int_equal(ct_store_set(f->store, b("k"), (struct ct_bytes){value, sizeof(value)}),
                         0);
        assert_int_equal(ct_journal_commit(f->journal), 0);
    }
    assert_true(rewrites(f) >= 1);
    assert_true(file_size(f) < 3 * (off_t)sizeof(value));
}

static void test_is_not_written_anew_for_nothing(void **state)
{
    struct fixture *f = *state;
    /* Each element brings the queue's long name into the file, which the store has but once. */
    static const unsigned char name[CT_MAX_KEY_LEN];
    for (int i = 0; i < 400; i++) {
        assert_int_equal(ct_store_push(f->store, (struct ct_bytes){name, sizeof(name)}, b("x")), 0);
        assert_int_equal(ct_journal_commit(f->journal), 0);
    }
    assert_in_range(rewrites(f), 1, 4);
}

static void test_a_cleared_journal_keeps_only_what_is_new(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(set(f, "old", "x"), 0);
    assert_int_equal(ct_journal_commit(f->journal), 0);
    assert_int_equal(set(f, "pending", "x"), 0);
    ct_store_clear(f->store);
    assert_int_equal(ct_journal_clear(f->journal, NULL), 0);
    assert_int_equal(set(f, "new", "y"), 0);
    open_again(f);
    assert_int_equal(ct_store_num_keys(f->store), 1);
    expect(f, "new", "y");
}

static void test_server_resets_its_journal(void **state)
{
    struct fixture *f = *state;
    close_store(f);
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    struct ct_server *server = NULL;
    const struct ct_server_options options = {.journal = f->path, .log = &f->log};
    assert_int_equal(ct_server_open(&loop, &options, &server, NULL), 0);
    ct_server_reset(server);
    struct ct_server *second = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&loop, &options, &second, &err), CT_EBUSY);
    assert_non_null(strstr(err.text, f->path));
    assert_null(second);
    ct_server_close(server, NULL, NULL);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
    assert_int_equal(open_store(f), 0);
}

/* ---- a bad disk ----------------------------------------------------------------------------- */

static void test_full_disk_refuses_before_the_change(void **state)
{
    struct fixture *f = *state;
    /* Nothing is promised yet, so the first change already asks. */
    disk.fallocate = ENOSPC;
    assert_int_equal(set(f, "k", "v"), CT_EIO);
    assert_int_equal(set(f, "k", "v"), CT_EIO);
    expect(f, "k", NULL);
    assert_non_null(strstr(f->said, "No space left"));
    assert_null(strstr(strstr(f->said, "reads go on") + 1, "reads go on"));
    disk.fallocate = 0;
    assert_int_equal(set(f, "k", "v"), 0);
    assert_non_null(strstr(f->said, "after 2 were refused"));
    open_again(f);
    expect(f, "k", "v");
}

static void test_refused_request_takes_all_its_changes_along(void **state)
{
    struct fixture *f = *state;
    static const unsigned char pairs[] =
        "\1\0\0\0\0\0\0\0a\1\0\0\0\0\0\0\0001\1\0\0\0\0\0\0\0b\1\0\0\0\0\0\0\0002";
    const struct ct_bytes two = {pairs, sizeof(pairs) - 1};
    disk.fallocate = ENOSPC;
    assert_int_equal(ct_store_multi_set(f->store, two, 2), CT_EIO);
    disk.fallocate = 0;
    assert_int_equal(set(f, "k", "v"), 0);
    open_again(f);
    assert_int_equal(ct_store_num_keys(f->store), 1);
    assert_int_equal(ct_store_multi_set(f->store, two, 2), 0);
    open_again(f);
    assert_int_equal(ct_store_num_keys(f->store), 3);
}

static void test_write_fails_although_room_was_promised(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(set(f, "old", "x"), 0);
    assert_int_equal(ct_journal_commit(f->journal), 0);
    off_t before = file_size(f);
    assert_int_equal(set(f, "lost", "x"), 0);
    disk.pwrite = EIO;
    disk.pwrite_takes = 5;
    assert_int_equal(ct_journal_commit(f->journal), CT_EIO);
    assert_int_equal(file_size(f), before); /* no half record, and no change to come back */
    assert_int_equal(ct_journal_commit(f->journal), 0);
    /* The store is ahead now: nothing more until all of it is in a file. */
    disk.fsync = EIO;
    assert_int_equal(set(f, "k", "1"), CT_EIO);
    memset(&disk, 0, sizeof(disk));
    assert_int_equal(set(f, "k", "2"), CT_EIO); /* not tried again so soon */
    f->now += CT_JOURNAL_RETRY_MS * CT_NS_PER_MS;
    assert_int_equal(set(f, "k", "3"), 0);
    open_again(f);
    expect(f, "old", "x");
    expect(f, "lost", "x");
    expect(f, "k", "3");
    assert_int_equal(ct_store_num_keys(f->store), 3);
}

static void test_a_disk_may_promise_no_room(void **state)
{
    struct fixture *f = *state;
    disk.fallocate = EOPNOTSUPP;
    assert_int_equal(set(f, "a", "1"), 0);
    assert_int_equal(file_size(f), CT_JOURNAL_HEADER_LEN + CT_JOURNAL_HEAD_LEN + 2);
    disk.pwrite = ENOSPC;
    assert_int_equal(set(f, "b", "2"), CT_EIO);
    expect(f, "b", NULL);
    disk.pwrite = 0;
    assert_int_equal(set(f, "c", "3"), 0); /* at once: nothing was lost meanwhile */
    open_again(f);
    assert_int_equal(ct_store_num_keys(f->store), 2);
}

static void test_a_failed_rewrite_is_tried_again(void **state)
{
    struct fixture *f = *state;
    static unsigned char value[300000];
    int next_fd = dup(STDERR_FILENO);
    (void)close(next_fd);
    disk.fsync = EIO;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ct_store_set(f->store, b("k"), (struct ct_bytes){value, sizeof(value)}),
                         0);
        assert_int_equal(ct_journal_commit(f->journal), 0);
    }
    assert_int_equal(rewrites(f), 0);
    const char *first = strstr(f->said, "cannot be made smaller");
    assert_non_null(first);
    assert_null(strstr(first + 1, "cannot be made smaller")); /* one attempt a second */
    assert_int_equal(dup(STDERR_FILENO), next_fd);            /* the new file is closed again */
    (void)close(next_fd);
    disk.fsync = 0;
    f->now += CT_JOURNAL_RETRY_MS * CT_NS_PER_MS;
    assert_int_equal(set(f, "x", "y"), 0);
    assert_int_equal(ct_journal_commit(f->journal), 0);
    assert_int_equal(rewrites(f), 1);
}

static void test_no_answer_that_the_journal_does_not_know(void **state)
{
    struct fixture *f = *state;
    close_store(f);
    struct server_fixture *sf = NULL;
    assert_int_equal(ct_sf_set_up((void **)&sf), 0);
    ct_server_close(sf->server, NULL, NULL);
    const struct ct_server_options options = {.journal = f->path, .log = &f->log};
    assert_int_equal(ct_server_open(&sf->loop, &options, &sf->server, NULL), 0);
    static char value[CT_OUT_STALL_BYTES];
    int fd = ct_sf_client(sf), other = ct_sf_client(sf);
    ct_sf_tell(fd, SF_B(SF_HELLO "\x01\x02" SF_Z7 "/v\0\0\x10\0\0\0\0\0"));
    for (size_t sent = 0; sent < sizeof(value);) {
        ssize_t n = send(fd, value, sizeof(value) - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
        ct_sf_turn(sf);
    }
    ct_sf_tell(fd, SF_B(SF_PING));
    ct_sf_expect(sf, fd, SF_B(SF_PONG));
    /* The SET is served behind the stall, from within the writing of answers. */
    disk.pwrite = EIO;
    ct_sf_tell(fd, SF_B("\x03\x02" SF_Z7 "/v" SF_SET_K_V SF_PING));
    assert_int_equal(ct_sf_hear(sf, fd, value, 8), 8);
    assert_int_equal(ct_sf_hear(sf, fd, value, sizeof(value)), sizeof(value));
    ct_sf_expect_end(sf, fd);
    /* Who had nothing to do with it is served. */
    ct_sf_tell(other, SF_B(SF_HELLO SF_PING));
    ct_sf_expect(sf, other, SF_B(SF_PONG));
    (void)close(other);
    memset(&disk, 0, sizeof(disk));
    assert_int_equal(ct_sf_tear_down((void **)&sf), 0);
    assert_int_equal(open_store(f), 0);
    assert_int_equal(ct_store_num_keys(f->store), 1);
}

/* ---- a bad file ------------------------------------------------------------------------------ */

/* Closes, changes the file and opens it again. */
static int open_changed(struct fixture *f, off_t at, const char *bytes, size_t len)
{
    close_store(f);
    int fd = open(f->path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, bytes, len, at), len);
    (void)close(fd);
    return open_store(f);
}

static void set_two(struct fixture *f)
{
    assert_int_equal(set(f, "a", "1"), 0);
    assert_int_equal(set(f, "b", "2"), 0);
    assert_int_equal(ct_journal_commit(f->journal), 0);
}

#define RECORD_LEN ((off_t)CT_JOURNAL_HEAD_LEN + 2)

static void test_a_cut_end_is_removed_and_told(void **state)
{
    struct fixture *f = *state;
    set_two(f);
    off_t size = file_size(f);
    close_store(f);
    assert_int_equal(truncate(f->path, size - 1), 0);
    assert_int_equal(open_store(f), 0);
    expect(f, "a", "1");
    expect(f, "b", NULL);
    assert_int_equal(file_size(f), size - RECORD_LEN);
    assert_non_null(strstr(f->said, "cut 17 bytes of an unfinished write from its end"));
    assert_int_equal(set(f, "b", "3"), 0);
    open_again(f);
    expect(f, "b", "3");
}

/* The good part is used, and each damaged file is kept under a name of its own. */
static void test_a_damaged_file_is_kept_beside_the_good_part(void **state)
{
    struct fixture *f = *state;
    for (int i = 1; i <= 2; i++) {
        char *kept = NULL, *why = NULL;
        set_two(f);
        assert_int_equal(set(f, "c", "3"), 0);
        assert_int_equal(ct_journal_commit(f->journal), 0);
        f->said[0] = '\0';
        assert_int_equal(open_changed(f, file_size(f) - 2 * RECORD_LEN, "x", 1), 0);
        assert_true(asprintf(&kept, "%s.damaged.%d", f->path, i) > 0);
        assert_true(asprintf(&why, "the file is kept as %s", kept) > 0);
        assert_non_null(strstr(f->said, why));
        assert_int_equal(access(kept, R_OK), 0);
        expect(f, "a", "1");
        expect(f, "b", NULL);
        expect(f, "c", NULL);
        free(kept);
        free(why);
    }
}

static void test_a_damaged_file_that_cannot_be_kept_is_left_alone(void **state)
{
    struct fixture *f = *state;
    set_two(f);
    for (int i = 1; i < 100; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "journal.damaged.%d", i);
        free(ct_tmpdir_write(f->dir, name, "", 0));
    }
    off_t size = file_size(f);
    assert_int_equal(open_changed(f, (off_t)CT_JOURNAL_HEADER_LEN, "x", 1), CT_EIO);
    assert_int_equal(file_size(f), size);
}

static void test_what_is_no_journal_is_refused_and_not_touched(void **state)
{
    struct fixture *f = *state;
    const struct ct_journal_options options = {.path = f->path};
    struct ct_journal *journal = NULL;
    struct ct_err err = {0};
    set_two(f);
    off_t size = file_size(f);
    assert_int_equal(open_changed(f, 0, "x", 1), CT_EFORMAT);
    assert_int_equal(file_size(f), size);

    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(mkfifo(f->path, 0600), 0);
    assert_int_equal(ct_journal_open(&options, f->store, &journal, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "not a regular file"));
    assert_int_equal(unlink(f->path), 0);
    assert_int_equal(mkdir(f->path, 0700), 0);
    assert_true(ct_journal_open(&options, f->store, &journal, &err) < 0);
    assert_int_equal(rmdir(f->path), 0);
}

static void test_a_journal_in_use_is_refused(void **state)
{
    struct fixture *f = *state;
    const struct ct_journal_options options = {.path = f->path};
    struct ct_store *store = NULL;
    struct ct_journal *journal = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_store_new(&store), 0);
    assert_int_equal(ct_journal_open(&options, store, &journal, &err), CT_EBUSY);
    assert_non_null(strstr(err.text, "another process uses it; give each its own"));
    ct_store_free(store);
}

static int load_two(void *data)
{
    struct fixture *f = data;
    int rc = open_store(f);
    if (rc == 0) {
        rc = ct_store_num_keys(f->store) == 2 ? 0 : CT_EFORMAT;
    }
    close_store(f);
    return rc;
}

static void test_a_file_that_memory_does_not_hold_is_not_used_by_half(void **state)
{
    struct fixture *f = *state;
    set_two(f);
    close_store(f);
    assert_true(ct_fault_sweep(load_two, f, 0) >= 5);
    assert_int_equal(open_store(f), 0);
}

/* ---- no memory ------------------------------------------------------------------------------ */

static int open_change_close(void *data)
{
    struct fixture *f = data;
    static unsigned char value[700000];
    /* Each run allocates as the one before. */
    (void)unlink(f->path);
    int rc = open_store(f);
    for (int i = 0; i < 4 && rc == 0; i++) {
        rc = ct_store_set(f->store, b("k"), (struct ct_bytes){value, sizeof(value)});
        if (rc == 0) {
            rc = ct_journal_commit(f->journal);
        }
    }
    close_store(f);
    return rc;
}

static void test_a_journal_survives_lack_of_memory(void **state)
{
    struct fixture *f = *state;
    close_store(f);
    /* Writing anew may fail for want of memory and is then left for later. */
    assert_true(ct_fault_sweep(open_change_close, f, 1) >= 5);
    assert_int_equal(open_store(f), 0);
    assert_int_equal(ct_store_num_keys(f->store), 1);
}

static void test_closing_nothing_is_allowed(void **state)
{
    (void)state;
    ct_journal_close(NULL);
}

#define WITH_JOURNAL(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_JOURNAL(test_is_written_with_the_commit),
        WITH_JOURNAL(test_large_changes_do_not_wait_for_the_commit),
        WITH_JOURNAL(test_queues_come_back_in_order),
        WITH_JOURNAL(test_written_anew_when_most_is_dead),
        WITH_JOURNAL(test_written_anew_also_when_all_was_written_before_the_commit),
        WITH_JOURNAL(test_is_not_written_anew_for_nothing),
        WITH_JOURNAL(test_a_cleared_journal_keeps_only_what_is_new),
        WITH_JOURNAL(test_server_resets_its_journal),
        WITH_JOURNAL(test_full_disk_refuses_before_the_change),
        WITH_JOURNAL(test_refused_request_takes_all_its_changes_along),
        WITH_JOURNAL(test_write_fails_although_room_was_promised),
        WITH_JOURNAL(test_a_disk_may_promise_no_room),
        WITH_JOURNAL(test_a_failed_rewrite_is_tried_again),
        WITH_JOURNAL(test_no_answer_that_the_journal_does_not_know),
        WITH_JOURNAL(test_a_cut_end_is_removed_and_told),
        WITH_JOURNAL(test_a_damaged_file_is_kept_beside_the_good_part),
        WITH_JOURNAL(test_a_damaged_file_that_cannot_be_kept_is_left_alone),
        WITH_JOURNAL(test_what_is_no_journal_is_refused_and_not_touched),
        WITH_JOURNAL(test_a_journal_in_use_is_refused),
        WITH_JOURNAL(test_a_file_that_memory_does_not_hold_is_not_used_by_half),
        WITH_JOURNAL(test_a_journal_survives_lack_of_memory),
        cmocka_unit_test(test_closing_nothing_is_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
