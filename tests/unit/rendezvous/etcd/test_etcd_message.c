/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies for etcd byte by byte, and its replies: real ones of etcd 3.4, those of 3.6, and hostile
 * ones.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "rendezvous/etcd/etcd_message.h"

#include <stdio.h>
#include <stdlib.h>

#define HEADER "\"header\":{\"cluster_id\":\"3249\",\"revision\":\"7\",\"raft_term\":\"2\"}"
#define NOT_ETCD "the reply is not the JSON of etcd"

static struct ct_buf out;
static struct ct_err err;
static struct ct_etcd_shape shape;
static struct ct_etcd_reply reply;

static int reset(void **state)
{
    (void)state;
    ct_buf_fini(&out);
    ct_etcd_reply_fini(&reply);
    memset(&err, 0, sizeof(err));
    return 0;
}

/* If "k" was never changed it is put, else it is read. */
static const struct ct_etcd_txn claim = {
    .compares = {{.key = "k"}},
    .num_compares = 1,
    .then = {{.what = CT_ETCD_PUT, .key = "k", .value = "\0v", .len = 2, .lease = 77},
             {.what = CT_ETCD_PUT, .key = "other"}},
    .num_then = 2,
    .otherwise = {{.what = CT_ETCD_GET, .key = "k"}, {.what = CT_ETCD_GET, .key = "other"}},
    .num_otherwise = 2,
};

static void test_requests_have_the_form_of_etcd(void **state)
{
    (void)state;
    assert_int_equal(ct_etcd_message_txn(&claim, &shape, &out, &err), 0);
    assert_string_equal(
        ct_buf_cstr(&out),
        "{\"compare\":[{\"result\":\"EQUAL\",\"target\":\"MOD\",\"mod_revision\":\"0\","
        "\"key\":\"aw==\"}],"
        "\"success\":[{\"request_put\":{\"key\":\"aw==\",\"lease\":\"77\",\"value\":\"AHY=\"}},"
        "{\"request_put\":{\"key\":\"b3RoZXI=\",\"lease\":\"0\",\"value\":\"\"}}],"
        "\"failure\":[{\"request_range\":{\"key\":\"aw==\"}},"
        "{\"request_range\":{\"key\":\"b3RoZXI=\"}}]}");
    ct_buf_reset(&out);
    const struct ct_etcd_txn nothing = {
        .compares = {{.key = "k", .mod_revision = INT64_MAX}},
        .num_compares = 1,
    };
    assert_int_equal(ct_etcd_message_txn(&nothing, &shape, &out, &err), 0);
    assert_string_equal(ct_buf_cstr(&out),
                        "{\"compare\":[{\"result\":\"EQUAL\",\"target\":\"MOD\","
                        "\"mod_revision\":\"9223372036854775807\",\"key\":\"aw==\"}],"
                        "\"success\":[],\"failure\":[]}");
    ct_buf_reset(&out);
    assert_int_equal(ct_etcd_message_grant(10, &out, &err), 0);
    assert_int_equal(ct_etcd_message_keep_alive(77, &out, &err), 0);
    assert_string_equal(ct_buf_cstr(&out), "{\"TTL\":\"10\"}{\"ID\":\"77\"}");
    ct_buf_reset(&out);
    assert_int_equal(ct_etcd_message_login("j\"oe", "\\\n\xc3\xa9", &out), 0);
    assert_string_equal(ct_buf_cstr(&out),
                        "{\"name\":\"j\\u0022oe\",\"password\":\"\\u005c\\u000a\xc3\xa9\"}");
    assert_string_equal(ct_etcd_message_path(CT_ETCD_TXN), "/v3/kv/txn");
    assert_string_equal(ct_etcd_message_path(CT_ETCD_LOGIN), "/v3/auth/authenticate");
}

