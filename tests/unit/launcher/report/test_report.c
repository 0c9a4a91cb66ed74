/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the words of the headline and of the report: who failed first, what the worker said, what
 * follows from it, and that nothing is printed twice.
 */
#include "tests/lib/ct_test.h"

#include "launcher/report/report.h"

#include <signal.h>
#include <stdio.h>

#define WORKERS 8

/* Eight workers of which rank 3 failed first with code 7; the others are alive. */
struct rig {
    struct ct_report_worker workers[WORKERS];
    struct ct_report report;
};

static void set_up(struct rig *rig)
{
    memset(rig, 0, sizeof(*rig));
    for (int i = 0; i < WORKERS; i++) {
        rig->workers[i].rank = i;
        rig->workers[i].pid = 100 + i;
    }
    rig->workers[3].ended = true;
    rig->workers[3].end = (struct ct_worker_end){CT_END_EXITED, 7, false};
    rig->report = (struct ct_report){
        .host = "node5",
        .workers = rig->workers,
        .count = WORKERS,
        .failed = 3,
        .max_restarts = 2,
        .shutdown_timeout_ms = 30000,
        .tail = "",
        .advice = "think",
    };
}

static void stop_others(struct rig *rig, struct ct_worker_end end)
{
    for (int i = 0; i < WORKERS; i++) {
        if (i != 3) {
            rig->workers[i].ended = true;
            rig->workers[i].was_asked = true;
            rig->workers[i].end = end;
        }
    }
}

static const struct ct_worker_end by_term = {CT_END_SIGNALED, SIGTERM, false};

static void assert_headline(const struct rig *rig, const char *expected)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_report_headline(&rig->report, &text), 0);
    assert_string_equal(ct_buf_cstr(&text), expected);
    ct_buf_fini(&text);
}

static void assert_story(const struct rig *rig, const char *expected)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_report_failure(&rig->report, &text), 0);
    assert_string_equal(ct_buf_cstr(&text), expected);
    ct_buf_fini(&text);
}

static void headline_names_the_first_to_fail(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    assert_headline(&rig,
                    "ctrun: rank 3 failed on node5: process 103 exited with code 7\n"
                    "ctrun: stopping ranks 0-2, 4-7 because of it (SIGTERM, after 30 s SIGKILL)\n");
    for (int i = 0; i < WORKERS; i++) {
        rig.workers[i].ended = i != 5;
    }
    rig.workers[3].end = (struct ct_worker_end){CT_END_SIGNALED, SIGSEGV, false};
    assert_headline(&rig,
                    "ctrun: rank 3 failed on node5: process 103 was killed by signal 11 (SIGSEGV)\n"
                    "ctrun: stopping rank 5 because of it (SIGTERM, after 30 s SIGKILL)\n");
}

static void a_list_of_many_ranks_stays_short(void **state)
{
    enum { MANY = 512 };
    static struct ct_report_worker workers[MANY];
    struct rig rig;
    (void)state;
    set_up(&rig);
    for (int i = 0; i < MANY; i++) {
        workers[i].rank = i;
        workers[i].pid = 100 + i;
        workers[i].ended = i % 2 != 0;
    }
    workers[3].end = rig.workers[3].end;
    rig.report.workers = workers;
    rig.report.count = MANY;
    assert_headline(&rig,
                    "ctrun: rank 3 failed on node5: process 103 exited with code 7\n"
                    "ctrun: stopping ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, "
                    "28, 30, 32, 34, 36, 38, 40 and 235 more because of it (SIGTERM, after 30 "
                    "s SIGKILL)\n");
}

static void headline_of_a_worker_that_never_ran(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    rig.report.start_error = "./x: Exec format error";
    for (int i = 0; i < WORKERS; i++) {
        rig.workers[i].pid = 0;
        rig.workers[i].ended = false;
    }
    assert_headline(&rig, "ctrun: rank 3 failed on node5: ./x: Exec format error\n");
}

static void quotes_hold_nothing_that_a_terminal_acts_on(void **state)
{
    (void)state;
    struct ct_buf out = {0};
    assert_int_equal(ct_report_quote("a\tb\x1b[1m\n\xc2\x9b"
                                     "31m \xe2\x80\xae"
                                     "exe \xe2\x82\xac",
                                     &out),
                     0);
    assert_int_equal(ct_buf_append(&out, "", 1), 0);
    assert_non_null(strstr((const char *)ct_buf_bytes(&out), "a\tb?[1m\n"));
    assert_non_null(strstr((const char *)ct_buf_bytes(&out), "?31m ?exe \xe2\x82\xac\n"));
    ct_buf_fini(&out);
}

