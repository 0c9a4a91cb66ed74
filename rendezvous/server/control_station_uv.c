/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a peer that has proved the token asks, and gets an answer or, if it wants to join, is
 * told who hosts. The caller then ends the connection, so each question costs a proof.
 *
 * Failure modes: without memory there is no answer, and the peer asks again. A connection that is
 * lost is the caller's matter, as are all handles.
 */
#include "rendezvous/server/control_station_uv.h"

#include "common/addr.h"
#include "common/alloc.h"

#include <stdio.h>

/* Bytes of this machine's name in ACCEPTED, which must fit in a greeting if each is escaped. */
#define NAME_MAX_BYTES 64

/* A numeric address is shorter than CT_VOTER_ADDRESS_MAX. */
struct ct_voter ct_control_station_voter(const struct sockaddr *peer, uint64_t id, uint16_t port)
{
    struct ct_voter voter = {.id = id, .port = port};
    ct_addr_host(peer, voter.address, sizeof(voter.address));
    return voter;
}

void ct_control_station_probe(struct ct_probes *probes, const struct ct_members_failover *hosting)
{
    if (!hosting->lost_is_dead) {
        ct_probes_lost(probes, &hosting->lost);
    }
    /* A host that was lost before it had formed a world may have come between. */
    if (hosting->ended_by.id != hosting->lost.id) {
        ct_probes_lost(probes, &hosting->ended_by);
    }
    for (int i = 0; i < hosting->num_reached; i++) {
        ct_probes_lost(probes, &hosting->reached[i]);
    }
}

void ct_control_station_introduce(const struct ct_control_station *station,
                                  const struct ct_members_failover *hosting, struct ct_msg *msg)
{
    msg->host.id = hosting->self.id;
    msg->daemon = hosting->is_daemon;
    msg->term = hosting->term;
    (void)snprintf(msg->join.host, sizeof(msg->join.host), "%.*s", NAME_MAX_BYTES, station->name);
}

void ct_control_station_answer(const struct ct_control_station *station, struct ct_channel *channel,
                               const struct sockaddr *peer, const struct ct_msg *msg)
{
    struct ct_msg *vote = ct_calloc(1, sizeof(*vote));
    if (vote != NULL) {
        vote->type = CT_MSG_VOTE;
        if (station->on_ask(station->data, &msg->ask, vote)) {
            ct_channel_send(channel, vote);
        }
        ct_free(vote); /* what on_ask() has put into it is borrowed */
    }
    if (msg->host.port != 0) {
        const struct ct_voter host = ct_control_station_voter(peer, msg->ask.id, msg->host.port);
        station->on_told(station->data, &host, msg->term, msg->join.run_id);
    }
}

void ct_control_station_send_host(struct ct_channel *channel, const struct ct_voter *host)
{
    struct ct_msg *vote = ct_calloc(1, sizeof(*vote));
    if (vote != NULL) {
        vote->type = CT_MSG_VOTE;
        vote->host = *host;
        vote->vote.id = host->id;
        ct_channel_send(channel, vote);
        ct_free(vote);
    }
}

void ct_control_station_send_on(const struct ct_control_station *station,
                                struct ct_channel *channel)
{
    const struct ct_vote_ask ask = {.id = 0};
    struct ct_msg *vote = ct_calloc(1, sizeof(*vote));
    if (vote != NULL && station->on_ask(station->data, &ask, vote) && vote->host.id != 0) {
        ct_control_station_send_host(channel, &vote->host);
    }
    ct_free(vote);
}
