/* SPDX-License-Identifier: Apache-2.0
 *
 * A table with a field of each kind: what is written is read again, and what else may come is
 * refused by the name of the field.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define ALWAYS 1
#define SOMETIMES 2

struct thing {
    char text[8], cut[5];
    char *owned;
    int number, name;
    int64_t wide;
    uint16_t port;
    double real;
    bool flag;
    unsigned char hex[3];
    int extra;
};

static const char *const colours[] = {"red", "green"};

#define AT(member) offsetof(struct thing, member)
static const struct ct_json_field fields[] = {
    {ALWAYS, "text", CT_JSON_TEXT, AT(text), 8},
    {ALWAYS, "cut", CT_JSON_CUT, AT(cut), 5},
    {ALWAYS, "owned", CT_JSON_OWNED, AT(owned), 4},
    {ALWAYS, "number", CT_JSON_INT, AT(number), .min = -2, .max = 100},
    {ALWAYS, "wide", CT_JSON_I64, AT(wide), .min = 0, .max = CT_JSON_INT_MAX},
    {ALWAYS, "port", CT_JSON_PORT, AT(port)},
    {ALWAYS, "real", CT_JSON_REAL, AT(real)},
    {ALWAYS, "flag", CT_JSON_BOOL, AT(flag)},
    {ALWAYS, "hex", CT_JSON_HEX, AT(hex), 3},
    {ALWAYS, "name", CT_JSON_NAME, AT(name), 2, .names = colours},
    {SOMETIMES, "extra", CT_JSON_INT, AT(extra), .min = 0, .max = 9},
};
#define COUNT (sizeof(fields) / sizeof(fields[0]))

#define GOOD                                                                                  \
    "{\"text\":\"abc\",\"cut\":\"four\",\"owned\":\"own\",\"number\":-2,\"wide\":4294967296," \
    "\"port\":65535,\"real\":0.25,\"flag\":true,\"hex\":\"00ff7e\",\"name\":\"green\"}"

static int set_up(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    return 0;
}

static int read_text(const char *text, struct thing *out, struct ct_err *err)
{
    cJSON *json = cJSON_Parse(text);
    if (json == NULL) {
        return CT_ENOMEM;
    }
    int rc = ct_json_read_fields(json, fields, COUNT, ALWAYS, out, err);
    cJSON_Delete(json);
    return rc;
}

/* The good document with one member in another form. */
static int read_changed(const char *from, const char *to, struct thing *out, struct ct_err *err)
{
    char text[512];
    const char *at = strstr(GOOD, from);
    assert_non_null(at);
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - GOOD), GOOD, to, at + strlen(from));
    *out = (struct thing){.number = 0};
    *err = (struct ct_err){0};
    return read_text(text, out, err);
}

static void test_each_kind_is_read_and_written_the_same(void **state)
{
    struct thing thing = {.extra = 5};
    struct ct_err err = {0};
    (void)state;
    assert_int_equal(read_text(GOOD, &thing, &err), 0);
    assert_string_equal(thing.text, "abc");
    assert_string_equal(thing.cut, "four");
    assert_string_equal(thing.owned, "own");
    assert_int_equal(thing.number, -2);
    assert_true(thing.wide == INT64_C(4294967296));
    assert_int_equal(thing.port, 65535);
    assert_true(thing.real == 0.25);
    assert_true(thing.flag);
    assert_memory_equal(thing.hex, "\x00\xff\x7e", 3);
    assert_int_equal(thing.name, 1);
    assert_int_equal(thing.extra, 5); /* not in objects of this mask */

    cJSON *json = cJSON_CreateObject();
    assert_int_equal(ct_json_write_fields(json, fields, COUNT, ALWAYS, &thing), 0);
    char *text = cJSON_PrintUnformatted(json);
    assert_string_equal(text, GOOD);
    cJSON_free(text);
    assert_int_equal(ct_json_write_fields(json, fields, COUNT, SOMETIMES, &thing), 0);
    assert_true(ct_json_number(json, "extra", 0) == 5);
    cJSON_Delete(json);
    ct_free(thing.owned);
}

