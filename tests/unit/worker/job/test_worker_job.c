/* SPDX-License-Identifier: Apache-2.0
 *
 * A job with a store: keys of generations, waits that the launcher ends, and a process that goes on
 * in the next generation. The test plays the launcher: it owns the slot for orders and the progress
 * page.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "common/handover.h"
#include "common/progress_page.h"
#include "worker/job/job.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A connection to a store that is not there fails after this time. */
#define CONNECT_MS 2000

/* ---- time ------------------------------------------------------------------------------------ */

/* This process does not run for an hour while it next waits for a key, which comes after that. */
static bool is_suspended;
static int64_t ahead_s;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_ct_client_get(struct ct_client *client, const char *key, int64_t timeout_ms,
                         struct ct_buf *out, struct ct_err *err);
int __wrap_ct_client_get(struct ct_client *client, const char *key, int64_t timeout_ms,
                         struct ct_buf *out, struct ct_err *err);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    out->tv_sec += ahead_s;
    return rc;
}

int __wrap_ct_client_get(struct ct_client *client, const char *key, int64_t timeout_ms,
                         struct ct_buf *out, struct ct_err *err)
{
    int rc = __real_ct_client_get(client, key, timeout_ms, out, err);
    if (is_suspended) {
        is_suspended = false;
        ahead_s += 3600;
        CHECK(ct_client_set(client, key, "late", 4, NULL) == 0);
    }
    return rc;
}

/* ---- the launcher ---------------------------------------------------------------------------- */

struct desk {
    struct ct_handover_slot orders;
    struct ct_progress_slot page;
};

static struct desk *desk;
static int desk_fd;

/* The ranks inherit the descriptor, so one path is right in all of them. */
static int open_desk(void **state)
{
    char place[64];
    (void)ranks_setup(state);
    desk_fd = memfd_create("desk", 0);
    assert_true(desk_fd >= 0);
    assert_int_equal(ftruncate(desk_fd, sizeof *desk), 0);
    desk = mmap(NULL, sizeof *desk, PROT_READ | PROT_WRITE, MAP_SHARED, desk_fd, 0);
    assert_ptr_not_equal(desk, MAP_FAILED);
    desk->orders.version = CT_HANDOVER_VERSION;
    (void)snprintf(place, sizeof place, "/proc/self/fd/%d:0", desk_fd);
    assert_int_equal(setenv(CT_HANDOVER_ENV, place, 1), 0);
    (void)snprintf(place, sizeof place, "/proc/self/fd/%d:%d", desk_fd, CT_HANDOVER_SLOT);
    assert_int_equal(setenv(CT_PROGRESS_ENV, place, 1), 0);
    return 0;
}

static int close_desk(void **state)
{
    (void)ranks_teardown(state);
    assert_int_equal(unsetenv(CT_HANDOVER_ENV), 0);
    assert_int_equal(unsetenv(CT_PROGRESS_ENV), 0);
    (void)munmap(desk, sizeof *desk);
    (void)close(desk_fd);
    return 0;
}

