/* SPDX-License-Identifier: Apache-2.0
 *
 * Several jobs on one store: who holds them, and their status in one document.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/control/worker_rows.h"
#include "rendezvous/server/control_jobs.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/limits.h"

#include <stdio.h>
#include <stdlib.h>

static void on_send(void *data, struct ct_member *member, const struct ct_msg *msg)
{
    (void)data;
    (void)member;
    (void)msg;
}

static void on_drop(void *data, struct ct_member *member)
{
    (void)data;
    (void)member;
}

static const struct ct_members_options options = {.send = on_send, .drop = on_drop};

static void begin(struct ct_control_jobs *jobs, const char *only)
{
    ct_json_use_our_memory();
    ct_control_jobs_init(jobs, &options, only);
}

static struct ct_control_job *take(struct ct_control_jobs *jobs, const char *run_id)
{
    struct ct_control_job *job = NULL;
    struct ct_err err = {0};
    if (ct_control_jobs_take(jobs, run_id, &job, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return job;
}

static void test_agents_of_one_run_share_a_job(void **state)
{
    struct ct_control_jobs jobs;
    (void)state;
    begin(&jobs, NULL);
    struct ct_control_job *a = take(&jobs, "a"), *b = take(&jobs, "b");
    assert_ptr_not_equal(a, b);
    assert_ptr_equal(take(&jobs, "a"), a);
    assert_int_equal(a->agents, 2);
    assert_int_equal(jobs.count, 2);
    ct_control_jobs_release(&jobs, a);
    assert_int_equal(jobs.count, 2);
    ct_control_jobs_release(&jobs, a);
    assert_int_equal(jobs.count, 1);
    /* What is left is freed at the end. */
    ct_control_jobs_fini(&jobs);
    assert_int_equal(jobs.count, 0);
}

static void test_a_store_of_one_job_refuses_another(void **state)
{
    struct ct_control_jobs jobs;
    struct ct_control_job *job = NULL;
    struct ct_err err = {0};
    (void)state;
    begin(&jobs, "mine");
    ct_control_jobs_release(&jobs, take(&jobs, "mine"));
    assert_int_equal(ct_control_jobs_take(&jobs, "other", &job, &err), CT_EINVAL);
    assert_string_equal(err.text, "this store belongs to job 'mine', not to 'other' (--rdzv-id)");
    assert_null(job);
    ct_control_jobs_fini(&jobs);
}

static void test_one_job_too_many_is_refused(void **state)
{
    struct ct_control_jobs jobs;
    struct ct_control_job *job = NULL;
    struct ct_err err = {0};
    char run_id[16];
    (void)state;
    begin(&jobs, NULL);
    for (int i = 0; i < CT_CONTROL_MAX_JOBS; i++) {
        (void)snprintf(run_id, sizeof(run_id), "%d", i);
        (void)take(&jobs, run_id);
    }
    assert_int_equal(ct_control_jobs_take(&jobs, "x", &job, &err), CT_ELIMIT);
    assert_string_equal(err.text, "1024 jobs are served already");
    (void)take(&jobs, "0"); /* one that is there still takes agents */
    ct_control_jobs_fini(&jobs);
}

