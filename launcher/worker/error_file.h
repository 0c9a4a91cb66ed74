/* SPDX-License-Identifier: Apache-2.0
 *
 * torchrun's error file: JSON in which a worker says why it fails.
 *
 *     {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "...", ...}}}
 *     {"message": "text"}
 */
#ifndef CT_LAUNCHER_WORKER_ERROR_FILE_H
#define CT_LAUNCHER_WORKER_ERROR_FILE_H

#include "common/buf.h"
#include "common/err.h"

/* Large enough for the traceback of a deep recursion. */
#define CT_ERROR_FILE_MAX (1024 * 1024)
/* How much of the message and of the traceback is shown: its end, where the reason is. */
#define CT_ERROR_FILE_SHOWN 8192

struct ct_error_file {
    char *message;   /* never NULL after a successful read */
    char *traceback; /* NULL when there is none */
};

/* CT_ENOENT when the worker wrote none, CT_EFORMAT, CT_ELIMIT or CT_EIO when it cannot be used.
 * Gives *out. */
CT_MUST_CHECK int ct_error_file_read(const char *path, struct ct_error_file *out,
                                     struct ct_err *err);

/* Zeroed memory is allowed. */
void ct_error_file_fini(struct ct_error_file *file);

/* Copies a worker's error file to the launcher's own one, for a launcher that has started this one.
 * As in torchrun, message.errorCode = `exit_code` (negative for a signal) is added to the JSON.
 * Errors as ct_file_replace(). */
CT_MUST_CHECK int ct_error_file_copy(const char *from, const char *to, int exit_code,
                                     struct ct_err *err);

#endif
