/* SPDX-License-Identifier: Apache-2.0
 *
 * Links between ranks of different machines, which the environment makes of this one: messages
 * beyond what the network holds, and waits. What links of any kind do is in test_link.c, bad peers
 * are in test_link_net_peers.c.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "worker/job/job.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* Far above what sockets hold when nobody reads. */
#define HUGE_BYTES ((size_t)24 << 20)

struct board {
    _Atomic int turns;
    struct ct_handover_slot slot;
};

static struct board *board;

static const int two[] = {1, 1, 0};

/* ---- in a rank ------------------------------------------------------------------------------- */

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* Bytes that tell where in which message they were. */
static void fill(uint32_t *to, size_t words, uint32_t message)
{
    for (size_t i = 0; i < words; i++) {
        to[i] = (uint32_t)i * 2654435761U + message;
    }
}

static bool is_filled(const uint32_t *words, size_t count, uint32_t message)
{
    for (size_t i = 0; i < count; i++) {
        if (words[i] != (uint32_t)i * 2654435761U + message) {
            return false;
        }
    }
    return true;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void send_at_once(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, HUGE_BYTES, LONG_MS);
    uint32_t *words = malloc(HUGE_BYTES);
    const size_t count = HUGE_BYTES / sizeof(*words);
    CHECK(words != NULL);
    for (uint32_t i = 0; i < 3; i++) {
        fill(words, count, i * 2 + (uint32_t)rank);
        CHECK(ctw_link_send(e.link, words, HUGE_BYTES, 7, NULL) == 0);
        CHECK(ctw_link_recv(e.link, words, HUGE_BYTES, 7, NULL) == 0);
        CHECK(is_filled(words, count, i * 2 + (uint32_t)(1 - rank)));
    }
    free(words);
    rank_close_pair(&e);
}

static void two_may_send_at_once_whatever_the_network_holds(void **state)
{
    (void)state;
    ranks_run_hosts(two, send_at_once, NULL);
}

/* In each window both send and receive so many messages, each in an order of its own; together they
 * fit the buffers. */
enum { WINDOWS = 60, WINDOW = 8, WORDS_MOST = 30000 };

static void interleave(int rank, void *data)
{
    const uint32_t *seed = data;
    struct rank_pair e = rank_open_pair(rank, WINDOW * (WORDS_MOST * 4 + 64), LONG_MS);
    uint32_t *words = malloc(WORDS_MOST * sizeof(*words));
    uint32_t sizes[2] = {*seed, *seed + 1}, order = *seed + 10 + (uint32_t)rank;
    uint32_t done[2] = {0, 0}; /* messages sent, received */
    CHECK(words != NULL);
    for (uint32_t w = 1; w <= WINDOWS; w++) {
        while (done[0] < w * WINDOW || done[1] < w * WINDOW) {
            /* Who has sent no more than received might wait for one who waits, too. */
            bool sends =
                done[0] == done[1] || (done[0] < w * WINDOW && (next_random(&order) & 0x100) != 0);
            int from = sends ? rank : 1 - rank;
            size_t count = next_random(&sizes[from]) % (w % 4 == 0 ? WORDS_MOST : 40);
            uint32_t message = done[!sends]++ * 2 + (uint32_t)from;
            if (sends) {
                fill(words, count, message);
                CHECK(ctw_link_send(e.link, words, count * 4, (int)message, NULL) == 0);
            } else {
                CHECK(ctw_link_recv(e.link, words, count * 4, (int)message, NULL) == 0);
                CHECK(is_filled(words, count, message));
            }
        }
    }
    free(words);
    rank_close_pair(&e);
}

static void directions_interleave_at_random(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed < 2000; seed += 400) {
        ranks_run_hosts(two, interleave, &seed);
    }
}

/* Rank 0 goes before anything of it was taken. */
static void leave_much_behind(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, 0, LONG_MS);
    uint32_t words[2000];
    enum { COUNT = 50 };
    if (rank == 0) {
        for (uint32_t i = 0; i < COUNT; i++) {
            fill(words, 2000, i);
            CHECK(ctw_link_send(e.link, words, sizeof(words), 0, NULL) == 0);
        }
        ranks_await(&board->turns, 1);
        ctw_link_free(e.link); /* with a message of the peer that nobody receives */
        e.link = NULL;
        atomic_store(&board->turns, 2);
    } else {
        CHECK(ctw_link_send(e.link, words, 1, 0, NULL) == 0);
        atomic_store(&board->turns, 1);
        ranks_await(&board->turns, 2);
        for (uint32_t i = 0; i < COUNT; i++) {
            CHECK(ctw_link_recv(e.link, words, sizeof(words), 0, NULL) == 0);
            CHECK(is_filled(words, 2000, i));
        }
        struct ct_err err = {0};
        CHECK(ctw_link_send(e.link, words, 1, 0, &err) == CT_EPEER);
        rank_check_text(&err, "send to rank 0: rank 0 (127.0.0.1) closed its link");
    }
    rank_close_pair(&e);
}

static void what_was_sent_outlives_an_end_that_received_nothing(void **state)
{
    (void)state;
    ranks_run_hosts(two, leave_much_behind, NULL);
}

static void go_at_once(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, 0, LONG_MS);
    if (rank == 0) {
        ctw_link_free(e.link);
        e.link = NULL;
        atomic_store(&board->turns, 1);
    } else {
        ranks_await(&board->turns, 1);
        struct ct_err err = {0};
        CHECK(ctw_link_send(e.link, &rank, sizeof(rank), 0, &err) == CT_EPEER);
        rank_check_text(&err, "send to rank 0: rank 0 (127.0.0.1) closed its link");
    }
    rank_close_pair(&e);
}

