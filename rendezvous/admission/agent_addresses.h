/* SPDX-License-Identifier: Apache-2.0
 *
 * Addresses that may use the store because an authenticated agent is connected from there. Several
 * agents may share an address, so they are counted. Pure.
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

/* Counts one more agent at this address. CT_ENOMEM; CT_EINVAL if it is neither IPv4 nor IPv6. */
CT_MUST_CHECK int ct_agent_addresses_add(struct ct_agent_addresses *set,
                                         const struct sockaddr *addr);

/* Counts one agent less. Ignores an address that has none. */
void ct_agent_addresses_remove(struct ct_agent_addresses *set, const struct sockaddr *addr);

bool ct_agent_addresses_has(struct ct_agent_addresses *set, const struct sockaddr *addr);

#endif
