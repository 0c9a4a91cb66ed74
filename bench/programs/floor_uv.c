/* SPDX-License-Identifier: Apache-2.0
 *
 * The least that a libuv server can do: it reads and answers bytes that it was given, and knows no
 * keys. What a store loses against it is the price of being a store.
 *
 *     bench-floor-uv fixed REQUEST_BYTES REPLY_HEX    one reply per so many bytes
 *     bench-floor-uv torch                            by opcode, enough for PyTorch's client
 *
 * Prints its port. Ends with its parent, or after ten minutes.
 */
#include "common/num.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

#define MAX_SECONDS 600
#define READ_BYTES 65536
#define BACKLOG 65535

struct server {
    uv_tcp_t listener;
    int request_len; /* 0 = torch */
    size_t reply_len;
    char reply[READ_BYTES * 2]; /* as many replies as one read can ask for */
    char read_buf[READ_BYTES];
};

struct conn {
    uv_tcp_t tcp;
    size_t have; /* bytes of an incomplete request */
};

static void fail(const char *what, int rc)
{
    (void)fprintf(stderr, "bench-floor-uv: %s: %s\n", what, rc != 0 ? uv_strerror(rc) : "wrong");
    exit(1);
}

static void on_close(uv_handle_t *handle)
{
    free(handle);
}

static void answer(uv_stream_t *stream, char *bytes, size_t len)
{
    uv_buf_t buf = uv_buf_init(bytes, (unsigned)len);
    int rc = len > 0 ? uv_try_write(stream, &buf, 1) : 0;
    if (rc >= 0 && rc != (int)len) { /* an error will show up at the next read */
        fail("cannot write at once", 0);
    }
}

static void answer_fixed(struct server *server, struct conn *conn, size_t len)
{
    size_t have = conn->have + len, request = (size_t)server->request_len;
    conn->have = have % request;
    answer((uv_stream_t *)&conn->tcp, server->reply, have / request * server->reply_len);
}

/* Bytes of the 64-bit length at `at` and of what follows it. */
static size_t skip_text(const char *at)
{
    uint64_t len;
    memcpy(&len, at, sizeof(len));
    return sizeof(len) + (size_t)len;
}

/* PyTorch's client sends whole requests, and waits for the answer of each that has one, so a read
 * holds a few and no part of one. It is trusted: this is no server for strangers. */
static void answer_torch(struct conn *conn, const char *bytes, size_t len)
{
    enum { VALIDATE = 0, SET = 1, GET = 3, ADD = 4, WAIT = 6, PING = 13 };
    static const char value[24] = {16}; /* of 16 bytes, with its length */
    char out[64];
    size_t out_len = 0, reply = 0;
    for (size_t at = 0; at < len && out_len + sizeof(value) <= sizeof(out); out_len += reply) {
        const char *p = bytes + at++;
        const char *from = value + 8;
        reply = 0;
        if (*p == VALIDATE) {
            at += 4;
        } else if (*p == PING) {
            at += 4, from = p + 1, reply = 4;
        } else if (*p == SET) {
            at += skip_text(bytes + at);
            at += skip_text(bytes + at);
        } else if (*p == ADD) {
            at += skip_text(bytes + at) + 8, reply = 8;
        } else if (*p == WAIT) { /* for one key */
            at += 8;
            at += skip_text(bytes + at), reply = 1;
        } else if (*p == GET) {
            at += skip_text(bytes + at), from = value, reply = sizeof(value);
        } else {
            fail("unknown request", 0);
        }
        memcpy(out + out_len, from, reply);
    }
    answer((uv_stream_t *)&conn->tcp, out, out_len);
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct server *server = handle->loop->data;
    *buf = uv_buf_init(server->read_buf, READ_BYTES);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct server *server = stream->loop->data;
    if (n < 0) {
        uv_close((uv_handle_t *)stream, on_close);
    } else if (n > 0 && server->request_len > 0) {
        answer_fixed(server, (struct conn *)stream, (size_t)n);
    } else if (n > 0) {
        answer_torch((struct conn *)stream, buf->base, (size_t)n);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct conn *conn = calloc(1, sizeof(*conn));
    int rc = status;
    if (conn == NULL || rc != 0 || (rc = uv_tcp_init(listener->loop, &conn->tcp)) != 0 ||
        (rc = uv_accept(listener, (uv_stream_t *)&conn->tcp)) != 0 ||
        (rc = uv_tcp_nodelay(&conn->tcp, 1)) != 0 ||
        (rc = uv_read_start((uv_stream_t *)&conn->tcp, on_alloc, on_read)) != 0) {
        fail("accept", rc);
    }
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void set_reply(struct server *server, const char *text)
{
    size_t len = strlen(text) / 2;
    for (size_t i = 0; i < len; i++) {
        int high = hex(text[2 * i]), low = hex(text[2 * i + 1]);
        if (high < 0 || low < 0) {
            fail("reply in hex", 0);
        }
        server->reply[i] = (char)(high * 16 + low);
    }
    if (len == 0 || (READ_BYTES / (size_t)server->request_len + 1) * len > sizeof(server->reply)) {
        fail("reply length", 0);
    }
    server->reply_len = len;
    for (size_t i = len; i < sizeof(server->reply); i++) {
        server->reply[i] = server->reply[i - len];
    }
}

int main(int argc, char **argv)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)alarm(MAX_SECONDS);
    (void)signal(SIGPIPE, SIG_IGN);
    struct server *server = calloc(1, sizeof(*server));
    struct rlimit files;
    if (server == NULL || getrlimit(RLIMIT_NOFILE, &files) != 0) {
        fail("start", 0);
    }
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    if (argc == 4 && strcmp(argv[1], "fixed") == 0) {
        if (ct_parse_int(argv[2], 1, READ_BYTES, &server->request_len) != 0) {
            fail("REQUEST_BYTES", 0);
        }
        set_reply(server, argv[3]);
    } else if (argc != 2 || strcmp(argv[1], "torch") != 0) {
        fail("usage: bench-floor-uv fixed REQUEST_BYTES REPLY_HEX | torch", 0);
    }

    uv_loop_t loop;
    struct sockaddr_in addr;
    int len = sizeof(addr), rc;
    if ((rc = uv_loop_init(&loop)) != 0 || (rc = uv_ip4_addr("127.0.0.1", 0, &addr)) != 0 ||
        (rc = uv_tcp_init(&loop, &server->listener)) != 0 ||
        (rc = uv_tcp_bind(&server->listener, (struct sockaddr *)&addr, 0)) != 0 ||
        (rc = uv_listen((uv_stream_t *)&server->listener, BACKLOG, on_connection)) != 0 ||
        (rc = uv_tcp_getsockname(&server->listener, (struct sockaddr *)&addr, &len)) != 0) {
        fail("listen", rc);
    }
    loop.data = server;
    (void)printf("%d\n", ntohs(addr.sin_port));
    (void)fflush(stdout);
    return uv_run(&loop, UV_RUN_DEFAULT);
}
