/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: with a user, a login gives a token first; then the request is posted to the endpoint
 * that answered last, over a connection that libcurl has kept. libcurl is given the addresses of a
 * name (etcd_name.h), and never asks for them itself, since its time limit for a connection would
 * then be one for the name server, too.
 *
 * Other paths: a token that etcd does not know any more is renewed once in a request. An endpoint
 * that cannot be reached, is too slow, answers nonsense or says that it cannot answer is followed
 * by the next one, which then stays the first. Its name is looked up again meanwhile.
 *
 * Failure modes: a reply that is too long is cut off while it comes. When nobody answers, the error
 * has each endpoint with its reason, as far as they fit.
 */
#include "rendezvous/etcd/etcd_transfer.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/etcd/etcd_load.h"
#include "rendezvous/etcd/etcd_name.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* Options of libcurl that its header may be too old for. A library that does not know one says so,
 * which does no harm. */
#define OPTION_PROTOCOLS ((CURLoption)181)       /* until 7.84: a mask */
#define OPTION_PROTOCOLS_STR ((CURLoption)10318) /* from 7.85 on */

/* The thread looks again this often even if libcurl and the wake descriptor say nothing. */
#define LOOK_MS 1000

struct ct_etcd_transfer {
    struct ct_etcd_settings settings;
    struct ct_etcd_limits limits;
    struct ct_etcd_name *names[CT_ETCD_ENDPOINTS_MAX]; /* of each endpoint; NULL = an address */
    const atomic_bool *closing;
    int wake_fd;
    struct ct_curl curl;
    CURLM *multi;
    CURL *easy;
    char *token;                   /* NULL = no login yet; "" = etcd wants none */
    int current;                   /* the endpoint that is tried first */
    struct ct_buf reply;           /* its body, as far as it has come */
    char own_address[CT_HOST_MAX]; /* this machine's, on the last connection */
    bool answered;                 /* some endpoint has */
    bool too_long;                 /* it was cut off */
    bool no_memory;
    char error[CURL_ERROR_SIZE];
};

/* ---- one exchange --------------------------------------------------------------------------- */

static size_t on_body(char *bytes, size_t one, size_t len, void *data)
{
    struct ct_etcd_transfer *t = data;
    (void)one; /* always 1 */
    if (len > CT_ETCD_REPLY_MAX - t->reply.len) {
        t->too_long = true;
        return 0;
    }
    if (ct_buf_append(&t->reply, bytes, len) != 0) {
        t->no_memory = true;
        return 0;
    }
    return len;
}

/* Programs that are started later must not get the socket. */
static curl_socket_t on_socket(void *data, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)data;
    (void)purpose;
    return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

/* Adds a line. The list becomes NULL without memory. */
static struct curl_slist *add_header(struct ct_etcd_transfer *t, struct curl_slist *list,
                                     const char *line)
{
    struct curl_slist *longer = t->curl.slist_append(list, line);
    if (longer == NULL) {
        t->curl.slist_free_all(list);
    }
    return longer;
}

static struct curl_slist *make_headers(struct ct_etcd_transfer *t)
{
    struct curl_slist *list = add_header(t, NULL, "Content-Type: application/json");
    if (list != NULL) { /* else libcurl waits before it sends a long body */
        list = add_header(t, list, "Expect:");
    }
    if (list != NULL && t->token != NULL && t->token[0] != '\0') {
        char *line = ct_asprintf("Authorization: %s", t->token);
        if (line == NULL) {
            t->curl.slist_free_all(list);
            return NULL;
        }
        list = add_header(t, list, line);
        sodium_memzero(line, strlen(line));
        ct_free(line);
    }
    return list;
}

