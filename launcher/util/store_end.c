/* SPDX-License-Identifier: Apache-2.0
 *
 * Two deadlines, for the agent that hosts a store and for the ctrun of --hosts alike.
 */
#include "launcher/util/store_end.h"

#include "common/clock.h"

/* To hear how the job has ended takes no time, but a client can draw it out. */
#define TELL_MS 100
#define POLL_MS 5
#define LINGER_POLL_MS 100

void ct_store_end_begin(struct ct_store_end *end, int64_t linger_s, int64_t now_ns)
{
    end->tell_until_ns = now_ns + TELL_MS * CT_NS_PER_MS;
    end->linger_until_ns = now_ns + linger_s * CT_NS_PER_S;
}

bool ct_store_end_is_over(struct ct_store_end *end, bool is_telling, int64_t now_ns)
{
    end->lingers = end->lingers && now_ns < end->linger_until_ns;
    return !end->lingers && (!is_telling || now_ns >= end->tell_until_ns);
}

uint64_t ct_store_end_poll_ms(const struct ct_store_end *end)
{
    return end->lingers ? LINGER_POLL_MS : POLL_MS;
}
