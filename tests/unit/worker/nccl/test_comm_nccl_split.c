/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of some of a GPU communicator's ranks, over the stand-in for NCCL.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/nccl_ranks.h"

#include "worker/shm/sum.h"

#include <stdlib.h>

extern const struct comm_nccl_module ctworker_nccl_module;

/* A deadline that passes; until then nothing else may take so long. */
#define SHORT_MS 2000

/* The sum over the ranks of `comm` of what each brings, by way of its stream. */
static float sum(struct nccl_rank *r, struct ctw_comm *comm, float mine)
{
    float *x = nccl_rank_floats(r, 1);
    nccl_rank_fill(r, x, 1, mine);
    RANK_CHECK(r, ctw_comm_all_reduce(comm, x, x, 1, NULL) == 0);
    RANK_CHECK(r, ctw_comm_sync(comm, NULL) == 0);
    float total = x[0];
    (void)cudaFree(x);
    return total;
}

/* ---- who belongs together -------------------------------------------------------------------- */

/* The even ranks in reverse, the odd ones by their keys, which are the same, in order. */
static void reverse_the_even(struct nccl_rank *r)
{
    struct ctw_comm *group = NULL;
    bool even = r->rank % 2 == 0;
    RANK_CHECK(r, ctw_comm_split(r->comm, r->rank % 2, even ? -r->rank : 7, &group, NULL) == 0);
    RANK_CHECK(r, ctw_comm_size(group) == 3);
    RANK_CHECK(r, ctw_comm_rank(group) == (even ? 2 - r->rank / 2 : r->rank / 2));
    RANK_CHECK(r, ctw_comm_backend(group) == CTW_BACKEND_NCCL);
    for (int i = 0; i < 3; i++) { /* both go on being used, in turns */
        RANK_CHECK(r, sum(r, group, (float)r->rank) == (even ? 0 + 2 + 4 : 1 + 3 + 5));
        RANK_CHECK(r, sum(r, r->comm, 1) == 6);
    }
    float *word = nccl_rank_floats(r, 1);
    nccl_rank_fill(r, word, 1, (float)r->rank);
    RANK_CHECK(r, ctw_comm_broadcast(group, word, sizeof *word, 0, NULL) == 0);
    RANK_CHECK(r, ctw_comm_barrier(group, NULL) == 0);
    RANK_CHECK(r, word[0] == (even ? 4 : 1));
    (void)cudaFree(word);
    void *block;
    RANK_CHECK(r, ctw_comm_alloc(group, CTW_MEMORY_OWN, 64, &block, NULL) == 0);
    ctw_comm_free(group);
}

static void ranks_follow_colors_and_keys(void **state)
{
    (void)state;
    for (unsigned seed = 1; seed <= 5; seed++) {
        nccl_ranks_run(
            &(struct nccl_ranks){.size = 6,
                                 .script = {.seed = seed, .init_turns = 3, .call_turns = 2}},
            reverse_the_even);
    }
}

static void leave_out_the_last(struct nccl_rank *r)
{
    struct ctw_comm *group = r->comm; /* anything but NULL */
    RANK_CHECK(r, ctw_comm_split(r->comm, r->rank == 2 ? -5 : 1, 0, &group, NULL) == 0);
    RANK_CHECK(r, (group == NULL) == (r->rank == 2));
    if (group != NULL) {
        RANK_CHECK(r, sum(r, group, 1) == 2);
    }
    RANK_CHECK(r, sum(r, r->comm, 1) == 3);
    ctw_comm_free(group);
}

static void a_negative_color_gets_none(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 3}, leave_out_the_last);
}

/* 8 ranks, halves, quarters, each alone; parents are freed while their children are used. */
static void halve(struct nccl_rank *r)
{
    for (int size = 8; size > 1; size /= 2) {
        struct ctw_comm *half = NULL;
        int rank = ctw_comm_rank(r->comm);
        RANK_CHECK(r, ctw_comm_split(r->comm, rank >= size / 2, rank, &half, NULL) == 0);
        ctw_comm_free(r->comm);
        r->comm = half;
        RANK_CHECK(r, ctw_comm_rank(half) == r->rank % (size / 2));
        RANK_CHECK(r, sum(r, half, 1) == (float)size / 2);
    }
}

static void a_split_can_be_split(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 8}, halve);
}

/* NCCL wants nothing outstanding then; the stand-in checks that. */
static void sum_then_split(struct nccl_rank *r)
{
    struct ctw_comm *group = NULL;
    float *x = nccl_rank_floats(r, 1);
    nccl_rank_fill(r, x, 1, 2);
    RANK_CHECK(r, ctw_comm_all_reduce(r->comm, x, x, 1, NULL) == 0);
    RANK_CHECK(r, ctw_comm_split(r->comm, 0, 0, &group, NULL) == 0);
    RANK_CHECK(r, x[0] == 4);
    ctw_comm_free(group);
    (void)cudaFree(x);
}

