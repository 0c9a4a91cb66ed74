/* SPDX-License-Identifier: Apache-2.0
 *
 * Each target (a worker with its group, or all strays) goes through the same steps. struct
 * ct_stop_target remembers which signals it got and when. At every look the caller asks what to do
 * now and when the next deadline is.
 */
#include "launcher/process/stop.h"

#include "common/clock.h"

/* After this share of the grace time SIGTERM goes to the whole group, data loaders included. */
#define GROUP_PERCENT 80

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Users may give any grace time. It is limited to a week, so that the sums cannot overflow. */
static int64_t grace_ns(int64_t grace_ms)
{
    const int64_t week_ms = INT64_C(7) * 24 * 3600 * 1000;
    return (grace_ms < 0 ? 0 : min64(grace_ms, week_ms)) * CT_NS_PER_MS;
}

void ct_stop_begin(struct ct_stop *stop, int64_t grace_ms, int64_t now_ns)
{
    int64_t grace = grace_ns(grace_ms);
    stop->group_ns = now_ns + grace / 100 * GROUP_PERCENT;
    stop->kill_ns = now_ns + grace;
}

void ct_stop_shorten(struct ct_stop *stop, int64_t grace_ms, int64_t now_ns)
{
    struct ct_stop sooner;
    ct_stop_begin(&sooner, grace_ms, now_ns);
    stop->group_ns = min64(stop->group_ns, sooner.group_ns);
    stop->kill_ns = min64(stop->kill_ns, sooner.kill_ns);
}

/* Returns when the target is to be killed. A group without its leader has less time. */
static int64_t kill_time(const struct ct_stop *stop, const struct ct_stop_target *target,
                         bool leader_alive)
{
    if (leader_alive || !target->group_told) {
        return stop->kill_ns;
    }
    return min64(stop->kill_ns, target->group_told_ns + CT_STOP_STRAY_MS * CT_NS_PER_MS);
}

unsigned ct_stop_step(const struct ct_stop *stop, struct ct_stop_target *target, bool leader_alive,
                      bool group_alive, int64_t now_ns)
{
    unsigned actions = CT_STOP_NOTHING;
    if (!group_alive) {
        return actions;
    }
    if (now_ns >= kill_time(stop, target, leader_alive)) {
        if (!target->killed) {
            target->killed_ns = now_ns;
        }
        target->killed = true;
        /* Every step asks for it: a member may have forked while the last SIGKILL was sent. */
        return CT_STOP_KILL_GROUP;
    }
    if (leader_alive && !target->leader_told) {
        target->leader_told = true;
        actions |= CT_STOP_ASK_LEADER;
    }
    if (!target->group_told && (!leader_alive || now_ns >= stop->group_ns)) {
        target->group_told = true;
        target->group_told_ns = now_ns;
        actions |= CT_STOP_TERM_GROUP;
    }
    return actions;
}

int64_t ct_stop_next(const struct ct_stop *stop, const struct ct_stop_target *target,
                     bool leader_alive)
{
    if (!target->group_told) {
        return min64(stop->group_ns, stop->kill_ns);
    }
    return kill_time(stop, target, leader_alive);
}

bool ct_stop_unkillable(const struct ct_stop_target *target, int64_t now_ns)
{
    return target->killed && now_ns - target->killed_ns >= CT_STOP_GIVE_UP_MS * CT_NS_PER_MS;
}
