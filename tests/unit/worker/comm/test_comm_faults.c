/* SPDX-License-Identifier: Apache-2.0
 *
 * Want of memory at every place of opening a job and a communicator, of using it, and of opening a
 * part of it and a link, within a machine and between two.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/rank_faults.h"

static int open_all(int rank, struct ct_err *err)
{
    struct ctw_comm_options options = {.timeout_ms = LONG_MS};
    struct ctw_job *job = NULL;
    struct ctw_comm *comm = NULL, *part = NULL;
    struct ctw_link *link = NULL;
    int rc = ctw_job_open(NULL, &job, err);
    if (rc == 0) {
        rc = ctw_comm_open(job, &options, &comm, err);
    }
    float x = 1;
    void *block;
    if (rc == 0) {
        rc = ctw_comm_alloc(comm, CTW_MEMORY_OWN, 100, &block, err);
    }
    if (rc == 0) {
        rc = ctw_comm_all_reduce(comm, &x, &x, 1, err);
    }
    if (rc == 0) {
        rc = ctw_comm_split(comm, 0, -rank, &part, err);
    }
    if (rc == 0) {
        rc = ctw_link_open(comm, 1 - rank, 1024, &link, err);
    }
    ctw_link_free(link);
    ctw_comm_free(part);
    ctw_comm_free(comm);
    ctw_job_free(job);
    return rc;
}

static void sweep(int victim, const int *hosts)
{
    ranks_begin();
    ranks.hosts = hosts;
    assert_in_range(rank_fault_sweep(victim, open_all), 10, 200);
    ranks_end();
}

static void the_rank_that_makes_the_memory(void **state)
{
    (void)state;
    sweep(0, NULL);
}

static void the_rank_that_finds_it(void **state)
{
    (void)state;
    sweep(1, NULL);
}

static const int two[] = {1, 1, 0};

static void the_rank_of_the_first_machine(void **state)
{
    (void)state;
    sweep(0, two);
}

static void the_rank_of_the_second_machine(void **state)
{
    (void)state;
    sweep(1, two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_makes_the_memory),
        cmocka_unit_test(the_rank_that_finds_it),
        cmocka_unit_test(the_rank_of_the_first_machine),
        cmocka_unit_test(the_rank_of_the_second_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
