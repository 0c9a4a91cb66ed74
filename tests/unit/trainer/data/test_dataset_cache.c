/* SPDX-License-Identifier: Apache-2.0
 *
 * One copy of a data set for all workers of a host: who has it, that nobody can change it, and what
 * the others do when there is none.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "trainer/data/dataset_cache.h"
#include "trainer/data/synthetic.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static struct board {
    _Atomic int looked;
} * board;

/* Like what ct_dataset_load() gives. */
static void check_content(const struct ct_dataset *set)
{
    struct ct_dataset own;
    CHECK(ct_dataset_load("synthetic", &own, NULL) == 0);
    CHECK(set->train.count == own.train.count && set->test.count == own.test.count);
    CHECK(set->features == own.features && set->classes == own.classes);
    CHECK(set->mean == own.mean && set->stddev == own.stddev);
    CHECK(memcmp(&set->shape, &own.shape, sizeof own.shape) == 0);
    CHECK(memcmp(set->train.images, own.train.images, own.train.count * own.features) == 0);
    CHECK(memcmp(set->train.labels, own.train.labels, own.train.count) == 0);
    CHECK(memcmp(set->test.images, own.test.images, own.test.count * own.features) == 0);
    CHECK(memcmp(set->test.labels, own.test.labels, own.test.count) == 0);
    ct_dataset_fini(&own);
}

/* ---- one copy -------------------------------------------------------------------------------- */

static void load_together(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_dataset set;
    CHECK(ct_dataset_load_shared("synthetic", job, &set, NULL) == 0);
    CHECK(set.cache.bytes != NULL);
    check_content(&set);
    if (rank == 0) {
        /* No process can write to it, not even this one. */
        void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, set.cache_fd, 0);
        CHECK(map == MAP_FAILED);
        CHECK(ftruncate(set.cache_fd, 0) != 0);
        ranks_await(&board->looked, 2);
    } else {
        atomic_fetch_add(&board->looked, 1);
    }
    ct_dataset_fini(&set);
    ctw_job_free(job);
}

static void workers_of_a_host_share_one_copy(void **state)
{
    (void)state;
    ranks_run(3, load_together, NULL);
}

static void load_alone(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_dataset set;
    CHECK(ct_dataset_load_shared("synthetic", job, &set, NULL) == 0);
    CHECK(set.cache.bytes == NULL);
    CHECK(ct_dataset_tell(job, &set, NULL) == 0);
    ct_dataset_fini(&set);
    ctw_job_free(job);
}

static void a_worker_alone_on_its_host_shares_with_nobody(void **state)
{
    (void)state;
    ranks_run_hosts((const int[]){1, 1, 0}, load_alone, NULL);
}

/* In the next generation the set is there already; new workers must find it. */
static void tell_again(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_dataset set;
    if (rank == 0) {
        CHECK(ct_dataset_load_shared("synthetic", job, &set, NULL) == 0);
        CHECK(ctw_job_set(job, "dataset/0", "-", 1, NULL) == 0);
        CHECK(ct_dataset_tell(job, &set, NULL) == 0);
        atomic_store(&board->looked, 1);
        ranks_await(&board->looked, 2);
    } else {
        ranks_await(&board->looked, 1);
        CHECK(ct_dataset_load_shared("synthetic", job, &set, NULL) == 0);
        CHECK(set.cache.bytes != NULL);
        /* Only the first worker of a host tells. */
        CHECK(ct_dataset_tell(job, &set, NULL) == 0);
        struct ct_dataset again;
        CHECK(ct_dataset_load_shared("synthetic", job, &again, NULL) == 0);
        CHECK(again.cache.bytes != NULL);
        ct_dataset_fini(&again);
        CHECK(again.cache.bytes == NULL); /* or each generation would map the set again */
        atomic_store(&board->looked, 2);
    }
    ct_dataset_fini(&set);
    ctw_job_free(job);
}

static void what_is_loaded_already_can_be_told_again(void **state)
{
    (void)state;
    ranks_run(2, tell_again, NULL);
}

/* ---- none ------------------------------------------------------------------------------------ */

static void fail_together(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_dataset set;
    struct ct_err err = {0};
    int rc = ct_dataset_load_shared("/no/such/folder", job, &set, &err);
    CHECK(rc == (rank == 0 ? CT_ENOENT : CT_EPEER));
    rank_check_text(&err, "cannot open the data folder /no/such/folder");
    ctw_job_free(job);
}

static void a_set_that_cannot_be_loaded_is_explained_to_all(void **state)
{
    (void)state;
    ranks_run(2, fail_together, NULL);
}

static void load_without_store(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_err err = {0};
    struct ct_dataset set;
    if (rank == 0) {
        ranks_await(&board->looked, 1); /* the other one needs the store to open its job */
        CHECK(kill(ranks.store, SIGKILL) == 0);
        CHECK(ctw_job_add(job, "count", 1, NULL, NULL) != 0); /* now this worker knows it, too */
        int rc = ct_dataset_load_shared("synthetic", job, &set, &err);
        CHECK(rc != 0 && err.text[0] != '\0');
        /* Nothing is left for a caller that was told of a failure. */
        CHECK(set.train.images == NULL && set.cache.bytes == NULL && set.cache_fd == 0);
    } else {
        atomic_fetch_add(&board->looked, 1);
    }
    ctw_job_free(job);
}

static void a_worker_that_cannot_tell_the_others_keeps_no_set(void **state)
{
    (void)state;
    ranks_run(2, load_without_store, NULL);
}

/* The first worker tells what `data` points to; the second one loads the set itself. */
static void hear_nonsense(int rank, void *data)
{
    const char *told = data;
    struct ctw_job *job = rank_open_job();
    if (rank == 0) {
        CHECK(ctw_job_set(job, "dataset/0", told, strlen(told), NULL) == 0);
    } else {
        struct ct_dataset set;
        CHECK(ct_dataset_load_shared("synthetic", job, &set, NULL) == 0);
        CHECK(set.cache.bytes == NULL);
        CHECK(set.train.count == CT_SYNTHETIC_TRAIN);
        ct_dataset_fini(&set);
    }
    ctw_job_free(job);
}

static void a_place_that_is_none_makes_a_worker_load_the_set_itself(void **state)
{
    (void)state;
    char other[64], small[64];
    /* Memory of another kind, and too little. */
    int fd = memfd_create("other", 0), few = memfd_create("few", 0);
    assert_true(fd >= 0 && few >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(ftruncate(few, 10), 0);
    (void)snprintf(other, sizeof other, "@%ld %d token", (long)getpid(), fd);
    (void)snprintf(small, sizeof small, "@%ld %d token", (long)getpid(), few);
    const char *const told[] = {"-",   "@",  "@x", "@1 1000000 token", "@999999999 3 token",
                                other, small};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        ranks_run(2, hear_nonsense, (void *)(uintptr_t)told[i]);
    }
    (void)close(fd);
    (void)close(few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(workers_of_a_host_share_one_copy, board),
        RANKS_TEST_SHARING(a_worker_alone_on_its_host_shares_with_nobody, board),
        RANKS_TEST_SHARING(what_is_loaded_already_can_be_told_again, board),
        RANKS_TEST_SHARING(a_set_that_cannot_be_loaded_is_explained_to_all, board),
        RANKS_TEST_SHARING(a_worker_that_cannot_tell_the_others_keeps_no_set, board),
        RANKS_TEST_SHARING(a_place_that_is_none_makes_a_worker_load_the_set_itself, board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
