/* SPDX-License-Identifier: Apache-2.0
 *
 * How collectives fail: a peer that dies, aborts, leaves, never comes, comes too late or does
 * something else. None of it may hang; every message names the rank.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/ranks.h"

#include "common/clock.h"
#include "worker/ctworker.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A deadline that a test never waits for, so that a return proves another way out. */
#define LONG_MS (600 * 1000)
/* One that a test does wait for. */
#define SHORT_MS 300

struct board {
    _Atomic int turns; /* of the rank that is to die */
    _Atomic int pid;
    _Atomic int failed; /* ranks that have seen the failure */
};

static struct ranks ranks;
static struct board *board;

static int setup(void **state)
{
    (void)state;
    ranks_begin(&ranks);
    board = ranks_share(sizeof(*board));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ranks_end(&ranks);
    ranks_unshare(board, sizeof(*board));
    return 0;
}

static struct ctw_job *open_job(void)
{
    struct ctw_job *job = NULL;
    CHECK(ctw_job_open(NULL, &job, NULL) == 0);
    return job;
}

static struct ctw_comm *open_comm(struct ctw_job *job, int64_t timeout_ms)
{
    struct ctw_comm_options options = {.timeout_ms = timeout_ms};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    if (ctw_comm_open(job, &options, &comm, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    return comm;
}

static void check_text(const struct ct_err *err, const char *want)
{
    if (strstr(err->text, want) == NULL) {
        (void)fprintf(stderr, "\"%s\" is not in \"%s\"\n", want, err->text);
        CHECK(false);
    }
}

/* After a failure every call fails at once with the same code. */
static void check_dead(struct ctw_comm *comm, int code)
{
    struct ct_err err = {0};
    float x = 1;
    void *block;
    size_t begin, end;
    CHECK(ctw_comm_barrier(comm, &err) == code);
    check_text(&err, "has ended");
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == code);
    CHECK(ctw_comm_reduce_scatter(comm, &x, 1, &begin, &end, NULL) == code);
    CHECK(ctw_comm_broadcast(comm, &x, sizeof(x), 0, NULL) == code);
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 1, &block, NULL) == code);
    CHECK(ctw_comm_poll(comm, NULL) == code);
    CHECK(ctw_comm_sync(comm, NULL) == code);
    ctw_comm_abort(comm);
}

/* ---- death ----------------------------------------------------------------------------------- */

static void reduce_until_it_fails(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    const size_t count = 50000;
    void *own, *shared;
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, count * sizeof(float), &own, NULL) == 0);
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_SHARED, count * sizeof(float), &shared, NULL) == 0);
    if (rank == 1) {
        atomic_store(&board->pid, (int)getpid());
    }
    struct ct_err err = {0};
    int rc;
    do {
        rc = ctw_comm_all_reduce(comm, own, shared, count, &err);
        if (rank == 1) {
            atomic_fetch_add(&board->turns, 1);
        }
    } while (rc == 0);
    CHECK(rank != 1);
    CHECK(rc == CT_EPEER && err.code == CT_EPEER);
    char who[64];
    (void)snprintf(who, sizeof(who), "all_reduce: rank 1 (pid %d) has died",
                   atomic_load(&board->pid));
    check_text(&err, who);
    check_dead(comm, CT_EPEER);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_killed_peer_ends_the_collective(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) {
        ranks.generation++;
        atomic_store(&board->turns, 0);
        ranks_start(&ranks, size, reduce_until_it_fails, NULL);
        ranks_await(&board->turns, 100);
        pid_t victim = ranks.pids[1];
        assert_int_equal(kill(victim, SIGKILL), 0);
        ranks_join_killed(&ranks, victim, SIGKILL);
    }
}

