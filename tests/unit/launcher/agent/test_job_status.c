/* SPDX-License-Identifier: Apache-2.0
 *
 * What a node tells of its workers: every state.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/agent/job_status.h"

#include <math.h>
#include <signal.h>
#include <unistd.h>

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
    struct ct_worker_env worker_env;
};

static void rig_init(struct rig *rig)
{
    static const uint8_t states[WORKERS] = {CT_WORKER_ALIVE, CT_WORKER_GONE,     CT_WORKER_GONE,
                                            CT_WORKER_GONE,  CT_WORKER_SPAWNING, CT_WORKER_ABSENT};
    *rig = (struct rig){
        .worker_env = {.first_rank = 4,
                       .world_size = 10,
                       .node_rank = 1,
                       .max_restarts = 2,
                       .run_id = "job\xff"},
    };
    assert_int_equal(ct_agent_init(&rig->agent, WORKERS, NULL), 0);
    memcpy(rig->agent.states, states, sizeof(states));
    rig->agent.generation = 1;
}

/* SIGSTOP stops it whether or not hangs are looked for. */
static void test_a_worker_that_a_signal_has_stopped_is_told(void **state)
{
    (void)state;
    struct rig rig;
    struct ct_report_worker workers[WORKERS];
    struct ct_worker_row rows[WORKERS];
    rig_init(&rig);
    memcpy(workers, table, sizeof(workers));
    workers[0].stopped = workers[1].stopped = true;
    const struct ct_job_facts facts = {
        .agent = &rig.agent, .worker_env = &rig.worker_env, .workers = workers};
    ct_job_status_rows(&facts, rows);
    assert_int_equal(rows[0].state, CT_ROW_STOPPED);
    assert_false(rows[0].ended);
    assert_int_equal(rows[1].state, CT_ROW_SUCCEEDED); /* it has ended since */
    ct_agent_fini(&rig.agent);
}

static void test_each_worker_has_a_row_with_its_state(void **state)
{
    (void)state;
    static const struct {
        int64_t pid;
        enum ct_row_state state;
        bool ended;
        int exit_code;
    } want[WORKERS] = {
        {40, CT_ROW_RUNNING, false, 0}, {50, CT_ROW_SUCCEEDED, true, 0},
        {60, CT_ROW_FAILED, true, 3},   {70, CT_ROW_STOPPED, true, -15},
        {0, CT_ROW_STARTING, false, 0}, {0, CT_ROW_WAITING, false, 0},
    };
    struct rig rig;
    struct ct_worker_row rows[WORKERS];
    rig_init(&rig);
    const struct ct_job_facts facts = {
        .agent = &rig.agent, .worker_env = &rig.worker_env, .workers = table};
    ct_job_status_rows(&facts, rows);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(rows[i].rank, 4 + i);
        assert_int_equal(rows[i].local_rank, i);
        assert_int_equal(rows[i].pid, want[i].pid);
        assert_int_equal(rows[i].generation, 1);
        assert_int_equal(rows[i].state, want[i].state);
        assert_int_equal(rows[i].ended, want[i].ended);
        assert_int_equal(rows[i].exit_code, want[i].exit_code);
        assert_int_equal(rows[i].phase, CT_ROW_UNTOLD);
    }
    ct_agent_fini(&rig.agent);
}

/* Writes what a worker says of itself into its slot. */
static void stamp(const struct ct_progress_reader *reader, int local_rank,
                  const struct ct_progress_slot *slot)
{
    assert_int_equal(pwrite(reader->fd, slot, sizeof(*slot), (off_t)local_rank * CT_PROGRESS_SLOT),
                     sizeof(*slot));
}

static void test_a_row_has_what_the_worker_says_of_itself(void **state)
{
    struct ct_progress_reader reader = CT_PROGRESS_READER_INIT;
    struct ct_progress_slot slot = {
        .version = CT_PROGRESS_VERSION,
        .where = ct_progress_where(CT_PHASE_COMPUTE, 12),
        .stamp_ns = 5 * CT_NS_PER_S,
        .loss = 0.5,
        .rate = (double)NAN,
    };
    struct rig rig;
    struct ct_worker_row rows[WORKERS];
    (void)state;
    rig_init(&rig);
    ct_progress_reader_open(&reader, WORKERS, NULL);
    assert_true(reader.fd >= 0);
    stamp(&reader, 0, &slot);
    slot.where = ct_progress_where(CT_PHASE_DONE, CT_PROGRESS_STEP_MAX);
    stamp(&reader, 1, &slot);
    const struct ct_job_facts facts = {.agent = &rig.agent,
                                       .worker_env = &rig.worker_env,
                                       .workers = table,
                                       .progress = &reader,
                                       .now_ns = 5 * CT_NS_PER_S + 250 * CT_NS_PER_MS};
    ct_job_status_rows(&facts, rows);
    assert_int_equal(rows[0].phase, CT_PHASE_COMPUTE);
    assert_int_equal(rows[0].step, 12);
    assert_int_equal(rows[0].age_ms, 250);
    assert_true(rows[0].loss == 0.5 && isnan(rows[0].rate));
    assert_int_equal(rows[0].state, CT_ROW_RUNNING);
    /* JSON holds no larger number exactly. */
    assert_true(rows[1].step == INT64_C(1) << 53);
    assert_int_equal(rows[2].phase, CT_ROW_UNTOLD);

    slot.stay = ct_generation_word(1, CT_STAY_PARKED);
    stamp(&reader, 0, &slot);
    ct_job_status_rows(&facts, rows);
    assert_int_equal(rows[0].state, CT_ROW_PARKED);
    slot.stay = ct_generation_word(0, CT_STAY_PARKED); /* it has gone on since */
    stamp(&reader, 0, &slot);
    ct_job_status_rows(&facts, rows);
    assert_int_equal(rows[0].state, CT_ROW_RUNNING);
    ct_progress_reader_fini(&reader);
    ct_agent_fini(&rig.agent);
}

static void test_an_end_without_a_code_has_none(void **state)
{
    static const struct ct_report_worker ends[WORKERS] = {
        [1] = {.rank = 5, .pid = 50, .ended = true, .end = {.kind = CT_END_HUNG, .value = 30}},
        [2] = {.rank = 6, .pid = 60, .ended = true, .end = {.kind = CT_END_EXPIRED, .value = 9}},
    };
    struct rig rig;
    struct ct_worker_row rows[WORKERS];
    (void)state;
    rig_init(&rig);
    const struct ct_job_facts facts = {
        .agent = &rig.agent, .worker_env = &rig.worker_env, .workers = ends};
    ct_job_status_rows(&facts, rows);
    assert_false(rows[1].ended);
    assert_int_equal(rows[1].exit_code, 0);
    assert_true(rows[2].ended);
    assert_int_equal(rows[2].exit_code, -9);
    ct_agent_fini(&rig.agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_worker_has_a_row_with_its_state),
        cmocka_unit_test(test_a_worker_that_a_signal_has_stopped_is_told),
        cmocka_unit_test(test_a_row_has_what_the_worker_says_of_itself),
        cmocka_unit_test(test_an_end_without_a_code_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
