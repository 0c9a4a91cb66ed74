/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the command of --health-check once, with a deadline.
 */
#ifndef CT_LAUNCHER_AGENT_HEALTH_CHECK_UV_H
#define CT_LAUNCHER_AGENT_HEALTH_CHECK_UV_H

#include "common/err.h"

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Bytes kept of what the command wrote last: enough for some lines. */
#define CT_HEALTH_TAIL_MAX 2048
#define CT_HEALTH_WHY_MAX 256

struct ct_health_check;

/* `why` is "" if the machine is fit, else what is wrong, such as "its health check exited with code
 * 3". `tail` is what the command wrote last, on either stream. Both are borrowed. */
typedef void (*ct_health_done_fn)(void *data, const char *why, const char *tail);

/* Everything is borrowed for the call, but `data`. */
struct ct_health_options {
    const char *command; /* for /bin/sh -c */
    char *const *env;    /* of the command */
    int64_t timeout_ms;
    ct_health_done_fn done; /* called once, unless the check is cancelled; never inside of a call */
    void *data;
};

/* Gives *out, which frees itself after `done` or ct_health_check_cancel(). CT_ENOMEM, and whatever
 * ct_spawn() returns. Call it on the thread that lives as long as the process. */
CT_MUST_CHECK int ct_health_check_start(uv_loop_t *loop, const struct ct_health_options *options,
                                        struct ct_health_check **out, struct ct_err *err);

/* Kills the command; `done` is not called. NULL is allowed. */
void ct_health_check_cancel(struct ct_health_check *check);

#endif
