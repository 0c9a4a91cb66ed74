/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounded decompression of gzip data in memory.
 */
#ifndef CT_TRAINER_FORMATS_GZIP_H
#define CT_TRAINER_FORMATS_GZIP_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

/* Do the bytes start with gzip's magic number? */
bool ct_gzip_is(const void *bytes, size_t len);

/* Appends the inflated content to `out`. If the content is longer than `max`, its first `max` bytes
 * are appended and CT_ELIMIT is returned, so the memory is bounded. CT_EFORMAT: truncated, damaged,
 * or followed by other bytes. CT_ENOMEM. */
CT_MUST_CHECK int ct_gzip_inflate(const void *bytes, size_t len, size_t max, struct ct_buf *out,
                                  struct ct_err *err);

#endif