static void test_wrong_requests_are_refused(void **state)
{
    static char key[CT_ETCD_KEY_MAX + 2], value[CT_ETCD_VALUE_MAX + 1];
    struct ct_etcd_txn txn = {.then = {{.what = CT_ETCD_PUT, .key = key, .value = value}},
                              .num_then = 1};
    (void)state;
    memset(key, 'k', CT_ETCD_KEY_MAX);
    txn.then[0].len = CT_ETCD_VALUE_MAX;
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), 0);
    txn.then[0].len++;
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    assert_string_equal(err.text, "a value for etcd is longer than 65536 bytes");
    txn.then[0].len = 0;
    txn.then[0].lease = -1;
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    key[CT_ETCD_KEY_MAX] = 'k';
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    assert_string_equal(err.text, "a key of etcd is longer than 512 bytes");
    key[0] = '\0';
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    txn.num_then = CT_ETCD_OPS_MAX + 1;
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    txn.num_then = -1;
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    txn.num_then = 0;
    txn.num_compares = 1;
    txn.compares[0] = (struct ct_etcd_compare){.key = "k", .mod_revision = -1};
    assert_int_equal(ct_etcd_message_txn(&txn, &shape, &out, &err), CT_EINVAL);
    assert_int_equal(ct_etcd_message_grant(0, &out, &err), CT_EINVAL);
    assert_int_equal(ct_etcd_message_grant(CT_ETCD_TTL_MAX_S + 1, &out, &err), CT_EINVAL);
    assert_int_equal(ct_etcd_message_keep_alive(0, &out, &err), CT_EINVAL);
}

static enum ct_etcd_next read_text(enum ct_etcd_call call, long status, const char *text)
{
    struct ct_buf unused = CT_BUF_INIT;
    ct_etcd_reply_fini(&reply);
    assert_int_equal(ct_etcd_message_txn(&claim, &shape, &unused, &err), 0);
    ct_buf_fini(&unused);
    return ct_etcd_message_read(call, &shape, status, text, strlen(text), &reply);
}

static void test_transactions_are_understood(void **state)
{
    (void)state;
    assert_int_equal(read_text(CT_ETCD_TXN, 200,
                               "{" HEADER
                               ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":"
                               "{\"revision\":\"2\"}}},{\"response_put\":{}}]}\n"),
                     CT_ETCD_DONE);
    assert_int_equal(reply.rc, 0);
    assert_true(reply.succeeded);
    assert_int_equal(reply.revision, 7);
    assert_string_equal(reply.cluster, "3249");
    assert_int_equal(reply.num_values, 0);

    /* Numbers may be numbers, and an empty value is left out. */
    assert_int_equal(
        read_text(CT_ETCD_TXN, 200,
                  "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"aw==\","
                  "\"create_revision\":\"2\",\"mod_revision\":9007199254740991,\"version\":\"1\","
                  "\"lease\":\"9223372036854775807\",\"value\":\"AHY=\"}],\"count\":\"1\"}},"
                  "{\"response_range\":{\"kvs\":[{\"key\":\"b3RoZXI=\",\"create_revision\":\"4\","
                  "\"mod_revision\":\"5\"}]}}]}"),
        CT_ETCD_DONE);
    assert_false(reply.succeeded);
    assert_int_equal(reply.num_values, 2);
    assert_true(reply.values[0].found);
    assert_int_equal(reply.values[0].len, 2);
    assert_memory_equal(reply.values[0].bytes, "\0v", 3);
    assert_true(reply.values[0].mod_revision == INT64_C(9007199254740991));
    assert_true(reply.values[1].found);
    assert_string_equal(reply.values[1].bytes, "");
    assert_int_equal(reply.values[1].mod_revision, 5);

    assert_int_equal(read_text(CT_ETCD_TXN, 200,
                               "{" HEADER ",\"succeeded\":false,\"responses\":["
                               "{\"response_range\":{}},{\"response_range\":{\"kvs\":[]}}]}"),
                     CT_ETCD_DONE);
    assert_int_equal(reply.num_values, 2);
    assert_false(reply.values[0].found);
    assert_string_equal(reply.values[0].bytes, "");
    assert_false(reply.values[1].found);
}

