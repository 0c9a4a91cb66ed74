/* SPDX-License-Identifier: Apache-2.0
 *
 * Waits between ranks of different machines, which the environment makes of this one, in which the
 * process does not run for longer than the limit, as when a scheduler suspends the job: that time
 * does not count. Rank 0 is the one that waits, and rank 1 does nothing before rank 0 has been
 * suspended.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "worker/comm/comm.h"
#include "worker/net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

/* Longer than the limit of any wait here. */
#define PAUSE_S (2 * LONG_MS / 1000)

/* Longest real wait for what does not come. */
#define IDLE_MS 3000

/* Far above what sockets hold when nobody reads. */
#define HUGE_BYTES ((size_t)24 << 20)

/* The ring of a link that buffers no more. */
#define RING_BYTES ((size_t)64 * 1024)

struct board {
    _Atomic int turns; /* odd: rank 0 is to be suspended at its next wait */
};

static struct board *board;

static const int two[] = {1, 1, 0};

/* ---- time ------------------------------------------------------------------------------------ */

static int64_t ahead_s;
static int (*on_poll)(struct pollfd *fds, nfds_t count, int timeout_ms);
static bool is_deaf; /* to those who connect */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap___poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room);
int __real_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    out->tv_sec += ahead_s;
    return rc;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    return (on_poll != NULL ? on_poll : __real_poll)(fds, count, timeout_ms);
}

int __wrap___poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room)
{
    (void)room;
    return __wrap_poll(fds, count, timeout_ms);
}

int __wrap_accept4(int fd, struct sockaddr *from, socklen_t *len, int flags)
{
    if (is_deaf) {
        errno = EAGAIN;
        return -1;
    }
    return __real_accept4(fd, from, len, flags);
}

/* Of rank 0. */
static int poll_suspended(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    bool suspends = atomic_load(&board->turns) % 2 == 1;
    bool cut = suspends && (timeout_ms < 0 || timeout_ms > IDLE_MS);
    int n = __real_poll(fds, count, cut ? IDLE_MS : timeout_ms);
    if (n == 0 && suspends) {
        ahead_s += PAUSE_S;
        (void)atomic_fetch_add(&board->turns, 1);
    }
    return n;
}

/* In rank 1: returns after rank 0 has been suspended. */
static void let_it_be_suspended(void)
{
    int turn = atomic_fetch_add(&board->turns, 1) + 1;
    ranks_await(&board->turns, turn + 1);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* When all its connections are made, and before it answers the greeting of rank 0. */
static int poll_late(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if ((fds->events & POLLIN) != 0) {
        on_poll = NULL;
        let_it_be_suspended();
        is_deaf = false;
    }
    return __real_poll(fds, count, timeout_ms);
}

static int set_key(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "link/0/1/%s", key);
    return comm_store_set(data, name, value, len, err);
}

/* The last key is what rank 1 has published itself. */
static int get_key(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    char name[64];
    (void)snprintf(name, sizeof(name), "link/0/1/%s", key);
    int rc = comm_store_get(data, name, timeout_ms, out, err);
    if (strcmp(key, "net/1") == 0) {
        let_it_be_suspended();
        on_poll = poll_late;
        is_deaf = true;
    }
    return rc;
}

/* Rank 1's end, without link_net.c. */
static void open_late(struct ctw_comm *comm)
{
    static const int names[2] = {0, 1};
    const struct {
        uint64_t bytes;
        int32_t tag;
        uint32_t magic;
    } hello = {RING_BYTES, 0, NET_MAGIC};
    struct comm_setup own = comm_setup_of(&comm->origin);
    struct net net;
    own.rank = own.node = own.first = 1;
    own.size = own.nodes = 2;
    own.local_size = 1;
    own.set = set_key;
    own.get = get_key;
    own.data = &comm->origin;
    let_it_be_suspended();
    CHECK(net_open_pair(&net, &own, names, NULL) == 0);
    CHECK(send(net.links[SCHEDULE_NEXT].fd, &hello, sizeof(hello), MSG_NOSIGNAL) == sizeof(hello));
    ranks_await(&board->turns, 7);
    net_close(&net, false);
}

static void open_while_suspended(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    if (rank == 0) {
        ranks_await(&board->turns, 1);
        on_poll = poll_suspended;
        struct ctw_link *link = rank_open_link(comm, 1, 0);
        on_poll = NULL;
        CHECK(atomic_fetch_add(&board->turns, 1) == 6);
        ctw_link_free(link);
    } else {
        open_late(comm);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_suspension_is_no_wait_for_a_peer_that_opens(void **state)
{
    (void)state;
    ranks_run_hosts(two, open_while_suspended, NULL);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Of rank 0, which has filled the line: while it is suspended, rank 1 sends it a byte. */
static int poll_sending(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int n = __real_poll(fds, count, timeout_ms);
    if (n == 0 && count == 3 && atomic_fetch_add(&board->turns, 1) == 1) {
        ahead_s = PAUSE_S;
        n = __real_poll(fds, 1, IDLE_MS);
    }
    return n;
}

static void send_while_suspended(int rank, void *data)
{
    (void)data;
    struct rank_pair e = rank_open_pair(rank, 0, LONG_MS);
    unsigned char *bytes = calloc(1, HUGE_BYTES), byte = 0;
    CHECK(bytes != NULL);
    if (rank == 0) {
        atomic_store(&board->turns, 1);
        on_poll = poll_sending;
        CHECK(ctw_link_send(e.link, bytes, HUGE_BYTES, 0, NULL) == 0);
        on_poll = NULL;
        CHECK(ctw_link_recv(e.link, &byte, 1, 0, NULL) == 0);
    } else {
        ranks_await(&board->turns, 2);
        CHECK(ctw_link_send(e.link, &byte, 1, 0, NULL) == 0);
        ranks_await(&board->turns, 3); /* it waits again */
        CHECK(ctw_link_recv(e.link, bytes, HUGE_BYTES, 0, NULL) == 0);
    }
    free(bytes);
    rank_close_pair(&e);
}

static void a_suspension_is_no_wait_for_a_peer_that_receives(void **state)
{
    (void)state;
    ranks_run_hosts(two, send_while_suspended, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(a_suspension_is_no_wait_for_a_peer_that_opens, board),
        RANKS_TEST_SHARING(a_suspension_is_no_wait_for_a_peer_that_receives, board),
    };
    return cmocka_run_group_tests_name("net_suspended", tests, NULL, NULL);
}
