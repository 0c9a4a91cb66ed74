/* SPDX-License-Identifier: Apache-2.0
 *
 * What the folder of a detached job says, and which job a word means.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "launcher/detach/console_tail.h"
#include "launcher/detach/detached_list.h"

#include <stdbool.h>
#include <stdio.h>

static const unsigned char random_bytes[CT_DETACHED_RANDOM] = {0x0a, 0xb1, 0xff, 0x00};

static void an_id_is_a_name_for_a_folder(void **state)
{
    static const struct {
        const char *run_id, *id;
    } cases[] = {
        {NULL, "0ab1ff00"},    {"exp-1", "exp-1-0ab1ff00"}, {"team/a b\n", "team_a_b_-0ab1ff00"},
        {"..", "_.-0ab1ff00"}, {"-rf", "_rf-0ab1ff00"},
    };
    char id[CT_DETACHED_ID_MAX], longest[300];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ct_detached_job_name(cases[i].run_id, random_bytes, id);
        assert_string_equal(id, cases[i].id);
        assert_true(ct_detached_job_is_name(id));
    }
    memset(longest, 'x', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    ct_detached_job_name(longest, random_bytes, id);
    assert_int_equal(strlen(id), 64 + 1 + 8);
    assert_true(ct_detached_job_is_name(id));
    assert_false(ct_detached_job_is_name(longest));
    assert_false(ct_detached_job_is_name(""));
    assert_false(ct_detached_job_is_name(".."));
    assert_false(ct_detached_job_is_name("a/b"));
}

static const struct ct_detached_job job_1 = {.run_id = "my job",
                                             .host = "node-1",
                                             .place = "boot/pid",
                                             .pid = 77,
                                             .start = 12345,
                                             .begun_s = 1700000000,
                                             .address = "127.0.0.1:29500",
                                             .program = "train.py --name a"};

static void a_record_is_read_as_it_was_written(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_detached_job job = job_1;
    (void)state;
    (void)snprintf(job.program, sizeof(job.program), "a\nhost evil");
    (void)snprintf(job.others, sizeof(job.others), "node-[2-3]");
    (void)snprintf(job.word, sizeof(job.word), "exp");
    assert_int_equal(ct_detached_job_print(&job, &text), 0);
    assert_true(ct_detached_job_parse(ct_buf_cstr(&text), &job));
    assert_string_equal(job.program, "a?host evil"); /* it stays one line */
    assert_string_equal(job.others, "node-[2-3]");
    assert_string_equal(job.word, "exp");
    assert_string_equal(job.host, "node-1");
    assert_string_equal(job.place, "boot/pid");
    assert_string_equal(job.run_id, "my job");
    assert_string_equal(job.address, "127.0.0.1:29500");
    assert_int_equal(job.pid, 77);
    assert_int_equal(job.start, 12345);
    assert_int_equal(job.begun_s, 1700000000);
    assert_string_equal(job.via, "");
    assert_string_equal(job.machine, ""); /* as an old ctrun writes it */
    ct_buf_reset(&text);
    (void)snprintf(job.machine, sizeof(job.machine), "0123456789abcdef");
    (void)snprintf(job.via, sizeof(job.via), "gpu-1");
    (void)snprintf(job.agent, sizeof(job.agent), "ssh -p 22");
    (void)snprintf(job.ctrun, sizeof(job.ctrun), "/usr/bin/ctrun");
    assert_int_equal(ct_detached_job_print(&job, &text), 0);
    assert_true(ct_detached_job_parse(ct_buf_cstr(&text), &job));
    assert_string_equal(job.machine, "0123456789abcdef");
    assert_string_equal(job.via, "gpu-1");
    assert_string_equal(job.agent, "ssh -p 22");
    assert_string_equal(job.ctrun, "/usr/bin/ctrun");
    ct_buf_fini(&text);
}

