/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of an arbiter is read as it was written, and no value is taken that this program could
 * not have written.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/etcd/arbiter_json.h"
#include "rendezvous/wire/json_fields.h"

#include <stdio.h>
#include <stdlib.h>

#define RECORD                                                                                \
    "{\"term\":4294967303,\"version\":2,\"restarts\":1,\"over\":false,"                       \
    "\"exit_code\":0,\"formed\":{\"generation\":0,\"voters\":[{\"id\":7,\"address\":\"::1\"," \
    "\"port\":1}]},\"planned\":{\"generation\":-1,\"voters\":[]}}"
#define HOST "{\"id\":7,\"address\":\"10.0.0.1\",\"port\":4711}"
#define NUMBERS(promised, to, host) \
    "\"promised\":" promised ",\"promised_to\":" to ",\"host_term\":" host ",\"ended\":false"
#define GOOD \
    "{" NUMBERS("4294967303", "7", "4294967303") ",\"host\":" HOST ",\"record\":" RECORD "}"

static struct ct_buf out;
static struct ct_err err;
static struct ct_arbiter_state back;

static int reset(void **state)
{
    (void)state;
    ct_buf_fini(&out);
    memset(&err, 0, sizeof(err));
    return 0;
}

static int read_text(const char *text)
{
    memset(&err, 0, sizeof(err));
    return ct_arbiter_json_read(text, strlen(text), &back, &err);
}

/* As large as a value can be: two worlds of as many voters as there may be. */
static struct ct_arbiter_state full(void)
{
    struct ct_arbiter_state state = {
        .promised = CT_TERM_MAX,
        .promised_to = CT_JSON_INT_MAX - 1,
        .host = {.id = CT_JSON_INT_MAX - 1, .address = "10.0.0.1", .port = 65535},
        .host_term = CT_TERM_MAX,
    };
    ct_job_record_init(&state.record);
    state.record.term = CT_TERM_MAX;
    state.record.version = CT_JSON_INT_MAX - 1;
    state.record.restarts = 4;
    state.record.over = state.record.ended = true;
    state.record.exit_code = 255;
    state.record.formed.generation = 3;
    state.record.planned.generation = 4;
    state.record.formed.count = state.record.planned.count = CT_VOTERS_MAX;
    for (int i = 0; i < CT_VOTERS_MAX; i++) {
        struct ct_voter voter = {.id = (uint64_t)(CT_JSON_INT_MAX - 1 - i), .port = 65535};
        (void)snprintf(voter.address, sizeof(voter.address),
                       "2001:db8:ffff:ffff:ffff:ffff:ffff:%04x", i + 0x1000);
        state.record.formed.list[i] = state.record.planned.list[i] = voter;
    }
    return state;
}

static void check_same(const struct ct_world_voters *a, const struct ct_world_voters *b)
{
    assert_true(a->generation == b->generation && a->count == b->count);
    for (int i = 0; i < a->count; i++) {
        assert_true(a->list[i].id == b->list[i].id && a->list[i].port == b->list[i].port);
        assert_string_equal(a->list[i].address, b->list[i].address);
    }
}

static void test_the_largest_value_is_read_as_it_was_written(void **state)
{
    struct ct_arbiter_state value = full();
    (void)state;
    assert_int_equal(ct_arbiter_json_write(&value, &out), 0);
    assert_int_equal(read_text(ct_buf_cstr(&out)), 0);
    assert_true(back.promised == value.promised && back.promised_to == value.promised_to);
    assert_true(back.host.id == value.host.id && back.host.port == value.host.port);
    assert_string_equal(back.host.address, value.host.address);
    assert_true(back.host_term == value.host_term);
    assert_int_equal(ct_job_record_compare(&back.record, &value.record), 0);
    assert_int_equal(back.record.restarts, 4);
    assert_true(back.record.over && back.record.ended);
    assert_int_equal(back.record.exit_code, 255);
    check_same(&back.record.formed, &value.record.formed);
    check_same(&back.record.planned, &value.record.planned);
}

