/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the first ct_http_add() loads libmicrohttpd and puts its epoll descriptor into our
 * loop. Each call gives the library a socket. When the descriptor is readable, MHD_run() reads,
 * calls on_request(), writes and closes.
 *
 * Other paths: the library may have work left that no descriptor announces (a pipelined request).
 * MHD_get_timeout() says so, and the idle handle gives the library its next turn, after everybody
 * else. (A timer of 0 ms that restarts itself would keep the loop busy, because libuv runs all
 * timers that are due before it goes on.)
 *
 * Failure modes: without the library the connection is not taken and the next one tries again. A
 * request that is not HTTP or larger than CT_HTTP_MEMORY is refused by the library. A slow request
 * is ended here, because the library's own timeout ends only silent connections, and not one that
 * sends a byte a second. Each connection has a deadline, which moves on with each finished request.
 * All have the same length, so the list of connections is in order of deadlines. The socket is only
 * shut down; then the library finds its end by itself.
 *
 * Who frees: the library reports the end of a connection before it closes the socket; `struct peer`
 * is freed then. After MHD_stop_daemon() all peers are freed. The object is freed with its last
 * handle.
 */
#include "rendezvous/http/http_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/http/http_load.h"
#include "rendezvous/http/http_unadmitted.h"
#include "rendezvous/http/page_ask_uv.h"
#include "rendezvous/http/page_guard.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/http/page_live_uv.h"
#include "rendezvous/http/page_rank.h"
#include "rendezvous/page/page_text.h"
#include "rendezvous/store/budget.h"
#include "rendezvous/wire/limits.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct peer {
    struct ct_list at_http;
    int64_t deadline_ns;
    int fd; /* the library's */
    struct ct_page_asker asker;
    struct ct_http_unadmitted_conn unadmitted;
    struct ct_page_ask *held; /* its request for the end of the job; NULL = none waits */
    bool hears_end;           /* the answer to such a request is not sent yet */
};

struct ct_http {
    uv_loop_t *loop;
    struct ct_mhd mhd;
    struct MHD_Daemon *daemon; /* NULL until the first connection; then `mhd` and `poll` are made */
    uv_poll_t poll;
    uv_timer_t timer;                     /* of the first deadline */
    uv_idle_t idle;                       /* runs while the library has work left */
    unsigned handles;                     /* not closed yet */
    struct ct_list peers;                 /* by deadline */
    struct ct_http_unadmitted unadmitted; /* peers that are not ours */
    bool adding_ours, adding_admitted;    /* for the peer that is being added */
    const struct sockaddr *adding_addr;   /* its address */
    struct ct_http_source source;
    struct ct_page_live *live;
    struct ct_page_asks asks; /* a request that has to wait has its ct_page_ask as context */
    unsigned hearing;         /* peers with hears_end */
    const struct ct_log *log; /* may be NULL */
    struct ct_refusal_log denials;
    int64_t request_ns;
    struct ct_http_stats stats;
    ct_http_close_fn close_cb;
    void *close_data;
};

/* ---- deadlines ------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);
static void on_idle(uv_idle_t *idle);

/* Gives the peer the time for one more request. */
static void give_time(struct ct_http *http, struct peer *peer)
{
    ct_list_remove(&peer->at_http);
    ct_list_append(&http->peers, &peer->at_http);
    peer->deadline_ns = ct_clock_now(NULL) + http->request_ns;
}

static void end_late_peers(struct ct_http *http)
{
    int64_t now = ct_clock_now(NULL);
    while (!ct_list_empty(&http->peers)) {
        struct peer *peer = CT_CONTAINER_OF(http->peers.next, struct peer, at_http);
        if (peer->deadline_ns > now) {
            return;
        }
        if (peer->held != NULL && ct_page_ask_goes_on(peer->held)) {
            give_time(http, peer);
            continue;
        }
        ct_list_remove(&peer->at_http);
        http->stats.timeouts++;
        (void)shutdown(peer->fd, SHUT_RDWR);
    }
}

