/* SPDX-License-Identifier: Apache-2.0
 *
 * One thing is under way at a time: the plan, or the imports of one spare. Memory is looked at
 * before each spare is made and while spares live, so that they never cost a worker its memory.
 */
#include "launcher/warm/warm.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <stdio.h>

int ct_warm_init(struct ct_warm *warm, int count, uint64_t limit)
{
    *warm = (struct ct_warm){.count = count, .limit = limit, .importing = -1};
    warm->states = ct_calloc((size_t)(count > 0 ? count : 1), sizeof(*warm->states));
    return warm->states != NULL ? 0 : CT_ENOMEM;
}

void ct_warm_fini(struct ct_warm *warm)
{
    ct_free(warm->states);
    *warm = (struct ct_warm){.importing = -1};
}

void ct_warm_run(struct ct_warm *warm, int64_t now_ns)
{
    warm->running = true;
    warm->planned = warm->planning = false;
    warm->full = false;
    warm->deaths = 0;
    warm->since_ns = now_ns;
}

void ct_warm_stop(struct ct_warm *warm)
{
    warm->running = false;
}

void ct_warm_turn_off(struct ct_warm *warm, const char *why)
{
    if (!warm->off) {
        (void)snprintf(warm->why, sizeof(warm->why), "%s", why);
    }
    warm->off = true;
}

static struct ct_warm_action wait_for(int64_t ms)
{
    return (struct ct_warm_action){CT_WARM_WAIT, -1, ms};
}

static struct ct_warm_action drop(struct ct_warm *warm, int spare)
{
    warm->states[spare] = CT_WARM_NONE;
    warm->importing = warm->importing == spare ? -1 : warm->importing;
    return (struct ct_warm_action){CT_WARM_DROP, spare, 0};
}

/* May spares take `more` bytes? Without figures they may. */
static bool fits(const struct ct_warm *warm, const struct ct_warm_memory *memory, uint64_t more)
{
    if (warm->limit > 0 && memory->spares + more > warm->limit) {
        return false;
    }
    return memory->total == 0 || memory->available >= more + memory->total / 10;
}

/* The last living spare, or -1. One that still imports is worth less than one that is ready. */
static int last_spare(const struct ct_warm *warm)
{
    if (warm->importing >= 0) {
        return warm->importing;
    }
    int spare = warm->count - 1;
    while (spare >= 0 && warm->states[spare] == CT_WARM_NONE) {
        spare--;
    }
    return spare;
}

static int first_missing(const struct ct_warm *warm)
{
    for (int spare = 0; spare < warm->count; spare++) {
        if (warm->states[spare] == CT_WARM_NONE) {
            return spare;
        }
    }
    return -1;
}

static struct ct_warm_action make_next(struct ct_warm *warm, const struct ct_warm_memory *memory,
                                       int64_t now_ns)
{
    int spare = first_missing(warm);
    if (spare < 0 || warm->full) {
        return wait_for(CT_WARM_QUIET_MS);
    }
    if (!fits(warm, memory, warm->each)) {
        warm->full = true;
        return wait_for(CT_WARM_QUIET_MS);
    }
    warm->states[spare] = CT_WARM_IMPORTING;
    warm->importing = spare;
    warm->import_cpu_ms = 0;
    warm->since_ns = now_ns;
    return (struct ct_warm_action){CT_WARM_MAKE, spare, 0};
}

