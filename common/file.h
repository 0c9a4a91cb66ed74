/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole-file helpers that survive short reads, short writes and EINTR.
 */
#ifndef CT_COMMON_FILE_H
#define CT_COMMON_FILE_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Appends the file's content to `out`. CT_ENOENT, CT_EPERM, CT_ELIMIT when it is longer than `max`
 * bytes, CT_EIO otherwise. Text names the path. On failure `out` may hold part of the content. */
CT_MUST_CHECK int ct_file_read(const char *path, size_t max, struct ct_buf *out,
                               struct ct_err *err);

/* The same for a file that somebody else may have put there: anything but a regular file is
 * CT_EFORMAT. A FIFO is not waited for. */
CT_MUST_CHECK int ct_file_read_regular(const char *path, size_t max, struct ct_buf *out,
                                       struct ct_err *err);

/* Is this a device, a pipe, a socket, or a link of /dev or /proc to an open file? Such a file is
 * written to and never replaced. Otherwise root would replace /dev/null by a plain file. */
bool ct_file_is_special(const char *path);

/* Makes `bytes` the whole content of the file, with mode 0644 whatever the umask. At every moment
 * the file has either the old content or the new one, for it is another file that takes its name: a
 * symbolic link is replaced, not followed. A special file is written to instead. Text names the
 * path. */
CT_MUST_CHECK int ct_file_replace(const char *path, const void *bytes, size_t len,
                                  struct ct_err *err);

/* Whether ct_file_replace() could write there, as far as can be told now. Changes nothing. */
CT_MUST_CHECK int ct_file_replace_check(const char *path, struct ct_err *err);

/* Makes sure that the folder of `path` is on the disk, and so are the renames in it. A file system
 * that refuses fsync(2) of folders is assumed to keep their order by itself. CT_EIO, CT_ENOMEM. */
CT_MUST_CHECK int ct_file_sync_folder(const char *path, struct ct_err *err);

/* Makes a file in memory, of which no copy can be executed, because kernels with vm.memfd_noexec=2
 * refuse any other. Close-on-exec. Returns the descriptor, or -1 with errno. Seals can be set only
 * if it is `sealable`. */
int ct_file_in_memory(const char *name, bool sealable);

/* Writes all of it or fails; returns 0 or a code with errno left as it was. */
CT_MUST_CHECK int ct_fd_write_all(int fd, const void *bytes, size_t len);

#endif
