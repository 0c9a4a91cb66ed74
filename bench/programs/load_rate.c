/* SPDX-License-Identifier: Apache-2.0
 *
 * Closed loop: each connection keeps `depth` requests on their way, and sends as many new ones as
 * it got answers, in one write. Every byte of the answers is compared.
 */
#include "bench/programs/load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define EVENTS 1024
#define READ_MAX ((size_t)65536)

struct rate {
    struct load_conns conns;
    unsigned char *requests; /* `depth` of them back to back */
    unsigned char *replies;  /* endless repetition, READ_MAX + one reply long */
    size_t request_len, reply_len;
    uint64_t answered;
};

/* `bytes` repeated until `total` bytes are full. */
static unsigned char *repeat(const struct ct_buf *bytes, size_t total)
{
    unsigned char *out = malloc(total);
    if (out == NULL) {
        load_fail("out of memory");
    }
    for (size_t i = 0; i < total; i++) {
        out[i] = ct_buf_bytes(bytes)[i % bytes->len];
    }
    return out;
}

/* CPU nanoseconds of the server's main thread so far, 0 when they cannot be told. */
static uint64_t server_cpu_ns(long pid)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/schedstat", pid);
    FILE *file = pid != 0 ? fopen(path, "re") : NULL;
    uint64_t ns = 0;
    if (file != NULL) {
        if (fscanf(file, "%" SCNu64, &ns) != 1) {
            ns = 0;
        }
        (void)fclose(file);
    }
    return ns;
}

static void on_readable(struct rate *rate, struct load_conn *conn)
{
    static unsigned char got[READ_MAX];
    ssize_t n = recv(conn->fd, got, sizeof(got), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
        return;
    }
    if (n <= 0) {
        load_fail("lost a connection: %s", n == 0 ? "closed by the server" : strerror(errno));
    }
    if (memcmp(got, rate->replies + conn->got, (size_t)n) != 0) {
        load_fail("the server answered something else");
    }
    size_t have = conn->got + (size_t)n;
    size_t answers = have / rate->reply_len;
    conn->got = (unsigned)(have % rate->reply_len);
    rate->answered += answers;
    if (answers > 0) {
        load_send(conn->fd, rate->requests, answers * rate->request_len);
    }
}

/* Returns the time when it stopped. */
static double serve_until(struct rate *rate, double end)
{
    struct epoll_event events[EVENTS];
    double now;
    do {
        int n = epoll_wait(rate->conns.epoll, events, EVENTS, 30000);
        if (n == 0 || (n < 0 && errno != EINTR)) {
            load_fail("no answers any more");
        }
        for (int i = 0; i < n; i++) {
            on_readable(rate, &rate->conns.list[events[i].data.u64]);
        }
        now = load_now();
    } while (now < end);
    return now;
}

void load_run_rate(const struct load_options *options)
{
    struct rate rate = {0};
    struct load_exchange op, preset;
    load_exchange_op(options, &op);
    load_exchange_preset(options, &preset);
    rate.request_len = op.request.len;
    rate.reply_len = op.reply.len;
    rate.requests = repeat(&op.request, options->depth * op.request.len);
    rate.replies = repeat(&op.reply, READ_MAX + op.reply.len);

    (void)load_conns_open(&rate.conns, options);
    load_conns_greet(&rate.conns, options);
    if (preset.request.len > 0) {
        load_send(rate.conns.list[0].fd, ct_buf_bytes(&preset.request), preset.request.len);
        load_expect(rate.conns.list[0].fd, &preset.reply);
    }
    for (size_t i = 0; i < rate.conns.count; i++) {
        load_send(rate.conns.list[i].fd, rate.requests, options->depth * rate.request_len);
    }
    double begin = serve_until(&rate, load_now() + options->seconds / 5);
    uint64_t before = rate.answered, cpu = server_cpu_ns(options->server_pid);
    double end = serve_until(&rate, begin + options->seconds);
    cpu = server_cpu_ns(options->server_pid) - cpu;
    double answered = (double)(rate.answered - before);
    (void)printf("{\"per_second\": %.1f, \"cpu_us\": %.4f}\n", answered / (end - begin),
                 (double)cpu / 1e3 / answered);

    load_conns_close(&rate.conns, options);
    load_exchange_fini(&op);
    load_exchange_fini(&preset);
    free(rate.requests);
    free(rate.replies);
}

void load_run_connect(const struct load_options *options)
{
    struct load_conns conns = {0};
    double seconds = load_conns_open(&conns, options);
    (void)printf("{\"seconds\": %.6f}\n", seconds);
    load_conns_close(&conns, options);
}
