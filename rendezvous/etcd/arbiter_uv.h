/* SPDX-License-Identifier: Apache-2.0
 *
 * The arbiter of a job (rendezvous/election/arbiter.h) in etcd, for one agent: it answers the
 * questions of this agent's election, and serves this agent while it hosts the job.
 *
 * The value is kept at /ctrun/JOB/arbiter, with a lease of ten minutes that the agent which wrote
 * it last keeps alive. So it goes when the last host of the job has been gone for ten minutes.
 */
#ifndef CT_RENDEZVOUS_ETCD_ARBITER_UV_H
#define CT_RENDEZVOUS_ETCD_ARBITER_UV_H

#include "common/err.h"
#include "rendezvous/election/arbiter.h"
#include "rendezvous/etcd/etcd_settings.h"

#include <stdint.h>
#include <uv.h>

/* None of these is called inside a call of the functions below. */
struct ct_etcd_arbiter_options {
    const struct ct_etcd_settings *settings; /* copied */
    const char *run_id;                      /* copied */
    int64_t lease_ms;                        /* the longest lease of a host */
    /* Etcd has shown the value, or that there is none, for the first time. No answer and no pledge
     * comes before. `own_address` is this machine's on the connection to etcd. */
    void (*on_met)(void *data, const char *own_address);
    /* To a question that was not taken back. It borrows from the arbiter, for the call. */
    void (*on_answer)(void *data, const struct ct_vote_answer *answer);
    /* It has pledged this version of this agent's record, by a request sent at `sent_ns`. */
    void (*on_served)(void *data, uint64_t term, uint64_t version, int64_t sent_ns);
    /* It does not serve this host now: it cannot be reached, which is said once, or, if `bound`, it
     * belongs to a later host or candidate, which is said at each beat. */
    void (*on_unserved)(void *data, bool bound);
    /* Is this agent, which has had the arbiter's vote, known to stand no more? */
    bool (*is_void)(void *data, uint64_t id);
    /* Is the process of this agent, which the arbiter has heard as host, known to be dead? */
    bool (*is_dead)(void *data, uint64_t id);
    /* etcd cannot be used, for this reason; NULL = it can again. Called at each change. `refused`:
     * it has never let this agent see the value, and the user has to do something: a login, a
     * certificate, a file. */
    void (*on_trouble)(void *data, const char *why, bool refused);
    void *data;
};

struct ct_etcd_arbiter;

/* As ct_etcd_open(). CT_EINVAL: the run id makes no key. */
CT_MUST_CHECK int ct_etcd_arbiter_open(uv_loop_t *loop,
                                       const struct ct_etcd_arbiter_options *options,
                                       struct ct_etcd_arbiter **out, struct ct_err *err);

/* The newest question takes the place of one that is not answered. ask NULL = none is left. There
 * is no answer while etcd cannot be used. */
void ct_etcd_arbiter_ask(struct ct_etcd_arbiter *arbiter, const struct ct_vote_ask *ask);

/* This agent hosts the job as `self`, with this record. It is written now and then at each beat, a
 * sixth of a lease, until the next call. record NULL = it hosts no more. */
void ct_etcd_arbiter_serve(struct ct_etcd_arbiter *arbiter, const struct ct_voter *self,
                           const struct ct_job_record *record);

/* Has what this host has said last been written, or can it not be now? */
bool ct_etcd_arbiter_is_settled(const struct ct_etcd_arbiter *arbiter);

/* Calls nothing any more, and frees it later. NULL is allowed. */
void ct_etcd_arbiter_close(struct ct_etcd_arbiter *arbiter);

#endif
