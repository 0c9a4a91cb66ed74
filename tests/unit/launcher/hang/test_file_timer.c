/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of PyTorch's file timers as workers write them, and as nobody should.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include "common/clock.h"
#include "launcher/hang/file_timer.h"
#include "rendezvous/wire/json.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define S CT_NS_PER_S
#define UNIX_NOW 1.7e9
#define GRACE (30 * S)

static void lines_are_cut_and_bounded(void **state)
{
    static struct ct_file_timer_lines lines;
    static char flood[2 * CT_FILE_TIMER_LINE_MAX];
    const char *line;
    (void)state;
    assert_int_equal(ct_file_timer_cut(&lines, "ab", 2, &line), 2);
    assert_null(line);
    assert_int_equal(ct_file_timer_cut(&lines, "c\nd\n", 4, &line), 2);
    assert_string_equal(line, "abc");
    assert_int_equal(ct_file_timer_cut(&lines, "d\n", 2, &line), 2);
    assert_string_equal(line, "d");
    assert_int_equal(ct_file_timer_cut(&lines, "a\0b\n", 4, &line), 4);
    assert_null(line);

    memset(flood, 'x', sizeof(flood));
    assert_int_equal(ct_file_timer_cut(&lines, flood, sizeof(flood), &line), sizeof(flood));
    assert_int_equal(ct_file_timer_cut(&lines, "tail\nnext\n", 10, &line), 5);
    assert_null(line);
    assert_int_equal(ct_file_timer_cut(&lines, "next\n", 5, &line), 5);
    assert_string_equal(line, "next");
    /* the longest that fits */
    flood[CT_FILE_TIMER_LINE_MAX] = '\n';
    assert_int_equal(ct_file_timer_cut(&lines, flood, sizeof(flood), &line),
                     CT_FILE_TIMER_LINE_MAX + 1);
    assert_int_equal(strlen(line), CT_FILE_TIMER_LINE_MAX);
}

static void requests_are_checked(void **state)
{
    static const struct {
        const char *line, *error; /* NULL: it is one */
    } rows[] = {
        {"{\"version\": 1, \"pid\": 42, \"scope_id\": \"a.py#7\", \"expiration_time\": 1.5, "
         "\"signal\": 9}",
         NULL},
        {"{\"pid\": 42, \"scope_id\": \"\", \"expiration_time\": -1}", NULL},
        {"{\"pid\": 42, \"scope_id\": \"\", \"expiration_time\": 1, \"signal\": -5}", NULL},
        {"", "JSON"},
        {"[]", "JSON"},
        {"{\"pid\": 42", "JSON"},
        {"{} x", "JSON"},
        {"{\"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}", "pid"},
        {"{\"pid\": 0, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}", "pid"},
        {"{\"pid\": -1, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}", "pid"},
        {"{\"pid\": 1.5, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}", "pid"},
        {"{\"pid\": 1e10, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}", "pid"},
        {"{\"pid\": \"1\", \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 9}", "pid"},
        {"{\"pid\": 1, \"scope_id\": 2, \"expiration_time\": 1, \"signal\": 9}", "scope_id"},
        {"{\"pid\": 1, \"scope_id\": \"a\", \"expiration_time\": \"1\", \"signal\": 9}", "expira"},
        {"{\"pid\": 1, \"scope_id\": \"a\", \"expiration_time\": 1e999, \"signal\": 9}", "expira"},
        {"{\"pid\": 1, \"scope_id\": \"a\", \"expiration_time\": 1, \"signal\": 65}", "signal"},
        {"{\"pid\": 1, \"scope_id\": \"a\", \"expiration_time\": 1}", "signal"},
    };
    static struct ct_file_timer_request request;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_err err = {0};
        int rc = ct_file_timer_parse(rows[i].line, &request, &err);
        if ((rc == 0) != (rows[i].error == NULL) ||
            (rc != 0 && strstr(err.text, rows[i].error) == NULL)) {
            fail_msg("%s: %d, '%s'", rows[i].line, rc, err.text);
        }
    }
    assert_int_equal(ct_file_timer_parse(rows[0].line, &request, NULL), 0);
    assert_int_equal(request.pid, 42);
    assert_int_equal(request.signal, 9);
    assert_string_equal(request.scope, "a.py#7");
    assert_true(request.expires == 1.5);
}

