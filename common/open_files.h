/* SPDX-License-Identifier: Apache-2.0
 *
 * How many files a process may have open. The soft limit is often 1024, because programs that use
 * select() cannot have more. Ours do not use it.
 */
#ifndef CT_COMMON_OPEN_FILES_H
#define CT_COMMON_OPEN_FILES_H

#include "common/err.h"

#include <stddef.h>
#include <sys/resource.h>

/* Raises the soft limit of this process to the hard one. `original` (may be NULL) gets the limits
 * as they were, so that children can be started with them. CT_ELIMIT when even the hard limit is
 * below `need`. A limit that cannot be read or raised is no error. */
CT_MUST_CHECK int ct_open_files_raise(size_t need, struct rlimit *original, struct ct_err *err);

#endif
