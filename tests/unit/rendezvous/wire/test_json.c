/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents from bytes of strangers, and members that may be anything.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/wire/json.h"

#include <stdlib.h>

static int set_up(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    return 0;
}

static void expect_bytes(const char *bytes, size_t len, const char *want)
{
    cJSON *root = cJSON_CreateObject();
    assert_true(ct_json_add_bytes(root, "k", (struct ct_bytes){(const unsigned char *)bytes, len}));
    assert_string_equal(ct_json_text(root, "k", ""), want);
    cJSON_Delete(root);
}

static void test_bytes_become_printable_text(void **state)
{
    (void)state;
    expect_bytes("", 0, "");
    expect_bytes("key 1~", 6, "key 1~");
    expect_bytes("a\\b", 3, "a\\\\b");
    expect_bytes("\0\x1f\x7f\x80\xff", 5, "\\x00\\x1f\\x7f\\x80\\xff");
}

static void test_bytes_that_are_too_many_are_cut(void **state)
{
    char key[CT_JSON_KEY_MAX + 1], want[4 * CT_JSON_KEY_MAX + 8];
    (void)state;
    memset(key, 'k', sizeof(key));
    memset(want, 'k', sizeof(want));
    memcpy(want + CT_JSON_KEY_MAX, "...", 4);
    expect_bytes(key, CT_JSON_KEY_MAX + 1, want);
    want[CT_JSON_KEY_MAX] = '\0';
    expect_bytes(key, CT_JSON_KEY_MAX, want);
    /* The longest text that they can become. */
    memset(key, 0xff, sizeof(key));
    for (size_t i = 0; i < CT_JSON_KEY_MAX; i++) {
        memcpy(want + 4 * i, "\\xff", 4);
    }
    memcpy(want + 4 * (size_t)CT_JSON_KEY_MAX, "...", 4);
    expect_bytes(key, CT_JSON_KEY_MAX + 1, want);
}

static void test_a_document_is_printed_as_a_line(void **state)
{
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    cJSON *root = cJSON_CreateObject();
    assert_true(ct_json_add_number(root, "n", 1.5));
    assert_true(ct_json_add_text(root, "t", "x\ny"));
    assert_true(ct_json_add_bool(root, "b", true));
    cJSON *array = cJSON_AddArrayToObject(root, "a");
    assert_true(ct_json_add_bool(ct_json_append_object(array), "c", false));
    assert_int_equal(ct_buf_append(&out, ">", 1), 0);
    assert_int_equal(ct_json_print(root, &out), 0);
    assert_string_equal(ct_buf_cstr(&out),
                        ">{\"n\":1.5,\"t\":\"x\\ny\",\"b\":true,\"a\":[{\"c\":false}]}\n");
    ct_buf_fini(&out);
    cJSON_Delete(root);
}

/* DEL, a C1 control, U+061C, U+200B, U+202E, U+2066, U+E0041; and what is no UTF-8, which was
 * printed as it was. */
static void test_what_a_terminal_must_not_get_is_escaped(void **state)
{
    static const char name[] =
        "a\x7f\xc2\x9b\xd8\x9c\xe2\x80\x8b\xe2\x80\xae\xe2\x81\xa6\xf3\xa0\x81\x81z";
    static const char good[] = "\xc3\xbc\xc2\xb5\xd8\xa7\xe2\x82\xac\xe2\x80\x93";
    static const char bad[] = "\xff\x9b\xe2";
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    cJSON *root = cJSON_CreateObject();
    assert_true(ct_json_add_text(root, name, name));
    assert_true(ct_json_add_text(root, "good", good));
    assert_true(ct_json_add_text(root, "bad", bad));
    assert_int_equal(ct_json_print(root, &out), 0);
#define ESCAPED "\"a\\u007f\\u009b\\u061c\\u200b\\u202e\\u2066\\udb40\\udc41z\""
    assert_non_null(strstr(ct_buf_cstr(&out), "{" ESCAPED ":" ESCAPED ","));
    assert_non_null(strstr(ct_buf_cstr(&out), good));
    assert_non_null(strstr(ct_buf_cstr(&out), "\"bad\":\"\\ufffd\\ufffd\\ufffd\""));
    cJSON *same = cJSON_Parse(ct_buf_cstr(&out));
    assert_string_equal(ct_json_text(same, name, ""), name);
    cJSON_Delete(same);
    cJSON_Delete(root);
    ct_buf_fini(&out);
}

