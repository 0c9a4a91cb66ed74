/* SPDX-License-Identifier: Apache-2.0
 *
 * The HTTP server of a store and raw clients of it on one thread: the loop is turned until a client
 * has what it waits for. Every function fails the calling test instead of returning an error, and
 * no wait lasts longer than 20 s.
 */
#ifndef CT_TESTS_LIB_HTTP_FIXTURE_H
#define CT_TESTS_LIB_HTTP_FIXTURE_H

#include "tests/lib/ct_test.h"

#include "rendezvous/http/http_uv.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct ct_page_key;

/* Far beyond what anything here takes. */
#define HF_LONG_MS 20000

#define HF_GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

struct http_fixture {
    uv_loop_t loop;
    struct ct_http *http;
    bool closed;
};

/* Has a status without a job. */
extern const struct ct_http_source hf_source;

/* The set-up of a test; hf_close() frees *state. */
int hf_set_up(void **state);

/* Opens `http`: that of hf_source, with a log, or in a job with a token. */
void hf_open(struct http_fixture *f, int64_t request_ms);
void hf_open_with_log(struct http_fixture *f, int64_t request_ms, const struct ct_log *log);
void hf_open_with_token(struct http_fixture *f, struct ct_page_key *key);

/* Sets the bool at `data`, for ct_http_close(). */
void hf_on_close(void *data);

/* Closes `http` and the loop, and frees `f`. */
void hf_close(struct http_fixture *f);

/* Gives the server a connection and returns the client's end, which the caller closes. */
int hf_add_of(struct http_fixture *f, bool ours, bool admitted);
int hf_add(struct http_fixture *f, bool admitted);

/* Turns the loop until `fd` has something: its first bytes as text, "" at the end of the stream. */
const char *hf_hear(struct http_fixture *f, int fd, char *text, size_t size);

void hf_tell(int fd, const char *text);

/* Wants an answer that begins so; "" = the end of the stream. */
void hf_expect(struct http_fixture *f, int fd, const char *begin);

/* Reads until `wanted` has come, in as many pieces as it takes. */
void hf_expect_within(struct http_fixture *f, int fd, const char *wanted);

struct ct_http_stats hf_stats(const struct http_fixture *f);

#endif
