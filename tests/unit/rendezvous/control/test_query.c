/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of questions to agents: how many, how fast, how long, and whose answer counts.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/control/query.h"

#include <stdio.h>

struct asker {
    int calls, code;
    char text[64];
};

static void on_answer(void *data, int code, const char *text)
{
    struct asker *asker = data;
    asker->calls++;
    asker->code = code;
    (void)snprintf(asker->text, sizeof(asker->text), "%s", text);
}

static const int one, other; /* agents */

static int begin(struct ct_queries *queries, const void *agent, int64_t now_ns, struct asker *asker)
{
    int id = 0;
    assert_int_equal(ct_queries_begin(queries, agent, now_ns, on_answer, asker, &id, NULL), 0);
    assert_true(id > 0);
    return id;
}

static void test_the_answer_of_the_agent_asked_counts_once(void **state)
{
    struct ct_queries queries = {.last_id = 0};
    struct asker a = {0}, b = {0};
    (void)state;
    int first = begin(&queries, &one, 0, &a), second = begin(&queries, &other, 0, &b);
    assert_int_not_equal(first, second);
    ct_queries_result(&queries, &other, first, true, "stolen");
    ct_queries_result(&queries, &one, 77, true, "nobody's");
    assert_int_equal(a.calls + b.calls, 0);
    ct_queries_result(&queries, &one, first, true, "hello");
    ct_queries_result(&queries, &one, first, true, "again");
    assert_true(a.calls == 1 && a.code == 0);
    assert_string_equal(a.text, "hello");
    ct_queries_result(&queries, &other, second, false, "cannot");
    assert_true(b.calls == 1 && b.code == CT_EUNSUPPORTED);
    assert_string_equal(b.text, "cannot");
    assert_true(ct_queries_next(&queries) == INT64_MAX);
}

static void test_time_runs_out_and_agents_leave(void **state)
{
    struct ct_queries queries = {.last_id = 0};
    struct asker late = {0}, gone = {0}, withdrawn = {0};
    int64_t end_ns = CT_QUERY_TIMEOUT_MS * CT_NS_PER_MS;
    (void)state;
    (void)begin(&queries, &one, 0, &late);
    (void)begin(&queries, &other, 1, &gone);
    ct_queries_forget(&queries, begin(&queries, &other, 1, &withdrawn));
    assert_true(ct_queries_next(&queries) == end_ns);
    ct_queries_tick(&queries, end_ns - 1);
    assert_int_equal(late.calls, 0);
    ct_queries_tick(&queries, end_ns);
    assert_true(late.calls == 1 && late.code == CT_ETIMEDOUT && gone.calls == 0);
    ct_queries_gone(&queries, &other);
    assert_true(gone.calls == 1 && gone.code == CT_ECLOSED);
    assert_int_equal(withdrawn.calls, 0);
}

static void test_number_and_rate_are_bounded(void **state)
{
    struct ct_queries queries = {.last_id = 0};
    struct asker asker = {0};
    int64_t now_ns = 0;
    int id = 0, asked = 0;
    (void)state;
    while (ct_queries_begin(&queries, &one, now_ns, on_answer, &asker, &id, NULL) == 0) {
        ct_queries_forget(&queries, id);
        asked++;
    }
    assert_int_equal(asked, CT_QUERIES_PER_S + 1);
    now_ns += CT_NS_PER_S / CT_QUERIES_PER_S;
    ct_queries_forget(&queries, begin(&queries, &one, now_ns, &asker));
    /* Slowly enough, but nobody answers. */
    asked = 0;
    for (now_ns += 60 * CT_NS_PER_S;
         ct_queries_begin(&queries, &one, now_ns, on_answer, &asker, &id, NULL) == 0;
         now_ns += CT_NS_PER_S) {
        asked++;
    }
    assert_int_equal(asked, CT_QUERIES_OPEN);
    ct_queries_gone(&queries, &one);
    assert_int_equal(asker.calls, CT_QUERIES_OPEN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_answer_of_the_agent_asked_counts_once),
        cmocka_unit_test(test_time_runs_out_and_agents_leave),
        cmocka_unit_test(test_number_and_rate_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
