/* SPDX-License-Identifier: Apache-2.0
 *
 * A timer for deadlines at which peers are judged. If this process did not run for a while (a
 * paused machine), what the peers have sent meanwhile still waits in the sockets. Then the deadline
 * is put off once, for a moment in which that is read.
 */
#ifndef CT_RENDEZVOUS_SERVER_TICK_TIMER_UV_H
#define CT_RENDEZVOUS_SERVER_TICK_TIMER_UV_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* The owner closes `handle` and frees the memory in the callback of that. */
struct ct_tick_timer {
    uv_timer_t handle;
    int64_t armed_ns; /* when it is due; INT64_MAX = never */
    bool catching_up; /* it was late, and is put off */
    void (*tick)(struct ct_tick_timer *timer, int64_t now_ns);
};

/* Not armed. */
void ct_tick_timer_init(struct ct_tick_timer *timer, uv_loop_t *loop,
                        void (*tick)(struct ct_tick_timer *timer, int64_t now_ns));

/* Has `tick` called once, at `due_ns` or, if that is past, soon; INT64_MAX = never. The last call
 * counts, but none puts off a deadline that is put off already. Not allowed once `handle` is being
 * closed. */
void ct_tick_timer_arm(struct ct_tick_timer *timer, int64_t due_ns);

#endif
