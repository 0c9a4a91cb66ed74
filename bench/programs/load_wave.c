/* SPDX-License-Identifier: Apache-2.0
 *
 * What many clients do at the same moment: meet at a barrier, wait for one key, or nothing at all.
 */
#include "bench/programs/load.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVENTS 1024

/* Calls `got` for each connection once `len` bytes of it were read, until `count` calls were made.
 */
static void collect(struct load_conns *conns, size_t len, size_t count,
                    void (*got)(struct load_conn *conn, const unsigned char *bytes, void *data),
                    void *data)
{
    struct epoll_event events[EVENTS];
    for (size_t done = 0; done < count;) {
        int n = epoll_wait(conns->epoll, events, EVENTS, 30000);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            load_fail("%zu of %zu answers are missing", count - done, count);
        }
        for (int i = 0; i < n; i++) {
            struct load_conn *conn = &conns->list[events[i].data.u64];
            unsigned char bytes[16];
            load_receive(conn->fd, bytes, len);
            done++;
            if (got != NULL) {
                got(conn, bytes, data);
            }
        }
    }
}

/* ---- barrier -------------------------------------------------------------------------------- */

struct meeting {
    const struct load_options *options;
    struct ct_buf wait, go;
    size_t added;
};

static void on_added(struct load_conn *conn, const unsigned char *bytes, void *data)
{
    struct meeting *meeting = data;
    int64_t sum;
    memcpy(&sum, bytes, sizeof(sum));
    if (sum == (int64_t)meeting->options->connections) {
        load_send(conn->fd, ct_buf_bytes(&meeting->go), meeting->go.len);
    }
    load_send(conn->fd, ct_buf_bytes(&meeting->wait), meeting->wait.len);
}

static void send_all(struct load_conns *conns, const struct ct_buf *bytes)
{
    for (size_t i = 0; i < conns->count; i++) {
        load_send(conns->list[i].fd, ct_buf_bytes(bytes), bytes->len);
    }
}

void load_run_barrier(const struct load_options *options)
{
    struct load_conns conns = {0};
    struct meeting meeting = {.options = options};
    char counter[64], gate[64];
    /* New names each run, since a server may be measured many times. */
    (void)snprintf(counter, sizeof(counter), "/bench/count/%ld", (long)getpid());
    (void)snprintf(gate, sizeof(gate), "/bench/gate/%ld", (long)getpid());
    struct ct_buf arrive = CT_BUF_INIT;
    if (options->native) {
        load_put_barrier(&arrive, counter, (int64_t)options->connections);
    } else {
        load_put_add(&arrive, counter, 1);
        load_put_wait(&meeting.wait, gate);
        load_put_set(&meeting.go, gate);
    }
    double begin = load_now();
    (void)load_conns_open(&conns, options);
    load_conns_greet(&conns, options);
    double ready = load_now();
    send_all(&conns, &arrive);
    if (!options->native) {
        collect(&conns, sizeof(int64_t), conns.count, on_added, &meeting);
    }
    collect(&conns, 1, conns.count, NULL, NULL);
    double end = load_now();
    (void)printf("{\"seconds\": %.6f, \"with_connect\": %.6f}\n", end - ready, end - begin);
    load_conns_close(&conns, options);
    ct_buf_fini(&arrive);
    ct_buf_fini(&meeting.wait);
    ct_buf_fini(&meeting.go);
}

/* ---- wake storm ----------------------------------------------------------------------------- */

/* An unrelated client, in a thread of its own, so that the other's reading does not delay it. */
struct prober {
    int fd;
    struct ct_buf ping;
    atomic_bool stop;
    atomic_bool storm;   /* count from now on */
    double worst, total; /* seconds an answer took during the storm */
    unsigned long asked;
};

static void *probe(void *data)
{
    struct prober *prober = data;
    /* Where it may, it goes before all others, so that it waits for the server and for no core. */
    const struct sched_param first = {.sched_priority = 2};
    (void)pthread_setschedparam(pthread_self(), SCHED_RR, &first);
    while (!atomic_load(&prober->stop)) {
        bool counted = atomic_load(&prober->storm);
        unsigned char reply[4];
        double begin = load_now();
        load_send(prober->fd, ct_buf_bytes(&prober->ping), prober->ping.len);
        load_receive(prober->fd, reply, sizeof(reply));
        double took = load_now() - begin;
        if (counted) {
            prober->worst = took > prober->worst ? took : prober->worst;
            prober->total += took;
            prober->asked++;
        }
        /* It wants to know how long it waits, not to take the server's time. */
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    return NULL;
}

void load_run_wake(const struct load_options *options)
{
    struct load_conns conns = {0};
    struct prober prober = {0};
    struct ct_buf wait = CT_BUF_INIT, go = CT_BUF_INIT;
    char gate[64];
    (void)snprintf(gate, sizeof(gate), "/bench/wake/%ld", (long)getpid());
    load_put_wait(&wait, gate);
    load_put_set(&go, gate);
    load_put_ping(&prober.ping);

    (void)load_conns_open(&conns, options);
    load_conns_greet(&conns, options);
    send_all(&conns, &wait);
    /* The server takes ready sockets in turn, so once it answers this all have been read. */
    (void)close(load_connect_one(options));
    int trigger = load_connect_one(options);
    prober.fd = load_connect_one(options);
    pthread_t thread;
    if (pthread_create(&thread, NULL, probe, &prober) != 0) {
        load_fail("cannot start a thread");
    }
    (void)nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);

    atomic_store(&prober.storm, true);
    double begin = load_now();
    load_send(trigger, ct_buf_bytes(&go), go.len);
    collect(&conns, 1, conns.count, NULL, NULL);
    double end = load_now();
    atomic_store(&prober.storm, false);
    atomic_store(&prober.stop, true);
    (void)pthread_join(thread, NULL);
    (void)printf("{\"seconds\": %.6f, \"stall_ms\": %.4f, \"probes\": %lu}\n", end - begin,
                 prober.worst * 1e3, prober.asked);
    (void)close(trigger);
    (void)close(prober.fd);
    load_conns_close(&conns, options);
    ct_buf_fini(&wait);
    ct_buf_fini(&go);
    ct_buf_fini(&prober.ping);
}

/* ---- idle ----------------------------------------------------------------------------------- */

/* Holds the connections, having greeted and asked once, until standard input ends. */
void load_run_idle(const struct load_options *options)
{
    struct load_conns conns = {0};
    struct load_exchange op, preset;
    load_exchange_op(options, &op);
    load_exchange_preset(options, &preset);
    (void)load_conns_open(&conns, options);
    load_conns_greet(&conns, options);
    load_send(conns.list[0].fd, ct_buf_bytes(&preset.request), preset.request.len);
    load_expect(conns.list[0].fd, &preset.reply);
    send_all(&conns, &op.request);
    for (size_t i = 0; i < conns.count; i++) {
        load_expect(conns.list[i].fd, &op.reply);
    }
    (void)printf("{\"connections\": %zu}\n", conns.count);
    (void)fflush(stdout);
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
    load_conns_close(&conns, options);
    load_exchange_fini(&op);
    load_exchange_fini(&preset);
}
