/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole-file helpers that survive short reads, short writes and EINTR.
 */
#ifndef CT_COMMON_FILE_H
#define CT_COMMON_FILE_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>

/* Appends the file's content to `out`. CT_ENOENT, CT_EPERM, CT_ELIMIT when it is longer than `max`
 * bytes, CT_EIO otherwise. Text names the path. On failure `out` may hold part of the content. */
CT_MUST_CHECK int ct_file_read(const char *path, size_t max, struct ct_buf *out,
                               struct ct_err *err);

/* Writes all of it or fails; returns 0 or a code with errno left as it was. */
CT_MUST_CHECK int ct_fd_write_all(int fd, const void *bytes, size_t len);

#endif
