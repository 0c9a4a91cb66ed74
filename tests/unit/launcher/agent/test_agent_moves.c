/* SPDX-License-Identifier: Apache-2.0
 *
 * An agent that is sent on from host to host before its first world.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/agent/agent_moves.h"

#define WAIT_MS 60000
#define END_NS (1 + WAIT_MS * CT_NS_PER_MS)

static enum ct_agent_moves_step told(struct ct_agent_moves *moves, int64_t now_ns)
{
    return ct_agent_moves_told(moves, WAIT_MS, now_ns);
}

static void test_it_goes_to_a_host_that_proves_itself(void **state)
{
    struct ct_agent_moves moves = {0};
    (void)state;
    assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_GO);
    assert_true(moves.away);
    ct_agent_moves_proved(&moves);
    assert_false(moves.away);
    assert_int_equal(moves.backs, 0);
}

static void test_it_goes_back_and_may_be_sent_on_again(void **state)
{
    struct ct_agent_moves moves = {0};
    (void)state;
    for (int i = 0; i < 3 * CT_AGENT_MOVES_MAX; i++) {
        assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_GO);
        assert_int_equal(ct_agent_moves_failed(&moves, 2), CT_AGENT_MOVES_BACK);
        assert_false(moves.away);
    }
}

static void test_the_pauses_grow(void **state)
{
    struct ct_agent_moves moves = {0};
    int64_t last_ms = 0;
    (void)state;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_GO);
        assert_int_equal(ct_agent_moves_failed(&moves, 2), CT_AGENT_MOVES_BACK);
        int64_t pause_ms = ct_agent_moves_pause_ms(&moves);
        assert_int_equal(pause_ms, i == 0 ? CT_AGENT_MOVES_PAUSE_MS
                                   : last_ms * 2 < CT_AGENT_MOVES_PAUSE_LAST_MS
                                       ? last_ms * 2
                                       : CT_AGENT_MOVES_PAUSE_LAST_MS);
        last_ms = pause_ms;
    }
}

/* Each is another machine that names the next. */
static void test_hosts_that_name_each_other_lead_back(void **state)
{
    struct ct_agent_moves moves = {0};
    (void)state;
    for (int i = 0; i < CT_AGENT_MOVES_MAX; i++) {
        assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_GO);
        if (i % 2 != 0) {
            ct_agent_moves_proved(&moves);
        }
    }
    assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_BACK);
    assert_false(moves.away);
    assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_GO);
}

static void test_it_does_not_look_for_ever(void **state)
{
    struct ct_agent_moves moves = {0};
    (void)state;
    assert_int_equal(told(&moves, 1), CT_AGENT_MOVES_GO);
    assert_int_equal(ct_agent_moves_failed(&moves, END_NS - 1), CT_AGENT_MOVES_BACK);
    assert_int_equal(told(&moves, END_NS - 1), CT_AGENT_MOVES_GO);
    assert_int_equal(ct_agent_moves_failed(&moves, END_NS), CT_AGENT_MOVES_END);
    assert_int_equal(told(&moves, END_NS), CT_AGENT_MOVES_END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_goes_to_a_host_that_proves_itself),
        cmocka_unit_test(test_it_goes_back_and_may_be_sent_on_again),
        cmocka_unit_test(test_the_pauses_grow),
        cmocka_unit_test(test_hosts_that_name_each_other_lead_back),
        cmocka_unit_test(test_it_does_not_look_for_ever),
    };
    return cmocka_run_group_tests_name("agent_moves", tests, NULL, NULL);
}