struct ct_warm_action ct_warm_step(struct ct_warm *warm, const struct ct_warm_memory *memory,
                                   int64_t now_ns)
{
    int64_t age_ms = (now_ns - warm->since_ns) / CT_NS_PER_MS;
    int last = last_spare(warm);
    if (last >= 0 && (warm->off || !fits(warm, memory, 0))) {
        warm->full = true;
        return drop(warm, last);
    }
    if (!warm->running || warm->off) {
        return wait_for(last >= 0 ? CT_WARM_QUIET_MS : -1);
    }
    if (warm->importing >= 0) {
        bool endless = warm->import_cpu_ms >= CT_WARM_IMPORT_CPU_MS;
        if (age_ms < CT_WARM_IMPORT_MS && !endless) {
            return wait_for(CT_WARM_BUSY_MS);
        }
        ct_warm_turn_off(warm, endless ? "an import has computed for 10 minutes"
                                       : "an import has hung for 10 minutes");
        return drop(warm, warm->importing);
    }
    if (warm->planning) {
        if (age_ms < CT_WARM_PLAN_MS) {
            return wait_for(CT_WARM_BUSY_MS);
        }
        warm->planning = false;
        ct_warm_turn_off(warm, "the interpreter does not start within a minute");
        return (struct ct_warm_action){CT_WARM_GIVE_UP, -1, 0};
    }
    if (!warm->planned) {
        if (age_ms < CT_WARM_BEGIN_MS) {
            return wait_for(CT_WARM_BEGIN_MS - age_ms);
        }
        warm->planning = true;
        warm->since_ns = now_ns;
        return (struct ct_warm_action){CT_WARM_PLAN, -1, 0};
    }
    return make_next(warm, memory, now_ns);
}

void ct_warm_used(struct ct_warm *warm, int64_t cpu_ms, int64_t now_ns)
{
    if (warm->importing >= 0 && cpu_ms > warm->import_cpu_ms) {
        warm->import_cpu_ms = cpu_ms;
        warm->since_ns = now_ns;
    }
}

void ct_warm_planned(struct ct_warm *warm)
{
    warm->planning = false;
    warm->planned = true;
}

void ct_warm_plan_failed(struct ct_warm *warm)
{
    warm->planning = false;
    warm->running = false; /* until the next generation */
}

void ct_warm_plan_again(struct ct_warm *warm, int spare)
{
    ct_warm_taken(warm, spare);
    warm->planned = false;
}

void ct_warm_ready(struct ct_warm *warm, int spare, uint64_t bytes)
{
    warm->states[spare] = CT_WARM_READY;
    warm->importing = warm->importing == spare ? -1 : warm->importing;
    warm->each = bytes > warm->each ? bytes : warm->each;
}

static void count_death(struct ct_warm *warm)
{
    if (++warm->deaths > CT_WARM_DEATHS) {
        ct_warm_turn_off(warm, "too many of them have died");
    }
}

void ct_warm_died(struct ct_warm *warm, int spare)
{
    ct_warm_taken(warm, spare);
    count_death(warm);
}

void ct_warm_plan_died(struct ct_warm *warm)
{
    warm->planning = false;
    count_death(warm);
}

void ct_warm_taken(struct ct_warm *warm, int spare)
{
    warm->states[spare] = CT_WARM_NONE;
    warm->importing = warm->importing == spare ? -1 : warm->importing;
}

bool ct_warm_waits(const struct ct_warm *warm, int workers)
{
    return warm->importing >= 0 && !warm->off && !warm->in_vain && warm->count == workers &&
           ct_warm_count(warm, CT_WARM_READY) == workers - 1;
}

void ct_warm_waited_in_vain(struct ct_warm *warm)
{
    warm->in_vain = true;
}

bool ct_warm_none_fits(const struct ct_warm *warm)
{
    return warm->full && !warm->off && ct_warm_count(warm, CT_WARM_NONE) == warm->count;
}

int ct_warm_count(const struct ct_warm *warm, enum ct_warm_state state)
{
    int count = 0;
    for (int spare = 0; spare < warm->count; spare++) {
        count += warm->states[spare] == state;
    }
    return count;
}

enum ct_warm_making ct_warm_making(const struct ct_warm *warm)
{
    if (warm->off) {
        return CT_WARM_MAKING_OFF;
    }
    if (ct_warm_count(warm, CT_WARM_READY) == warm->count) {
        return CT_WARM_MAKING_DONE;
    }
    if (warm->full && warm->importing < 0) {
        return CT_WARM_MAKING_MEMORY;
    }
    return warm->running || warm->importing >= 0 ? CT_WARM_MAKING_NOW : CT_WARM_MAKING_LATER;
}
