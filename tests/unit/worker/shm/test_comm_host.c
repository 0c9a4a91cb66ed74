/* SPDX-License-Identifier: Apache-2.0
 *
 * What the collectives compute, with real processes and a real store. How they fail is in
 * test_comm_failure.c.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include <stdatomic.h>
#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The largest spans several chunks of the staging buffer and ends in the middle of a cache line. */
static const size_t counts[] = {0, 1, 2, 15, 16, 17, 1000, 65535, 65536, 65537, 200003};
#define MOST 200003

/* ---- in a rank ------------------------------------------------------------------------------- */

struct peer {
    struct ctw_job *job;
    struct ctw_comm *comm;
    int rank, size;
};

static void peer_open(struct peer *peer)
{
    peer->job = rank_open_job();
    peer->comm = rank_open_comm(peer->job, 0);
    peer->rank = ctw_comm_rank(peer->comm);
    peer->size = ctw_comm_size(peer->comm);
}

static void peer_close(struct peer *peer)
{
    ctw_comm_free(peer->comm);
    ctw_job_free(peer->job);
}

static void fill(float *buf, int rank, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        buf[i] = rank_fraction(rank, i);
    }
}

static float sum_of(int size, size_t i)
{
    float sum = rank_fraction(0, i);
    for (int r = 1; r < size; r++) {
        sum += rank_fraction(r, i);
    }
    return sum;
}

static void check_sums(const float *buf, int size, size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        float want = sum_of(size, i);
        CHECK(memcmp(&buf[i], &want, sizeof(want)) == 0);
    }
}

/* ---- all_reduce ------------------------------------------------------------------------------ */

static void reduce(struct peer *peer, float *send, float *recv, size_t count)
{
    fill(send, peer->rank, count);
    CHECK(ctw_comm_all_reduce(peer->comm, send, recv, count, NULL) == 0);
    check_sums(recv, peer->size, 0, count);
    CHECK(ctw_comm_barrier(peer->comm, NULL) == 0);
}