static void test_leases_are_understood(void **state)
{
    (void)state;
    assert_int_equal(read_text(CT_ETCD_GRANT, 200, "{" HEADER ",\"ID\":\"23\",\"TTL\":\"5\"}"),
                     CT_ETCD_DONE);
    assert_int_equal(reply.lease, 23);
    assert_int_equal(reply.ttl_s, 5);
    assert_int_equal(
        read_text(CT_ETCD_KEEP_ALIVE, 200, "{\"result\":{" HEADER ",\"ID\":\"23\",\"TTL\":5}}\n"),
        CT_ETCD_DONE);
    assert_int_equal(reply.ttl_s, 5);
    /* One that has ended. */
    assert_int_equal(read_text(CT_ETCD_KEEP_ALIVE, 200, "{\"result\":{" HEADER ",\"ID\":\"23\"}}"),
                     CT_ETCD_DONE);
    assert_int_equal(reply.lease, 23);
    assert_int_equal(reply.ttl_s, 0);
    /* None was asked for, so none can have ended. */
    assert_int_equal(
        read_text(CT_ETCD_GRANT, 404, "{\"code\":5,\"message\":\"requested lease not found\"}"),
        CT_ETCD_GIVE_UP);
    assert_string_equal(reply.err.text, "it refuses the request: requested lease not found");
}

