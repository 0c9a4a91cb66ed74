/* SPDX-License-Identifier: Apache-2.0
 *
 * The store's server and raw clients of it on one thread: the loop is turned until a client has
 * what it waits for, so every order of events is the test's choice. Every function fails the
 * calling test instead of returning an error, and no wait lasts longer than 20 s.
 */
#ifndef CT_TESTS_LIB_SERVER_FIXTURE_H
#define CT_TESTS_LIB_SERVER_FIXTURE_H

#include "tests/lib/ct_test.h"

#include "common/log.h"
#include "rendezvous/server/server_uv.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <uv.h>

/* Requests and replies, as string literals; SF_B() gives one and its length. */
#define SF_Z7 "\0\0\0\0\0\0\0"
#define SF_HELLO "\x00\xce\xf7\x85\x3c"
#define SF_PING "\x0d\x01\x02\x03\x04"
#define SF_PONG "\x01\x02\x03\x04"
#define SF_SET_K_V "\x01\x02" SF_Z7 "/k\x01" SF_Z7 "v"
#define SF_GET_K "\x03\x02" SF_Z7 "/k"
#define SF_WAIT_K "\x06\x01" SF_Z7 "\x02" SF_Z7 "/k"
#define SF_VALUE_V "\x01" SF_Z7 "v"
#define SF_B(text) (text), sizeof(text) - 1

struct server_fixture {
    uv_loop_t loop;
    struct ct_server *server;
    struct ct_log log;
    char last_warning[CT_LOG_LINE_MAX];
    int warnings; /* how many there were */
    bool closed;
};

/* For cmocka: a server on a port of the kernel's choice; at the end the loop must close clean. */
int ct_sf_set_up(void **state);
int ct_sf_tear_down(void **state);

/* One turn of the loop, without waiting. */
void ct_sf_turn(struct server_fixture *f);

/* A connected, blocking socket. The second form gives -1 when the address cannot be reached. */
int ct_sf_client(struct server_fixture *f);
int ct_sf_client_at(const struct sockaddr *addr, socklen_t len);

/* Sends from a blocking socket: only what fits into the kernel's buffers. */
void ct_sf_tell(int fd, const char *bytes, size_t len);

/* Receives up to `len` bytes, turning the loop; returns how many came before the stream ended. */
size_t ct_sf_hear(struct server_fixture *f, int fd, char *out, size_t len);

/* Receives exactly these bytes (at most 256). */
void ct_sf_expect(struct server_fixture *f, int fd, const char *want, size_t len);

/* Nothing but the end of the stream comes; closes `fd`. */
void ct_sf_expect_end(struct server_fixture *f, int fd);

struct ct_server_stats ct_sf_stats(struct server_fixture *f);
void ct_sf_until_connections(struct server_fixture *f, size_t want);
void ct_sf_until_waiters(struct server_fixture *f, size_t want);

#endif
