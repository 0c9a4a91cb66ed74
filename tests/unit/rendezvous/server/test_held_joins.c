/* SPDX-License-Identifier: Apache-2.0
 *
 * JOINs that wait for the end of an older ctrun: their order, their number and their memory.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/server/held_joins.h"

#include <stdio.h>

static struct ct_held_joins held;
static int conns[CT_HELD_JOINS_MAX + 1];
static int looks, removes; /* `removes` is the number of the connection that leaves */
static void *seen[CT_HELD_JOINS_MAX];

static void look(const struct ct_held_join *join)
{
    void *conn = join->conn;
    seen[looks++] = conn;
    assert_string_equal(join->join.run_id, "job");
    if (conn == &conns[removes]) {
        ct_held_joins_remove(&held, conn);
    }
}

static bool add_of(int i, const char *job, int host, int64_t now_ns)
{
    struct ct_msg_join join = {.node_rank = -1};
    (void)snprintf(join.run_id, sizeof(join.run_id), "%s", job);
    (void)snprintf(join.host, sizeof(join.host), "gpu-%d", host);
    return ct_held_joins_add(&held, &conns[i], &join, now_ns);
}

/* Of a machine of its own. */
static bool add(int i, int64_t now_ns)
{
    return add_of(i, "job", i, now_ns);
}

static bool add_to_any_job(int i)
{
    char job[16];
    (void)snprintf(job, sizeof(job), "job-%d", i);
    return add_of(i, job, 7, 0);
}

static void test_each_is_looked_at_in_order_and_may_leave(void **state)
{
    const int64_t look_ns = CT_HELD_JOINS_LOOK_MS * CT_NS_PER_MS;
    (void)state;
    held = (struct ct_held_joins){.budget = NULL};
    assert_true(ct_held_joins_next(&held) == INT64_MAX);
    for (int i = 0; i < 3; i++) {
        assert_true(add(i, 7 + i));
    }
    assert_true(ct_held_joins_next(&held) == 7 + look_ns);
    looks = 0;
    ct_held_joins_tick(&held, 6 + look_ns, look);
    assert_int_equal(looks, 0);
    removes = 1;
    ct_held_joins_tick(&held, 7 + look_ns, look);
    assert_int_equal(looks, 3);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(seen[i], &conns[i]);
    }
    assert_true(ct_held_joins_next(&held) == 7 + 2 * look_ns);
    looks = 0;
    removes = 2;
    ct_held_joins_tick(&held, 7 + 2 * look_ns, look);
    assert_int_equal(looks, 2);
    ct_held_joins_remove(&held, &conns[1]); /* it is not there any more */
    ct_held_joins_remove(&held, &conns[0]);
    assert_int_equal(held.count, 0);
    assert_true(ct_held_joins_next(&held) == INT64_MAX);
}

/* One job had all places, and a restarted ctrun of another one was refused. */
static void test_no_job_and_no_machine_takes_all_places(void **state)
{
    int i = 0;
    (void)state;
    held = (struct ct_held_joins){.budget = NULL};
    for (; i < CT_HELD_JOINS_OF_HOST_MAX; i++) {
        assert_true(add_of(i, "job", 0, 0));
    }
    assert_false(add_of(i, "job", 0, 0));
    for (; i < CT_HELD_JOINS_OF_JOB_MAX; i++) {
        assert_true(add_of(i, "job", i, 0));
    }
    assert_false(add_of(i, "job", i, 0));
    assert_true(add_of(i, "another", 0, 0));
    for (; i >= 0; i--) {
        ct_held_joins_remove(&held, &conns[i]);
    }
}

static void test_held_joins_are_limited(void **state)
{
    struct ct_budget budget = {.max = SIZE_MAX};
    (void)state;
    held = (struct ct_held_joins){.budget = &budget};
    for (int i = 0; i < CT_HELD_JOINS_MAX; i++) {
        assert_true(add_to_any_job(i));
    }
    assert_false(add_to_any_job(CT_HELD_JOINS_MAX));
    assert_true(budget.used >= CT_HELD_JOINS_MAX * sizeof(struct ct_msg_join));
    for (int i = 0; i < CT_HELD_JOINS_MAX; i++) {
        ct_held_joins_remove(&held, &conns[i]);
    }
    assert_int_equal(budget.used, 0);
    budget.max = sizeof(struct ct_msg_join);
    assert_false(add(0, 0));
    budget.max = SIZE_MAX;
    ct_fault_begin(0);
    assert_false(add(0, 0));
    assert_int_equal(ct_fault_end(), 0);
    assert_int_equal(budget.used, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_is_looked_at_in_order_and_may_leave),
        cmocka_unit_test(test_no_job_and_no_machine_takes_all_places),
        cmocka_unit_test(test_held_joins_are_limited),
    };
    return cmocka_run_group_tests_name("held_joins", tests, NULL, NULL);
}
