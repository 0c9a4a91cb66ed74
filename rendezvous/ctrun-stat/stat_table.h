/* SPDX-License-Identifier: Apache-2.0
 *
 * The status document for people. Pure: a document that may be anything in, text out.
 */
#ifndef CT_RENDEZVOUS_CTRUN_STAT_STAT_TABLE_H
#define CT_RENDEZVOUS_CTRUN_STAT_STAT_TABLE_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

struct cJSON;

/* Tables are made for so many columns. A narrower terminal wraps their lines. */
#define CT_STAT_COLUMNS 80

/* With its NUL; longer lines are cut, wherever they go. */
#define CT_STAT_LINE_MAX 1024

/* Does this status call the store healthy? CT_EFORMAT when it is no status. */
CT_MUST_CHECK int ct_stat_verdict(const struct cJSON *status, bool *healthy);

/* Has another store answered now than the one of `last`, and does it know none of the jobs there?
 * `passed_s` is the time between the two answers. A store that lives on may get other jobs. */
bool ct_stat_is_replaced(const struct cJSON *last, const struct cJSON *now, double passed_s);

/* Does the status have a job of this run id? */
bool ct_stat_has_job(const struct cJSON *status, const char *run_id);

/* The state of a worker in a word: "hangs", or as the status says. Borrowed from it. */
const char *ct_stat_worker_state(const struct cJSON *job, const struct cJSON *worker);

/* For how long the job has hung, in seconds; -1 = it does not hang, or that is not told. */
double ct_stat_hang_s(const struct cJSON *job);

/* Writes a name or a reason, in which the status has escaped what is not printable ASCII (see
 * ctstatus(5)), as it is, and not cleaned; "?" if there is none. Returns `out`. */
const char *ct_stat_name(const struct cJSON *object, const char *field, char out[CT_STAT_LINE_MAX]);

/* Writes what has failed: "generation 0: rank 5 on gpu-2: ", and why. Cuts the name of a host that
 * would leave too little of `columns` for the reason, which is not cut: the result may have more
 * bytes than a line. */
#define CT_STAT_FAILURE_MAX (CT_STAT_LINE_MAX + 4)
void ct_stat_failure(const struct cJSON *failure, size_t columns, char out[CT_STAT_FAILURE_MAX]);

/* Writes the beginning of a text that fits into the columns, up to a blank if there is one. Returns
 * what comes on the next line; "" = nothing does. */
const char *ct_stat_line(const char *text, size_t columns, char out[CT_STAT_LINE_MAX]);

/* What comes before each problem. Its further lines are indented by as much. */
#define CT_STAT_PROBLEM "problem: "
#define CT_STAT_PROBLEM_MORE "         "

/* Appends a table; `where` is the address of the store. Problems that have more than `columns`, 80
 * or more, go on in the next line; other lines end with "..." then; SIZE_MAX = only those of
 * CT_STAT_LINE_MAX do. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_table(const struct cJSON *status, const char *where, size_t columns,
                                struct ct_buf *out);

/* Appends one line: "healthy", or "degraded: " and why, cut to the columns of a terminal; SIZE_MAX
 * = it is not cut. CT_ENOMEM. */
CT_MUST_CHECK int ct_stat_health(const struct cJSON *status, size_t columns, struct ct_buf *out);

#endif
