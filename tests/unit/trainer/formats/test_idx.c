/* SPDX-License-Identifier: Apache-2.0
 *
 * IDX and gzip data: good files, hostile ones, and limits.
 */
#include "tests/lib/ct_test.h"
#include "trainer/formats/gzip.h"
#include "trainer/formats/idx.h"

#include <zlib.h>

#define HEADER3(n, h, w) 0, 0, 8, 3, 0, 0, 0, n, 0, 0, 0, h, 0, 0, 0, w

static void test_dimensions_are_read(void **state)
{
    (void)state;
    const unsigned char bytes[] = {HEADER3(2, 1, 3), 1, 2, 3, 4, 5, 6};
    struct ct_idx idx;
    assert_int_equal(ct_idx_parse(bytes, sizeof bytes, 3, &idx, NULL), 0);
    assert_int_equal(idx.dim[0], 2);
    assert_int_equal(idx.dim[1], 1);
    assert_int_equal(idx.dim[2], 3);
    assert_int_equal(idx.header, 16);
    assert_int_equal(idx.total, sizeof bytes);
}

static void test_header_alone_tells_the_size(void **state)
{
    (void)state;
    const unsigned char bytes[] = {0, 0, 8, 1, 0, 1, 0, 0};
    struct ct_idx idx;
    assert_int_equal(ct_idx_header(bytes, sizeof bytes, 1, &idx, NULL), 0);
    assert_int_equal(idx.dim[0], 65536);
    assert_int_equal(idx.total, 8 + 65536);
}

static void test_the_largest_content_is_accepted(void **state)
{
    (void)state;
    const unsigned char most[] = {0, 0, 8, 1, 0x40, 0, 0, 0}, more[] = {0, 0, 8, 1, 0x40, 0, 0, 1};
    struct ct_idx idx;
    assert_int_equal(ct_idx_header(most, sizeof most, 1, &idx, NULL), 0);
    assert_int_equal(idx.total, 8 + CT_IDX_BYTES_MAX);
    assert_int_equal(ct_idx_header(more, sizeof more, 1, &idx, NULL), CT_ELIMIT);
}

static void test_refuses_hostile_files(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[24];
        size_t len;
        unsigned dims;
        int code;
        const char *why;
    } cases[] = {
        {{0}, 0, 3, CT_EFORMAT, "truncated: 0 bytes"},
        {{0, 0, 8}, 3, 3, CT_EFORMAT, "truncated: 3 bytes"},
        {{0, 0, 8, 3}, 4, 3, CT_EFORMAT, "truncated: 4 of the 16 header"},
        {{HEADER3(1, 1, 1)}, 15, 3, CT_EFORMAT, "truncated: 15 of the 16 header"},
        {{HEADER3(1, 1, 1)}, 16, 3, CT_EFORMAT, "truncated: 16 of the 17 bytes"},
        {{HEADER3(2, 2, 2)}, 23, 3, CT_EFORMAT, "truncated: 23 of the 24"},
        {{HEADER3(1, 1, 1)}, 18, 3, CT_EFORMAT, "oversized: more than the 17"},
        {{HEADER3(0, 1, 1)}, 16, 3, CT_EFORMAT, "dimension 1 of the header is 0"},
        {{HEADER3(1, 1, 0)}, 16, 3, CT_EFORMAT, "dimension 3 of the header is 0"},
        {{0, 0, 8, 1, 0, 0, 0, 1, 9}, 9, 3, CT_EFORMAT, "wrong magic 0x00000801"},
        {{HEADER3(1, 1, 1), 9}, 17, 1, CT_EFORMAT, "wrong magic 0x00000803"},
        {{0, 0, 13, 3}, 16, 3, CT_EFORMAT, "wrong magic"},
        {{8, 0, 0, 3}, 16, 3, CT_EFORMAT, "wrong magic"},
        {{0x1f, 0x8b, 8, 0}, 16, 3, CT_EFORMAT, "wrong magic 0x1f8b0800"},
        {{0, 0, 8, 1, 0xff, 0xff, 0xff, 0xff}, 8, 1, CT_ELIMIT, "promises more than"},
        {{0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
         16,
         3,
         CT_ELIMIT,
         "promises more than"},
        /* 2^22 * 2^21 * 2^21 is 0 in 64 bits. */
        {{0, 0, 8, 3, 0, 0x40, 0, 0, 0, 0x20, 0, 0, 0, 0x20, 0, 0},
         16,
         3,
         CT_ELIMIT,
         "promises more than"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct ct_idx idx = {.total = 77};
        struct ct_err err = {0};
        int rc = ct_idx_parse(cases[i].bytes, cases[i].len, cases[i].dims, &idx, &err);
        if (rc != cases[i].code || strstr(err.text, cases[i].why) == NULL) {
            fail_msg("case %zu: %d '%s', expected '%s'", i, rc, err.text, cases[i].why);
        }
        assert_int_equal(idx.total, 77);
    }
}

/* ---- gzip ------------------------------------------------------------------------------------ */

static size_t pack(const void *bytes, size_t len, unsigned char *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (z_const Bytef *)bytes;
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t packed = room - z.avail_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    return packed;
}

static void test_gzip_round_trip_at_exact_limit(void **state)
{
    (void)state;
    unsigned char packed[256];
    size_t len = pack("hello, hello, hello", 19, packed, sizeof packed);
    struct ct_buf out = CT_BUF_INIT;
    assert_true(ct_gzip_is(packed, len));
    assert_false(ct_gzip_is(packed, 1));
    assert_int_equal(ct_gzip_inflate(packed, len, 19, &out, NULL), 0);
    assert_int_equal(out.len, 19);
    assert_memory_equal(ct_buf_bytes(&out), "hello, hello, hello", 19);
    ct_buf_fini(&out);
}

static void test_gzip_bomb_is_bounded(void **state)
{
    (void)state;
    enum { BOMB = 8 << 20, LIMIT = 3 << 20 };
    static unsigned char zeros[BOMB], packed[64 << 10];
    size_t len = pack(zeros, BOMB, packed, sizeof packed);
    struct ct_buf out = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_gzip_inflate(packed, len, LIMIT, &out, &err), CT_ELIMIT);
    assert_int_equal(out.len, LIMIT);
    assert_true(out.cap <= 2 * LIMIT);
    ct_buf_reset(&out);
    assert_int_equal(ct_gzip_inflate(packed, len, BOMB, &out, &err), 0);
    assert_int_equal(out.len, BOMB);
    ct_buf_fini(&out);
}

