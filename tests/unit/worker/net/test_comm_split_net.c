/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators made of some ranks of one that spans hosts, which the environment makes of this
 * machine: whatever each host brings, they are like any other.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Above what a host sends at once, and odd. */
#define MOST 40003

struct board {
    _Atomic int turns;
};

static struct board *board;

/* ---- in a rank ------------------------------------------------------------------------------- */

/* Everything that a communicator can do, in which rank r brings r + 1. */
static void exercise(struct ctw_comm *comm)
{
    int rank = ctw_comm_rank(comm), size = ctw_comm_size(comm);
    float all = (float)(size * (size + 1) / 2); /* exact in whichever order */
    void *own, *shared;
    size_t begin, end;
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, MOST * sizeof(float), &own, NULL) == 0);
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_SHARED, MOST * sizeof(float), &shared, NULL) == 0);
    float *numbers = own, *sums = shared;
    for (size_t i = 0; i < MOST; i++) {
        numbers[i] = (float)(rank + 1);
    }
    CHECK(ctw_comm_all_reduce(comm, numbers, sums, MOST, NULL) == 0);
    CHECK(sums[0] == all && sums[MOST / 2] == all && sums[MOST - 1] == all);
    CHECK(ctw_comm_reduce_scatter(comm, numbers, MOST, &begin, &end, NULL) == 0);
    for (size_t i = begin; i < end; i++) {
        CHECK(numbers[i] == all);
    }
    for (int root = 0; root < size; root++) {
        int word = rank;
        CHECK(ctw_comm_broadcast(comm, &word, sizeof(word), root, NULL) == 0);
        CHECK(word == root);
    }
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
}

/* ---- who is in a group ----------------------------------------------------------------------- */

static void halves(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS);
    struct ctw_comm *half = rank_split(all, rank % 2, rank);
    CHECK(ctw_comm_rank(half) == rank / 2);
    exercise(half);
    /* Split again; and the first of each half again, with the highest in front. */
    struct ctw_comm *part = rank_split(half, ctw_comm_rank(half) < 2, ctw_comm_rank(half));
    exercise(part);
    struct ctw_comm *firsts = rank_split(all, rank < 2 ? 7 : -1, -rank);
    if (firsts != NULL) {
        CHECK(ctw_comm_size(firsts) == 2 && ctw_comm_rank(firsts) == 1 - rank);
        exercise(firsts);
    }
    ctw_comm_free(firsts);
    ctw_comm_free(part);
    exercise(all);
    /* Groups live and die apart from where they came from. */
    ctw_comm_free(all);
    exercise(half);
    ctw_comm_free(half);
    ctw_job_free(job);
}

static void hosts_bring_as_many_as_they_like(void **state)
{
    (void)state;
    static const int layouts[][RANKS_MAX + 1] = {
        {2, 1}, {2, 2}, {1, 1, 1}, {3, 1, 2}, {2, 1, 3, 2}};
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        ranks_run_hosts(layouts[l], halves, NULL);
    }
}

static unsigned mix(unsigned a, unsigned b)
{
    unsigned x = (a * 2654435761U) ^ (b * 40503U + 977U);
    x ^= x >> 15;
    x *= 2246822519U;
    return x ^ x >> 13;
}

static const int uneven[] = {2, 1, 3, 2, 0};
static const int node_of[] = {0, 0, 1, 2, 2, 2, 3, 3};

/* Hosts in an order of each round's own, ranks of a host likewise. */
static int key_in(unsigned round, int rank)
{
    return (int)(mix(round, (unsigned)node_of[rank]) % 1000 * 1000 +
                 mix(round, (unsigned)rank + 50) % 1000) -
           500000;
}

