/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of jobs that ctrun-stat finds on this machine without an address.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/fault.h"

#include <stdint.h>
#include <stdio.h>

static void jobs_are_listed_with_their_program_and_state(void **state)
{
    const struct ct_job_entry entries[] = {
        {1, "127.0.0.1:29500", "fd59d116-4ce2-48b3-ac8b-83cd0021bc70", "train.py --lr 0.1", 59, 'R',
         false},
        {222222, "127.0.0.1:31000", "\xe6\xbc\xa2\x1b[2J", "-m pkg.train \x1b[2J", 7199, 'S',
         false},
        {3, "[::1]:4", "strange", "sh -c a very long command line that does not fit here", -1, 'T',
         false},
    };
    cJSON *good = cJSON_Parse("{\"job\":{\"state\":\"running\",\"world_size\":8}}");
    cJSON *strange = cJSON_Parse("{\"job\":{\"state\":5}}");
    const struct ct_stat_job jobs[] = {
        {&entries[0], good}, {&entries[1], NULL}, {&entries[2], strange}};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_stat_jobs_table(jobs, 3, 80, &out), 0);
    assert_string_equal(
        ct_buf_cstr(&out),
        "ID          STATE     WORKERS  AGE    PID ADDRESS         PROGRAM\n"
        "fd59d116... running         8  59s      1 127.0.0.1:29500 train.py --lr 0.1\n"
        "\xe6\xbc\xa2?[2J      no answer       - 119m 222222 127.0.0.1:31000 -m pkg.train ?[2J\n"
        "strange     ?               0    ?      3 [::1]:4         sh -c a very long c...\n");
    ct_buf_reset(&out);
    assert_int_equal(ct_stat_jobs_table(jobs, 3, SIZE_MAX, &out), 0);
    assert_non_null(strstr(ct_buf_cstr(&out), "sh -c a very long command line that does not fit"));
    cJSON_Delete(good);
    cJSON_Delete(strange);
    ct_buf_fini(&out);
}

static void it_is_said_why_a_job_does_not_answer(void **state)
{
    const struct ct_job_entry entries[] = {
        {4194304, "127.0.0.1:1", "sleeps", "a", 1, 'T', false},
        {2, "127.0.0.1:1", "there", "b", 1, 'S', true},
        {3, "127.0.0.1:3", "both", "c", 1, 't', true},
        {4, "127.0.0.1:4", "speaks", "d", 1, 'T', true},
    };
    cJSON *status = cJSON_Parse("{\"job\":{\"state\":\"running\",\"world_size\":8}}");
    const struct ct_stat_job jobs[] = {
        {&entries[0], NULL}, {&entries[1], NULL}, {&entries[2], NULL}, {&entries[3], status}};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_stat_jobs_table(jobs, 4, 80, &out), 0);
    assert_string_equal(
        ct_buf_cstr(&out),
        "ID     STATE     WORKERS AGE     PID ADDRESS     PROGRAM\n"
        "sleeps stopped         -  1s 4194304 127.0.0.1:1 a\n"
        "there  elsewhere       -  1s       2 127.0.0.1:1 b\n"
        "both   elsewhere       -  1s       3 127.0.0.1:3 c\n"
        "speaks running         8  1s       4 127.0.0.1:4 d\n"
        "stopped (process 4194304 is in state T); kill -CONT 4194304 lets it go on\n"
        "not reachable from here (another network namespace); nsenter -n -t 2\n"
        "not reachable from here (another network namespace); nsenter -n -t 3\n");
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

/* The list called a job running while a hang of it made the exit code 1. */
static void a_job_with_which_something_is_wrong_is_seen(void **state)
{
    static const struct {
        const char *status, *shown;
    } cases[] = {
        {"{\"health\":\"healthy\",\"job\":{\"state\":\"running\"}}", "running "},
        {"{\"health\":\"degraded\",\"job\":{\"state\":\"running\"}}", "degraded "},
        {"{\"health\":\"degraded\",\"job\":{\"state\":\"waiting\"}}", "waiting "},
        {"{\"health\":\"degraded\",\"job\":{\"state\":\"running\",\"hangs\":[{\"for_s\":0}]}}",
         "hangs "},
    };
    const struct ct_job_entry entry = {1, "127.0.0.1:1", "j", "a", 1, 'S', false};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *status = cJSON_Parse(cases[i].status);
        const struct ct_stat_job job = {&entry, status};
        struct ct_buf out = CT_BUF_INIT;
        assert_non_null(status);
        assert_int_equal(ct_stat_jobs_table(&job, 1, 80, &out), 0);
        assert_non_null(strstr(ct_buf_cstr(&out), cases[i].shown));
        ct_buf_fini(&out);
        cJSON_Delete(status);
    }
}