static void test_damaged_gzip_is_refused(void **state)
{
    (void)state;
    unsigned char packed[256];
    size_t len = pack("some text to pack, some more text", 33, packed, sizeof packed);
    struct ct_buf out = CT_BUF_INIT;
    struct ct_err err = {0};
    for (size_t cut = 0; cut < len; cut++) {
        ct_buf_reset(&out);
        assert_int_equal(ct_gzip_inflate(packed, cut, 1000, &out, &err), CT_EFORMAT);
        assert_non_null(strstr(err.text, "truncated gzip"));
    }
    ct_buf_reset(&out);
    assert_int_equal(ct_gzip_inflate(packed, len + 1, 1000, &out, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "1 bytes follow"));
    packed[len - 6] ^= 1; /* checksum */
    ct_buf_reset(&out);
    assert_int_equal(ct_gzip_inflate(packed, len, 1000, &out, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "damaged gzip"));
    ct_buf_reset(&out);
    assert_int_equal(ct_gzip_inflate("plain text", 10, 1000, &out, &err), CT_EFORMAT);
    ct_buf_fini(&out);
}

struct packed_text {
    unsigned char bytes[256];
    size_t len;
};

static int inflate_body(void *data)
{
    const struct packed_text *packed = data;
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_gzip_inflate(packed->bytes, packed->len, 100, &out, NULL);
    ct_buf_fini(&out);
    return rc;
}

static void test_gzip_survives_faults(void **state)
{
    (void)state;
    struct packed_text packed;
    packed.len = pack("faults", 6, packed.bytes, sizeof packed.bytes);
    assert_true(ct_fault_sweep(inflate_body, &packed, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dimensions_are_read),
        cmocka_unit_test(test_header_alone_tells_the_size),
        cmocka_unit_test(test_the_largest_content_is_accepted),
        cmocka_unit_test(test_refuses_hostile_files),
        cmocka_unit_test(test_gzip_round_trip_at_exact_limit),
        cmocka_unit_test(test_gzip_bomb_is_bounded),
        cmocka_unit_test(test_damaged_gzip_is_refused),
        cmocka_unit_test(test_gzip_survives_faults),
    };
    return cmocka_run_group_tests_name("idx", tests, NULL, NULL);
}
