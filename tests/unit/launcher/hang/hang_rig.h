/* SPDX-License-Identifier: Apache-2.0
 *
 * Four ranks on a clock of their own, for tests of hang detection: a second per sample.
 */
#ifndef CT_TESTS_UNIT_LAUNCHER_HANG_HANG_RIG_H
#define CT_TESTS_UNIT_LAUNCHER_HANG_HANG_RIG_H

#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/hang/hang.h"

#include <stdio.h>

#define RANKS 4
#define S CT_NS_PER_S

struct rig {
    struct ct_hang hang;
    struct ct_hang_sample samples[RANKS];
    struct ct_hang_verdict verdict;
    int64_t now;
};

static inline void begin(struct rig *rig, int64_t timeout, bool pages)
{
    *rig = (struct rig){.now = 1000 * S};
    assert_int_equal(ct_hang_init(&rig->hang, RANKS, true, timeout), 0);
    for (int i = 0; i < RANKS; i++) {
        rig->samples[i] =
            (struct ct_hang_sample){.alive = true, .pid = 100 + i, .has_page = pages, .state = 'S'};
        (void)snprintf(rig->samples[i].wchan, sizeof(rig->samples[i].wchan), "futex_wait");
    }
}

static inline void end(struct rig *rig)
{
    ct_hang_fini(&rig->hang);
}

static inline void stamp(struct rig *rig, int rank, enum ct_phase phase, int64_t step)
{
    rig->samples[rank].page = (struct ct_progress){.phase = phase,
                                                   .step = step,
                                                   .stamp_ns = rig->now,
                                                   .turns = step > 0,
                                                   .tells_waits = phase == CT_PHASE_COLLECTIVE};
}

/* One second later. */
static inline enum ct_hang_reason tick(struct rig *rig)
{
    rig->now += S;
    ct_hang_step(&rig->hang, rig->samples, rig->now, &rig->verdict);
    return rig->verdict.reason;
}

/* Nothing happens for so long; returns the first verdict. */
static inline enum ct_hang_reason wait_for(struct rig *rig, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        if (tick(rig) != CT_HANG_NONE) {
            return rig->verdict.reason;
        }
    }
    return CT_HANG_NONE;
}

static inline void burn(struct rig *rig, int seconds)
{
    for (int s = 0; s < seconds; s++) {
        for (int i = 0; i < RANKS; i++) {
            rig->samples[i].cpu_ns += S;
        }
        assert_int_equal(tick(rig), CT_HANG_NONE);
    }
}

static inline struct ct_hang_vote still(const struct rig *rig)
{
    struct ct_hang_vote out;
    ct_hang_local_vote(&rig->hang, rig->samples, rig->now, &out);
    return out;
}

#endif
