/* SPDX-License-Identifier: Apache-2.0
 *
 * Each worker of a case stands on one line, "" = it has given no stack, NULL = it does not live.
 */
#include "tests/lib/ct_test.h"

#include "launcher/stacks/explain.h"
#include "launcher/stacks/flight_parse.h"

#include <stdio.h>

#define WORKERS_MAX 12

struct rig {
    struct ct_probe probe;
    struct ct_probe_answer answers[WORKERS_MAX];
    struct ct_flight flights[WORKERS_MAX];
    struct ct_explain explain;
};

static void stand(struct ct_probe_answer *answer, const char *line)
{
    answer->asked = line != NULL;
    answer->python = true;
    if (line != NULL && line[0] != '\0') {
        assert_int_equal(ct_stack_parse_faulthandler(line, strlen(line), &answer->stack), 0);
        answer->source = CT_PROBE_PY_SPY;
    }
}

static void begin(struct rig *rig, const char *const *lines, int count)
{
    memset(rig, 0, sizeof(*rig));
    rig->probe =
        (struct ct_probe){.count = count, .answers = rig->answers, .flights = rig->flights};
    rig->explain = (struct ct_explain){
        .probe = &rig->probe, .first_rank = 8, .whole_job = true, .suspect = -1};
    for (int i = 0; i < count; i++) {
        stand(&rig->answers[i], lines[i]);
    }
}

static int suspect_of(const struct rig *rig)
{
    struct ct_buf reason = CT_BUF_INIT;
    int suspect = ct_explain_suspect(&rig->explain, &reason);
    ct_buf_fini(&reason);
    return suspect;
}

static void assert_explained(struct rig *rig, int suspect, const char *expected)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(suspect_of(rig), suspect);
    assert_int_equal(ct_explain_print(&rig->explain, "> ", &text), 0);
    assert_string_equal(ct_buf_cstr(&text), expected);
    ct_buf_fini(&text);
    ct_probe_fini(&rig->probe);
}

#define AT(LINE) "File \"/srv/t.py\", line " #LINE " in step\n"

static void test_the_only_rank_on_another_line_is_named(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), AT(7), AT(20), AT(20)};
    begin(&rig, lines, 4);
    rig.explain.first_rank = 0; /* as in every job of one machine */
    assert_explained(&rig, 1,
                     "> rank 1 is on another line than all others\n"
                     "> rank 1 is at t.py:7 in step\n"
                     "> ranks 0, 2-3 are at t.py:20 in step\n"
                     "> stack of rank 1, from py-spy:\n"
                     "    main thread:\n      /srv/t.py:7 in step\n");
}

static void test_of_two_the_one_that_did_not_come_is_named(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {
        "File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 3 in "
        "all_reduce\n" AT(20),
        AT(7)};
    begin(&rig, lines, 2);
    rig.explain.first_rank = 0;
    assert_explained(&rig, 1,
                     "> rank 1 did not come to all_reduce, in which rank 0 waits\n"
                     "> rank 1 is at t.py:7 in step\n"
                     "> rank 0 is at t.py:20 in step, inside all_reduce\n"
                     "> stack of rank 1, from py-spy:\n"
                     "    main thread:\n      /srv/t.py:7 in step\n");
}

#define IN(FUNCTION) \
    "File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 3 in " FUNCTION "\n"

static void test_both_of_two_that_cannot_meet_are_told(void **state)
{
    (void)state;
    struct rig rig;
    struct ct_buf operations = CT_BUF_INIT;
    static const char *const lines[] = {IN("all_reduce") AT(20), IN("broadcast") AT(7)};
    begin(&rig, lines, 2);
    rig.explain.first_rank = 0;
    assert_int_equal(ct_explain_operations(&rig.probe, &operations), 0);
    assert_string_equal(ct_buf_cstr(&operations), "all_reduce, broadcast");
    ct_buf_fini(&operations);
    /* Also if the verdict has named one of them. */
    rig.explain.suspect = 1;
    assert_explained(
        &rig, 1,
        "> rank 0 waits in all_reduce, rank 1 in broadcast: they wait for different operations\n"
        "> rank 1 is at t.py:7 in step, inside broadcast\n"
        "> rank 0 is at t.py:20 in step, inside all_reduce\n"
        "> stack of rank 1, from py-spy:\n"
        "    main thread:\n"
        "      /v/site-packages/torch/distributed/distributed_c10d.py:3 in broadcast\n"
        "      /srv/t.py:7 in step\n");
}

