/* SPDX-License-Identifier: Apache-2.0
 *
 * The safetensors file format (github.com/huggingface/safetensors): the header's length in 8 bytes,
 * little endian; a JSON object {"name": {"dtype", "shape", "data_offsets": [begin, end]},
 * "__metadata__": {text: text}}; then the tensors' bytes without gaps. All input is checked before
 * it is used.
 */
#ifndef CT_TRAINER_FORMATS_SAFETENSORS_H
#define CT_TRAINER_FORMATS_SAFETENSORS_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The format's own limit for the header; ours are below 10 KB. */
#define CT_SAFETENSORS_HEADER_MAX 100000000
#define CT_TENSOR_DIMS_MAX 8
/* More than any MLP has. It limits what a hostile header can cost. */
#define CT_TENSORS_MAX 65536
/* Ours are nine. Each is looked up by its number, so a header of many would take hours. */
#define CT_METADATA_MAX 4096

struct ct_tensor {
    const char *name;  /* the file object owns it */
    const char *dtype; /* one of the format's types, for example "F32" */
    size_t dims;
    uint64_t shape[CT_TENSOR_DIMS_MAX];
    uint64_t begin, end; /* in bytes from the start of the data; end - begin fits dtype and shape */
};

struct ct_safetensors {
    void *json;               /* cJSON tree that the names point into */
    struct ct_tensor *tensor; /* [count], ordered by begin; together they cover the data */
    size_t count;
    uint64_t data_start; /* offset of the data in the file */
    int fd;              /* -1 if there is no file */
};

/* Reads a header of `len` bytes, which `data_len` bytes of data follow. Pure. */
CT_MUST_CHECK int ct_safetensors_parse(const void *header, size_t len, uint64_t data_len,
                                       struct ct_safetensors *out, struct ct_err *err);

/* Opens a file and reads its header. Messages name the path. ct_safetensors_fini() closes it. */
CT_MUST_CHECK int ct_safetensors_open(const char *path, struct ct_safetensors *out,
                                      struct ct_err *err);
void ct_safetensors_fini(struct ct_safetensors *file); /* NULL is allowed */

/* Returns NULL if there is no such tensor. */
const struct ct_tensor *ct_safetensors_find(const struct ct_safetensors *file, const char *name);

/* Returns the value of a metadata key, or NULL. Borrowed from the file object. */
const char *ct_safetensors_metadata(const struct ct_safetensors *file, const char *key);

struct ct_metadata {
    const char *key, *value;
};

/* Gives metadata entry `i` in file order, borrowed from the file; false after the last one. */
bool ct_safetensors_metadata_at(const struct ct_safetensors *file, size_t i,
                                struct ct_metadata *out);

/* Reads a tensor from an opened file; `out` holds end - begin bytes. */
CT_MUST_CHECK int ct_safetensors_read(const struct ct_safetensors *file,
                                      const struct ct_tensor *tensor, void *out,
                                      struct ct_err *err);

/* A tensor for ct_safetensors_write(): float32 with one or two dimensions. */
struct ct_tensor_out {
    char name[96];
    size_t dims;
    size_t shape[2];
    const float *data; /* host memory */
};

size_t ct_tensor_out_bytes(const struct ct_tensor_out *tensor);

/* Writes the whole file to `fd` at its current offset. The message does not name the file. */
CT_MUST_CHECK int ct_safetensors_write(int fd, const struct ct_tensor_out *tensors, size_t count,
                                       const struct ct_metadata *metadata, size_t metadata_count,
                                       struct ct_err *err);

#endif
