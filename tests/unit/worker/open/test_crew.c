/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads of one process, over the stand-in for NCCL: they find each other without a
 * store, and if one of them gives up, the others do not wait for it, although NCCL tells them
 * nothing.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "tests/lib/fake_gpu/fake_gpu.h"
#include "worker/job/job.h"
#include "worker/open/crew.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

extern const struct comm_nccl_module ctworker_nccl_module;

#define RANKS 3
/* Long enough that only a broken wait reaches it, and short enough to wait for. */
#define LONG_MS (20 * 1000)
#define SHORT_MS 50

struct rank {
    pthread_t thread;
    struct ctw_job *job;
    int64_t timeout_ms;
    void (*body)(struct rank *rank);
    cudaStream_t stream;
    float x;
    int rc;
    struct ct_err err;
};

/* What ctw_comm_open() does, but with the module that is linked here. */
static int open_comm(struct rank *r, int number, struct ctw_comm **out)
{
    const struct ctw_env *env = ctw_job_env(r->job);
    struct comm_origin origin = {.job = r->job, .timeout_ms = r->timeout_ms};
    (void)snprintf(origin.name, sizeof(origin.name), "comm/%d", number);
    struct comm_setup setup = comm_setup_of(&origin);
    setup.rank = env->rank;
    setup.size = env->world_size;
    setup.device = env->device_index;
    setup.stream = r->stream;
    crew_setup(r->job->crew, &setup);
    return ctworker_nccl_module.open(&setup, out, &r->err);
}

static void *run_rank(void *data)
{
    struct rank *r = data;
    (void)cudaSetDevice(ctw_job_env(r->job)->device_index);
    r->rc =
        cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking) == cudaSuccess ? 0 : CT_EIO;
    if (r->rc == 0) {
        r->body(r);
    }
    (void)cudaStreamDestroy(r->stream);
    return NULL;
}

/* Runs the body on every rank from `first` on. Nothing may be left, and no rule be broken. */
static void run(int first, int64_t timeout_ms, void (*body)(struct rank *rank), struct rank *ranks)
{
    struct ctw_job job = {.env = {.world_size = 1, .local_world_size = 1, .node_count = 1}};
    const struct fake_gpu script = {.processes = true, .crews = true};
    struct ctw_crew *crew;
    const char *base = getenv("TMPDIR");
    char *was = base != NULL ? strdup(base) : NULL;
    char *dir = ct_tmpdir_new(); /* for the stand-in's files */
    assert_int_equal(setenv("TMPDIR", dir, 1), 0);
    fake_gpu_begin(&script);
    assert_int_equal(ctw_crew_open(&job, RANKS, &crew, NULL), 0);
    for (int r = first; r < RANKS; r++) {
        ranks[r] = (struct rank){
            .job = ctw_crew_job(crew, r), .timeout_ms = timeout_ms, .body = body, .x = 1};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = first; r < RANKS; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
    }
    ctw_crew_free(crew);
    assert_int_equal(was != NULL ? setenv("TMPDIR", was, 1) : unsetenv("TMPDIR"), 0);
    ct_tmpdir_free(dir);
    free(was);
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
    assert_int_equal(fake.comms + fake.memory + fake.streams, 0);
}

static void sum_by_two_communicators(struct rank *r)
{
    for (int i = 0; r->rc == 0 && i < 2; i++) {
        struct ctw_comm *comm = NULL;
        r->rc = open_comm(r, i, &comm);
        if (r->rc == 0) {
            r->rc = ctw_comm_all_reduce(comm, &r->x, &r->x, 1, &r->err);
        }
        if (r->rc == 0) {
            r->rc = ctw_comm_sync(comm, &r->err);
        }
        ctw_comm_free(comm);
    }
}

static void they_need_no_store(void **state)
{
    (void)state;
    struct rank ranks[RANKS];
    run(0, LONG_MS, sum_by_two_communicators, ranks);
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].rc != 0) {
            fail_msg("rank %d: %s", r, ranks[r].err.text);
        }
        assert_true(ranks[r].x == RANKS * RANKS);
    }
}

/* The last rank fails before its first collective, in which NCCL connects. */
static void sum_or_give_up(struct rank *r)
{
    struct ctw_comm *comm = NULL;
    r->rc = open_comm(r, 0, &comm);
    if (r->rc == 0 && ctw_job_env(r->job)->rank == RANKS - 1) {
        ctw_comm_abort(comm);
    } else if (r->rc == 0) {
        r->rc = ctw_comm_barrier(comm, &r->err);
    }
    ctw_comm_free(comm);
}

static void one_that_gives_up_ends_all_waits(void **state)
{
    (void)state;
    struct rank ranks[RANKS];
    run(0, LONG_MS, sum_or_give_up, ranks);
    for (int r = 0; r < RANKS - 1; r++) {
        assert_int_equal(ranks[r].rc, CT_EPEER);
        assert_non_null(strstr(ranks[r].err.text, "another rank of this process has given up"));
    }
}

static void open_only(struct rank *r)
{
    struct ctw_comm *comm = NULL;
    if (ctw_job_env(r->job)->rank == 0) {
        ctw_crew_abort(r->job->crew);
        return;
    }
    r->rc = open_comm(r, 0, &comm);
    ctw_comm_free(comm);
}

static void nobody_waits_for_a_rank_0_that_does_not_come(void **state)
{
    (void)state;
    struct rank ranks[RANKS];
    run(0, LONG_MS, open_only, ranks);
    for (int r = 1; r < RANKS; r++) {
        assert_int_equal(ranks[r].rc, CT_EPEER);
        assert_non_null(strstr(ranks[r].err.text, "given up"));
    }
    /* It is not there at all. The first to reach its deadline ends the wait of the other one. */
    run(1, SHORT_MS, open_only, ranks);
    for (int r = 1; r < RANKS; r++) {
        assert_true(ranks[r].rc == CT_ETIMEDOUT || ranks[r].rc == CT_EPEER);
    }
    assert_true(ranks[1].rc == CT_ETIMEDOUT || ranks[2].rc == CT_ETIMEDOUT);
}

static void it_stores_no_more_than_an_id(void **state)
{
    (void)state;
    struct ctw_job job = {.env = {.world_size = 1, .local_world_size = 1, .node_count = 1}};
    const unsigned char value[COMM_NCCL_ID_BYTES + 1] = {0};
    struct ctw_crew *crew;
    assert_int_equal(ctw_crew_open(&job, 1, &crew, NULL), 0);
    struct comm_origin origin = {.job = ctw_crew_job(crew, 0), .name = "comm/0"};
    struct comm_setup setup = comm_setup_of(&origin);
    crew_setup(crew, &setup);
    assert_int_equal(setup.set(setup.data, "nccl", value, sizeof(value), NULL), CT_ELIMIT);
    assert_int_equal(setup.set(setup.data, "nccl", value, sizeof(value) - 1, NULL), 0);
    ctw_crew_free(crew);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_need_no_store),
        cmocka_unit_test(one_that_gives_up_ends_all_waits),
        cmocka_unit_test(nobody_waits_for_a_rank_0_that_does_not_come),
        cmocka_unit_test(it_stores_no_more_than_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