/* A voter's id of 53 bits came out as another one in a fifth of all agents, so that a host did not
 * find itself in its own world, and gave the job up when another machine was lost. */
static void test_a_whole_number_keeps_all_its_digits(void **state)
{
    static const struct {
        double value;
        const char *want;
    } cases[] = {
        {6719834217994746.0, "{\"n\":6719834217994746}\n"},
        {6719834217994741.0, "{\"n\":6719834217994741}\n"},
        {9007199254740991.0, "{\"n\":9007199254740991}\n"},
        {-9007199254740991.0, "{\"n\":-9007199254740991}\n"},
        {1e15, "{\"n\":1000000000000000}\n"},
        {999999999999999.0, "{\"n\":999999999999999}\n"},
        {1e18, "{\"n\":1e+18}\n"},
        {2000000000000000.5, "{\"n\":2000000000000000.5}\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_buf out = CT_BUF_INIT;
        cJSON *root = cJSON_CreateObject();
        assert_true(ct_json_add_number(root, "n", cases[i].value));
        assert_int_equal(ct_json_print(root, &out), 0);
        assert_string_equal(ct_buf_cstr(&out), cases[i].want);
        ct_buf_fini(&out);
        cJSON_Delete(root);
    }
}

static void test_a_member_of_another_type_counts_as_missing(void **state)
{
    (void)state;
    cJSON *root = cJSON_Parse("{\"n\":3,\"yes\":true,\"no\":false,\"t\":\"x\",\"null\":null}");
    assert_true(ct_json_number(root, "n", 7) == 3);
    assert_true(ct_json_number(root, "yes", 7) == 1);
    assert_true(ct_json_number(root, "no", 7) == 7);
    assert_true(ct_json_number(root, "t", 7) == 7);
    assert_true(ct_json_number(root, "N", 7) == 7);
    assert_true(ct_json_number(NULL, "n", 7) == 7);
    assert_string_equal(ct_json_text(root, "t", "-"), "x");
    assert_string_equal(ct_json_text(root, "n", "-"), "-");
    assert_string_equal(ct_json_text(root, "null", "-"), "-");
    assert_null(ct_json_text(NULL, "t", NULL));
    cJSON_Delete(root);
}

/* A fault at any allocation is told, and nothing is left. */
static int build(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    cJSON *root = cJSON_CreateArray();
    cJSON *item = root != NULL ? ct_json_append_object(root) : NULL;
    const struct ct_bytes key = {(const unsigned char *)"k", 1};
    (void)data;
    int rc = item != NULL && ct_json_add_number(item, "n", 1) && ct_json_add_text(item, "t", "x") &&
                     ct_json_add_bool(item, "b", true) && ct_json_add_bytes(item, "k", key)
                 ? ct_json_print(root, &out)
                 : CT_ENOMEM;
    ct_buf_fini(&out);
    cJSON_Delete(root);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(build, NULL, 0) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_become_printable_text),
        cmocka_unit_test(test_bytes_that_are_too_many_are_cut),
        cmocka_unit_test(test_a_document_is_printed_as_a_line),
        cmocka_unit_test(test_what_a_terminal_must_not_get_is_escaped),
        cmocka_unit_test(test_a_whole_number_keeps_all_its_digits),
        cmocka_unit_test(test_a_member_of_another_type_counts_as_missing),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
