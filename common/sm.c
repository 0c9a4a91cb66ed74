/* SPDX-License-Identifier: Apache-2.0
 *
 * The move and its log line. A move that the table does not allow is an error of this program, so
 * it ends the process.
 */
#include "common/sm.h"

#include "common/clock.h"

#include <inttypes.h>

void ct_sm_init(struct ct_sm *sm, const char *name, const struct ct_sm_state *states,
                unsigned initial, int64_t now_ns, const struct ct_log *log)
{
    sm->name = name;
    sm->states = states;
    sm->state = initial;
    sm->since_ns = now_ns;
    sm->log = log;
}

bool ct_sm_may(const struct ct_sm *sm, unsigned to)
{
    return to < 32 && (sm->states[sm->state].next & CT_SM_BIT(to)) != 0;
}

void ct_sm_move(struct ct_sm *sm, unsigned to, const char *why, int64_t now_ns)
{
    CT_ASSERT(ct_sm_may(sm, to));
    ct_log(sm->log, CT_LOG_DEBUG, "%s: %s -> %s (%s) after %" PRId64 " ms", sm->name,
           sm->states[sm->state].name, sm->states[to].name, why,
           (now_ns - sm->since_ns) / CT_NS_PER_MS);
    sm->state = to;
    sm->since_ns = now_ns;
}
