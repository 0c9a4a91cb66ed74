/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose loss has ended the newest generation. After it, hosts may be elected that lose their office
 * before they have formed a world, and are lost in turn. None of them has ended a generation, so
 * the job pays for the first one only. Pure data.
 */
#ifndef CT_RENDEZVOUS_ELECTION_HOST_LOSS_H
#define CT_RENDEZVOUS_ELECTION_HOST_LOSS_H

#include "rendezvous/election/world_voters.h"

#include <stdbool.h>

/* Zeroed memory: no host was lost. */
struct ct_host_loss {
    bool known;
    int generation;       /* the newest one on record when the host was lost */
    struct ct_voter host; /* id 0 = this agent, which had lost its quorum */
    bool daemon;          /* it was a ctrdzvd, which is no node of any world */
};

/* This host is lost (NULL = this agent hosts no more), and `generation` is the newest on record.
 * Returns false, and changes nothing, if a host was lost in that generation before. */
bool ct_host_loss_note(struct ct_host_loss *loss, int generation, const struct ct_voter *host,
                       bool daemon);

/* Is it known whose loss has ended this generation? */
bool ct_host_loss_ended(const struct ct_host_loss *loss, int generation);

#endif