static void every_kind_of_memory(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    CHECK(peer.rank == rank);
    CHECK(ctw_comm_backend(peer.comm) == CTW_BACKEND_HOST);
    float *own = rank_alloc(peer.comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *own2 = rank_alloc(peer.comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *shared = rank_alloc(peer.comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    float *mine = malloc(MOST * sizeof(float)), *mine2 = malloc(MOST * sizeof(float));
    CHECK(mine != NULL && mine2 != NULL);
    for (size_t c = 0; c < COUNT(counts); c++) {
        size_t n = counts[c];
        reduce(&peer, own, shared, n);
        reduce(&peer, own, own, n);
        reduce(&peer, own, own2, n);
        reduce(&peer, mine, mine, n);
        reduce(&peer, mine, mine2, n);
        reduce(&peer, own, mine, n);
        reduce(&peer, mine, shared, n);
        /* Each rank as it likes. */
        reduce(&peer, rank % 2 == 0 ? own : mine, rank % 3 == 0 ? shared : mine2, n);
        reduce(&peer, rank % 2 == 0 ? own : own2, shared, n);
        /* In the middle of a block, not aligned to a cache line. */
        if (n > 3) {
            reduce(&peer, own + 3, shared + 1, n - 3);
        }
    }
    free(mine);
    free(mine2);
    peer_close(&peer);
}

static void sums_are_exact(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        ranks_run(size, every_kind_of_memory, NULL);
    }
}

static void shared_to_shared(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    float *shared = rank_alloc(peer.comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    if (rank == 0) {
        for (size_t i = 0; i < MOST; i++) {
            shared[i] = 3;
        }
    }
    CHECK(ctw_comm_barrier(peer.comm, NULL) == 0);
    CHECK(ctw_comm_all_reduce(peer.comm, shared, shared, MOST, NULL) == 0);
    for (size_t i = 0; i < MOST; i++) {
        CHECK(shared[i] == 3 * (float)peer.size);
    }
    peer_close(&peer);
}

static void one_block_for_all_counts_once_per_rank(void **state)
{
    (void)state;
    ranks_run(3, shared_to_shared, NULL);
}

/* ---- reduce_scatter -------------------------------------------------------------------------- */

static void scatter(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    float *own = rank_alloc(peer.comm, CTW_MEMORY_OWN, MOST * sizeof(float));
    float *shared = rank_alloc(peer.comm, CTW_MEMORY_SHARED, MOST * sizeof(float));
    for (size_t c = 0; c < COUNT(counts); c++) {
        size_t n = counts[c], begin = 1, end = 0;
        fill(own, rank, n);
        CHECK(ctw_comm_reduce_scatter(peer.comm, own, n, &begin, &end, NULL) == 0);
        CHECK(begin <= end && end <= n);
        check_sums(own, peer.size, begin, end);
        for (size_t i = begin; i < end; i++) {
            shared[i] = own[i];
        }
        CHECK(ctw_comm_barrier(peer.comm, NULL) == 0);
        check_sums(shared, peer.size, 0, n); /* the shares cover everything */
        CHECK(ctw_comm_barrier(peer.comm, NULL) == 0);
    }
    peer_close(&peer);
}

static void shares_hold_the_sum(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        ranks_run(size, scatter, NULL);
    }
}

/* ---- as a tree ------------------------------------------------------------------------------- */

static void reduce_as_tree(int rank, void *data)
{
    (void)data;
    struct peer peer = {.job = rank_open_job()};
    peer.comm = rank_open_tree(peer.job);
    int size = ctw_comm_size(peer.comm);
    float *own = rank_alloc(peer.comm, CTW_MEMORY_OWN, 1001 * sizeof(float));
    float *shared = rank_alloc(peer.comm, CTW_MEMORY_SHARED, 1001 * sizeof(float));
    fill(own, rank, 1001);
    CHECK(ctw_comm_all_reduce(peer.comm, own, shared, 1001, NULL) == 0);
    size_t begin = 0, end = 0;
    CHECK(ctw_comm_reduce_scatter(peer.comm, own, 1001, &begin, &end, NULL) == 0);
    for (size_t i = 0; i < 1001; i++) {
        float want = rank_fraction_tree(0, size, i);
        CHECK(memcmp(&shared[i], &want, sizeof(want)) == 0);
        CHECK(i < begin || i >= end || memcmp(&own[i], &want, sizeof(want)) == 0);
    }
    peer_close(&peer);
}

static void tree_sums_are_exact(void **state)
{
    (void)state;
    for (int size = 1; size <= 8; size *= 2) {
        ranks_run(size, reduce_as_tree, NULL);
    }
}

/* ---- broadcast ------------------------------------------------------------------------------- */

static void broadcast_everything(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    const size_t sizes[] = {0, 1, 13, 4096, 262144, 262145, 1900001};
    const size_t most = 1900001;
    unsigned char *own = rank_alloc(peer.comm, CTW_MEMORY_OWN, most);
    unsigned char *shared = rank_alloc(peer.comm, CTW_MEMORY_SHARED, most);
    unsigned char *mine = malloc(most);
    CHECK(mine != NULL);
    for (int root = 0; root < peer.size; root++) {
        for (size_t s = 0; s < COUNT(sizes); s++) {
            rank_check_broadcast(peer.comm, mine, sizes[s], root);
            rank_check_broadcast(peer.comm, own, sizes[s], root);
            rank_check_broadcast(peer.comm, rank % 2 == 0 ? own : mine, sizes[s], root);
        }
        if (rank == root) {
            shared[77] = (unsigned char)(root + 1);
        }
        CHECK(ctw_comm_broadcast(peer.comm, shared, most, root, NULL) == 0);
        CHECK(shared[77] == root + 1);
        CHECK(ctw_comm_barrier(peer.comm, NULL) == 0);
    }
    free(mine);
    peer_close(&peer);
}

static void broadcasts_from_each_root(void **state)
{
    (void)state;
    for (int size = 1; size <= 4; size++) {
        ranks_run(size, broadcast_everything, NULL);
    }
}

/* ---- barrier --------------------------------------------------------------------------------- */

struct board {
    _Atomic int before[RANKS_MAX];
};
static struct board *board;

static void meet_often(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    for (int round = 1; round <= 300; round++) {
        atomic_store(&board->before[rank], round);
        CHECK(ctw_comm_barrier(peer.comm, NULL) == 0);
        for (int r = 0; r < peer.size; r++) {
            int seen = atomic_load(&board->before[r]);
            CHECK(seen == round || seen == round + 1);
        }
        CHECK(ctw_comm_poll(peer.comm, NULL) == 0);
        CHECK(ctw_comm_sync(peer.comm, NULL) == 0);
        CHECK(ctw_comm_barrier(peer.comm, NULL) == 0);
    }
    peer_close(&peer);
}

static void nobody_passes_a_barrier_early(void **state)
{
    (void)state;
    ranks_run(3, meet_often, NULL);
}

/* ---- more ------------------------------------------------------------------------------------ */

static void reduce_often(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    float *own = rank_alloc(peer.comm, CTW_MEMORY_OWN, 1001 * sizeof(float));
    float *shared = rank_alloc(peer.comm, CTW_MEMORY_SHARED, 1001 * sizeof(float));
    fill(own, rank, 1001);
    for (int i = 0; i < 200; i++) {
        CHECK(ctw_comm_all_reduce(peer.comm, own, shared, 1001, NULL) == 0);
        check_sums(shared, peer.size, 0, 1001);
    }
    peer_close(&peer);
}

static void works_with_more_ranks_than_cores(void **state)
{
    (void)state;
    ranks_run(RANKS_MAX, reduce_often, NULL);
}

static void use_two(int rank, void *data)
{
    (void)data;
    struct peer peer;
    peer_open(&peer);
    struct ctw_comm *second;
    CHECK(ctw_comm_open(peer.job, NULL, &second, NULL) == 0);
    float a = (float)rank + 1, b = 10;
    CHECK(ctw_comm_all_reduce(second, &a, &a, 1, NULL) == 0);
    CHECK(ctw_comm_all_reduce(peer.comm, &b, &b, 1, NULL) == 0);
    CHECK(a == 3 && b == 20);
    ctw_comm_free(second);
    peer_close(&peer);
}

static void communicators_of_a_job_are_apart(void **state)
{
    (void)state;
    ranks_run(2, use_two, NULL);
}

static void talk_through_store(int rank, void *data)
{
    (void)data;
    struct ctw_job *job;
    CHECK(ctw_job_open(NULL, &job, NULL) == 0);
    CHECK(ctw_job_env(job)->rank == rank && ctw_job_env(job)->launched);
    int64_t sum = 0;
    CHECK(ctw_job_add(job, "count", rank + 1, &sum, NULL) == 0);
    CHECK(sum > 0 && sum <= 3);
    if (rank == 0) {
        CHECK(ctw_job_set(job, "greeting", "hello\0there", 11, NULL) == 0);
    }
    void *value = NULL;
    size_t len = 0;
    CHECK(ctw_job_get(job, "greeting", &value, &len, NULL) == 0);
    CHECK(len == 11 && memcmp(value, "hello\0there", 12) == 0);
    free(value);
    struct ct_err err = {0};
    CHECK(ctw_job_set(job, "", "x", 1, &err) == CT_EINVAL);
    CHECK(ctw_job_set(job, "key", NULL, 1, &err) == CT_EINVAL);
    ctw_job_free(job);
}

static void job_keys_are_shared(void **state)
{
    (void)state;
    ranks_run(2, talk_through_store, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(sums_are_exact),
        RANKS_TEST(one_block_for_all_counts_once_per_rank),
        RANKS_TEST(shares_hold_the_sum),
        RANKS_TEST(tree_sums_are_exact),
        RANKS_TEST(broadcasts_from_each_root),
        RANKS_TEST_SHARING(nobody_passes_a_barrier_early, board),
        RANKS_TEST(works_with_more_ranks_than_cores),
        RANKS_TEST(communicators_of_a_job_are_apart),
        RANKS_TEST(job_keys_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
