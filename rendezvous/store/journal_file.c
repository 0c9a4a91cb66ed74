/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: on_change() appends a change to `pending` and makes sure that the file system has
 * room for it. ct_journal_commit() writes `pending` with one pwrite(2). When much of the file is
 * outdated, it replaces the file by a snapshot.
 *
 * Other paths:
 * - A request of several changes is one group: its records stay behind `group` until the last one
 *   has come, and are written together.
 * - When more than COMMIT_AT is pending, it is written at once. The file is then ahead of the
 *   store, which does no harm.
 * - If the file system cannot promise room, each change is written at once.
 *
 * Failure modes:
 * - No room: the change is refused before it is made. The log says so once, and once when changes
 *   are accepted again.
 * - A write fails although room was promised (a broken device, a quota): the file is `behind`. All
 *   changes are refused until a snapshot of the store could be written. That is tried once a
 *   second.
 */
#include "rendezvous/store/journal_file.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/list.h"
#include "rendezvous/store/journal.h"
#include "rendezvous/store/journal_load.h"
#include "rendezvous/store/journal_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* So many pending bytes are written without waiting for the commit. Not tuned. */
#define COMMIT_AT ((size_t)1 << 20)

/* How much room is asked for at a time, which is one call for each MiB of changes. Not tuned. */
#define RESERVE_STEP ((uint64_t)1 << 20)

struct ct_journal {
    struct ct_change_log change_log;
    struct ct_store *store;
    const struct ct_log *log;
    const struct ct_clock *clock;
    char *path;
    int fd;
    mode_t mode;
    bool sync;
    bool write_through; /* the file system promises no room */
    bool grew;          /* something was written since the last commit */
    bool behind;        /* the store holds changes that the file lacks */
    bool refusing;      /* the log has said that changes are refused */
    struct ct_buf pending;
    size_t group;      /* bytes of `pending` up to the end of the last whole request */
    uint64_t size;     /* bytes of the file */
    uint64_t fresh;    /* bytes it had when it was last written anew */
    uint64_t reserved; /* up to where the file system has promised room */
    uint64_t refused, refused_before, rewrites;
    int64_t retry_ns; /* when a snapshot may be tried again */
};

/* ---- writing -------------------------------------------------------------------------------- */

/* The size of a file that describes exactly what the store holds; an estimate. */
static uint64_t live_size(const struct ct_journal *j)
{
    return CT_JOURNAL_HEADER_LEN + ct_store_num_bytes(j->store) +
           CT_JOURNAL_HEAD_LEN *
               ((uint64_t)ct_store_num_keys(j->store) + ct_store_num_queued(j->store));
}

static int snapshot(struct ct_journal *j, struct ct_err *err)
{
    int fd;
    uint64_t size;
    int rc = ct_journal_snapshot(j->path, j->mode, j->store, &fd, &size, err);
    if (rc != 0) {
        j->retry_ns = ct_deadline_in(j->clock, CT_JOURNAL_RETRY_MS);
        return rc;
    }
    (void)close(j->fd);
    j->fd = fd;
    j->size = j->fresh = j->reserved = size;
    j->behind = false;
    j->rewrites++;
    return 0;
}

static bool may_retry(const struct ct_journal *j)
{
    return ct_clock_now(j->clock) >= j->retry_ns;
}

static void forget_pending(struct ct_journal *j)
{
    ct_buf_reset(&j->pending);
    j->group = 0;
    if (j->pending.cap > 2 * COMMIT_AT) {
        ct_buf_fini(&j->pending);
    }
}

static void say_refusing(struct ct_journal *j, int sys)
{
    if (!j->refusing) {
        struct ct_err err;
        (void)ct_err_sys(&err, CT_EIO, sys, "journal %s: cannot be written", j->path);
        ct_log(j->log, CT_LOG_ERROR, "%s; changes are refused, reads go on", err.text);
        j->refusing = true;
    }
}