static void a_split_waits_for_what_is_queued(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2}, sum_then_split);
}

/* ---- sums as trees --------------------------------------------------------------------------- */

static atomic_int tree_sums;

struct tree_sum {
    size_t n, count, step;
    const float *from;
    float *to;
};

static void run_tree_sum(const void *data)
{
    const struct tree_sum *t = data;
    const float *src[8];
    float *sums = malloc(t->count * sizeof *sums);
    for (size_t k = 0; k < t->n; k++) {
        src[k] = t->from + k * t->step;
    }
    sum_tree(sums, src, (int)t->n, 0, t->count);
    memcpy(t->to, sums, t->count * sizeof *sums);
    free(sums);
    tree_sums++;
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

static void sum_in_halves(struct nccl_rank *r)
{
    struct ctw_comm *half = NULL;
    RANK_CHECK(r, ctw_comm_split(r->comm, r->rank / 2, 0, &half, NULL) == 0);
    RANK_CHECK(r, sum(r, half, (float)r->rank) == (r->rank / 2 == 0 ? 1 : 5));
    ctw_comm_free(half);
}

/* Whoever is first to know that three cannot ends it for the others. */
static void split_three_and_one(struct nccl_rank *r)
{
    atomic_int *refused = r->all->data;
    struct ctw_comm *group = NULL;
    struct ct_err err = {0};
    int rc = ctw_comm_split(r->comm, r->rank == 3, 0, &group, &err);
    RANK_CHECK(r, rc == CT_EINVAL || rc == CT_EPEER || r->rank == 3);
    *refused += rc == CT_EINVAL && strstr(err.text, "power of two") != NULL;
    ctw_comm_free(group);
}

static void a_group_adds_as_its_parent_does(void **state)
{
    (void)state;
    tree_sums = 0;
    nccl_ranks_run(&(struct nccl_ranks){.size = 4, .tree_sum = tree_sum}, sum_in_halves);
    assert_true(tree_sums > 0);
    atomic_int refused = 0;
    nccl_ranks_run(&(struct nccl_ranks){.size = 4, .tree_sum = tree_sum, .data = &refused},
                   split_three_and_one);
    assert_true(refused > 0);
}

/* ---- failures -------------------------------------------------------------------------------- */

static void only_the_first_splits(struct nccl_rank *r)
{
    atomic_int *done = r->all->data;
    struct ctw_comm *group = NULL;
    struct ct_err err = {0};
    if (r->rank == 0) {
        RANK_CHECK(r, ctw_comm_split(r->comm, 0, 0, &group, &err) == CT_ETIMEDOUT);
        RANK_CHECK(r, strstr(err.text, "has not come") != NULL);
        RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == CT_ETIMEDOUT);
        *done = 1;
        return;
    }
    nccl_ranks_await(done, 1);
    RANK_CHECK(r, ctw_comm_split(r->comm, 0, 0, &group, NULL) == CT_EPEER);
}

static void a_peer_that_never_comes(void **state)
{
    (void)state;
    atomic_int done = 0;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2, .timeout_ms = SHORT_MS, .data = &done},
                   only_the_first_splits);
}

/* A healthy parent outlives what becomes of its child. */
static void abort_the_child(struct nccl_rank *r)
{
    struct ctw_comm *group = NULL;
    RANK_CHECK(r, ctw_comm_split(r->comm, 0, 0, &group, NULL) == 0);
    RANK_CHECK(r, sum(r, group, 1) == 2);
    RANK_CHECK(r, ctw_comm_barrier(r->comm, NULL) == 0);
    ctw_comm_abort(group);
    RANK_CHECK(r, ctw_comm_sync(group, NULL) == CT_EABORTED);
    RANK_CHECK(r, sum(r, r->comm, 1) == 2);
    ctw_comm_free(group);
}

static void a_child_is_aborted_apart(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2}, abort_the_child);
}

static void count_calls(void *data)
{
    ++*(int *)data;
}

enum { STUCK, REDUCING, ALLOCATING, BROADCASTING, SPLITTING, LINKING, SYNCING, GROUPS };

/* What one of the others says when it is used again. */
static int use(struct ctw_comm **groups, int which, struct ct_err *err)
{
    struct ctw_link *link;
    float x = 0;
    void *block;
    switch (which) {
    case REDUCING:
        return ctw_comm_all_reduce(groups[which], &x, &x, 1, err);
    case ALLOCATING:
        return ctw_comm_alloc(groups[which], CTW_MEMORY_OWN, 64, &block, err);
    case BROADCASTING:
        return ctw_comm_broadcast(groups[which], &x, sizeof x, 0, err);
    case SPLITTING:
        return ctw_comm_split(groups[which], 0, 0, &groups[STUCK], err);
    case LINKING:
        return ctw_link_open(groups[which], 1, 64, &link, err);
    case SYNCING:
        return ctw_comm_sync(groups[which], err);
    default:
        return ctw_comm_barrier(groups[which], err);
    }
}