/* Arranges for the next turn: at once when the library has work left, else at a deadline. */
static void set_timer(struct ct_http *http)
{
    MHD_UNSIGNED_LONG_LONG at_once = 1;
    if (http->mhd.get_timeout(http->daemon, &at_once) == MHD_YES && at_once == 0) {
        (void)uv_idle_start(&http->idle, on_idle);
    } else {
        (void)uv_idle_stop(&http->idle);
    }
    if (!ct_list_empty(&http->peers)) {
        const struct peer *first = CT_CONTAINER_OF(http->peers.next, struct peer, at_http);
        int left_ms = ct_deadline_left_ms(NULL, first->deadline_ns);
        (void)uv_timer_start(&http->timer, on_timer, left_ms > 0 ? (uint64_t)left_ms : 0, 0);
    } else {
        (void)uv_timer_stop(&http->timer);
    }
}

static void turn(struct ct_http *http)
{
    (void)http->mhd.run(http->daemon);
    set_timer(http);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_http *http = CT_CONTAINER_OF(timer, struct ct_http, timer);
    end_late_peers(http);
    turn(http);
}

static void on_idle(uv_idle_t *idle)
{
    turn(CT_CONTAINER_OF(idle, struct ct_http, idle));
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    turn(CT_CONTAINER_OF(poll, struct ct_http, poll));
}

/* ---- what the library tells ----------------------------------------------------------------- */

static void on_connection(void *cls, struct MHD_Connection *connection, void **context,
                          enum MHD_ConnectionNotificationCode what)
{
    struct ct_http *http = cls;
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        struct peer *peer = *context;
        http->stats.connections--;
        if (peer != NULL) {
            ct_list_remove(&peer->at_http);
            ct_http_unadmitted_remove(&http->unadmitted, &peer->unadmitted);
            http->hearing -= peer->hears_end;
            ct_free(peer);
        }
        *context = NULL;
        return;
    }
    int fd =
        http->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    struct peer *peer = ct_calloc(1, sizeof(*peer));
    http->stats.connections++;
    *context = peer;
    if (peer == NULL) {
        (void)shutdown(fd, SHUT_RDWR);
        return;
    }
    peer->fd = fd;
    peer->asker.ours = http->adding_ours;
    peer->asker.admitted = http->adding_admitted;
    if (!peer->asker.ours) {
        ct_http_unadmitted_add(&http->unadmitted, &peer->unadmitted, fd, http->adding_addr);
    }
    ct_list_init(&peer->at_http);
    give_time(http, peer);
}

static struct peer *peer_of(const struct ct_http *http, struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        http->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **request,
                         enum MHD_RequestTerminationCode how)
{
    struct ct_http *http = cls;
    struct peer *peer = peer_of(http, connection);
    if (*request != NULL && *request != http) {
        ct_page_ask_free(*request);
    }
    if (peer != NULL && peer->hears_end) {
        peer->held = NULL;
        peer->hears_end = false;
        http->hearing--;
    }
    if (peer != NULL && how == MHD_REQUEST_TERMINATED_COMPLETED_OK) {
        give_time(http, peer);
    }
}

/* A body that is being sent. The budget counts it, because a client makes us keep it. */
struct body {
    struct ct_buf bytes;
    struct ct_budget *budget; /* NULL = nobody counts */
    size_t charged;
};

static void free_body(void *cls)
{
    struct body *body = cls;
    if (body->budget != NULL) {
        ct_budget_give(body->budget, body->charged);
    }
    ct_buf_fini(&body->bytes);
    ct_free(body);
}

/* Takes the bytes. NULL when memory is out. */
static struct body *body_new(struct ct_budget *budget, struct ct_buf *bytes)
{
    struct body *body = ct_calloc(1, sizeof(*body));
    if (body == NULL) {
        ct_buf_fini(bytes);
        return NULL;
    }
    body->bytes = *bytes;
    *bytes = (struct ct_buf)CT_BUF_INIT;
    body->budget = budget;
    if (budget != NULL) {
        body->charged = sizeof(*body) + body->bytes.cap + 2 * CT_BLOCK_COST;
        ct_budget_force(budget, body->charged);
    }
    return body;
}

/* The headers that belong to an answer, and those that a browser wants for the live page: it may
 * run nothing but its own script, ask nobody else, and be shown in no other page. */
