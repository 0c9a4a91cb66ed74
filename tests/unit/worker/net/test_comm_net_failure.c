/* SPDX-License-Identifier: Apache-2.0
 *
 * How collectives over several hosts fail: a host's leader or another rank of it dies, stands
 * still, aborts or leaves, ranks disagree, strangers call. None of it may hang anybody, and every
 * message names the rank or the host.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/rank_calls.h"
#include "tests/lib/ranks.h"

#include "common/addr.h"
#include "common/clock.h"
#include "tests/lib/fault.h"
#include "worker/net/schedule.h"

#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* A deadline that is waited for, but that ranks on a busy machine do not miss of themselves: they
 * are to fail because of the one that is stopped, not before. Two seconds were not enough on a
 * virtual machine whose host took one of its processors away for so long. */
#define PATIENT_MS 3000

/* The same where a rank must also come this far before another one's deadline. */
#define VERY_PATIENT_MS 15000

struct board {
    _Atomic int turns; /* of the rank that something happens to */
    _Atomic int count; /* of whatever a test counts */
};

static struct board *board;

/* Who something happens to, and what the others must hear. */
struct victim {
    int rank;
    int64_t timeout_ms; /* of the others */
    int code;
    const char *heard; /* in the messages of all others */
};

static const int two_by_two[] = {2, 2, 0}, four[] = {1, 1, 1, 1, 0}, three[] = {2, 1, 2, 0};

/* ---- death and silence ---------------------------------------------------------------------- */

static void reduce_until_it_fails(int rank, void *data)
{
    const struct victim *victim = data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm =
        rank_open_comm(job, rank == victim->rank ? LONG_MS : victim->timeout_ms);
    const size_t count = 300000;
    void *own, *shared;
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_OWN, count * sizeof(float), &own, NULL) == 0);
    CHECK(ctw_comm_alloc(comm, CTW_MEMORY_SHARED, count * sizeof(float), &shared, NULL) == 0);
    struct ct_err err = {0};
    int rc;
    do {
        rc = ctw_comm_all_reduce(comm, own, shared, count, &err);
        if (rank == victim->rank) {
            atomic_fetch_add(&board->turns, 1);
        }
    } while (rc == 0);
    CHECK(rank != victim->rank);
    if (rc != victim->code && rc != CT_EPEER) {
        ranks_check_failed(__FILE__, __LINE__, err.text);
    }
    rank_check_text(&err, victim->heard);
    rank_check_dead(comm, rc);
    ctw_comm_free(comm);
    ctw_job_free(job);
    atomic_fetch_add(&board->count, 1);
}

static void kill_while_reducing(const int *hosts, struct victim *victim)
{
    ranks_start_hosts(hosts, reduce_until_it_fails, victim);
    ranks_await(&board->turns, 20);
    pid_t pid = ranks.pids[victim->rank];
    assert_int_equal(kill(pid, SIGKILL), 0);
    ranks_join_killed(pid, SIGKILL);
}

static void a_killed_leader_ends_the_collective_everywhere(void **state)
{
    (void)state;
    struct victim second = {2, LONG_MS, CT_EPEER, "rank 2 "};
    kill_while_reducing(two_by_two, &second);
    struct victim first = {0, LONG_MS, CT_EPEER, "rank 0"};
    kill_while_reducing(two_by_two, &first);
    struct victim third = {2, LONG_MS, CT_EPEER, "host 2 (127.0.0.1, rank 2)"};
    kill_while_reducing(four, &third);
}

static void a_killed_rank_ends_the_collective_everywhere(void **state)
{
    (void)state;
    struct victim last = {3, LONG_MS, CT_EPEER, "rank 3 (pid "};
    kill_while_reducing(two_by_two, &last);
    struct victim one = {1, LONG_MS, CT_EPEER, "rank 1 (pid "};
    kill_while_reducing(three, &one);
}

