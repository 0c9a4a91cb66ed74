/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat --watch on a terminal: asks every second, shows the screen of stat_screen.h, takes
 * keys, and leaves the terminal as it was.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_WATCH_UV_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_WATCH_UV_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>

struct ct_stat_watch_options {
    struct ct_endpoint where;
    int timeout_s;
    int out_fd; /* a terminal */
    int in_fd;  /* keys come from it if it is a terminal */
};

/* How it ended. */
struct ct_stat_watched {
    bool ended;   /* the store has gone; the last words are printed */
    bool healthy; /* as it said last */
    int signo;    /* asked to end by this signal; 0 = by a key or because of `ended` */
};

/* Returns when the user quits or the store has gone. Fails if the first question gets no answer;
 * then nothing was shown. */
CT_MUST_CHECK int ct_stat_watch_run(const struct ct_stat_watch_options *options,
                                    struct ct_stat_watched *out, struct ct_err *err);

#endif