static void test_nobody_is_named_where_nobody_stands_out(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const alike[] = {AT(20), AT(20), AT(20)};
    begin(&rig, alike, 3);
    assert_explained(&rig, -1,
                     "> ranks 8-10 are at t.py:20 in step\n"
                     "> stack of rank 8, from py-spy:\n"
                     "    main thread:\n      /srv/t.py:20 in step\n");
    static const char *const pair[] = {AT(20), AT(7)};
    begin(&rig, pair, 2);
    assert_int_equal(suspect_of(&rig), -1);
    ct_probe_fini(&rig.probe);
    static const char *const two[] = {AT(20), AT(7), AT(20), AT(7), AT(20)};
    begin(&rig, two, 5);
    assert_int_equal(suspect_of(&rig), -1);
    ct_probe_fini(&rig.probe);
    static const char *const all_differ[] = {AT(20), AT(7), AT(8)};
    begin(&rig, all_differ, 3);
    assert_int_equal(suspect_of(&rig), -1);
    ct_probe_fini(&rig.probe);
    static const char *const one_unknown[] = {AT(20), AT(7), AT(20), ""};
    begin(&rig, one_unknown, 4);
    assert_int_equal(suspect_of(&rig), -1);
    ct_probe_fini(&rig.probe);
}

static void test_ranks_of_other_machines_may_be_the_cause(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), AT(7), AT(20), AT(20)};
    begin(&rig, lines, 4);
    rig.explain.whole_job = false;
    assert_int_equal(suspect_of(&rig), -1);
    rig.explain.suspect = 2;
    assert_int_equal(suspect_of(&rig), 2);
    ct_probe_fini(&rig.probe);
}

static void test_the_verdict_is_not_questioned(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), AT(7), AT(20), NULL, ""};
    begin(&rig, lines, 5);
    rig.explain.suspect = 2;
    assert_explained(&rig, 2,
                     "> rank 10 is at t.py:20 in step\n"
                     "> rank 8 is at t.py:20 in step\n"
                     "> rank 9 is at t.py:7 in step\n"
                     "> no stack of rank 12\n"
                     "> stack of rank 10, from py-spy:\n"
                     "    main thread:\n      /srv/t.py:20 in step\n"
                     "> to see the lines of Python programs: pip install py-spy\n");
}

static void test_a_suspect_without_a_stack_is_still_named(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), ""};
    begin(&rig, lines, 2);
    rig.explain.suspect = 1;
    rig.probe.tools[CT_PROBE_PY_SPY] = "/usr/bin/py-spy";
    assert_explained(&rig, 1, "> no stack of rank 9\n> rank 8 is at t.py:20 in step\n");
    begin(&rig, lines, 2);
    rig.answers[1].python = false;
    rig.probe.tools[CT_PROBE_PY_SPY] = "/usr/bin/py-spy";
    rig.explain.suspect = 1;
    assert_explained(&rig, 1,
                     "> no stack of rank 9\n> rank 8 is at t.py:20 in step\n"
                     "> to see stacks of C programs, install gdb, or elfutils for eu-stack\n");
}

static void test_a_stack_without_names_is_not_told_to_be_missing(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), "", "", ""};
    static const char nameless[] = "#0  0x1 in ?? ()\n#1  0x2 in ?? ()\n";
    struct ct_buf text = CT_BUF_INIT;
    begin(&rig, lines, 4);
    rig.explain.suspect = 1;
    for (int i = 1; i < 3; i++) {
        assert_int_equal(ct_stack_parse_native(nameless, strlen(nameless), &rig.answers[i].stack),
                         0);
        rig.answers[i].source = CT_PROBE_GDB;
    }
    assert_int_equal(ct_explain_print(&rig.explain, "> ", &text), 0);
    assert_null(strstr(ct_buf_cstr(&text), "no stack of rank 9"));
    assert_non_null(strstr(ct_buf_cstr(&text), "> stack of rank 9, from gdb:\n"));
    assert_non_null(strstr(ct_buf_cstr(&text), "> no names in the stack of rank 10\n"));
    assert_non_null(strstr(ct_buf_cstr(&text), "> no stack of rank 11\n"));
    ct_buf_fini(&text);
    ct_probe_fini(&rig.probe);
}

