/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the whole head of a request is there when its connection is added, and the answer is
 * sent in the same call. Then the peer closes.
 *
 * Other paths: a head that comes in pieces is collected, up to HEAD_MAX bytes, which hold the path.
 * What follows a head is read and thrown away until the peer closes. If the socket were closed with
 * unread bytes, the peer might lose the answer.
 *
 * Failure modes: a connection ends after PATIENCE_MS. If there are too many, the oldest one that
 * has not asked yet makes room for the newest. So slow peers cannot keep others from an answer.
 *
 * Who frees: a connection goes in the close callback of its handle, the reserve with the last one.
 */
#include "rendezvous/http/http_reserve_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/http/http_answer.h"
#include "rendezvous/wire/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX 2048
#define PATIENCE_MS 2000
#define WHY_MAX 256

struct asker {
    uv_poll_t poll;
    struct ct_http_reserve *reserve;
    struct ct_list at_reserve;
    int64_t deadline_ns;
    int fd;
    unsigned code;
    char why[WHY_MAX];
    char head[HEAD_MAX];
    size_t len;
    bool answered;
};

struct ct_http_reserve {
    uv_loop_t *loop;
    uv_timer_t timer;
    struct ct_list askers; /* the oldest first */
    size_t count;          /* number of `askers` */
    size_t handles;        /* not closed yet */
    void (*close_cb)(void *data);
    void *close_data;
};

/* ---- closing -------------------------------------------------------------------------------- */

static void finish_if_last(struct ct_http_reserve *reserve)
{
    if (--reserve->handles > 0) {
        return;
    }
    void (*cb)(void *data) = reserve->close_cb;
    void *data = reserve->close_data;
    ct_free(reserve);
    cb(data);
}

static void on_asker_closed(uv_handle_t *handle)
{
    struct asker *asker = CT_CONTAINER_OF(handle, struct asker, poll);
    struct ct_http_reserve *reserve = asker->reserve;
    ct_free(asker);
    finish_if_last(reserve);
}

static void end(struct asker *asker)
{
    ct_list_remove(&asker->at_reserve);
    asker->reserve->count--;
    /* The handle stops using the descriptor at once, so it can be closed. */
    uv_close((uv_handle_t *)&asker->poll, on_asker_closed);
    (void)close(asker->fd);
}

static struct asker *oldest(struct ct_http_reserve *reserve)
{
    return CT_CONTAINER_OF(reserve->askers.next, struct asker, at_reserve);
}

/* Returns the oldest connection whose request has not come yet, else the oldest of all. */
static struct asker *least_worth(struct ct_http_reserve *reserve)
{
    for (struct ct_list *at = reserve->askers.next; at != &reserve->askers; at = at->next) {
        struct asker *asker = CT_CONTAINER_OF(at, struct asker, at_reserve);
        if (!asker->answered) {
            return asker;
        }
    }
    return oldest(reserve);
}

static void on_timer_closed(uv_handle_t *handle)
{
    finish_if_last(CT_CONTAINER_OF(handle, struct ct_http_reserve, timer));
}

void ct_http_reserve_close(struct ct_http_reserve *reserve, void (*cb)(void *data), void *data)
{
    reserve->close_cb = cb;
    reserve->close_data = data;
    while (!ct_list_empty(&reserve->askers)) {
        end(oldest(reserve));
    }
    uv_close((uv_handle_t *)&reserve->timer, on_timer_closed);
}

/* ---- answering ------------------------------------------------------------------------------ */

static const char *phrase(unsigned code)
{
    switch (code) {
    case 200:
        return "OK";
    case 501:
        return "Not Implemented";
    default:
        return "Service Unavailable";
    }
}

/* Splits the request line. Both texts are cut if they are longer than any that we know. */
static void read_line(const struct asker *asker, char method[16], char path[64])
{
    size_t at = 0;
    for (size_t i = 0; at < asker->len && asker->head[at] != ' '; at++) {
        if (i < 15) {
            method[i++] = asker->head[at];
        }
    }
    at++;
    for (size_t i = 0; at < asker->len && strchr(" ?\r\n", asker->head[at]) == NULL; at++) {
        if (i < 63) {
            path[i++] = asker->head[at];
        }
    }
}

