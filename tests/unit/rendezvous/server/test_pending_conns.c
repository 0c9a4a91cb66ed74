/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections with a deadline: which is late, and which has to go when there are too many.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/server/pending_conns.h"

#include <netinet/in.h>

#define MAX 2
#define PATIENCE_NS (10 * CT_NS_PER_S)

static struct ct_pending_conns pending;
static struct ct_pending_conn conns[MAX + 2];
static const struct sockaddr_in peer = {.sin_family = AF_INET};

static int setup(void **state)
{
    (void)state;
    ct_pending_conns_init(&pending, MAX);
    for (int i = 0; i < MAX + 2; i++) {
        ct_pending_conn_init(&conns[i]);
    }
    return 0;
}

static void add(int i, bool proved, int64_t now_ns)
{
    ct_pending_conns_add(&pending, &conns[i], proved ? NULL : (const struct sockaddr *)&peer,
                         now_ns);
}

static void test_those_that_are_late_leave_in_their_order(void **state)
{
    (void)state;
    assert_true(ct_pending_conns_next(&pending) == INT64_MAX);
    assert_null(ct_pending_conns_late(&pending, INT64_MAX));
    add(1, false, 5);
    add(0, true, 6);
    add(2, false, 7);
    assert_true(ct_pending_conns_next(&pending) == 5 + PATIENCE_NS);
    assert_null(ct_pending_conns_late(&pending, 4 + PATIENCE_NS));
    assert_ptr_equal(ct_pending_conns_late(&pending, 6 + PATIENCE_NS), &conns[1]);
    assert_ptr_equal(ct_pending_conns_late(&pending, 6 + PATIENCE_NS), &conns[0]);
    assert_null(ct_pending_conns_late(&pending, 6 + PATIENCE_NS));
    assert_true(ct_pending_conns_next(&pending) == 7 + PATIENCE_NS);
    assert_ptr_equal(ct_pending_conns_late(&pending, INT64_MAX), &conns[2]);
    assert_int_equal(pending.quota.count, 0);
}

/* A connection leaves when it is closed, too, which is after it was late. */
static void test_one_that_has_left_may_leave_again_and_come_back(void **state)
{
    (void)state;
    add(0, false, 0);
    ct_pending_conns_remove(&pending, &conns[0]);
    ct_pending_conns_remove(&pending, &conns[0]);
    ct_pending_conns_remove(&pending, &conns[1]); /* it was never pending */
    assert_int_equal(pending.quota.count, 0);
    assert_true(ct_pending_conns_next(&pending) == INT64_MAX);
    add(0, false, 3);
    assert_true(ct_pending_conns_next(&pending) == 3 + PATIENCE_NS);
    assert_int_equal(pending.quota.count, 1);
}

static void test_the_oldest_that_has_proved_nothing_goes(void **state)
{
    (void)state;
    add(0, true, 0);
    add(1, false, 0);
    add(2, false, 0);
    assert_null(ct_pending_conns_one_too_many(&pending));
    add(3, false, 0);
    assert_ptr_equal(ct_pending_conns_one_too_many(&pending), &conns[1]);
    assert_null(ct_pending_conns_one_too_many(&pending));
    ct_pending_conns_remove(&pending, &conns[1]); /* it was closed */
    assert_int_equal(pending.quota.count, MAX);
}

static void test_a_proof_makes_room_and_leaves_the_deadline(void **state)
{
    (void)state;
    for (int i = 0; i < MAX; i++) {
        add(i, false, 0);
    }
    ct_pending_conns_proved(&pending, &conns[0]);
    ct_pending_conns_proved(&pending, &conns[0]);
    add(MAX, false, 1);
    assert_null(ct_pending_conns_one_too_many(&pending));
    assert_ptr_equal(ct_pending_conns_late(&pending, PATIENCE_NS), &conns[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_those_that_are_late_leave_in_their_order, setup),
        cmocka_unit_test_setup(test_one_that_has_left_may_leave_again_and_come_back, setup),
        cmocka_unit_test_setup(test_the_oldest_that_has_proved_nothing_goes, setup),
        cmocka_unit_test_setup(test_a_proof_makes_room_and_leaves_the_deadline, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
