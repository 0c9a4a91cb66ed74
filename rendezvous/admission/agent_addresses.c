/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/admission/agent_addresses.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/list.h"

#include <string.h>

struct guest {
    struct ct_map_node node;
    struct in6_addr address;
    size_t agents;
};

static struct guest *guest_of(const struct ct_map_node *node)
{
    return CT_CONTAINER_OF(node, struct guest, node);
}

static bool has_address(const struct ct_map_node *node, const void *key, size_t len)
{
    return len == sizeof(struct in6_addr) && memcmp(&guest_of(node)->address, key, len) == 0;
}

static void free_guest(struct ct_map_node *node, void *data)
{
    (void)data;
    ct_free(guest_of(node));
}

void ct_agent_addresses_init(struct ct_agent_addresses *guests)
{
    ct_map_init(&guests->map, has_address);
}

void ct_agent_addresses_fini(struct ct_agent_addresses *guests)
{
    ct_map_drain(&guests->map, free_guest, NULL);
    ct_map_fini(&guests->map);
}

static struct guest *find(struct ct_agent_addresses *guests, const struct in6_addr *address)
{
    struct ct_map_node *node = ct_map_find(&guests->map, address, sizeof(*address));
    return node != NULL ? guest_of(node) : NULL;
}

int ct_agent_addresses_add(struct ct_agent_addresses *guests, const struct sockaddr *addr)
{
    struct in6_addr address;
    if (!ct_addr_as_v6(addr, &address)) {
        return CT_EINVAL;
    }
    struct guest *guest = find(guests, &address);
    if (guest == NULL) {
        guest = ct_calloc(1, sizeof(*guest));
        if (guest == NULL) {
            return CT_ENOMEM;
        }
        guest->address = address;
        if (ct_map_insert(&guests->map, &guest->node, &guest->address, sizeof(address)) != 0) {
            ct_free(guest);
            return CT_ENOMEM;
        }
    }
    guest->agents++;
    return 0;
}

void ct_agent_addresses_remove(struct ct_agent_addresses *guests, const struct sockaddr *addr)
{
    struct in6_addr address;
    struct guest *guest = ct_addr_as_v6(addr, &address) ? find(guests, &address) : NULL;
    if (guest != NULL && --guest->agents == 0) {
        (void)ct_map_remove(&guests->map, &address, sizeof(address));
        ct_free(guest);
    }
}

bool ct_agent_addresses_has(struct ct_agent_addresses *guests, const struct sockaddr *addr)
{
    struct in6_addr address;
    return ct_addr_as_v6(addr, &address) && find(guests, &address) != NULL;
}
