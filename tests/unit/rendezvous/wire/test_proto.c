/* SPDX-License-Identifier: Apache-2.0
 *
 * The codec against bytes recorded from PyTorch 2.14 and against the limits, each request in one
 * piece and one byte at a time.
 */
#include "tests/lib/ct_test.h"

#include "common/buf.h"
#include "rendezvous/wire/limits.h"
#include "rendezvous/wire/proto.h"

#include <stdbool.h>
#include <sys/mman.h>

#define Z7 "\0\0\0\0\0\0\0"
/* A string literal and its length, without the NUL that C puts there. */
#define B(text) (const unsigned char *)(text), sizeof(text) - 1

static bool same(struct ct_bytes got, const char *want)
{
    return got.len == strlen(want) && memcmp(got.ptr, want, got.len) == 0;
}

/* Finds the request at the front of `bytes`, fed one byte more each time, and checks that nothing
 * short of it is taken for complete; then again in one piece. */
static struct ct_request decode(const unsigned char *bytes, size_t len)
{
    struct ct_scan scan = {0};
    struct ct_err err = {0};
    for (size_t n = 0; n < len; n++) {
        int rc = ct_scan(&scan, bytes, n, &err);
        if (rc != CT_SCAN_E_MORE) {
            fail_msg("%zu of %zu bytes: %d %s", n, len, rc, err.text);
        }
    }
    assert_int_equal(ct_scan(&scan, bytes, len, &err), 0);
    assert_int_equal(scan.at, len);
    struct ct_scan whole = {0};
    assert_int_equal(ct_scan(&whole, bytes, len, &err), 0);
    assert_int_equal(whole.at, len);
    struct ct_request req;
    ct_request_decode(&whole, bytes, &req);
    return req;
}

/* ---- what PyTorch sends --------------------------------------------------------------------- */

static void test_validate_is_decoded(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x00\xce\xf7\x85\x3c"));
    assert_int_equal(req.op, CT_OP_VALIDATE);
}

static void test_ping_is_decoded_with_its_nonce(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x0d\x78\x56\x34\x12"));
    assert_int_equal(req.op, CT_OP_PING);
    assert_int_equal(req.nonce, 0x12345678);
}

static void test_add_is_decoded_with_its_sign(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x04\x05" Z7 "init/\x01" Z7));
    assert_int_equal(req.op, CT_OP_ADD);
    assert_true(same(req.key, "init/"));
    assert_int_equal(req.number, 1);
    req = decode(B("\x04\x01" Z7 "n\xff\xff\xff\xff\xff\xff\xff\xff"));
    assert_int_equal(req.number, -1);
}

static void test_set_and_append_are_decoded(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x01\x02" Z7 "/k\x01" Z7 "v"));
    assert_int_equal(req.op, CT_OP_SET);
    assert_true(same(req.key, "/k"));
    assert_true(same(req.value, "v"));
    req = decode(B("\x09\x02" Z7 "/k\x00" Z7));
    assert_int_equal(req.op, CT_OP_APPEND);
    assert_true(same(req.value, ""));
}

static void test_compare_set_is_decoded_with_both_values(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x02\x02" Z7 "/k\x03" Z7 "old\x04" Z7 "next"));
    assert_int_equal(req.op, CT_OP_COMPARE_SET);
    assert_true(same(req.key, "/k"));
    assert_true(same(req.value, "old"));
    assert_true(same(req.second, "next"));
}

static void test_get_and_delete_are_decoded(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x03\x02" Z7 "/k"));
    assert_int_equal(req.op, CT_OP_GET);
    assert_true(same(req.key, "/k"));
    req = decode(B("\x08\x00" Z7));
    assert_int_equal(req.op, CT_OP_DELETE_KEY);
    assert_true(same(req.key, ""));
}

