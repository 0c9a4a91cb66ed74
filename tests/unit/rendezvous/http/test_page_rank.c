/* SPDX-License-Identifier: Apache-2.0
 *
 * What the live page shows of one worker, and to whom: links that can be used once, and the token.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "rendezvous/control/worker_rows.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/http/page_rank.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/fault.h"

#include <stdio.h>
#include <string.h>

static struct ct_worker_row rows_of_node[2] = {{.rank = 4, .state = CT_ROW_RUNNING},
                                               {.rank = 5, .state = CT_ROW_FAILED}};

static int make_status(void *data, struct ct_status_rows *rows, cJSON **out)
{
    (void)data;
    rows->spans = ct_calloc(1, sizeof(rows->spans[0]));
    *out =
        cJSON_Parse("{\"job\":{\"failures\":[{\"rank\":5,\"tail\":[\"old\"]},{\"rank\":9,\"tail\":["
                    "\"gone\"]},{\"rank\":5,\"tail\":[\"a\",\"b\"]}]}}");
    if (rows->spans == NULL || *out == NULL) {
        cJSON_Delete(*out);
        return CT_ENOMEM;
    }
    rows->spans[0] = (struct ct_row_span){.first_rank = 4, .count = 2, .rows = rows_of_node};
    rows->count = rows->room = 1;
    return 0;
}

static const struct ct_http_source source = {.status = make_status};

/* The first job of the store has ended. Both others have a rank 4. */
static int make_two_jobs(void *data, struct ct_status_rows *rows, cJSON **out)
{
    int rc = make_status(data, rows, out);
    if (rc != 0) {
        return rc;
    }
    cJSON_Delete(*out);
    *out = cJSON_Parse("{\"jobs\":[{\"number\":1,\"failures\":[{\"rank\":4,\"tail\":[\"first\"]}]},"
                       "{\"number\":2,\"failures\":[{\"rank\":4,\"tail\":[\"second\"]}]}]}");
    rows->spans[0].job = 1;
    return *out != NULL ? 0 : CT_ENOMEM;
}

/* The answer as text; "" when it is no 200. */
static void ask(const char *path, bool trusted, char *out, size_t max)
{
    struct ct_http_answer answer;
    ct_page_rank_answer(&source, trusted, path, &answer);
    (void)snprintf(out, max, "%s", answer.code == 200 ? ct_buf_cstr(&answer.body) : "");
    ct_buf_fini(&answer.body);
}

static void test_a_worker_is_shown_with_its_last_lines(void **state)
{
    char text[1024];
    (void)state;
    ask("/page/rank/0/4", true, text, sizeof(text));
    assert_non_null(strstr(text, "\"rank\":4"));
    assert_non_null(strstr(text, "\"state\":\"running\""));
    assert_non_null(strstr(text, "\"tail\":[],\"locked\":false"));
    ask("/page/rank/0/5", true, text, sizeof(text));
    assert_non_null(strstr(text, "\"state\":\"failed\""));
    assert_non_null(strstr(text, "\"tail\":[\"a\",\"b\"],\"locked\":false"));
    ask("/page/rank/0/9", true, text, sizeof(text)); /* its node is gone */
    assert_non_null(strstr(text, "{\"worker\":null,\"tail\":[\"gone\"]"));
}

static void test_a_job_is_found_by_its_number_not_by_its_place(void **state)
{
    static const struct {
        const char *path, *worker, *tail;
    } rows[] = {
        {"/page/rank/1/4", "\"worker\":null", "[\"first\"]"},
        {"/page/rank/2/4", "\"state\":\"running\"", "[\"second\"]"},
    };
    static const struct ct_http_source two = {.status = make_two_jobs};
    struct ct_http_answer answer;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        ct_page_rank_answer(&two, true, rows[i].path, &answer);
        assert_int_equal(answer.code, 200);
        assert_non_null(strstr(ct_buf_cstr(&answer.body), rows[i].worker));
        assert_non_null(strstr(ct_buf_cstr(&answer.body), rows[i].tail));
        ct_buf_fini(&answer.body);
    }
    ct_page_rank_answer(&two, true, "/page/rank/0/4", &answer);
    assert_int_equal(answer.code, 404);
    ct_buf_fini(&answer.body);
}

static void test_strangers_see_no_lines(void **state)
{
    char text[1024];
    (void)state;
    ask("/page/rank/0/5", false, text, sizeof(text));
    assert_non_null(strstr(text, "\"rank\":5"));
    assert_non_null(strstr(text, "\"tail\":[],\"locked\":true"));
    ask("/page/rank/0/4", false, text, sizeof(text)); /* it has not failed, but may be asked */
    assert_non_null(strstr(text, "\"tail\":[],\"locked\":true"));
}

static void test_a_path_that_names_no_worker_gets_nothing(void **state)
{
    static const char *const paths[] = {"",    "0",   "0/",   "/0",    "0/6",
                                        "1/4", "x/4", "0/-4", "0/4/4", "99999999999999999/4"};
    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        char path[64], text[1024];
        (void)snprintf(path, sizeof(path), "/page/rank/%s", paths[i]);
        ask(path, true, text, sizeof(text));
        assert_string_equal(text, "");
    }
}

static int ask_once(void *data)
{
    struct ct_http_answer answer;
    (void)data;
    ct_page_rank_answer(&source, true, "/page/rank/0/5", &answer);
    ct_buf_fini(&answer.body);
    return answer.code == 200 ? 0 : CT_ENOMEM;
}

