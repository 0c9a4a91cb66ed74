/* SPDX-License-Identifier: Apache-2.0
 *
 * Two addresses with the same hash count as one. The hash has a random key, so that nobody can
 * choose an address that counts together with a certain other one.
 */
#include "rendezvous/admission/source_quota.h"

#include "common/addr.h"

#include <string.h>

void ct_source_quota_init(struct ct_source_quota *quota, size_t max)
{
    *quota = (struct ct_source_quota){.max = max};
    ct_hash_key_random(&quota->key);
}

uint8_t ct_source_quota_add(struct ct_source_quota *quota, const struct sockaddr *peer)
{
    struct in6_addr address;
    if (!ct_addr_as_v6(peer, &address)) {
        memset(&address, 0, sizeof(address));
    }
    size_t len = IN6_IS_ADDR_V4MAPPED(&address) || IN6_IS_ADDR_LOOPBACK(&address) ? 16 : 8;
    uint8_t source = (uint8_t)(ct_hash(&quota->key, &address, len) % CT_SOURCES);
    quota->held[source]++;
    quota->count++;
    return source;
}

void ct_source_quota_remove(struct ct_source_quota *quota, uint8_t source)
{
    quota->held[source]--;
    quota->count--;
}

bool ct_source_quota_is_over(const struct ct_source_quota *quota, int *source)
{
    *source = -1;
    if (quota->count <= quota->max) {
        return false;
    }
    for (int i = 0; i < CT_SOURCES; i++) {
        if (quota->held[i] > quota->count / 2) {
            *source = i;
        }
    }
    return true;
}
