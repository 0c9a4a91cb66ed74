/* SPDX-License-Identifier: Apache-2.0
 *
 * The hangs of a job as one machine has told them, for --report. Pure.
 */
#ifndef CT_LAUNCHER_REPORT_HANG_LOG_H
#define CT_LAUNCHER_REPORT_HANG_LOG_H

#include "common/buf.h"
#include "common/err.h"
#include "rendezvous/control/control.h"
#include "rendezvous/control/hang_vote.h"

#include <stdbool.h>
#include <stdint.h>

/* A job that hangs again and again mostly does so in one place. */
#define CT_HANG_LOG_KEPT 16

#define CT_HANG_PLACE_MAX 160

struct ct_hang_record {
    int generation;
    int rank;               /* the one that holds the job up; -1 = none stands out */
    char host[CT_HOST_MAX]; /* its machine; "" = not known, or none stands out */
    int64_t time_ms;        /* when it was told, in Unix time */
    int64_t for_ms;         /* for how long no rank made progress */
    bool over;              /* the ranks went on by themselves */
    bool failed;            /* a worker of this machine failed in it */
    bool killed;            /* ctrun killed the rank, or if none stands out one of its ranks */
    char why[CT_HANG_WHY_MAX];
    char at[CT_HANG_PLACE_MAX];        /* where the rank stood in its program; "" = not known */
    char operation[CT_HANG_PLACE_MAX]; /* collectives in which ranks of this machine waited */
};

/* Zeroed memory is empty. */
struct ct_hang_log {
    struct ct_hang_record kept[CT_HANG_LOG_KEPT]; /* record n is at n % CT_HANG_LOG_KEPT */
    uint64_t count;
    struct ct_hang_record none; /* what is noted of a hang that this machine has not told */
};

/* Adds a record with these fields, which is copied. */
void ct_hang_log_add(struct ct_hang_log *log, const struct ct_hang_record *record);

/* The last record, to be changed while its hang lasts. If there is none, one that is not shown. */
struct ct_hang_record *ct_hang_log_last(struct ct_hang_log *log);

struct cJSON;

/* Adds the fields "hangs" and "hang_count" (man/ctreport.5). CT_ENOMEM. */
CT_MUST_CHECK int ct_hang_log_to_json(const struct ct_hang_log *log, struct cJSON *root);

/* Appends a line for each of the last hangs, for the screen. Returns ct_buf_status(out). */
int ct_hang_log_text(const struct ct_hang_log *log, const char *prefix, struct ct_buf *out);

#endif
