/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal's format: changes of the key space as bytes and back. Pure: no file, no clock.
 *
 *     file    = header record*
 *     header  = "CTJRNL\r\n" version:u32 crc:u32          crc of the 12 bytes before it
 *     record  = crc:u32 body_crc:u32 kind:u8 flags:u8 key_len:u16 value_len:u32  key value
 *                                                         crc of the 12 bytes behind it
 *
 * Numbers are little-endian, checksums CRC-32 (zlib's). The head of a record has a checksum of its
 * own, and its lengths are used only if that is right. So a reader can tell a flipped bit in the
 * middle of the file from a missing end. Flag 1: the next record belongs to the same request; a
 * reader uses both or neither.
 */
#ifndef CT_RENDEZVOUS_STORE_JOURNAL_H
#define CT_RENDEZVOUS_STORE_JOURNAL_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/store/change.h"
#include "rendezvous/wire/limits.h"

#include <stddef.h>
#include <stdint.h>

#define CT_JOURNAL_VERSION 1
#define CT_JOURNAL_HEADER_LEN ((size_t)16)
#define CT_JOURNAL_HEAD_LEN ((size_t)16)
#define CT_JOURNAL_RECORD_MAX (CT_JOURNAL_HEAD_LEN + CT_MAX_KEY_LEN + CT_MAX_VALUE_LEN)

/* Both append; CT_ENOMEM leaves the buffer as it was. Lengths must be within the store's limits. */
CT_MUST_CHECK int ct_journal_put_header(struct ct_buf *buf);
CT_MUST_CHECK int ct_journal_put(struct ct_buf *buf, const struct ct_change *change);

/* Outcome of the two functions below: more bytes are needed. If the file has no more, it was cut
 * off. */
#define CT_JOURNAL_E_MORE 1

/* Checks the first bytes of a file. CT_EFORMAT: it is no journal. CT_EUNSUPPORTED: its version is a
 * later one. */
CT_MUST_CHECK int ct_journal_check_header(const unsigned char *bytes, size_t len,
                                          struct ct_err *err);

/* CT_JOURNAL_READER_INIT is the position behind the header. */
struct ct_journal_reader {
    uint64_t offset;  /* in the file: where the next record begins */
    uint64_t whole;   /* where the last complete request ends */
    uint64_t changes; /* records up to `whole` */
    uint64_t open;    /* records behind `whole` */
};

#define CT_JOURNAL_READER_INIT                                          \
    {                                                                   \
        .offset = CT_JOURNAL_HEADER_LEN, .whole = CT_JOURNAL_HEADER_LEN \
    }

/* Reads the next record. `bytes` are the bytes of the file from reader->offset on, as many as the
 * caller has; no record needs more than CT_JOURNAL_RECORD_MAX. 0: `out` borrows from them, and the
 * record was *used bytes long. CT_EFORMAT: the record is damaged, and the reader stays where it is.
 * *used is then the length that the record claims, or 0 when its head is damaged, too. */
CT_MUST_CHECK int ct_journal_next(struct ct_journal_reader *reader, const unsigned char *bytes,
                                  size_t len, struct ct_change *out, size_t *used,
                                  struct ct_err *err);

#endif