static void jobs_to_choose_from_have_no_state(void **state)
{
    const struct ct_job_entry entries[] = {
        {1, "127.0.0.1:29500", "night", "train.py --lr 0.1", 59, 'T', false},
        {22, "127.0.0.1:1", "day", "train.py", 7199, 'S', true},
    };
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_stat_jobs_names(entries, 2, 80, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "ID     AGE PID ADDRESS         PROGRAM\n"
                                           "night  59s   1 127.0.0.1:29500 train.py --lr 0.1\n"
                                           "day   119m  22 127.0.0.1:1     train.py\n");
    ct_buf_fini(&out);
}

/* Another job's store may be at the same address here. */
static void the_loopback_of_another_namespace_is_out_of_reach(void **state)
{
    static const struct {
        const char *address;
        bool elsewhere, in_reach;
    } cases[] = {
        {"127.0.0.1:1", false, true}, {"127.0.0.1:1", true, false}, {"[::1]:1", true, false},
        {"localhost:1", true, false}, {"10.0.0.1:1", true, true},   {"node7:1", true, true},
        {"a:b:c:", true, true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_job_entry entry = {.elsewhere = cases[i].elsewhere};
        (void)snprintf(entry.address, sizeof(entry.address), "%s", cases[i].address);
        assert_int_equal(ct_stat_jobs_in_reach(&entry), cases[i].in_reach);
    }
}

/* Gives the first word of the line `index` of the table, whose jobs are 0, 1, ... */
static void shown_id(const char *const *names, int count, int index, char out[CT_JOB_NAME_MAX])
{
    struct ct_job_entry entries[4] = {{0}};
    struct ct_stat_job jobs[4] = {{0}};
    struct ct_buf text = CT_BUF_INIT;
    for (int i = 0; i < count; i++) {
        (void)snprintf(entries[i].name, sizeof(entries[i].name), "%s", names[i]);
        jobs[i].entry = &entries[i];
    }
    assert_int_equal(ct_stat_jobs_table(jobs, count, 80, &text), 0);
    const char *line = ct_buf_cstr(&text);
    for (int i = 0; i <= index; i++) {
        line = strchr(line, '\n') + 1;
    }
    (void)snprintf(out, CT_JOB_NAME_MAX, "%.*s", (int)strcspn(line, " "), line);
    ct_buf_fini(&text);
}

static void an_id_is_cut_with_a_mark_behind_what_tells_it_from_others(void **state)
{
    static const char *const alone[] = {"experiment-with-lr-0.1"};
    static const char *const alike[] = {"experiment-with-lr-0.1-and-more",
                                        "experiment-with-lr-0.2-and-more", "b"};
    static const char *const same[] = {"experiment-with-lr-0.1", "experiment-with-lr-0.1"};
    static const char *const endless[] = {"0123456789012345678901234567890123456789a",
                                          "0123456789012345678901234567890123456789b"};
    char id[CT_JOB_NAME_MAX];
    (void)state;
    shown_id(alone, 1, 0, id);
    assert_string_equal(id, "experime...");
    shown_id(alike, 3, 0, id);
    assert_string_equal(id, "experiment-with-lr-0.1...");
    shown_id(alike, 3, 1, id);
    assert_string_equal(id, "experiment-with-lr-0.2...");
    shown_id(alike, 3, 2, id);
    assert_string_equal(id, "b");
    shown_id(same, 2, 1, id);
    assert_string_equal(id, "experime...");
    shown_id(endless, 2, 1, id);
    assert_string_equal(id, "01234567890123456789012345678...");
}

static void a_job_is_found_by_its_id_or_the_beginning_of_it(void **state)
{
    static const struct ct_job_entry entries[] = {
        {.name = "fd59d116-4ce2"},
        {.name = "fd77"},
        {.name = "run"},
        {.name = "run-2"},
        {.name = "twice"},
        {.name = "twice"},
        {.name = "100", .pid = 29500},
        {.name = "my?job", .pid = 4194304, .address = "[::1]:31000"},
        {.name = "lr:0.1", .pid = 100, .address = "10.0.0.1:29500"},
        {.name = "old", .pid = 31000},
    };
    static const struct {
        const char *word;
        int want;
        const char *text;
    } cases[] = {
        {"fd59d116-4ce2", 0, ""},
        {"fd5", 0, ""},
        {"fd59...", 0, ""}, /* as the table shows it */
        {"fd", CT_EINVAL, "the ids of 2 jobs here begin with 'fd'"},
        {"run", 2, ""}, /* the whole id wins */
        {"run-", 3, ""},
        {"twice", CT_EINVAL, "2 jobs here have the id 'twice'"},
        {"100", 6, ""},
        {"10", CT_ENOENT, ""}, /* a port */
        {"10...", 6, ""},
        {"my\njob", 7, ""},
        {"lr:0.1", 8, ""},
        {"4194304", 7, ""},       /* a process id */
        {"29500", CT_ENOENT, ""}, /* it is the port of a job, too */
        {"31000", CT_ENOENT, ""},
        {"4194305", CT_ENOENT, ""},
        {"99999999999999999999", CT_ENOENT, ""},
        {"lr:", CT_ENOENT, ""}, /* an address */
        {"node7", CT_ENOENT, ""},
        {"fd59d116-4ce2-48b3", CT_ENOENT, ""},
        {"", CT_ENOENT, ""},
        {"...", CT_ENOENT, ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_err err = {0};
        int found =
            ct_stat_jobs_find(cases[i].word, entries, sizeof(entries) / sizeof(entries[0]), &err);
        if (found != cases[i].want || strstr(err.text, cases[i].text) == NULL) {
            fail_msg("'%s': %d '%s'", cases[i].word, found, err.text);
        }
    }
    assert_int_equal(ct_stat_jobs_find("x", entries, 0, NULL), CT_ENOENT);
}

static int sweep_body(void *data)
{
    static const struct ct_job_entry entry = {1, "127.0.0.1:29500", "id", "program", 1, 'T', true};
    const struct ct_stat_job job = {&entry, NULL};
    struct ct_buf out = CT_BUF_INIT;
    (void)data;
    int rc = ct_stat_jobs_table(&job, 1, 80, &out);
    ct_buf_fini(&out);
    return rc;
}

static void a_table_without_memory_is_an_error(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(sweep_body, NULL, 0) >= 1);
}

static void check_hint(const char *host, bool refused, const struct ct_job_entry *entries,
                       int count, const char *text)
{
    struct ct_endpoint where = {.port = 29500};
    char hint[CT_STAT_HINT_MAX];
    (void)snprintf(where.host, sizeof(where.host), "%s", host);
    ct_stat_jobs_hint(&where, refused, entries, count, hint);
    if (strstr(hint, text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, hint);
    }
    assert_int_equal(strstr(hint, "has lost the machine") != NULL, strstr(text, "lost") != NULL);
}

static void a_refused_connection_gets_the_advice_that_can_help(void **state)
{
    const struct ct_job_entry entries[] = {{1, "10.0.0.3:41611", "j", "", 0, 'S', false},
                                           {2, "127.0.0.1:1", "k", "", 0, 'S', false}};
    const struct ct_job_entry far = {4, "127.0.0.1:1", "k", "", 0, 'S', true};
    const struct ct_job_entry same = {3, "10.0.0.1:29500", "j", "", 0, 'S', false};
    (void)state;
    check_hint("127.0.0.1", true, NULL, 0,
               "; ctrun chooses a free port, unless --master-port names one");
    check_hint("localhost", true, NULL, CT_EPERM, "unless --master-port");
    /* As after a failover: the first host of the job is asked. */
    check_hint("10.0.0.1", true, NULL, 0, "has lost the machine of its store");
    check_hint("10.0.0.1", true, entries, 1,
               "; your job on this machine has its store at 10.0.0.3:41611");
    check_hint("10.0.0.1", true, entries, 2, "lists your 2 jobs");
    check_hint("10.0.0.1", true, &same, 1, "has lost the machine of its store");
    check_hint("127.0.0.1", true, &far, 1, "; ctrun chooses a free port"); /* it is out of reach */
}

static void a_silent_store_has_its_reason_if_its_process_tells_it(void **state)
{
    const struct ct_job_entry entries[] = {{1, "10.0.0.1:29500", "there", "", 0, 'S', true},
                                           {2, "10.0.0.1:29500", "here", "", 0, 'T', false},
                                           {3, "10.0.0.2:29500", "well", "", 0, 'S', false}};
    (void)state;
    check_hint("10.0.0.1", false, entries, 1, "; not reachable from here (another network namesp");
    check_hint("10.0.0.1", false, entries, 2, "; stopped (process 2 is in state T)");
    check_hint("10.0.0.1", true, entries, 2, "; stopped (process 2 is in state T)");
    char hint[CT_STAT_HINT_MAX];
    const struct ct_endpoint where = {.host = "10.0.0.2", .port = 29500};
    ct_stat_jobs_hint(&where, false, entries, 3, hint);
    assert_string_equal(hint, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_listed_with_their_program_and_state),
        cmocka_unit_test(it_is_said_why_a_job_does_not_answer),
        cmocka_unit_test(a_job_with_which_something_is_wrong_is_seen),
        cmocka_unit_test(jobs_to_choose_from_have_no_state),
        cmocka_unit_test(the_loopback_of_another_namespace_is_out_of_reach),
        cmocka_unit_test(an_id_is_cut_with_a_mark_behind_what_tells_it_from_others),
        cmocka_unit_test(a_job_is_found_by_its_id_or_the_beginning_of_it),
        cmocka_unit_test(a_table_without_memory_is_an_error),
        cmocka_unit_test(a_refused_connection_gets_the_advice_that_can_help),
        cmocka_unit_test(a_silent_store_has_its_reason_if_its_process_tells_it),
    };
    return cmocka_run_group_tests_name("stat_jobs", tests, NULL, NULL);
}