/* It tells a user less than the lines of the program do. */
static void the_stack_in_the_kernel_follows_what_the_worker_wrote(void **state)
{
    (void)state;
    struct rig rig;
    set_up(&rig);
    stop_others(&rig, by_term);
    rig.workers[3].end = (struct ct_worker_end){.kind = CT_END_HUNG, .value = 5};
    rig.report.tail = "    File x.py, line 3\n";
    rig.report.kernel_stack = "    [<0>] futex_wait\n";
    assert_story(&rig, "ctrun: rank 3 wrote last on stderr:\n"
                       "    File x.py, line 3\n"
                       "ctrun: stack of rank 3 in the kernel:\n"
                       "    [<0>] futex_wait\n"
                       "ctrun: stopped because of it: ranks 0-2, 4-7\n"
                       "ctrun: what to do: think\n");
}

static void story_quotes_what_the_worker_said(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    stop_others(&rig, by_term);
    rig.report.message = "ValueError: \x1b[31mboom\n  second line\n";
    rig.report.traceback = "Traceback";
    rig.report.tail = "    line 1\n    line 2\n";
    rig.report.log_folder = "/logs/3";
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    ValueError: ?[31mboom\n"
                       "      second line\n"
                       "ctrun: with the traceback:\n"
                       "    Traceback\n"
                       "ctrun: rank 3 wrote last on stderr:\n"
                       "    line 1\n"
                       "    line 2\n"
                       "ctrun: stopped because of it: ranks 0-2, 4-7\n"
                       "ctrun: what to do: think\n"
                       "ctrun: log files of rank 3: /logs/3\n");
    rig.report.message = rig.report.traceback = rig.report.log_folder = NULL;
    rig.report.tail_is_seen = true;
    assert_story(&rig, "ctrun: stopped because of it: ranks 0-2, 4-7\n"
                       "ctrun: what to do: think\n");
}

static void consequences_are_told_from_the_cause(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    stop_others(&rig, (struct ct_worker_end){CT_END_EXITED, 1, false});
    rig.workers[1].end = by_term;
    rig.workers[2].end = (struct ct_worker_end){CT_END_EXITED, 0, false};
    rig.workers[2].was_asked = false; /* was done before */
    rig.workers[3].end = (struct ct_worker_end){CT_END_SIGNALED, SIGKILL, false};
    (void)snprintf(rig.workers[3].memory, sizeof(rig.workers[3].memory), "the log says so");
    rig.workers[3].max_rss_kib = 2048 * 1024;
    rig.report.restarts = 2;
    rig.report.strays = 4;
    rig.report.killed = 1;
    rig.report.left = 2;
    assert_story(&rig,
                 "ctrun: rank 3 had used up to 2048 MiB\n"
                 "ctrun: later, rank 0 exited with code 1\n"
                 "ctrun: later, rank 4 exited with code 1\n"
                 "ctrun: later, rank 5 exited with code 1\n"
                 "ctrun: later, rank 6 exited with code 1\n"
                 "ctrun: and 1 more failed later\n"
                 "ctrun: stopped because of it: rank 1\n"
                 "ctrun: processes that workers left behind, now ended: 4\n"
                 "ctrun: processes that did not stop in time and were killed: 1\n"
                 "ctrun: processes that cannot be killed (stuck in the kernel, see dmesg): 2\n"
                 "ctrun: what to do: think\n");
}

static void no_line_is_printed_twice(void **state)
{
    static const char traceback[] = "Traceback (most recent call last):\n"
                                    "  File \"t.py\", line 3\n"
                                    "RuntimeError: boom\n";
    struct rig rig;
    (void)state;
    set_up(&rig);
    rig.report.message = "RuntimeError: boom";
    rig.report.traceback = traceback;
    rig.report.tail = "    a warning\n"
                      "    Traceback (most recent call last):\n"
                      "      File \"t.py\", line 3\n"
                      "    RuntimeError: boom\n";
    assert_story(&rig, "ctrun: rank 3 has the traceback:\n"
                       "    Traceback (most recent call last):\n"
                       "      File \"t.py\", line 3\n"
                       "    RuntimeError: boom\n"
                       "ctrun: rank 3 wrote last on stderr:\n"
                       "    a warning\n"
                       "ctrun: what to do: think\n");
    rig.report.tail_is_seen = true; /* all of it stands right above */
    assert_story(&rig, "ctrun: what to do: think\n");
    rig.report.tail = "    something else\n";
    rig.report.traceback = NULL;
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    RuntimeError: boom\n"
                       "ctrun: what to do: think\n");
    rig.report.tail_is_seen = false;
    rig.report.tail = "    RuntimeError: boom\n";
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    RuntimeError: boom\n"
                       "ctrun: what to do: think\n");
}

