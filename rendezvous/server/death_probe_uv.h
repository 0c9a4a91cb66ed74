/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out whether the process of a lost agent is dead, by connecting to the port at which it
 * listened. If its machine refuses the connection, nobody listens there any more.
 *
 * A firewall may refuse connections to a process that is alive. So each port is tried when its
 * agent joins, and a refusal proves something only if that first connection was taken.
 */
#ifndef CT_RENDEZVOUS_SERVER_DEATH_PROBE_UV_H
#define CT_RENDEZVOUS_SERVER_DEATH_PROBE_UV_H

#include "common/err.h"
#include "rendezvous/election/job_record.h"

#include <uv.h>

struct ct_probes;

/* `on_dead` is called once for each process that is found dead, not inside a call of this header.
 * Gives *out. CT_ENOMEM. */
CT_MUST_CHECK int ct_probes_open(uv_loop_t *loop, void (*on_dead)(void *data, uint64_t id),
                                 void *data, struct ct_probes **out);

/* This agent has joined. If too many have, it is not probed later. */
void ct_probes_joined(struct ct_probes *probes, const struct ct_voter *voter);

/* An agent is lost that joined another host. This process knows that it listened at `voter`. The
 * port is tried for some seconds, unless the agent joins. */
void ct_probes_lost(struct ct_probes *probes, const struct ct_voter *voter);

/* An agent is lost that joined here. Its port is tried for some seconds, unless it joins again. An
 * unknown id is allowed. */
void ct_probes_left(struct ct_probes *probes, uint64_t id);

/* It does not matter any more whether this agent is dead. */
void ct_probes_forget(struct ct_probes *probes, uint64_t id);

/* Frees it later, then calls cb. NULL is allowed and calls cb at once. */
void ct_probes_close(struct ct_probes *probes, void (*cb)(void *data), void *data);

#endif
