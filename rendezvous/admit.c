/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/admit.h"

uint64_t ct_refusals_add(struct ct_refusals *refusals, uint64_t now_ms)
{
    refusals->total++;
    if (now_ms < refusals->next_ms) {
        return 0;
    }
    uint64_t untold = refusals->total - refusals->told;
    refusals->told = refusals->total;
    refusals->next_ms = now_ms + CT_REFUSAL_QUIET_MS;
    return untold;
}
