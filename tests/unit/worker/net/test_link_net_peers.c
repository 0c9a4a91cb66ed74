/* SPDX-License-Identifier: Apache-2.0
 *
 * Links between ranks of different machines, which the environment makes of this one: peers that
 * die, lie or are strangers, at every stage. None of it may hang.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "common/addr.h"
#include "worker/comm/comm.h"
#include "worker/net/net.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The ring of a link that buffers no more; what peers say of it. */
#define RING_BYTES ((size_t)64 * 1024)

struct board {
    _Atomic int turns;
};

static struct board *board;

static const int two[] = {1, 1, 0};

/* ---- in a rank ------------------------------------------------------------------------------- */

/* ---- peers that die or lie, once connected --------------------------------------------------- */

/* As in link_net.c. */
struct frame {
    uint64_t bytes;
    int32_t tag;
    uint32_t magic;
};

struct liar {
    struct net net;
    struct comm_origin *origin;
};

static int set_key(void *data, const char *key, const void *value, size_t len, struct ct_err *err)
{
    const struct liar *liar = data;
    char name[64];
    (void)snprintf(name, sizeof(name), "link/0/1/%s", key);
    return comm_store_set(liar->origin, name, value, len, err);
}

static int get_key(void *data, const char *key, int64_t timeout_ms, struct ct_buf *out,
                   struct ct_err *err)
{
    const struct liar *liar = data;
    char name[64];
    (void)snprintf(name, sizeof(name), "link/0/1/%s", key);
    return comm_store_get(liar->origin, name, timeout_ms, out, err);
}

/* Rank 1's end, without link_net.c. */
static void connect_liar(struct liar *liar, struct ctw_comm *comm)
{
    static const int names[2] = {0, 1};
    liar->origin = &comm->origin;
    struct comm_setup own = comm_setup_of(&comm->origin);
    own.rank = own.node = own.first = 1;
    own.size = own.nodes = 2;
    own.local_size = 1;
    own.set = set_key;
    own.get = get_key;
    own.data = liar;
    CHECK(net_open_pair(&liar->net, &own, names, NULL) == 0);
}