static void answer(struct asker *asker)
{
    char method[16] = "", path[64] = "", head[256];
    struct ct_http_answer page = {.code = 0};
    read_line(asker, method, path);
    if (strcmp(path, "/healthz") == 0 && ct_http_method_is_known(method)) {
        const struct ct_http_source nothing_else = {.status = NULL};
        ct_http_answer_make(&nothing_else, false, method, path, &page);
    } else {
        ct_http_answer_error(&page, asker->code, asker->why);
    }
    int len = snprintf(head, sizeof(head),
                       "HTTP/1.1 %u %s\r\nConnection: close\r\nContent-Type: %s\r\n"
                       "Cache-Control: no-store\r\nContent-Length: %zu\r\n\r\n",
                       page.code, phrase(page.code), page.type, page.body.len);
    /* Both fit into an empty socket. After a failure the peer has closed. */
    (void)send(asker->fd, head, (size_t)len, MSG_NOSIGNAL);
    if (strcmp(method, "HEAD") != 0 && page.body.len > 0) {
        (void)send(asker->fd, ct_buf_bytes(&page.body), page.body.len, MSG_NOSIGNAL);
    }
    (void)shutdown(asker->fd, SHUT_WR);
    ct_buf_fini(&page.body);
    asker->answered = true;
}

static bool head_is_there(const struct asker *asker)
{
    return asker->len == HEAD_MAX || memmem(asker->head, asker->len, "\r\n\r\n", 4) != NULL ||
           memmem(asker->head, asker->len, "\n\n", 2) != NULL;
}

/* Reads what has come, with one call. Returns false when the connection is over. */
static bool hear(struct asker *asker)
{
    char rest[HEAD_MAX];
    bool collecting = !asker->answered;
    ssize_t got = collecting ? recv(asker->fd, asker->head + asker->len, HEAD_MAX - asker->len, 0)
                             : recv(asker->fd, rest, sizeof(rest), 0);
    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    if (collecting) {
        asker->len += (size_t)got;
        if (head_is_there(asker)) {
            answer(asker);
        }
    }
    return true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct asker *asker = CT_CONTAINER_OF(poll, struct asker, poll);
    (void)events;
    if (status < 0 || !hear(asker)) {
        end(asker);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct ct_http_reserve *reserve = CT_CONTAINER_OF(timer, struct ct_http_reserve, timer);
    int64_t now_ns = ct_clock_now(NULL);
    while (!ct_list_empty(&reserve->askers) && oldest(reserve)->deadline_ns <= now_ns) {
        end(oldest(reserve));
    }
    if (!ct_list_empty(&reserve->askers)) {
        int left_ms = ct_deadline_left_ms(NULL, oldest(reserve)->deadline_ns);
        (void)uv_timer_start(timer, on_timer, left_ms > 0 ? (uint64_t)left_ms : 1, 0);
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

int ct_http_reserve_open(uv_loop_t *loop, struct ct_http_reserve **out, struct ct_err *err)
{
    struct ct_http_reserve *reserve = ct_calloc(1, sizeof(*reserve));
    if (reserve == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for HTTP");
    }
    reserve->loop = loop;
    ct_list_init(&reserve->askers);
    CT_ASSERT(uv_timer_init(loop, &reserve->timer) == 0); /* cannot fail */
    reserve->handles = 1;
    *out = reserve;
    return 0;
}

void ct_http_reserve_add(struct ct_http_reserve *reserve, int fd, unsigned code, const char *why)
{
    struct asker *asker = ct_calloc(1, sizeof(*asker));
    int flags = fcntl(fd, F_GETFL);
    if (asker == NULL || flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        uv_poll_init(reserve->loop, &asker->poll, fd) != 0) {
        ct_free(asker);
        (void)close(fd);
        return;
    }
    reserve->handles++;
    asker->reserve = reserve;
    asker->fd = fd;
    asker->code = code;
    (void)snprintf(asker->why, sizeof(asker->why), "%s", why);
    asker->deadline_ns = ct_deadline_in(NULL, PATIENCE_MS);
    if (++reserve->count > CT_HTTP_RESERVE) {
        end(least_worth(reserve));
    }
    ct_list_append(&reserve->askers, &asker->at_reserve);
    /* This does not fail for a handle that has just been made. */
    CT_ASSERT(uv_poll_start(&asker->poll, UV_READABLE, on_poll) == 0);
    if (!uv_is_active((const uv_handle_t *)&reserve->timer)) {
        (void)uv_timer_start(&reserve->timer, on_timer, PATIENCE_MS, 0);
    }
    /* Most requests are complete by now; they are answered before others push them out. */
    if (!hear(asker)) {
        end(asker);
    }
}
