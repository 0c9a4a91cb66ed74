/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: connect, send one request, read until the announced length or the end of the
 * connection; after a 401 perhaps a second request. Failure modes: nobody listens, the deadline
 * passes, the answer is too long, is no HTTP or ends early. The descriptor is closed here; the
 * bytes belong to the caller.
 */
#include "rendezvous/wire/http_client.h"

#include "rendezvous/wire/sock.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Bytes asked from the kernel at once. */
#define CHUNK 16384

/* ---- the reply ------------------------------------------------------------------------------ */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads "HTTP/1.1 200". The words after it are for people. */
static int parse_first_line(const char *head, size_t len, int *code)
{
    static const char begin[] = "HTTP/1.";
    size_t n = sizeof(begin) - 1;
    if (len < n + 5 || memcmp(head, begin, n) != 0 || !is_digit(head[n]) || head[n + 1] != ' ') {
        return CT_EPROTO;
    }
    const char *digits = head + n + 2;
    if (!is_digit(digits[0]) || !is_digit(digits[1]) || !is_digit(digits[2])) {
        return CT_EPROTO;
    }
    *code = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
    return 0;
}

/* Returns the value if `line` is the header of this name, else NULL. */
static const char *header_value(const char *line, size_t len, const char *name, size_t *value_len)
{
    size_t n = strlen(name);
    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':') {
        return NULL;
    }
    const char *value = line + n + 1, *end = line + len;
    while (value < end && (*value == ' ' || *value == '\t')) {
        value++;
    }
    while (end > value && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    *value_len = (size_t)(end - value);
    return value;
}

static int parse_length(const char *digits, size_t count, size_t *out)
{
    size_t n = 0;
    if (count == 0) {
        return CT_EPROTO;
    }
    for (size_t i = 0; i < count; i++) {
        if (!is_digit(digits[i])) {
            return CT_EPROTO;
        }
        n = n * 10 + (size_t)(digits[i] - '0');
        if (n > CT_HTTP_REPLY_MAX) {
            return CT_ELIMIT;
        }
    }
    *out = n;
    return 0;
}

/* Reads the header lines, which end with CR LF. Without Content-Length out->len stays as it is. */
static int parse_headers(const char *head, size_t len, struct ct_http_reply *out)
{
    const char *line = head, *end = head + len;
    while (line < end) {
        const char *stop = memmem(line, (size_t)(end - line), "\r\n", 2);
        size_t line_len = (size_t)((stop != NULL ? stop : end) - line), value_len = 0;
        const char *value = header_value(line, line_len, "Content-Length", &value_len);
        int rc = value != NULL ? parse_length(value, value_len, &out->len) : 0;
        if (rc != 0) {
            return rc;
        }
        if (header_value(line, line_len, "Transfer-Encoding", &value_len) != NULL) {
            return CT_EPROTO;
        }
        value = header_value(line, line_len, "WWW-Authenticate", &value_len);
        if (value != NULL && out->challenge_len == 0) {
            out->challenge = (size_t)(value - head);
            out->challenge_len = value_len;
        }
        line += line_len + 2;
    }
    return 0;
}

int ct_http_reply_parse(const char *bytes, size_t len, bool ended, struct ct_http_reply *out,
                        struct ct_err *err)
{
    size_t window = len < CT_HTTP_REPLY_HEAD_MAX ? len : CT_HTTP_REPLY_HEAD_MAX;
    const char *gap = len > 0 ? memmem(bytes, window, "\r\n\r\n", 4) : NULL;
    if (gap == NULL) {
        if (len >= CT_HTTP_REPLY_HEAD_MAX) {
            return ct_err_set(err, CT_ELIMIT, "the head of the answer is too long");
        }
        return ended ? ct_err_set(err, CT_ECLOSED, "closed without an answer") : CT_HTTP_E_MORE;
    }
    const size_t unknown = SIZE_MAX;
    struct ct_http_reply reply = {.body = (size_t)(gap - bytes) + 4, .len = unknown};
    int rc = parse_first_line(bytes, reply.body - 4, &reply.code);
    if (rc == 0) {
        rc = parse_headers(bytes, reply.body - 4, &reply);
    }
    if (rc == CT_ELIMIT || (rc == 0 && reply.len == unknown && len > CT_HTTP_REPLY_MAX)) {
        return ct_err_set(err, CT_ELIMIT, "the answer is longer than %zu bytes", CT_HTTP_REPLY_MAX);
    }
    if (rc != 0) {
        return ct_err_set(err, rc, "the answer is not HTTP, or of an unknown kind");
    }
    size_t there = len - reply.body;
    if (there < reply.len && !ended) {
        return CT_HTTP_E_MORE;
    }
    if (reply.len == unknown) {
        reply.len = there; /* it lasts until the connection ends */
    }
    if (there < reply.len) {
        return ct_err_set(err, CT_ECLOSED, "the answer ended in the middle");
    }
    *out = reply;
    return 0;
}