static void die_at_once_or_wait(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 1) {
        (void)raise(SIGKILL);
    }
    struct ct_err err = {0};
    int64_t began = ct_clock_now(NULL);
    CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
    /* 10 ms here; the bound only says that it is not a matter of seconds. */
    CHECK(ct_clock_now(NULL) - began < 5 * CT_NS_PER_S);
    check_text(&err, "rank 1 (pid ");
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_peer_that_dies_before_it_is_needed_is_noticed(void **state)
{
    (void)state;
    ranks_start(&ranks, 2, die_at_once_or_wait, NULL);
    ranks_join_killed(&ranks, ranks.pids[1], SIGKILL);
}

/* The death of another rank than the one that is waited for: rank 2 sleeps, rank 1 dies. */
static void die_beside(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    struct ct_err err = {0};
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 1) {
        (void)raise(SIGKILL);
    }
    if (rank == 2) {
        ranks_await(&board->failed, 1);
        CHECK(ctw_comm_poll(comm, &err) == CT_EPEER);
    } else {
        CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
        atomic_fetch_add(&board->failed, 1);
    }
    check_text(&err, "rank 1 (pid ");
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void all_ranks_tell_the_same_story(void **state)
{
    (void)state;
    ranks_start(&ranks, 3, die_beside, NULL);
    ranks_join_killed(&ranks, ranks.pids[1], SIGKILL);
}

/* ---- abort and leaving ----------------------------------------------------------------------- */

static void abort_or_see_it(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 2) {
        ctw_comm_abort(comm);
        ctw_comm_abort(comm);
        check_dead(comm, CT_EABORTED);
        /* Still alive while the others learn of it. */
        ranks_await(&board->failed, 2);
    } else {
        struct ct_err err = {0};
        CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
        check_text(&err, "barrier: rank 2 (pid ");
        check_text(&err, "aborted");
        check_dead(comm, CT_EPEER);
        atomic_fetch_add(&board->failed, 1);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void abort_reaches_every_rank(void **state)
{
    (void)state;
    ranks_start(&ranks, 3, abort_or_see_it, NULL);
    ranks_join(&ranks);
}

static void leave_or_see_it(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 0) {
        ctw_comm_free(comm);
        ranks_await(&board->failed, 1);
    } else {
        struct ct_err err = {0};
        CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
        check_text(&err, "rank 0 (pid ");
        check_text(&err, "closed its communicator");
        atomic_fetch_add(&board->failed, 1);
        ctw_comm_free(comm);
    }
    ctw_job_free(job);
}

static void a_peer_that_left_is_not_waited_for(void **state)
{
    (void)state;
    ranks_start(&ranks, 2, leave_or_see_it, NULL);
    ranks_join(&ranks);
}

/* A rank may go home after its last collective while others are still inside it. */
static void open_and_go(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    float x = 1;
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == 0);
    CHECK(x == 4);
    ctw_comm_free(comm);
    comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void leaving_in_order_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        ranks.generation++;
        ranks_start(&ranks, 4, open_and_go, NULL);
        ranks_join(&ranks);
    }
}

/* ---- deadlines ------------------------------------------------------------------------------- */

