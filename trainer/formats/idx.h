/* SPDX-License-Identifier: Apache-2.0
 *
 * The IDX file format of MNIST (yann.lecun.com/exdb/mnist): two zero bytes, a type byte, the number
 * of dimensions, each dimension as 32 bits big endian, then the items. Only unsigned bytes (type 8)
 * are supported. Pure.
 */
#ifndef CT_TRAINER_FORMATS_IDX_H
#define CT_TRAINER_FORMATS_IDX_H

#include "common/err.h"

#include <stddef.h>

#define CT_IDX_DIMS_MAX 3
#define CT_IDX_HEADER_MAX (4 + 4 * CT_IDX_DIMS_MAX)

/* Largest content that is accepted. */
#define CT_IDX_BYTES_MAX ((size_t)1 << 30)

struct ct_idx {
    size_t dim[CT_IDX_DIMS_MAX];
    size_t header; /* bytes before the items */
    size_t total;  /* header + items, which is the required size of the file */
};

/* Reads the header of a file that must have `dims` dimensions (1 .. CT_IDX_DIMS_MAX), each at least
 * 1. `len` may differ from the file's length. CT_EFORMAT or CT_ELIMIT with the reason. */
CT_MUST_CHECK int ct_idx_header(const void *bytes, size_t len, unsigned dims, struct ct_idx *out,
                                struct ct_err *err);

/* The same, but `len` must be exactly the length that follows from the header. */
CT_MUST_CHECK int ct_idx_parse(const void *bytes, size_t len, unsigned dims, struct ct_idx *out,
                               struct ct_err *err);

#endif