static void a_record_that_makes_no_sense_is_none(void **state)
{
    static const char *const texts[] = {
        "",
        "pid 77\nhost a\nplace b",  /* cut short */
        "pid 1\nhost a\nplace b\n", /* nobody's ctrun */
        "pid 0\nhost a\nplace b\nvia gpu-1\n",
        "pid -5\nhost a\nplace b\n", /* would be a group */
        "pid 99999999999\nhost a\nplace b\n",
        "pid 7x\nhost a\nplace b\n",
        "pid\nhost a\nplace b\n",
        "host a\nplace b\n",
        "pid 77\nplace b\n",
        "pid 77\nhost a\n",
    };
    struct ct_detached_job job;
    char longest[CT_DETACHED_TEXT_MAX + 64];
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        assert_false(ct_detached_job_parse(texts[i], &job));
    }
    /* It has only started the job, in a container of which it was the first process. */
    assert_true(ct_detached_job_parse("pid 1\nhost a\nplace b\nvia gpu-1\n", &job));
    memset(longest, 'p', sizeof(longest));
    (void)snprintf(longest + sizeof(longest) - 8, 8, "\n");
    assert_false(ct_detached_job_parse(longest, &job));
    assert_true(ct_detached_job_parse("pid 77\nnew field\nhost a\x1b[2J\nplace b\n", &job));
    assert_string_equal(job.host, "a?[2J");
}

static void a_job_is_here_or_elsewhere(void **state)
{
    static const struct {
        const char *host, *place, *machine;
        enum ct_detached_where where;
    } cases[] = {
        {"vm", "boot-1/pid:[1]", "m1", CT_DETACHED_HERE},
        {"vm", "boot-1/pid:[1]", "", CT_DETACHED_HERE},
        {"vm", "boot-1/pid:[2]", "m1", CT_DETACHED_CONTAINER},
        {"vm", "boot-1/pid:[2]", "m2", CT_DETACHED_CONTAINER}, /* its file is another one */
        {"box", "boot-1/pid:[2]", "", CT_DETACHED_CONTAINER},
        {"vm", "boot-0/pid:[1]", "m1", CT_DETACHED_BEFORE},
        {"vm", "boot-0/pid:[1]", "", CT_DETACHED_BEFORE}, /* of an old ctrun */
        {"vm", "boot-0/pid:[1]", "m2", CT_DETACHED_NAMESAKE},
        {"vm", "boot-11/pid:[1]", "m2", CT_DETACHED_NAMESAKE},
        {"vm", "/", "", CT_DETACHED_CONTAINER}, /* it has no /proc */
        {"node", "boot-2/pid:[1]", "m1", CT_DETACHED_OTHER},
        {"node", "boot-1/pid:[1]", "m1", CT_DETACHED_OTHER}, /* they share the processes only */
    };
    struct ct_detached_here here = {"vm", "boot-1/pid:[1]", "m1"};
    struct ct_detached_job job = job_1;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(job.host, sizeof(job.host), "%s", cases[i].host);
        (void)snprintf(job.place, sizeof(job.place), "%s", cases[i].place);
        (void)snprintf(job.machine, sizeof(job.machine), "%s", cases[i].machine);
        assert_int_equal(ct_detached_job_where(&job, &here), cases[i].where);
    }
    job = (struct ct_detached_job){.host = "vm", .place = "boot-0/pid:[1]", .machine = "m2"};
    (void)snprintf(here.machine, sizeof(here.machine), "%s", ""); /* as in many containers */
    assert_int_equal(ct_detached_job_where(&job, &here), CT_DETACHED_BEFORE);
    (void)snprintf(here.place, sizeof(here.place), "/"); /* there is no /proc here */
    assert_int_equal(ct_detached_job_where(&job, &here), CT_DETACHED_CONTAINER);
}

