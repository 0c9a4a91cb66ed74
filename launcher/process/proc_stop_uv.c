/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out what stop.h decides, for every worker and for strays, until no process is left.
 *
 * Happy path: ct_procs_stop() signals the workers. The pidfd of each worker that ends wakes the
 * step function. When all have ended and /proc shows no descendant, `done` is called.
 *
 * Other paths: the rest of a group, and strays, are not children of ctrun, so nothing reports their
 * end. A timer looks again, first after FIRST_PAUSE_MS and then less and less often. The same timer
 * keeps the deadlines of stop.h. A process that may stay (proc_uv.h) gets no signal yet: each look
 * asks again about it.
 *
 * Failure modes: when /proc cannot be read, strays are not found, but groups are still killed. A
 * process that survives SIGKILL is counted in `left` after CT_STOP_GIVE_UP_MS and left alone. If it
 * is a worker's, it is still alive when `done` is called, and ct_proc_free() gives it up.
 */
#include "common/clock.h"
#include "launcher/process/proc_table_uv.h"

#include <errno.h>
#include <signal.h>
#include <unistd.h>

#define FIRST_PAUSE_MS 2
#define LAST_PAUSE_MS 100

struct look {
    int64_t now;
    int64_t next;   /* earliest deadline of the policy */
    bool unwatched; /* something is left that gives no event when it ends */
    size_t left;
    size_t unkillable;
};

static void look_at(struct look *look, const struct stopping *stop,
                    const struct ct_stop_target *target, bool leader_alive, size_t count)
{
    look->left += count;
    look->unwatched = look->unwatched || !leader_alive;
    if (ct_stop_unkillable(target, look->now)) {
        look->unkillable += count;
    }
    int64_t next = target->killed ? target->killed_ns + CT_STOP_GIVE_UP_MS * CT_NS_PER_MS
                                  : ct_stop_next(&stop->policy, target, leader_alive);
    look->next = next < look->next ? next : look->next;
}

/* ---- descendants, from one reading of /proc per step ----------------------------------------- */

/* Cuts the processes that stay, and all of their sessions, off from their parents. The marking goes
 * from parents to children, so it does not reach them. */
static void spare_stayers(struct ct_procs *procs)
{
    for (struct ct_list *l = procs->all.next; l != &procs->all; l = l->next) {
        const struct ct_proc *proc = CT_CONTAINER_OF(l, struct ct_proc, link);
        for (size_t i = 0; proc->stay == CT_PROC_STAYS && i < procs->tree.count; i++) {
            struct ct_proctree_entry *entry = &procs->tree.entries[i];
            if (entry->session == proc->child.pid) {
                entry->ppid = 0;
            }
        }
    }
}

/* Is the child the guard, or one that stays? */
static bool is_known(const void *data, pid_t child)
{
    const struct ct_procs *procs = data;
    if (child == ct_guard_pid(procs->guard)) {
        return true;
    }
    for (struct ct_list *l = procs->all.next; l != &procs->all; l = l->next) {
        const struct ct_proc *proc = CT_CONTAINER_OF(l, struct ct_proc, link);
        if (proc->child.pid == child && proc->alive && proc->stay == CT_PROC_STAYS) {
            return true;
        }
    }
    return false;
}

/* Reads /proc and marks every living descendant, except the processes that stay and what is below
 * them. When /proc cannot be read nothing is marked. */
static void read_tree(struct ct_procs *procs)
{
    struct ct_err err;
    if (ct_proctree_has_only(is_known, procs)) {
        return;
    }
    if (ct_proctree_read(&procs->tree, &err) != 0) {
        if (!procs->blind) {
            ct_log(procs->log, CT_LOG_WARNING,
                   "cannot look for processes that workers left behind: %s", err.text);
        }
        procs->blind = true;
        return;
    }
    spare_stayers(procs);
    (void)ct_proctree_mark_descendants(&procs->tree, getpid(), ct_guard_pid(procs->guard));
}