/* `next`, the code and the text of what a member says. */
static void test_errors_are_told_apart(void **state)
{
    static const struct {
        const char *text;
        long status;
        enum ct_etcd_next next;
        int rc;
        const char *message;
    } cases[] = {
        {"{\"error\":\"etcdserver: user name is empty\",\"message\":\"etcdserver: user name is "
         "empty\",\"code\":3}",
         400, CT_ETCD_RELOGIN, CT_EPERM,
         "it wants a user name and a password: set ETCDCTL_USER and ETCDCTL_PASSWORD"},
        {"{\"error\":\"etcdserver: invalid auth token\",\"message\":\"etcdserver: invalid auth "
         "token\",\"code\":16}",
         401, CT_ETCD_RELOGIN, CT_EIO,
         "it does not accept the login: etcdserver: invalid auth token"},
        {"{\"message\":\"etcdserver: revision of auth store is old\",\"code\":3}", 400,
         CT_ETCD_RELOGIN, CT_EIO,
         "it does not accept the login: etcdserver: revision of auth store is old"},
        {"{\"error\":\"etcdserver: permission denied\",\"message\":\"etcdserver: permission "
         "denied\",\"code\":7}",
         403, CT_ETCD_GIVE_UP, CT_EPERM,
         "the user may not read and write the job's key: grant it a role that may readwrite the "
         "prefix /ctrun/ (etcdctl role grant-permission): etcdserver: permission denied"},
        {"{\"code\":5,\"message\":\"etcdserver: requested lease not found\",\"details\":[]}", 404,
         CT_ETCD_GIVE_UP, CT_ENOENT, "the lease has ended"},
        {"{\"code\":14,\"message\":\"etcdserver: request timed out\",\"details\":[]}", 503,
         CT_ETCD_ELSEWHERE, CT_EIO, "it cannot answer now: etcdserver: request timed out"},
        {"{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"etcdserver: no leader\","
         "\"http_status\":\"Service Unavailable\"}}",
         200, CT_ETCD_ELSEWHERE, CT_EIO, "it cannot answer now: etcdserver: no leader"},
        {"{\"error\":{\"code\":14,\"message\":\"etcdserver: no leader\"}}", 200, CT_ETCD_ELSEWHERE,
         CT_EIO, "it cannot answer now: etcdserver: no leader"},
        {"{\"error\":\"etcdserver: duplicate key given in txn request\",\"message\":\"etcdserver: "
         "duplicate key given in txn request\",\"code\":3}",
         400, CT_ETCD_GIVE_UP, CT_EINVAL,
         "it refuses the request: etcdserver: duplicate key given in txn request"},
        {"Not Found\n", 404, CT_ETCD_ELSEWHERE, CT_EPROTO,
         "no etcd of version 3.4 or newer answers there (HTTP status 404)"},
        {"<html>", 302, CT_ETCD_ELSEWHERE, CT_EPROTO,
         "no etcd of version 3.4 or newer answers there (HTTP status 302)"},
        {"", 502, CT_ETCD_ELSEWHERE, CT_EPROTO, /* of a proxy */
         "no etcd of version 3.4 or newer answers there (HTTP status 502)"},
        {"{\"error\":1,\"code\":\"x\",\"message\":[]}", 400, CT_ETCD_ELSEWHERE, CT_EPROTO,
         "no etcd of version 3.4 or newer answers there (HTTP status 400)"},
        {"{\"error\":null}", 200, CT_ETCD_ELSEWHERE, CT_EPROTO,
         "no etcd of version 3.4 or newer answers there (HTTP status 200)"},
        {"{\"code\":3,\"message\":\"a\\u001b[31m\\nb\"}", 400, CT_ETCD_GIVE_UP, CT_EINVAL,
         "it refuses the request: a?[31m?b"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(read_text(CT_ETCD_TXN, cases[i].status, cases[i].text), cases[i].next);
        assert_int_equal(reply.rc, cases[i].rc);
        assert_string_equal(reply.err.text, cases[i].message);
    }
}

static void test_hostile_replies_are_refused(void **state)
{
#define KV(fields)                                                      \
    "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{" fields \
    "}]}},{\"response_range\":{}}]}"
#define KEY "\"key\":\"aw==\","
#define REVISION "\"mod_revision\":\"1\""
    static const char *const txns[] = {
        "",
        "{",
        "{}",
        "[]",
        "null",
        "\"\"",
        "{" HEADER "",
        "{" HEADER "} x",
        "{\"header\":1}",
        "{\"header\":{\"revision\":\"x\"}}",
        "{" HEADER "}",
        "{" HEADER ",\"succeeded\":1,\"responses\":[]}",
        "{" HEADER ",\"responses\":{}}",
        "{" HEADER ",\"responses\":[]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_put\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_range\":1}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_range\":{}},{}]}",
        "{" HEADER ",\"responses\":[1,2]}",
        "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{}},"
        "{\"response_range\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":1}},{\"response_range\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[1]}},{\"response_range\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{" KEY REVISION "},{" KEY REVISION
        "}]}},{\"response_range\":{}}]}",
        KV(REVISION),                               /* no key */
        KV("\"key\":\"eA==\"," REVISION),           /* another key */
        KV("\"key\":\"aw\"," REVISION),             /* no padding */
        KV("\"key\":7," REVISION),                  /* no text */
        KV(KEY "\"create_revision\":\"1\""),        /* never changed */
        KV(KEY REVISION ",\"value\":\"A\""),        /* no base64 */
        KV(KEY REVISION ",\"value\":\"AHY=AHY=\""), /* two */
        KV(KEY REVISION ",\"value\":\"AH Y=\""),    /* a blank */
        KV(KEY REVISION ",\"value\":\"AHY_\""),     /* the other alphabet */
        KV(KEY REVISION ",\"value\":{}"),           /* no text */
        KV(KEY "\"mod_revision\":\"-1\""),          /* negative */
        KV(KEY "\"mod_revision\":\"9223372036854775808\""),
        KV(KEY "\"mod_revision\":\"1e3\""),
        KV(KEY "\"mod_revision\":\"\""),
        KV(KEY "\"mod_revision\":1.5"),
        KV(KEY "\"mod_revision\":1e300"),
        KV(KEY "\"mod_revision\":-1"),
        KV(KEY "\"mod_revision\":true"),
        KV(KEY "\"mod_revision\":[]"),
    };
    static const char *const leases[] = {
        "{" HEADER "}",
        "{" HEADER ",\"ID\":\"0\",\"TTL\":\"5\"}",
        "{" HEADER ",\"ID\":\"-5\",\"TTL\":\"5\"}",
        "{" HEADER ",\"ID\":\"5\"}",
        "{" HEADER ",\"ID\":\"5\",\"TTL\":\"-5\"}",
        "{" HEADER ",\"ID\":\"5\",\"TTL\":\"1000000001\"}",
        "{\"ID\":\"5\",\"TTL\":\"5\"}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(txns) / sizeof(txns[0]); i++) {
        assert_int_equal(read_text(CT_ETCD_TXN, 200, txns[i]), CT_ETCD_ELSEWHERE);
        assert_int_equal(reply.rc, CT_EPROTO);
        assert_string_equal(reply.err.text, NOT_ETCD);
        assert_int_equal(reply.num_values, 0);
    }
    for (size_t i = 0; i < sizeof(leases) / sizeof(leases[0]); i++) {
        assert_int_equal(read_text(CT_ETCD_GRANT, 200, leases[i]), CT_ETCD_ELSEWHERE);
        assert_int_equal(reply.rc, CT_EPROTO);
        assert_int_equal(read_text(CT_ETCD_KEEP_ALIVE, 200, leases[i]), CT_ETCD_ELSEWHERE);
    }
}

