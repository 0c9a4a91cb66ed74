/* SPDX-License-Identifier: Apache-2.0
 *
 * The job's cookie: a random environment variable by which a process is known to belong to this
 * run of ctrun, whatever became of its parents, group and session.
 */
#ifndef CT_LAUNCHER_PROCESS_COOKIE_H
#define CT_LAUNCHER_PROCESS_COOKIE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CT_COOKIE_NAME "CTRUN_JOB_COOKIE"

/* 128 random bits: nobody meets it by chance, and /proc/PID/environ is closed to other users. */
#define CT_COOKIE_HEX 32

struct ct_cookie {
    char env[sizeof(CT_COOKIE_NAME "=") + CT_COOKIE_HEX]; /* "CTRUN_JOB_COOKIE=<hex>" */
};

CT_MUST_CHECK int ct_cookie_new(struct ct_cookie *out, struct ct_err *err);

/* The string to put into the environment of every worker; borrowed from the cookie. */
static inline const char *ct_cookie_env(const struct ct_cookie *cookie)
{
    return cookie->env;
}

/* Looks for the whole entry in an environment block ("A=1\0B=2\0") that arrives in pieces. */
struct ct_cookie_match {
    const struct ct_cookie *cookie;
    size_t at; /* bytes of the current entry that agree so far */
    bool skip; /* the current entry has differed */
    bool found;
};

void ct_cookie_match_init(struct ct_cookie_match *match, const struct ct_cookie *cookie);
/* Returns whether the cookie has been found so far. */
bool ct_cookie_match_feed(struct ct_cookie_match *match, const char *bytes, size_t len);

/* Does the running process carry it? False also when its environment cannot be read, or when it
 * belongs to another user (unless we are root). Allocates nothing. */
bool ct_cookie_in_process(const struct ct_cookie *cookie, pid_t pid);

#endif
