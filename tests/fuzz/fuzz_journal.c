/* SPDX-License-Identifier: Apache-2.0
 *
 * Hostile bytes for the journal's reader, and what it reads for the engine.
 *
 * Input: one byte of shape (bit 7: checksums are made right, so that the judgement behind them is
 * reached; the other bits: size of the pieces, 0 = 128), then the file. Oracles, besides the
 * sanitizers: pieces and the whole give the same records; what was read, written again, is the same
 * bytes; a store made from the changes tells a dump that makes an equal store.
 */
#include "rendezvous/store/journal.h"

#include "common/list.h"
#include "rendezvous/store/store.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct writer {
    struct ct_change_log change_log;
    struct ct_store *store; /* makes each change, too */
    struct ct_buf bytes;
};

static int on_change(struct ct_change_log *change_log, const struct ct_change *change)
{
    struct writer *w = CT_CONTAINER_OF(change_log, struct writer, change_log);
    CT_ASSERT(ct_journal_put(&w->bytes, change) == 0);
    return w->store != NULL ? ct_store_apply(w->store, change) : 0;
}

static void put_u32(unsigned char *p, unsigned long v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (unsigned char)(v >> 8 * i);
    }
}

/* Makes the checksums of the header and of each record that is there right. */
static void seal(unsigned char *p, size_t len)
{
    static const unsigned char header[12] = "CTJRNL\r\n\1";
    if (len < CT_JOURNAL_HEADER_LEN) {
        return;
    }
    memcpy(p, header, sizeof(header));
    put_u32(p + 12, crc32_z(0, p, 12));
    for (size_t at = CT_JOURNAL_HEADER_LEN; len - at >= CT_JOURNAL_HEAD_LEN;) {
        unsigned char *head = p + at;
        size_t body =
            (size_t)(head[10] | head[11] << 8) + ((size_t)head[12] | (size_t)head[13] << 8 |
                                                  (size_t)head[14] << 16 | (size_t)head[15] << 24);
        size_t left = len - at - CT_JOURNAL_HEAD_LEN;
        if (body > 0 && body <= left) {
            put_u32(head + 4, crc32_z(0, head + CT_JOURNAL_HEAD_LEN, body));
        } else if (body == 0) {
            put_u32(head + 4, 0);
        }
        put_u32(head, crc32_z(0, head + 4, 12));
        if (body > left) {
            return;
        }
        at += CT_JOURNAL_HEAD_LEN + body;
    }
}

/* Reads all of it as it would come from a disk in such pieces; gives the verdict. */
static int read_all(const unsigned char *bytes, size_t len, size_t piece, struct writer *w,
                    struct ct_journal_reader *reader)
{
    struct ct_err err = {0};
    size_t have = piece < len ? piece : len, at = 0;
    int rc;
    while ((rc = ct_journal_check_header(bytes, have, &err)) == CT_JOURNAL_E_MORE && have < len) {
        have = len - have < piece ? len : have + piece;
    }
    at = CT_JOURNAL_HEADER_LEN;
    while (rc == 0) {
        struct ct_change change;
        size_t used;
        rc = ct_journal_next(reader, bytes + at, have - at, &change, &used, &err);
        if (rc == CT_JOURNAL_E_MORE && have < len) {
            have = len - have < piece ? len : have + piece;
            rc = 0;
        } else if (rc == 0) {
            CT_ASSERT(used <= have - at);
            at += used;
            CT_ASSERT(reader->offset == at && reader->whole <= at);
            CT_ASSERT(on_change(&w->change_log, &change) == 0);
        }
    }
    CT_ASSERT((rc < 0) == (err.text[0] != '\0'));
    return rc;
}

static void writer_init(struct writer *w)
{
    *w = (struct writer){.change_log = {on_change}};
    CT_ASSERT(ct_store_new(&w->store) == 0);
}

static void writer_fini(struct writer *w)
{
    ct_store_free(w->store);
    ct_buf_fini(&w->bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    size_t piece = (data[0] & 0x7f) != 0 ? data[0] & 0x7f : 128, len = size - 1;
    unsigned char *bytes = malloc(len > 0 ? len : 1);
    CT_ASSERT(bytes != NULL);
    memcpy(bytes, data + 1, len);
    if (data[0] & 0x80) {
        seal(bytes, len);
    }
    struct writer whole, cut, dump;
    struct ct_journal_reader one = CT_JOURNAL_READER_INIT, two = CT_JOURNAL_READER_INIT;
    writer_init(&whole);
    writer_init(&cut);
    writer_init(&dump);
    int rc = read_all(bytes, len, len > 0 ? len : 1, &whole, &one);
    CT_ASSERT(read_all(bytes, len, piece, &cut, &two) == rc);
    CT_ASSERT(memcmp(&one, &two, sizeof(one)) == 0);
    CT_ASSERT(whole.bytes.len == one.offset - CT_JOURNAL_HEADER_LEN);
    CT_ASSERT(whole.bytes.len == 0 || memcmp(ct_buf_bytes(&whole.bytes),
                                             bytes + CT_JOURNAL_HEADER_LEN, whole.bytes.len) == 0);
    CT_ASSERT(ct_store_dump(whole.store, &dump.change_log) == 0);
    CT_ASSERT(ct_store_num_keys(dump.store) == ct_store_num_keys(whole.store));
    CT_ASSERT(ct_store_num_queued(dump.store) == ct_store_num_queued(whole.store));
    CT_ASSERT(ct_store_num_bytes(dump.store) == ct_store_num_bytes(whole.store));
    writer_fini(&whole);
    writer_fini(&cut);
    writer_fini(&dump);
    free(bytes);
    return 0;
}
