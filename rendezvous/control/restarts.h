/* SPDX-License-Identifier: Apache-2.0
 *
 * When restarts have to end although --max-restarts would allow more: too many in a time, or
 * generations that come no further. Pure: the membership tells what happened and asks; it also
 * decides what follows. Times are milliseconds of any clock that does not go back.
 *
 * Progress: a generation makes progress if it completes a step that no generation before it has
 * completed. Only programs that report steps are judged (common/progress_page.h): as long as no
 * generation has completed a step, nothing is counted. A program may go back on purpose, to an
 * older checkpoint for example, and then takes long to come as far as before. So a generation that
 * begins before all others since the last new step is progress, too, and only what is reached from
 * then on counts. One that begins behind all of them is progress, because its checkpoint has moved
 * on.
 */
#ifndef CT_RENDEZVOUS_CONTROL_RESTARTS_H
#define CT_RENDEZVOUS_CONTROL_RESTARTS_H

#include "common/addr.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

struct cJSON;

/* The most restarts in a window: their times are kept. */
#define CT_RESTARTS_WINDOW_MAX 256
/* A year: no job is younger and still remembers its first restart. */
#define CT_RESTARTS_WINDOW_MAX_MS (INT64_C(365) * 24 * 3600 * 1000)
#define CT_RESTARTS_ROW_MAX 1000000

/* The longest pause before a restart, after failures at the start of several generations. */
#define CT_RESTART_PAUSE_MAX_MS 30000

/* What the user allows; all machines of a job must have the same. 0 = no limit. */
struct ct_restart_limits {
    int max_no_progress; /* generations in a row without progress */
    int window_restarts; /* restarts in any window of `window_ms` */
    int64_t window_ms;
    int ban_after; /* generations in a row that failed first on one machine, which is left out then
                    */
};

/* The machines that are left out, at most; an older one is forgotten then. */
#define CT_RESTARTS_LEFT_OUT_MAX 16

/* A host name proves nothing, and an address may belong to several names, so both have to be the
 * same. */
struct ct_machine_name {
    char host[CT_HOST_MAX], address[CT_HOST_MAX];
};

/* The steps that the workers of a machine completed in a generation. */
struct ct_steps {
    bool any;
    int64_t first, last; /* the step at which the first began, and the one that the last reached */
};

/* What has happened so far. Zeroed memory is a new job. */
struct ct_restarts {
    int64_t taken_ms[CT_RESTARTS_WINDOW_MAX]; /* ring; entry n is at n modulo its length */
    uint64_t taken;
    bool stepped;                  /* a generation has completed a step */
    int64_t high;                  /* the highest step */
    int64_t low, top;              /* the steps with which generations have begun since */
    int no_progress;               /* generations in a row */
    struct ct_machine_name blamed; /* on which the last generation failed first */
    int blames;                    /* in a row */
    struct ct_machine_name left_out[CT_RESTARTS_LEFT_OUT_MAX]; /* ring, as `taken_ms` */
    uint64_t num_left_out;
};

/* Is another restart at this time within the window's limit? */
bool ct_restarts_allowed(const struct ct_restarts *restarts, const struct ct_restart_limits *limits,
                         int64_t now_ms);

void ct_restarts_take(struct ct_restarts *restarts, int64_t now_ms);

/* To be called once for each generation that has failed. Returns how many generations in a row have
 * made no progress, with this one. */
int ct_restarts_judge(struct ct_restarts *restarts, const struct ct_steps *steps);

/* To be called once for each generation that has failed, with the machine on which it failed first.
 * Returns how many in a row have failed first there, with this one. */
int ct_restarts_blame(struct ct_restarts *restarts, const char *host, const char *address);

void ct_restarts_leave_out(struct ct_restarts *restarts, const char *host, const char *address);
bool ct_restarts_is_left_out(const struct ct_restarts *restarts, const char *host,
                             const char *address);

/* Are they in range? */
bool ct_restart_limits_are_sound(const struct ct_restart_limits *limits);

/* Returns NULL if both are the same, else the name of an option in which they differ. */
const char *ct_restart_limits_differ(const struct ct_restart_limits *one,
                                     const struct ct_restart_limits *other);

/* "10/24h", "3/90s"; "off" if there is no limit. */
#define CT_RESTARTS_WINDOW_TEXT 32
const char *ct_restart_limits_window(const struct ct_restart_limits *limits,
                                     char out[CT_RESTARTS_WINDOW_TEXT]);

/* Adds the member "limits" to a JOIN, unless there is no limit. CT_ENOMEM. */
CT_MUST_CHECK int ct_restart_limits_to_json(const struct ct_restart_limits *limits,
                                            struct cJSON *join);

/* The reverse; without the member there is no limit. CT_EFORMAT names the field. */
CT_MUST_CHECK int ct_restart_limits_from_json(const struct cJSON *join,
                                              struct ct_restart_limits *out, struct ct_err *err);

#endif