static void come_late(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, SHORT_MS);
    struct ct_err err = {0};
    if (rank == 1) {
        ranks_await(&board->failed, 2);
        CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
        check_text(&err, "gave up waiting for this rank");
    } else {
        CHECK(ctw_comm_barrier(comm, &err) == CT_ETIMEDOUT);
        check_text(&err, "rank 1 has not come");
        check_dead(comm, CT_ETIMEDOUT);
        atomic_fetch_add(&board->failed, 1);
        ranks_await(&board->failed, 2);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_deadline_names_the_missing_rank(void **state)
{
    (void)state;
    ranks_start(&ranks, 3, come_late, NULL);
    ranks_join(&ranks);
}

static void open_in_vain(int rank, void *data)
{
    const char *want = data;
    struct ctw_job *job = open_job();
    struct ctw_comm_options options = {.timeout_ms = SHORT_MS};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    CHECK(ctw_comm_open(job, &options, &comm, &err) == CT_ETIMEDOUT);
    CHECK(comm == NULL);
    check_text(&err, want);
    CHECK(rank == ctw_job_env(job)->rank);
    ctw_job_free(job);
}

static void opening_names_who_did_not_come(void **state)
{
    (void)state;
    ranks.world_size = 4;
    static char want[] = "ranks 2, 3 have not come";
    ranks_start(&ranks, 2, open_in_vain, want);
    ranks_join(&ranks);
}

static void opening_without_rank_0_ends(void **state)
{
    (void)state;
    ranks.world_size = 2;
    static char want[] = "comm/0/host";
    ranks_start_one(&ranks, 1, open_in_vain, want);
    ranks_join(&ranks);
}

/* What an old generation left in the store is never seen. */
static void open_in_order(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void generations_are_apart(void **state)
{
    (void)state;
    ranks.world_size = 2;
    static char want[] = "rank 1 has not come";
    ranks_start_one(&ranks, 0, open_in_vain, want);
    ranks_join(&ranks);
    ranks.generation = 1;
    /* Rank 1 first: it must wait for the new invitation, not take the old one. */
    ranks_start_one(&ranks, 1, open_in_order, NULL);
    ranks_start_one(&ranks, 0, open_in_order, NULL);
    ranks_join(&ranks);
}

/* ---- disagreement and misuse ----------------------------------------------------------------- */

static void disagree(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    struct ct_err err = {0};
    float x[2] = {1, 1};

    struct ctw_comm *comm = open_comm(job, LONG_MS);
    int rc = rank == 1 ? ctw_comm_all_reduce(comm, x, x, 1, &err) : ctw_comm_barrier(comm, &err);
    CHECK(rc == CT_EPROTO);
    check_text(&err, "rank 1");
    check_text(&err, "all_reduce");
    ctw_comm_free(comm);

    comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_all_reduce(comm, x, x, rank == 1 ? 2 : 1, &err) == CT_EPROTO);
    check_text(&err, rank == 1 ? "rank 0 asks for 1" : "rank 1 asks for 2");
    ctw_comm_free(comm);

    comm = open_comm(job, LONG_MS);
    CHECK(ctw_comm_broadcast(comm, x, sizeof(x), rank, &err) == CT_EPROTO);
    ctw_comm_free(comm);

    comm = open_comm(job, LONG_MS);
    void *block;
    CHECK(ctw_comm_alloc(comm, rank == 0 ? CTW_MEMORY_OWN : CTW_MEMORY_SHARED, 10, &block, &err) ==
          CT_EPROTO);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    ranks_start(&ranks, 3, disagree, NULL);
    ranks_join(&ranks);
}

/* One wrong call on rank 0; the others are inside a barrier. */
static void misuse(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = open_job();
    for (int turn = 0; turn < 9; turn++) {
        struct ctw_comm *comm = open_comm(job, LONG_MS);
        struct ct_err err = {0};
        void *own;
        CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 4096, &own, NULL) == 0);
        float *x = own, y[4];
        size_t begin, end;
        if (rank != 0) {
            CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
            check_text(&err, "rank 0 (pid ");
            ctw_comm_free(comm);
            continue;
        }
        int want = CT_EINVAL, rc = 0;
        switch (turn) {
        case 0:
            rc = ctw_comm_all_reduce(comm, x, NULL, 1, &err);
            break;
        case 1:
            rc = ctw_comm_all_reduce(comm, x, x + 1, 2, &err);
            break;
        case 2:
            rc = ctw_comm_all_reduce(comm, x, x, 1025, &err);
            break;
        case 3:
            rc = ctw_comm_all_reduce(comm, x, x, SIZE_MAX / 2, &err);
            want = CT_ELIMIT;
            break;
        case 4:
            rc = ctw_comm_broadcast(comm, x, 1, 2, &err);
            break;
        case 5:
            rc = ctw_comm_reduce_scatter(comm, y, 4, &begin, &end, &err);
            break;
        case 6:
            rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, 0, &own, &err);
            break;
        case 7:
            rc = ctw_comm_all_reduce(comm, (const float *)((const char *)own + 1), y, 1, &err);
            break;
        case 8:
            rc = ctw_comm_reduce_scatter(comm, x, 4, NULL, &end, &err);
            break;
        default:
            break;
        }
        CHECK(rc == want);
        check_dead(comm, want);
        ctw_comm_free(comm);
    }
    ctw_job_free(job);
}

