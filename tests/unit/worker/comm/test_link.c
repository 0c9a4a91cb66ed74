/* SPDX-License-Identifier: Apache-2.0
 *
 * Links between two ranks, of one machine and of two, which the environment makes of this one:
 * order, sizes around the ring's, disagreement, and every way an end can go. None of it may hang.
 * What only machines can do to each other is in test_link_net.c.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "common/alloc.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define SMALL 1024
#define LARGE ((size_t)300 * 1000)

struct board {
    _Atomic int sent, pid;
};

static struct board *board;
static bool apart; /* each rank is on a machine of its own */

static void start(int count, ranks_fn body, void *data)
{
    const int together[] = {count, 0};
    static const int alone[][RANKS_MAX] = {[2] = {1, 1}, [4] = {1, 1, 1, 1}};
    ranks_start_hosts(apart ? alone[count] : together, body, data);
}

static void run(int count, ranks_fn body)
{
    for (int a = 0; a < 2; a++) {
        apart = a == 1;
        start(count, body, NULL);
        ranks_join();
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void fill(unsigned char *to, size_t len, unsigned seed)
{
    for (size_t i = 0; i < len; i++) {
        to[i] = (unsigned char)(i * 31 + i / 251 + seed);
    }
}

static void talk(int rank, void *data)
{
    (void)data;
    static const size_t sizes[] = {0, 1, 16, 4096, 65519, 65520, 65521, 65536, LARGE};
    struct rank_pair e = rank_open_pair(rank, SMALL, LONG_MS);
    unsigned char *buf = ct_malloc(LARGE), *want = ct_malloc(LARGE);
    CHECK(buf != NULL && want != NULL);
    for (int round = 0; round < 40; round++) {
        for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
            fill(want, sizes[s], s);
            bool sends = ((unsigned)round + s) % 3 != 0 ? rank == 0 : rank == 1;
            if (sends) {
                CHECK(ctw_link_send(e.link, want, sizes[s], (int)s, NULL) == 0);
            } else {
                CHECK(ctw_link_recv(e.link, buf, sizes[s], (int)s, NULL) == 0);
                CHECK(memcmp(buf, want, sizes[s]) == 0);
            }
        }
    }
    ct_free(buf), ct_free(want);
    rank_close_pair(&e);
}

static void messages_arrive_whole_and_in_order(void **state)
{
    (void)state;
    run(2, talk);
}

static void send_both_then_receive(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, LARGE, LONG_MS);
    unsigned char *buf = ct_malloc(LARGE), *want = ct_malloc(LARGE);
    CHECK(buf != NULL && want != NULL);
    for (unsigned i = 0; i < 50; i++) {
        fill(buf, LARGE, i * 2 + (unsigned)rank);
        fill(want, LARGE, i * 2 + (unsigned)(1 - rank));
        /* Neither has received yet: both messages must fit their rings. */
        CHECK(ctw_link_send(e.link, buf, LARGE, 7, NULL) == 0);
        CHECK(ctw_link_recv(e.link, buf, LARGE, 7, NULL) == 0);
        CHECK(memcmp(buf, want, LARGE) == 0);
    }
    ct_free(buf), ct_free(want);
    rank_close_pair(&e);
}

static void a_message_is_buffered_each_way(void **state)
{
    (void)state;
    run(2, send_both_then_receive);
}

static void chain(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    struct ctw_link *below = NULL, *above = NULL;
    if (rank > 0) {
        CHECK(ctw_link_open(comm, rank - 1, SMALL, &below, NULL) == 0);
    }
    if (rank < 3) {
        CHECK(ctw_link_open(comm, rank + 1, SMALL, &above, NULL) == 0);
    }
    for (int i = 0; i < 100; i++) {
        int value = i;
        if (below != NULL) {
            CHECK(ctw_link_recv(below, &value, sizeof(value), 1, NULL) == 0);
        }
        CHECK(value == i + rank);
        value++;
        if (above != NULL) {
            CHECK(ctw_link_send(above, &value, sizeof(value), 1, NULL) == 0);
        }
    }
    ctw_link_free(below), ctw_link_free(above);
    ctw_comm_free(comm), ctw_job_free(job);
}

static void links_make_a_chain(void **state)
{
    (void)state;
    run(4, chain);
}

/* ---- disagreement ---------------------------------------------------------------------------- */

static void expect_other_message(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, SMALL, LONG_MS);
    struct ct_err err = {0};
    char buf[8] = {0};
    if (rank == 0) {
        CHECK(ctw_link_send(e.link, buf, 8, 5, NULL) == 0);
        CHECK(ctw_link_recv(e.link, buf, 8, 5, &err) == CT_EPEER);
        rank_check_text(&err, "rank 1");
    } else {
        CHECK(ctw_link_recv(e.link, buf, 8, 6, &err) == CT_EPROTO);
        rank_check_text(&err, "receive from rank 0: 8 bytes with tag 5 came, 8 with tag 6");
        CHECK(ctw_link_send(e.link, buf, 8, 6, &err) == CT_EPROTO);
        rank_check_text(&err, "the link has ended");
    }
    rank_close_pair(&e);
}

static void another_message_than_expected_is_told(void **state)
{
    (void)state;
    run(2, expect_other_message);
}

static void open_unequal(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    struct ctw_link *link;
    struct ct_err err = {0};
    int rc = ctw_link_open(comm, 1 - rank, rank == 0 ? SMALL : LARGE, &link, &err);
    CHECK(rc == (rank == 0 && !apart ? CT_EPEER : CT_EPROTO));
    rank_check_text(&err, rank == 1 ? "its end buffers 65536 bytes, this one 524288"
                          : apart   ? "its end buffers 524288 bytes, this one 65536"
                                    : "rank 1");
    ctw_comm_free(comm), ctw_job_free(job);
}

