/* SPDX-License-Identifier: Apache-2.0
 *
 * A load generator for stores: many connections from one epoll loop, speaking PyTorch's TCPStore
 * protocol, Redis' protocol, or to a bare echo server that answers the same bytes. Only loopback.
 *
 * It is a measuring tool: anything unexpected (a wrong byte, a closed connection, silence) ends it
 * with a message, since a figure got another way would be worthless.
 */
#ifndef CT_BENCH_PROGRAMS_LOAD_H
#define CT_BENCH_PROGRAMS_LOAD_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Connections from one source address: beyond half the port range the kernel's search for a free
 * port becomes the thing that is measured. */
#define LOAD_PER_ADDRESS 4000

/* Every run ends by itself, whatever the server does. */
#define LOAD_MAX_SECONDS 120

enum load_protocol {
    LOAD_TCPSTORE,
    LOAD_REDIS,
    LOAD_ECHO, /* TCPStore's bytes for a server that knows only their number: no greeting */
};

enum load_op {
    LOAD_GET, /* of 16 bytes */
    LOAD_SET, /* of 16 bytes; TCPStore answers no SET, so a PING behind it fetches an answer */
};

struct load_options {
    const char *mode;
    enum load_protocol protocol;
    enum load_op op;
    uint16_t port;
    size_t connections;
    size_t depth;    /* requests on their way per connection */
    double seconds;  /* of measuring, after a fifth of that for warming up */
    long server_pid; /* whose CPU time is counted; 0 = nobody's */
    bool native;     /* barrier by BARRIER, not by ADD and WAIT */
};

/* ---- load_codec.c: bytes -------------------------------------------------------------------- */

struct load_exchange {
    struct ct_buf request;
    struct ct_buf reply; /* exactly these bytes come back */
};

/* One measured request. */
void load_exchange_op(const struct load_options *options, struct load_exchange *out);
/* What a new connection says first, and what shows that it is served. */
void load_exchange_greeting(const struct load_options *options, struct load_exchange *out);
/* Makes the key that LOAD_GET reads. Nothing for an echo server. */
void load_exchange_preset(const struct load_options *options, struct load_exchange *out);
/* TCPStore only. */
void load_put_add(struct ct_buf *out, const char *key, int64_t delta);
void load_put_wait(struct ct_buf *out, const char *key);
void load_put_set(struct ct_buf *out, const char *key);
void load_put_ping(struct ct_buf *out);
void load_put_barrier(struct ct_buf *out, const char *key, int64_t world);
void load_exchange_fini(struct load_exchange *ex);

/* ---- load_conns.c: sockets ------------------------------------------------------------------ */

struct load_conn {
    int fd;
    unsigned got; /* bytes of the next reply that are there */
};

struct load_conns {
    struct load_conn *list;
    size_t count;
    int epoll; /* every connection, by its index */
};

/* Connects all, at most some hundred ahead of the server's answers, so that its backlog never
 * overflows. Returns the seconds from the first connect() to the server's answer on the last. */
double load_conns_open(struct load_conns *conns, const struct load_options *options);

/* Greets on those that load_conns_open() did not need to. */
void load_conns_greet(struct load_conns *conns, const struct load_options *options);

/* Resets all connections, and waits until the server has seen it. */
void load_conns_close(struct load_conns *conns, const struct load_options *options);

/* One more connection, greeted, non-blocking. */
int load_connect_one(const struct load_options *options);

void load_send(int fd, const void *bytes, size_t len);
/* Waits for exactly these bytes. */
void load_expect(int fd, const struct ct_buf *reply);
void load_receive(int fd, void *out, size_t len);

/* ---- load_rate.c, load_wave.c: what is measured; each prints one line of JSON ---------------- */

void load_run_rate(const struct load_options *options);
void load_run_connect(const struct load_options *options);
void load_run_barrier(const struct load_options *options);
void load_run_wake(const struct load_options *options);
void load_run_idle(const struct load_options *options);

/* ---- load.c --------------------------------------------------------------------------------- */

/* Monotonic seconds. */
double load_now(void);
void load_fail(const char *fmt, ...) __attribute__((noreturn, format(printf, 1, 2)));

#endif
