/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the header of an IDX file and checks that the items fill the rest exactly. It allocates
 * nothing.
 */
#include "trainer/formats/idx.h"

#include "common/num.h"

#define TYPE_UNSIGNED_BYTE 0x08

static uint32_t read_be32(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int ct_idx_header(const void *bytes, size_t len, unsigned dims, struct ct_idx *out,
                  struct ct_err *err)
{
    CT_ASSERT(dims >= 1 && dims <= CT_IDX_DIMS_MAX);
    const unsigned char *p = bytes;
    struct ct_idx idx = {.header = 4 + 4 * (size_t)dims};
    if (len < 4) {
        return ct_err_set(err, CT_EFORMAT, "truncated: %zu bytes are no IDX header", len);
    }
    uint32_t magic = read_be32(p);
    uint32_t expected = TYPE_UNSIGNED_BYTE << 8 | dims;
    if (magic != expected) {
        return ct_err_set(err, CT_EFORMAT,
                          "wrong magic 0x%08x: IDX bytes in %u dimension%s start with 0x%08x",
                          magic, dims, dims == 1 ? "" : "s", expected);
    }
    if (len < idx.header) {
        return ct_err_set(err, CT_EFORMAT, "truncated: %zu of the %zu header bytes", len,
                          idx.header);
    }
    size_t items = 1;
    for (unsigned i = 0; i < dims; i++) {
        idx.dim[i] = read_be32(p + 4 + 4 * (size_t)i);
        if (idx.dim[i] == 0) {
            return ct_err_set(err, CT_EFORMAT, "dimension %u of the header is 0", i + 1);
        }
        if (!ct_mul_size(items, idx.dim[i], &items) || items > CT_IDX_BYTES_MAX) {
            return ct_err_set(err, CT_ELIMIT, "the header promises more than %zu bytes",
                              CT_IDX_BYTES_MAX);
        }
    }
    idx.total = idx.header + items;
    *out = idx;
    return 0;
}

int ct_idx_parse(const void *bytes, size_t len, unsigned dims, struct ct_idx *out,
                 struct ct_err *err)
{
    struct ct_idx idx;
    int rc = ct_idx_header(bytes, len, dims, &idx, err);
    if (rc != 0) {
        return rc;
    }
    if (len < idx.total) {
        return ct_err_set(err, CT_EFORMAT, "truncated: %zu of the %zu bytes its header promises",
                          len, idx.total);
    }
    if (len > idx.total) {
        return ct_err_set(err, CT_EFORMAT, "oversized: more than the %zu bytes its header promises",
                          idx.total);
    }
    *out = idx;
    return 0;
}
