/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients are the other ends of socket pairs, so an answer that fits into the socket comes whole.
 */
#include "tests/lib/http_fixture.h"

#include "common/clock.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/http/status.h"
#include "tests/lib/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int give_status(void *data, struct ct_status_rows *rows, struct cJSON **out)
{
    const struct ct_status_facts facts = {.keys = 1};
    (void)data;
    return ct_status_make(&facts, NULL, NULL, rows, out);
}

const struct ct_http_source hf_source = {.status = give_status};

int hf_set_up(void **state)
{
    struct http_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    ct_loop_begin(&f->loop);
    *state = f;
    return 0;
}

void hf_open_with_log(struct http_fixture *f, int64_t request_ms, const struct ct_log *log)
{
    struct ct_err err = {0};
    assert_int_equal(ct_http_open(&f->loop, &hf_source, request_ms, log, &f->http, &err), 0);
    assert_non_null(f->http);
}

void hf_open(struct http_fixture *f, int64_t request_ms)
{
    hf_open_with_log(f, request_ms, NULL);
}

void hf_open_with_token(struct http_fixture *f, struct ct_page_key *key)
{
    struct ct_http_source with_key = hf_source;
    with_key.key = key;
    assert_int_equal(ct_http_open(&f->loop, &with_key, HF_LONG_MS, NULL, &f->http, NULL), 0);
    assert_non_null(f->http);
}

void hf_on_close(void *data)
{
    *(bool *)data = true;
}

void hf_close(struct http_fixture *f)
{
    ct_http_close(f->http, hf_on_close, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
    ct_loop_end(&f->loop);
    free(f);
}

int hf_add_of(struct http_fixture *f, bool ours, bool admitted)
{
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    int rc = ct_http_add(f->http, fds[0], ours, admitted, NULL);
    if (rc != 0) {
        assert_int_equal(rc, CT_EBUSY);
        (void)close(fds[0]);
    }
    return fds[1];
}

int hf_add(struct http_fixture *f, bool admitted)
{
    return hf_add_of(f, admitted, admitted);
}

const char *hf_hear(struct http_fixture *f, int fd, char *text, size_t size)
{
    int64_t deadline = ct_deadline_in(NULL, HF_LONG_MS);
    for (;;) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        ssize_t n = recv(fd, text, size - 1, MSG_DONTWAIT);
        if (n >= 0 || errno == ECONNRESET) {
            text[n > 0 ? n : 0] = '\0';
            return text;
        }
        assert_true(ct_clock_now(NULL) < deadline);
    }
}

void hf_tell(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
}

void hf_expect(struct http_fixture *f, int fd, const char *begin)
{
    char text[4096];
    assert_memory_equal(hf_hear(f, fd, text, sizeof(text)), begin,
                        strlen(begin) + (*begin == '\0'));
}

void hf_expect_within(struct http_fixture *f, int fd, const char *wanted)
{
    char got[4096] = "", piece[512];
    while (strstr(got, wanted) == NULL) {
        const char *more = hf_hear(f, fd, piece, sizeof(piece));
        size_t len = strlen(got);
        assert_true(*more != '\0' && len + strlen(more) < sizeof(got));
        (void)snprintf(got + len, sizeof(got) - len, "%s", more);
    }
}

struct ct_http_stats hf_stats(const struct http_fixture *f)
{
    struct ct_http_stats out;
    ct_http_stats(f->http, &out);
    return out;
}
