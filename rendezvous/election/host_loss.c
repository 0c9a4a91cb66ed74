/* SPDX-License-Identifier: Apache-2.0
 *
 * Each world has a newer generation on record, so a loss belongs to the generation that is the
 * newest when it happens.
 */
#include "rendezvous/election/host_loss.h"

#include <stddef.h>

bool ct_host_loss_note(struct ct_host_loss *loss, int generation, const struct ct_voter *host,
                       bool daemon)
{
    if (ct_host_loss_ended(loss, generation)) {
        return false;
    }
    *loss = (struct ct_host_loss){.known = true, .generation = generation, .daemon = daemon};
    if (host != NULL) {
        loss->host = *host;
    }
    return true;
}

bool ct_host_loss_ended(const struct ct_host_loss *loss, int generation)
{
    return loss->known && loss->generation == generation;
}
