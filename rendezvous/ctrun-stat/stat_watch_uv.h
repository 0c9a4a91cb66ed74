/* SPDX-License-Identifier: Apache-2.0
 *
 * ctrun-stat --watch: asks every second until the user quits or the job has ended. On a terminal it
 * shows the screen of stat_screen.h, takes keys, and leaves the terminal as it was.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_WATCH_UV_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_WATCH_UV_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>

struct cJSON;
struct ct_token;

struct ct_stat_watch_options {
    struct ct_endpoint where;
    const struct ct_token *token; /* to prove to a store that does not admit us; NULL = none */
    int timeout_s;
    int out_fd; /* a terminal, if there is no `print` */
    int in_fd;  /* keys come from it if it is a terminal */
    /* Prints each answer, in place of the screen; a failure ends the watch. Then signals have their
     * usual effect. */
    int (*print)(void *data, const struct cJSON *status, struct ct_err *err);
    /* Says why no answer has come, once until there is one again: with `print`, and before the
     * first answer. A failure ends the watch, too. */
    int (*print_silence)(void *data, const struct ct_err *why, struct ct_err *err);
    /* Prints the last words; `verdict` is the object of /end, NULL = it is not known. NULL = as on
     * a terminal. */
    int (*print_end)(void *data, const struct cJSON *verdict, struct ct_err *err);
    void *data;
};

/* How it ended. */
struct ct_stat_watched {
    bool ended;     /* the job or the store has ended; the last words are printed */
    bool is_known;  /* the store has said how the job ended */
    bool replaced;  /* ended, not known: the store of another job has the address now */
    bool succeeded; /* as it said */
    bool healthy;   /* as it said before */
    bool seen;      /* an answer was shown */
    int signo;      /* asked to end by this signal; 0 = by a key or because of `ended` */
};

/* Returns when the user quits, the job has ended or the store has gone. Fails if there is no store
 * at first; then nothing was shown. One that does not answer in time, or whose machine cannot be
 * reached, is asked again. */
CT_MUST_CHECK int ct_stat_watch_run(const struct ct_stat_watch_options *options,
                                    struct ct_stat_watched *out, struct ct_err *err);

#endif
