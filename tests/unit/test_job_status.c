/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node tells of its workers: every state.
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
    assert_int_equal(ct_agent_init(&rig->agent, WORKERS, NULL), 0);
    memcpy(rig->agent.states, states, sizeof(states));
    rig->agent.generation = 1;
}

static cJSON *workers_of(const struct rig *rig)
{
    const struct ct_job_facts facts = {
        .host = "host", .agent = &rig->agent, .plan = &rig->plan, .workers = table};
    ct_json_use_our_memory();
    return ct_job_status_workers(&facts);
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
    rig_init(&rig);
    cJSON *workers = workers_of(&rig);
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
    cJSON_Delete(workers);
    ct_agent_fini(&rig.agent);
}

static int sweep_body(void *data)
{
    cJSON *workers = workers_of(data);
    int rc = workers != NULL ? 0 : CT_ENOMEM;
    cJSON_Delete(workers);
    return rc;
}

static void test_no_memory(void **state)
{
    (void)state;
    struct rig rig;
    rig_init(&rig);
    assert_true(ct_fault_sweep(sweep_body, &rig, 0) >= 1);
    ct_agent_fini(&rig.agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_workers),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