/* A stopped process keeps its connections: only the deadline tells. */
static void stop_while_reducing(const int *hosts, struct victim *victim, int others)
{
    ranks_start_hosts(hosts, reduce_until_it_fails, victim);
    ranks_await(&board->turns, 20);
    pid_t pid = ranks.pids[victim->rank];
    int64_t began = ct_clock_now(NULL);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    ranks_await(&board->count, others);
    assert_true(ct_clock_now(NULL) - began < 10 * CT_NS_PER_S);
    assert_int_equal(kill(pid, SIGKILL), 0);
    ranks_join_killed(pid, SIGKILL);
}

static void a_stopped_leader_is_given_up(void **state)
{
    (void)state;
    struct victim leader = {2, PATIENT_MS, CT_ETIMEDOUT, "rank"};
    stop_while_reducing(two_by_two, &leader, 3);
    leader.heard = "host 2 (127.0.0.1, rank 2)";
    stop_while_reducing(four, &leader, 3);
}

static void a_stopped_rank_is_given_up(void **state)
{
    (void)state;
    struct victim rank = {3, PATIENT_MS, CT_ETIMEDOUT, "gave up after"};
    stop_while_reducing(two_by_two, &rank, 3);
}

/* Rank 1 is done with the broadcast that rank 2 does not come to: it waits in the next operation
 * for those that wait in this one. */
