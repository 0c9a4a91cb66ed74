/* SPDX-License-Identifier: Apache-2.0
 *
 * When to send which signal to end the workers of this node. Pure: no clock, no processes.
 *
 *     0                            the asked signal to each worker's own process: it decides what
 *                                  its children hear, so a checkpoint handler finds its data
 *                                  loaders alive (SIGINT: to its whole group, as a terminal
 *                                  sends it)
 *     leader gone, or 80 % of      SIGTERM to what is left of its group
 *     the grace time
 *     grace time over, or          SIGKILL to the group
 *     leader gone and
 *     CT_STOP_STRAY_MS later
 *
 * A descendant that left its worker's group (a "stray") is told when every worker is gone, or at
 * 80 %, and killed by the same rule.
 */
#ifndef CT_LAUNCHER_PROCESS_STOP_H
#define CT_LAUNCHER_PROCESS_STOP_H

#include <stdbool.h>
#include <stdint.h>

/* A process whose worker has ended cannot save anything for it any more. Two seconds let it close
 * its files, and keep a restart quick. */
#define CT_STOP_STRAY_MS 2000

/* SIGKILL acts within milliseconds. A process that is still there after this time is in
 * uninterruptible sleep, in a driver or a dead file system, and waiting longer would only delay the
 * report. */
#define CT_STOP_GIVE_UP_MS 5000

struct ct_stop {
    int64_t group_ns; /* when groups hear SIGTERM at the latest */
    int64_t kill_ns;  /* when all hear SIGKILL */
};

/* One worker and its group, or all strays together (which have no leader). Zero to start. */
struct ct_stop_target {
    bool leader_told;
    bool group_told;
    bool killed;
    int64_t group_told_ns;
    int64_t killed_ns;
};

/* Bits. */
enum ct_stop_action {
    CT_STOP_NOTHING = 0,
    CT_STOP_ASK_LEADER = 1, /* the asked signal to the leader (SIGINT: to its group) */
    CT_STOP_TERM_GROUP = 2,
    CT_STOP_KILL_GROUP = 4,
};

void ct_stop_begin(struct ct_stop *stop, int64_t grace_ms, int64_t now_ns);

/* For a later request: the stop can become shorter, never longer. */
void ct_stop_shorten(struct ct_stop *stop, int64_t grace_ms, int64_t now_ns);

/* What to do now. `group_alive` is whether any member is left, the leader included. */
unsigned ct_stop_step(const struct ct_stop *stop, struct ct_stop_target *target, bool leader_alive,
                      bool group_alive, int64_t now_ns);

/* When to call ct_stop_step() again at the latest if nothing else happens. In the past once the
 * target has been killed. */
int64_t ct_stop_next(const struct ct_stop *stop, const struct ct_stop_target *target,
                     bool leader_alive);

/* The target was killed and is still there after CT_STOP_GIVE_UP_MS. */
bool ct_stop_unkillable(const struct ct_stop_target *target, int64_t now_ns);

#endif
