/* SPDX-License-Identifier: Apache-2.0
 *
 * What a station says on its connections: an agent that other agents can ask who is the host, and
 * that may become the host itself (docs/FAILOVER.md). Or a ctrdzvd, which hosts jobs until it is
 * lost. The connections are those of control_uv.h.
 */
#ifndef CT_RENDEZVOUS_SERVER_CONTROL_STATION_UV_H
#define CT_RENDEZVOUS_SERVER_CONTROL_STATION_UV_H

#include "rendezvous/control/channel_uv.h"
#include "rendezvous/control/control.h"
#include "rendezvous/members/members.h"
#include "rendezvous/server/death_probe_uv.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct ct_control_station {
    const char *name; /* of this machine */
    /* Somebody who has the token asks. Fills in *vote, a zeroed VOTE. What it points to is borrowed
     * until the next call. Returns false if this agent takes no part any more. */
    bool (*on_ask)(void *data, const struct ct_vote_ask *ask, struct ct_msg *vote);
    /* Who asks says, too, that it hosts the job `run_id` in this term. ct_control_unhost() must not
     * be called before the next turn of the loop. */
    void (*on_told)(void *data, const struct ct_voter *host, uint64_t term, const char *run_id);
    /* The arbiter is to pledge this record, in a job with one. Borrowed for the call, in which no
     * function of the server may be called. */
    void (*on_record)(void *data, const struct ct_job_record *record);
    /* The host has lost its quorum. ct_control_unhost() may be called inside it. Never called if
     * the host is a daemon. */
    void (*on_deposed)(void *data);
    void *data;
};

/* The agent at this address, which listens at `port`. */
struct ct_voter ct_control_station_voter(const struct sockaddr *peer, uint64_t id, uint16_t port);

/* A new host begins to find out who of those that may not come is dead. */
void ct_control_station_probe(struct ct_probes *probes, const struct ct_members_failover *hosting);

/* Adds to ACCEPTED who hosts here. */
void ct_control_station_introduce(const struct ct_control_station *station,
                                  const struct ct_members_failover *hosting, struct ct_msg *msg);

/* Answers an ASK of `peer`. */
void ct_control_station_answer(const struct ct_control_station *station, struct ct_channel *channel,
                               const struct sockaddr *peer, const struct ct_msg *msg);

/* Says who hosts the job. */
void ct_control_station_send_host(struct ct_channel *channel, const struct ct_voter *host);

/* An agent looks for the job here, but another machine hosts it: says which, if that is known. */
void ct_control_station_send_on(const struct ct_control_station *station,
                                struct ct_channel *channel);

#endif
