/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of jobs that ctrun-stat finds on this machine without an address.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>

static void jobs_are_listed_with_their_state(void **state)
{
    const struct ct_job_entry entries[] = {
        {1, "127.0.0.1:29500", "fd59d116-4ce2-48b3-ac8b-83cd0021bc70"},
        {2, "127.0.0.1:31000", "\xe6\xbc\xa2\x1b[2J"},
        {3, "[::1]:4", "strange"},
    };
    cJSON *good = cJSON_Parse("{\"job\":{\"state\":\"running\",\"world_size\":8}}");
    cJSON *strange = cJSON_Parse("{\"job\":{\"state\":5}}");
    const struct ct_stat_job jobs[] = {
        {&entries[0], good}, {&entries[1], NULL}, {&entries[2], strange}};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_stat_jobs_table(jobs, 3, &out), 0);
    assert_string_equal(
        ct_buf_cstr(&out),
        "ADDRESS               STATE      WORKERS NAME\n"
        "127.0.0.1:29500       running          8 fd59d116-4ce2-48b3-ac8b-83cd0021bc70\n"
        "127.0.0.1:31000       no answer        - \xe6\xbc\xa2?[2J\n"
        "[::1]:4               ?                0 strange\n");
    cJSON_Delete(good);
    cJSON_Delete(strange);
    ct_buf_fini(&out);
}

static void check_hint(const char *host, const struct ct_job_entry *entries, int count,
                       const char *text)
{
    struct ct_endpoint where = {.port = 29500};
    char hint[CT_STAT_HINT_MAX];
    (void)snprintf(where.host, sizeof(where.host), "%s", host);
    ct_stat_jobs_hint(&where, entries, count, hint);
    if (strstr(hint, text) == NULL) {
        fail_msg("'%s' is not in '%s'", text, hint);
    }
    assert_int_equal(strstr(hint, "has lost the machine") != NULL, strstr(text, "lost") != NULL);
}

static void a_refused_connection_gets_the_advice_that_can_help(void **state)
{
    const struct ct_job_entry entries[] = {{1, "10.0.0.3:41611", "j"}, {2, "127.0.0.1:1", "k"}};
    const struct ct_job_entry same = {3, "10.0.0.1:29500", "j"};
    (void)state;
    check_hint("127.0.0.1", NULL, 0, "; ctrun chooses a free port, unless --master-port names one");
    check_hint("localhost", NULL, CT_EPERM, "unless --master-port");
    /* As after a failover: the first host of the job is asked. */
    check_hint("10.0.0.1", NULL, 0, "has lost the machine of its store");
    check_hint("10.0.0.1", entries, 1,
               "; your job on this machine has its store at 10.0.0.3:41611");
    check_hint("10.0.0.1", entries, 2, "lists your 2 jobs");
    check_hint("10.0.0.1", &same, 1, "has lost the machine of its store");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_listed_with_their_state),
        cmocka_unit_test(a_refused_connection_gets_the_advice_that_can_help),
    };
    return cmocka_run_group_tests_name("stat_jobs", tests, NULL, NULL);
}