static void order(int generation, enum ct_order what)
{
    __atomic_store_n(&desk->orders.order, ct_generation_word(generation, what), __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &desk->orders.order, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Waits until the worker says this about the generation. */
static void await_stay(int generation, enum ct_stay stay)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    uint32_t want = ct_generation_word(generation, stay);
    for (int i = 0; __atomic_load_n(&desk->page.stay, __ATOMIC_ACQUIRE) != want; i++) {
        assert_in_range(i, 0, 60000);
        (void)nanosleep(&pause, NULL);
    }
}

/* The contract of rank 0 of 1. */
static void go(int generation, unsigned port)
{
    int len = snprintf(desk->orders.text, sizeof desk->orders.text,
                       "RANK=0%cWORLD_SIZE=1%cMASTER_ADDR=127.0.0.1%cMASTER_PORT=%u%c"
                       "TORCHELASTIC_RUN_ID=test%cCTRUN_GENERATION=%d%c",
                       0, 0, 0, port, 0, 0, generation, 0);
    desk->orders.bytes = (uint32_t)len;
    order(generation, CT_ORDER_GO);
}

/* ---- keys ------------------------------------------------------------------------------------ */

static void use_keys(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ct_buf got = CT_BUF_INIT;
    struct ct_err err = {0};
    int64_t sum = 0;
    void *value;
    size_t len;
    /* An earlier generation has set it, too. */
    CHECK(ctw_job_get_within(job, "key", SHORT_MS, &got, &err) == CT_ETIMEDOUT);
    CHECK(ctw_job_add(job, "count", 3, &sum, NULL) == 0 && sum == 3);
    CHECK(ctw_job_add(job, "count", 4, NULL, NULL) == 0);
    CHECK(ctw_job_set(job, "key", "", 0, NULL) == 0);
    CHECK(ctw_job_get(job, "key", &value, &len, NULL) == 0);
    CHECK(len == 0 && *(const char *)value == '\0');
    free(value);
    CHECK(ctw_job_get(job, "key", NULL, &len, &err) == CT_EINVAL);
    CHECK(ctw_job_get(job, "key", &value, NULL, &err) == CT_EINVAL);
    CHECK(ctw_job_get(NULL, "key", &value, &len, &err) == CT_EINVAL);
    CHECK(ctw_job_get(job, NULL, &value, &len, &err) == CT_EINVAL);
    ct_buf_fini(&got);
    ctw_job_free(job);
}

static void a_generation_begins_without_keys(void **state)
{
    (void)state;
    ranks_run(1, use_keys, NULL);
    ranks_run(1, use_keys, NULL);
}

static void open_lazily(int rank, void *data)
{
    struct ctw_job *job = NULL;
    struct ctw_comm *comm = NULL;
    const struct ctw_job_options options = {.timeout_ms = CONNECT_MS, .lazy = true};
    void *value;
    size_t len;
    (void)data;
    CHECK(ctw_job_open(&options, &job, NULL) == 0);
    CHECK(job->client == NULL && ctw_job_env(job)->rank == rank);
    ctw_progress(job, CTW_PHASE_COMPUTE, 1);
    CHECK(job->client == NULL);
    if (rank == 0) {
        CHECK(ctw_job_set(job, "key", "x", 1, NULL) == 0);
        CHECK(ctw_job_get(job, "key", &value, &len, NULL) == 0 && memcmp(value, "x", 2) == 0);
        CHECK(job->client != NULL);
        free(value);
    }
    CHECK(ctw_comm_open(job, NULL, &comm, NULL) == 0); /* rank 1 connects only now */
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_lazy_job_connects_when_it_needs_the_store(void **state)
{
    (void)state;
    ranks_run(2, open_lazily, NULL);
}

/* ---- the next generation --------------------------------------------------------------------- */

static struct ctw_job *open_staying(void)
{
    struct ctw_job *job = NULL;
    const struct ctw_job_options options = {.timeout_ms = CONNECT_MS};
    CHECK(ctw_job_open(&options, &job, NULL) == 0);
    CHECK(ctw_job_stay(job, true, NULL) == 0);
    return job;
}

/* Asks for a key that nobody sets, until the launcher ends the generation. */
static void wait_for_the_end(struct ctw_job *job, int64_t timeout_ms)
{
    struct ct_buf got = CT_BUF_INIT;
    struct ct_err err = {0};
    CHECK(ctw_job_get_within(job, "never", timeout_ms, &got, &err) == CT_EPEER);
    rank_check_text(&err, "the launcher has ended generation 1");
    CHECK(ctw_job_ended(job));
    ct_buf_fini(&got);
}

static void wait_while_suspended(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_staying();
    struct ct_buf got = CT_BUF_INIT;
    is_suspended = true;
    CHECK(ctw_job_get_within(job, "key", LONG_MS, &got, NULL) == 0);
    CHECK(got.len == 4 && ahead_s > 0);
    ct_buf_fini(&got);
    ctw_job_free(job);
}

static void a_suspension_is_no_wait_for_a_key(void **state)
{
    (void)state;
    ranks.generation = 1;
    ranks_start(1, wait_while_suspended, NULL);
    ranks_join();
}

static void go_on(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_staying();
    struct ct_err err = {0};
    void *value;
    size_t len;
    CHECK(ctw_job_set(job, "key", "old", 3, NULL) == 0);
    ctw_progress(job, CTW_PHASE_COMPUTE, 7);
    wait_for_the_end(job, LONG_MS);
    job->comms = 5;
    CHECK(ctw_job_next(job, LONG_MS, &err) == 0);
    CHECK(!ctw_job_ended(job));
    CHECK(job->comms == 0); /* ranks that are new count from there, too */
    CHECK(ctw_job_env(job)->generation == 3 && ctw_job_env(job)->world_size == 1);
    CHECK(ctw_job_set(job, "key", "new", 3, NULL) == 0);
    CHECK(ctw_job_get(job, "key", &value, &len, NULL) == 0 && memcmp(value, "new", 4) == 0);
    free(value);
    ctw_job_free(job);
}

static void a_process_goes_on_in_the_next_generation(void **state)
{
    (void)state;
    ranks.generation = 1;
    ranks_start(1, go_on, NULL);
    await_stay(1, CT_STAY_ABLE);
    order(1, CT_ORDER_PARK);
    await_stay(1, CT_STAY_PARKED);
    go(2, 1); /* its store is gone already, and it ends before the worker has come */
    await_stay(2, CT_STAY_ABLE);
    assert_int_equal(desk->page.where, ct_progress_where(CT_PHASE_STARTING, 0));
    order(2, CT_ORDER_PARK);
    await_stay(2, CT_STAY_PARKED);
    go(3, ranks.port);
    ranks_join();
    assert_int_equal(desk->page.stay, 0); /* freed */
}

static void lose_the_store(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_staying();
    struct ct_err err = {0};
    wait_for_the_end(job, INT64_MAX); /* which no deadline can hold */
    CHECK(ctw_job_next(job, LONG_MS, &err) != 0);
    rank_check_text(&err, "cannot reach the store");
    ctw_job_free(job);
}

static void a_generation_that_runs_needs_its_store(void **state)
{
    (void)state;
    ranks.generation = 1;
    ranks_start(1, lose_the_store, NULL);
    await_stay(1, CT_STAY_ABLE);
    order(1, CT_ORDER_PARK);
    await_stay(1, CT_STAY_PARKED);
    go(2, 1);
    ranks_join();
}

static void wait_for_an_end_that_does_not_come(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_staying();
    struct ct_err err = {0};
    CHECK(ctw_job_next(job, 100, &err) == CT_ETIMEDOUT);
    rank_check_text(&err, "has not ended generation 1 within 0.1 s");
    ctw_job_free(job);
}

static void a_launcher_that_ends_nothing_is_not_awaited_for_ever(void **state)
{
    (void)state;
    ranks.generation = 1;
    ranks_start(1, wait_for_an_end_that_does_not_come, NULL);
    ranks_join();
}

static void park_in_vain(int rank, void *data)
{
    (void)rank;
    (void)data;
    struct ctw_job *job = open_staying();
    struct ct_err err = {0};
    wait_for_the_end(job, LONG_MS);
    CHECK(ctw_job_next(job, 0, &err) == CT_EABORTED);
    rank_check_text(&err, "the launcher has ended the job");
    ctw_job_free(job);
}

static void a_job_that_is_over_has_no_next_generation(void **state)
{
    (void)state;
    ranks.generation = 1;
    ranks_start(1, park_in_vain, NULL);
    await_stay(1, CT_STAY_ABLE);
    order(1, CT_ORDER_PARK);
    await_stay(1, CT_STAY_PARKED);
    order(1, CT_ORDER_END);
    ranks_join();
}

/* ---- what the launcher hands over ------------------------------------------------------------ */

static bool opens(void)
{
    struct order_reader reader;
    order_reader_open(&reader, getenv(CT_HANDOVER_ENV), 1);
    bool open = reader.slot != NULL;
    order_reader_close(&reader);
    return open;
}

static void orders_of_another_version_or_beyond_the_file_are_not_read(void **state)
{
    (void)state;
    assert_true(opens());
    desk->orders.version = CT_HANDOVER_VERSION + 1;
    assert_false(opens());
    desk->orders.version = CT_HANDOVER_VERSION;
    assert_int_equal(ftruncate(desk_fd, CT_HANDOVER_SLOT - 1), 0);
    assert_false(opens());
    assert_int_equal(ftruncate(desk_fd, sizeof *desk), 0);
}

static void a_contract_without_an_end_is_refused(void **state)
{
    struct order_reader reader;
    struct ct_err err = {0};
    uint32_t generation;
    size_t bytes;
    char *text;
    (void)state;
    order_reader_open(&reader, getenv(CT_HANDOVER_ENV), 1);
    memcpy(desk->orders.text, "RANK", 4);
    desk->orders.bytes = 4;
    order(2, CT_ORDER_GO);
    ct_fault_begin(-1);
    assert_int_equal(order_reader_await_next(&reader, &text, &bytes, &generation, &err), CT_EPROTO);
    assert_int_equal(ct_fault_end(), 0);
    assert_non_null(strstr(err.text, "has no end"));
    order_reader_close(&reader);
}

#define DESK_TEST(name) cmocka_unit_test_setup_teardown(name, open_desk, close_desk)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST(a_generation_begins_without_keys),
        RANKS_TEST(a_lazy_job_connects_when_it_needs_the_store),
        DESK_TEST(orders_of_another_version_or_beyond_the_file_are_not_read),
        DESK_TEST(a_contract_without_an_end_is_refused),
        DESK_TEST(a_suspension_is_no_wait_for_a_key),
        DESK_TEST(a_process_goes_on_in_the_next_generation),
        DESK_TEST(a_generation_that_runs_needs_its_store),
        DESK_TEST(a_launcher_that_ends_nothing_is_not_awaited_for_ever),
        DESK_TEST(a_job_that_is_over_has_no_next_generation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