static void an_exit_code_is_read_back(void **state)
{
    char text[CT_DETACHED_EXIT_SIZE + 1];
    int exit_code = -1;
    int64_t ended_s = -1;
    (void)state;
    ct_detached_job_exit_text(-1, 0, text);
    assert_int_equal(strlen(text), CT_DETACHED_EXIT_SIZE);
    assert_false(ct_detached_job_exit_parse(text, &exit_code, &ended_s));
    ct_detached_job_exit_text(137, 1700000000, text);
    assert_int_equal(strlen(text), CT_DETACHED_EXIT_SIZE);
    assert_true(ct_detached_job_exit_parse(text, &exit_code, &ended_s));
    assert_int_equal(exit_code, 137);
    assert_int_equal(ended_s, 1700000000);
    assert_false(ct_detached_job_exit_parse("", &exit_code, &ended_s));
    assert_false(ct_detached_job_exit_parse("256 1\n", &exit_code, &ended_s));
    assert_false(ct_detached_job_exit_parse("3\n", &exit_code, &ended_s));
    assert_false(ct_detached_job_exit_parse("3 x\n", &exit_code, &ended_s));
    assert_false(
        ct_detached_job_exit_parse("0000000000000000000000000000003 1", &exit_code, &ended_s));
}

static struct ct_detached_entry entry(const char *id, enum ct_detached_state state)
{
    struct ct_detached_entry out = {.job = job_1, .state = state};
    (void)snprintf(out.job.id, sizeof(out.job.id), "%s", id);
    (void)snprintf(out.job.address, sizeof(out.job.address), "127.0.0.1:%c", id[0]);
    return out;
}

static int choose(const struct ct_detached_entry *entries, int count, const char *word,
                  const char *why)
{
    struct ct_buf text = CT_BUF_INIT;
    int at = ct_detached_list_choose(entries, count, word, "node-1", &text);
    const char *said = text.len > 0 ? ct_buf_cstr(&text) : "";
    if (strstr(said, why) == NULL) {
        fail_msg("no '%s' in '%s'", why, said);
    }
    ct_buf_fini(&text);
    return at;
}

static void the_job_that_is_meant_is_found(void **state)
{
    const struct ct_detached_entry entries[] = {
        entry("ab1", CT_DETACHED_ENDED), entry("ab2", CT_DETACHED_RUNS),
        entry("ab3", CT_DETACHED_ELSEWHERE), entry("cd1", CT_DETACHED_ENDED),
        entry("cd2", CT_DETACHED_LOST)};
    (void)state;
    assert_int_equal(choose(entries, 5, NULL, ""), 1);  /* the only one that runs here */
    assert_int_equal(choose(entries, 5, "ab", ""), 1);  /* it runs */
    assert_int_equal(choose(entries, 5, "ab1", ""), 0); /* its whole id */
    assert_int_equal(choose(entries, 5, "127.0.0.1:a", ""), 1);
    assert_int_equal(choose(entries, 5, "my j", ""), 1); /* the run id */
    assert_int_equal(choose(entries, 5, "cd2", ""), 4);
    assert_int_equal(choose(entries, 5, "cd", "2 jobs begin with this"), CT_EINVAL);
    assert_int_equal(choose(entries, 5, "cd", "cd2  was killed"), CT_EINVAL);
    assert_int_equal(choose(entries, 5, "x", "has this id or address; there are"), CT_EINVAL);
    assert_int_equal(choose(entries, 5, "", "has this id"), CT_EINVAL);
    assert_int_equal(choose(entries, 5, "127.0.0.1:c", "has this id"), CT_EINVAL); /* has ended */
}

static void a_job_that_was_started_from_here_is_found_after_those_that_run(void **state)
{
    struct ct_detached_entry entries[] = {
        entry("ab", CT_DETACHED_VIA), entry("ab-0", CT_DETACHED_ELSEWHERE),
        entry("ab-1", CT_DETACHED_ENDED), entry("cd", CT_DETACHED_VIA)};
    (void)state;
    (void)snprintf(entries[0].job.via, sizeof(entries[0].job.via), "gpu-1");
    assert_int_equal(choose(entries, 3, NULL, ""), 0);
    assert_int_equal(choose(entries, 3, "ab", ""), 0);
    assert_int_equal(choose(entries, 3, "a", ""), 0);
    assert_int_equal(choose(entries, 3, "ab-1", ""), 2);
    assert_int_equal(choose(entries, 4, NULL, "2 detached jobs of yours were started from node-1"),
                     CT_EINVAL);
    assert_int_equal(choose(entries, 4, NULL, "  ab  is on gpu-1"), CT_EINVAL);
    entries[1].state = CT_DETACHED_RUNS; /* the home is shared, and the job runs here */
    assert_int_equal(choose(entries, 4, NULL, ""), 1);
    assert_int_equal(choose(entries, 4, "ab", ""), 1);
}

