/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes whole files. A new content is written to a temporary file and renamed, so that
 * readers see the old file or the new one. Devices and pipes are written to directly.
 */
#include "common/file.h"

#include "common/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_CHUNK 65536

/* Of memfd_create(2) since Linux 6.3; libc may not have it. */
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* Appends what can be read from `fd`, at most `max` bytes. */
static int read_all(int fd, const char *path, size_t max, struct ct_buf *out, struct ct_err *err)
{
    size_t total = 0;
    for (;;) {
        /* Reading one byte more than allowed shows whether the file is too long. */
        size_t chunk = max - total < READ_CHUNK ? max - total + 1 : READ_CHUNK;
        int rc = ct_buf_reserve(out, chunk);
        if (rc != 0) {
            return ct_err_set(err, rc, "cannot read %s: out of memory", path);
        }
        ssize_t n = read(fd, ct_buf_tail(out), chunk);
        if (n == 0) {
            return 0;
        }
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            int saved = errno;
            return ct_err_sys(err, CT_EIO, saved, "cannot read %s", path);
        }
        if ((size_t)n > max - total) {
            return ct_err_set(err, CT_ELIMIT, "%s is larger than %zu bytes", path, max);
        }
        total += (size_t)n;
        out->len += (size_t)n;
    }
}

static int open_to_read(const char *path, int flags, int *fd, struct ct_err *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (*fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot open %s", path);
    }
    return 0;
}

int ct_file_read(const char *path, size_t max, struct ct_buf *out, struct ct_err *err)
{
    int fd;
    int rc = open_to_read(path, 0, &fd, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_all(fd, path, max, out, err);
    (void)close(fd);
    return rc;
}

int ct_file_read_regular(const char *path, size_t max, struct ct_buf *out, struct ct_err *err)
{
    struct stat st;
    int fd;
    /* The kind is asked of what was opened, because a name can be given to another file between two
     * calls. Opening a FIFO would wait for a writer, and opening a terminal could make it ours. */
    int rc = open_to_read(path, O_NONBLOCK | O_NOCTTY, &fd, err);
    if (rc != 0) {
        return rc;
    }
    rc = fstat(fd, &st) == 0 && S_ISREG(st.st_mode)
             ? read_all(fd, path, max, out, err)
             : ct_err_set(err, CT_EFORMAT, "%s is not a regular file", path);
    (void)close(fd);
    return rc;
}

/* Standard output may have been made non-blocking by another program, with which we share it. */
static void wait_for_room(int fd)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    (void)poll(&room, 1, -1);
}

int ct_fd_write_all(int fd, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0) {
            if (errno == EAGAIN) {
                wait_for_room(fd);
            } else if (errno != EINTR) {
                return ct_code_from_errno(errno);
            }
            continue;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

bool ct_file_is_special(const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) {
        return true;
    }
    bool theirs = strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
    return theirs && lstat(path, &st) == 0 && S_ISLNK(st.st_mode); /* such as /dev/stdout */
}

static int cannot_write(const char *path, int errnum, struct ct_err *err)
{
    return ct_err_sys(err, ct_code_from_errno(errnum), errnum, "cannot write %s", path);
}

static int write_special(const char *path, const void *bytes, size_t len, struct ct_err *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (fd < 0) {
        return cannot_write(path, errno, err);
    }
    int rc = ct_fd_write_all(fd, bytes, len);
    int saved = errno;
    (void)close(fd);
    return rc == 0 ? 0 : cannot_write(path, saved, err);
}

/* Makes an empty file beside `path`. Gives *draft, its name. Returns its descriptor, or a code. */
static int open_draft(const char *path, char **draft, struct ct_err *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        return cannot_write(path, EISDIR, err);
    }
    char *name = ct_asprintf("%s.XXXXXX", path);
    if (name == NULL) {
        return cannot_write(path, ENOMEM, err);
    }
    int fd = mkostemp(name, O_CLOEXEC);
    if (fd < 0) {
        int rc = cannot_write(path, errno, err);
        ct_free(name);
        return rc;
    }
    *draft = name;
    return fd;
}

int ct_file_replace(const char *path, const void *bytes, size_t len, struct ct_err *err)
{
    if (ct_file_is_special(path)) {
        return write_special(path, bytes, len, err);
    }
    char *draft;
    int fd = open_draft(path, &draft, err);
    if (fd < 0) {
        return fd;
    }
    int rc = ct_fd_write_all(fd, bytes, len);
    int saved = errno;
    if (rc == 0 && fchmod(fd, 0644) != 0) {
        rc = -1;
        saved = errno;
    }
    if (close(fd) != 0 && rc == 0) {
        rc = -1;
        saved = errno;
    }
    if (rc == 0 && rename(draft, path) != 0) {
        rc = -1;
        saved = errno;
    }
    if (rc != 0) {
        (void)unlink(draft);
        rc = cannot_write(path, saved, err);
    }
    ct_free(draft);
    return rc;
}

int ct_file_replace_check(const char *path, struct ct_err *err)
{
    if (ct_file_is_special(path)) {
        return access(path, W_OK) == 0 ? 0 : cannot_write(path, errno, err);
    }
    char *draft;
    int fd = open_draft(path, &draft, err);
    if (fd < 0) {
        return fd;
    }
    (void)close(fd);
    (void)unlink(draft);
    ct_free(draft);
    return 0;
}

int ct_file_sync_folder(const char *path, struct ct_err *err)
{
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char *folder = len > 0 ? ct_strndup(path, len) : ct_strdup(".");
    if (folder == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL)) {
        rc = ct_err_sys(err, CT_EIO, errno, "cannot sync the folder %s", folder);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    ct_free(folder);
    return rc;
}

int ct_file_in_memory(const char *name, bool sealable)
{
    /* The new flag allows seals, too. */
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL) { /* an older kernel */
        return memfd_create(name, MFD_CLOEXEC | (sealable ? MFD_ALLOW_SEALING : 0));
    }
    if (fd >= 0 && !sealable && fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) != 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}
