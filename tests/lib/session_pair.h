/* SPDX-License-Identifier: Apache-2.0
 *
 * A store and the sessions of two clients, driven byte by byte without a socket. Every function
 * but pair_open fails the calling test instead of returning an error.
 */
#ifndef CT_TESTS_LIB_SESSION_PAIR_H
#define CT_TESTS_LIB_SESSION_PAIR_H

#include "tests/lib/ct_test.h"

#include "rendezvous/store/session.h"

/* What requests are written with: the upper bytes of a length below 256, and the greeting. */
#define Z7 "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"
#define B(text) (text), sizeof(text) - 1

struct peer {
    struct ct_session session;
    int woken; /* how often there was something for it that it had not asked for just now */
};

struct session_pair {
    struct ct_store *store;
    struct ct_service service;
    struct peer a, b;
};

/* For cmocka: *state is a struct session_pair. */
int pair_set_up(void **state);
int pair_tear_down(void **state);

/* The same where memory may run out. 0 or CT_ENOMEM, and then there is nothing to close. */
int pair_open(struct session_pair *pair);
void pair_close(struct session_pair *pair);

/* Requests that must be accepted. */
void feed(struct peer *peer, const char *bytes, size_t len);

/* All unsent replies, exactly. */
void expect(struct peer *peer, const char *want, size_t len);

/* Moves all unsent replies to the end of `out`. */
void take(struct peer *peer, struct ct_buf *out);

#endif
