/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of GPUs as a tree, by ranks that are threads and meet in the stand-in for NCCL: the bits are
 * those of the host's tree, whatever the number of ranks and numbers.
 */
#include "tests/lib/ct_test.h"

#include "tests/lib/fake_gpu/fake_gpu_engine.h"
#include "tests/lib/nccl_ranks.h"
#include "worker/shm/sum.h"

#include <math.h>
#include <stdlib.h>

#define RANKS_MAX 8
#define LONG_MS (60 * 1000) /* the long arrays take a while */

/* The numbers of all ranks, one array after the other. */
struct sums {
    const size_t *counts; /* of one sum after the other; 0 ends them */
    float *send[RANKS_MAX], *recv[RANKS_MAX];
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

static void reduce_all(struct nccl_rank *r)
{
    const struct sums *sums = r->all->data;
    const float *send = sums->send[r->rank];
    float *recv = sums->recv[r->rank];
    for (const size_t *count = sums->counts; *count > 0; count++) {
        RANK_CHECK(r, ctw_comm_all_reduce(r->comm, send, recv, *count, NULL) == 0);
        send += *count;
        recv += *count;
    }
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0);
    RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == 0);
}

/* Fractions, so that another order of adding gives other bits. */
static float value(int rank, size_t i)
{
    return (float)(sin((double)i * 0.37 + rank * 1.9) * pow(10, rank % 3));
}

/* Whether each rank has the tree's sums, bit for bit. */
static bool has_sums(const struct sums *all, int size, size_t total)
{
    const float *src[RANKS_MAX];
    float *sums = malloc(total * sizeof *sums);
    for (int r = 0; r < size; r++) {
        src[r] = all->send[r];
    }
    sum_tree(sums, src, size, 0, total);
    bool same = true;
    for (int r = 0; r < size; r++) {
        same = same && memcmp(sums, all->recv[r], total * sizeof *sums) == 0;
    }
    free(sums);
    return same;
}

static bool sums_by(int size, unsigned seed, bool tree, const size_t *counts)
{
    struct sums sums = {.counts = counts};
    size_t total = 0;
    for (const size_t *count = counts; *count > 0; count++) {
        total += *count;
    }
    for (int r = 0; r < size; r++) {
        sums.send[r] = malloc(total * sizeof(float));
        sums.recv[r] = malloc(total * sizeof(float));
        for (size_t i = 0; i < total; i++) {
            sums.send[r][i] = value(r, i);
        }
    }
    nccl_ranks_run(&(struct nccl_ranks){.size = size,
                                        .script = {.seed = seed},
                                        .timeout_ms = LONG_MS,
                                        .tree_sum = tree ? tree_sum : NULL,
                                        .data = &sums},
                   reduce_all);
    bool same = has_sums(&sums, size, total);
    for (int r = 0; r < size; r++) {
        free(sums.send[r]);
        free(sums.recv[r]);
    }
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
