/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: connect, ask, and wait. The store answers after some seconds that the job goes on,
 * and is asked again on the same connection, until it answers how the job has ended. One that does
 * not admit us has each question proved with the token (http_proof.h).
 *
 * Failure modes: a connection that ends is made again after a second, also if the answer is that
 * too many watch. A store that knows no /end is not asked again. One that answers too soon that the
 * job goes on is asked as after a failure, so that it cannot keep us busy.
 *
 * Who frees: ct_stat_end_close(); the object belongs to the caller.
 */
#include "rendezvous/ctrun-stat/stat_end_uv.h"

#include "common/clock.h"
#include "rendezvous/wire/http_client.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <string.h>

#define AGAIN_MS 1000
#define REPLY_MAX ((size_t)65536)

static const struct ct_http_proof_page page = {"GET", "/end"};

static void drop(struct ct_stat_end *end);

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    struct ct_stat_end *end = handle->data;
    (void)suggested;
    *out = (uv_buf_t){.base = end->piece, .len = sizeof(end->piece)};
}

/* Asks, or asks again with the answer to a challenge. libuv would raise SIGPIPE if the store has
 * just gone. The request fits into the socket. */
static void send_request(struct ct_stat_end *end, const char *authorization)
{
    char request[sizeof("GET /end HTTP/1.1") + CT_HTTP_PROOF_MAX + 64];
    uv_os_fd_t fd;
    int len =
        snprintf(request, sizeof(request), "%s %s HTTP/1.1\r\nHost: ctrun-stat\r\n%s%s%s\r\n",
                 page.method, page.path, authorization != NULL ? "Authorization: " : "",
                 authorization != NULL ? authorization : "", authorization != NULL ? "\r\n" : "");
    if (uv_fileno((uv_handle_t *)&end->tcp, &fd) != 0 ||
        send(fd, request, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT) != len) {
        drop(end);
    }
}

static void ask(struct ct_stat_end *end)
{
    char authorization[CT_HTTP_PROOF_MAX];
    bool can_prove = end->token != NULL && ct_http_proof_open(&end->proof, authorization) == 0;
    end->asked_ns = ct_clock_now(NULL);
    send_request(end, can_prove ? authorization : NULL);
}

/* Returns false if the challenge is not one that a store with our token sends. */
static bool answer_challenge(struct ct_stat_end *end, const struct ct_http_reply *reply)
{
    char authorization[CT_HTTP_PROOF_MAX];
    const char *challenge = (const char *)ct_buf_bytes(&end->got) + reply->challenge;
    if (end->token == NULL ||
        ct_http_proof_answer(&end->proof, end->token, &page, challenge, reply->challenge_len,
                             authorization, NULL) != 0) {
        return false;
    }
    ct_buf_reset(&end->got);
    send_request(end, authorization);
    return true;
}

/* Takes a whole reply. */
static void take_reply(struct ct_stat_end *end, const struct ct_http_reply *reply)
{
    if (reply->code == 401 && answer_challenge(end, reply)) {
        return;
    }
    cJSON *json =
        cJSON_ParseWithLength((const char *)ct_buf_bytes(&end->got) + reply->body, reply->len);
    bool ended = reply->code == 200 && ct_json_number(json, "ended", 0) != 0;
    bool goes_on = reply->code == 200 && !ended && cJSON_IsObject(json);
    bool soon = ct_clock_now(NULL) - end->asked_ns < AGAIN_MS * CT_NS_PER_MS;
    ct_buf_reset(&end->got);
    if (ended) {
        end->given_up = true; /* there is nothing left to ask */
        end->fn(end->data, json);
    } else if (goes_on && !soon) {
        ask(end);
    } else {
        end->given_up = !goes_on && reply->code != 503;
        drop(end);
    }
    cJSON_Delete(json);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *piece)
{
    struct ct_stat_end *end = stream->data;
    struct ct_http_reply reply;
    if (n == 0) {
        return;
    }
    if (n > 0) {
        ct_buf_add(&end->got, piece->base, (size_t)n);
    }
    bool fits = ct_buf_status(&end->got) == 0 && end->got.len <= REPLY_MAX;
    int rc = fits && end->got.len > 0 ? ct_http_reply_parse((const char *)ct_buf_bytes(&end->got),
                                                            end->got.len, n < 0, &reply, NULL)
                                      : CT_ECLOSED;
    if (rc == 0) {
        take_reply(end, &reply);
    } else if (rc != CT_HTTP_E_MORE) {
        end->given_up = n >= 0; /* it is no HTTP */
        drop(end);
    }
    if (n < 0) {
        drop(end);
    }
}

static void on_connect(uv_connect_t *connect, int status)
{
    struct ct_stat_end *end = connect->data;
    if (end->is_dropped) {
        return;
    }
    if (status != 0 || uv_read_start((uv_stream_t *)&end->tcp, on_alloc, on_read) != 0) {
        drop(end);
        return;
    }
    ask(end);
}

static void begin(struct ct_stat_end *end)
{
    if (uv_tcp_init(end->loop, &end->tcp) != 0) {
        return;
    }
    end->is_open = true;
    end->tcp.data = end->connect.data = end;
    if (uv_tcp_connect(&end->connect, &end->tcp, (const struct sockaddr *)&end->address,
                       on_connect) != 0) {
        drop(end);
    }
}

static void on_again(uv_timer_t *timer)
{
    begin(timer->data);
}

static void on_dropped(uv_handle_t *handle)
{
    struct ct_stat_end *end = handle->data;
    end->is_open = end->is_dropped = false;
    if (end->closing) {
        return;
    }
    if (!end->given_up) {
        (void)uv_timer_start(&end->again, on_again, AGAIN_MS, 0);
    }
    end->fn(end->data, NULL);
}

static void drop(struct ct_stat_end *end)
{
    if (end->is_open && !end->is_dropped) {
        end->is_dropped = true;
        ct_buf_reset(&end->got);
        uv_close((uv_handle_t *)&end->tcp, on_dropped);
    }
}

int ct_stat_end_open(struct ct_stat_end *end, uv_loop_t *loop, const struct ct_endpoint *where,
                     const struct ct_token *token, ct_stat_end_fn fn, void *data)
{
    socklen_t len;
    *end = (struct ct_stat_end){.loop = loop, .token = token, .fn = fn, .data = data};
    int rc = ct_addr_resolve(where->host, where->port, &end->address, &len, NULL);
    if (rc != 0) {
        end->loop = NULL;
        return rc;
    }
    CT_ASSERT(uv_timer_init(loop, &end->again) == 0); /* cannot fail */
    end->again.data = end;
    begin(end);
    return 0;
}

bool ct_stat_end_is_asking(const struct ct_stat_end *end)
{
    return end->loop != NULL && end->is_open && !end->given_up;
}

void ct_stat_end_close(struct ct_stat_end *end)
{
    if (end->loop == NULL || end->closing) {
        return;
    }
    end->closing = true;
    uv_close((uv_handle_t *)&end->again, NULL);
    drop(end);
    ct_buf_fini(&end->got);
}