/* ---- asking --------------------------------------------------------------------------------- */

static int send_request(int fd, const struct ct_endpoint *where,
                        const struct ct_http_request *request, const char *authorization,
                        bool is_last, int64_t deadline_ns, struct ct_err *err)
{
    struct ct_buf text = CT_BUF_INIT;
    char host[CT_ADDR_JOIN_MAX];
    ct_addr_join(where->host, where->port, host, sizeof(host));
    ct_buf_addf(&text, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", request->method, request->path, host,
                is_last ? "Connection: close\r\n" : "");
    if (authorization != NULL) {
        ct_buf_addf(&text, "Authorization: %s\r\n", authorization);
    }
    ct_buf_addf(&text, "%s\r\n",
                strcmp(request->method, "POST") == 0 ? "Content-Length: 0\r\n" : "");
    int rc = ct_buf_status(&text);
    if (rc != 0) {
        ct_buf_fini(&text);
        return ct_err_set(err, rc, "out of memory");
    }
    struct iovec iov = {ct_buf_bytes(&text), text.len};
    rc = ct_sock_send(fd, &iov, 1, deadline_ns, err);
    ct_buf_fini(&text);
    return rc;
}

static int receive_reply(int fd, int64_t deadline_ns, struct ct_buf *bytes,
                         struct ct_http_reply *out, struct ct_err *err)
{
    for (;;) {
        size_t got = 0;
        if (ct_buf_reserve(bytes, CHUNK) != 0) {
            return ct_err_set(err, CT_ENOMEM, "out of memory");
        }
        int rc = ct_sock_recv_some(fd, ct_buf_tail(bytes), CHUNK, deadline_ns, &got, err);
        if (rc != 0) {
            return rc;
        }
        bytes->len += got;
        rc = ct_http_reply_parse((const char *)ct_buf_bytes(bytes), bytes->len, got == 0, out, err);
        if (rc != CT_HTTP_E_MORE) {
            return rc;
        }
    }
}

/* Sends the request again with what the caller makes of the challenge. */
static int ask_again(int fd, const struct ct_endpoint *where, const struct ct_http_request *request,
                     int64_t deadline_ns, struct ct_buf *bytes, struct ct_http_reply *out,
                     struct ct_err *err)
{
    const char *authorization = NULL;
    const char *challenge = (const char *)ct_buf_bytes(bytes) + out->challenge;
    int rc =
        request->on_challenge(request->data, challenge, out->challenge_len, &authorization, err);
    ct_buf_reset(bytes);
    if (rc == 0) {
        rc = send_request(fd, where, request, authorization, true, deadline_ns, err);
    }
    return rc == 0 ? receive_reply(fd, deadline_ns, bytes, out, err) : rc;
}

int ct_http_ask(const struct ct_endpoint *where, const struct ct_http_request *request,
                int64_t deadline_ns, struct ct_buf *bytes, struct ct_http_reply *out,
                struct ct_err *err)
{
    int fd = -1;
    int rc = ct_sock_connect(where->host, where->port, deadline_ns, &fd, err);
    if (rc != 0) {
        return rc;
    }
    bool is_last = request->on_challenge == NULL;
    rc = send_request(fd, where, request, request->authorization, is_last, deadline_ns, err);
    if (rc == 0) {
        rc = receive_reply(fd, deadline_ns, bytes, out, err);
    }
    if (rc == 0 && out->code == 401 && !is_last) {
        rc = ask_again(fd, where, request, deadline_ns, bytes, out, err);
    }
    (void)close(fd);
    return rc;
}
