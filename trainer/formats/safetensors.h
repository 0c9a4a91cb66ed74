/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors file format (github.com/huggingface/safetensors): 8 bytes header length, little
 * endian; a JSON object {"name": {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__":
 * {text: text}}; then the tensors' bytes without gaps. Everything in a file is checked before use.
 */
#ifndef CT_TRAINER_FORMATS_SAFETENSORS_H
#define CT_TRAINER_FORMATS_SAFETENSORS_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format's own bound on the header; ours are below 10 KB. */
#define CT_SAFETENSORS_HEADER_MAX 100000000
#define CT_TENSOR_DIMS_MAX 8
/* Far above any MLP; keeps a hostile header from costing more than its own size. */
#define CT_TENSORS_MAX 65536

struct ct_tensor {
    const char *name;  /* owned by the file object */
    const char *dtype; /* "F32", ...: one of the format's */
    size_t dims;
    uint64_t shape[CT_TENSOR_DIMS_MAX];
    uint64_t begin, end; /* bytes, from the start of the data; end - begin fits dtype and shape */
};

struct ct_safetensors {
    void *json;               /* cJSON tree that the names point into */
    struct ct_tensor *tensor; /* [count], ordered by begin; they cover the data without gaps */
    size_t count;
    uint64_t data_start; /* of the data in the file */
    int fd;              /* -1 when there is no file */
};

/* Reads a header of `len` bytes that `data_len` bytes of data follow. Pure. */
CT_MUST_CHECK int ct_safetensors_parse(const void *header, size_t len, uint64_t data_len,
                                       struct ct_safetensors *out, struct ct_err *err);

/* Opens the file and reads its header. Text names the path. End it with ct_safetensors_fini(). */
CT_MUST_CHECK int ct_safetensors_open(const char *path, struct ct_safetensors *out,
                                      struct ct_err *err);
void ct_safetensors_fini(struct ct_safetensors *file); /* NULL is allowed */

/* NULL when there is no such tensor. */
const struct ct_tensor *ct_safetensors_find(const struct ct_safetensors *file, const char *name);

/* Value of a metadata key, NULL when absent. Borrowed from the file object. */
const char *ct_safetensors_metadata(const struct ct_safetensors *file, const char *key);

struct ct_metadata {
    const char *key, *value;
};

/* Metadata entry `i` in file order, borrowed from the file object; false past the last one. */
bool ct_safetensors_metadata_at(const struct ct_safetensors *file, size_t i,
                                struct ct_metadata *out);

/* Reads all bytes of a tensor from an opened file; `out` holds end - begin bytes. */
CT_MUST_CHECK int ct_safetensors_read(const struct ct_safetensors *file,
                                      const struct ct_tensor *tensor, void *out,
                                      struct ct_err *err);

/* What ct_safetensors_write() puts into a file: float32 tensors of one or two dimensions. */
struct ct_tensor_out {
    char name[96];
    size_t dims;
    size_t shape[2];
    const float *data; /* host memory */
};

size_t ct_tensor_out_bytes(const struct ct_tensor_out *tensor);

/* Writes the whole file to `fd` at its current place. Text does not name the file. */
CT_MUST_CHECK int ct_safetensors_write(int fd, const struct ct_tensor_out *tensors, size_t count,
                                       const struct ct_metadata *metadata, size_t metadata_count,
                                       struct ct_err *err);

#endif