static void test_what_is_missing_for_a_stack_is_said(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), ""};
    static const char nameless[] = "#0  0x1 in ?? ()\n#1  0x2 in ?? ()\n#2  0x3 in main ()\n";
    struct ct_buf text = CT_BUF_INIT;
    begin(&rig, lines, 2);
    rig.explain.suspect = 1;
    rig.probe.tools[CT_PROBE_PY_SPY] = "/usr/bin/py-spy";
    rig.probe.is_barred = true;
    assert_int_equal(ct_explain_print(&rig.explain, "> ", &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "> ctrun's programs may look at no worker here: "));
    assert_null(strstr(ct_buf_cstr(&text), "install"));
    ct_probe_fini(&rig.probe);
    ct_buf_reset(&text);

    begin(&rig, lines, 1); /* it has a stack, so nothing is missing */
    rig.probe.tools[CT_PROBE_PY_SPY] = "/usr/bin/py-spy";
    rig.probe.is_barred = true;
    assert_int_equal(ct_explain_print(&rig.explain, "> ", &text), 0);
    assert_null(strstr(ct_buf_cstr(&text), "may look"));
    ct_probe_fini(&rig.probe);
    ct_buf_reset(&text);

    begin(&rig, &lines[1], 1);
    assert_int_equal(ct_stack_parse_native(nameless, sizeof(nameless) - 1, &rig.answers[0].stack),
                     0);
    rig.answers[0].python = false;
    rig.answers[0].source = CT_PROBE_GDB;
    assert_int_equal(ct_explain_print(&rig.explain, "> ", &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "      (2 frames without a name)\n      main\n"));
    assert_non_null(strstr(ct_buf_cstr(&text), "> to see the names of a program's functions, "));
    ct_probe_fini(&rig.probe);
    ct_buf_fini(&text);
}

/* Ranks 0 and 1 wait for rank 2. */
static void record(struct rig *rig)
{
    static const char waits[] = "{\"version\":\"2.10\",\"entries\":[{\"collective_seq_id\":1,"
                                "\"process_group\":[\"0\",\"\"],"
                                "\"profiling_name\":\"gloo:barrier\",\"state\":\"scheduled\"}]}";
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ct_flight_parse(waits, strlen(waits), &rig->flights[i]), 0);
    }
    rig->flights[2].known = true;
    rig->explain.first_rank = 0;
}

static void test_recordings_of_a_named_rank_are_told_if_they_agree(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), AT(20), ""};
    static const char absent[] = "rank 2 did not come to barrier 1 of group 0; 2 ranks wait there";
    for (int named = 0; named < 3; named++) {
        struct ct_buf text = CT_BUF_INIT;
        begin(&rig, lines, 3);
        record(&rig);
        rig.explain.suspect = named;
        assert_int_equal(suspect_of(&rig), named);
        assert_int_equal(ct_explain_print(&rig.explain, "", &text), 0);
        assert_int_equal(strstr(ct_buf_cstr(&text), absent) != NULL, named == 2);
        ct_buf_fini(&text);
        ct_probe_fini(&rig.probe);
    }
}

static void test_recordings_are_asked_before_the_stacks(void **state)
{
    (void)state;
    struct rig rig;
    static const char *const lines[] = {AT(20), AT(7), AT(20)};
    begin(&rig, lines, 3);
    record(&rig);
    assert_explained(&rig, 2,
                     "> rank 2 did not come to barrier 1 of group 0; 2 ranks wait there\n"
                     "> rank 2 is at t.py:20 in step\n"
                     "> rank 0 is at t.py:20 in step\n"
                     "> rank 1 is at t.py:7 in step\n"
                     "> stack of rank 2, from py-spy:\n"
                     "    main thread:\n      /srv/t.py:20 in step\n");
}

static void test_many_places_are_cut(void **state)
{
    (void)state;
    struct rig rig;
    struct ct_buf text = CT_BUF_INIT;
    char lines[WORKERS_MAX][64];
    const char *list[WORKERS_MAX];
    for (int i = 0; i < WORKERS_MAX; i++) {
        (void)snprintf(lines[i], sizeof(lines[i]), "File \"/srv/t.py\", line %d in step\n", i + 1);
        list[i] = lines[i];
    }
    begin(&rig, list, WORKERS_MAX);
    assert_int_equal(ct_explain_print(&rig.explain, "", &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "others are at 4 further places\n"));
    assert_null(strstr(ct_buf_cstr(&text), "t.py:9 "));
    ct_buf_fini(&text);
    ct_probe_fini(&rig.probe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_only_rank_on_another_line_is_named),
        cmocka_unit_test(test_of_two_the_one_that_did_not_come_is_named),
        cmocka_unit_test(test_both_of_two_that_cannot_meet_are_told),
        cmocka_unit_test(test_nobody_is_named_where_nobody_stands_out),
        cmocka_unit_test(test_ranks_of_other_machines_may_be_the_cause),
        cmocka_unit_test(test_the_verdict_is_not_questioned),
        cmocka_unit_test(test_a_suspect_without_a_stack_is_still_named),
        cmocka_unit_test(test_a_stack_without_names_is_not_told_to_be_missing),
        cmocka_unit_test(test_what_is_missing_for_a_stack_is_said),
        cmocka_unit_test(test_recordings_of_a_named_rank_are_told_if_they_agree),
        cmocka_unit_test(test_recordings_are_asked_before_the_stacks),
        cmocka_unit_test(test_many_places_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
