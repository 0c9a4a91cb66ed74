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

/* One of two nodes that are wanted. */
static const struct ct_msg_join waiting_node = {.host = "h",
                                                .workers = 1,
                                                .node_rank = -1,
                                                .min_nodes = 2,
                                                .max_nodes = 2,
                                                .join_ms = 60000,
                                                .heartbeat_ms = 3000};

/* The job waits, and tells it so after a while. */
static struct ct_member *join(struct ct_control_job *job)
{
    struct ct_member *member = NULL;
    struct ct_err err = {0};
    if (ct_members_join(job->members, &waiting_node, "", NULL, 0, &member, &err) != 0) {
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
        struct ct_msg_join msg = waiting_node;
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
    assert_non_null(strstr(text, "\"number\":0"));
    cJSON_free(text);

    /* Each problem names its job, without what a terminal would obey. */
    assert_int_equal(status_of(2, &text), 0);
    assert_non_null(strstr(text, "\"jobs\":[{"));
    assert_null(strstr(text, "\"job\":{"));
    assert_non_null(strstr(text, "\"job a?: "));
    assert_non_null(strstr(text, "\"job b: "));
    assert_non_null(strstr(text, "\"number\":1"));
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

/* ---- jobs that outlive their host ------------------------------------------------------------ */

static void on_arbitrate(void *data, const struct ct_job_record *record)
{
    (void)record;
    ++*(int *)data;
}

#define LOST UINT64_C(9) /* the former host */

/* The host was elected, before any world; nothing has been heard of the arbiter yet. */
static void begin_elected(struct ct_control_jobs *jobs, int *records, bool arbiter)
{
    static struct ct_job_record none;
    ct_job_record_init(&none);
    const struct ct_members_failover failover = {.self = {.id = 1},
                                                 .arbiter = arbiter,
                                                 .term = UINT64_C(1) << 32 | 1,
                                                 .record = arbiter ? NULL : &none,
                                                 .lost = {.id = LOST},
                                                 .fence_ns = INT64_MIN};
    const struct ct_members_options elected = {.send = on_send,
                                               .drop = on_drop,
                                               .failover = &failover,
                                               .arbitrate = on_arbitrate,
                                               .data = records};
    *records = 0;
    ct_json_use_our_memory();
    ct_control_jobs_init(jobs, &elected, NULL);
    /* Both nodes of each job come; voters 11, 12, 21 and 22. */
    for (uint64_t number = 1; number <= 2; number++) {
        struct ct_control_job *job = take(jobs, number == 1 ? "a" : "b");
        for (uint64_t node = 1; node <= 2; node++) {
            struct ct_msg_join msg = waiting_node;
            struct ct_member *member;
            msg.voter.id = 10 * number + node;
            assert_int_equal(ct_members_join(job->members, &msg, "", NULL, 0, &member, NULL), 0);
        }
    }
    jobs->options.failover = NULL; /* was for this function's time */
}

static void test_every_job_hears_of_the_arbiter(void **state)
{
    struct ct_control_jobs jobs;
    int records;
    const struct ct_arbiter_pledge pledge = {.sent_ns = 1};
    (void)state;
    begin_elected(&jobs, &records, true);
    assert_int_equal(records, 0); /* the first world waits for it */
    ct_control_jobs_arbiter(&jobs, &pledge, 1);
    assert_int_equal(records, 2); /* each job asks it for its own */
    ct_control_jobs_arbiter(&jobs, &pledge, 2);
    assert_int_equal(records, 2);
    ct_control_jobs_arbiter(&jobs, NULL, 3);
    assert_int_equal(records, 2);
    ct_control_jobs_arbiter(&jobs, &pledge, 4);
    assert_int_equal(records, 4); /* what it was asked before its loss is void */
    ct_control_jobs_fini(&jobs);
}

static void test_every_job_hears_who_is_dead(void **state)
{
    struct ct_control_jobs jobs;
    int records;
    (void)state;
    begin_elected(&jobs, &records, false);
    /* Whoever follows this host in any of the jobs stands no more. */
    assert_true(ct_control_jobs_stands_no_more(&jobs, 11));
    assert_true(ct_control_jobs_stands_no_more(&jobs, 22));
    assert_false(ct_control_jobs_stands_no_more(&jobs, 33));
    assert_false(ct_control_jobs_stands_no_more(&jobs, LOST));
    ct_control_jobs_dead(&jobs, 33, 1); /* nobody knows it */
    assert_false(ct_control_jobs_stands_no_more(&jobs, 33));
    ct_control_jobs_dead(&jobs, LOST, 1);
    assert_true(ct_control_jobs_stands_no_more(&jobs, LOST));
    for (int i = 0; i < 2; i++) {
        assert_true(ct_members_stands_no_more(ct_control_jobs_numbered(&jobs, i)->members, LOST));
    }
    ct_control_jobs_fini(&jobs);
    assert_false(ct_control_jobs_stands_no_more(&jobs, LOST));
}

static void test_only_a_job_without_a_world_that_outlives_its_host_waits(void **state)
{
    struct ct_control_jobs jobs;
    int records;
    (void)state;
    begin_elected(&jobs, &records, true);
    assert_ptr_equal(ct_control_jobs_waiting(&jobs, "b"), ct_control_jobs_numbered(&jobs, 1));
    assert_null(ct_control_jobs_waiting(&jobs, "c"));
    ct_control_jobs_fini(&jobs);
    begin(&jobs, NULL);
    (void)take(&jobs, "mortal");
    assert_null(ct_control_jobs_waiting(&jobs, "mortal"));
    ct_control_jobs_fini(&jobs);
}

/* ---- the end of jobs --------------------------------------------------------------------------
 */

/* The live page and ctrun-stat ask for the output of a worker some time after they have read the
 * status. They went by the place of the job, and were shown the output of another job when one had
 * ended in between. */
static void test_a_job_keeps_its_number_when_others_end(void **state)
{
    struct ct_control_jobs jobs;
    (void)state;
    begin(&jobs, NULL);
    assert_null(ct_control_jobs_numbered(&jobs, 0));
    struct ct_control_job *a = take(&jobs, "a"), *b = take(&jobs, "b"), *c = take(&jobs, "c");
    assert_ptr_equal(ct_control_jobs_numbered(&jobs, 0), a);
    assert_ptr_equal(ct_control_jobs_numbered(&jobs, 2), c);
    assert_null(ct_control_jobs_numbered(&jobs, 3));
    assert_null(ct_control_jobs_numbered(&jobs, -1));
    ct_control_jobs_release(&jobs, a);
    assert_null(ct_control_jobs_numbered(&jobs, 0));
    assert_ptr_equal(ct_control_jobs_numbered(&jobs, 1), b);
    assert_ptr_equal(ct_control_jobs_numbered(&jobs, 2), c);
    ct_control_jobs_release(&jobs, b);
    a = take(&jobs, "a"); /* the same name, but another job */
    assert_ptr_equal(ct_control_jobs_numbered(&jobs, 3), a);
    ct_control_jobs_fini(&jobs);
}

/* Its agents have connections, which point to it and are closed later. */
static void test_a_job_that_was_ended_is_there_for_its_agents_only(void **state)
{
    struct ct_control_jobs jobs;
    (void)state;
    ct_fault_begin(-1);
    begin(&jobs, NULL);
    struct ct_control_job *ended = take(&jobs, "a"), *other = take(&jobs, "b");
    assert_ptr_equal(take(&jobs, "a"), ended);
    ct_control_jobs_end_one(&jobs, ended);
    assert_null(ended->members);
    assert_int_equal(ended->agents, 2);
    assert_int_equal(jobs.count, 1);
    assert_ptr_equal(ct_control_jobs_numbered(&jobs, 1), other);
    struct ct_control_job *anew = take(&jobs, "a");
    assert_ptr_not_equal(anew, ended);
    ct_control_jobs_release(&jobs, ended);
    assert_int_equal(ended->agents, 1);
    ct_control_jobs_release(&jobs, ended);
    assert_int_equal(jobs.count, 2); /* the one of its name is not touched */
    ct_control_jobs_end(&jobs);
    assert_int_equal(jobs.count, 0);
    assert_null(anew->members);
    assert_null(other->members);
    assert_true(ct_control_jobs_next(&jobs) == INT64_MAX);
    ct_control_jobs_release(&jobs, anew);
    ct_control_jobs_release(&jobs, other);
    assert_int_equal(ct_fault_end(), 0);
}

/* `ctrun --linger` shows the end of a job that nobody belongs to any more. */
static void test_a_job_that_is_kept_stays_without_agents(void **state)
{
    struct ct_control_jobs jobs;
    (void)state;
    ct_fault_begin(-1);
    begin(&jobs, NULL);
    jobs.keep = true;
    struct ct_control_job *job = take(&jobs, "a");
    ct_control_jobs_release(&jobs, job);
    assert_int_equal(jobs.count, 1);
    assert_ptr_equal(take(&jobs, "a"), job); /* and takes agents again */
    assert_int_equal(job->agents, 1);
    ct_control_jobs_release(&jobs, job);
    ct_control_jobs_end(&jobs); /* nobody releases it any more */
    assert_int_equal(jobs.count, 0);
    assert_int_equal(ct_fault_end(), 0);
}

static int sweep_take(void *data)
{
    struct ct_control_jobs jobs;
    struct ct_control_job *job = NULL;
    struct ct_err err = {0};
    (void)data;
    ct_control_jobs_init(&jobs, &options, NULL);
    int rc = ct_control_jobs_take(&jobs, "a", &job, &err);
    assert_string_equal(err.text, rc == 0 ? "" : "the store is out of memory");
    assert_int_equal(jobs.count, rc == 0);
    ct_control_jobs_fini(&jobs);
    return rc;
}

static void test_a_job_without_memory_is_refused(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(sweep_take, NULL, 0) > 1);
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
        cmocka_unit_test(test_every_job_hears_of_the_arbiter),
        cmocka_unit_test(test_every_job_hears_who_is_dead),
        cmocka_unit_test(test_only_a_job_without_a_world_that_outlives_its_host_waits),
        cmocka_unit_test(test_a_job_keeps_its_number_when_others_end),
        cmocka_unit_test(test_a_job_that_was_ended_is_there_for_its_agents_only),
        cmocka_unit_test(test_a_job_that_is_kept_stays_without_agents),
        cmocka_unit_test(test_a_job_without_memory_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