static void ends_of_unequal_size_do_not_meet(void **state)
{
    (void)state;
    run(2, open_unequal);
}

static void misuse(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, SMALL, LONG_MS);
    struct ctw_link *link;
    CHECK(ctw_link_open(NULL, 0, 1, &link, NULL) == CT_EINVAL);
    CHECK(ctw_link_open(e.comm, rank, 1, &link, NULL) == CT_EINVAL);
    CHECK(ctw_link_open(e.comm, 2, 1, &link, NULL) == CT_EINVAL);
    CHECK(ctw_link_open(e.comm, -1, 1, &link, NULL) == CT_EINVAL);
    CHECK(ctw_link_open(e.comm, 1 - rank, 1, NULL, NULL) == CT_EINVAL);
    CHECK(ctw_link_open(e.comm, 1 - rank, CTW_LINK_BUFFER_MAX + 1, &link, NULL) == CT_ELIMIT);
    CHECK(ctw_comm_barrier(e.comm, NULL) == 0); /* none of that hurt the communicator */
    CHECK(ctw_link_send(e.link, NULL, 1, 0, NULL) == CT_EINVAL);
    ctw_link_abort(NULL);
    ctw_link_free(NULL);
    rank_close_pair(&e);
}

static void misuse_is_refused(void **state)
{
    (void)state;
    run(2, misuse);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void send_and_leave(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, SMALL, LONG_MS);
    int value = 42;
    if (rank == 0) {
        CHECK(ctw_link_send(e.link, &value, sizeof(value), 0, NULL) == 0);
        ctw_link_free(e.link);
        e.link = NULL;
        atomic_store(&board->sent, 1);
    } else {
        ranks_await(&board->sent, 1);
        value = 0;
        CHECK(ctw_link_recv(e.link, &value, sizeof(value), 0, NULL) == 0 && value == 42);
        struct ct_err err = {0};
        CHECK(ctw_link_recv(e.link, &value, sizeof(value), 0, &err) == CT_EPEER);
        rank_check_text(&err, apart ? "receive from rank 0: rank 0 (127.0.0.1) closed its link"
                                    : "closed");
    }
    CHECK(ctw_comm_barrier(e.comm, NULL) == 0);
    rank_close_pair(&e);
}

static void what_was_sent_outlives_the_sender(void **state)
{
    (void)state;
    run(2, send_and_leave);
}

static void send_until_it_fails(int rank, void *data)
{
    struct rank_pair e = rank_open_pair(rank, SMALL, LONG_MS);
    const bool *dies = data;
    char buf[SMALL] = {0};
    if (rank == 1) {
        atomic_store(&board->pid, (int)getpid());
        CHECK(ctw_link_recv(e.link, buf, SMALL, 0, NULL) == 0);
        if (*dies) {
            for (;;) {
                (void)pause();
            }
        }
        ctw_link_abort(e.link);
        CHECK(ctw_link_recv(e.link, buf, SMALL, 0, NULL) == CT_EABORTED);
    } else {
        struct ct_err err = {0};
        int rc;
        do {
            rc = ctw_link_send(e.link, buf, SMALL, 0, &err);
            atomic_fetch_add(&board->sent, 1);
        } while (rc == 0);
        CHECK(rc == CT_EPEER);
        rank_check_text(&err, *dies   ? "has died"
                              : apart ? "abort of the link to rank 0: called here"
                                      : "aborted");
        rank_check_text(&err, apart ? "send to rank 1: rank 1 (127.0.0.1)"
                                    : "send to rank 1: rank 1 (pid ");
    }
    rank_close_pair(&e);
}

static void a_dead_or_aborting_peer_ends_the_wait(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool dies = i % 2 == 1;
        apart = i >= 2;
        start(2, send_until_it_fails, &dies);
        if (dies) {
            ranks_await(&board->pid, 1);
            ranks_await(&board->sent, 60); /* the ring holds 63 of them */
            (void)kill(atomic_load(&board->pid), SIGKILL);
            ranks_join_killed(atomic_load(&board->pid), SIGKILL);
        } else {
            ranks_join();
        }
    }
}

static void wait_in_vain(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, SMALL, SHORT_MS);
    char buf[4];
    if (rank == 0) {
        struct ct_err err = {0};
        CHECK(ctw_link_recv(e.link, buf, 4, 0, &err) == CT_ETIMEDOUT);
        rank_check_text(&err, apart ? "gave up after " SHORT_S
                                      " s: rank 1 (127.0.0.1) has sent nothing"
                                    : "gave up after " SHORT_S " s: rank 1 has not come");
        atomic_store(&board->sent, 1);
    } else {
        ranks_await(&board->sent, 1);
    }
    rank_close_pair(&e);
}

static void a_silent_peer_meets_the_deadline(void **state)
{
    (void)state;
    run(2, wait_in_vain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(messages_arrive_whole_and_in_order, board),
        RANKS_TEST_SHARING(a_message_is_buffered_each_way, board),
        RANKS_TEST_SHARING(links_make_a_chain, board),
        RANKS_TEST_SHARING(another_message_than_expected_is_told, board),
        RANKS_TEST_SHARING(ends_of_unequal_size_do_not_meet, board),
        RANKS_TEST_SHARING(misuse_is_refused, board),
        RANKS_TEST_SHARING(what_was_sent_outlives_the_sender, board),
        RANKS_TEST_SHARING(a_dead_or_aborting_peer_ends_the_wait, board),
        RANKS_TEST_SHARING(a_silent_peer_meets_the_deadline, board),
    };
    return cmocka_run_group_tests_name("link", tests, NULL, NULL);
}
