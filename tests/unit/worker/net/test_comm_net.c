/* SPDX-License-Identifier: Apache-2.0
 *
 * What the collectives compute over several hosts, which the environment makes of this machine: the
 * leaders talk TCP over loopback. How they fail is in test_comm_net_failure.c.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Around the limits of a cache line, of what is small, of a chunk; several chunks; odd sizes. */
static const size_t counts[] = {0, 1, 7, 16, 1000, 16384, 16385, 32769, 100003, 700001};
#define MOST 700001

static const int layouts[][RANKS_MAX + 1] = {
    {1, 1}, {2, 1}, {2, 2}, {1, 1, 1}, {3, 1, 2}, {1, 1, 1, 1}, {2, 1, 3, 2},
};

struct board {
    _Atomic unsigned hash[RANKS_MAX][2];
};

static struct board *board;

static void run_layouts(ranks_fn body)
{
    for (size_t l = 0; l < COUNT(layouts); l++) {
        ranks_run_hosts(layouts[l], body, NULL);
    }
}

/* ---- in a rank ------------------------------------------------------------------------------- */

/* Small integers: their sums are exact in whichever order. */
static float number(int rank, size_t i)
{
    return (float)((i * 31 + (size_t)rank * 7) % 1009);
}

static void fill(float *buf, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buf[i] = number(rank, i);
    }
}

static void check_sums(const float *buf, int size, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        float want = 0;
        for (int r = 0; r < size; r++) {
            want += number(r, i);
        }
        CHECK(buf[i] == want);
    }
}

