/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that disagree, wrong arguments, memory that runs out, and a store that is not there: each
 * is an error that says what is wrong, and the peers hear of it.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- disagreement and misuse ----------------------------------------------------------------- */

static void disagree(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_err err = {0};
    float x[2] = {1, 1};

    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    int rc = rank == 1 ? ctw_comm_all_reduce(comm, x, x, 1, &err) : ctw_comm_barrier(comm, &err);
    CHECK(rc == CT_EPROTO);
    rank_check_text(&err, "rank 1");
    rank_check_text(&err, "all_reduce");
    ctw_comm_free(comm);

    comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_all_reduce(comm, x, x, rank == 1 ? 2 : 1, &err) == CT_EPROTO);
    rank_check_text(&err, rank == 1 ? "rank 0 asks for 1" : "rank 1 asks for 2");
    ctw_comm_free(comm);

    comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_broadcast(comm, x, sizeof(x), rank, &err) == CT_EPROTO);
    ctw_comm_free(comm);

    comm = rank_open_comm(job, LONG_MS);
    void *block;
    CHECK(ctw_comm_alloc(comm, rank == 0 ? CTW_MEMORY_OWN : CTW_MEMORY_SHARED, 10, &block, &err) ==
          CT_EPROTO);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void ranks_that_disagree_are_told(void **state)
{
    (void)state;
    ranks_run(3, disagree, NULL);
}

static void add_in_other_orders(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    const struct ctw_comm_options options = {.timeout_ms = LONG_MS,
                                             .order = rank == 1 ? CTW_ORDER_TREE : CTW_ORDER_RANK};
    struct ctw_comm *comm;
    struct ct_err err = {0};
    CHECK(ctw_comm_open(job, &options, &comm, &err) == (rank == 1 ? CT_EPROTO : CT_EPEER));
    rank_check_text(&err, rank == 1 ? "another order" : "rank 1 aborted");
    ctw_job_free(job);
}

static void ranks_that_add_in_other_orders_are_told(void **state)
{
    (void)state;
    ranks_run(2, add_in_other_orders, NULL);
}

static void add_as_a_tree_of_three(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    const struct ctw_comm_options options = {.order = CTW_ORDER_TREE};
    struct ctw_comm *comm;
    struct ct_err err = {0};
    CHECK(ctw_comm_open(job, &options, &comm, &err) == CT_EINVAL);
    rank_check_text(&err, "power of two");
    const struct ctw_comm_options nccl = {.backend = CTW_BACKEND_NCCL, .order = CTW_ORDER_TREE};
    CHECK(ctw_comm_open(job, &nccl, &comm, &err) == CT_EINVAL);
    rank_check_text(&err, "needs a tree_sum");
    ctw_job_free(job);
}

static void three_ranks_are_no_balanced_tree(void **state)
{
    (void)state;
    ranks_run(3, add_as_a_tree_of_three, NULL);
}

/* One wrong call on rank 0; the others are inside a barrier. */
static void misuse(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    for (int turn = 0; turn < 9; turn++) {
        struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
        struct ct_err err = {0};
        void *own;
        CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, 4096, &own, NULL) == 0);
        float *x = own, y[4];
        size_t begin, end;
        if (rank != 0) {
            CHECK(ctw_comm_barrier(comm, &err) == CT_EPEER);
            rank_check_text(&err, "rank 0 (pid ");
            rank_check_text(&err, "aborted");
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
        rank_check_dead(comm, want);
        ctw_comm_free(comm);
    }
    ctw_job_free(job);
}

static void misuse_is_an_error_and_reaches_the_peers(void **state)
{
    (void)state;
    ranks_run(2, misuse, NULL);
}

static void ask_for_too_much(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
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
    ranks_run(2, ask_for_too_much, NULL);
}

static void come_twice(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm_options options = {.timeout_ms = LONG_MS};
    struct ctw_comm *comm = NULL;
    struct ct_err err = {0};
    /* World size 3 with ranks 0, 1 and 1: the second one is refused, which ends it for all. */
    int rc = ctw_comm_open(job, &options, &comm, &err);
    CHECK(rc == CT_EPROTO || rc == CT_EPEER);
    rank_check_text(&err, rc == CT_EPROTO ? "already joined as rank 1" : "rank 1");
    ctw_job_free(job);
}

static void a_rank_that_is_taken_is_refused(void **state)
{
    (void)state;
    ranks.world_size = 3;
    ranks_start(2, come_twice, NULL);
    ranks_start_one(1, come_twice, NULL);
    ranks_join();
}

static void span_no_machines(int rank, void *data)
{
    (void)rank;
    (void)data;
    CHECK(setenv("LOCAL_WORLD_SIZE", "1", 1) == 0 && setenv("LOCAL_RANK", "0", 1) == 0);
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm;
    struct ct_err err = {0};
    CHECK(ctw_comm_open(job, NULL, &comm, &err) == CT_EINVAL);
    rank_check_text(&err, "1 of 2 ranks are on this host, but GROUP_WORLD_SIZE is 1");
    struct ctw_comm_options bad = {.timeout_ms = -1};
    CHECK(ctw_comm_open(job, &bad, &comm, &err) == CT_EINVAL);
    CHECK(ctw_comm_open(NULL, NULL, &comm, &err) == CT_EINVAL);
    ctw_comm_free(NULL);
    ctw_comm_abort(NULL);
    ctw_job_free(job);
}