static void test_memory_that_runs_out_leaves_nothing(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    assert_true(ct_fault_sweep(ask_once, NULL, 0) > 10);
}

static void header_of(const struct ct_token *token, char out[CT_TOKEN_MAX + 16])
{
    (void)snprintf(out, CT_TOKEN_MAX + 16, "Bearer %.*s", (int)token->len, token->text);
}

/* Of a request from an address that is not admitted. */
static enum ct_page_right right_of(const struct ct_page_key *key, const char *authorization)
{
    static const struct ct_http_proof_page page = {"GET", "/status"};
    struct ct_page_asker stranger = {.admitted = false};
    return ct_page_key_right(key, &stranger, &page, authorization);
}

static void test_a_link_is_used_once(void **state)
{
    (void)state;
    char link[CT_TOKEN_MAX + 16], newer[CT_TOKEN_MAX + 16], session[CT_TOKEN_MAX + 16];
    struct ct_token token;
    assert_int_equal(ct_token_make(&token), 0);
    struct ct_page_key key = {.token = &token};
    assert_false(ct_page_key_redeem(&key, "Bearer ")); /* there is no link yet */
    assert_int_equal(right_of(&key, "Bearer "), CT_PAGE_RIGHT_NONE);
    assert_int_equal(ct_page_key_make_link(&key), 0);
    header_of(&key.link, link);
    assert_int_equal(ct_page_key_make_link(&key), 0);
    header_of(&key.link, newer);
    header_of(&key.session, session);
    assert_false(ct_page_key_redeem(&key, link));
    assert_false(ct_page_key_redeem(&key, NULL));
    assert_false(ct_page_key_redeem(&key, newer + strlen("Bearer ")));
    assert_int_equal(right_of(&key, newer), CT_PAGE_RIGHT_NONE); /* a link is no key */
    assert_true(ct_page_key_redeem(&key, newer));
    assert_false(ct_page_key_redeem(&key, newer));
    assert_int_equal(right_of(&key, session), CT_PAGE_RIGHT_ALL);
    session[strlen(session) - 1] ^= 1;
    assert_int_equal(right_of(&key, session), CT_PAGE_RIGHT_NONE);
    assert_int_equal(right_of(&key, NULL), CT_PAGE_RIGHT_NONE);
    header_of(&token, link);
    assert_int_equal(right_of(&key, link), CT_PAGE_RIGHT_ALL);
    ct_page_key_wipe(&key);
}

/* Prometheus sends it in the clear. */
static void test_the_read_key_shows_nothing_that_workers_have_written(void **state)
{
    (void)state;
    char header[CT_TOKEN_MAX + 16];
    struct ct_token token, other, read_key;
    assert_int_equal(ct_token_make(&token), 0);
    assert_int_equal(ct_token_make(&other), 0);
    const struct ct_page_key key = {.token = &token};
    ct_token_read_key(&token, &read_key);
    header_of(&read_key, header);
    assert_int_equal(right_of(&key, header), CT_PAGE_RIGHT_STATUS);
    header[strlen(header) - 1] ^= 1;
    assert_int_equal(right_of(&key, header), CT_PAGE_RIGHT_NONE);
    ct_token_read_key(&other, &read_key);
    header_of(&read_key, header);
    assert_int_equal(right_of(&key, header), CT_PAGE_RIGHT_NONE);
}

static void test_addresses_decide_without_a_token(void **state)
{
    static const struct ct_http_proof_page page = {"GET", "/status"};
    static const struct {
        bool admitted, ours;
        enum ct_page_right without, with_token;
    } cases[] = {
        {false, false, CT_PAGE_RIGHT_NONE, CT_PAGE_RIGHT_NONE},
        {true, false, CT_PAGE_RIGHT_STATUS, CT_PAGE_RIGHT_STATUS},
        {true, true, CT_PAGE_RIGHT_ALL, CT_PAGE_RIGHT_STATUS},
    };
    struct ct_token token;
    char out[CT_HTTP_PROOF_MAX], open[CT_HTTP_PROOF_MAX];
    (void)state;
    assert_int_equal(ct_token_make(&token), 0);
    const struct ct_page_key none = {.token = NULL}, key = {.token = &token};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_page_asker asker = {.admitted = cases[i].admitted, .ours = cases[i].ours};
        assert_int_equal(ct_page_key_right(NULL, &asker, &page, NULL), cases[i].without);
        assert_int_equal(ct_page_key_right(&none, &asker, &page, "Bearer "), cases[i].without);
        assert_int_equal(ct_page_key_right(&key, &asker, &page, NULL), cases[i].with_token);
        assert_int_equal(ct_http_proof_open(&asker.proof, open), 0);
        assert_false(ct_page_key_challenge(NULL, &asker, &page, open, out));
        assert_false(ct_page_key_challenge(&none, &asker, &page, open, out));
        assert_true(ct_page_key_challenge(&key, &asker, &page, open, out));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_is_shown_with_its_last_lines),
        cmocka_unit_test(test_a_job_is_found_by_its_number_not_by_its_place),
        cmocka_unit_test(test_strangers_see_no_lines),
        cmocka_unit_test(test_a_path_that_names_no_worker_gets_nothing),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing),
        cmocka_unit_test(test_a_link_is_used_once),
        cmocka_unit_test(test_the_read_key_shows_nothing_that_workers_have_written),
        cmocka_unit_test(test_addresses_decide_without_a_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
