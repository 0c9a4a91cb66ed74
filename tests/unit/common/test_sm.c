/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a state machine moves and logs as its table allows, and aborts where it does not.
 */
#include "common/clock.h"
#include "common/sm.h"
#include "tests/lib/ct_test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { IDLE, BUSY, DONE };

static const struct ct_sm_state states[] = {
    [IDLE] = {"idle", CT_SM_BIT(BUSY) | CT_SM_BIT(DONE)},
    [BUSY] = {"busy", CT_SM_BIT(IDLE) | CT_SM_BIT(DONE)},
    [DONE] = {"done", 0},
};

static void keep(void *data, enum ct_log_level level, const char *line)
{
    assert_int_equal(level, CT_LOG_DEBUG);
    memcpy(data, line, strlen(line) + 1);
}

static void test_a_move_is_logged_with_its_time(void **state)
{
    (void)state;
    char line[CT_LOG_LINE_MAX] = "";
    struct ct_log log = {keep, line, CT_LOG_DEBUG};
    struct ct_sm sm;
    ct_sm_init(&sm, "agent", states, IDLE, 10 * CT_NS_PER_MS, &log);
    ct_sm_move(&sm, BUSY, "work came", 35 * CT_NS_PER_MS);
    assert_int_equal(sm.state, BUSY);
    assert_string_equal(line, "agent: idle -> busy (work came) after 25 ms");
    ct_sm_move(&sm, DONE, "end", 36 * CT_NS_PER_MS);
    assert_string_equal(line, "agent: busy -> done (end) after 1 ms");
}

static void test_only_the_listed_states_may_follow(void **state)
{
    (void)state;
    struct ct_sm sm;
    ct_sm_init(&sm, "agent", states, IDLE, 0, NULL);
    assert_true(ct_sm_may(&sm, BUSY));
    assert_true(ct_sm_may(&sm, DONE));
    assert_false(ct_sm_may(&sm, IDLE));
    assert_false(ct_sm_may(&sm, 32));
    assert_false(ct_sm_may(&sm, 33));
    ct_sm_move(&sm, DONE, "skip", 0);
    for (unsigned to = 0; to < 40; to++) {
        assert_false(ct_sm_may(&sm, to));
    }
}

static void test_missing_edge_aborts(void **state)
{
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct ct_sm sm;
        ct_sm_init(&sm, "agent", states, DONE, 0, NULL);
        (void)signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        ct_sm_move(&sm, IDLE, "impossible", 0);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_move_is_logged_with_its_time),
        cmocka_unit_test(test_only_the_listed_states_may_follow),
        cmocka_unit_test(test_missing_edge_aborts),
    };
    return cmocka_run_group_tests_name("sm", tests, NULL, NULL);
}
