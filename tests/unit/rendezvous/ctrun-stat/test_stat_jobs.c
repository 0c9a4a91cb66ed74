/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of jobs that ctrun-stat finds on this machine without an address.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_jobs.h"
#include "rendezvous/wire/json.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_are_listed_with_their_state),
    };
    return cmocka_run_group_tests_name("stat_jobs", tests, NULL, NULL);
}