static void say(const struct liar *liar, const void *bytes, size_t len)
{
    CHECK(send(liar->net.links[SCHEDULE_NEXT].fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
}

enum how { HOW_DIES, HOW_GOES, HOW_TELLS, HOW_BABBLES };

struct lie {
    size_t len; /* of the frame that is sent */
    struct frame frame;
    size_t payload; /* behind it */
    enum how then;
    int code; /* what the honest end gets for 64 bytes with tag 3, */
    const char *text;
};

static void be_lied_to(int rank, void *data)
{
    const struct lie *lie = data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    char buf[64] = {0};
    if (rank == 0) {
        struct ctw_link *link = rank_open_link(comm, 1, 0);
        struct ct_err err = {0};
        int rc = ctw_link_recv(link, buf, sizeof(buf), 3, &err);
        if (rc != lie->code) {
            ranks_check_failed(__FILE__, __LINE__, err.text);
        }
        rank_check_text(&err, lie->text);
        CHECK(ctw_link_send(link, buf, 1, 0, NULL) == rc);
        ctw_link_free(link);
        atomic_store(&board->turns, 1);
    } else {
        struct liar liar;
        connect_liar(&liar, comm);
        const struct frame hello = {.bytes = RING_BYTES, .magic = NET_MAGIC};
        say(&liar, &hello, sizeof(hello));
        say(&liar, &lie->frame, lie->len);
        say(&liar, buf, lie->payload);
        if (lie->then == HOW_DIES) {
            (void)kill(getpid(), SIGKILL);
        }
        if (lie->then == HOW_TELLS) {
            net_tell(&liar.net, "no more of that");
        } else if (lie->then == HOW_BABBLES) {
            CHECK(send(liar.net.peers[0].fd, "babbling on and on", 18, MSG_NOSIGNAL) == 18);
        } else {
            net_close(&liar.net, false);
        }
        ranks_await(&board->turns, 1);
        net_close(&liar.net, true);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void peers_that_die_or_lie_are_found_out(void **state)
{
    (void)state;
    const struct frame good = {64, 3, NET_MAGIC};
    const struct lie lies[] = {
        {0, good, 0, HOW_DIES, CT_EPEER, "receive from rank 1: rank 1 (127.0.0.1) has died"},
        {7, good, 0, HOW_DIES, CT_EPEER, "rank 1 (127.0.0.1) has died"},
        {16, good, 63, HOW_DIES, CT_EPEER, "rank 1 (127.0.0.1) has died"},
        {15, good, 0, HOW_GOES, CT_EPEER, "rank 1 (127.0.0.1) closed its link"},
        {16, good, 1, HOW_GOES, CT_EPEER, "rank 1 (127.0.0.1) closed its link"},
        {16, good, 5, HOW_TELLS, CT_EPEER, "rank 1 (127.0.0.1) says: no more of that"},
        {16, good, 0, HOW_BABBLES, CT_EPROTO, "rank 1 (127.0.0.1) has sent an invalid message"},
        {16, {64, 3, 0x77}, 64, HOW_GOES, CT_EPROTO, "has sent an invalid message"},
        {16, {UINT64_MAX, 3, NET_MAGIC}, 64, HOW_GOES, CT_EPROTO, "18446744073709551615 bytes"},
        {16, {63, 3, NET_MAGIC}, 63, HOW_GOES, CT_EPROTO, "63 bytes with tag 3 came, 64 with"},
        {16, {64, -3, NET_MAGIC}, 64, HOW_GOES, CT_EPROTO, "64 bytes with tag -3 came, 64 with"},
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        struct lie lie = lies[i];
        ranks_start_hosts(two, be_lied_to, &lie);
        ranks_join_killed(lie.then == HOW_DIES ? ranks.pids[1] : 0, SIGKILL);
    }
}

/* ---- peers that do so while the link opens, and strangers ------------------------------------ */

static const struct sockaddr_in loopback = {.sin_family = AF_INET,
                                            .sin_addr = {.s_addr = 0x0100007f}};

static int listen_here(char *where, size_t room)
{
    struct sockaddr_in at = loopback;
    socklen_t len = sizeof(at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 4) == 0);
    CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
    (void)snprintf(where, room, "127.0.0.1:%d 1 1 0", ntohs(at.sin_port));
    return fd;
}

enum stage { STAGE_ABSENT, STAGE_GONE, STAGE_HANGS_UP, STAGE_IMPOSTOR, STAGE_NONSENSE };

/* What rank 1 is like when rank 0 opens a link to it. */
struct opening {
    enum stage stage;
    int code;
    const char *text;
    const char *entry; /* STAGE_NONSENSE: what it publishes of itself */
};

static void receive_badly(const struct opening *opening, struct ctw_comm *comm)
{
    char where[64];
    struct liar liar = {.origin = &comm->origin};
    int fd = listen_here(where, sizeof(where));
    if (opening->stage == STAGE_GONE) {
        (void)close(fd);
    } else if (opening->stage == STAGE_NONSENSE) {
        (void)snprintf(where, sizeof(where), "%s", opening->entry);
    }
    if (opening->stage != STAGE_ABSENT) {
        CHECK(set_key(&liar, "net/1", where, strlen(where), NULL) == 0);
    }
    if (opening->stage == STAGE_HANGS_UP || opening->stage == STAGE_IMPOSTOR) {
        int caller = accept(fd, NULL, NULL);
        char greeting[32] = "I have no idea what you mean";
        CHECK(caller >= 0 && recv(caller, greeting, sizeof(greeting), MSG_WAITALL) == 32);
        if (opening->stage == STAGE_IMPOSTOR) {
            CHECK(send(caller, greeting, sizeof(greeting), MSG_NOSIGNAL) == 32);
        } else {
            (void)close(caller);
        }
    }
    ranks_await(&board->turns, 1);
}

static void open_to_a_bad_peer(int rank, void *data)
{
    const struct opening *opening = data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, SHORT_MS);
    if (rank == 1) {
        receive_badly(opening, comm);
    } else {
        struct ctw_link *link;
        struct ct_err err = {0};
        int before = rank_open_files();
        int rc = ctw_link_open(comm, 1, 0, &link, &err);
        if (rc != opening->code) {
            ranks_check_failed(__FILE__, __LINE__, err.text);
        }
        rank_check_text(&err, "rank 0 cannot open a link to rank 1: ");
        rank_check_text(&err, opening->text);
        CHECK(rank_open_files() == before);
        atomic_store(&board->turns, 1);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void bad_peers_have_no_link(void **state)
{
    (void)state;
    static const struct opening openings[] = {
        {STAGE_ABSENT, CT_ETIMEDOUT, "rank 1 has not come", NULL},
        {STAGE_GONE, CT_ECLOSED, "cannot reach rank 1 (127.0.0.1)", NULL},
        /* It never calls, as it should before it answers. */
        {STAGE_HANGS_UP, CT_ETIMEDOUT, "rank 1 (127.0.0.1) has not connected", NULL},
        {STAGE_IMPOSTOR, CT_ETIMEDOUT, "rank 1 (127.0.0.1) has not connected", NULL},
        {STAGE_NONSENSE, CT_EPROTO, "rank 1 published an invalid entry", "where? 1 1"},
        {STAGE_NONSENSE, CT_EPROTO, "rank 1 published an invalid entry",
         "127.0.0.1:1 1 2147483647 0"},
        {STAGE_NONSENSE, CT_EPROTO, "rank 1 published an invalid entry",
         "127.0.0.1:1 2147483647 2 0"},
    };
    for (size_t i = 0; i < sizeof(openings) / sizeof(openings[0]); i++) {
        struct opening opening = openings[i];
        ranks_run_hosts(two, open_to_a_bad_peer, &opening);
    }
}

/* Rank 1 lets strangers call rank 0 before it comes itself: some silent, some with a greeting's
 * bytes, but not the secret. */
static void be_called_by_strangers(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    if (rank == 1) {
        struct liar liar = {.origin = &comm->origin};
        struct ct_buf value = CT_BUF_INIT;
        struct ct_endpoint at;
        CHECK(get_key(&liar, "net/0", LONG_MS, &value, NULL) == 0);
        char *text = strndup(ct_buf_cstr(&value), CT_ADDR_TEXT_MAX);
        CHECK(text != NULL);
        text[strcspn(text, " ")] = '\0';
        CHECK(ct_endpoint_parse(text, 0, &at, NULL) == 0);
        free(text);
        ct_buf_fini(&value);
        for (size_t i = 0; i < 40; i++) {
            struct sockaddr_in to = loopback;
            to.sin_port = htons(at.port);
            int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0);
            char garbage[200];
            memset(garbage, 'G', sizeof(garbage));
            (void)send(fd, garbage, i * 5, MSG_NOSIGNAL);
        }
    }
    struct ctw_link *link = rank_open_link(comm, 1 - rank, 0);
    int got = -1;
    CHECK(ctw_link_send(link, &rank, sizeof(rank), 0, NULL) == 0);
    CHECK(ctw_link_recv(link, &got, sizeof(got), 0, NULL) == 0 && got == 1 - rank);
    ctw_link_free(link);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void strangers_do_no_harm(void **state)
{
    (void)state;
    ranks_run_hosts(two, be_called_by_strangers, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(peers_that_die_or_lie_are_found_out, board),
        RANKS_TEST_SHARING(bad_peers_have_no_link, board),
        RANKS_TEST_SHARING(strangers_do_no_harm, board),
    };
    return cmocka_run_group_tests_name("link_net_peers", tests, NULL, NULL);
}
