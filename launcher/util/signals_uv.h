/* SPDX-License-Identifier: Apache-2.0
 *
 * The signals of --signals-to-handle on a libuv loop.
 */
#ifndef CT_LAUNCHER_UTIL_SIGNALS_UV_H
#define CT_LAUNCHER_UTIL_SIGNALS_UV_H

#include "common/err.h"
#include "common/log.h"
#include "launcher/util/signals.h"

#include <stddef.h>
#include <uv.h>

/* Zeroed memory watches nothing. */
struct ct_signals_watch {
    uv_signal_t handles[CT_SIGNALS_MAX];
    size_t count; /* handles that are initialised */
};

/* Calls `cb`, whose handle carries `data`, for each signal of `names` (see ct_signals_parse())
 * unless it was ignored before: nohup(1) and a shell's "&" ignore signals on the user's behalf.
 * After a failure there may be handles to close. CT_EIO. */
CT_MUST_CHECK int ct_signals_watch_open(struct ct_signals_watch *watch, uv_loop_t *loop,
                                        const char *names, const struct ct_log *log,
                                        uv_signal_cb cb, void *data, struct ct_err *err);

/* From now on each signal has its usual effect. The memory belongs to the loop until it has run;
 * repeated calls are allowed. */
void ct_signals_watch_close(struct ct_signals_watch *watch);

#endif
