/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the checksums of what will be written, and compares those of a file with what its
 * metadata say. A file without checksums is accepted, because other programs write none. A
 * difference is CT_EFORMAT.
 */
#include "trainer/formats/checksum.h"

#include "common/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define PIECE ((size_t)1 << 20)

uint32_t ct_checksum_tensors(const struct ct_tensor_out *tensors, size_t count)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t i = 0; i < count; i++) {
        crc = crc32_z(crc, (const Bytef *)tensors[i].data, ct_tensor_out_bytes(&tensors[i]));
    }
    return (uint32_t)crc;
}

static uLong add_text(uLong crc, const char *text)
{
    return crc32_z(crc, (const Bytef *)text, strlen(text));
}

static uLong add_entry(uLong crc, const struct ct_metadata *entry)
{
    return add_text(add_text(add_text(add_text(crc, entry->key), "="), entry->value), "\n");
}

uint32_t ct_checksum_metadata(const struct ct_metadata *metadata, size_t count)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t i = 0; i < count; i++) {
        crc = add_entry(crc, &metadata[i]);
    }
    return (uint32_t)crc;
}

static int compare(const char *what, const char *told, uLong found, struct ct_err *err)
{
    char text[12];
    (void)snprintf(text, sizeof text, "%08" PRIx32, (uint32_t)found);
    if (strcmp(told, text) != 0) {
        return ct_err_set(err, CT_EFORMAT, "damaged: the checksum of its %s is %s, not %.16s", what,
                          text, told);
    }
    return 0;
}

static int verify_metadata(const struct ct_safetensors *file, struct ct_err *err)
{
    const char *told = ct_safetensors_metadata(file, CT_CHECKSUM_METADATA_KEY);
    uLong crc = crc32(0, NULL, 0);
    struct ct_metadata entry;
    for (size_t i = 0; told != NULL && ct_safetensors_metadata_at(file, i, &entry); i++) {
        if (strcmp(entry.key, CT_CHECKSUM_METADATA_KEY) != 0) {
            crc = add_entry(crc, &entry);
        }
    }
    return told != NULL ? compare("metadata", told, crc, err) : 0;
}

static int verify_tensors(const struct ct_safetensors *file, struct ct_err *err)
{
    const char *told = ct_safetensors_metadata(file, CT_CHECKSUM_TENSORS_KEY);
    if (told == NULL) {
        return 0;
    }
    unsigned char *piece = ct_malloc(PIECE);
    if (piece == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    uLong crc = crc32(0, NULL, 0);
    int rc = 0;
    uint64_t end = file->count > 0 ? file->tensor[file->count - 1].end : 0;
    for (uint64_t at = 0; rc == 0 && at < end;) {
        uint64_t len = end - at < PIECE ? end - at : PIECE;
        /* Tensors cover the data without gaps, so any range can be read as if it were a tensor. */
        const struct ct_tensor range = {.name = "data", .begin = at, .end = at + len};
        rc = ct_safetensors_read(file, &range, piece, err);
        if (rc == 0) {
            crc = crc32_z(crc, piece, (z_size_t)len);
        }
        at += len;
    }
    ct_free(piece);
    return rc == 0 ? compare("tensors", told, crc, err) : rc;
}

int ct_checksum_verify(const struct ct_safetensors *file, struct ct_err *err)
{
    int rc = verify_metadata(file, err);
    return rc == 0 ? verify_tensors(file, err) : rc;
}