static enum MHD_Result queue(const struct ct_mhd *mhd, struct MHD_Connection *connection,
                             struct MHD_Response *response, const struct ct_http_answer *answer)
{
    const char *const headers[][2] = {
        {MHD_HTTP_HEADER_CONTENT_TYPE, answer->type},
        {MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
        {"X-Content-Type-Options", "nosniff"},
        {MHD_HTTP_HEADER_CONNECTION, answer->code == MHD_HTTP_BAD_REQUEST ? "close" : NULL},
        {MHD_HTTP_HEADER_ALLOW, answer->allow},
        {MHD_HTTP_HEADER_WWW_AUTHENTICATE, answer->challenge},
        {MHD_HTTP_HEADER_VARY, answer->is_page ? "Accept" : NULL},
        {"Content-Security-Policy", answer->is_page ? ct_page_text_policy : NULL},
        {"Referrer-Policy", answer->is_page ? "no-referrer" : NULL},
        {"Cross-Origin-Resource-Policy", "same-origin"},
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
        if (headers[i][1] != NULL &&
            mhd->add_response_header(response, headers[i][0], headers[i][1]) != MHD_YES) {
            return MHD_NO;
        }
    }
    return mhd->queue_response(connection, answer->code, response);
}

static enum MHD_Result send_answer(const struct ct_mhd *mhd, struct MHD_Connection *connection,
                                   struct ct_budget *budget, struct ct_http_answer *answer)
{
    struct body *body = body_new(budget, &answer->body);
    if (body == NULL) {
        return MHD_NO;
    }
    struct MHD_Response *response = mhd->create_response_from_buffer_with_free_callback_cls(
        body->bytes.len, ct_buf_bytes(&body->bytes), free_body, body);
    if (response == NULL) {
        free_body(body);
        return MHD_NO;
    }
    enum MHD_Result result = queue(mhd, connection, response, answer);
    mhd->destroy_response(response);
    return result;
}

/* Replaces an answer for which the store has no memory left. */
static void refuse_beyond_budget(struct ct_http *http, struct ct_http_answer *answer)
{
    struct ct_budget *budget = http->source.budget;
    if (answer->body.len > CT_GRANT_BYTES && budget != NULL &&
        !ct_budget_fits(budget, answer->body.cap)) {
        budget->refused++;
        ct_http_answer_error(answer, MHD_HTTP_SERVICE_UNAVAILABLE,
                             "the store's memory is used up (--max-memory), so this page is not "
                             "shown");
    }
}

/* Counts a refused request. Log lines have a limited rate, because anybody may ask often. `why` is
 * a text of ours. */
static void count_denial(struct ct_http *http, struct MHD_Connection *connection, const char *why)
{
    uint64_t unreported = ct_refusal_log_add(&http->denials, uv_now(http->loop));
    http->stats.denied = http->denials.total;
    if (unreported > 0) {
        const union MHD_ConnectionInfo *info =
            http->mhd.get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        char peer[CT_ADDR_TEXT_MAX] = "?";
        if (info != NULL && info->client_addr != NULL) {
            ct_addr_format(info->client_addr, peer, sizeof(peer));
        }
        ct_log(http->log, CT_LOG_WARNING,
               "store: refused %" PRIu64 " HTTP request%s, the last from %s: %s", unreported,
               unreported == 1 ? "" : "s", peer, why);
    }
}

/* What is doubtful in the head of a request: the library accepts it, but a proxy in front of us may
 * read it in another way. */
struct doubts {
    bool blank, length, coding;
};

static enum MHD_Result doubt(void *cls, enum MHD_ValueKind kind, const char *name,
                             const char *value)
{
    struct doubts *doubts = cls;
    size_t len = strlen(name);
    (void)kind;
    (void)value;
    doubts->blank = doubts->blank || strcspn(name, " \t") < len;
    doubts->length = doubts->length || strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
    doubts->coding = doubts->coding || strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
    return MHD_YES;
}

/* Says what is wrong with the head of a request; NULL = nothing. */
static const char *what_is_wrong(struct ct_http *http, struct MHD_Connection *connection)
{
    struct doubts doubts = {.blank = false};
    (void)http->mhd.get_connection_values(connection, MHD_HEADER_KIND, doubt, &doubts);
    if (doubts.blank) {
        return "the name of a header has a blank in it";
    }
    return doubts.length && doubts.coding ? "a request cannot have both Content-Length and "
                                            "Transfer-Encoding"
                                          : NULL;
}

/* ---- the live page -------------------------------------------------------------------------- */

#define SESSION_PATH "/page/session"

static bool asks_worker(const char *path)
{
    return strncmp(path, CT_PAGE_ASK_PATH, sizeof(CT_PAGE_ASK_PATH) - 1) == 0;
}

/* A request of another method is refused before the rest of it is read. */
static bool method_is_known(const char *method, const char *path)
{
    return ct_http_method_is_known(method) ||
           (strcmp(method, "POST") == 0 && (strcmp(path, SESSION_PATH) == 0 || asks_worker(path)));
}

static const char *header(const struct ct_http *http, struct MHD_Connection *connection,
                          const char *name)
{
    return http->mhd.lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

/* Does the path belong to the live page? The same path is a hint for people with curl. */
static bool is_of_page(const struct ct_http *http, struct MHD_Connection *connection,
                       const char *path)
{
    return strncmp(path, "/page/", 6) == 0 ||
           (strcmp(path, "/") == 0 &&
            ct_page_guard_wants_html(header(http, connection, MHD_HTTP_HEADER_ACCEPT)));
}

static struct ct_page_request page_request(const struct ct_http *http,
                                           struct MHD_Connection *connection)
{
    return (struct ct_page_request){
        .host = header(http, connection, MHD_HTTP_HEADER_HOST),
        .origin = header(http, connection, MHD_HTTP_HEADER_ORIGIN),
        .accept_language = header(http, connection, MHD_HTTP_HEADER_ACCEPT_LANGUAGE),
        .fetch_site = header(http, connection, "Sec-Fetch-Site"),
        .fetch_mode = header(http, connection, "Sec-Fetch-Mode"),
        .fetch_dest = header(http, connection, "Sec-Fetch-Dest"),
    };
}

static bool has_room_for_viewer(const struct ct_http *http)
{
    return ct_page_live_viewers(http->live) + http->hearing < CT_PAGE_VIEWERS;
}

static enum MHD_Result send_events(struct ct_http *http, struct MHD_Connection *connection)
{
    static const struct ct_http_answer answer = {.code = 200, .type = "text/event-stream"};
    struct MHD_Response *response = NULL;
    int rc = has_room_for_viewer(http) ? ct_page_live_watch(http->live, connection, &response)
                                       : CT_EBUSY;
    if (rc != 0) {
        struct ct_http_answer none = {.code = 0};
        ct_http_answer_error(&none, MHD_HTTP_SERVICE_UNAVAILABLE,
                             "too many watch this page already");
        return send_answer(&http->mhd, connection, http->source.budget, &none);
    }
    enum MHD_Result result = queue(&http->mhd, connection, response, &answer);
    http->mhd.destroy_response(response);
    return result;
}

/* Returns false, and fills in *out, if the request is no POST. */
static bool must_be_post(const char *method, struct ct_http_answer *out)
{
    if (strcmp(method, "POST") == 0) {
        return true;
    }
    ct_http_answer_error(out, MHD_HTTP_METHOD_NOT_ALLOWED, "POST is needed here");
    out->allow = "POST";
    return false;
}

/* Says why a browser's request must not be answered; NULL = nothing is wrong with it. */
static const char *judge_browser(const struct ct_http *http, const struct ct_page_request *request)
{
    char own_name[256] = "";
    (void)gethostname(own_name, sizeof(own_name) - 1);
    return ct_page_guard_judge(request, own_name, http->source.page_name);
}

static enum MHD_Result refuse_browser(struct ct_http *http, struct MHD_Connection *connection,
                                      const char *why)
{
    struct ct_http_answer answer = {.code = 0};
    count_denial(http, connection, why);
    ct_http_answer_error(&answer, MHD_HTTP_FORBIDDEN, why);
    return send_answer(&http->mhd, connection, http->source.budget, &answer);
}

/* Lets a client prove the token, with its next request on this connection. */
static enum MHD_Result send_challenge(struct ct_http *http, struct MHD_Connection *connection,
                                      const char *challenge)
{
    struct ct_http_answer answer = {.code = 0};
    ct_http_answer_error(&answer, MHD_HTTP_UNAUTHORIZED, "this needs a proof of the job's token");
    answer.challenge = challenge;
    return send_answer(&http->mhd, connection, http->source.budget, &answer);
}

/* Answers how the job has ended, or lets the request wait for it. */
static enum MHD_Result send_end(struct ct_http *http, struct MHD_Connection *connection,
                                void **request)
{
    struct ct_http_answer answer = {.code = 0};
    struct peer *peer = peer_of(http, connection);
    struct ct_page_ask *ask = NULL;
    if (http->asks.end.len > 0 || has_room_for_viewer(http)) {
        ask = ct_page_ask_end(&http->asks, connection, &answer);
    } else {
        ct_http_answer_error(&answer, MHD_HTTP_SERVICE_UNAVAILABLE,
                             "too many watch this job already");
    }
    if (ask == NULL) {
        return send_answer(&http->mhd, connection, http->source.budget, &answer);
    }
    *request = ask;
    peer->held = ask;
    peer->hears_end = true;
    http->hearing++;
    give_time(http, peer);
    return MHD_YES;
}

/* Answers what belongs to the live page, to a peer that is admitted, and `trusted` to see what
 * workers have written, and where they stand. A request that has to wait gets another context. */
static enum MHD_Result send_page(struct ct_http *http, struct MHD_Connection *connection,
                                 const char *method, const char *path, bool trusted, void **request)
{
    struct ct_http_answer answer = {.code = 0};
    if (strcmp(path, "/page/events") == 0 && strcmp(method, "GET") == 0) {
        return send_events(http, connection);
    } else if (strcmp(path, SESSION_PATH) == 0) {
        if (must_be_post(method, &answer)) {
            ct_page_key_open_session(
                http->source.key, header(http, connection, MHD_HTTP_HEADER_AUTHORIZATION), &answer);
        }
    } else if (asks_worker(path)) {
        struct ct_page_ask *ask =
            must_be_post(method, &answer)
                ? ct_page_ask_begin(&http->asks, connection, path, trusted, &answer)
                : NULL;
        if (ask != NULL) {
            *request = ask;
            give_time(http, peer_of(http, connection)); /* it may have been idle before */
            return MHD_YES;
        }
    } else if (strncmp(path, CT_PAGE_RANK_PATH, sizeof(CT_PAGE_RANK_PATH) - 1) == 0) {
        ct_page_rank_answer(&http->source, trusted, path, &answer);
    } else if (strcmp(path, "/page/data") == 0) {
        ct_page_live_data(http->live, &answer);
    } else if (strcmp(path, "/") == 0) {
        answer = (struct ct_http_answer){
            .code = 200, .type = "text/html; charset=utf-8", .is_page = true};
        ct_buf_add(&answer.body, ct_page_text, ct_page_text_len);
        if (ct_buf_status(&answer.body) != 0) {
            ct_http_answer_error(&answer, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory");
        }
    } else {
        ct_http_answer_make(&http->source, true, method, path, &answer);
    }
    refuse_beyond_budget(http, &answer);
    return send_answer(&http->mhd, connection, http->source.budget, &answer);
}

static void on_taken(void *data, struct MHD_Connection *connection)
{
    struct ct_http *http = data;
    struct peer *peer = peer_of(http, connection);
    if (peer != NULL) {
        give_time(http, peer);
    }
}

static void on_resumed(void *data)
{
    turn(data);
}

void ct_http_sample(struct ct_http *http)
{
    if (http != NULL) {
        ct_page_live_sample(http->live);
    }
}

void ct_http_tell_end(struct ct_http *http, const char *json)
{
    if (http != NULL) {
        ct_page_asks_tell_end(&http->asks, json);
        ct_page_live_tell_end(http->live, json);
    }
}

bool ct_http_is_telling_end(const struct ct_http *http)
{
    return http != NULL && (http->hearing > 0 || ct_clock_now(NULL) < http->asks.expected_ns ||
                            ct_page_live_is_telling_end(http->live));
}

/* ---- requests ------------------------------------------------------------------------------- */

/* Called when the head of a request has come, and again when all of it has come. MHD_NO ends the
 * connection. An answer to the first call also ends it, without reading further, which is right for
 * methods that are refused. A GET with a body is cut off. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_len, void **request)
{
    (void)version;
    (void)upload;
    struct ct_http *http = cls;
    struct ct_http_answer answer;
    bool first = *request == NULL;
    if (!first && *request != http) {
        struct peer *asker = peer_of(http, connection);
        ct_page_ask_take(*request, &answer);
        *request = http;
        if (asker != NULL) {
            asker->held = NULL;
        }
        return send_answer(&http->mhd, connection, http->source.budget, &answer);
    }
    *request = http; /* anything but NULL */
    if (*upload_len > 0) {
        return MHD_NO;
    }
    const char *wrong = first ? what_is_wrong(http, connection) : NULL;
    if (wrong != NULL) {
        answer = (struct ct_http_answer){.code = 0};
        ct_http_answer_error(&answer, MHD_HTTP_BAD_REQUEST, wrong);
        http->stats.requests++;
        return send_answer(&http->mhd, connection, http->source.budget, &answer);
    }
    if (first && method_is_known(method, path)) {
        return MHD_YES;
    }
    struct peer *peer = peer_of(http, connection);
    if (peer == NULL) {
        return MHD_NO;
    }
    const struct ct_http_proof_page wanted = {method, path};
    const char *authorization = header(http, connection, MHD_HTTP_HEADER_AUTHORIZATION);
    char challenge[CT_HTTP_PROOF_MAX];
    enum ct_page_right right =
        ct_page_key_right(http->source.key, &peer->asker, &wanted, authorization);
    bool proving =
        right < (asks_worker(path) ? CT_PAGE_RIGHT_ALL : CT_PAGE_RIGHT_STATUS) &&
        ct_page_key_challenge(http->source.key, &peer->asker, &wanted, authorization, challenge);
    bool admitted = right != CT_PAGE_RIGHT_NONE;
    if (admitted) {
        ct_http_unadmitted_keep(&peer->unadmitted);
    }
    bool page = is_of_page(http, connection, path) && method_is_known(method, path);
    http->stats.requests++;
    const struct ct_page_request asked = page_request(http, connection);
    if ((admitted || proving) && (page || ct_page_guard_is_browser(&asked))) {
        wrong = judge_browser(http, &asked);
        if (wrong != NULL) {
            return refuse_browser(http, connection, wrong);
        }
    }
    if (proving) {
        return send_challenge(http, connection, challenge);
    }
    if (admitted && strcmp(path, CT_PAGE_END_PATH) == 0 && ct_http_method_is_known(method)) {
        return send_end(http, connection, request);
    }
    if (admitted && page) {
        return send_page(http, connection, method, path, right == CT_PAGE_RIGHT_ALL, request);
    }
    ct_http_answer_make(&http->source, admitted, method, path, &answer);
    if (answer.code == MHD_HTTP_FORBIDDEN) {
        count_denial(http, connection, "this address is not admitted");
    }
    refuse_beyond_budget(http, &answer);
    return send_answer(&http->mhd, connection, http->source.budget, &answer);
}

/* ---- opening and closing -------------------------------------------------------------------- */

static struct MHD_Daemon *start_daemon(struct ct_http *http)
{
    return http->mhd.start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
        on_request, http, MHD_OPTION_CONNECTION_LIMIT, CT_HTTP_CONNECTIONS,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, CT_HTTP_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT, 0U,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_NOTIFY_COMPLETED,
        on_completed, http, MHD_OPTION_END);
}

static int start(struct ct_http *http, struct ct_err *err)
{
    int rc = ct_mhd_load(&http->mhd, err);
    if (rc != 0) {
        return rc;
    }
    struct MHD_Daemon *daemon = start_daemon(http);
    const union MHD_DaemonInfo *info =
        daemon != NULL ? http->mhd.get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    rc = info != NULL ? uv_poll_init(http->loop, &http->poll, info->epoll_fd) : UV_EMFILE;
    if (rc != 0) {
        if (daemon != NULL) {
            http->mhd.stop_daemon(daemon);
        }
        return ct_err_set(err, CT_EIO, "cannot start HTTP: %s", uv_strerror(rc));
    }
    /* This does not fail for a handle that has just been made. */
    CT_ASSERT(uv_poll_start(&http->poll, UV_READABLE, on_poll) == 0);
    http->handles++;
    http->daemon = daemon;
    return 0;
}

int ct_http_open(uv_loop_t *loop, const struct ct_http_source *source, int64_t request_ms,
                 const struct ct_log *log, struct ct_http **out, struct ct_err *err)
{
    struct ct_http *http = ct_calloc(1, sizeof(*http));
    if (http == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for HTTP");
    }
    const struct ct_page_live_hooks hooks = {on_taken, on_resumed, http};
    if (ct_page_live_open(loop, source, &http->mhd, &hooks, &http->live) != 0) {
        ct_free(http);
        return ct_err_set(err, CT_ENOMEM, "no memory for the live page");
    }
    ct_list_init(&http->peers);
    ct_http_unadmitted_init(&http->unadmitted, CT_HTTP_UNADMITTED);
    http->loop = loop;
    http->source = *source;
    ct_page_asks_init(&http->asks, &http->source, &http->mhd, on_resumed, http);
    http->log = log;
    http->request_ns = request_ms * CT_NS_PER_MS;
    CT_ASSERT(uv_timer_init(loop, &http->timer) == 0); /* cannot fail */
    CT_ASSERT(uv_idle_init(loop, &http->idle) == 0);
    http->handles = 3; /* with the live page */
    *out = http;
    return 0;
}

int ct_http_add(struct ct_http *http, int fd, bool ours, bool admitted, struct ct_err *err)
{
    int rc = http->daemon == NULL ? start(http, err) : 0;
    if (rc == 0 && (http->stats.connections >= CT_HTTP_CONNECTIONS ||
                    (!ours && !ct_http_unadmitted_make_room(&http->unadmitted)))) {
        rc = ct_err_set(err, CT_EBUSY, "all HTTP connections are taken; ask again");
    }
    if (rc != 0) {
        http->stats.refused++;
        return rc;
    }
    http->adding_ours = ours;
    http->adding_admitted = admitted;
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    (void)getpeername(fd, (struct sockaddr *)&addr, &len);
    http->adding_addr = (const struct sockaddr *)&addr;
    if (http->mhd.add_connection(http->daemon, fd, (const struct sockaddr *)&addr, len) !=
        MHD_YES) {
        http->stats.refused++; /* the library has closed the socket */
        return 0;
    }
    set_timer(http);
    return 0;
}

void ct_http_stats(const struct ct_http *http, struct ct_http_stats *out)
{
    *out = http != NULL ? http->stats : (struct ct_http_stats){0};
    out->refused += http != NULL ? http->unadmitted.ended : 0;
}

static void finish_if_last(struct ct_http *http)
{
    if (--http->handles > 0) {
        return;
    }
    ct_http_close_fn cb = http->close_cb;
    void *data = http->close_data;
    ct_page_asks_fini(&http->asks);
    ct_free(http);
    cb(data);
}

static void on_poll_close(uv_handle_t *handle)
{
    finish_if_last(CT_CONTAINER_OF(handle, struct ct_http, poll));
}

static void on_timer_close(uv_handle_t *handle)
{
    finish_if_last(CT_CONTAINER_OF(handle, struct ct_http, timer));
}

static void on_idle_close(uv_handle_t *handle)
{
    finish_if_last(CT_CONTAINER_OF(handle, struct ct_http, idle));
}

static void on_live_close(void *data)
{
    finish_if_last(data);
}

/* The library takes the end of a stream, sends it and frees the response in at most three turns. */
#define FINISH_TURNS 10

/* Ends the streams of all viewers that take what is sent. */
static void finish_streams(struct ct_http *http)
{
    ct_page_live_finish(http->live);
    for (int i = 0; i < FINISH_TURNS && ct_page_live_viewers(http->live) > 0; i++) {
        (void)http->mhd.run(http->daemon);
    }
}

void ct_http_close(struct ct_http *http, ct_http_close_fn cb, void *data)
{
    http->close_cb = cb;
    http->close_data = data;
    uv_close((uv_handle_t *)&http->timer, on_timer_close);
    uv_close((uv_handle_t *)&http->idle, on_idle_close);
    if (http->daemon != NULL) {
        /* The handle must stop using the descriptor before the library closes it. */
        uv_close((uv_handle_t *)&http->poll, on_poll_close);
        /* The library stops no connection that is suspended. */
        finish_streams(http);
        ct_page_asks_wake(&http->asks);
        http->mhd.stop_daemon(http->daemon);
    }
    ct_page_live_close(http->live, on_live_close, http);
}
