/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun adds to the status: workers in every state, failures, problems.
 */
#include "tests/lib/ct_test.h"

#include "launcher/job_status.h"
#include "rendezvous/json.h"
#include "tests/lib/fault.h"

#include <signal.h>

#define WORKERS 6

static const struct ct_report_worker table[WORKERS] = {
    {.rank = 4, .pid = 40},
    {.rank = 5, .pid = 50, .ended = true, .end = {CT_END_EXITED, 0, false}},
    {.rank = 6, .pid = 60, .ended = true, .end = {CT_END_EXITED, 3, false}},
    {.rank = 7,
     .pid = 70,
     .ended = true,
     .was_asked = true,
     .end = {CT_END_SIGNALED, SIGTERM, false}},
    {.rank = 8, .pid = 80, .ended = true, .end = {CT_END_EXITED, 9, false}},
    {.rank = 9},
};

struct rig {
    struct ct_agent agent;
    struct ct_plan plan;
    struct ct_job_failures failures;
};

static void rig_init(struct rig *rig)
{
    static const uint8_t states[WORKERS] = {CT_WORKER_ALIVE, CT_WORKER_GONE,     CT_WORKER_GONE,
                                            CT_WORKER_GONE,  CT_WORKER_SPAWNING, CT_WORKER_ABSENT};
    *rig = (struct rig){
        .plan = {.first_rank = 4,
                 .world_size = 10,
                 .node_rank = 1,
                 .max_restarts = 2,
                 .run_id = "job\xff"},
    };
    assert_int_equal(ct_agent_init(&rig->agent, WORKERS, 2, NULL), 0);
    memcpy(rig->agent.states, states, sizeof(states));
    rig->agent.generation = 1;
}

static int add(struct rig *rig, cJSON **root, cJSON **problems)
{
    const struct ct_job_facts facts = {"host", &rig->agent, &rig->plan, table, &rig->failures};
    ct_json_use_our_memory();
    *root = cJSON_CreateObject();
    *problems = cJSON_CreateArray();
    return *root != NULL && *problems != NULL ? ct_job_status_add(&facts, *root, *problems)
                                              : CT_ENOMEM;
}

static void test_workers(void **state)
{
    (void)state;
    static const struct {
        double pid;
        const char *state, *exit;
    } want[WORKERS] = {
        {40, "running", "null"}, {50, "succeeded", "0"},  {60, "failed", "3"},
        {70, "stopped", "-15"},  {0, "starting", "null"}, {0, "waiting", "null"},
    };
    struct rig rig;
    cJSON *root, *problems;
    rig_init(&rig);
    assert_int_equal(add(&rig, &root, &problems), 0);
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(root, "job");
    assert_string_equal(ct_json_text(job, "run_id", ""), "job\\xff");
    assert_string_equal(ct_json_text(job, "state", ""), "idle");
    assert_true(ct_json_number(job, "generation", -1) == 1);
    assert_true(ct_json_number(job, "max_restarts", -1) == 2);
    assert_true(ct_json_number(job, "world_size", -1) == 10);
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(job, "workers");
    assert_int_equal(cJSON_GetArraySize(workers), WORKERS);
    for (int i = 0; i < WORKERS; i++) {
        const cJSON *worker = cJSON_GetArrayItem(workers, i);
        assert_true(ct_json_number(worker, "rank", -1) == 4 + i);
        assert_true(ct_json_number(worker, "local_rank", -1) == i);
        assert_true(ct_json_number(worker, "pid", -1) == want[i].pid);
        assert_true(ct_json_number(worker, "restarts", -1) == 1);
        assert_string_equal(ct_json_text(worker, "host", ""), "host");
        assert_string_equal(ct_json_text(worker, "state", ""), want[i].state);
        char *text = cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(worker, "exit"));
        assert_string_equal(text, want[i].exit);
        cJSON_free(text);
    }
    const cJSON *nodes = cJSON_GetObjectItemCaseSensitive(job, "nodes");
    assert_int_equal(cJSON_GetArraySize(nodes), 1);
    assert_true(ct_json_number(cJSON_GetArrayItem(nodes, 0), "index", -1) == 1);
    assert_int_equal(cJSON_GetArraySize(problems), 0);
    cJSON_Delete(root);
    cJSON_Delete(problems);
    ct_agent_fini(&rig.agent);
}

static void test_failures_are_kept_to_a_bound(void **state)
{
    (void)state;
    struct rig rig;
    cJSON *root, *problems;
    rig_init(&rig);
    for (int i = 0; i < CT_JOB_FAILURES_KEPT + 3; i++) {
        const struct ct_job_failure failure = {i, 5, 100 + i, {CT_END_SIGNALED, SIGSEGV, false}};
        ct_job_failures_add(&rig.failures, &failure);
    }
    rig.agent.failure = (struct ct_agent_failure){true, 2, {CT_END_EXITED, 3, false}, false};
    rig.agent.signo = SIGTERM;
    assert_int_equal(add(&rig, &root, &problems), 0);
    const cJSON *job = cJSON_GetObjectItemCaseSensitive(root, "job");
    assert_true(ct_json_number(job, "failure_count", -1) == CT_JOB_FAILURES_KEPT + 3);
    const cJSON *failures = cJSON_GetObjectItemCaseSensitive(job, "failures");
    assert_int_equal(cJSON_GetArraySize(failures), CT_JOB_FAILURES_KEPT);
    const cJSON *first = cJSON_GetArrayItem(failures, 0);
    assert_true(ct_json_number(first, "generation", -1) == 3);
    assert_true(ct_json_number(first, "pid", -1) == 103);
    assert_true(ct_json_number(first, "exit", 0) == -SIGSEGV);
    assert_string_equal(ct_json_text(first, "reason", ""), "was killed by signal 11 (SIGSEGV)");
    assert_int_equal(cJSON_GetArraySize(problems), 2);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(problems, 0)),
                        "rank 6 failed: it exited with code 3");
    assert_string_equal(cJSON_GetStringValue(cJSON_GetArrayItem(problems, 1)),
                        "ctrun was asked to end by SIGTERM");
    cJSON_Delete(root);
    cJSON_Delete(problems);
    ct_agent_fini(&rig.agent);
}

static int sweep_body(void *data)
{
    cJSON *root, *problems;
    int rc = add(data, &root, &problems);
    cJSON_Delete(root);
    cJSON_Delete(problems);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    rig.agent.failure = (struct ct_agent_failure){true, 2, {CT_END_EXITED, 3, false}, false};
    rig.agent.signo = SIGTERM;
    const struct ct_job_failure failure = {0, 5, 100, {CT_END_SIGNALED, SIGSEGV, false}};
    ct_job_failures_add(&rig.failures, &failure);
    assert_true(ct_fault_sweep(sweep_body, &rig, 0) >= 1);
    ct_agent_fini(&rig.agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_failures_are_kept_to_a_bound),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