/* Writes what is pending. Nothing is pending afterwards, even on failure. */
static int write_pending(struct ct_journal *j)
{
    const unsigned char *p = ct_buf_bytes(&j->pending);
    size_t left = j->pending.len;
    uint64_t at = j->size;
    int sys = 0;
    while (left > 0 && sys == 0) {
        ssize_t n = pwrite(j->fd, p, left, (off_t)at);
        if (n < 0) {
            sys = errno == EINTR ? 0 : errno;
            continue;
        }
        p += n;
        at += (uint64_t)n;
        left -= (size_t)n;
    }
    if (sys == 0 && j->sync && fdatasync(j->fd) != 0) {
        sys = errno;
    }
    forget_pending(j);
    if (sys == 0) {
        j->size = at;
        j->grew = true;
        return 0;
    }
    /* No client gets a reply to these changes, so they must not come back after a restart. */
    if (ftruncate(j->fd, (off_t)j->size) == 0) {
        j->reserved = j->size;
    }
    say_refusing(j, sys);
    return CT_EIO;
}

static void compact_if_due(struct ct_journal *j)
{
    /* live_size() is an estimate, so the file must also have grown since the last rewrite. */
    if (j->size < 2 * live_size(j) + CT_JOURNAL_SLACK || j->size < j->fresh + CT_JOURNAL_SLACK ||
        !may_retry(j)) {
        return;
    }
    struct ct_err err = {0};
    if (snapshot(j, &err) != 0) {
        ct_log(j->log, CT_LOG_WARNING, "journal %s: cannot be made smaller yet: %s", j->path,
               err.text);
    }
}

int ct_journal_commit(struct ct_journal *journal)
{
    int rc = journal->pending.len > 0 ? write_pending(journal) : 0;
    if (rc != 0) {
        journal->behind = true;
        return rc;
    }
    /* The file is compacted only here. In the middle of a change the store does not have what the
     * file already has, so a snapshot would lose it. */
    if (journal->grew) {
        journal->grew = false;
        compact_if_due(journal);
    }
    return 0;
}

/* ---- room ----------------------------------------------------------------------------------- */

/* Is there room for much more than `end` bytes? A small change that still fits does not mean that
 * there is room again. */
static bool is_roomy(const struct ct_journal *j, uint64_t end)
{
    struct rlimit limit;
    uint64_t much = end + RESERVE_STEP / 2;
    return (j->write_through || j->reserved >= much) && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
           limit.rlim_cur >= much;
}

/* Lets the file system promise room for a file of `end` bytes. Returns 0 or an errno value. */
static int reserve(struct ct_journal *j, uint64_t end)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur) {
        return EFBIG; /* the limit may have been lowered, and not every file system checks it in
                         fallocate() */
    }
    if (j->write_through || end <= j->reserved) {
        return 0;
    }
    int sys = ENOSPC;
    uint64_t wanted[] = {end + RESERVE_STEP, end};
    for (size_t i = 0; i < 2 && (sys == ENOSPC || sys == EFBIG || sys == EDQUOT); i++) {
        do {
            sys = fallocate(j->fd, FALLOC_FL_KEEP_SIZE, (off_t)j->reserved,
                            (off_t)(wanted[i] - j->reserved)) == 0
                      ? 0
                      : errno;
        } while (sys == EINTR);
        if (sys == 0) {
            j->reserved = wanted[i];
            return 0;
        }
    }
    if (sys == EOPNOTSUPP || sys == ENOSYS || sys == EINVAL || sys == ENODEV) {
        j->write_through = true;
        return 0;
    }
    return sys;
}

/* ---- the store's change log ------------------------------------------------------------------ */

/* Refuses the request whose changes stand behind `group`. */
static int refuse(struct ct_journal *j, int rc)
{
    j->pending.len = j->group;
    j->refused++;
    return rc;
}

