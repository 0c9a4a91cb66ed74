/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on GPUs agree on the newest copy of the training when a generation begins, and all take it
 * over. The device is the CPU with another kind: its memory and copies are what a GPU's would be,
 * and the group broadcasts because nothing is shared.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "trainer/session/gpu_backup.h"
#include "worker/job/job.h"

#define WORLD 3
#define COUNT 5

/* A trainer of which only the parts exist that a backup reads. */
struct rank_state {
    struct ctw_job *job;
    struct ct_device *cpu, gpu;
    struct ct_trainer t;
    float params[COUNT], momentum[COUNT];
};

static void open_state(struct rank_state *s, int64_t step)
{
    *s = (struct rank_state){.job = rank_open_job()};
    CHECK(ct_device_open(CT_DEVICE_CPU, 0, &s->cpu, NULL) == 0);
    CHECK(ct_group_open(s->job, s->cpu, CTW_ORDER_RANK, &s->t.group, NULL) == 0);
    s->t.group.shares_model = false;
    s->gpu = *s->cpu;
    s->gpu.kind = CT_DEVICE_CUDA;
    s->t.dev = &s->gpu;
    s->t.job = s->job;
    s->t.layout.count = COUNT;
    s->t.memory.params = s->params;
    s->t.optimizer = (struct ct_optimizer){
        .kind = CT_OPTIMIZER_SGD, .momentum = 0.9f, .step = step, .state = {s->momentum}};
    s->t.at = (struct ct_position){.epoch = (int)step / 10, .batch = (size_t)step % 10};
    for (int i = 0; i < COUNT; i++) {
        s->params[i] = (float)(100 * step + i);
        s->momentum[i] = -s->params[i];
    }
    ct_gpu_backup_open(&s->t);
    CHECK(s->t.backup.copy != NULL);
}

static void close_state(struct rank_state *s)
{
    ct_gpu_backup_close(&s->t.backup, s->cpu);
    CHECK(s->t.backup.copy == NULL);
    ct_buf_fini(&s->t.warnings);
    ct_group_close(&s->t.group);
    s->cpu->ops->close(s->cpu);
    ctw_job_free(s->job);
}

/* What a rank has once its checkpoint is read: another step, and numbers that must not remain. */
static void resume_at(struct rank_state *s, int64_t step)
{
    s->t.optimizer.step = step;
    s->t.at = (struct ct_position){.epoch = (int)step / 10, .batch = (size_t)step % 10};
    memset(s->params, 0x55, sizeof s->params);
    memset(s->momentum, 0x55, sizeof s->momentum);
}

static void check_state(const struct rank_state *s, int64_t step)
{
    for (int i = 0; i < COUNT; i++) {
        CHECK(s->params[i] == (float)(100 * step + i));
        CHECK(s->momentum[i] == -s->params[i]);
    }
}

/* Copies are of different steps since each rank copies when its own clock allows it. */
static void take_the_newest(int rank, void *data)
{
    (void)data;
    static const int64_t copied[WORLD] = {18, 20, 19};
    struct rank_state s;
    open_state(&s, copied[rank]);
    CHECK(ct_gpu_backup_point(&s.t, true, NULL) == 0);
    resume_at(&s, 7);
    CHECK(ct_gpu_backup_agree(&s.t, NULL) == 0);
    CHECK(s.t.backup.from == 2);
    CHECK(s.t.optimizer.step == 20);
    CHECK(s.t.at.epoch == 2);
    CHECK(s.t.at.batch == 0);
    CHECK(s.t.at.after_report); /* the epoch's last step has been reported */
    CHECK(ct_gpu_backup_fill(&s.t, NULL) == 0);
    check_state(&s, 20);
    close_state(&s);
}

static void the_newest_copy_of_any_rank_is_taken_over_by_all(void **state)
{
    (void)state;
    ranks_run(WORLD, take_the_newest, NULL);
}

/* A process that is new has no copy. */
static void let_a_new_rank_join(int rank, void *data)
{
    (void)data;
    struct rank_state s;
    open_state(&s, 13);
    if (rank == WORLD - 1) {
        CHECK(ct_gpu_backup_point(&s.t, true, NULL) == 0);
    }
    resume_at(&s, 13);
    CHECK(ct_gpu_backup_agree(&s.t, NULL) == 0);
    CHECK(s.t.backup.from == WORLD);
    CHECK(s.t.optimizer.step == 13);
    CHECK(s.t.at.epoch == 1);
    CHECK(s.t.at.batch == 3);
    CHECK(!s.t.at.after_report);
    CHECK(ct_gpu_backup_fill(&s.t, NULL) == 0);
    check_state(&s, 13);
    close_state(&s);
}

