/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of GPUs as a tree, by ranks that are threads and meet in the stand-in for NCCL: the bits are
 * those of the host's tree, whatever the number of ranks and numbers.
 */
#include "tests/lib/ct_test.h"

#include "tests/lib/fake_gpu/fake_gpu_engine.h"
#include "worker/comm/comm.h"
#include "worker/shm/sum.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

extern const struct comm_nccl_module ctworker_nccl_module;

#define RANKS_MAX 8
#define LONG_MS (60 * 1000)

struct rank {
    pthread_t thread;
    int rank, size;
    bool tree;
    void *handle;
    atomic_bool *over;
    const size_t *counts; /* of one sum after the other; 0 ends them */
    const float *send;
    float *recv;
    struct ct_err err;
    int rc;
};

/* ---- what a device does ---------------------------------------------------------------------- */

struct tree_sum {
    size_t n, count, step;
    const float *from;
    float *to;
};

static void run_tree_sum(const void *data)
{
    const struct tree_sum *t = data;
    const float *src[RANKS_MAX];
    float *sums = malloc(t->count * sizeof *sums);
    for (size_t k = 0; k < t->n; k++) {
        src[k] = t->from + k * t->step;
    }
    sum_tree(sums, src, (int)t->n, 0, t->count);
    memcpy(t->to, sums, t->count * sizeof *sums);
    free(sums);
}

static int tree_sum(void *data, size_t n, size_t count, size_t step, const float *from, float *to,
                    struct ct_err *err)
{
    (void)err;
    const struct tree_sum t = {n, count, step, from, to};
    FAKE_ALONE;
    fake_queue(data, run_tree_sum, &t, sizeof t);
    return 0;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static int reduce_all(struct rank *r, struct ctw_comm *comm)
{
    int rc = 0;
    const float *send = r->send;
    float *recv = r->recv;
    for (const size_t *count = r->counts; rc == 0 && *count > 0; count++) {
        rc = ctw_comm_all_reduce(comm, send, recv, *count, &r->err);
        send += *count;
        recv += *count;
    }
    rc = rc == 0 ? ctw_comm_barrier(comm, &r->err) : rc;
    return rc == 0 ? ctw_comm_sync(comm, &r->err) : rc;
}

static void *run_rank(void *data)
{
    struct rank *r = data;
    cudaStream_t stream;
    (void)cudaSetDevice(r->rank);
    r->rc = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess ? 0 : CT_EIO;
    const struct comm_setup setup = {
        .rank = r->rank,
        .size = r->size,
        .local_size = r->size,
        .device = r->rank,
        .stream = stream,
        .ready = r->handle,
        .over = r->over,
        .timeout_ms = LONG_MS,
        .tree_sum = r->tree ? tree_sum : NULL,
        .tree_sum_data = stream,
    };
    struct ctw_comm *comm = NULL;
    r->rc = r->rc == 0 ? ctworker_nccl_module.open(&setup, &comm, &r->err) : r->rc;
    r->rc = r->rc == 0 ? reduce_all(r, comm) : r->rc;
    ctw_comm_free(comm);
    (void)cudaStreamDestroy(stream);
    return NULL;
}

/* Fractions, so that another order of adding gives other bits. */
static float value(int rank, size_t i)
{
    return (float)(sin((double)i * 0.37 + rank * 1.9) * pow(10, rank % 3));
}

/* Whether each rank has the tree's sums, bit for bit. */
static bool has_sums(const struct rank *ranks, int size, size_t total)
{
    const float *src[RANKS_MAX];
    float *sums = malloc(total * sizeof *sums);
    for (int r = 0; r < size; r++) {
        src[r] = ranks[r].send;
    }
    sum_tree(sums, src, size, 0, total);
    bool same = true;
    for (int r = 0; r < size; r++) {
        same = same && memcmp(sums, ranks[r].recv, total * sizeof *sums) == 0;
    }
    free(sums);
    return same;
}

static bool sums_by(int size, unsigned seed, bool tree, const size_t *counts)
{
    struct rank ranks[RANKS_MAX] = {{0}};
    int devices[RANKS_MAX];
    void *handles[RANKS_MAX];
    atomic_bool over = false;
    struct ct_err err = {0};
    size_t total = 0;
    fake_gpu_begin(&(struct fake_gpu){.seed = seed});
    for (const size_t *count = counts; *count > 0; count++) {
        total += *count;
    }
    for (int r = 0; r < size; r++) {
        devices[r] = r;
    }
    assert_int_equal(ctworker_nccl_module.connect(size, devices, handles, &err), 0);
    for (int r = 0; r < size; r++) {
        float *send = malloc(total * sizeof *send);
        for (size_t i = 0; i < total; i++) {
            send[i] = value(r, i);
        }
        ranks[r] = (struct rank){.rank = r, .size = size, .tree = tree, .handle = handles[r]};
        ranks[r].over = &over, ranks[r].counts = counts, ranks[r].send = send;
        ranks[r].recv = malloc(total * sizeof *send);
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < size; r++) {
        (void)pthread_join(ranks[r].thread, NULL);
    }
    for (int r = 0; r < size; r++) {
        if (ranks[r].rc != 0) {
            fail_msg("rank %d: %s", r, ranks[r].err.text);
        }
    }
    bool same = has_sums(ranks, size, total);
    for (int r = 0; r < size; r++) {
        free((void *)(uintptr_t)ranks[r].send);
        free(ranks[r].recv);
    }
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
    assert_int_equal(fake.memory + fake.streams + fake.comms, 0);
    return same;
}

static void sums_are_the_tree_s(void **state)
{
    (void)state;
    /* Fewer numbers than ranks, slices that are rounded up, ranks without any. */
    const size_t counts[] = {1, 3, 4, 7, 32, 33, 1001, 0};
    for (int size = 1; size <= RANKS_MAX; size *= 2) {
        for (unsigned seed = 1; seed <= 3; seed++) {
            assert_true(sums_by(size, seed, true, counts));
        }
    }
}

static void nccl_adds_in_another_order(void **state)
{
    (void)state;
    const size_t counts[] = {1000, 0};
    assert_true(sums_by(2, 1, false, counts)); /* of two there is only one */
    assert_false(sums_by(4, 1, false, counts));
}

static void long_arrays_are_added_in_pieces(void **state)
{
    (void)state;
    const size_t counts[] = {((size_t)8 << 20) + 5, 0};
    assert_true(sums_by(2, 1, true, counts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_the_tree_s),
        cmocka_unit_test(nccl_adds_in_another_order),
        cmocka_unit_test(long_arrays_are_added_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