static void say_accepting(struct ct_journal *j)
{
    if (j->refusing && is_roomy(j, j->size + j->pending.len)) {
        ct_log(j->log, CT_LOG_WARNING,
               "journal %s: changes are taken again, after %" PRIu64 " were refused", j->path,
               j->refused - j->refused_before);
        j->refusing = false;
        j->refused_before = j->refused;
    }
}

/* Accepts a request, all of whose changes stand behind `group`. */
static int take_group(struct ct_journal *j)
{
    int sys = reserve(j, j->size + j->pending.len);
    if (sys != 0) {
        say_refusing(j, sys);
        return refuse(j, CT_EIO);
    }
    bool others = j->group > 0; /* changes of earlier requests, which the store has already made */
    j->group = j->pending.len;
    if (j->write_through || j->pending.len >= COMMIT_AT) {
        int rc = write_pending(j);
        if (rc != 0) {
            j->behind = others;
            return refuse(j, rc);
        }
    }
    say_accepting(j);
    return 0;
}

static int on_change(struct ct_change_log *change_log, const struct ct_change *change)
{
    struct ct_journal *j = CT_CONTAINER_OF(change_log, struct ct_journal, change_log);
    if (j->behind && (!may_retry(j) || snapshot(j, NULL) != 0)) {
        return refuse(j, CT_EIO);
    }
    int rc = ct_journal_put(&j->pending, change);
    if (rc != 0) {
        return refuse(j, rc);
    }
    return change->more ? 0 : take_group(j);
}

int ct_journal_clear(struct ct_journal *journal, struct ct_err *err)
{
    forget_pending(journal);
    if (ftruncate(journal->fd, (off_t)CT_JOURNAL_HEADER_LEN) != 0 ||
        (journal->sync && fdatasync(journal->fd) != 0)) {
        journal->behind = true;
        return ct_err_sys(err, CT_EIO, errno, "journal %s: cannot be emptied", journal->path);
    }
    journal->size = journal->reserved = CT_JOURNAL_HEADER_LEN;
    journal->behind = false;
    return 0;
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Opens and locks the file. If a snapshot of another process has just replaced it, tries again. */
static int open_locked(const char *path, int *out, mode_t *mode, struct ct_err *err)
{
    for (;;) {
        int fd =
            open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, S_IRUSR | S_IWUSR);
        if (fd < 0) {
            return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot open");
        }
        struct stat ours, named;
        int rc = 0;
        if (fstat(fd, &ours) != 0 || !S_ISREG(ours.st_mode)) {
            rc = ct_err_set(err, CT_EFORMAT, "not a regular file");
        } else if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
            rc = errno == EWOULDBLOCK
                     ? ct_err_set(err, CT_EBUSY, "another process uses it; give each its own")
                     : ct_err_sys(err, CT_EIO, errno, "cannot lock");
        } else if (stat(path, &named) == 0 && named.st_ino == ours.st_ino &&
                   named.st_dev == ours.st_dev) {
            *out = fd;
            *mode = ours.st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
            return 0;
        }
        (void)close(fd);
        if (rc != 0) {
            return rc;
        }
    }
}