static void ranks_elsewhere_need_hosts_elsewhere(void **state)
{
    (void)state;
    ranks_run(2, span_no_machines, NULL);
}

/* ---- no store -------------------------------------------------------------------------------- */

static int solo_life(void *data)
{
    (void)data;
    struct ctw_job *job = NULL;
    struct ctw_comm *comm = NULL;
    void *block;
    int rc = ctw_job_open(NULL, &job, NULL);
    if (rc == 0) {
        rc = ctw_comm_open(job, NULL, &comm, NULL);
    }
    if (rc == 0) {
        rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, NULL);
    }
    if (rc == 0) {
        rc = ctw_comm_barrier(comm, NULL);
    }
    ctw_comm_free(comm);
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

static void a_single_process_gets_back_what_it_gives(void **state)
{
    (void)state;
    struct ctw_job *job;
    struct ctw_comm *comm;
    void *own;
    assert_int_equal(ctw_job_open(NULL, &job, NULL), 0);
    assert_int_equal(ctw_comm_open(job, NULL, &comm, NULL), 0);
    assert_int_equal(ctw_comm_rank(comm), 0);
    assert_int_equal(ctw_comm_size(comm), 1);
    const float mine[3] = {1.5f, -2, 3};
    float sum[4] = {0, 0, 0, 42};
    assert_int_equal(ctw_comm_all_reduce(comm, mine, sum, 3, NULL), 0);
    assert_memory_equal(sum, mine, sizeof mine);
    assert_true(sum[3] == 42);
    assert_int_equal(ctw_comm_all_reduce(comm, mine, sum, 0, NULL), 0);
    assert_int_equal(ctw_comm_broadcast(comm, sum, sizeof sum, 0, NULL), 0);
    assert_memory_equal(sum, mine, sizeof mine);
    assert_int_equal(ctw_comm_alloc(comm, CTW_MEMORY_OWN, sizeof mine, &own, NULL), 0);
    size_t begin = 9, end = 9;
    memcpy(own, mine, sizeof mine);
    assert_int_equal(ctw_comm_reduce_scatter(comm, own, 3, &begin, &end, NULL), 0);
    assert_int_equal(begin, 0);
    assert_int_equal(end, 3);
    assert_memory_equal(own, mine, sizeof mine);
    assert_int_equal(ctw_comm_poll(comm, NULL), 0);
    assert_int_equal(ctw_comm_sync(comm, NULL), 0);
    ctw_comm_abort(comm);
    assert_int_equal(ctw_comm_barrier(comm, NULL), CT_EABORTED);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void an_unreachable_store_is_named(void **state)
{
    (void)state;
    char port[8];
    (void)snprintf(port, sizeof(port), "%u", (unsigned)ranks.port);
    ranks_end(); /* nobody listens there any more */
    assert_int_equal(setenv("RANK", "0", 1), 0);
    assert_int_equal(setenv("WORLD_SIZE", "1", 1), 0);
    assert_int_equal(setenv("MASTER_ADDR", "127.0.0.1", 1), 0);
    assert_int_equal(setenv("MASTER_PORT", port, 1), 0);
    struct ctw_job_options options = {.timeout_ms = SHORT_MS};
    struct ctw_job *job;
    struct ct_err err = {0};
    char where[80];
    (void)snprintf(where, sizeof(where),
                   "rank 0 cannot reach the store at 127.0.0.1:%s within %g s: ", port,
                   SHORT_MS / 1000.0);
    assert_int_equal(setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1), 0);
    assert_int_not_equal(ctw_job_open(&options, &job, &err), 0);
    assert_ptr_equal(strstr(err.text, where), err.text);
    assert_non_null(strstr(err.text, "MASTER_ADDR and MASTER_PORT"));
    assert_int_equal(unsetenv("TORCHELASTIC_USE_AGENT_STORE"), 0);
    assert_int_not_equal(ctw_job_open(&options, &job, &err), 0);
    assert_non_null(strstr(err.text, "start with ctrun"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(ranks_that_disagree_are_told),
        RANKS_TEST(ranks_that_add_in_other_orders_are_told),
        RANKS_TEST(three_ranks_are_no_balanced_tree),
        RANKS_TEST(misuse_is_an_error_and_reaches_the_peers),
        RANKS_TEST(too_much_memory_is_an_error),
        RANKS_TEST(a_rank_that_is_taken_is_refused),
        RANKS_TEST(ranks_elsewhere_need_hosts_elsewhere),
        RANKS_TEST(a_single_process_needs_no_store),
        RANKS_TEST(a_single_process_gets_back_what_it_gives),
        RANKS_TEST(an_unreachable_store_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
