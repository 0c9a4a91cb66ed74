/* SPDX-License-Identifier: Apache-2.0
 *
 * An agent that waits for its first world may be told that another machine hosts the job. It goes
 * there, and goes back to where it waited first if the machine there does not prove that it hosts:
 * who told of it may be wrong. So it moves about until it has a world, or for as long as it may
 * wait for other machines. Pure.
 */
#ifndef CT_LAUNCHER_AGENT_AGENT_MOVES_H
#define CT_LAUNCHER_AGENT_AGENT_MOVES_H

#include <stdbool.h>
#include <stdint.h>

/* How many times in a row it may be sent on. Hosts may name each other without end. */
#define CT_AGENT_MOVES_MAX 8
/* The first and the longest pause before it connects to its first address again. The pauses grow,
 * because a host that cannot be reached is told of again within two seconds. */
#define CT_AGENT_MOVES_PAUSE_MS 1000
#define CT_AGENT_MOVES_PAUSE_LAST_MS 32000

/* Zeroed memory is an agent at its first address. */
struct ct_agent_moves {
    bool away;        /* it was sent on, and that host has not proved itself yet */
    int in_row;       /* how often it was sent on since it was at its first address */
    int backs;        /* how often it has gone back */
    int64_t until_ns; /* it goes back until then; 0 = it has not moved yet */
};

enum ct_agent_moves_step {
    CT_AGENT_MOVES_GO,   /* to the host that it was told of */
    CT_AGENT_MOVES_BACK, /* to its first address, after a pause */
    CT_AGENT_MOVES_END,  /* nowhere: it has looked for too long */
};

/* It was told of another host. `wait_ms` is how long it may wait for other machines. */
enum ct_agent_moves_step ct_agent_moves_told(struct ct_agent_moves *moves, int64_t wait_ms,
                                             int64_t now_ns);

/* It is away, and that host cannot be reached, or is none. BACK or END. */
enum ct_agent_moves_step ct_agent_moves_failed(struct ct_agent_moves *moves, int64_t now_ns);

/* That host has proved itself. */
void ct_agent_moves_proved(struct ct_agent_moves *moves);

/* After BACK: the pause before it connects to its first address. */
int64_t ct_agent_moves_pause_ms(const struct ct_agent_moves *moves);

#endif