static void reduce(struct ctw_comm *comm, float *send, float *recv, size_t count)
{
    struct ct_err err = {0};
    fill(send, ctw_comm_rank(comm), count);
    if (ctw_comm_all_reduce(comm, send, recv, count, &err) != 0) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    check_sums(recv, ctw_comm_size(comm), 0, count);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static void every_kind_of_memory(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    float *own = rank_alloc(comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *own2 = rank_alloc(comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *shared = rank_alloc(comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    float *mine = malloc(MOST * sizeof(float)), *mine2 = malloc(MOST * sizeof(float));
    CHECK(mine != NULL && mine2 != NULL);
    for (size_t c = 0; c < COUNT(counts); c++) {
        size_t n = counts[c];
        reduce(comm, own, shared, n);
        reduce(comm, own, own, n);
        reduce(comm, mine, mine, n);
        reduce(comm, mine, mine2, n);
        reduce(comm, own, mine, n);
        reduce(comm, mine, shared, n);
        /* Each rank as it likes. */
        reduce(comm, rank % 2 == 0 ? own : mine, rank % 3 == 0 ? shared : mine2, n);
        reduce(comm, rank % 2 == 0 ? own : own2, shared, n);
        if (n > 3) {
            reduce(comm, own + 3, shared + 1, n - 3);
        }
    }
    free(mine);
    free(mine2);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void sums_are_exact(void **state)
{
    (void)state;
    run_layouts(every_kind_of_memory);
}

static void scatter(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    float *own = rank_alloc(comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *shared = rank_alloc(comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    for (size_t c = 0; c < COUNT(counts); c++) {
        size_t n = counts[c], begin = 1, end = 0;
        fill(own, rank, n);
        CHECK(ctw_comm_reduce_scatter(comm, own, n, &begin, &end, NULL) == 0);
        CHECK(begin <= end && end <= n);
        check_sums(own, ctw_comm_size(comm), begin, end);
        memcpy(shared + begin, own + begin, (end - begin) * sizeof(float));
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
        check_sums(shared, ctw_comm_size(comm), 0, n); /* a host's shares cover everything */
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void shares_of_each_host_hold_the_sum(void **state)
{
    (void)state;
    run_layouts(scatter);
}

static unsigned hash_of(const float *buf, size_t count)
{
    unsigned hash = 2166136261U;
    const unsigned char *bytes = (const unsigned char *)buf;
    for (size_t i = 0; i < count * sizeof(float); i++) {
        hash = (hash ^ bytes[i]) * 16777619U;
    }
    return hash;
}

static void tell_bits(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    float *own = rank_alloc(comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *shared = rank_alloc(comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    const size_t sizes[] = {1000, MOST};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        for (size_t i = 0; i < sizes[s]; i++) {
            own[i] = rank_fraction(rank, i);
        }
        CHECK(ctw_comm_all_reduce(comm, own, shared, sizes[s], NULL) == 0);
        atomic_store(&board->hash[rank][s], hash_of(shared, sizes[s]));
    }
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    for (int r = 0; r < ctw_comm_size(comm); r++) {
        CHECK(atomic_load(&board->hash[r][0]) == atomic_load(&board->hash[rank][0]));
        CHECK(atomic_load(&board->hash[r][1]) == atomic_load(&board->hash[rank][1]));
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void all_ranks_get_the_same_bits(void **state)
{
    (void)state;
    run_layouts(tell_bits);
}

static void reduce_as_tree(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_tree(job);
    float *own = rank_alloc(comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *shared = rank_alloc(comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    for (size_t c = 0; c < COUNT(counts); c++) {
        for (size_t i = 0; i < counts[c]; i++) {
            own[i] = rank_fraction(rank, i);
        }
        CHECK(ctw_comm_all_reduce(comm, own, shared, counts[c], NULL) == 0);
        for (size_t i = 0; i < counts[c]; i++) {
            float want = rank_fraction_tree(0, ctw_comm_size(comm), i);
            CHECK(memcmp(&shared[i], &want, sizeof(want)) == 0);
        }
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void tree_sums_are_exact(void **state)
{
    (void)state;
    static const int even[][RANKS_MAX + 1] = {{1, 1}, {2, 2}, {1, 1, 1, 1}, {4, 4}, {2, 2, 2, 2}};
    for (size_t l = 0; l < COUNT(even); l++) {
        ranks_run_hosts(even[l], reduce_as_tree, NULL);
    }
}

static void be_no_tree(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    const struct ctw_comm_options options = {.order = CTW_ORDER_TREE, .timeout_ms = LONG_MS};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    int rc = ctw_comm_open(job, &options, &comm, &err);
    CHECK(rc == CT_EINVAL || rc == CT_EPEER || rc == CT_ECLOSED);
    CHECK(rank != 0 || rc == CT_EINVAL);
    ctw_job_free(job);
}

static void uneven_hosts_are_no_balanced_tree(void **state)
{
    (void)state;
    static const int uneven[RANKS_MAX + 1] = {1, 1, 2};
    ranks_run_hosts(uneven, be_no_tree, NULL);
}

/* ---- broadcast and barrier ------------------------------------------------------------------- */

static void broadcast_everything(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    const size_t sizes[] = {0, 1, 13, 4096, 262145, 1900001};
    const size_t most = 1900001;
    unsigned char *own = rank_alloc(comm, CTW_MEMORY_OWN, most);
    unsigned char *shared = rank_alloc(comm, CTW_MEMORY_SHARED, most);
    unsigned char *mine = malloc(most);
    CHECK(mine != NULL);
    for (int root = 0; root < ctw_comm_size(comm); root++) {
        for (size_t s = 0; s < COUNT(sizes); s++) {
            rank_check_broadcast(comm, mine, sizes[s], root);
            rank_check_broadcast(comm, rank % 2 == 0 ? own : mine, sizes[s], root);
        }
        if (rank == root) {
            shared[77] = (unsigned char)(root + 1);
            shared[most - 1] = (unsigned char)(root + 2);
        }
        CHECK(ctw_comm_broadcast(comm, shared, most, root, NULL) == 0);
        CHECK(shared[77] == root + 1 && shared[most - 1] == root + 2);
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
    }
    free(mine);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void broadcasts_from_each_root(void **state)
{
    (void)state;
    run_layouts(broadcast_everything);
}

static _Atomic unsigned *place_of(int rank)
{
    return &board->hash[rank][0];
}

static void meet_often(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    for (unsigned round = 1; round <= 100; round++) {
        atomic_store(place_of(rank), round);
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
        for (int r = 0; r < ctw_comm_size(comm); r++) {
            unsigned seen = atomic_load(place_of(r));
            CHECK(seen == round || seen == round + 1);
        }
        CHECK(ctw_comm_poll(comm, NULL) == 0);
        CHECK(ctw_comm_sync(comm, NULL) == 0);
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void nobody_passes_a_barrier_early(void **state)
{
    (void)state;
    for (size_t l = 0; l < COUNT(layouts); l++) {
        ranks_run_hosts(layouts[l], meet_often, NULL);
    }
}

static void use_two(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *first = rank_open_comm(job, LONG_MS), *second = rank_open_comm(job, LONG_MS);
    float a = (float)rank + 1, b = 10;
    CHECK(ctw_comm_all_reduce(second, &a, &a, 1, NULL) == 0);
    CHECK(ctw_comm_all_reduce(first, &b, &b, 1, NULL) == 0);
    CHECK(a == 6 && b == 30);
    ctw_comm_free(second);
    ctw_comm_free(first);
    ctw_job_free(job);
}

static void communicators_of_a_job_are_apart(void **state)
{
    (void)state;
    static const int hosts[RANKS_MAX + 1] = {2, 1};
    ranks_run_hosts(hosts, use_two, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(sums_are_exact, board),
        RANKS_TEST_SHARING(shares_of_each_host_hold_the_sum, board),
        RANKS_TEST_SHARING(all_ranks_get_the_same_bits, board),
        RANKS_TEST_SHARING(tree_sums_are_exact, board),
        RANKS_TEST_SHARING(uneven_hosts_are_no_balanced_tree, board),
        RANKS_TEST_SHARING(broadcasts_from_each_root, board),
        RANKS_TEST_SHARING(nobody_passes_a_barrier_early, board),
        RANKS_TEST_SHARING(communicators_of_a_job_are_apart, board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
