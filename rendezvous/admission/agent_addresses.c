/* SPDX-License-Identifier: Apache-2.0
 *
 * A map from each address, as IPv6, to the number of agents that are connected from there.
 */
#include "rendezvous/admission/agent_addresses.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/list.h"

#include <string.h>

struct entry {
    struct ct_map_node node;
    struct in6_addr address;
    size_t agents;
};

static struct entry *entry_of(const struct ct_map_node *node)
{
    return CT_CONTAINER_OF(node, struct entry, node);
}

static bool has_address(const struct ct_map_node *node, const void *key, size_t len)
{
    return len == sizeof(struct in6_addr) && memcmp(&entry_of(node)->address, key, len) == 0;
}

static void free_entry(struct ct_map_node *node, void *data)
{
    (void)data;
    ct_free(entry_of(node));
}

void ct_agent_addresses_init(struct ct_agent_addresses *set)
{
    ct_map_init(&set->map, has_address);
}

void ct_agent_addresses_fini(struct ct_agent_addresses *set)
{
    ct_map_drain(&set->map, free_entry, NULL);
    ct_map_fini(&set->map);
}

static struct entry *find(struct ct_agent_addresses *set, const struct in6_addr *address)
{
    struct ct_map_node *node = ct_map_find(&set->map, address, sizeof(*address));
    return node != NULL ? entry_of(node) : NULL;
}

int ct_agent_addresses_add(struct ct_agent_addresses *set, const struct sockaddr *addr)
{
    struct in6_addr address;
    if (!ct_addr_as_v6(addr, &address)) {
        return CT_EINVAL;
    }
    struct entry *entry = find(set, &address);
    if (entry == NULL) {
        entry = ct_calloc(1, sizeof(*entry));
        if (entry == NULL) {
            return CT_ENOMEM;
        }
        entry->address = address;
        if (ct_map_insert(&set->map, &entry->node, &entry->address, sizeof(address)) != 0) {
            ct_free(entry);
            return CT_ENOMEM;
        }
    }
    entry->agents++;
    return 0;
}

void ct_agent_addresses_remove(struct ct_agent_addresses *set, const struct sockaddr *addr)
{
    struct in6_addr address;
    struct entry *entry = ct_addr_as_v6(addr, &address) ? find(set, &address) : NULL;
    if (entry != NULL && --entry->agents == 0) {
        (void)ct_map_remove(&set->map, &address, sizeof(address));
        ct_free(entry);
    }
}

bool ct_agent_addresses_has(struct ct_agent_addresses *set, const struct sockaddr *addr)
{
    struct in6_addr address;
    return ct_addr_as_v6(addr, &address) && find(set, &address) != NULL;
}
