/* SPDX-License-Identifier: Apache-2.0
 *
 * Checksums of checkpoints: zlib's CRC-32 of all tensor bytes in file order (metadata key "crc32"),
 * and of the other metadata entries, as "KEY=VALUE\n" in file order ("crc32_metadata"). Both are
 * eight hexadecimal digits, the same as zlib.crc32() in Python gives.
 */
#ifndef CT_TRAINER_FORMATS_CHECKSUM_H
#define CT_TRAINER_FORMATS_CHECKSUM_H

#include "common/err.h"
#include "trainer/formats/safetensors.h"

#include <stddef.h>
#include <stdint.h>

#define CT_CHECKSUM_TENSORS_KEY "crc32"
#define CT_CHECKSUM_METADATA_KEY "crc32_metadata"

uint32_t ct_checksum_tensors(const struct ct_tensor_out *tensors, size_t count);
uint32_t ct_checksum_metadata(const struct ct_metadata *metadata, size_t count);

/* Reads all of an opened file. CT_EFORMAT if a checksum is wrong or malformed; CT_EIO, CT_ENOMEM. A
 * file without checksums is accepted, because other programs write none. */
CT_MUST_CHECK int ct_checksum_verify(const struct ct_safetensors *file, struct ct_err *err);

#endif
