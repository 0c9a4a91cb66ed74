/* SPDX-License-Identifier: Apache-2.0
 *
 * The screen of ctrun-stat --watch. Pure: a status document that may be anything, and what the user
 * has chosen by keys, in; the lines of one window out.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_SCREEN_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_SCREEN_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

struct cJSON;
struct ct_page_history;

/* The order of the rows of workers; those that have failed or hang always come first. */
enum ct_stat_sort {
    CT_STAT_BY_RANK,
    CT_STAT_BY_STEP, /* the slowest first */
    CT_STAT_BY_AGE,  /* silent for longest first */
    CT_STAT_BY_STATE,
    CT_STAT_SORTS,
};

struct ct_stat_view {
    size_t rows, columns; /* of the window */
    enum ct_stat_sort sort;
    bool apart;     /* a row for each worker; else one for all that are equal */
    int top;        /* the row of the table that is shown first; ct_stat_screen() limits it */
    int page;       /* rows of the table that fit, as ct_stat_screen() found */
    char escape[4]; /* the beginning of an escape sequence of a key */
    size_t escape_len;
    const struct ct_page_history *losses; /* what has been seen of them; borrowed, NULL = nothing */
};

/* Takes a byte that the user has typed. Returns whether it asks to quit. */
bool ct_stat_screen_key(struct ct_stat_view *view, char key);

/* Appends at most view->rows lines of at most view->columns columns, joined by '\n', without
 * control characters. `where` is the address of the store; `note`, "" = none, takes the place of
 * the help for keys. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_screen(const struct cJSON *status, const char *where, const char *note,
                                 struct ct_stat_view *view, struct ct_buf *out);

/* Appends lines that say how the job has ended. `verdict` is the object of /end; NULL = it is not
 * known, and the lines say how each job of the last status stood when its store went away.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_screen_end(const struct cJSON *status, const struct cJSON *verdict,
                                     const char *where, struct ct_buf *out);

#endif
