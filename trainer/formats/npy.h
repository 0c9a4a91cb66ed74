/* SPDX-License-Identifier: Apache-2.0
 *
 * The header of NumPy's .npy files
 * (numpy.org/doc/stable/reference/generated/numpy.lib.format.html):
 * "\x93NUMPY", version, header length, and a Python dict with descr, fortran_order and shape. Pure.
 */
#ifndef CT_TRAINER_FORMATS_NPY_H
#define CT_TRAINER_FORMATS_NPY_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

#define CT_NPY_DIMS_MAX 4

enum ct_npy_type {
    CT_NPY_U8,
    CT_NPY_I8,
    CT_NPY_I16,
    CT_NPY_U16,
    CT_NPY_I32,
    CT_NPY_U32,
    CT_NPY_I64,
    CT_NPY_U64,
    CT_NPY_F32
};

struct ct_npy {
    enum ct_npy_type type; /* little endian */
    size_t item;           /* bytes of one item */
    size_t dims;
    size_t dim[CT_NPY_DIMS_MAX]; /* each at least 1 */
    size_t count;                /* product of dim */
    const uint8_t *data;         /* count * item bytes, unaligned, inside the bytes given */
};

/* Reads a whole file. CT_EFORMAT or CT_ELIMIT with the reason, also if the length does not match
 * the header; CT_EUNSUPPORTED for other types and orders of items. */
CT_MUST_CHECK int ct_npy_parse(const void *bytes, size_t len, struct ct_npy *out,
                               struct ct_err *err);

/* Gives item `i` of an integer type; CT_ELIMIT if it is not within 0 .. 255. */
CT_MUST_CHECK int ct_npy_byte(const struct ct_npy *npy, size_t i, uint8_t *out);

/* Returns item `i` of an F32 array. */
float ct_npy_float(const struct ct_npy *npy, size_t i);

#endif
