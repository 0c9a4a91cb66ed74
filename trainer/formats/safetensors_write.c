/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the header and the tensors in the given order. Spaces pad the header so that the data
 * begins at a multiple of 8 bytes. After a failure the file is incomplete, and the caller removes
 * it.
 */
#include "trainer/formats/safetensors.h"

#include "common/file.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* The data starts at a multiple of this, so that readers can map it as floats. */
#define HEADER_ALIGN 8

size_t ct_tensor_out_bytes(const struct ct_tensor_out *tensor)
{
    size_t items = 1;
    for (size_t i = 0; i < tensor->dims; i++) {
        items *= tensor->shape[i];
    }
    return items * sizeof(float);
}

static bool add_number(cJSON *array, size_t value)
{
    cJSON *number = cJSON_CreateNumber((double)value);
    if (number == NULL || !cJSON_AddItemToArray(array, number)) {
        cJSON_Delete(number);
        return false;
    }
    return true;
}

static bool add_tensor(cJSON *root, const struct ct_tensor_out *tensor, size_t begin)
{
    cJSON *item = cJSON_AddObjectToObject(root, tensor->name);
    if (item == NULL || cJSON_AddStringToObject(item, "dtype", "F32") == NULL) {
        return false;
    }
    cJSON *shape = cJSON_AddArrayToObject(item, "shape");
    bool ok = shape != NULL;
    for (size_t i = 0; ok && i < tensor->dims; i++) {
        ok = add_number(shape, tensor->shape[i]);
    }
    cJSON *offsets = cJSON_AddArrayToObject(item, "data_offsets");
    return ok && offsets != NULL && add_number(offsets, begin) &&
           add_number(offsets, begin + ct_tensor_out_bytes(tensor));
}

/* Returns the header's text, which the caller must cJSON_free(), or NULL without memory. */
static char *make_header(const struct ct_tensor_out *tensors, size_t count,
                         const struct ct_metadata *metadata, size_t metadata_count)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *texts = cJSON_AddObjectToObject(root, "__metadata__");
    bool ok = texts != NULL;
    for (size_t i = 0; ok && i < metadata_count; i++) {
        ok = cJSON_AddStringToObject(texts, metadata[i].key, metadata[i].value) != NULL;
    }
    size_t begin = 0;
    for (size_t i = 0; ok && i < count; i++) {
        ok = add_tensor(root, &tensors[i], begin);
        begin += ct_tensor_out_bytes(&tensors[i]);
    }
    char *text = ok ? cJSON_PrintUnformatted(root) : NULL;
    cJSON_Delete(root);
    return text;
}

static int write_bytes(int fd, const void *bytes, size_t len, struct ct_err *err)
{
    int rc = ct_fd_write_all(fd, bytes, len);
    if (rc != 0) {
        int saved = errno;
        return ct_err_sys(err, rc, saved, "cannot write");
    }
    return 0;
}

int ct_safetensors_write(int fd, const struct ct_tensor_out *tensors, size_t count,
                         const struct ct_metadata *metadata, size_t metadata_count,
                         struct ct_err *err)
{
    char *header = make_header(tensors, count, metadata, metadata_count);
    if (header == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    static const char spaces[HEADER_ALIGN + 1] = "        ";
    size_t len = strlen(header);
    size_t padding = (HEADER_ALIGN - len % HEADER_ALIGN) % HEADER_ALIGN;
    unsigned char prefix[8];
    for (size_t i = 0; i < sizeof prefix; i++) {
        prefix[i] = (unsigned char)((uint64_t)(len + padding) >> (8 * i));
    }
    int rc = write_bytes(fd, prefix, sizeof prefix, err);
    if (rc == 0) {
        rc = write_bytes(fd, header, len, err);
    }
    if (rc == 0) {
        rc = write_bytes(fd, spaces, padding, err);
    }
    cJSON_free(header);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = write_bytes(fd, tensors[i].data, ct_tensor_out_bytes(&tensors[i]), err);
    }
    return rc;
}
