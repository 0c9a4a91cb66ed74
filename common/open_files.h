/* SPDX-License-Identifier: Apache-2.0
 *
 * How many files a process may have open: the soft limit is often 1024 for the sake of programs
 * that use select(), which ours do not.
 */
#ifndef CT_COMMON_OPEN_FILES_H
#define CT_COMMON_OPEN_FILES_H

#include "common/err.h"

#include <stddef.h>
#include <sys/resource.h>

/* Raises the caller's soft limit to the hard one. `original` (may be NULL) gets the limits from
 * before, to be handed on to children. CT_ELIMIT when fewer than `need` files may be open even
 * then; a limit that cannot be read or raised is no error. */
CT_MUST_CHECK int ct_open_files_raise(size_t need, struct rlimit *original, struct ct_err *err);

#endif
