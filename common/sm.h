/* SPDX-License-Identifier: Apache-2.0
 *
 * Table-driven state machine: the table says which states may follow which, one function moves, and
 * every move is logged with the time spent in the state that was left.
 */
#ifndef CT_COMMON_SM_H
#define CT_COMMON_SM_H

#include "common/err.h"
#include "common/log.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_SM_BIT(state) (1u << (state))

struct ct_sm_state {
    const char *name;
    uint32_t next; /* CT_SM_BIT()s of the states that may follow; 0 = final */
};

struct ct_sm {
    const char *name;                 /* of the machine, for the log; borrowed */
    const struct ct_sm_state *states; /* borrowed, indexed by state, at most 32 */
    unsigned state;
    int64_t since_ns;         /* when `state` was entered */
    const struct ct_log *log; /* may be NULL */
};

void ct_sm_init(struct ct_sm *sm, const char *name, const struct ct_sm_state *states,
                unsigned initial, int64_t now_ns, const struct ct_log *log);

bool ct_sm_may(const struct ct_sm *sm, unsigned to);

/* Moves and logs "<machine>: <old> -> <new> (<why>) after N ms". A move that the table does not
 * allow is a defect of our own code, so it fails an assertion. */
void ct_sm_move(struct ct_sm *sm, unsigned to, const char *why, int64_t now_ns);

#endif