static void test_lists_of_keys_are_decoded_one_by_one(void **state)
{
    (void)state;
    static const enum ct_op ops[] = {CT_OP_CHECK, CT_OP_WAIT, CT_OP_MULTI_GET};
    unsigned char bytes[] = "?\x02" Z7 "\x02" Z7 "/k\x03" Z7 "abc";
    for (size_t i = 0; i < 3; i++) {
        bytes[0] = (unsigned char)ops[i];
        struct ct_request req = decode(bytes, sizeof(bytes) - 1);
        assert_int_equal(req.op, ops[i]);
        assert_int_equal(req.count, 2);
        assert_true(same(ct_request_next(&req.items), "/k"));
        assert_true(same(ct_request_next(&req.items), "abc"));
        assert_int_equal(req.items.len, 0);
    }
    struct ct_request none = decode(B("\x06\x00" Z7));
    assert_int_equal(none.count, 0);
    assert_int_equal(none.items.len, 0);
}

static void test_multi_set_is_decoded_pair_by_pair(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x0b\x02" Z7 "\x01" Z7 "a\x02" Z7 "11\x01" Z7 "b\x00" Z7));
    assert_int_equal(req.op, CT_OP_MULTI_SET);
    assert_int_equal(req.count, 2);
    assert_true(same(ct_request_next(&req.items), "a"));
    assert_true(same(ct_request_next(&req.items), "11"));
    assert_true(same(ct_request_next(&req.items), "b"));
    assert_true(same(ct_request_next(&req.items), ""));
}

static void test_queues_and_barriers_are_decoded(void **state)
{
    (void)state;
    struct ct_request req = decode(B("\x0e\x02" Z7 "/q\x03" Z7 "abc"));
    assert_int_equal(req.op, CT_OP_QUEUE_PUSH);
    assert_true(same(req.key, "/q"));
    assert_true(same(req.value, "abc"));
    req = decode(B("\x0f\x02" Z7 "/q"));
    assert_int_equal(req.op, CT_OP_QUEUE_POP);
    assert_true(same(req.key, "/q"));
    req = decode(B("\x10\x02" Z7 "/q"));
    assert_int_equal(req.op, CT_OP_QUEUE_LEN);
    req = decode(B("\x12\x03" Z7 "/bk\x02" Z7));
    assert_int_equal(req.op, CT_OP_BARRIER);
    assert_true(same(req.key, "/bk"));
    assert_int_equal(req.number, 2);
}

static void test_operations_without_fields_are_decoded(void **state)
{
    (void)state;
    assert_int_equal(decode(B("\x0c")).op, CT_OP_CANCEL_WAIT);
    assert_int_equal(decode(B("\x07")).op, CT_OP_GETNUMKEYS);
    assert_int_equal(decode(B("\x11")).op, CT_OP_LIST_KEYS);
}

static void test_only_the_first_request_is_taken(void **state)
{
    (void)state;
    struct ct_scan scan = {0};
    assert_int_equal(ct_scan(&scan, B("\x07\x0c\x0c"), NULL), 0);
    assert_int_equal(scan.at, 1);
}

/* ---- what nobody should send ---------------------------------------------------------------- */

static int scan_all(const void *bytes, size_t len, struct ct_err *err)
{
    struct ct_scan scan = {0};
    return ct_scan(&scan, bytes, len, err);
}

static void test_tls_is_told_from_an_unknown_operation(void **state)
{
    static const unsigned char hello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01};
    enum ct_dialect dialect;
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(ct_dialect_detect(hello, 1, &dialect), 0);
    struct ct_scan scan = {.dialect = dialect};
    assert_int_equal(ct_scan(&scan, hello, sizeof(hello), &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "it speaks TLS"));
    scan = (struct ct_scan){.dialect = CT_DIALECT_CURRENT}; /* behind a greeting */
    assert_int_equal(ct_scan(&scan, hello, sizeof(hello), &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "unknown operation 22"));
}