/* A reply to a GET of `claim` with a value of `len` bytes. */
static char *long_reply(size_t len)
{
    static const char head[] =
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{" KEY REVISION ",\"value\":\"";
    static const char tail[] = "\"}]}},{\"response_range\":{}}]}";
    size_t digits = (len + 2) / 3 * 4, padding = (3 - len % 3) % 3;
    char *text = malloc(sizeof(head) + digits + sizeof(tail));
    assert_non_null(text);
    memcpy(text, head, sizeof(head) - 1);
    memset(text + sizeof(head) - 1, 'A', digits - padding);
    memset(text + sizeof(head) - 1 + digits - padding, '=', padding);
    memcpy(text + sizeof(head) - 1 + digits, tail, sizeof(tail));
    return text;
}

static void test_long_replies_are_refused(void **state)
{
    static const struct {
        size_t len;
        enum ct_etcd_next next;
        int rc;
    } cases[] = {
        {65535, CT_ETCD_DONE, 0},
        {65536, CT_ETCD_DONE, 0},
        {65537, CT_ETCD_GIVE_UP, CT_ELIMIT},
        {65538, CT_ETCD_GIVE_UP, CT_ELIMIT},
        {65541, CT_ETCD_GIVE_UP, CT_ELIMIT},
        {999999, CT_ETCD_ELSEWHERE, CT_ELIMIT},
    };
    static const char too_long[] =
        "the value has more than 65536 bytes, so it is not ctrun's: delete it";
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = long_reply(cases[i].len);
        assert_int_equal(read_text(CT_ETCD_TXN, 200, text), cases[i].next);
        assert_int_equal(reply.rc, cases[i].rc);
        assert_int_equal(reply.num_values > 0 ? reply.values[0].len : 0,
                         cases[i].rc == 0 ? cases[i].len : 0);
        assert_true(cases[i].next != CT_ETCD_GIVE_UP || strcmp(reply.err.text, too_long) == 0);
        free(text);
    }
}

static enum ct_etcd_next read_login(long status, const char *text, char **token, int *rc)
{
    *token = NULL;
    *rc = 0;
    return ct_etcd_message_read_login(status, text, strlen(text), token, rc, &err);
}