static void test_what_is_malformed_is_refused_by_field(void **state)
{
    static const struct {
        const char *from, *to, *want;
    } cases[] = {
        {"\"abc\"", "\"12345678\"", "field \"text\" is too long"},
        {"\"abc\"", "3", "field \"text\" must be a text"},
        {"\"owned\":\"own\"", "\"owned\":null", "field \"owned\" must be a text"},
        {"\"text\"", "\"Text\"", "field \"text\" is missing"},
        {"-2", "-3", "field \"number\" is out of range"},
        {"-2", "101", "field \"number\" is out of range"},
        {"-2", "1e999", "field \"number\" is out of range"},
        {"-2", "0.5", "field \"number\" must be a whole number"},
        {"-2", "\"2\"", "field \"number\" must be a number"},
        {"4294967296", "9007199254740994", "field \"wide\" is out of range"},
        {"65535", "65536", "field \"port\" is out of range"},
        {"65535", "-1", "field \"port\" is out of range"},
        {"0.25", "1e999", "field \"real\" must be a finite number or null"},
        {"0.25", "true", "field \"real\" must be a finite number or null"},
        {"true", "1", "field \"flag\" must be true or false"},
        {"00ff7e", "00ff7", "field \"hex\" must have the right number of hexadecimal digits"},
        {"00ff7e", "00ff7e00", "field \"hex\" must have the right number of hexadecimal digits"},
        {"00ff7e", "00fg7e", "field \"hex\" must have the right number of hexadecimal digits"},
        {"\"00ff7e\"", "7", "field \"hex\" must have the right number of hexadecimal digits"},
        {"\"green\"", "\"blue\"", "field \"name\" has an unknown value"},
        {"\"green\"", "1", "field \"name\" has an unknown value"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct thing thing;
        struct ct_err err;
        int rc = read_changed(cases[i].from, cases[i].to, &thing, &err);
        ct_free(thing.owned);
        if (rc != CT_EFORMAT || strcmp(err.text, cases[i].want) != 0) {
            fail_msg("%s: %d '%s'", cases[i].to, rc, err.text);
        }
    }
}

static void test_limits_are_within_the_range(void **state)
{
    struct thing thing;
    struct ct_err err;
    (void)state;
    assert_int_equal(read_changed("\"abc\"", "\"1234567\"", &thing, &err), 0);
    assert_string_equal(thing.text, "1234567");
    ct_free(thing.owned);
    assert_int_equal(read_changed("-2", "100", &thing, &err), 0);
    assert_int_equal(thing.number, 100);
    ct_free(thing.owned);
    assert_int_equal(read_changed("4294967296", "9007199254740992", &thing, &err), 0);
    assert_true(thing.wide == CT_JSON_INT_MAX);
    ct_free(thing.owned);
    assert_int_equal(read_changed("65535", "0", &thing, &err), 0);
    assert_int_equal(thing.port, 0);
    ct_free(thing.owned);
}

static void test_long_texts_are_cut_where_that_is_allowed(void **state)
{
    struct thing thing;
    struct ct_err err;
    (void)state;
    assert_int_equal(read_changed("\"four\"", "\"fives\"", &thing, &err), 0);
    assert_string_equal(thing.cut, "five");
    ct_free(thing.owned);
    assert_int_equal(read_changed("\"own\"", "\"owned\"", &thing, &err), 0);
    assert_string_equal(thing.owned, "owne");
    ct_free(thing.owned);
}

static void test_null_stands_for_what_is_not_known(void **state)
{
    struct thing thing;
    struct ct_err err;
    (void)state;
    assert_int_equal(read_changed("0.25", "null", &thing, &err), 0);
    assert_true(isnan(thing.real));
    ct_free(thing.owned);
    assert_int_equal(read_changed("\"owned\":\"own\",", "", &thing, &err), 0);
    assert_null(thing.owned);

    thing.real = NAN;
    cJSON *json = cJSON_CreateObject();
    assert_int_equal(ct_json_write_fields(json, fields, COUNT, ALWAYS, &thing), 0);
    assert_true(cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "real")));
    assert_null(cJSON_GetObjectItemCaseSensitive(json, "owned"));
    cJSON_Delete(json);
}

/* RFC 3629: continuation bytes, overlong forms, surrogates and what is above U+10FFFF. */
static void test_bytes_that_are_no_utf8_become_question_marks(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"a\x7f", "a\x7f"},
        {"\xc3\xbc", "\xc3\xbc"},
        {"\xe2\x82\xac", "\xe2\x82\xac"},
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\xf0\x90\x80\x80", "\xf0\x90\x80\x80"},
        {"\x80", "?"},
        {"\xc1\x81", "??"},
        {"\xc3", "?"},
        {"\xc3x", "?x"},
        {"\xe0\x9f\xbf", "???"},
        {"\xe0\xa0\x80", "\xe0\xa0\x80"},
        {"\xed\xa0\x80", "???"},
        {"\xed\x9f\xbf", "\xed\x9f\xbf"},
        {"\xe2\x82", "??"},
        {"\xf0\x8f\xbf\xbf", "????"},
        {"\xf4\x90\x80\x80", "????"},
        {"\xf5\x80\x80\x80", "????"},
        {"\xff", "?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct thing thing = {.number = 0};
        (void)snprintf(thing.text, sizeof(thing.text), "%s", cases[i].text);
        cJSON *json = cJSON_CreateObject();
        assert_int_equal(ct_json_write_fields(json, fields, 1, ALWAYS, &thing), 0);
        if (strcmp(ct_json_text(json, "text", ""), cases[i].want) != 0) {
            fail_msg("case %zu: %s", i, ct_json_text(json, "text", ""));
        }
        cJSON_Delete(json);
    }
}

static int read_and_write(void *data)
{
    struct thing thing = {.number = 0};
    (void)data;
    int rc = read_text(GOOD, &thing, NULL);
    cJSON *json = rc == 0 ? cJSON_CreateObject() : NULL;
    if (rc == 0) {
        rc = json == NULL ? CT_ENOMEM : ct_json_write_fields(json, fields, COUNT, ALWAYS, &thing);
    }
    cJSON_Delete(json);
    ct_free(thing.owned);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(read_and_write, NULL, 0) > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_kind_is_read_and_written_the_same),
        cmocka_unit_test(test_what_is_malformed_is_refused_by_field),
        cmocka_unit_test(test_limits_are_within_the_range),
        cmocka_unit_test(test_long_texts_are_cut_where_that_is_allowed),
        cmocka_unit_test(test_null_stands_for_what_is_not_known),
        cmocka_unit_test(test_bytes_that_are_no_utf8_become_question_marks),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
