/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that was handed over for HTTP, in two segments: whatever comes, the answer is HTTP
 * or none, and everything closes.
 */
#include "tests/fuzz/fuzz.h"

#include "rendezvous/http/http_reserve_uv.h"
#include "rendezvous/http/http_uv.h"
#include "rendezvous/http/status.h"

#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Turns of the loop: more than the handful in which all comes to rest. */
#define TURNS 6

static int give_status(void *data, struct ct_status_rows *rows, struct cJSON **out)
{
    const struct ct_status_facts facts = {.waiters = 1};
    (void)data;
    return ct_status_make(&facts, NULL, NULL, rows, out);
}

/* The first bytes that the other side gets; the rest is thrown away. */
struct heard {
    char bytes[7];
    size_t len;
};

static void turn(uv_loop_t *loop, int fd, struct heard *heard)
{
    char chunk[4096];
    for (int i = 0; i < TURNS; i++) {
        (void)uv_run(loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, chunk, sizeof(chunk), MSG_DONTWAIT);
        for (ssize_t k = 0; k < n && heard->len < sizeof(heard->bytes); k++) {
            heard->bytes[heard->len++] = chunk[k];
        }
    }
}

static void on_close(void *data)
{
    *(bool *)data = true;
}

/* In two segments; whatever is heard is HTTP. */
static void tell(uv_loop_t *loop, int fd, const uint8_t *data, size_t size)
{
    struct heard heard = {.len = 0};
    size_t cut = size / 2;
    (void)send(fd, data, cut, MSG_DONTWAIT | MSG_NOSIGNAL);
    turn(loop, fd, &heard);
    (void)send(fd, data + cut, size - cut, MSG_DONTWAIT | MSG_NOSIGNAL);
    turn(loop, fd, &heard);
    CT_ASSERT(memcmp(heard.bytes, "HTTP/1.", heard.len) == 0);
    (void)close(fd);
    (void)uv_run(loop, UV_RUN_NOWAIT);
}

static void ask_reserve(uv_loop_t *loop, const uint8_t *data, size_t size)
{
    struct ct_http_reserve *reserve = NULL;
    int fds[2];
    bool closed = false;
    CT_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    CT_ASSERT(ct_http_reserve_open(loop, &reserve, NULL) == 0);
    ct_http_reserve_add(reserve, fds[0], 501, "why");
    tell(loop, fds[1], data, size);
    ct_http_reserve_close(reserve, on_close, &closed);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    CT_ASSERT(closed);
}

static void ask_library(uv_loop_t *loop, const uint8_t *data, size_t size)
{
    const struct ct_http_source source = {.status = give_status};
    struct ct_http *http = NULL;
    int fds[2];
    bool closed = false;
    CT_ASSERT(ct_http_open(loop, &source, 60000, NULL, &http, NULL) == 0);
    if (http == NULL) { /* a build without HTTP */
        return;
    }
    CT_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0);
    CT_ASSERT(ct_http_add(http, fds[0], size % 2 == 0, size % 2 == 0, NULL) == 0);
    tell(loop, fds[1], data, size);
    ct_http_close(http, on_close, &closed);
    (void)uv_run(loop, UV_RUN_DEFAULT);
    CT_ASSERT(closed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uv_loop_t loop;
    if (size == 0 || !ct_http_begins(data[0])) {
        return 0;
    }
    CT_ASSERT(uv_loop_init(&loop) == 0);
    ask_library(&loop, data, size);
    ask_reserve(&loop, data, size);
    CT_ASSERT(uv_loop_close(&loop) == 0);
    return 0;
}