/* Signals (sig 0: only counts) and unmarks the marked processes of a group; 0 = of any group. */
static size_t take_marked(struct ct_procs *procs, pid_t group, int sig)
{
    size_t count = 0;
    for (size_t i = 0; i < procs->tree.count; i++) {
        struct ct_proctree_entry *entry = &procs->tree.entries[i];
        if (!entry->marked || (group != 0 && entry->pgrp != group)) {
            continue;
        }
        count++;
        if (sig != 0) {
            entry->marked = false;
            if (ct_proctree_signal(entry, sig) && sig == SIGTERM) {
                (void)ct_proctree_signal(entry, SIGCONT);
            }
        }
    }
    return count;
}

static void unmark_group(struct ct_procs *procs, pid_t group)
{
    for (size_t i = 0; i < procs->tree.count; i++) {
        struct ct_proctree_entry *entry = &procs->tree.entries[i];
        entry->marked = entry->marked && entry->pgrp != group;
    }
}

/* Is there a group with the number of a dead worker's group? It may be another program's by now,
 * which only the tree shows. */
static bool group_answers(const struct ct_proc *proc)
{
    return kill(-proc->child.pid, 0) == 0 || errno != ESRCH;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Ctrl-C in a terminal reaches the whole foreground group, and programs count on it: a shell that
 * waits for its child does not pass SIGINT on to it. */
static void ask_to_end(struct ct_proc *proc, int sig)
{
    if (sig == SIGINT) {
        ct_proc_signal_group(proc, sig);
    } else {
        ct_proc_signal_leader(proc, sig);
    }
}

static void step_worker(struct ct_proc *proc, struct look *look)
{
    struct ct_procs *procs = proc->procs;
    struct stopping *stop = &procs->stop;
    struct ct_stop_target *target = &proc->target;
    const pid_t group = proc->child.pid;
    size_t count = proc->alive ? 1 : take_marked(procs, group, 0);
    bool killed_before = target->killed;
    unsigned actions = ct_stop_step(&stop->policy, target, proc->alive, count > 0, look->now);
    if (actions & CT_STOP_ASK_LEADER) {
        ask_to_end(proc, stop->sig);
    }
    if (actions & (CT_STOP_TERM_GROUP | CT_STOP_KILL_GROUP)) {
        bool deadly = (actions & CT_STOP_KILL_GROUP) != 0;
        stop->result.killed += deadly && !killed_before ? count : 0;
        stop->result.strays += !deadly && !proc->alive ? count : 0;
        if (proc->alive) {
            ct_proc_signal_group(proc, deadly ? SIGKILL : SIGTERM);
        } else {
            (void)take_marked(procs, group, deadly ? SIGKILL : SIGTERM);
        }
    }
    unmark_group(procs, group); /* what stays marked in the end are the strays */
    if (count > 0) {
        look_at(look, stop, target, proc->alive, count);
    }
}

/* Asks about a process at every look, because the answer may have changed. */
static void ask(struct ct_procs *procs, struct ct_proc *proc, bool late)
{
    proc->stay = proc->alive && procs->stay != NULL ? procs->stay(procs->stay_data, proc, late)
                                                    : CT_PROC_ENDS;
}

static void wait_for_answer(const struct ct_procs *procs, struct look *look)
{
    look->left++;
    look->unwatched = true;
    look->next =
        procs->stop.policy.group_ns < look->next ? procs->stop.policy.group_ns : look->next;
}

static void step_strays(struct ct_procs *procs, struct look *look)
{
    struct stopping *stop = &procs->stop;
    size_t count = take_marked(procs, 0, 0);
    bool killed_before = stop->strays.killed;
    unsigned actions = ct_stop_step(&stop->policy, &stop->strays, false, count > 0, look->now);
    if (actions & CT_STOP_TERM_GROUP) {
        stop->result.strays += count;
        (void)take_marked(procs, 0, SIGTERM);
    }
    if (actions & CT_STOP_KILL_GROUP) {
        stop->result.killed += killed_before ? 0 : count;
        (void)take_marked(procs, 0, SIGKILL);
    }
    if (count > 0) {
        look_at(look, stop, &stop->strays, false, count);
    }
}

static void finish(struct ct_procs *procs, size_t left)
{
    struct stopping *stop = &procs->stop;
    stop->active = false;
    stop->result.left = left;
    uv_timer_stop(&procs->timer);
    struct ct_procs_stopped result = stop->result;
    stop->done(stop->data, &result); /* may begin the next stop */
}

static void on_timer(uv_timer_t *timer);

static void plan_next_look(struct ct_procs *procs, const struct look *look)
{
    struct stopping *stop = &procs->stop;
    int64_t wait_ns = look->next > look->now ? look->next - look->now : 0;
    uint64_t wait_ms = (uint64_t)((wait_ns + CT_NS_PER_MS - 1) / CT_NS_PER_MS);
    if (wait_ms < FIRST_PAUSE_MS) {
        wait_ms = FIRST_PAUSE_MS;
    }
    if (look->unwatched && wait_ms > stop->pause_ms) {
        wait_ms = stop->pause_ms;
        stop->pause_ms = stop->pause_ms * 2 < LAST_PAUSE_MS ? stop->pause_ms * 2 : LAST_PAUSE_MS;
    }
    uv_timer_start(&procs->timer, on_timer, wait_ms, 0);
}

static void on_timer(uv_timer_t *timer)
{
    struct ct_procs *procs = timer->data;
    struct stopping *stop = &procs->stop;
    if (procs->closing || !stop->active) {
        return;
    }
    struct look look = {.now = ct_clock_now(NULL), .next = INT64_MAX};
    bool leaders = false;
    bool orphans = false;
    bool late = look.now >= stop->policy.group_ns;
    for (struct ct_list *l = procs->all.next; l != &procs->all; l = l->next) {
        struct ct_proc *proc = CT_CONTAINER_OF(l, struct ct_proc, link);
        ask(procs, proc, late);
        leaders = leaders || (proc->alive && proc->stay != CT_PROC_STAYS);
        orphans = orphans || (!proc->alive && group_answers(proc));
    }
    /* While workers live their strays may be data loaders that they still need. */
    bool strays = !leaders || late;
    procs->tree.count = 0;
    if (strays || orphans) {
        read_tree(procs);
    }
    for (struct ct_list *l = procs->all.next; l != &procs->all; l = l->next) {
        struct ct_proc *proc = CT_CONTAINER_OF(l, struct ct_proc, link);
        if (proc->stay == CT_PROC_ENDS) {
            step_worker(proc, &look);
        } else if (proc->stay == CT_PROC_WAITS) {
            wait_for_answer(procs, &look);
        }
    }
    if (strays) {
        step_strays(procs, &look);
    }
    if (look.left > look.unkillable) {
        stop->confirming = false;
    } else if (stop->confirming || stop->result.strays + stop->result.killed == 0) {
        finish(procs, look.left);
        return;
    } else {
        /* After leftovers were ended, one more look must find nothing: a process that forked and
         * died while /proc was read can have hidden its child. */
        stop->confirming = true;
        look.next = look.now;
    }
    plan_next_look(procs, &look);
}

void ct_procs_set_stay_fn(struct ct_procs *procs, ct_proc_stay_fn stay, void *data)
{
    procs->stay = stay;
    procs->stay_data = data;
}

void ct_procs_look_again(struct ct_procs *procs)
{
    if (procs->stop.active) {
        uv_timer_start(&procs->timer, on_timer, 0, 0);
    }
}

void ct_procs_stop(struct ct_procs *procs, int sig, int64_t grace_ms, ct_procs_stopped_fn done,
                   void *data)
{
    struct stopping *stop = &procs->stop;
    int64_t now = ct_clock_now(NULL);
    bool fresh = !stop->active;
    if (fresh) {
        *stop = (struct stopping){.active = true, .sig = sig, .pause_ms = FIRST_PAUSE_MS};
        ct_stop_begin(&stop->policy, grace_ms, now);
    } else {
        ct_stop_shorten(&stop->policy, grace_ms, now);
    }
    for (struct ct_list *l = procs->all.next; l != &procs->all; l = l->next) {
        struct ct_proc *proc = CT_CONTAINER_OF(l, struct ct_proc, link);
        if (fresh) {
            proc->target = (struct ct_stop_target){0};
        } else if (stop->sig != sig) {
            proc->target.leader_told = false;
        }
    }
    stop->sig = sig;
    stop->done = done;
    stop->data = data;
    uv_timer_start(&procs->timer, on_timer, 0, 0);
}