static void misuse_is_an_error_and_reaches_the_peers(void **state)
{
    (void)state;
    ranks_start(&ranks, 2, misuse, NULL);
    ranks_join(&ranks);
}

static void ask_for_too_much(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm *comm = open_comm(job, LONG_MS);
    struct ct_err err = {0};
    void *block;
    int rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, SIZE_MAX / 2, &block, &err);
    CHECK(rc == CT_ELIMIT);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void too_much_memory_is_an_error(void **state)
{
    (void)state;
    ranks_start(&ranks, 2, ask_for_too_much, NULL);
    ranks_join(&ranks);
}

static void come_twice(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_job();
    struct ctw_comm_options options = {.timeout_ms = LONG_MS};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    /* World size 3 with ranks 0, 1 and 1: the second one is refused, which ends it for all. */
    int rc = ctw_comm_open(job, &options, &comm, &err);
    CHECK(rc == CT_EPROTO || rc == CT_EPEER);
    check_text(&err, rc == CT_EPROTO ? "rank 1 has come already" : "rank 1");
    ctw_job_free(job);
}

static void a_rank_that_is_taken_is_refused(void **state)
{
    (void)state;
    ranks.world_size = 3;
    ranks_start(&ranks, 2, come_twice, NULL);
    ranks_start_one(&ranks, 1, come_twice, NULL);
    ranks_join(&ranks);
}

static void span_machines(int rank, void *data)
{
    (void)rank;
    (void)data;
    CHECK(setenv("LOCAL_WORLD_SIZE", "1", 1) == 0 && setenv("LOCAL_RANK", "0", 1) == 0);
    struct ctw_job *job = open_job();
    struct ctw_comm *comm;
    struct ct_err err = {0};
    CHECK(ctw_comm_open(job, NULL, &comm, &err) == CT_EUNSUPPORTED);
    check_text(&err, "spans machines");
    struct ctw_comm_options bad = {.timeout_ms = -1};
    CHECK(ctw_comm_open(job, &bad, &comm, &err) == CT_EINVAL);
    CHECK(ctw_comm_open(NULL, NULL, &comm, &err) == CT_EINVAL);
    ctw_comm_free(NULL);
    ctw_comm_abort(NULL);
    ctw_job_free(job);
}

static void several_machines_are_not_supported_yet(void **state)
{
    (void)state;
    ranks_start(&ranks, 2, span_machines, NULL);
    ranks_join(&ranks);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int open_use_close(struct ctw_job *job, int64_t timeout_ms)
{
    struct ctw_comm_options options = {.timeout_ms = timeout_ms};
    struct ctw_comm *comm = NULL;
    int rc = ctw_comm_open(job, &options, &comm, NULL);
    void *block;
    if (rc == 0) {
        rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL);
    }
    if (rc == 0) {
        rc = ctw_comm_barrier(comm, NULL);
    }
    ctw_comm_free(comm);
    return rc;
}

/* The store's client does not outlive a failed allocation, so each turn is a job of its own. */
static struct ctw_job *open_turn(int turn)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%d", turn);
    CHECK(setenv("CTRUN_GENERATION", text, 1) == 0);
    return open_job();
}

