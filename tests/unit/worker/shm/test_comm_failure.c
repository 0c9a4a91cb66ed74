/* SPDX-License-Identifier: Apache-2.0
 *
 * How collectives fail: a peer that dies, aborts, leaves, never comes or comes too late. None of it
 * may hang; every message names the rank.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "common/clock.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct board {
    _Atomic int turns; /* of the rank that is to die */
    _Atomic int pid;
    _Atomic int failed; /* ranks that have seen the failure */
};

static struct board *board;

/* ---- death ----------------------------------------------------------------------------------- */

static void reduce_until_it_fails(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
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
    rank_check_text(&err, who);
    rank_check_dead(comm, CT_EPEER);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_killed_peer_ends_the_collective(void **state)
{
    (void)state;
    for (int size = 2; size <= 4; size++) {
        ranks.generation++;
        atomic_store(&board->turns, 0);
        ranks_start(size, reduce_until_it_fails, NULL);
        ranks_await(&board->turns, 100);
        pid_t victim = ranks.pids[1];
        assert_int_equal(kill(victim, SIGKILL), 0);
        ranks_join_killed(victim, SIGKILL);
    }
}

/* What a data loader that was forked is: it has copies of all descriptors. */
static pid_t start_fork(void)
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)pause();
    }
    return pid;
}

/* With `data`, rank 0 has a fork. */
static void die_at_once_or_wait(int rank, void *data)
{
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    pid_t child = rank == 0 && data != NULL ? start_fork() : 0;
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 1) {
        (void)raise(SIGKILL);
    }
    struct ct_err err = {0};
    int64_t began = ct_clock_now(NULL);
    CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
    /* 10 ms here; the bound only says that it is not a matter of seconds. */
    CHECK(ct_clock_now(NULL) - began < 5 * CT_NS_PER_S);
    rank_check_text(&err, "rank 1 (pid ");
    if (child > 0) {
        CHECK(kill(child, SIGKILL) == 0);
        CHECK(waitpid(child, NULL, 0) == child);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_peer_that_dies_before_it_is_needed_is_noticed(void **state)
{
    (void)state;
    ranks_start(2, die_at_once_or_wait, NULL);
    ranks_join_killed(ranks.pids[1], SIGKILL);
}

/* The rank looked at the same end again and again, for ever. */
static void the_death_of_a_peer_is_noticed_by_a_rank_that_has_forked(void **state)
{
    static int forks;
    (void)state;
    ranks_start(2, die_at_once_or_wait, &forks);
    ranks_join_killed(ranks.pids[1], SIGKILL);
}

/* The death of another rank than the one that is waited for: rank 2 sleeps, rank 1 dies. */
static void die_beside(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
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
    rank_check_text(&err, "rank 1 (pid ");
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void all_ranks_tell_the_same_story(void **state)
{
    (void)state;
    ranks_start(3, die_beside, NULL);
    ranks_join_killed(ranks.pids[1], SIGKILL);
}

/* ---- suspension ------------------------------------------------------------------------------ */

#define PATIENCE_MS 2000

/* Rank 1 comes when the test says so. */
static void wait_for_rank_1(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, PATIENCE_MS);
    atomic_fetch_add(&board->turns, 1);
    if (rank == 1) {
        ranks_await(&board->failed, 1);
    }
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

/* A scheduler had suspended the job for longer than the limit, and when it went on, the rank that
 * had waited gave up though the other one was about to come. */
static void time_in_which_the_job_is_suspended_does_not_count(void **state)
{
    const struct timespec moment = {.tv_nsec = 100 * CT_NS_PER_MS};
    const struct timespec longer = {.tv_sec = PATIENCE_MS / 1000, .tv_nsec = CT_NS_PER_S / 2};
    (void)state;
    ranks_start(2, wait_for_rank_1, NULL);
    ranks_await(&board->turns, 2);
    (void)nanosleep(&moment, NULL); /* rank 0 begins to wait */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(ranks.pids[i], SIGSTOP), 0);
    }
    (void)nanosleep(&longer, NULL);
    assert_int_equal(kill(ranks.pids[0], SIGCONT), 0);
    (void)nanosleep(&moment, NULL); /* rank 0 looks again */
    atomic_store(&board->failed, 1);
    assert_int_equal(kill(ranks.pids[1], SIGCONT), 0);
    ranks_join();
}

/* ---- abort and leaving ----------------------------------------------------------------------- */

