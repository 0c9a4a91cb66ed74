/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators made of some ranks of another one.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

static struct ranks ranks;

static int setup(void **state)
{
    (void)state;
    ranks_begin(&ranks);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ranks_end(&ranks);
    return 0;
}

static float sum_of(struct ctw_comm *comm, float mine)
{
    float sum = 0;
    CHECK(ctw_comm_all_reduce(comm, &mine, &sum, 1, NULL) == 0);
    return sum;
}

/* Six ranks: even and odd ones, in reverse order; then the even ones again, by halves. */
static void halves(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS), *half = NULL, *part = NULL;
    CHECK(ctw_comm_split(all, rank % 2, -rank, &half, NULL) == 0);
    CHECK(ctw_comm_size(half) == 3 && ctw_comm_rank(half) == 2 - rank / 2);
    CHECK(sum_of(half, (float)rank) == (rank % 2 == 0 ? 6.0f : 9.0f));
    if (rank % 2 == 0) {
        /* The odd ones do not take part; 4 is alone in its part. */
        CHECK(ctw_comm_split(half, rank < 4, 0, &part, NULL) == 0);
        CHECK(sum_of(part, (float)rank) == (rank < 4 ? 2.0f : 4.0f));
    }
    CHECK(sum_of(all, 1) == 6);
    ctw_comm_free(part);
    /* Groups live and die apart from where they came from. */
    ctw_comm_free(all);
    CHECK(sum_of(half, 1) == 3);
    ctw_comm_free(half);
    ctw_job_free(job);
}

static void groups_have_the_ranks_of_their_color(void **state)
{
    (void)state;
    ranks_start(&ranks, 6, halves, NULL);
    ranks_join(&ranks);
}

static void leave_one_out(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS), *some = NULL;
    for (int round = 0; round < 20; round++) {
        int out = round % 3;
        CHECK(ctw_comm_split(all, rank == out ? -1 : 5, 0, &some, NULL) == 0);
        CHECK((some == NULL) == (rank == out));
        CHECK(some == NULL || sum_of(some, (float)rank) == (float)(3 - out));
        ctw_comm_free(some);
    }
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void a_negative_color_gets_nothing(void **state)
{
    (void)state;
    ranks_start(&ranks, 3, leave_one_out, NULL);
    ranks_join(&ranks);
}

static void misuse(int rank, void *data)
{
    (void)data;
    (void)rank;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS), *none = NULL;
    CHECK(ctw_comm_split(all, 1 << 25, 0, &none, NULL) == CT_EINVAL);
    rank_check_dead(all, CT_EINVAL);
    struct ct_err err = {0};
    CHECK(ctw_comm_split(all, 0, 0, &none, &err) == CT_EINVAL);
    rank_check_text(&err, "the communicator has ended");
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void misuse_ends_the_communicator(void **state)
{
    (void)state;
    ranks_start(&ranks, 1, misuse, NULL);
    ranks_join(&ranks);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(groups_have_the_ranks_of_their_color),
        TEST(a_negative_color_gets_nothing),
        TEST(misuse_ends_the_communicator),
    };
    return cmocka_run_group_tests_name("comm_split", tests, NULL, NULL);
}