static void stand_behind(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, rank == 1 ? 2 * PATIENT_MS : 3 * PATIENT_MS);
    struct ct_err err = {0};
    int rc = 0;
    if (rank == 2) {
        ranks_await(&board->count, 3);
    } else {
        int x = 0;
        rc = ctw_comm_broadcast(comm, &x, sizeof(x), 1, &err);
        CHECK((rc == 0) == (rank == 1));
        if (rc == 0) {
            rc = ctw_comm_barrier(comm, &err);
        }
        CHECK(rank == 1 ? rc == CT_ETIMEDOUT : rc == CT_EPEER);
        rank_check_text(&err, "host 2 (127.0.0.1, rank 2)");
        atomic_fetch_add(&board->count, 1);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void who_stands_behind_is_named(void **state)
{
    (void)state;
    ranks_run_hosts(four, stand_behind, NULL);
}

/* ---- abort and leaving ---------------------------------------------------------------------- */

/* One rank aborts, the others are inside a collective with a deadline that nobody waits for. */
static void abort_on(int rank, void *data)
{
    int culprit = *(const int *)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    if (rank == culprit) {
        CHECK(ctw_comm_barrier(comm, NULL) == 0);
        ctw_comm_abort(comm);
    } else {
        struct ct_err err = {0};
        int rc = 0;
        while (rc == 0) {
            rc = ctw_comm_barrier(comm, &err);
        }
        CHECK(rc == CT_EPEER);
        char who[16];
        (void)snprintf(who, sizeof(who), "rank %d", culprit);
        rank_check_text(&err, who);
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void an_abort_reaches_all_hosts(void **state)
{
    (void)state;
    for (int culprit = 0; culprit < 5; culprit++) {
        ranks_run_hosts(three, abort_on, &culprit);
    }
}

static void leave_early(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    CHECK(ctw_comm_barrier(comm, NULL) == 0);
    if (rank >= 2) {
        struct ct_err err = {0};
        int rc = 0;
        while (rc == 0) {
            rc = rank == 2 ? ctw_comm_poll(comm, &err) : ctw_comm_barrier(comm, &err);
        }
        CHECK(rc == CT_EPEER);
        rank_check_text(&err, rank == 2 ? "host 0 (127.0.0.1, ranks 0 to 1) closed" : "host 0");
    }
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void who_leaves_early_is_named(void **state)
{
    (void)state;
    ranks_run_hosts(two_by_two, leave_early, NULL);
}

/* ---- other calls ---------------------------------------------------------------------------- */

static void disagree(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    float x[2] = {1, 1};
    static float large[100000];
    for (int turn = 0; turn < 4; turn++) {
        struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
        struct ct_err err = {0};
        bool odd = rank >= 2;
        void *block;
        int rc = 0;
        if (turn == 0) {
            rc = odd ? ctw_comm_all_reduce(comm, x, x, 1, &err) : ctw_comm_barrier(comm, &err);
        } else if (turn == 1) {
            rc = ctw_comm_all_reduce(comm, x, x, odd ? 2 : 1, &err);
        } else if (turn == 2) {
            /* These take other ways through the links. */
            rc = ctw_comm_all_reduce(comm, large, large, odd ? 100000 : 1, &err);
        } else {
            rc = ctw_comm_alloc(comm, odd ? CTW_MEMORY_OWN : CTW_MEMORY_SHARED, 10, &block, &err);
        }
        CHECK(rc == CT_EPROTO || rc == CT_EPEER);
        rank_check_text(&err, turn == 0 ? "called" : "asks for");
        ctw_comm_free(comm);
    }
    ctw_job_free(job);
}

static void hosts_that_disagree_are_told(void **state)
{
    (void)state;
    ranks_run_hosts(two_by_two, disagree, NULL);
}

/* ---- machines that vanish ------------------------------------------------------------------- */

static int tcp_option(int fd, int name)
{
    int value = -1;
    socklen_t len = sizeof(value);
    return getsockopt(fd, IPPROTO_TCP, name, &value, &len) == 0 ? value : -1;
}

/* After how many milliseconds of silence keepalive gives a connection up. */
static int keepalive_ms(int fd)
{
    return 1000 * (tcp_option(fd, TCP_KEEPIDLE) +
                   tcp_option(fd, TCP_KEEPINTVL) * tcp_option(fd, TCP_KEEPCNT));
}

/* Nothing on this machine can take the place of one that loses its power, so this looks at what the
 * kernel has been told. Keepalive does not probe while sent bytes are not acknowledged. */
static void look_at_connections(int rank, void *data)
{
    (void)rank, (void)data;
    int before[256], others = 0, controls = 0, links = 0;
    struct ctw_job *job = rank_open_job();
    for (int fd = 0; fd < 256; fd++) {
        before[fd] = tcp_option(fd, TCP_USER_TIMEOUT);
    }
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    for (int fd = 0; fd < 256; fd++) {
        int ms = tcp_option(fd, TCP_USER_TIMEOUT);
        if (before[fd] < 0 && ms >= 0) {
            /* A link may be silent for longer: until the deadline of a wait. */
            bool control = ms == keepalive_ms(fd), link = ms > keepalive_ms(fd);
            controls += control;
            links += link;
            others += !control && !link;
        }
    }
    CHECK(controls == 1 && links > 0 && others == 0);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_machine_that_vanishes_is_noticed_whether_or_not_bytes_are_under_way(void **state)
{
    (void)state;
    static const int two[] = {1, 1, 0};
    ranks_run_hosts(two, look_at_connections, NULL);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void come_alone(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    /* Rank 1 hears of it from rank 0. */
    const struct ctw_comm_options options = {.timeout_ms = rank == 0 ? VERY_PATIENT_MS : LONG_MS};
    /* Who is late because the machine is busy must not be taken for the one who does not come. */
    atomic_fetch_add(&board->count, 1);
    ranks_await(&board->count, 2);
    struct ctw_comm *comm;
    struct ct_err err = {0};
    int rc = ctw_comm_open(job, &options, &comm, &err);
    CHECK(rc == (rank == 0 ? CT_ETIMEDOUT : CT_EPEER));
    rank_check_text(&err, "host 1 has not come");
    ctw_job_free(job);
}

static void a_host_that_does_not_come_is_named(void **state)
{
    (void)state;
    ranks.hosts = two_by_two;
    ranks.world_size = 4;
    atomic_store(&board->count, 0);
    ranks_start_one(0, come_alone, NULL);
    ranks_start_one(1, come_alone, NULL);
    ranks_join();
}

static int connect_leader(const char *where)
{
    struct ct_endpoint at;
    CHECK(ct_endpoint_parse(where, 0, &at, NULL) == 0);
    struct sockaddr_storage to;
    socklen_t to_len;
    CHECK(ct_addr_resolve(at.host, at.port, &to, &to_len, NULL) == 0);
    int fd = socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&to, to_len) == 0);
    return fd;
}

static void call_leader(const char *where, size_t len, bool full)
{
    int fd = connect_leader(where);
    unsigned char garbage[4096];
    memset(garbage, 'G', sizeof(garbage));
    (void)send(fd, garbage, len, MSG_NOSIGNAL);
    if (full) {
        /* It hangs up, without an answer. */
        CHECK(recv(fd, garbage, sizeof(garbage), 0) <= 0);
        (void)close(fd);
    } /* else it stays connected and silent */
}

/* Rank 1 lets strangers call rank 0 before it comes itself. */
static void be_called_by_strangers(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    if (rank == 1) {
        void *value;
        size_t len;
        CHECK(ctw_job_get(job, "comm/0/net/0", &value, &len, NULL) == 0);
        *strchr(value, ' ') = '\0';
        for (int i = 0; i < 50; i++) {
            call_leader(value, i % 2 == 0 ? 4 : 0, false);
        }
        call_leader(value, 4096, false);
        free(value);
    }
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    float x = (float)rank + 1;
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == 0);
    CHECK(x == 3);
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void strangers_do_no_harm(void **state)
{
    (void)state;
    static const int two[] = {1, 1, 0};
    ranks_run_hosts(two, be_called_by_strangers, NULL);
}

/* How many connections wait for being taken by who listens on that port. */
static unsigned backlog(uint16_t port)
{
    FILE *f = fopen("/proc/net/tcp", "re");
    CHECK(f != NULL);
    char line[512];
    unsigned found = 0;
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned at, state, waiting;
        if (sscanf(line, "%*s %*x:%x %*x:%*x %x %*x:%x", &at, &state, &waiting) == 3 &&
            at == port && state == TCP_LISTEN) {
            found = waiting;
        }
    }
    (void)fclose(f);
    return found;
}

enum { SILENT = 100, CALLS_OF_RANK_1 = 3 }; /* to the next host, the partner, and the control */

/* Floods rank 0, which stands still, before and after rank 1 has called it; then rank 0 goes on. */
static pid_t flood(const char *where, pid_t stopped)
{
    for (int i = 0; i < SILENT; i++) {
        call_leader(where, 0, false);
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        uint16_t port = (uint16_t)strtoul(strrchr(where, ':') + 1, NULL, 10);
        int64_t deadline = ct_deadline_in(NULL, 20000);
        while (backlog(port) < SILENT + CALLS_OF_RANK_1) {
            CHECK(ct_clock_now(NULL) < deadline);
            (void)poll(NULL, 0, 1);
        }
        for (int i = 0; i < SILENT; i++) {
            call_leader(where, 0, false);
        }
        CHECK(kill(stopped, SIGCONT) == 0);
        ranks_await(&board->count, 2);
        _exit(0);
    }
    return pid;
}

static void be_flooded(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    pid_t flooder = 0;
    if (rank == 0) {
        atomic_store(&board->turns, (int)getpid());
    } else {
        void *value;
        size_t len;
        /* Rank 0 has published this and awaits the same of rank 1. */
        CHECK(ctw_job_get(job, "comm/0/net/0", &value, &len, NULL) == 0);
        *strchr(value, ' ') = '\0';
        CHECK(kill(atomic_load(&board->turns), SIGSTOP) == 0);
        flooder = flood(value, atomic_load(&board->turns));
        free(value);
    }
    struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
    float x = (float)rank + 1;
    CHECK(ctw_comm_all_reduce(comm, &x, &x, 1, NULL) == 0);
    CHECK(x == 3);
    atomic_fetch_add(&board->count, 1);
    int status = 0;
    CHECK(flooder == 0 || (waitpid(flooder, &status, 0) == flooder && status == 0));
    ctw_comm_free(comm);
    ctw_job_free(job);
}

static void a_flood_of_silent_strangers_does_no_harm(void **state)
{
    (void)state;
    static const int two[] = {1, 1, 0};
    ranks_run_hosts(two, be_flooded, NULL);
}

/* As worker/net/net_open.c sends it. */
struct greeting {
    char proof[32];
    uint32_t magic, version;
    int32_t from, kind;
};

static int next_caller(int listener)
{
    struct pollfd waiting = {.fd = listener, .events = POLLIN};
    CHECK(poll(&waiting, 1, 20000) == 1);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

/* Answers rank 1's calls, and calls it with a greeting like its own to the next host. */
static void answer_rank_1(int listener, const char *secret, const char *where)
{
    struct greeting to_next = {0};
    for (int i = 0; i < CALLS_OF_RANK_1; i++) {
        struct greeting hello;
        int fd = next_caller(listener);
        CHECK(recv(fd, &hello, sizeof(hello), MSG_WAITALL) == (ssize_t)sizeof(hello));
        CHECK(send(fd, secret + sizeof(hello.proof), sizeof(hello.proof), MSG_NOSIGNAL) > 0);
        if (hello.kind == SCHEDULE_PREV) {
            to_next = hello;
        }
    }
    to_next.from = 0;
    int fd = connect_leader(where);
    CHECK(send(fd, &to_next, sizeof(to_next), MSG_NOSIGNAL) == (ssize_t)sizeof(to_next));
}

/* Rank 0 is none of ours: it drops rank 1's first calls, as a flooded host may. */
static void drop_first_calls(int rank, void *data)
{
    (void)data;
    struct ctw_job *job = rank_open_job();
    if (rank == 1) {
        struct ctw_comm *comm = rank_open_comm(job, LONG_MS);
        atomic_store(&board->count, 1);
        ctw_comm_free(comm);
    } else {
        static const char secret[] = "0123456789abcdef0123456789abcdef"
                                     "fedcba9876543210fedcba9876543210";
        struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(at);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK(listener >= 0 && bind(listener, (struct sockaddr *)&at, len) == 0);
        CHECK(listen(listener, 8) == 0);
        CHECK(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
        char text[64];
        void *value;
        size_t size;
        CHECK(ctw_job_get(job, "comm/0/net/1", &value, &size, NULL) == 0);
        (void)snprintf(text, sizeof(text), "127.0.0.1:%u 0 1 %s", (unsigned)ntohs(at.sin_port),
                       strrchr(value, ' ') + 1);
        *strchr(value, ' ') = '\0';
        CHECK(ctw_job_set(job, "comm/0/net/secret", secret, sizeof(secret) - 1, NULL) == 0);
        CHECK(ctw_job_set(job, "comm/0/net/0", text, strlen(text), NULL) == 0);
        for (int i = 0; i < CALLS_OF_RANK_1; i++) {
            (void)close(next_caller(listener));
        }
        answer_rank_1(listener, secret, value);
        free(value);
        ranks_await(&board->count, 1);
    }
    ctw_job_free(job);
}

static void a_host_that_was_dropped_calls_again(void **state)
{
    (void)state;
    static const int two[] = {1, 1, 0};
    ranks_run_hosts(two, drop_first_calls, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RANKS_TEST_SHARING(a_killed_leader_ends_the_collective_everywhere, board),
        RANKS_TEST_SHARING(a_killed_rank_ends_the_collective_everywhere, board),
        RANKS_TEST_SHARING(a_stopped_leader_is_given_up, board),
        RANKS_TEST_SHARING(a_stopped_rank_is_given_up, board),
        RANKS_TEST_SHARING(who_stands_behind_is_named, board),
        RANKS_TEST_SHARING(an_abort_reaches_all_hosts, board),
        RANKS_TEST_SHARING(who_leaves_early_is_named, board),
        RANKS_TEST_SHARING(hosts_that_disagree_are_told, board),
        RANKS_TEST_SHARING(a_machine_that_vanishes_is_noticed_whether_or_not_bytes_are_under_way,
                           board),
        RANKS_TEST_SHARING(a_host_that_does_not_come_is_named, board),
        RANKS_TEST_SHARING(strangers_do_no_harm, board),
        RANKS_TEST_SHARING(a_flood_of_silent_strangers_does_no_harm, board),
        RANKS_TEST_SHARING(a_host_that_was_dropped_calls_again, board),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
