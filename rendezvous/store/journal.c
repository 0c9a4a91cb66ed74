/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes and decodes the header and the records. Lengths are used only after their checksum was
 * checked.
 */
#include "rendezvous/store/journal.h"

#include <string.h>
#include <zlib.h>

/* A transfer that took the file for text would change the line end. PNG has the same trick. */
static const unsigned char magic[8] = "CTJRNL\r\n";

#define FLAG_MORE 1

/* Places in a record's head. */
enum { AT_CRC = 0, AT_BODY_CRC = 4, AT_KIND = 8, AT_FLAGS = 9, AT_KEY_LEN = 10, AT_VALUE_LEN = 12 };

static void put_u16(unsigned char *p, uint16_t v)
{
    p[0] = (unsigned char)v;
    p[1] = (unsigned char)(v >> 8);
}

static void put_u32(unsigned char *p, uint32_t v)
{
    put_u16(p, (uint16_t)v);
    put_u16(p + 2, (uint16_t)(v >> 16));
}

static uint16_t get_u16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static uint32_t get_u32(const unsigned char *p)
{
    return get_u16(p) | (uint32_t)get_u16(p + 2) << 16;
}

/* crc32_z() returns the start value for NULL, so it must not get the NULL of an empty key. */
static uint32_t checksum(uint32_t crc, const unsigned char *bytes, size_t len)
{
    return len > 0 ? (uint32_t)crc32_z(crc, bytes, len) : crc;
}

/* ---- writing -------------------------------------------------------------------------------- */

int ct_journal_put_header(struct ct_buf *buf)
{
    unsigned char header[CT_JOURNAL_HEADER_LEN];
    memcpy(header, magic, sizeof(magic));
    put_u32(header + 8, CT_JOURNAL_VERSION);
    put_u32(header + 12, checksum(0, header, 12));
    return ct_buf_append(buf, header, sizeof(header));
}

int ct_journal_put(struct ct_buf *buf, const struct ct_change *change)
{
    CT_ASSERT(change->key.len <= CT_MAX_KEY_LEN && change->value.len <= CT_MAX_VALUE_LEN);
    int rc = ct_buf_reserve(buf, CT_JOURNAL_HEAD_LEN + change->key.len + change->value.len);
    if (rc != 0) {
        return rc;
    }
    unsigned char head[CT_JOURNAL_HEAD_LEN];
    uint32_t body = checksum(0, change->key.ptr, change->key.len);
    put_u32(head + AT_BODY_CRC, checksum(body, change->value.ptr, change->value.len));
    head[AT_KIND] = (unsigned char)change->kind;
    head[AT_FLAGS] = change->more ? FLAG_MORE : 0;
    put_u16(head + AT_KEY_LEN, (uint16_t)change->key.len);
    put_u32(head + AT_VALUE_LEN, (uint32_t)change->value.len);
    put_u32(head + AT_CRC, checksum(0, head + 4, sizeof(head) - 4));
    /* The room was reserved above, so none of these can fail. */
    CT_ASSERT(ct_buf_append(buf, head, sizeof(head)) == 0);
    CT_ASSERT(ct_buf_append(buf, change->key.ptr, change->key.len) == 0);
    CT_ASSERT(ct_buf_append(buf, change->value.ptr, change->value.len) == 0);
    return 0;
}

/* ---- reading -------------------------------------------------------------------------------- */

int ct_journal_check_header(const unsigned char *bytes, size_t len, struct ct_err *err)
{
    size_t known = len < sizeof(magic) ? len : sizeof(magic);
    if (known > 0 && memcmp(bytes, magic, known) != 0) {
        return ct_err_set(err, CT_EFORMAT, "not a journal of a store");
    }
    if (len < CT_JOURNAL_HEADER_LEN) {
        return CT_JOURNAL_E_MORE;
    }
    if (get_u32(bytes + 12) != checksum(0, bytes, 12)) {
        return ct_err_set(err, CT_EFORMAT, "the header's checksum is wrong");
    }
    uint32_t version = get_u32(bytes + 8);
    if (version != CT_JOURNAL_VERSION) {
        return ct_err_set(err, CT_EUNSUPPORTED, "version %u of the format; this program knows %d",
                          (unsigned)version, CT_JOURNAL_VERSION);
    }
    return 0;
}

/* Checks a head whose checksum is right. It may still be of a later version, or forged. */
static const char *head_fault(const unsigned char *head)
{
    unsigned kind = head[AT_KIND];
    bool has_value = kind == CT_CHANGE_SET || kind == CT_CHANGE_PUSH;
    if (kind < CT_CHANGE_SET || kind > CT_CHANGE_POP) {
        return "a change of an unknown kind";
    }
    if ((head[AT_FLAGS] & ~FLAG_MORE) != 0) {
        return "a change with unknown flags";
    }
    if (get_u16(head + AT_KEY_LEN) > CT_MAX_KEY_LEN ||
        get_u32(head + AT_VALUE_LEN) > (has_value ? CT_MAX_VALUE_LEN : 0)) {
        return "a key or value that is too long";
    }
    return NULL;
}

int ct_journal_next(struct ct_journal_reader *reader, const unsigned char *bytes, size_t len,
                    struct ct_change *out, size_t *used, struct ct_err *err)
{
    *used = 0;
    if (len < CT_JOURNAL_HEAD_LEN) {
        return CT_JOURNAL_E_MORE;
    }
    if (get_u32(bytes + AT_CRC) != checksum(0, bytes + 4, CT_JOURNAL_HEAD_LEN - 4)) {
        return ct_err_set(err, CT_EFORMAT, "the checksum of a record's head is wrong");
    }
    const char *fault = head_fault(bytes);
    if (fault != NULL) {
        return ct_err_set(err, CT_EFORMAT, "%s", fault);
    }
    size_t key_len = get_u16(bytes + AT_KEY_LEN), value_len = get_u32(bytes + AT_VALUE_LEN);
    if (len - CT_JOURNAL_HEAD_LEN < key_len + value_len) {
        return CT_JOURNAL_E_MORE;
    }
    *used = CT_JOURNAL_HEAD_LEN + key_len + value_len;
    const unsigned char *key = bytes + CT_JOURNAL_HEAD_LEN;
    if (get_u32(bytes + AT_BODY_CRC) != checksum(0, key, key_len + value_len)) {
        return ct_err_set(err, CT_EFORMAT, "a record's checksum is wrong");
    }
    *out = (struct ct_change){
        .kind = (enum ct_change_kind)bytes[AT_KIND],
        .key = {key, key_len},
        .value = {key + key_len, value_len},
        .more = (bytes[AT_FLAGS] & FLAG_MORE) != 0,
    };
    reader->offset += *used;
    reader->open++;
    if (!out->more) {
        reader->whole = reader->offset;
        reader->changes += reader->open;
        reader->open = 0;
    }
    return 0;
}
