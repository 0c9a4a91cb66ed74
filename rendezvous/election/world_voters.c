/* SPDX-License-Identifier: Apache-2.0
 *
 * There are few voters, so every search goes through the list.
 */
#include "rendezvous/election/world_voters.h"

#include <stddef.h>

const struct ct_voter *ct_world_voters_find(const struct ct_world_voters *world, uint64_t id)
{
    for (int i = 0; i < world->count; i++) {
        if (world->list[i].id == id) {
            return &world->list[i];
        }
    }
    return NULL;
}

static int count_present(const struct ct_world_voters *world, const uint64_t *ids, int count)
{
    int present = 0;
    for (int i = 0; i < count; i++) {
        present += ct_world_voters_find(world, ids[i]) != NULL;
    }
    return present;
}

bool ct_world_voters_enough_with_arbiter(const struct ct_world_voters *world, const uint64_t *ids,
                                         int count)
{
    bool arbiter = false;
    for (int i = 0; i < count; i++) {
        arbiter = arbiter || ids[i] == CT_ARBITER_ID;
    }
    if (world->count == 0) {
        return arbiter;
    }
    int votes = count_present(world, ids, count) + (arbiter ? world->count - 1 : 0);
    return votes >= world->count; /* of 2 * count - 1 */
}

bool ct_world_voters_enough(const struct ct_world_voters *world, const uint64_t *ids, int count,
                            bool half)
{
    int present = count_present(world, ids, count);
    return world->count == 0 || 2 * present > world->count || (half && 2 * present == world->count);
}
