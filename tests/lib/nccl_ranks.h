/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are threads, each with a stream and a communicator of the NCCL back end over the
 * stand-in (fake_gpu.h), where they meet as processes would: through a store, which is a table
 * here.
 *
 *     static void body(struct nccl_rank *r) { ... RANK_CHECK(r, ...); }
 *
 *     nccl_ranks_run(&(struct nccl_ranks){.size = 4}, body);     // fails the test unless all is
 * well
 */
#ifndef CT_TESTS_LIB_NCCL_RANKS_H
#define CT_TESTS_LIB_NCCL_RANKS_H

#include "tests/lib/fake_gpu/fake_gpu_engine.h"
#include "worker/comm/comm.h"

struct nccl_rank;

struct nccl_ranks {
    int size;
    struct fake_gpu script; /* `processes` is set here */
    int64_t timeout_ms;     /* 0 = longer than anything takes */
    const struct order_reader *handover;
    ctw_tree_sum_fn tree_sum; /* `data` is the rank's stream */
    /* The stream of a rank's communicator, which the body destroys; NULL: a stream is made and
     * destroyed here. */
    cudaStream_t (*stream_of)(struct nccl_rank *r);
    void *data;
    bool may_fail; /* opening and RANK_CHECK: the script lets calls fail */
};

struct nccl_rank {
    const struct nccl_ranks *all;
    pthread_t thread;
    int rank;
    cudaStream_t stream;
    struct ctw_comm *comm; /* freed when the body has ended, unless it is NULL by then */
    char failure[256];
};

typedef void (*nccl_rank_fn)(struct nccl_rank *r);

/* Also fails when anything is left or a rule was broken. */
void nccl_ranks_run(const struct nccl_ranks *ranks, nccl_rank_fn fn);

/* In a body, where cmocka's assertions must not be used: the rank aborts and ends. */
#define RANK_CHECK(r, cond)                                         \
    do {                                                            \
        if (!(cond)) {                                              \
            nccl_rank_check_failed((r), __FILE__, __LINE__, #cond); \
        }                                                           \
    } while (0)
void nccl_rank_check_failed(struct nccl_rank *r, const char *file, int line, const char *what)
    __attribute__((noreturn));

/* Until *counter >= value; meson's limit ends a test in which that never comes. */
void nccl_ranks_await(const atomic_int *counter, int value);

/* What a kernel would do, queued on the rank's stream: fills floats with one value; and sets *bad
 * unless they all have it. */
void nccl_rank_fill(const struct nccl_rank *r, float *at, size_t count, float value);
void nccl_rank_expect(const struct nccl_rank *r, const float *at, size_t count, float value,
                      int *bad);

/* Device memory; cudaFree() it. */
float *nccl_rank_floats(struct nccl_rank *r, size_t count);

#endif