static int take(struct ct_file_timers *timers, int rank, pid_t pid, const char *scope, double after,
                int signal)
{
    static struct ct_file_timer_request request;
    request.pid = pid;
    request.expires = after < 0 ? -1 : UNIX_NOW + after;
    request.signal = signal;
    (void)snprintf(request.scope, sizeof(request.scope), "%s", scope);
    return ct_file_timers_take(timers, rank, &request, 100 * S, UNIX_NOW);
}

static void a_timer_expires_unless_released(void **state)
{
    static struct ct_file_timer_due due;
    struct ct_file_timers timers;
    (void)state;
    assert_int_equal(ct_file_timers_init(&timers, 2), 0);
    assert_true(timers.next_ns == INT64_MAX);
    assert_int_equal(take(&timers, 0, 7, "released", 1, SIGKILL), 0);
    assert_int_equal(take(&timers, 1, 8, "held", 5, SIGKILL), 0);
    assert_int_equal(take(&timers, 1, 8, "longer", 2, SIGKILL), 0);
    assert_int_equal(take(&timers, 1, 8, "longer", 1e300, SIGKILL), 0);
    assert_int_equal(take(&timers, 0, 7, "released", -1, 0), 0);
    assert_int_equal(take(&timers, 0, 7, "never there", -1, 0), 0);
    assert_true(timers.next_ns == 101 * S);
    assert_false(ct_file_timers_due(&timers, 101 * S, GRACE, &due));
    assert_true(llabs(timers.next_ns - 105 * S) < S / 1000);
    assert_false(ct_file_timers_due(&timers, 104 * S, GRACE, &due));
    assert_true(ct_file_timers_due(&timers, 106 * S, GRACE, &due));
    assert_int_equal(due.local_rank, 1);
    assert_int_equal(due.pid, 8);
    assert_int_equal(due.signal, SIGKILL);
    assert_string_equal(due.scope, "held");
    assert_false(due.again);
    assert_false(ct_file_timers_due(&timers, 110 * S, GRACE, &due));
    assert_true(ct_file_timers_due(&timers, 200 * S, GRACE, &due));
    assert_true(due.again);
    ct_file_timers_reset(&timers, 1);
    assert_false(ct_file_timers_due(&timers, INT64_MAX - 1, GRACE, &due));
    assert_true(timers.next_ns == INT64_MAX);
    ct_file_timers_fini(&timers);
    ct_file_timers_fini(&timers);
}

static void a_signal_that_ends_nobody_is_followed(void **state)
{
    static struct ct_file_timer_due due;
    struct ct_file_timers timers;
    (void)state;
    assert_int_equal(ct_file_timers_init(&timers, 1), 0);
    assert_int_equal(take(&timers, 0, 7, "mute", 1, 0), 0);
    assert_int_equal(take(&timers, 0, 7, "late", 3, SIGKILL), 0);
    assert_int_equal(take(&timers, 0, 7, "first", 2, SIGTERM), 0);
    assert_true(ct_file_timers_due(&timers, 104 * S, GRACE, &due));
    assert_string_equal(due.scope, "first");
    assert_int_equal(due.signal, SIGTERM);
    assert_false(ct_file_timers_due(&timers, 104 * S, GRACE, &due));
    assert_true(timers.next_ns == 104 * S + GRACE);
    assert_true(ct_file_timers_due(&timers, 104 * S + GRACE, GRACE, &due));
    assert_true(due.again);
    assert_int_equal(due.signal, SIGKILL);
    assert_false(ct_file_timers_due(&timers, 500 * S, GRACE, &due));
    /* one without a signal is told, and ends nobody */
    assert_int_equal(take(&timers, 0, 7, "mute", 1, 0), 0);
    assert_true(ct_file_timers_due(&timers, 500 * S, GRACE, &due));
    assert_int_equal(due.signal, 0);
    assert_string_equal(due.scope, "mute");
    assert_true(timers.worker != NULL);
    assert_false(ct_file_timers_due(&timers, 500 * S, GRACE, &due));
    assert_true(timers.next_ns == INT64_MAX);
    ct_file_timers_fini(&timers);
}

