/* SPDX-License-Identifier: Apache-2.0
 *
 * The time is limited from the first move on, however often the agent is told something new, so
 * that it does not wait for ever.
 */
#include "launcher/agent/agent_moves.h"

#include "common/clock.h"

static enum ct_agent_moves_step go_back(struct ct_agent_moves *moves)
{
    moves->away = false;
    moves->in_row = 0;
    moves->backs++;
    return CT_AGENT_MOVES_BACK;
}

enum ct_agent_moves_step ct_agent_moves_told(struct ct_agent_moves *moves, int64_t wait_ms,
                                             int64_t now_ns)
{
    if (moves->until_ns == 0) {
        moves->until_ns = now_ns + wait_ms * CT_NS_PER_MS;
    }
    if (now_ns >= moves->until_ns) {
        return CT_AGENT_MOVES_END;
    }
    if (moves->in_row == CT_AGENT_MOVES_MAX) {
        return go_back(moves);
    }
    moves->in_row++;
    moves->away = true;
    return CT_AGENT_MOVES_GO;
}

enum ct_agent_moves_step ct_agent_moves_failed(struct ct_agent_moves *moves, int64_t now_ns)
{
    return now_ns < moves->until_ns ? go_back(moves) : CT_AGENT_MOVES_END;
}

void ct_agent_moves_proved(struct ct_agent_moves *moves)
{
    moves->away = false;
}

int64_t ct_agent_moves_pause_ms(const struct ct_agent_moves *moves)
{
    int64_t pause_ms = CT_AGENT_MOVES_PAUSE_MS;
    for (int i = 1; i < moves->backs && pause_ms < CT_AGENT_MOVES_PAUSE_LAST_MS; i++) {
        pause_ms *= 2;
    }
    return pause_ms;
}