static void none_or_several_are_listed(void **state)
{
    struct ct_detached_entry entries[] = {entry("a", CT_DETACHED_RUNS),
                                          entry("b", CT_DETACHED_RUNS)};
    (void)state;
    assert_int_equal(choose(NULL, 0, NULL,
                            "no detached job of yours runs on node-1 (start one with ctrun "
                            "--detach)\n"),
                     CT_EINVAL);
    assert_int_equal(choose(NULL, 0, "\x1b[2J", "--attach ?[2J: no detached job"), CT_EINVAL);
    assert_int_equal(choose(NULL, 0, "a", "start one with ctrun --detach"), CT_EINVAL);
    assert_int_equal(choose(entries, 2, NULL, "2 detached jobs of yours run on node-1"), CT_EINVAL);
    assert_int_equal(choose(entries, 2, NULL, "  b  runs  train.py --name a\n  a  runs"),
                     CT_EINVAL);
    entries[0].state = CT_DETACHED_ENDED;
    entries[0].exit_code = 3;
    entries[1].state = CT_DETACHED_ELSEWHERE;
    assert_int_equal(choose(entries, 2, NULL, "name one of these"), CT_EINVAL);
    assert_int_equal(choose(entries, 2, NULL, "a  ended with 3"), CT_EINVAL);
    assert_int_equal(choose(entries, 2, NULL, "b  is on node-1"), CT_EINVAL);
    entries[1].where = CT_DETACHED_CONTAINER;
    assert_int_equal(choose(entries, 2, NULL, "b  is in another container, node-1"), CT_EINVAL);
    entries[1].where = CT_DETACHED_NAMESAKE;
    assert_int_equal(choose(entries, 2, NULL, "b  is on another machine, node-1"), CT_EINVAL);
}

static void a_long_list_is_cut(void **state)
{
    struct ct_detached_entry entries[12];
    char id[] = "a";
    (void)state;
    for (int i = 0; i < 12; i++, id[0]++) {
        entries[i] = entry(id, CT_DETACHED_ENDED);
    }
    assert_int_equal(choose(entries, 12, NULL, "and 2 more"), CT_EINVAL);
}

static void the_last_lines_are_found(void **state)
{
    static const char text[] = "a\nb\n\nc";
    (void)state;
    assert_int_equal(ct_console_tail(text, 6, 1), 5);
    assert_int_equal(ct_console_tail(text, 6, 2), 4);
    assert_int_equal(ct_console_tail(text, 6, 3), 2);
    assert_int_equal(ct_console_tail(text, 6, 9), 0);
    assert_int_equal(ct_console_tail(text, 5, 1), 4); /* the empty line */
    assert_int_equal(ct_console_tail(text, 4, 1), 2);
    assert_int_equal(ct_console_tail(text, 2, 1), 0);
    assert_int_equal(ct_console_tail(text, 0, 1), 0);
    assert_int_equal(ct_console_tail(text, 6, 0), 6);
}

static int print_once(void *data)
{
    struct ct_buf text = CT_BUF_INIT;
    (void)data;
    int rc = ct_detached_job_print(&job_1, &text);
    ct_buf_fini(&text);
    return rc;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(print_once, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_a_name_for_a_folder),
        cmocka_unit_test(a_record_is_read_as_it_was_written),
        cmocka_unit_test(a_record_that_makes_no_sense_is_none),
        cmocka_unit_test(a_job_is_here_or_elsewhere),
        cmocka_unit_test(an_exit_code_is_read_back),
        cmocka_unit_test(the_job_that_is_meant_is_found),
        cmocka_unit_test(a_job_that_was_started_from_here_is_found_after_those_that_run),
        cmocka_unit_test(none_or_several_are_listed),
        cmocka_unit_test(a_long_list_is_cut),
        cmocka_unit_test(the_last_lines_are_found),
        cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("detached_job", tests, NULL, NULL);
}
