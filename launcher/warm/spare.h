/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages between ctrun and a program that offers a warm form of itself; docs/WARM.md has the
 * whole protocol. A message is one packet of a SOCK_SEQPACKET socket: a word, then fields, with a
 * zero byte between any two.
 */
#ifndef CT_LAUNCHER_WARM_SPARE_H
#define CT_LAUNCHER_WARM_SPARE_H

#include "common/err.h"

#include <stddef.h>

/* The descriptor of the socket in the program. */
#define CT_SPARE_FD 3

/* A plan is at most a little smaller. The kernel's default buffers hold several such packets. */
#define CT_SPARE_MESSAGE_MAX 65536

/* A spare is one process, or a wrapper and the interpreter for which it waits, and perhaps helpers
 * of the wrapper. */
#define CT_SPARE_PROCESSES_MAX 64

enum ct_spare_word {
    CT_SPARE_NOTHING, /* no message has come */
    CT_SPARE_GONE,    /* the other end is closed */
    CT_SPARE_READY,
    CT_SPARE_SET,
    CT_SPARE_PLAN,
    CT_SPARE_NO,
    CT_SPARE_UNKNOWN,
};

/* `text` is what follows the word, with a zero byte at its end. */
struct ct_spare_message {
    enum ct_spare_word word;
    char *text;
    size_t len;
    char bytes[CT_SPARE_MESSAGE_MAX + 1];
};

/* Makes the two ends of the socket, both CLOEXEC: [0] for ctrun, [1] for the program. */
CT_MUST_CHECK int ct_spare_pair(int out[2], struct ct_err *err);

/* Sends the fields (NULL-terminated; the first is the word) and `count` descriptors. Never waits.
 * CT_EIO, CT_ELIMIT. */
CT_MUST_CHECK int ct_spare_send(int fd, const char *const *fields, const int *fds, size_t count);

/* Takes the next message; never waits. Control characters of `text` become blanks, except in a
 * plan. */
void ct_spare_receive(int fd, struct ct_spare_message *out);

/* A file in memory with "NAME=value\0" for each variable, to be read from its beginning. Gives
 * *out. CT_ENOMEM, CT_EIO. */
CT_MUST_CHECK int ct_spare_environment(char *const *env, int *out, struct ct_err *err);

#endif
