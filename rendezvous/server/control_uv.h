/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's side of agent control. It takes sockets whose first byte is CT_CONTROL_FIRST_BYTE,
 * lets their peers prove the token, and carries messages to and from the membership core of the job
 * that a peer names. There is one core for each run id; a store that ctrun hosts has one job.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONTROL_UV_H
#define CT_RENDEZVOUS_SERVER_CONTROL_UV_H

#include "common/err.h"
#include "common/log.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/members/members.h"
#include "rendezvous/server/control_station_uv.h"

#include <stdbool.h>
#include <uv.h>

struct ct_arbiter_pledge;
struct ct_control;

struct ct_control_options {
    const struct ct_token *token; /* borrowed; NULL = agents need none */
    /* Only this job; NULL = any (ctrdzvd). Borrowed. */
    const char *run_id;
    const struct ct_msg_join *job; /* as in ct_members_options; borrowed until closed */
    const char *const *expected;   /* as in ct_members_options; borrowed until closed */
    int num_expected;
    bool keep_job; /* its status stays when its last agent has left */
    const struct ct_log *log;
    size_t max_pending;       /* limit of connections whose peer has not proved the token yet */
    struct ct_budget *budget; /* counts the memory that agents make us use; NULL = no limit */
    /* Called with true when an agent at `peer` has proved the token, so that its address may use
     * the store, and with false when that agent has left, unless the first call has returned false:
     * then there was no memory to admit it. May be NULL. */
    bool (*on_admit)(void *data, const struct sockaddr *peer, bool yes);
    void *data;
    /* Called when an agent has become a member. May be NULL. */
    void (*on_join)(void *data, const struct ct_msg_join *join);
    void *join_data;
    /* The part of this process in the choice of a host; NULL = it has none. Borrowed until closed.
     */
    const struct ct_control_station *station;
};

/* Gives *out. CT_ENOMEM. */
CT_MUST_CHECK int ct_control_open(uv_loop_t *loop, const struct ct_control_options *options,
                                  struct ct_control **out, struct ct_err *err);

/* Begins to host jobs that outlive this host. Before that, a control with a station takes no agent
 * as a member. `failover` is copied; what it points to is borrowed until the first agent has
 * joined.
 */
void ct_control_host(struct ct_control *control, const struct ct_members_failover *failover);

/* Ends what ct_control_host() has begun: all members lose their connections. Those that have had no
 * world cannot ask for another host, so they are told who it is: `next`, NULL = unknown. */
void ct_control_unhost(struct ct_control *control, const struct ct_voter *next);

/* The arbiter has pledged; NULL = it does not serve this host (see members.h). */
void ct_control_arbiter(struct ct_control *control, const struct ct_arbiter_pledge *pledge);

/* Does this agent stand in no election any more, as a job here knows? */
bool ct_control_stands_no_more(const struct ct_control *control, uint64_t id);

/* The members of this job are told to go to `next`, if the job has had no world and outlives its
 * host. */
void ct_control_move(struct ct_control *control, const char *run_id, const struct ct_voter *next);

/* Takes a socket from which nothing has been read. If it is `trusted`, its other end is in this
 * process and begins with JOIN. */
void ct_control_take(struct ct_control *control, int fd, bool trusted);

/* Adds the jobs to the status: one job as `job`, several as the array `jobs`. CT_ENOMEM. */
CT_MUST_CHECK int ct_control_status(const struct ct_control *control, struct ct_status_rows *rows,
                                    struct cJSON *root, struct cJSON *problems);

/* Asks the agent of a worker, named by the `number` of its job in the status and its rank. `fn` is
 * called later, not inside this call, unless the question is withdrawn. Gives *id. CT_ENOENT (no
 * agent has this rank), CT_EUNSUPPORTED (its ctrun is too old), CT_EBUSY, CT_ENOMEM. */
CT_MUST_CHECK int ct_control_ask(struct ct_control *control, int job, int rank, const char *kind,
                                 ct_query_fn fn, void *data, int *id, struct ct_err *err);

/* Withdraws the question. One that is closed is allowed. */
void ct_control_forget(struct ct_control *control, int id);

/* Is any agent still connected? */
bool ct_control_busy(const struct ct_control *control);

/* Ends and frees everything, then calls cb. NULL is allowed and calls cb at once. */
void ct_control_close(struct ct_control *control, void (*cb)(void *data), void *data);

#endif
