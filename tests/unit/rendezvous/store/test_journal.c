/* SPDX-License-Identifier: Apache-2.0
 *
 * The journal's format: bytes as they must stand, what is damage and what is only missing.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/store/journal.h"

#include <stdlib.h>
#include <zlib.h>

#define SET_K_VAL "\x01\x00\x01\x00\x03\x00\x00\x00kval"

static struct ct_bytes b(const char *text)
{
    return (struct ct_bytes){(const unsigned char *)text, strlen(text)};
}

static void put(struct ct_buf *buf, enum ct_change_kind kind, const char *key, const char *value,
                bool more)
{
    const struct ct_change change = {.kind = kind, .key = b(key), .value = b(value), .more = more};
    assert_int_equal(ct_journal_put(buf, &change), 0);
}

static int next(struct ct_journal_reader *reader, const struct ct_buf *buf, size_t len,
                struct ct_change *out, size_t *used)
{
    struct ct_err err = {0};
    int rc = ct_journal_next(reader, ct_buf_bytes(buf), len, out, used, &err);
    assert_true((rc < 0) == (err.text[0] != '\0'));
    return rc;
}

/* Makes the checksum of the record's head right, whatever stands there. */
static void seal(unsigned char *head)
{
    uint32_t crc = (uint32_t)crc32_z(0, head + 4, CT_JOURNAL_HEAD_LEN - 4);
    for (int i = 0; i < 4; i++) {
        head[i] = (unsigned char)(crc >> 8 * i);
    }
}

/* ---- the bytes ------------------------------------------------------------------------------ */

static void test_a_record_is_as_documented(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    put(&buf, CT_CHANGE_SET, "k", "val", false);
    const unsigned char *p = ct_buf_bytes(&buf);
    assert_int_equal(buf.len, CT_JOURNAL_HEAD_LEN + 4);
    assert_memory_equal(p + 8, SET_K_VAL, sizeof(SET_K_VAL) - 1);
    uint32_t body = (uint32_t)crc32_z(0, (const unsigned char *)"kval", 4);
    uint32_t head = (uint32_t)crc32_z(0, p + 4, 12);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(p[4 + i], (unsigned char)(body >> 8 * i));
        assert_int_equal(p[i], (unsigned char)(head >> 8 * i));
    }
    ct_buf_fini(&buf);
}

static void test_every_kind_comes_back(void **state)
{
    (void)state;
    static const struct {
        enum ct_change_kind kind;
        const char *key, *value;
        bool more;
    } in[] = {
        {CT_CHANGE_SET, "key", "value", true}, {CT_CHANGE_SET, "", "", false},
        {CT_CHANGE_DELETE, "key", "", false},  {CT_CHANGE_PUSH, "q", "element", false},
        {CT_CHANGE_POP, "q", "", false},
    };
    enum { COUNT = sizeof(in) / sizeof(in[0]) };
    struct ct_buf buf = CT_BUF_INIT;
    for (size_t i = 0; i < COUNT; i++) {
        put(&buf, in[i].kind, in[i].key, in[i].value, in[i].more);
    }
    struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
    for (size_t i = 0; i < COUNT; i++) {
        struct ct_change out;
        size_t used;
        assert_int_equal(next(&reader, &buf, buf.len, &out, &used), 0);
        assert_int_equal(out.kind, in[i].kind);
        assert_int_equal(out.more, in[i].more);
        assert_int_equal(out.key.len, strlen(in[i].key));
        assert_memory_equal(out.key.ptr, in[i].key, out.key.len);
        assert_int_equal(out.value.len, strlen(in[i].value));
        assert_memory_equal(out.value.ptr, in[i].value, out.value.len);
        ct_buf_consume(&buf, used);
    }
    assert_int_equal(buf.len, 0);
    assert_int_equal(reader.changes, COUNT);
    assert_int_equal(reader.whole, reader.offset);
    ct_buf_fini(&buf);
}

static void test_the_longest_key_and_value_fit(void **state)
{
    (void)state;
    unsigned char *bytes = calloc(1, CT_MAX_VALUE_LEN);
    assert_non_null(bytes);
    const struct ct_change in = {
        .kind = CT_CHANGE_SET,
        .key = {bytes, CT_MAX_KEY_LEN},
        .value = {bytes, CT_MAX_VALUE_LEN},
    };
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_journal_put(&buf, &in), 0);
    assert_int_equal(buf.len, CT_JOURNAL_RECORD_MAX);
    struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
    struct ct_change out;
    size_t used;
    assert_int_equal(next(&reader, &buf, buf.len - 1, &out, &used), CT_JOURNAL_E_MORE);
    assert_int_equal(next(&reader, &buf, buf.len, &out, &used), 0);
    assert_int_equal(out.value.len, CT_MAX_VALUE_LEN);
    ct_buf_fini(&buf);
    free(bytes);
}

/* ---- what is missing ------------------------------------------------------------------------ */

static void test_any_part_of_a_record_is_more(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    put(&buf, CT_CHANGE_SET, "key", "value", false);
    struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
    struct ct_change out;
    size_t used;
    for (size_t len = 0; len < buf.len; len++) {
        assert_int_equal(next(&reader, &buf, len, &out, &used), CT_JOURNAL_E_MORE);
    }
    assert_int_equal(reader.offset, CT_JOURNAL_HEADER_LEN);
    assert_int_equal(next(&reader, &buf, buf.len, &out, &used), 0);
    ct_buf_fini(&buf);
}