static void abort_or_see_it(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 2) {
        ctw_comm_abort(comm);
        ctw_comm_abort(comm);
        rank_check_dead(comm, CT_EABORTED);
        /* Still alive while the others learn of it. */
        ranks_await(&board->failed, 2);
    } else {
        struct ct_err err = {0};
        CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
        rank_check_text(&err, "barrier: rank 2 (pid ");
        rank_check_text(&err, "aborted");
        rank_check_dead(comm, CT_EPEER);
        atomic_fetch_add(&board->failed, 1);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void abort_reaches_every_rank(void **state)
{
    (void)state;
    ranks_run(3, abort_or_see_it, NULL);
}

static void leave_or_see_it(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank == 0) {
        ctw_comm_free(comm);
        ranks_await(&board->failed, 1);
    } else {
        struct ct_err err = {0};
        CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
        rank_check_text(&err, "rank 0 (pid ");
        rank_check_text(&err, "closed its communicator");
        atomic_fetch_add(&board->failed, 1);
        ctw_comm_free(comm);
    }
    ctw_job_free(job);
}

static void a_peer_that_left_is_not_waited_for(void **state)
{
    (void)state;
    ranks_run(2, leave_or_see_it, NULL);
}

/* A rank may go home after its last collective while others are still inside it. */
static void open_and_go(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    float x = 1;
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == 0);
    CHECK(x == 4);
    ctw_comm_free(comm);
    comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void leaving_in_order_disturbs_nobody(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        ranks_run(4, open_and_go, NULL);
    }
}

/* ---- deadlines ------------------------------------------------------------------------------- */

/* data != NULL: rank 1 only asks. */
static void come_late(int rank, void *data)
{
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, SHORT_MS);
    struct ct_err err = {0};
    if (rank == 1) {
        ranks_await(&board->failed, 2);
        int rc = data == NULL ? ctw_comm_barrier(comm, &err) : ctw_comm_poll(comm, &err);
        CHECK(rc == CT_EPEER);
        rank_check_text(&err, "gave up waiting for this rank");
    } else {
        CHECK(ctw_comm_barrier(comm, &err) == CT_ETIMEDOUT);
        rank_check_text(&err, "rank 1 has not come");
        rank_check_dead(comm, CT_ETIMEDOUT);
        atomic_fetch_add(&board->failed, 1);
        ranks_await(&board->failed, 2);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_deadline_names_the_missing_rank(void **state)
{
    (void)state;
    ranks_run(3, come_late, NULL);
    ranks_run(3, come_late, board);
}

static void open_in_vain(int rank, void *data)
{
    const char *want = data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm_options options = {.timeout_ms = SHORT_MS};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    CHECK(ctw_comm_open(job, &options, &comm, &err) == CT_ETIMEDOUT);
    CHECK(comm == NULL);
    rank_check_text(&err, want);
    CHECK(rank == ctw_job_env(job)->rank);
    ctw_job_free(job);
}

static void opening_names_who_did_not_come(void **state)
{
    (void)state;
    ranks.world_size = 4;
    static char want[] = "ranks 2, 3 have not come";
    ranks_run(2, open_in_vain, want);
}

static void opening_without_rank_0_ends(void **state)
{
    (void)state;
    ranks.world_size = 2;
    static char want[] = "comm/0/host";
    ranks_start_one(1, open_in_vain, want);
    ranks_join();
}

/* What an old generation left in the store is never seen. */
static void open_in_order(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void generations_are_apart(void **state)
{
    (void)state;
    ranks.world_size = 2;
    static char want[] = "rank 1 has not come";
    ranks_start_one(0, open_in_vain, want);
    ranks_join();
    ranks.generation = 1;
    /* Rank 1 first: it must wait for the new invitation, not take the old one. */
    ranks_start_one(1, open_in_order, NULL);
    ranks_start_one(0, open_in_order, NULL);
    ranks_join();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(a_killed_peer_ends_the_collective, board),
        RANKS_TEST_SHARING(a_peer_that_dies_before_it_is_needed_is_noticed, board),
        RANKS_TEST_SHARING(the_death_of_a_peer_is_noticed_by_a_rank_that_has_forked, board),
        RANKS_TEST_SHARING(time_in_which_the_job_is_suspended_does_not_count, board),
        RANKS_TEST_SHARING(all_ranks_tell_the_same_story, board),
        RANKS_TEST_SHARING(abort_reaches_every_rank, board),
        RANKS_TEST_SHARING(a_peer_that_left_is_not_waited_for, board),
        RANKS_TEST_SHARING(leaving_in_order_disturbs_nobody, board),
        RANKS_TEST_SHARING(a_deadline_names_the_missing_rank, board),
        RANKS_TEST_SHARING(opening_names_who_did_not_come, board),
        RANKS_TEST_SHARING(opening_without_rank_0_ends, board),
        RANKS_TEST_SHARING(generations_are_apart, board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