/* One child's sum is stuck before whatever the others would do: NCCL can end none of them alone. */
static void stuck_in_the_child(struct nccl_rank *r)
{
    struct ctw_comm *groups[GROUPS];
    int told = 0;
    for (int i = 0; i < GROUPS; i++) {
        RANK_CHECK(r, ctw_comm_split(r->comm, 0, 0, &groups[i], NULL) == 0);
    }
    RANK_CHECK(r, ctw_comm_barrier(groups[STUCK], NULL) == 0);
    if (r->rank == 0) {
        float *x = nccl_rank_floats(r, 1);
        ctw_comm_on_end(groups[STUCK], count_calls, &told);
        RANK_CHECK(r, ctw_comm_all_reduce(groups[STUCK], x, x, 1, NULL) == 0);
        RANK_CHECK(r, ctw_comm_sync(r->comm, NULL) == CT_ETIMEDOUT);
        RANK_CHECK(r, told == 1);
        for (int i = 0; i < GROUPS; i++) {
            struct ct_err err = {0};
            RANK_CHECK(r, use(groups, i, &err) == CT_EABORTED);
            RANK_CHECK(r, strstr(err.text, "ended together with others of its stream") != NULL);
        }
        (void)cudaFree(x);
    } else {
        int rc;
        do { /* learns of it */
            rc = ctw_comm_poll(groups[STUCK], NULL);
        } while (rc == 0);
        RANK_CHECK(r, rc == CT_EPEER);
    }
    for (int i = 0; i < GROUPS; i++) {
        ctw_comm_free(groups[i]);
    }
}

static void what_is_stuck_ends_with_its_family(void **state)
{
    (void)state;
    nccl_ranks_run(&(struct nccl_ranks){.size = 2, .timeout_ms = SHORT_MS}, stuck_in_the_child);
    nccl_ranks_run(&(struct nccl_ranks){.size = 2, .timeout_ms = SHORT_MS, .tree_sum = tree_sum},
                   stuck_in_the_child);
}

static void ranks_of_one_process_are_not_split(void **state)
{
    (void)state;
    atomic_bool over = false;
    struct ctw_comm *comm, *group = NULL;
    fake_gpu_begin(NULL);
    const struct comm_setup setup = {.size = 1, .over = &over, .timeout_ms = 1000};
    assert_int_equal(ctworker_nccl_module.open(&setup, &comm, NULL), 0);
    assert_int_equal(ctw_comm_split(comm, 0, 0, &group, NULL), CT_EUNSUPPORTED);
    ctw_comm_free(comm);
    assert_int_equal(fake.violations, 0);
}

/* ---- everything that can fail does, once ----------------------------------------------------- */

static int get_id(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                  struct ct_err *err)
{
    const char id[COMM_NCCL_ID_BYTES] = {0};
    (void)data, (void)key, (void)timeout_ms, (void)err;
    return ct_buf_append(out, id, sizeof id);
}

/* Among imaginary peers. */
static int live(struct ct_err *err)
{
    struct ctw_comm *comm = NULL, *group = NULL;
    const struct comm_setup setup = {.rank = 1, .size = 2, .timeout_ms = SHORT_MS, .get = get_id};
    int rc = ctworker_nccl_module.open(&setup, &comm, err);
    rc = rc == 0 ? ctw_comm_split(comm, 0, 0, &group, err) : rc;
    rc = rc == 0 ? ctw_comm_barrier(group, err) : rc;
    ctw_comm_free(group);
    ctw_comm_free(comm);
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
    assert_int_equal(fake.comms + fake.memory, 0);
    return rc;
}

static int live_without_memory(void *data)
{
    (void)data;
    fake_gpu_begin(NULL);
    return live(NULL);
}

static void survives_every_failure(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(live_without_memory, NULL, 0) >= 3);
    int rc = CT_EIO, n = 0;
    while (rc != 0) {
        struct ct_err err = {0};
        fake_gpu_begin(&(struct fake_gpu){.fail_cuda_call = ++n});
        rc = live(&err);
        assert_true(rc == 0 || err.text[0] != '\0');
    }
    assert_true(n > 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_follow_colors_and_keys),
        cmocka_unit_test(a_negative_color_gets_none),
        cmocka_unit_test(a_split_can_be_split),
        cmocka_unit_test(a_split_waits_for_what_is_queued),
        cmocka_unit_test(a_group_adds_as_its_parent_does),
        cmocka_unit_test(a_peer_that_never_comes),
        cmocka_unit_test(a_child_is_aborted_apart),
        cmocka_unit_test(what_is_stuck_ends_with_its_family),
        cmocka_unit_test(ranks_of_one_process_are_not_split),
        cmocka_unit_test(survives_every_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