static void test_an_unknown_operation_is_refused(void **state)
{
    (void)state;
    for (unsigned op = CT_OP_BARRIER + 1; op < 256; op++) {
        unsigned char byte = (unsigned char)op;
        struct ct_err err = {0};
        assert_int_equal(scan_all(&byte, 1, &err), CT_EPROTO);
        assert_non_null(strstr(err.text, "unknown operation"));
    }
}

static void test_a_wrong_magic_is_refused(void **state)
{
    (void)state;
    struct ct_err err = {0};
    assert_int_equal(scan_all(B("\x00\xce\xf7\x85\x3d"), &err), CT_EPROTO);
    assert_int_equal(scan_all(B("\x00\xce\xf7\x85"), &err), CT_SCAN_E_MORE);
}

/* The verdict must come with the length, not after that many bytes were collected. */
static int scan_length(unsigned char op, uint64_t len)
{
    unsigned char bytes[9] = {op};
    memcpy(bytes + 1, &len, 8);
    return scan_all(bytes, sizeof(bytes), NULL);
}

static void test_a_key_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    assert_int_equal(scan_length(CT_OP_GET, CT_MAX_KEY_LEN), CT_SCAN_E_MORE);
    assert_int_equal(scan_length(CT_OP_GET, CT_MAX_KEY_LEN + 1), CT_ELIMIT);
    /* Lengths that would wrap if they were added to anything first. */
    for (uint64_t i = 0; i < 16; i++) {
        assert_int_equal(scan_length(CT_OP_GET, UINT64_MAX - i), CT_ELIMIT);
    }
    assert_int_equal(scan_length(CT_OP_GET, UINT64_C(1) << 63), CT_ELIMIT);
}

static void test_too_many_keys_are_refused(void **state)
{
    (void)state;
    assert_int_equal(scan_length(CT_OP_WAIT, CT_MAX_KEYS), CT_SCAN_E_MORE);
    assert_int_equal(scan_length(CT_OP_WAIT, CT_MAX_KEYS + 1), CT_ELIMIT);
    /* PyTorch writes MULTI_SET's count signed. */
    assert_int_equal(scan_length(CT_OP_MULTI_SET, (uint64_t)-1), CT_ELIMIT);
}

static void test_a_value_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    unsigned char bytes[18] = {CT_OP_SET, 1, 0, 0, 0, 0, 0, 0, 0, 'k'};
    uint64_t len = CT_MAX_VALUE_LEN;
    memcpy(bytes + 10, &len, 8);
    assert_int_equal(scan_all(bytes, sizeof(bytes), NULL), CT_SCAN_E_MORE);
    len++;
    memcpy(bytes + 10, &len, 8);
    struct ct_err err = {0};
    assert_int_equal(scan_all(bytes, sizeof(bytes), &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "value"));
}

static void test_limit_in_a_later_element(void **state)
{
    (void)state;
    unsigned char bytes[] = "\x06\x02" Z7 "\x01" Z7 "a\xff\xff\xff\xff\xff\xff\xff\x7f";
    assert_int_equal(scan_all(bytes, sizeof(bytes) - 1, NULL), CT_ELIMIT);
}

/* The whole request is bounded too: so many values of 8 MiB that their sum passes the limit. The
 * scanner sees only their headers; the bytes between stay untouched zero pages. */
static void test_a_request_beyond_the_limit_is_refused(void **state)
{
    (void)state;
    const size_t pairs = CT_MAX_REQUEST_LEN / (16 + CT_MAX_VALUE_LEN) + 1;
    const size_t size = CT_MAX_REQUEST_LEN + 4096;
    unsigned char *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(bytes != MAP_FAILED);
    uint64_t count = pairs, len = CT_MAX_VALUE_LEN;
    bytes[0] = CT_OP_MULTI_SET;
    memcpy(bytes + 1, &count, 8);
    size_t at = 9;
    for (size_t i = 0; i < pairs; i++) {
        memcpy(bytes + at + 8, &len, 8); /* behind an empty key */
        at += 16 + CT_MAX_VALUE_LEN;
        if (at > CT_MAX_REQUEST_LEN) {
            break;
        }
    }
    struct ct_err err = {0};
    assert_int_equal(scan_all(bytes, CT_MAX_REQUEST_LEN, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "MULTI_SET of more than"));
    assert_int_equal(munmap(bytes, size), 0);
}