static void nothing_is_sent_to_who_has_gone(void **state)
{
    (void)state;
    ranks_run_hosts(two, go_at_once, NULL);
}

/* Every two ranks of `comm` swap their ranks. */
static void swap_all(struct ctw_comm *comm)
{
    int rank = ctw_comm_rank(comm), size = ctw_comm_size(comm);
    for (int sum = 1; sum < 2 * size; sum++) {
        int peer = sum - rank, got = -1;
        if (peer >= 0 && peer < size && peer != rank) {
            struct ctw_link *link = rank_open_link(comm, peer, 0);
            CHECK(ctw_link_send(link, &rank, sizeof(rank), sum, NULL) == 0);
            CHECK(ctw_link_recv(link, &got, sizeof(got), sum, NULL) == 0);
            CHECK(got == peer);
            ctw_link_free(link);
        }
    }
}

static void link_all_and_a_group(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *all = rank_open_comm(job, LONG_MS), *group = NULL;
    int before = rank_open_files();
    swap_all(all);
    CHECK(rank_open_files() == before);
    CHECK(ctw_comm_split(all, rank != 1, rank, &group, NULL) == 0);
    swap_all(group);
    ctw_comm_free(group);
    CHECK(rank_open_files() == before);
    /* Who is gone takes a connection of `all` along. */
    CHECK(ctw_comm_barrier(all, NULL) == 0);
    ctw_comm_free(all);
    ctw_job_free(job);
}

static void any_two_ranks_have_a_link(void **state)
{
    (void)state;
    static const int layouts[][RANKS_MAX] = {{2, 2}, {1, 2, 1}, {3, 1, 2}};
    for (size_t l = 0; l < sizeof(layouts) / sizeof(layouts[0]); l++) {
        ranks_run_hosts(layouts[l], link_all_and_a_group, NULL);
    }
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void send_to_nobody(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, 0, SHORT_MS);
    uint32_t words[4096] = {0};
    struct ct_err err = {0};
    if (rank == 0) {
        int rc;
        do {
            rc = ctw_link_send(e.link, words, sizeof(words), 0, &err);
        } while (rc == 0);
        CHECK(rc == CT_ETIMEDOUT);
        rank_check_text(&err,
                        "send to rank 1: gave up after " SHORT_S " s: rank 1 (127.0.0.1) takes");
        atomic_store(&board->turns, 1);
    } else {
        ranks_await(&board->turns, 1);
        int rc;
        do {
            rc = ctw_link_recv(e.link, words, sizeof(words), 0, &err);
        } while (rc == 0);
        CHECK(rc == CT_EPEER);
        rank_check_text(&err,
                        "rank 0 (127.0.0.1) says: send to rank 1: gave up after " SHORT_S " s");
    }
    rank_close_pair(&e);
}

static void who_takes_nothing_is_named_and_told(void **state)
{
    (void)state;
    ranks_run_hosts(two, send_to_nobody, NULL);
}

/* More than the receiving socket takes unread, so that its window closes. */
enum { UNREAD = 40 };

static void be_busy(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, 0, SHORT_MS);
    uint32_t words[4096] = {0};
    if (rank == 0) {
        for (int i = 0; i < UNREAD; i++) {
            CHECK(ctw_link_send(e.link, words, sizeof(words), i, NULL) == 0);
        }
        atomic_store(&board->turns, 1);
        ranks_await(&board->turns, 2);
    } else {
        ranks_await(&board->turns, 1);
        /* Nobody waits meanwhile. */
        CHECK(poll(NULL, 0, 5 * SHORT_MS) == 0);
        for (int i = 0; i < UNREAD; i++) {
            CHECK(ctw_link_recv(e.link, words, sizeof(words), i, NULL) == 0);
        }
        atomic_store(&board->turns, 2);
    }
    rank_close_pair(&e);
}

static void a_peer_may_be_busy_while_nobody_waits(void **state)
{
    (void)state;
    ranks_run_hosts(two, be_busy, NULL);
}

static void wait_for_the_next_generation(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, 0, LONG_MS);
    int generation = ctw_job_env(e.job)->generation;
    if (rank == 0) {
        e.job->handover =
            (struct order_reader){.slot = &board->slot, .generation = generation, .able = true};
        atomic_store(&board->turns, 1);
        struct ct_err err = {0};
        CHECK(ctw_link_recv(e.link, &rank, sizeof(rank), 0, &err) == CT_EPEER);
        rank_check_text(&err, "generation");
        atomic_store(&board->turns, 2);
    } else {
        ranks_await(&board->turns, 1);
        __atomic_store_n(&board->slot.order, ct_generation_word(generation, CT_ORDER_PARK),
                         __ATOMIC_RELEASE);
        ranks_await(&board->turns, 2);
    }
    rank_close_pair(&e);
}

static void the_end_of_a_generation_ends_the_wait(void **state)
{
    (void)state;
    ranks_run_hosts(two, wait_for_the_next_generation, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(two_may_send_at_once_whatever_the_network_holds, board),
        RANKS_TEST_SHARING(directions_interleave_at_random, board),
        RANKS_TEST_SHARING(what_was_sent_outlives_an_end_that_received_nothing, board),
        RANKS_TEST_SHARING(nothing_is_sent_to_who_has_gone, board),
        RANKS_TEST_SHARING(any_two_ranks_have_a_link, board),
        RANKS_TEST_SHARING(who_takes_nothing_is_named_and_told, board),
        RANKS_TEST_SHARING(a_peer_may_be_busy_while_nobody_waits, board),
        RANKS_TEST_SHARING(the_end_of_a_generation_ends_the_wait, board),
    };
    return cmocka_run_group_tests_name("link_net", tests, NULL, NULL);
}
