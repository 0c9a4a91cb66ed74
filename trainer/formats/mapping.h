/* SPDX-License-Identifier: Apache-2.0
 *
 * A file as read-only memory, so that processes which read the same one share its pages.
 */
#ifndef CT_TRAINER_FORMATS_MAPPING_H
#define CT_TRAINER_FORMATS_MAPPING_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct ct_mapping {
    const uint8_t *bytes; /* NULL when nothing is mapped */
    size_t len;
};

/* Who writes into the file changes what is read: what was checked must be copied if a later change
 * could do harm. CT_ENOENT; CT_ELIMIT when it is longer than `max`; CT_EUNSUPPORTED when it is no
 * file that can be mapped (a FIFO, an empty file). Text names the path. */
CT_MUST_CHECK int ct_mapping_open(const char *path, size_t max, struct ct_mapping *out,
                                  struct ct_err *err);

/* Maps `len` bytes of an open file, where large pages can hold them. */
CT_MUST_CHECK int ct_mapping_of(int fd, size_t len, struct ct_mapping *out, struct ct_err *err);

/* Asks for large pages behind those bytes, which stay as they are: samples are read in random
 * order, and finding the small page of each takes longer than reading it. Without any nothing
 * changes. */
void ct_mapping_use_large_pages(const uint8_t *bytes, size_t len);

void ct_mapping_close(struct ct_mapping *mapping); /* NULL and zeroed memory are allowed */

#endif