static void random_groups(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS);
    for (unsigned round = 0; round < 25; round++) {
        int colors[8], before = 0, members = 0;
        float sum = 0;
        for (int r = 0; r < 8; r++) {
            colors[r] = (int)(mix(round, (unsigned)r + 100) % 4) - 1;
        }
        for (int r = 0; r < 8; r++) {
            if (colors[r] == colors[rank]) {
                members++;
                sum += (float)r;
                before += key_in(round, r) < key_in(round, rank);
            }
        }
        struct ctw_comm *group = rank_split(all, colors[rank], key_in(round, rank));
        if (group != NULL) {
            CHECK(ctw_comm_size(group) == members && ctw_comm_rank(group) == before);
            CHECK(rank_sum(group, (float)rank) == sum);
        }
        ctw_comm_free(group);
    }
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void any_colors_and_orders_of_hosts(void **state)
{
    (void)state;
    ranks_run_hosts(uneven, random_groups, NULL);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

static const int two_by_two[] = {2, 2, 0};

/* Who finds it out first tells the others, who may not have come that far. */
static bool is_refusal(int rc)
{
    return rc == CT_EINVAL || rc == CT_EPEER;
}

static void interleave(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS), *group;
    struct ct_err err = {0};
    int rc = ctw_comm_split(all, 0, rank % 2, &group, &err);
    CHECK(is_refusal(rc));
    rank_check_text(&err, "split: the keys put rank 1 apart from other ranks of its machine");
    rank_check_dead(all, rc);
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void keys_that_interleave_hosts_are_refused(void **state)
{
    (void)state;
    ranks_run_hosts(two_by_two, interleave, NULL);
}

/* ---- the order of adding --------------------------------------------------------------------- */

static void add_in_order(int rank, void *data)
{
    /* Floats whose sum tells the order. */
    static const volatile float n[] = {1e8F, 3.0F, -1e8F, 5.0F};
    const volatile float tree = (n[0] + n[1]) + (n[2] + n[3]), line = ((n[0] + n[1]) + n[2]) + n[3];
    const bool *one_host = data;
    CHECK(tree != line);
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *by_tree = rank_open_tree(job), *by_rank = rank_open_comm(job, LONG_MS);
    struct ctw_comm *tree_too = rank_split(by_tree, 0, rank),
                    *rank_too = rank_split(by_rank, 0, rank);
    CHECK(rank_sum(tree_too, n[rank]) == tree);
    /* Several hosts add host by host. */
    CHECK(rank_sum(rank_too, n[rank]) == (*one_host ? line : tree));
    struct ctw_comm *none = NULL;
    struct ct_err err = {0};
    int rc = ctw_comm_split(by_tree, rank < 3 ? 0 : -1, rank, &none, &err);
    CHECK(rank == 3 || is_refusal(rc));
    if (rank < 3) {
        rank_check_text(&err, "split: 3 ranks cannot add as a balanced tree");
    }
    ctw_comm_free(tree_too);
    ctw_comm_free(rank_too);
    ctw_comm_free(by_tree);
    ctw_comm_free(by_rank);
    ctw_job_free(job);
}

static void groups_add_as_their_parent(void **state)
{
    (void)state;
    static const int one[] = {4, 0};
    bool one_host = true;
    ranks_run_hosts(one, add_in_order, &one_host);
    one_host = false;
    ranks_run_hosts(two_by_two, add_in_order, &one_host);
}

/* ---- failure --------------------------------------------------------------------------------- */

/* The first host has no member. */
static void group_until_it_fails(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS);
    struct ctw_comm *group = rank_split(all, rank == 0 ? -1 : 3, rank);
    if (group != NULL) {
        struct ct_err err = {0};
        int rc;
        do {
            float mine = 1, sum;
            rc = ctw_comm_all_reduce(group, &mine, &sum, 1, &err);
            atomic_fetch_add(&board->turns, rank == 3);
        } while (rc == 0);
        CHECK(rc == CT_EPEER);
        rank_check_text(&err, rank == 4 ? "rank 2 (pid" : "host 1 (127.0.0.1, ranks 2 to 3)");
        ctw_comm_free(group);
    }
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void messages_name_hosts_and_ranks_of_the_group(void **state)
{
    (void)state;
    static const int hosts[] = {1, 2, 2, 0};
    ranks_start_hosts(hosts, group_until_it_fails, NULL);
    ranks_await(&board->turns, 20);
    pid_t pid = ranks.pids[3];
    assert_int_equal(kill(pid, SIGKILL), 0);
    ranks_join_killed(pid, SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(hosts_bring_as_many_as_they_like, board),
        RANKS_TEST_SHARING(any_colors_and_orders_of_hosts, board),
        RANKS_TEST_SHARING(keys_that_interleave_hosts_are_refused, board),
        RANKS_TEST_SHARING(groups_add_as_their_parent, board),
        RANKS_TEST_SHARING(messages_name_hosts_and_ranks_of_the_group, board),
    };
    return cmocka_run_group_tests_name("comm_split_net", tests, NULL, NULL);
}