/* ---- encoding ------------------------------------------------------------------------------- */

static void test_encoding_is_what_decoding_reads(void **state)
{
    (void)state;
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_put_u8(&buf, CT_OP_SET), 0);
    assert_int_equal(ct_put_bytes(&buf, "/k", 2), 0);
    assert_int_equal(ct_put_bytes(&buf, NULL, 0), 0);
    assert_int_equal(ct_put_u8(&buf, CT_OP_PING), 0);
    assert_int_equal(ct_put_u32(&buf, 0x12345678), 0);
    assert_int_equal(ct_put_u64(&buf, 1), 0);
    static const unsigned char want[] = "\x01\x02" Z7 "/k\x00" Z7 "\x0d\x78\x56\x34\x12\x01" Z7;
    assert_int_equal(buf.len, sizeof(want) - 1);
    assert_memory_equal(ct_buf_bytes(&buf), want, buf.len);
    ct_buf_fini(&buf);
}

static int encode(void *data)
{
    (void)data;
    struct ct_buf buf = CT_BUF_INIT;
    static const unsigned char value[100];
    int rc = ct_put_u8(&buf, 1);
    rc = rc == 0 ? ct_put_u64(&buf, 1) : rc;
    size_t before = buf.len;
    if (rc == 0) {
        rc = ct_put_bytes(&buf, value, sizeof(value));
        assert_int_equal(buf.len, rc == 0 ? before + 8 + sizeof(value) : before);
    }
    ct_buf_fini(&buf);
    return rc;
}

static void test_encoding_survives_lack_of_memory(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(encode, NULL, 0) >= 2);
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_put_bytes(&buf, "", SIZE_MAX), CT_ENOMEM);
    ct_buf_fini(&buf);
}

static void test_operations_have_names(void **state)
{
    (void)state;
    assert_string_equal(ct_op_name(CT_OP_CANCEL_WAIT), "CANCEL_WAIT");
    assert_string_equal(ct_op_name((enum ct_op)200), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_validate_is_decoded),
        cmocka_unit_test(test_ping_is_decoded_with_its_nonce),
        cmocka_unit_test(test_add_is_decoded_with_its_sign),
        cmocka_unit_test(test_set_and_append_are_decoded),
        cmocka_unit_test(test_compare_set_is_decoded_with_both_values),
        cmocka_unit_test(test_get_and_delete_are_decoded),
        cmocka_unit_test(test_lists_of_keys_are_decoded_one_by_one),
        cmocka_unit_test(test_multi_set_is_decoded_pair_by_pair),
        cmocka_unit_test(test_queues_and_barriers_are_decoded),
        cmocka_unit_test(test_operations_without_fields_are_decoded),
        cmocka_unit_test(test_only_the_first_request_is_taken),
        cmocka_unit_test(test_tls_is_told_from_an_unknown_operation),
        cmocka_unit_test(test_an_unknown_operation_is_refused),
        cmocka_unit_test(test_a_wrong_magic_is_refused),
        cmocka_unit_test(test_a_key_beyond_the_limit_is_refused),
        cmocka_unit_test(test_too_many_keys_are_refused),
        cmocka_unit_test(test_a_value_beyond_the_limit_is_refused),
        cmocka_unit_test(test_limit_in_a_later_element),
        cmocka_unit_test(test_a_request_beyond_the_limit_is_refused),
        cmocka_unit_test(test_encoding_is_what_decoding_reads),
        cmocka_unit_test(test_encoding_survives_lack_of_memory),
        cmocka_unit_test(test_operations_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
