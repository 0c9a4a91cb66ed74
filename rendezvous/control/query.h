/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions to agents: somebody wants to know something of one worker, its agent is asked (QUERY)
 * and answers later (RESULT). The table keeps the questions that are open. It bounds how many there
 * are, how many are asked in a second and how long each may take. Pure.
 */
#ifndef CT_RENDEZVOUS_CONTROL_QUERY_H
#define CT_RENDEZVOUS_CONTROL_QUERY_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

/* The name of what is asked, with its NUL. An agent refuses a kind that it does not know. */
#define CT_QUERY_KIND_MAX 32
/* The last lines of what the worker has written to stdout and stderr. */
#define CT_QUERY_OUTPUT "output"
/* Where the worker stands: the stacks of its threads. */
#define CT_QUERY_STACK "stack"
/* Where all workers of its machine stand, in words. */
#define CT_QUERY_STACKS "stacks"

/* Bytes of an answer; the end of a longer one is cut off. */
#define CT_QUERY_TEXT_MAX ((size_t)32768)

/* Questions that are open at a time, for all agents together. */
#define CT_QUERIES_OPEN 16
/* Questions of one second; so many more may come in a row after a pause. */
#define CT_QUERIES_PER_S 8
/* How long an agent may take. It is less than what an HTTP request may take. */
#define CT_QUERY_TIMEOUT_MS 3000

/* Called once for a question, unless it is withdrawn: 0 and the answer, or CT_ETIMEDOUT, CT_ECLOSED
 * (the agent has left), CT_EUNSUPPORTED (the agent refuses) and a text that says so. May call
 * ct_queries_begin(). */
typedef void (*ct_query_fn)(void *data, int code, const char *text);

/* Zeroed memory is an empty table. */
struct ct_queries {
    struct ct_query {
        const void *agent; /* who was asked; NULL = the place is free */
        int id;
        int64_t deadline_ns;
        ct_query_fn fn;
        void *data;
    } open[CT_QUERIES_OPEN];
    int last_id;
    int64_t paid_ns; /* the questions so far use up the rate until then */
};

/* Enters a question to `agent`, any pointer that stands for it. Gives *id, which is 1 or more.
 * CT_EBUSY: too many are open, or were asked in this second. */
CT_MUST_CHECK int ct_queries_begin(struct ct_queries *queries, const void *agent, int64_t now_ns,
                                   ct_query_fn fn, void *data, int *id, struct ct_err *err);

/* An answer has come. It is ignored if the question is closed or was put to another agent. */
void ct_queries_result(struct ct_queries *queries, const void *agent, int id, bool ok,
                       const char *text);

/* The agent has left. */
void ct_queries_gone(struct ct_queries *queries, const void *agent);

/* Withdraws the question. One that is closed is allowed. */
void ct_queries_forget(struct ct_queries *queries, int id);

/* Ends the questions whose time is over. */
void ct_queries_tick(struct ct_queries *queries, int64_t now_ns);

/* The time of the next ct_queries_tick(); INT64_MAX = none is needed. */
int64_t ct_queries_next(const struct ct_queries *queries);

#endif