/* Rank 1 runs into one failing allocation after the other; rank 0 keeps it company. */
static void sweep(int rank, void *data)
{
    (void)data;
    int faults = 0, rc = CT_ENOMEM;
    for (int turn = 0; rc != 0; turn++) {
        CHECK(turn < 100);
        struct ctw_job *job = open_turn(turn);
        if (rank == 0) {
            rc = open_use_close(job, SHORT_MS);
        } else {
            ct_fault_begin(faults);
            rc = open_use_close(job, LONG_MS);
            CHECK(ct_fault_end() == 0);
            /* Without a fault rank 0 may have been too impatient: once more. */
            CHECK(ct_fault_hit() ? rc == CT_ENOMEM : rc == 0 || rc == CT_EPEER);
            faults += ct_fault_hit();
        }
        ctw_job_free(job);
    }
    CHECK(rank == 0 || faults > 8);
}

static void survives_allocation_failures(void **state)
{
    (void)state;
    ranks_start(&ranks, 2, sweep, NULL);
    ranks_join(&ranks);
}

static int solo_life(void *data)
{
    (void)data;
    struct ctw_job *job = NULL;
    int rc = ctw_job_open(NULL, &job, NULL);
    if (rc == 0) {
        rc = open_use_close(job, 0);
    }
    ctw_job_free(job);
    return rc;
}

static void a_single_process_needs_no_store(void **state)
{
    (void)state;
    const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_int_equal(unsetenv(names[i]), 0);
    }
    assert_true(ct_fault_sweep(solo_life, NULL, 0) >= 3);

    struct ctw_job *job;
    struct ct_err err = {0};
    assert_int_equal(ctw_job_open(NULL, &job, NULL), 0);
    assert_int_equal(ctw_job_set(job, "key", "x", 1, &err), CT_EUNSUPPORTED);
    assert_non_null(strstr(err.text, "no store"));
    ctw_job_free(job);
    ctw_job_free(NULL);
    struct ctw_job_options bad = {.timeout_ms = -5};
    assert_int_equal(ctw_job_open(&bad, &job, &err), CT_EINVAL);
}

static void an_unreachable_store_is_named(void **state)
{
    (void)state;
    char port[8];
    (void)snprintf(port, sizeof(port), "%u", (unsigned)ranks.port);
    ranks_end(&ranks); /* nobody listens there any more */
    assert_int_equal(setenv("RANK", "0", 1), 0);
    assert_int_equal(setenv("WORLD_SIZE", "1", 1), 0);
    assert_int_equal(setenv("MASTER_ADDR", "127.0.0.1", 1), 0);
    assert_int_equal(setenv("MASTER_PORT", port, 1), 0);
    struct ctw_job_options options = {.timeout_ms = SHORT_MS};
    struct ctw_job *job;
    struct ct_err err = {0};
    assert_int_not_equal(ctw_job_open(&options, &job, &err), 0);
    assert_non_null(strstr(err.text, "127.0.0.1"));
    assert_non_null(strstr(err.text, port));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_killed_peer_ends_the_collective),
        TEST(a_peer_that_dies_before_it_is_needed_is_noticed),
        TEST(all_ranks_tell_the_same_story),
        TEST(abort_reaches_every_rank),
        TEST(a_peer_that_left_is_not_waited_for),
        TEST(leaving_in_order_disturbs_nobody),
        TEST(a_deadline_names_the_missing_rank),
        TEST(opening_names_who_did_not_come),
        TEST(opening_without_rank_0_ends),
        TEST(generations_are_apart),
        TEST(ranks_that_disagree_are_told),
        TEST(misuse_is_an_error_and_reaches_the_peers),
        TEST(too_much_memory_is_an_error),
        TEST(a_rank_that_is_taken_is_refused),
        TEST(several_machines_are_not_supported_yet),
        TEST(survives_allocation_failures),
        TEST(a_single_process_needs_no_store),
        TEST(an_unreachable_store_is_named),
    };
#undef TEST
    return cmocka_run_group_tests(tests, NULL, NULL);
}