/* Gives the damaged file a second name, because a snapshot will take the first one. */
static int keep_damaged(struct ct_journal *j, char *kept, size_t size, struct ct_err *err)
{
    for (int i = 1; i < 100; i++) {
        int len = snprintf(kept, size, "%s.damaged.%d", j->path, i);
        if (len < 0 || (size_t)len >= size) {
            return ct_err_set(err, CT_ELIMIT, "the path is too long");
        }
        if (link(j->path, kept) == 0) {
            return 0;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return ct_err_sys(err, CT_EIO, errno, "it is damaged, and cannot be kept as %s", kept);
}

static int after_damage(struct ct_journal *j, const struct ct_journal_load *load,
                        struct ct_err *err)
{
    char kept[PATH_MAX];
    int rc = keep_damaged(j, kept, sizeof(kept), err);
    if (rc != 0) {
        return rc;
    }
    rc = snapshot(j, err);
    if (rc != 0) {
        return rc;
    }
    ct_log(j->log, CT_LOG_ERROR,
           "journal %s: damaged at byte %" PRIu64 " of %" PRIu64 ": %s; the %" PRIu64
           " changes before it are used, the file is kept as %s",
           j->path, load->whole, load->size, load->why.text, load->changes, kept);
    return 0;
}

/* Makes the file end where a record may be appended. */
static int prepare_end(struct ct_journal *j, const struct ct_journal_load *load, struct ct_err *err)
{
    if (load->damaged) {
        return after_damage(j, load, err);
    }
    if (load->whole < load->size) {
        ct_log(j->log, CT_LOG_WARNING,
               "journal %s: cut %" PRIu64 " bytes of an unfinished write from its end", j->path,
               load->size - load->whole);
    }
    if (ftruncate(j->fd, (off_t)load->whole) != 0) {
        return ct_err_sys(err, CT_EIO, errno, "cannot cut it");
    }
    j->size = j->reserved = load->whole;
    if (load->whole > 0) {
        return 0;
    }
    int rc = ct_journal_put_header(&j->pending);
    if (rc == 0) {
        rc = write_pending(j);
    }
    if (rc != 0) {
        return ct_err_set(err, rc, "cannot write to it: %s", ct_code_text(rc));
    }
    return j->sync ? ct_file_sync_folder(j->path, err) : 0;
}

/* Gives *out, which on failure is NULL or must be closed, too. */
static int journal_new(const struct ct_journal_options *options, struct ct_store *store,
                       struct ct_journal **out, struct ct_err *err)
{
    struct ct_journal *j = ct_calloc(1, sizeof(*j));
    if (j == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    j->change_log.append = on_change;
    j->store = store;
    j->log = options->log;
    j->clock = options->clock;
    j->sync = options->sync;
    j->retry_ns = INT64_MIN;
    j->fd = -1;
    *out = j;
    int rc = open_locked(options->path, &j->fd, &j->mode, err);
    if (rc != 0) {
        return rc;
    }
    /* If the path is a symbolic link, a snapshot must replace the file and not the link. */
    char real[PATH_MAX];
    j->path = realpath(options->path, real) != NULL ? ct_strdup(real) : NULL;
    return j->path != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

int ct_journal_open(const struct ct_journal_options *options, struct ct_store *store,
                    struct ct_journal **out, struct ct_err *err)
{
    struct ct_journal *j = NULL;
    struct ct_journal_load load;
    int rc = journal_new(options, store, &j, err);
    if (rc != 0) {
        goto fail;
    }
    rc = ct_journal_load(j->fd, store, &load, err);
    if (rc != 0) {
        goto fail;
    }
    rc = prepare_end(j, &load, err);
    if (rc != 0) {
        goto fail;
    }
    ct_store_set_change_log(store, &j->change_log);
    ct_log(j->log, CT_LOG_INFO, "journal %s: %" PRIu64 " changes made %zu keys", j->path,
           load.changes, ct_store_num_keys(store));
    *out = j;
    return 0;

fail:
    if (j != NULL) {
        forget_pending(j);
    }
    ct_journal_close(j);
    (void)ct_err_wrap(err, "journal %s", options->path);
    return rc;
}

void ct_journal_stats(const struct ct_journal *journal, struct ct_journal_stats *out)
{
    *out = (struct ct_journal_stats){
        .size = journal->size,
        .refused = journal->refused,
        .rewrites = journal->rewrites,
    };
}

void ct_journal_close(struct ct_journal *journal)
{
    if (journal == NULL) {
        return;
    }
    if (journal->fd >= 0) {
        (void)(ct_journal_commit(journal) == 0); /* the log has the failure */
        (void)close(journal->fd);
    }
    ct_store_set_change_log(journal->store, NULL);
    ct_buf_fini(&journal->pending);
    ct_free(journal->path);
    ct_free(journal);
}
