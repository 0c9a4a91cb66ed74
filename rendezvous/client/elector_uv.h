/* SPDX-License-Identifier: Apache-2.0
 *
 * One agent's part in the choice of a new host, on a loop: the election
 * (rendezvous/election/election.h) with its timer and its questions to other agents. The owner has
 * the link to the host and, if it is elected, the membership.
 */
#ifndef CT_RENDEZVOUS_CLIENT_ELECTOR_UV_H
#define CT_RENDEZVOUS_CLIENT_ELECTOR_UV_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/control/control.h"
#include "rendezvous/election/election.h"
#include "rendezvous/etcd/etcd_settings.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct ct_elector;

struct ct_elector_options {
    const struct ct_token *token; /* borrowed until closed */
    const struct ct_log *log;     /* borrowed, may be NULL */
    uint64_t id;                  /* of this agent: random, 1 to 2^53 - 1 */
    int64_t lease_ms;             /* the longest lease of a host */
    int64_t give_up_ms;           /* how long a host is sought */
    const char *run_id;           /* borrowed until closed */
    /* Where the job met first. A later host tells the one that listens there, which may be another
     * life of the first host, where the job is now. Borrowed until closed; port 0 = nobody is told.
     */
    const char *first_host;
    uint16_t first_port;
    /* Where the job's arbiter is; NULL = it has none. Copied. Then these five are called, too, and
     * also inside a call of the functions below. */
    const struct ct_etcd_settings *etcd;
    /* See arbiter_uv.h. */
    void (*on_met)(void *data, const char *own_address);
    /* As host: the arbiter has pledged this version of the record, by a request that was sent at
     * `sent_ns`; or it does not answer, or is somebody else's. */
    void (*on_served)(void *data, uint64_t term, uint64_t version, int64_t sent_ns);
    void (*on_unserved)(void *data);
    /* As host: does that agent stand in no election any more? */
    bool (*is_void)(void *data, uint64_t id);
    /* etcd cannot be used, and why; NULL = it can again. See arbiter_uv.h. */
    void (*on_trouble)(void *data, const char *why, bool refused);
    /* What is to be done, after a call of the functions below or a message of another agent; never
     * inside such a call. `host` comes after `stop_hosting`. */
    void (*on_todo)(void *data, const struct ct_election_todo *todo);
    void *data;
};

/* Gives *out. CT_ENOMEM; with an arbiter the errors of ct_etcd_arbiter_open(), too. */
CT_MUST_CHECK int ct_elector_open(uv_loop_t *loop, const struct ct_elector_options *options,
                                  struct ct_elector **out, struct ct_err *err);

const struct ct_election *ct_elector_state(const struct ct_elector *elector);

/* Where other agents reach this one, for the answers; "" = the address is not known. */
void ct_elector_set_self(struct ct_elector *elector, const char *address, uint16_t port);

/* The functions of election.h of the same names, at the present time. */
void ct_elector_begin_hosting(struct ct_elector *elector);
void ct_elector_seek(struct ct_elector *elector, int64_t give_up_ms);
bool ct_elector_followed(struct ct_elector *elector, const struct ct_voter *host, uint64_t term);
/* Takes effect when this agent has connected to that host and found that it hosts in this term.
 * Until then, and if it does not host, this agent goes on as it was. */
void ct_elector_told(struct ct_elector *elector, const struct ct_voter *host, uint64_t term);
void ct_elector_leased(struct ct_elector *elector, int64_t sent_ns, int64_t lease_ms);
bool ct_elector_recorded(struct ct_elector *elector, const struct ct_job_record *record);
void ct_elector_lost(struct ct_elector *elector);
void ct_elector_deposed(struct ct_elector *elector);

/* Gives the voters on record that have answered, at the places where they did, and are not known to
 * be dead. Returns their number. */
int ct_elector_reached(const struct ct_elector *elector, struct ct_voter out[CT_VOTERS_BOTH]);

/* As host in a job with an arbiter: this record is to be pledged. It is copied. */
void ct_elector_serve(struct ct_elector *elector, const struct ct_job_record *record);

/* Has the arbiter, if there is one, that record, or can it not be asked now? */
bool ct_elector_is_settled(const struct ct_elector *elector);

/* Fills in a zeroed VOTE. It borrows from the elector. */
void ct_elector_asked(struct ct_elector *elector, const struct ct_vote_ask *ask,
                      struct ct_msg *vote);

/* Asks and answers nothing any more, and frees it later. NULL is allowed. */
void ct_elector_close(struct ct_elector *elector);

#endif
