/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbering of PyTorch up to 2.0: recognised by its first bytes, and its way to give up a WAIT.
 */
#include "tests/lib/session_pair.h"

#define SET_K_V "\x00\x02" Z7 "/k\x01" Z7 "v"
#define GET_K "\x02\x02" Z7 "/k"
#define WAIT_K "\x05\x01" Z7 "\x02" Z7 "/k"
#define NUM_KEYS "\x06"

static void test_the_dialect_is_known_by_the_first_bytes(void **state)
{
    (void)state;
    enum ct_dialect dialect;
    const unsigned char *hello = (const unsigned char *)HELLO;
    for (size_t len = 1; len < 5; len++) {
        assert_int_equal(ct_dialect_detect(hello, len, &dialect), CT_SCAN_E_MORE);
    }
    assert_int_equal(ct_dialect_detect(hello, 5, &dialect), 0);
    assert_int_equal(dialect, CT_DIALECT_CURRENT);
    /* Any other first byte settles it at once, and so does the first byte that is not the magic's.
     */
    assert_int_equal(ct_dialect_detect((const unsigned char *)"\x03", 1, &dialect), 0);
    assert_int_equal(dialect, CT_DIALECT_LEGACY);
    dialect = CT_DIALECT_CURRENT;
    assert_int_equal(ct_dialect_detect((const unsigned char *)"\x00\x02", 2, &dialect), 0);
    assert_int_equal(dialect, CT_DIALECT_LEGACY);
}

static void test_every_legacy_number_is_translated(void **state)
{
    (void)state;
    static const struct {
        unsigned char wire;
        enum ct_op op;
    } cases[] = {
        {0, CT_OP_SET},          {1, CT_OP_COMPARE_SET}, {2, CT_OP_GET},
        {3, CT_OP_ADD},          {4, CT_OP_CHECK},       {5, CT_OP_WAIT},
        {6, CT_OP_GETNUMKEYS},   {7, CT_OP_WATCH_KEY},   {8, CT_OP_DELETE_KEY},
        {9, CT_OP_APPEND},       {10, CT_OP_MULTI_GET},  {11, CT_OP_MULTI_SET},
        {12, CT_OP_CANCEL_WAIT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_scan scan = {.dialect = CT_DIALECT_LEGACY};
        assert_true(ct_scan(&scan, &cases[i].wire, 1, NULL) >= 0);
        assert_int_equal(scan.op, cases[i].op);
    }
    for (unsigned wire = 13; wire < 256; wire++) {
        struct ct_scan scan = {.dialect = CT_DIALECT_LEGACY};
        unsigned char byte = (unsigned char)wire;
        assert_int_equal(ct_scan(&scan, &byte, 1, NULL), CT_EPROTO);
    }
}

static void test_requests_may_come_byte_by_byte(void **state)
{
    struct session_pair *f = *state;
    const char stream[] = SET_K_V GET_K NUM_KEYS;
    for (size_t i = 0; i < sizeof(stream) - 1; i++) {
        feed(&f->a, stream + i, 1);
    }
    expect(&f->a, B("\x01" Z7 "v\x01" Z7));
}

static void test_both_dialects_share_the_keys(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(SET_K_V));
    feed(&f->b, B(HELLO "\x03\x02" Z7 "/k"));
    expect(&f->b, B("\x01" Z7 "v"));
}

static void test_wait_is_answered(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WAIT_K));
    expect(&f->a, B(""));
    feed(&f->b, B(SET_K_V));
    expect(&f->a, B("\x00"));
}

/* A late answer to the wait would be read as the answer to the next request. */
static void test_next_request_drops_the_wait(void **state)
{
    struct session_pair *f = *state;
    feed(&f->a, B(WAIT_K NUM_KEYS));
    expect(&f->a, B("\x00" Z7));
    feed(&f->b, B(SET_K_V));
    expect(&f->a, B(""));
}

static void test_strangers_are_refused(void **state)
{
    struct session_pair *f = *state;
    struct ct_err err = {0};
    assert_int_equal(ct_session_feed(&f->a.session, B("GET / HTTP/1.1\r\n"), &err), CT_EPROTO);
    /* A zero and noise: a SET with a key far too long. */
    assert_int_equal(
        ct_session_feed(&f->b.session, B("\x00\xff\xff\xff\xff\xff\xff\xff\xff"), &err), CT_ELIMIT);
    expect(&f->a, B(""));
    expect(&f->b, B(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_dialect_is_known_by_the_first_bytes),
        cmocka_unit_test(test_every_legacy_number_is_translated),
        cmocka_unit_test_setup_teardown(test_requests_may_come_byte_by_byte, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_both_dialects_share_the_keys, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_wait_is_answered, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_next_request_drops_the_wait, pair_set_up,
                                        pair_tear_down),
        cmocka_unit_test_setup_teardown(test_strangers_are_refused, pair_set_up, pair_tear_down),
    };
    return cmocka_run_group_tests_name("legacy", tests, NULL, NULL);
}
