/* SPDX-License-Identifier: Apache-2.0 */
#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define READ_CHUNK 65536

int ct_file_read(const char *path, size_t max, struct ct_buf *out, struct ct_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot open %s", path);
    }
    int rc = 0;
    size_t total = 0;
    for (;;) {
        /* One byte more than allowed tells a file that is too long. */
        size_t chunk = max - total < READ_CHUNK ? max - total + 1 : READ_CHUNK;
        rc = ct_buf_reserve(out, chunk);
        if (rc != 0) {
            rc = ct_err_set(err, rc, "cannot read %s: out of memory", path);
            break;
        }
        ssize_t n = read(fd, ct_buf_tail(out), chunk);
        if (n == 0) {
            break;
        }
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            int saved = errno;
            rc = ct_err_sys(err, CT_EIO, saved, "cannot read %s", path);
            break;
        }
        if ((size_t)n > max - total) {
            rc = ct_err_set(err, CT_ELIMIT, "%s is larger than %zu bytes", path, max);
            break;
        }
        total += (size_t)n;
        out->len += (size_t)n;
    }
    (void)close(fd);
    return rc;
}

int ct_fd_write_all(int fd, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            return ct_code_from_errno(errno);
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}