static bool is_even(void *data, int local_rank, pid_t pid)
{
    (void)data;
    assert_int_equal(local_rank, 1);
    return pid % 2 == 0;
}

static void a_worker_has_only_so_many(void **state)
{
    struct ct_file_timers timers;
    char scope[16];
    (void)state;
    assert_int_equal(ct_file_timers_init(&timers, 2), 0);
    for (int i = 0; i < CT_FILE_TIMERS_MAX; i++) {
        (void)snprintf(scope, sizeof(scope), "s%d", i);
        assert_int_equal(take(&timers, 1, 1000 + i, scope, 1, SIGKILL), 0);
    }
    assert_int_equal(take(&timers, 1, 1, "more", 1, SIGKILL), CT_ELIMIT);
    assert_int_equal(take(&timers, 1, 1000, "s0", 2, SIGKILL), 0);
    assert_int_equal(take(&timers, 0, 1, "more", 1, SIGKILL), 0);
    ct_file_timers_sweep(&timers, 1, is_even, NULL);
    assert_int_equal(take(&timers, 1, 1, "more", 1, SIGKILL), 0);
    ct_file_timers_fini(&timers);
}

static void timers_go_with_their_process(void **state)
{
    static struct ct_file_timer_due due;
    struct ct_file_timers timers;
    (void)state;
    assert_int_equal(ct_file_timers_init(&timers, 2), 0);
    for (pid_t pid = 1; pid <= 3; pid++) {
        assert_int_equal(take(&timers, 1, pid, "a", 1, SIGKILL), 0);
    }
    ct_file_timers_sweep(&timers, 1, is_even, NULL);
    assert_true(ct_file_timers_due(&timers, 102 * S, GRACE, &due));
    assert_int_equal(due.pid, 2);
    assert_false(ct_file_timers_due(&timers, 102 * S, GRACE, &due));
    ct_file_timers_fini(&timers);
}

static int all_once(void *arg)
{
    static struct ct_file_timer_due due;
    static struct ct_file_timer_request request;
    struct ct_file_timers timers;
    (void)arg;
    int rc = ct_file_timer_parse("{\"pid\": 1, \"scope_id\": \"a\", \"expiration_time\": -1}",
                                 &request, NULL);
    if (rc != 0) {
        return CT_ENOMEM; /* cJSON does not tell it from bad text */
    }
    rc = ct_file_timers_init(&timers, 2);
    for (int i = 0; rc == 0 && i < 6; i++) {
        rc = take(&timers, 1, 1 + i, "a", 1, SIGKILL);
    }
    (void)ct_file_timers_due(&timers, 200 * S, GRACE, &due);
    ct_file_timers_fini(&timers);
    return rc;
}

static void each_failed_allocation_is_survived(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    assert_true(ct_fault_sweep(all_once, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_are_cut_and_bounded),
        cmocka_unit_test(requests_are_checked),
        cmocka_unit_test(a_timer_expires_unless_released),
        cmocka_unit_test(a_signal_that_ends_nobody_is_followed),
        cmocka_unit_test(a_worker_has_only_so_many),
        cmocka_unit_test(timers_go_with_their_process),
        cmocka_unit_test(each_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
