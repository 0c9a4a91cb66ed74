/* SPDX-License-Identifier: Apache-2.0
 *
 * A file mapped as read-only memory. Processes that map the same file share its pages.
 */
#ifndef CT_TRAINER_FORMATS_MAPPING_H
#define CT_TRAINER_FORMATS_MAPPING_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct ct_mapping {
    const uint8_t *bytes; /* NULL if nothing is mapped */
    size_t len;
};

/* If somebody writes to the file, the mapping changes. So what was checked must be copied if a
 * later change could do harm. CT_ENOENT; CT_ELIMIT if the file is longer than `max`;
 * CT_EUNSUPPORTED if it cannot be mapped (a FIFO, an empty file). The message names the path. */
CT_MUST_CHECK int ct_mapping_open(const char *path, size_t max, struct ct_mapping *out,
                                  struct ct_err *err);

/* Maps `len` bytes of an open file, at an address that allows large pages. */
CT_MUST_CHECK int ct_mapping_of(int fd, size_t len, struct ct_mapping *out, struct ct_err *err);

/* Asks the kernel for large pages behind these bytes, whose content does not change. Samples are
 * read in random order, and with small pages finding a page takes longer than reading the sample.
 * Has no effect if there are no large pages. */
void ct_mapping_use_large_pages(const uint8_t *bytes, size_t len);

void ct_mapping_close(struct ct_mapping *mapping); /* NULL and zeroed memory are allowed */

#endif