static void test_a_vote_is_written_without_a_host_and_a_record(void **state)
{
    struct ct_arbiter_state value = {.promised = 4294967303, .promised_to = 7};
    (void)state;
    ct_job_record_init(&value.record);
    assert_int_equal(ct_arbiter_json_write(&value, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "{" NUMBERS("4294967303", "7", "0") "}\n");
    memset(&back, 0xff, sizeof(back));
    assert_int_equal(read_text(ct_buf_cstr(&out)), 0);
    assert_true(back.promised == 4294967303 && back.promised_to == 7);
    assert_true(back.host.id == 0 && back.host_term == 0);
    assert_true(back.record.version == 0 && !back.record.ended);
    assert_int_equal(back.record.formed.generation, -1);
    assert_int_equal(back.record.planned.generation, -1);
}

static void test_a_hostile_value_is_refused_by_the_name_of_what_is_wrong(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "JSON"},
        {"not JSON", "JSON"},
        {"{\"promised\":1", "JSON"},
        {"[]", "JSON"},
        {"null", "JSON"},
        {"7", "JSON"},
        {GOOD "x", "JSON"},
        {GOOD GOOD, "JSON"},
        {"{}", "promised"},
        {"{\"promised_to\":7,\"host_term\":0}", "promised"},
        {"{\"promised\":4294967303,\"host_term\":0}", "promised_to"},
        {"{\"promised\":4294967303,\"promised_to\":7}", "host_term"},
        {"{\"promised\":1,\"promised_to\":7,\"host_term\":0}", "ended"},
        {"{\"promised\":1,\"promised_to\":7,\"host_term\":0,\"ended\":7}", "ended"},
        {"{\"promised\":1,\"promised_to\":7,\"host_term\":0,\"ended\":true}", "has ended"},
        {"{\"promised\":1,\"promised_to\":7,\"host_term\":0,\"ended\":true,\"record\":" RECORD "}",
         "has ended"},
        {"{" NUMBERS("\"1\"", "7", "0") "}", "promised"},
        {"{" NUMBERS("1", "true", "0") "}", "promised_to"},
        {"{" NUMBERS("1", "7", "[0]") "}", "host_term"},
        {"{" NUMBERS("-1", "7", "0") "}", "promised"},
        {"{" NUMBERS("1.5", "7", "0") "}", "promised"},
        {"{" NUMBERS("1e300", "7", "0") "}", "promised"},
        {"{" NUMBERS("4503599627370496", "7", "0") "}", "promised"}, /* CT_TERM_MAX + 1 */
        {"{" NUMBERS("18446744073709551615", "7", "0") "}", "promised"},
        {"{" NUMBERS("1", "9007199254740992", "0") "}", "promised_to"},
        {"{" NUMBERS("1", "18446744073709551615", "0") "}", "promised_to"}, /* CT_ARBITER_ID */
        {"{" NUMBERS("1", "7", "4503599627370496") ",\"host\":" HOST "}", "host_term"},
        {"{" NUMBERS("1", "7", "0") ",\"host\":" HOST "}", "a host must have a term"},
        {"{" NUMBERS("1", "7", "1") "}", "a host must have a term"},
        {"{" NUMBERS("1", "0", "0") "}", "a vote must have a term"},
        {"{" NUMBERS("0", "7", "0") "}", "a vote must have a term"},
        {"{" NUMBERS("1", "7", "1") ",\"host\":7}", "voter"},
        {"{" NUMBERS("1", "7", "1") ",\"host\":{}}", "id"},
        {"{" NUMBERS("1", "7", "1") ",\"host\":{\"id\":0,\"address\":\"::1\",\"port\":1}}", "id"},
        {"{" NUMBERS("1", "7", "1") ",\"host\":{\"id\":7,\"address\":\"::1\",\"port\":0}}", "port"},
        {"{" NUMBERS("1", "7", "1") ",\"host\":{\"id\":7,\"address\":\"evil.example\",\"port\":1}}",
         "address"},
        {"{" NUMBERS("1", "7", "0") ",\"record\":[]}", "record"},
        {"{" NUMBERS("1", "7", "0") ",\"record\":{}}", "term"},
    };
    (void)state;
    assert_int_equal(read_text(GOOD), 0);
    assert_int_equal(read_text(" " GOOD " \r\n\t"), 0); /* a person may have written it */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int rc = read_text(cases[i].text);
        if (rc != CT_EFORMAT || strstr(err.text, cases[i].why) == NULL) {
            fail_msg("%s: %d, \"%s\"", cases[i].text, rc, err.text);
        }
    }
}

/* The text is not ended by a NUL. */
static void test_no_byte_after_the_end_is_read(void **state)
{
    size_t len = sizeof(GOOD) - 1;
    (void)state;
    for (size_t cut = 1; cut < len; cut++) {
        char *text = malloc(len - cut);
        assert_non_null(text);
        memcpy(text, GOOD, len - cut);
        assert_int_equal(ct_arbiter_json_read(text, len - cut, &back, &err), CT_EFORMAT);
        free(text);
    }
}

static void test_seventy_thousand_bytes_are_no_value(void **state)
{
    enum { LEN = 70000 };
    static const char head[] = "{" NUMBERS("1", "7", "1") ",\"host\":{\"id\":7,\"address\":\"";
    char *text = malloc(LEN);
    (void)state;
    assert_non_null(text);
    memset(text, '[', LEN);
    assert_int_equal(ct_arbiter_json_read(text, LEN, &back, &err), CT_EFORMAT);
    memset(text, 0xff, LEN);
    assert_int_equal(ct_arbiter_json_read(text, LEN, &back, &err), CT_EFORMAT);
    memset(text, '1', LEN); /* an address */
    memcpy(text, head, sizeof(head) - 1);
    memcpy(text + LEN - 12, "\",\"port\":1}}", 12);
    assert_int_equal(ct_arbiter_json_read(text, LEN, &back, &err), CT_EFORMAT);
    assert_non_null(strstr(err.text, "address"));
    free(text);
}

static int write_once(void *data)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_arbiter_json_write(data, &text);
    ct_buf_fini(&text);
    return rc;
}

/* The parser does not tell why it fails. */
static int read_once(void *data)
{
    struct ct_err why = {0};
    int rc = ct_arbiter_json_read(data, strlen(data), &back, &why);
    return rc != 0 ? CT_ENOMEM : 0;
}

static void test_memory_may_run_out(void **state)
{
    struct ct_arbiter_state value = full();
    char text[] = GOOD;
    (void)state;
    value.record.formed.count = value.record.planned.count = 2;
    assert_true(ct_fault_sweep(write_once, &value, 0) > 10);
    assert_true(ct_fault_sweep(read_once, text, 0) > 10);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, reset)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_the_largest_value_is_read_as_it_was_written),
        TEST(test_a_vote_is_written_without_a_host_and_a_record),
        TEST(test_a_hostile_value_is_refused_by_the_name_of_what_is_wrong),
        TEST(test_no_byte_after_the_end_is_read),
        TEST(test_seventy_thousand_bytes_are_no_value),
        TEST(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
