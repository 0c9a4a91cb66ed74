/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators made of some ranks of another one.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

/* Six ranks: even and odd ones, in reverse order; then the even ones again, by halves. */
static void halves(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS), *half = NULL, *part = NULL;
    CHECK(ctw_comm_split(all, rank % 2, -rank, &half, NULL) == 0);
    CHECK(ctw_comm_size(half) == 3 && ctw_comm_rank(half) == 2 - rank / 2);
    CHECK(rank_sum(half, (float)rank) == (rank % 2 == 0 ? 6.0f : 9.0f));
    if (rank % 2 == 0) {
        /* The odd ones do not take part; 4 is alone in its part. */
        CHECK(ctw_comm_split(half, rank < 4, 0, &part, NULL) == 0);
        CHECK(rank_sum(part, (float)rank) == (rank < 4 ? 2.0f : 4.0f));
    }
    CHECK(rank_sum(all, 1) == 6);
    ctw_comm_free(part);
    /* Groups live and die apart from where they came from. */
    ctw_comm_free(all);
    CHECK(rank_sum(half, 1) == 3);
    ctw_comm_free(half);
    ctw_job_free(job);
}

static void groups_have_the_ranks_of_their_color(void **state)
{
    (void)state;
    ranks_run(6, halves, NULL);
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
        CHECK(some == NULL || rank_sum(some, (float)rank) == (float)(3 - out));
        ctw_comm_free(some);
    }
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void a_negative_color_gets_nothing(void **state)
{
    (void)state;
    ranks_run(3, leave_one_out, NULL);
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
    ranks_run(1, misuse, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(groups_have_the_ranks_of_their_color),
        RANKS_TEST(a_negative_color_gets_nothing),
        RANKS_TEST(misuse_ends_the_communicator),
    };
    return cmocka_run_group_tests_name("comm_split", tests, NULL, NULL);
}