static void test_open_request_is_not_whole(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    put(&buf, CT_CHANGE_SET, "a", "1", false);
    size_t first = buf.len;
    put(&buf, CT_CHANGE_SET, "b", "2", true);
    put(&buf, CT_CHANGE_SET, "c", "3", true);
    put(&buf, CT_CHANGE_SET, "d", "4", false);
    struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
    struct ct_change out;
    size_t used;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(next(&reader, &buf, buf.len, &out, &used), 0);
        ct_buf_consume(&buf, used);
        assert_int_equal(reader.changes, i < 3 ? 1 : 4);
        assert_int_equal(reader.whole,
                         i < 3 ? CT_JOURNAL_HEADER_LEN + first : (size_t)reader.offset);
    }
    ct_buf_fini(&buf);
}

/* ---- what is damaged ------------------------------------------------------------------------ */

static void test_every_flipped_bit_is_noticed(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    put(&buf, CT_CHANGE_SET, "key", "value", false);
    for (size_t bit = 0; bit < 8 * buf.len; bit++) {
        unsigned char *byte = ct_buf_bytes(&buf) + bit / 8;
        *byte ^= (unsigned char)(1 << bit % 8);
        struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
        struct ct_change out;
        size_t used = 99;
        assert_int_equal(next(&reader, &buf, buf.len, &out, &used), CT_EFORMAT);
        /* A head that is right tells where the record would end. */
        assert_int_equal(used, bit / 8 < CT_JOURNAL_HEAD_LEN ? 0 : buf.len);
        assert_int_equal(reader.offset, CT_JOURNAL_HEADER_LEN);
        *byte ^= (unsigned char)(1 << bit % 8);
    }
    ct_buf_fini(&buf);
}

static void test_a_forged_record_head_is_damage(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        const char *bytes;
        size_t len;
    } forged[] = {
        {8, "\x00", 1}, /* kind */
        {8, "\x05", 1},
        {8, "\xff", 1},
        {9, "\x02", 1}, /* flags */
        {9, "\x81", 1},
        {10, "\x01\x20", 2}, /* key_len 8193 */
        {10, "\xff\xff", 2},
        {12, "\x01\x00\x80\x00", 4}, /* value_len 8 MiB + 1 */
        {12, "\xff\xff\xff\xff", 4},
        {8, "\x02", 1}, /* DELETE with a value */
        {8, "\x04", 1}, /* POP with a value */
    };
    for (size_t i = 0; i < sizeof(forged) / sizeof(forged[0]); i++) {
        struct ct_buf buf = CT_BUF_INIT;
        put(&buf, CT_CHANGE_SET, "key", "value", false);
        memcpy(ct_buf_bytes(&buf) + forged[i].at, forged[i].bytes, forged[i].len);
        seal(ct_buf_bytes(&buf));
        struct ct_journal_reader reader = CT_JOURNAL_READER_INIT;
        struct ct_change out;
        size_t used;
        if (next(&reader, &buf, buf.len, &out, &used) != CT_EFORMAT) {
            fail_msg("forged head %zu was accepted", i);
        }
        ct_buf_fini(&buf);
    }
}

/* ---- the header ----------------------------------------------------------------------------- */

static void test_a_cut_or_flipped_header_is_noticed(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_journal_put_header(&buf), 0);
    unsigned char *p = ct_buf_bytes(&buf);
    assert_int_equal(buf.len, CT_JOURNAL_HEADER_LEN);
    for (size_t len = 0; len < buf.len; len++) {
        assert_int_equal(ct_journal_check_header(p, len, &err), CT_JOURNAL_E_MORE);
    }
    assert_int_equal(ct_journal_check_header(p, buf.len, &err), 0);
    for (size_t at = 0; at < buf.len; at++) {
        p[at] ^= 0x10;
        assert_int_equal(ct_journal_check_header(p, buf.len, &err), CT_EFORMAT);
        p[at] ^= 0x10;
    }
    assert_int_equal(ct_journal_check_header((const unsigned char *)"x", 1, &err), CT_EFORMAT);
    p[8] = 2;
    uint32_t crc = (uint32_t)crc32_z(0, p, 12);
    for (int i = 0; i < 4; i++) {
        p[12 + i] = (unsigned char)(crc >> 8 * i);
    }
    assert_int_equal(ct_journal_check_header(p, buf.len, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "version 2"));
    ct_buf_fini(&buf);
}

static int put_both(void *data)
{
    (void)data;
    struct ct_buf buf = CT_BUF_INIT;
    const struct ct_change change = {.kind = CT_CHANGE_SET, .key = b("k"), .value = b("v")};
    int rc = ct_journal_put_header(&buf);
    size_t before = buf.len;
    if (rc == 0) {
        rc = ct_journal_put(&buf, &change);
        assert_true(rc == 0 || buf.len == before);
    }
    ct_buf_fini(&buf);
    return rc;
}

static void test_a_record_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(put_both, NULL, 0) >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_record_is_as_documented),
        cmocka_unit_test(test_every_kind_comes_back),
        cmocka_unit_test(test_the_longest_key_and_value_fit),
        cmocka_unit_test(test_any_part_of_a_record_is_more),
        cmocka_unit_test(test_open_request_is_not_whole),
        cmocka_unit_test(test_every_flipped_bit_is_noticed),
        cmocka_unit_test(test_a_forged_record_head_is_damage),
        cmocka_unit_test(test_a_cut_or_flipped_header_is_noticed),
        cmocka_unit_test(test_a_record_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