static void test_replies_to_a_login_are_read(void **state)
{
    static const char *const bad[] = {
        "{" HEADER "}",
        "{" HEADER ",\"token\":\"\"}",
        "{" HEADER ",\"token\":7}",
        "{" HEADER ",\"token\":\"a\\r\\nX: y\"}",
        "{" HEADER ",\"token\":\"a b\"}",
        "x",
    };
    char *token;
    int rc;
    (void)state;
    assert_int_equal(read_login(200, "{" HEADER ",\"token\":\"otIZJWRd.19\"}", &token, &rc),
                     CT_ETCD_DONE);
    assert_string_equal(token, "otIZJWRd.19");
    ct_free(token);
    assert_int_equal(read_login(412,
                                "{\"error\":\"etcdserver: authentication is not enabled\","
                                "\"message\":\"etcdserver: authentication is not enabled\","
                                "\"code\":9}",
                                &token, &rc),
                     CT_ETCD_DONE);
    assert_string_equal(token, "");
    ct_free(token);
    assert_int_equal(read_login(400,
                                "{\"message\":\"etcdserver: authentication failed, invalid user ID "
                                "or password\",\"code\":3}",
                                &token, &rc),
                     CT_ETCD_GIVE_UP);
    assert_int_equal(rc, CT_EPERM);
    assert_string_equal(err.text,
                        "authentication failed: wrong user name or password, see ETCDCTL_USER and "
                        "ETCDCTL_PASSWORD");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_login(200, bad[i], &token, &rc), CT_ETCD_ELSEWHERE);
        assert_int_equal(rc, CT_EPROTO);
        assert_null(token);
    }
    /* A server that repeats what it was sent does not bring the password into a message. */
    assert_int_equal(read_login(501, "<html>", &token, &rc), CT_ETCD_ELSEWHERE);
    assert_int_equal(rc, CT_EPROTO);
    assert_string_equal(err.text, "no etcd of version 3.4 or newer answers the login there (HTTP "
                                  "status 501)");
    assert_int_equal(read_login(400, "{\"message\":\"bad secret\",\"code\":3}", &token, &rc),
                     CT_ETCD_ELSEWHERE);
    assert_null(strstr(err.text, "secret"));
}

static int ask_and_read(void *data)
{
    char *text = data;
    struct ct_buf body = CT_BUF_INIT;
    struct ct_etcd_shape kept;
    struct ct_etcd_reply got = {.rc = 0};
    int rc = ct_etcd_message_txn(&claim, &kept, &body, NULL);
    if (rc == 0) {
        ct_buf_reset(&body);
        rc = ct_etcd_message_login("joe", "secret", &body);
    }
    ct_buf_fini(&body);
    if (rc == 0 &&
        ct_etcd_message_read(CT_ETCD_TXN, &kept, 200, text, strlen(text), &got) != CT_ETCD_DONE) {
        rc = got.rc == CT_EPROTO ? CT_ENOMEM : got.rc; /* cJSON does not say why it fails */
    }
    ct_etcd_reply_fini(&got);
    return rc;
}

static void test_memory_may_run_out(void **state)
{
    static char text[] = KV(KEY REVISION ",\"value\":\"AHY=\"");
    (void)state;
    assert_true(ct_fault_sweep(ask_and_read, text, 0) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_requests_have_the_form_of_etcd, reset),
        cmocka_unit_test_teardown(test_wrong_requests_are_refused, reset),
        cmocka_unit_test_teardown(test_transactions_are_understood, reset),
        cmocka_unit_test_teardown(test_leases_are_understood, reset),
        cmocka_unit_test_teardown(test_errors_are_told_apart, reset),
        cmocka_unit_test_teardown(test_hostile_replies_are_refused, reset),
        cmocka_unit_test_teardown(test_long_replies_are_refused, reset),
        cmocka_unit_test_teardown(test_replies_to_a_login_are_read, reset),
        cmocka_unit_test_teardown(test_memory_may_run_out, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
