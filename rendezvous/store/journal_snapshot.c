/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the new journal beside the old one, under a temporary name and with the lock already
 * taken, and renames it. A failure before the rename leaves the old journal as it was.
 */
#include "rendezvous/store/journal_snapshot.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/list.h"
#include "rendezvous/store/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Bytes collected before they are written. Not tuned. */
#define WRITE_CHUNK ((size_t)1 << 20)

struct writer {
    struct ct_change_log change_log;
    int fd;
    struct ct_buf held;
    uint64_t size;
    int sys; /* errno of a failed write */
};

static int flush(struct writer *w)
{
    int rc = ct_fd_write_all(w->fd, ct_buf_bytes(&w->held), w->held.len);
    if (rc != 0) {
        w->sys = errno;
        return rc;
    }
    w->size += w->held.len;
    ct_buf_reset(&w->held);
    return 0;
}

static int on_change(struct ct_change_log *change_log, const struct ct_change *change)
{
    struct writer *w = CT_CONTAINER_OF(change_log, struct writer, change_log);
    int rc = ct_journal_put(&w->held, change);
    return rc == 0 && w->held.len >= WRITE_CHUNK ? flush(w) : rc;
}

static int write_all(struct writer *w, struct ct_store *store)
{
    int rc = ct_journal_put_header(&w->held);
    if (rc != 0) {
        return rc;
    }
    rc = ct_store_dump(store, &w->change_log);
    if (rc != 0) {
        return rc;
    }
    rc = flush(w);
    if (rc != 0) {
        return rc;
    }
    if (fsync(w->fd) != 0) {
        w->sys = errno;
        return CT_EIO;
    }
    return 0;
}

int ct_journal_snapshot(const char *path, mode_t mode, struct ct_store *store, int *out_fd,
                        uint64_t *out_size, struct ct_err *err)
{
    char *temp = ct_asprintf("%s.new", path);
    if (temp == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    struct writer w = {.change_log = {on_change}};
    int rc;
    /* Removes what a killed process may have left. The journal's lock keeps other processes out. */
    (void)unlink(temp);
    w.fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
    if (w.fd < 0) {
        rc = ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot make %s", temp);
        goto out;
    }
    /* Locked before it gets the name that others open. Nobody can have locked a new file. */
    if (flock(w.fd, LOCK_EX | LOCK_NB) != 0 || fchmod(w.fd, mode) != 0) {
        rc = ct_err_sys(err, CT_EIO, errno, "cannot prepare %s", temp);
        goto out;
    }
    rc = write_all(&w, store);
    if (rc != 0) {
        rc = w.sys != 0 ? ct_err_sys(err, rc, w.sys, "cannot write %s", temp)
                        : ct_err_set(err, rc, "cannot write %s: %s", temp, ct_code_text(rc));
        goto out;
    }
    if (rename(temp, path) != 0) {
        rc = ct_err_sys(err, CT_EIO, errno, "cannot rename %s to %s", temp, path);
        goto out;
    }
    /* The rename cannot be undone. A failure here only matters if the power fails now. */
    (void)(ct_file_sync_folder(path, NULL) == 0);
    *out_fd = w.fd;
    *out_size = w.size;
out:
    if (rc != 0 && w.fd >= 0) {
        (void)unlink(temp);
        (void)close(w.fd);
    }
    ct_buf_fini(&w.held);
    ct_free(temp);
    return rc;
}