/* Among the lines of other workers a person may have missed it: the message is enough. */
static void what_was_shown_is_not_repeated(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    rig.report.message = "cannot open the data folder";
    rig.report.tail = "    a warning\n    train: cannot open the data folder\n";
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    cannot open the data folder\n"
                       "ctrun: rank 3 wrote last on stderr:\n"
                       "    a warning\n"
                       "ctrun: what to do: think\n");
    rig.report.tail_is_shown = true;
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    cannot open the data folder\n"
                       "ctrun: what to do: think\n");
    rig.report.message = "RuntimeError: shard 17";
    rig.report.traceback = "Traceback\n  line 3\nRuntimeError: shard 17\n";
    rig.report.tail = "    Traceback\n      line 3\n    RuntimeError: shard 17\n";
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    RuntimeError: shard 17\n"
                       "ctrun: what to do: think\n");
    rig.report.tail = "    something else\n";
    rig.report.traceback = NULL;
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    RuntimeError: shard 17\n"
                       "ctrun: rank 3 wrote last on stderr:\n"
                       "    something else\n"
                       "ctrun: what to do: think\n");
    rig.report.tail_is_seen = true;
    rig.report.message = "cannot open the data folder";
    rig.report.tail = "    train: cannot open the data folder\n";
    assert_story(&rig, "ctrun: what to do: think\n");
}

static void nobody_is_blamed_where_none_stands_out(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    rig.workers[3].end = (struct ct_worker_end){.kind = CT_END_ALL_HUNG, .value = 5};
    rig.report.tail = "    last words\n";
    rig.report.log_folder = "/logs/3";
    assert_headline(&rig,
                    "ctrun: the job hung on node5: no rank has moved for 5 s and none stands out\n"
                    "ctrun: stopping ranks 0-7 because of it (SIGTERM, after 30 s SIGKILL)\n");
    stop_others(&rig, by_term);
    assert_story(&rig, "ctrun: stopped because of it: ranks 0-7\n"
                       "ctrun: what to do: think\n");
}

static void a_restart_is_announced(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    rig.report.will_restart = true;
    rig.report.restarts = 1;
    assert_story(&rig, "ctrun: restarting the job (restart 2 of 2)\n");
}

static int sweep_body(void *data)
{
    const struct rig *rig = data;
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_report_headline(&rig->report, &text);
    rc = rc != 0 ? rc : ct_report_failure(&rig->report, &text);
    ct_buf_fini(&text);
    return rc;
}

static void survives_lack_of_memory(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    rig.report.tail = "    line\n";
    assert_true(ct_fault_sweep(sweep_body, &rig, 0) >= 1);
}

static void a_permanent_error_ends_the_job_whatever_restarts_are_left(void **state)
{
    struct rig rig;
    (void)state;
    set_up(&rig);
    stop_others(&rig, by_term);
    rig.report.restarts = 1;
    rig.report.message = "no such option";
    rig.report.advice = "correct what it names, and start the job again";
    rig.workers[3].end.final = true;
    assert_story(&rig, "ctrun: rank 3 says in its error file:\n"
                       "    no such option\n"
                       "ctrun: stopped because of it: ranks 0-2, 4-7\n"
                       "ctrun: rank 3 says that a restart cannot help: the job ends\n"
                       "ctrun: what to do: correct what it names, and start the job again\n");
}

static void who_was_killed_is_named(void **state)
{
    struct rig rig;
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    set_up(&rig);
    assert_int_equal(ct_report_killed(&rig.report, &text), 0);
    assert_int_equal(text.len, 0);
    rig.workers[2].killed = true;
    assert_int_equal(ct_report_killed(&rig.report, &text), 0);
    rig.workers[4].killed = rig.workers[5].killed = true;
    assert_int_equal(ct_report_killed(&rig.report, &text), 0);
    set_up(&rig);
    rig.report.left = 1;
    assert_int_equal(ct_report_killed(&rig.report, &text), 0);
    assert_string_equal(
        ct_buf_cstr(&text),
        "ctrun: rank 2 did not stop in time and was killed\n"
        "ctrun: ranks 2, 4-5 did not stop in time and were killed\n"
        "ctrun: processes that cannot be killed (stuck in the kernel, see dmesg): 1\n");
    ct_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_permanent_error_ends_the_job_whatever_restarts_are_left),
        cmocka_unit_test(headline_names_the_first_to_fail),
        cmocka_unit_test(a_list_of_many_ranks_stays_short),
        cmocka_unit_test(headline_of_a_worker_that_never_ran),
        cmocka_unit_test(quotes_hold_nothing_that_a_terminal_acts_on),
        cmocka_unit_test(story_quotes_what_the_worker_said),
        cmocka_unit_test(the_stack_in_the_kernel_follows_what_the_worker_wrote),
        cmocka_unit_test(consequences_are_told_from_the_cause),
        cmocka_unit_test(no_line_is_printed_twice),
        cmocka_unit_test(what_was_shown_is_not_repeated),
        cmocka_unit_test(nobody_is_blamed_where_none_stands_out),
        cmocka_unit_test(a_restart_is_announced),
        cmocka_unit_test(who_was_killed_is_named),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