/* False when memory is out. */
static bool set_tls(struct ct_etcd_transfer *t)
{
    const struct ct_etcd_settings *s = &t->settings;
    __typeof__(curl_easy_setopt) *set = t->curl.easy_setopt;
    if (s->skip_verify) {
        (void)set(t->easy, CURLOPT_SSL_VERIFYPEER, 0L);
        (void)set(t->easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (s->cacert[0] != '\0' && set(t->easy, CURLOPT_CAINFO, s->cacert) != CURLE_OK) {
        return false;
    }
    /* Without a pass phrase OpenSSL would ask for one on the terminal. */
    return s->cert[0] == '\0' || (set(t->easy, CURLOPT_SSLCERT, s->cert) == CURLE_OK &&
                                  set(t->easy, CURLOPT_SSLKEY, s->key) == CURLE_OK &&
                                  set(t->easy, CURLOPT_KEYPASSWD, "") == CURLE_OK);
}

/* False when memory is out, which is all that can fail here. */
static bool set_up(struct ct_etcd_transfer *t, const char *path, const struct ct_buf *body,
                   const struct curl_slist *headers, const struct curl_slist *known,
                   int64_t timeout_ms)
{
    __typeof__(curl_easy_setopt) *set = t->curl.easy_setopt;
    char url[CT_ETCD_URL_MAX + 32];
    int64_t connect_ms = t->limits.connect_ms < timeout_ms ? t->limits.connect_ms : timeout_ms;
    (void)snprintf(url, sizeof(url), "%s%s", t->settings.urls[t->current], path);
    t->curl.easy_reset(t->easy);
    if (set(t->easy, OPTION_PROTOCOLS_STR, "http,https") != CURLE_OK) {
        (void)set(t->easy, OPTION_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    }
    (void)set(t->easy, CURLOPT_NOSIGNAL, 1L);
    (void)set(t->easy, CURLOPT_FOLLOWLOCATION, 0L);
    (void)set(t->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    (void)set(t->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)connect_ms);
    (void)set(t->easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    (void)set(t->easy, CURLOPT_OPENSOCKETFUNCTION, on_socket);
    (void)set(t->easy, CURLOPT_WRITEFUNCTION, on_body);
    (void)set(t->easy, CURLOPT_WRITEDATA, t);
    (void)set(t->easy, CURLOPT_ERRORBUFFER, t->error);
    (void)set(t->easy, CURLOPT_POST, 1L);
    (void)set(t->easy, CURLOPT_POSTFIELDSIZE, (long)body->len);
    (void)set(t->easy, CURLOPT_POSTFIELDS, ct_buf_bytes(body));
    (void)set(t->easy, CURLOPT_HTTPHEADER, headers);
    (void)set(t->easy, CURLOPT_RESOLVE, known);
    return set(t->easy, CURLOPT_URL, url) == CURLE_OK &&
           set(t->easy, CURLOPT_PROXY, "") == CURLE_OK && set_tls(t);
}

/* Before version 8.6, libcurl says that memory is out if a line of a header is too long. Then other
 * endpoints may still answer. */
static void blame_header(struct ct_etcd_transfer *t, CURLcode *result)
{
    if (*result == CURLE_OUT_OF_MEMORY && !t->no_memory) {
        *result = CURLE_RECV_ERROR;
        (void)snprintf(t->error, sizeof(t->error),
                       "a line of the reply's header is too long, or libcurl is out of memory");
    }
}

/* Waits until the exchange is over: 0 with *result, CT_EABORTED, CT_ETIMEDOUT. libcurl's own
 * timeout comes first; `stop_ns` is for a version that has lost it. */
static int wait_for_end(struct ct_etcd_transfer *t, int64_t stop_ns, CURLcode *result)
{
    for (;;) {
        int running = 0, left = 0, ready = 0;
        if (t->curl.multi_perform(t->multi, &running) != CURLM_OK) {
            *result = CURLE_OUT_OF_MEMORY;
            return 0;
        }
        const CURLMsg *message = t->curl.multi_info_read(t->multi, &left);
        if (message != NULL && message->msg == CURLMSG_DONE) {
            *result = message->data.result;
            blame_header(t, result);
            return 0;
        }
        if (atomic_load(t->closing)) {
            return CT_EABORTED;
        }
        if (ct_clock_now(NULL) >= stop_ns) {
            return CT_ETIMEDOUT;
        }
        struct curl_waitfd wake = {.fd = t->wake_fd, .events = CURL_WAIT_POLLIN};
        (void)t->curl.multi_wait(t->multi, &wake, 1, LOOK_MS, &ready);
    }
}

static void keep_own_address(struct ct_etcd_transfer *t)
{
    char *address = NULL;
    (void)t->curl.easy_getinfo(t->easy, CURLINFO_LOCAL_IP, &address);
    (void)snprintf(t->own_address, sizeof(t->own_address), "%s", address != NULL ? address : "");
}

/* Says what to try where one end speaks TLS and the other does not, or wants a certificate of us.
 * Where etcd has answered before, it has only gone in the middle of an exchange. */
static const char *hint_about_tls(const struct ct_etcd_transfer *t, CURLcode result)
{
    bool tls = strncmp(t->settings.urls[t->current], "https:", 6) == 0;
    if (t->answered) {
        return "";
    }
    if (tls && (result == CURLE_SSL_CONNECT_ERROR || result == CURLE_RECV_ERROR)) {
        return t->settings.cert[0] == '\0'
                   ? "; an etcd without TLS is at http://, and one that wants a certificate needs "
                     "ETCDCTL_CERT and ETCDCTL_KEY"
                   : "; an etcd without TLS is at http://";
    }
    return !tls && result == CURLE_GOT_NOTHING ? "; an etcd with TLS is at https://" : "";
}

static int explain(struct ct_etcd_transfer *t, CURLcode result, struct ct_err *err)
{
    const char *reason = t->error[0] != '\0' ? t->error : t->curl.easy_strerror(result);
    int len = (int)strlen(reason);
    while (len > 0 && reason[len - 1] == ' ') { /* a reason of OpenSSL may be empty behind it */
        len--;
    }
    if (t->no_memory || result == CURLE_OUT_OF_MEMORY) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    if (t->too_long) {
        return ct_err_set(err, CT_ELIMIT, CT_ETCD_REPLY_TOO_LONG, CT_ETCD_REPLY_MAX);
    }
    if (result == CURLE_OPERATION_TIMEDOUT) {
        return ct_err_set(err, CT_ETIMEDOUT, "no answer in time");
    }
    /* These are about our own files, which other endpoints would not get to see either. */
    if (result == CURLE_SSL_CACERT_BADFILE || result == CURLE_SSL_CERTPROBLEM) {
        return ct_err_set(err, CT_EINVAL, "cannot use the files of ETCDCTL_%s: %s",
                          result == CURLE_SSL_CERTPROBLEM ? "CERT and ETCDCTL_KEY" : "CACERT",
                          reason);
    }
    if (result == CURLE_PEER_FAILED_VERIFICATION) {
        return ct_err_set(err, CT_EPERM, "%s; see ETCDCTL_CACERT", reason);
    }
    return ct_err_set(err, CT_EIO, "%.*s%s", len, reason, hint_about_tls(t, result));
}

/* Gives the addresses of the current endpoint's name; NULL if it has none. */
static int find_addresses(struct ct_etcd_transfer *t, int64_t deadline_ns,
                          struct curl_slist **known, struct ct_err *err)
{
    struct ct_etcd_name *name = t->names[t->current];
    int64_t wait_ns = ct_deadline_in(NULL, t->limits.connect_ms);
    char line[CT_ETCD_NAME_MAX];
    *known = NULL;
    if (name == NULL) {
        return 0;
    }
    int rc = ct_etcd_name_get(name, wait_ns < deadline_ns ? wait_ns : deadline_ns, t->wake_fd, line,
                              err);
    if (rc != 0) {
        return rc;
    }
    *known = t->curl.slist_append(NULL, line);
    return *known != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

/* Posts a body to the current endpoint. Gives HTTP's status, and the reply in t->reply. CT_EIO and
 * others say why not, CT_EABORTED that the transfer is being closed. */
static int post(struct ct_etcd_transfer *t, const char *path, const struct ct_buf *body,
                int64_t deadline_ns, long *status, struct ct_err *err)
{
    struct curl_slist *known;
    int rc = find_addresses(t, deadline_ns, &known, err);
    if (rc != 0) {
        return rc;
    }
    int64_t now = ct_clock_now(NULL);
    int64_t left_ms = (deadline_ns - now) / CT_NS_PER_MS;
    int64_t timeout_ms = left_ms < t->limits.attempt_ms ? left_ms : t->limits.attempt_ms;
    if (timeout_ms <= 0) { /* 0 would mean without end */
        t->curl.slist_free_all(known);
        return ct_err_set(err, CT_ETIMEDOUT, "no time was left");
    }
    ct_buf_reset(&t->reply);
    t->too_long = t->no_memory = false;
    t->error[0] = '\0';
    struct curl_slist *headers = make_headers(t);
    CURLcode result = CURLE_OUT_OF_MEMORY;
    if (headers != NULL && set_up(t, path, body, headers, known, timeout_ms) &&
        t->curl.multi_add_handle(t->multi, t->easy) == CURLM_OK) {
        rc = wait_for_end(t, now + (timeout_ms + LOOK_MS) * CT_NS_PER_MS, &result);
        (void)t->curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, status);
        keep_own_address(t);
        (void)t->curl.multi_remove_handle(t->multi, t->easy);
    }
    t->curl.slist_free_all(headers);
    t->curl.slist_free_all(known);
    if (rc != 0) {
        return ct_err_set(err, rc, rc == CT_EABORTED ? "it was closed" : "no answer in time");
    }
    t->answered = t->answered || result == CURLE_OK;
    return result == CURLE_OK ? 0 : explain(t, result, err);
}

/* ---- one request at one endpoint ------------------------------------------------------------ */

static void forget_token(struct ct_etcd_transfer *t)
{
    if (t->token != NULL) {
        sodium_memzero(t->token, strlen(t->token));
        ct_free(t->token);
        t->token = NULL;
    }
}

static enum ct_etcd_next after_post(int rc)
{
    return rc == CT_ENOMEM || rc == CT_EINVAL || rc == CT_EABORTED ? CT_ETCD_GIVE_UP
                                                                   : CT_ETCD_ELSEWHERE;
}

static enum ct_etcd_next log_in(struct ct_etcd_transfer *t, int64_t deadline_ns, int *rc,
                                struct ct_err *err)
{
    struct ct_buf body = CT_BUF_INIT;
    long status = 0;
    forget_token(t);
    *rc = ct_etcd_message_login(t->settings.user, t->settings.password, &body);
    if (*rc != 0) {
        *rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    } else {
        *rc = post(t, ct_etcd_message_path(CT_ETCD_LOGIN), &body, deadline_ns, &status, err);
    }
    if (body.data != NULL) {
        sodium_memzero(body.data, body.cap);
    }
    ct_buf_fini(&body);
    if (*rc != 0) {
        return after_post(*rc);
    }
    enum ct_etcd_next next = ct_etcd_message_read_login(
        status, (const char *)ct_buf_bytes(&t->reply), t->reply.len, &t->token, rc, err);
    sodium_memzero(ct_buf_bytes(&t->reply), t->reply.len);
    return next;
}

/* Posts the request once and reads the reply. `attempts` and `sent_ns` are kept up. */
static enum ct_etcd_next ask(struct ct_etcd_transfer *t, const struct ct_etcd_request *request,
                             struct ct_etcd_reply *reply)
{
    int attempts = reply->attempts + 1;
    long status = 0;
    struct ct_err err;
    int64_t sent_ns = ct_clock_now(NULL);
    int rc = post(t, ct_etcd_message_path(request->call), &request->body, request->deadline_ns,
                  &status, &err);
    ct_etcd_reply_fini(reply);
    if (rc != 0) {
        *reply = (struct ct_etcd_reply){.rc = rc, .err = err, .attempts = attempts};
        return after_post(rc);
    }
    enum ct_etcd_next next =
        ct_etcd_message_read(request->call, &request->shape, status,
                             (const char *)ct_buf_bytes(&t->reply), t->reply.len, reply);
    reply->attempts = attempts;
    reply->sent_ns = next == CT_ETCD_DONE ? sent_ns : 0;
    memcpy(reply->own_address, t->own_address, sizeof(reply->own_address));
    return next;
}

/* The request at the current endpoint, with the logins that it needs. */
static enum ct_etcd_next attempt(struct ct_etcd_transfer *t, const struct ct_etcd_request *request,
                                 bool *renewed, struct ct_etcd_reply *reply)
{
    bool has_user = t->settings.user[0] != '\0';
    enum ct_etcd_next next = CT_ETCD_DONE;
    if (has_user && t->token == NULL) {
        next = log_in(t, request->deadline_ns, &reply->rc, &reply->err);
    }
    if (next == CT_ETCD_DONE) {
        next = ask(t, request, reply);
    }
    if (next == CT_ETCD_RELOGIN && has_user && !*renewed) {
        *renewed = true;
        next = log_in(t, request->deadline_ns, &reply->rc, &reply->err);
        if (next == CT_ETCD_DONE) {
            next = ask(t, request, reply);
        }
    }
    return next == CT_ETCD_RELOGIN ? CT_ETCD_GIVE_UP : next;
}

/* ---- one request ---------------------------------------------------------------------------- */

/* Appends "URL: reason" of an endpoint that did not answer. */
static void note_failure(struct ct_buf *reasons, const char *url, const char *reason)
{
    ct_buf_addf(reasons, "%s%s: %s", reasons->len > 0 ? "; " : "", url, reason);
}

/* An endpoint that is named may have moved if it does not answer. */
static void judge_name(struct ct_etcd_name *name, enum ct_etcd_next next)
{
    if (name != NULL && next == CT_ETCD_DONE) {
        ct_etcd_name_answered(name);
    } else if (name != NULL && next == CT_ETCD_ELSEWHERE) {
        ct_etcd_name_renew(name);
    }
}

/* What the caller is told when no endpoint has answered. */
static void report_failure(struct ct_etcd_transfer *t, const struct ct_etcd_request *request,
                           struct ct_buf *reasons, struct ct_etcd_reply *reply)
{
    const char *text = ct_buf_cstr(reasons);
    if (ct_clock_now(NULL) >= request->deadline_ns) {
        reply->rc = CT_ETIMEDOUT;
    }
    if (text == NULL) {
        reply->rc = ct_err_set(&reply->err, CT_ENOMEM, "out of memory");
    } else if (text[0] == '\0') {
        (void)ct_err_set(&reply->err, reply->rc,
                         "etcd: the requests before this one took all of its %" PRId64 " ms",
                         t->limits.request_ms);
    } else if (t->settings.num_urls == 1) {
        (void)ct_err_set(&reply->err, reply->rc, "etcd at %s", text);
    } else {
        (void)ct_err_set(&reply->err, reply->rc, "etcd: no endpoint has answered: %s", text);
    }
}

void ct_etcd_transfer_run(struct ct_etcd_transfer *t, const struct ct_etcd_request *request,
                          struct ct_etcd_reply *reply)
{
    struct ct_buf reasons = CT_BUF_INIT;
    bool renewed = false;
    enum ct_etcd_next next = CT_ETCD_ELSEWHERE;
    int rc = 0; /* of all endpoints; CT_EIO if they differ */
    memset(reply, 0, sizeof(*reply));
    for (int i = 0; i < t->settings.num_urls && next == CT_ETCD_ELSEWHERE; i++) {
        if (ct_clock_now(NULL) >= request->deadline_ns) {
            break;
        }
        next = attempt(t, request, &renewed, reply);
        judge_name(t->names[t->current], next);
        if (next == CT_ETCD_ELSEWHERE) {
            note_failure(&reasons, t->settings.urls[t->current], reply->err.text);
            t->current = (t->current + 1) % t->settings.num_urls;
            rc = i == 0 || rc == reply->rc ? reply->rc : CT_EIO;
        }
    }
    if (next == CT_ETCD_ELSEWHERE) {
        reply->rc = rc;
        report_failure(t, request, &reasons, reply);
    } else if (next == CT_ETCD_GIVE_UP) {
        (void)ct_err_wrap(&reply->err, "etcd at %s", t->settings.urls[t->current]);
    }
    ct_buf_fini(&reasons);
}

/* ---- life ----------------------------------------------------------------------------------- */

/* All names are looked up from the start, since a name server may be lost with a member of etcd. */
static int open_names(struct ct_etcd_transfer *t, struct ct_err *err)
{
    for (int i = 0; i < t->settings.num_urls; i++) {
        struct sockaddr_storage addr;
        struct ct_endpoint ep;
        socklen_t len;
        int rc = ct_endpoint_parse(strstr(t->settings.urls[i], "://") + 3, CT_ETCD_PORT, &ep, err);
        if (rc == 0 && !ct_addr_literal(ep.host, ep.port, &addr, &len)) {
            rc = ct_etcd_name_open(ep.host, ep.port, &t->names[i], err);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int ct_etcd_transfer_open(const struct ct_etcd_settings *settings,
                          const struct ct_etcd_limits *limits, const atomic_bool *closing,
                          int wake_fd, struct ct_etcd_transfer **out, struct ct_err *err)
{
    struct ct_etcd_transfer *t = ct_calloc(1, sizeof(*t));
    if (t == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_etcd_load(&t->curl, err);
    if (rc != 0) {
        ct_free(t);
        return rc;
    }
    t->settings = *settings;
    t->limits = *limits;
    t->closing = closing;
    t->wake_fd = wake_fd;
    t->multi = t->curl.multi_init();
    t->easy = t->curl.easy_init();
    rc = t->multi != NULL && t->easy != NULL ? open_names(t, err)
                                             : ct_err_set(err, CT_ENOMEM, "out of memory");
    if (rc != 0) {
        ct_etcd_transfer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

void ct_etcd_transfer_close(struct ct_etcd_transfer *t)
{
    if (t == NULL) {
        return;
    }
    if (t->easy != NULL) {
        t->curl.easy_cleanup(t->easy);
    }
    if (t->multi != NULL) {
        (void)t->curl.multi_cleanup(t->multi);
    }
    for (int i = 0; i < t->settings.num_urls; i++) {
        ct_etcd_name_close(t->names[i]);
    }
    forget_token(t);
    ct_buf_fini(&t->reply);
    ct_etcd_settings_fini(&t->settings);
    ct_free(t);
}