/* Two nodes are wanted and one joins: the job waits, and tells it so after a while. */
static struct ct_member *join(struct ct_control_job *job)
{
    static struct ct_msg_join msg = {.host = "h",
                                     .workers = 1,
                                     .node_rank = -1,
                                     .min_nodes = 2,
                                     .max_nodes = 2,
                                     .join_ms = 60000,
                                     .heartbeat_ms = 3000};
    struct ct_member *member = NULL;
    struct ct_err err = {0};
    if (ct_members_join(job->members, &msg, "", NULL, 0, &member, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return member;
}

static void test_the_next_tick_is_that_of_the_earliest_job(void **state)
{
    struct ct_control_jobs jobs;
    (void)state;
    begin(&jobs, NULL);
    assert_true(ct_control_jobs_next(&jobs) == INT64_MAX);
    (void)take(&jobs, "idle");
    assert_true(ct_control_jobs_next(&jobs) == INT64_MAX);
    struct ct_control_job *job = take(&jobs, "waits");
    (void)join(job);
    int64_t next = ct_control_jobs_next(&jobs);
    assert_true(next < INT64_MAX && next == ct_members_next(job->members));
    ct_control_jobs_tick(&jobs, next - 1);
    assert_true(ct_control_jobs_next(&jobs) == next); /* too early to do anything */
    ct_control_jobs_tick(&jobs, next);
    assert_true(ct_control_jobs_next(&jobs) > next);
    ct_control_jobs_fini(&jobs);
}

static int status_of(int count, char **out)
{
    static const char *const ids[] = {"a\x1b", "b"};
    struct ct_control_jobs jobs;
    struct ct_status_rows rows = {.print = true};
    int rc = CT_ENOMEM;
    ct_control_jobs_init(&jobs, &options, NULL);
    cJSON *root = cJSON_CreateObject();
    cJSON *problems = root != NULL ? cJSON_AddArrayToObject(root, "problems") : NULL;
    if (problems == NULL) {
        goto out;
    }
    for (int i = 0; i < count; i++) {
        struct ct_control_job *job;
        struct ct_member *member;
        struct ct_msg_join msg = {.host = "h",
                                  .workers = 1,
                                  .node_rank = -1,
                                  .min_nodes = 2,
                                  .max_nodes = 2,
                                  .join_ms = 60000,
                                  .heartbeat_ms = 3000};
        rc = ct_control_jobs_take(&jobs, ids[i], &job, NULL);
        if (rc != 0) {
            goto out;
        }
        (void)snprintf(msg.run_id, sizeof(msg.run_id), "%s", ids[i]);
        rc = ct_members_join(job->members, &msg, "", NULL, 0, &member, NULL);
        if (rc != 0) {
            goto out;
        }
    }
    rc = ct_control_jobs_status(&jobs, 0, &rows, root, problems);
    assert_true(rc != 0 || rows.job == count);
    if (rc == 0 && out != NULL) {
        *out = cJSON_PrintUnformatted(root);
    }
out:
    ct_status_rows_fini(&rows);
    ct_control_jobs_fini(&jobs);
    cJSON_Delete(root);
    return rc;
}

static void test_one_job_is_an_object_and_several_are_an_array(void **state)
{
    char *text = NULL;
    (void)state;
    ct_json_use_our_memory();
    assert_int_equal(status_of(0, &text), 0);
    assert_string_equal(text, "{\"problems\":[]}");
    cJSON_free(text);

    assert_int_equal(status_of(1, &text), 0);
    assert_non_null(strstr(text, "\"job\":{"));
    assert_null(strstr(text, "\"jobs\""));
    assert_null(strstr(text, "\"job a"));
    cJSON_free(text);

    /* Each problem names its job, without what a terminal would obey. */
    assert_int_equal(status_of(2, &text), 0);
    assert_non_null(strstr(text, "\"jobs\":[{"));
    assert_null(strstr(text, "\"job\":{"));
    assert_non_null(strstr(text, "\"job a?: "));
    assert_non_null(strstr(text, "\"job b: "));
    cJSON_free(text);
}

static int sweep_status(void *data)
{
    (void)data;
    return status_of(2, NULL);
}

/* The missing nodes are left out where there is no memory to find them, which is no failure. */
static void test_each_failed_allocation_is_survived(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    assert_true(ct_fault_sweep(sweep_status, NULL, 1) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agents_of_one_run_share_a_job),
        cmocka_unit_test(test_a_store_of_one_job_refuses_another),
        cmocka_unit_test(test_one_job_too_many_is_refused),
        cmocka_unit_test(test_the_next_tick_is_that_of_the_earliest_job),
        cmocka_unit_test(test_one_job_is_an_object_and_several_are_an_array),
        cmocka_unit_test(test_each_failed_allocation_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