static void a_rank_without_a_copy_gets_that_of_another(void **state)
{
    (void)state;
    ranks_run(WORLD, let_a_new_rank_join, NULL);
}

static void keep_the_checkpoint(int rank, void *data)
{
    (void)data;
    struct rank_state s;
    open_state(&s, 12);
    CHECK(ct_gpu_backup_point(&s.t, true, NULL) == 0);
    resume_at(&s, rank == 0 ? 13 : 12); /* one rank has read a newer one */
    CHECK(ct_gpu_backup_agree(&s.t, NULL) == 0);
    CHECK(s.t.backup.from == 0);
    CHECK(s.t.optimizer.step == (rank == 0 ? 13 : 12));
    close_state(&s);
}

static void a_newer_checkpoint_is_preferred(void **state)
{
    (void)state;
    ranks_run(WORLD, keep_the_checkpoint, NULL);
}

static void begin_without(int rank, void *data)
{
    (void)data;
    struct rank_state s;
    open_state(&s, 12);
    if (ctw_job_env(s.job)->generation == 0) {
        /* The copy cannot be of this job's past, so nobody is asked. */
        CHECK(ct_gpu_backup_point(&s.t, true, NULL) == 0);
    }
    resume_at(&s, rank);
    CHECK(ct_gpu_backup_agree(&s.t, NULL) == 0);
    CHECK(s.t.backup.from == 0);
    CHECK(s.t.optimizer.step == rank);
    close_state(&s);
}

static void without_a_copy_nothing_is_taken_over(void **state)
{
    (void)state;
    ranks_run(WORLD, begin_without, NULL);
}

static void the_first_generation_takes_nothing_over(void **state)
{
    (void)state;
    ranks.generation = 0;
    ranks_start(WORLD, begin_without, NULL);
    ranks_join();
}

/* A copy is made again only after a step, and only when its share of the time allows it. */
static void copy_seldom(int rank, void *data)
{
    (void)data;
    (void)rank;
    struct rank_state s;
    open_state(&s, 10);
    CHECK(ct_gpu_backup_point(&s.t, false, NULL) == 0);
    CHECK(s.t.backup.step == 10);
    s.t.backup.next_ns = INT64_MAX;
    s.t.optimizer.step = 11;
    CHECK(ct_gpu_backup_point(&s.t, false, NULL) == 0);
    CHECK(s.t.backup.step == 10);
    CHECK(ct_gpu_backup_point(&s.t, true, NULL) == 0);
    CHECK(s.t.backup.step == 11);
    CHECK(s.t.backup.next_ns < INT64_MAX);
    close_state(&s);
}

static void a_copy_is_made_when_it_is_time_or_must_be(void **state)
{
    (void)state;
    ranks_run(1, copy_seldom, NULL);
}

/* With the CPU, or with a pipeline, nothing is kept. */
static void keep_nothing(int rank, void *data)
{
    (void)data;
    struct rank_state s;
    open_state(&s, 10 + rank);
    ct_gpu_backup_close(&s.t.backup, s.cpu);
    s.t.dev = s.cpu;
    ct_gpu_backup_open(&s.t);
    CHECK(s.t.backup.copy == NULL);
    CHECK(ct_gpu_backup_point(&s.t, true, NULL) == 0);
    CHECK(ct_gpu_backup_agree(&s.t, NULL) == 0);
    CHECK(s.t.backup.from == 0);
    close_state(&s);
}

static void a_cpu_keeps_no_copy(void **state)
{
    (void)state;
    ranks_run(2, keep_nothing, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(the_newest_copy_of_any_rank_is_taken_over_by_all),
        RANKS_TEST(a_rank_without_a_copy_gets_that_of_another),
        RANKS_TEST(a_newer_checkpoint_is_preferred),
        RANKS_TEST(without_a_copy_nothing_is_taken_over),
        RANKS_TEST(the_first_generation_takes_nothing_over),
        RANKS_TEST(a_copy_is_made_when_it_is_time_or_must_be),
        RANKS_TEST(a_cpu_keeps_no_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
