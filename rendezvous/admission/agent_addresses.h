/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses that may use the store because an authenticated agent is connected from there. Counted:
 * several agents may share one. Pure.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_AGENT_ADDRESSES_H
#define CT_RENDEZVOUS_ADMISSION_AGENT_ADDRESSES_H

#include "common/err.h"
#include "common/map.h"

#include <stdbool.h>
#include <sys/socket.h>

struct ct_agent_addresses {
    struct ct_map map;
};

void ct_agent_addresses_init(struct ct_agent_addresses *set);

/* Zeroed memory is allowed. */
void ct_agent_addresses_fini(struct ct_agent_addresses *set);

/* Another agent is there. CT_ENOMEM; CT_EINVAL for a family other than the internet's. */
CT_MUST_CHECK int ct_agent_addresses_add(struct ct_agent_addresses *set,
                                         const struct sockaddr *addr);

/* One of them is gone. An address that is not there is passed over. */
void ct_agent_addresses_remove(struct ct_agent_addresses *set, const struct sockaddr *addr);

bool ct_agent_addresses_has(struct ct_agent_addresses *set, const struct sockaddr *addr);

#endif
