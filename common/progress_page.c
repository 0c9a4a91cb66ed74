/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs and unpacks the words of a slot. Every value of a slot is checked before the launcher uses
 * it.
 */
#include "common/progress_page.h"

#include "common/num.h"

#include <math.h>
#include <string.h>

_Static_assert(sizeof(struct ct_progress_slot) == CT_PROGRESS_SLOT, "a slot has a fixed size");

#define PHASE_BITS 8
#define PHASE_MASK ((UINT64_C(1) << PHASE_BITS) - 1)

/* Far beyond the slots of any machine. */
#define OFFSET_MAX (INT64_C(1) << 32)

uint64_t ct_progress_where(enum ct_phase phase, int64_t step)
{
    if (step < 0) {
        step = 0;
    } else if (step > CT_PROGRESS_STEP_MAX) {
        step = CT_PROGRESS_STEP_MAX;
    }
    return (uint64_t)step << PHASE_BITS | ((uint64_t)phase & PHASE_MASK);
}

enum ct_phase ct_progress_phase(uint64_t where)
{
    return (enum ct_phase)(where & PHASE_MASK);
}

int64_t ct_progress_step(uint64_t where)
{
    return (int64_t)(where >> PHASE_BITS);
}

static double told(double value)
{
    return isfinite(value) ? value : (double)NAN;
}

bool ct_progress_decode(const struct ct_progress_slot *slot, int64_t now_ns,
                        struct ct_progress *out)
{
    uint64_t phase = slot->where & PHASE_MASK;
    uint64_t step = slot->where >> PHASE_BITS;
    if (slot->version != CT_PROGRESS_VERSION || phase >= CT_PHASES ||
        step > (uint64_t)CT_PROGRESS_STEP_MAX || slot->stamp_ns <= 0) {
        return false;
    }
    int64_t stamp_ns = slot->stamp_ns < now_ns ? slot->stamp_ns : now_ns;
    *out = (struct ct_progress){
        .phase = (enum ct_phase)phase,
        .step = (int64_t)step,
        .turns = slot->turns,
        .stamp_ns = stamp_ns,
        .loss = told(slot->loss),
        .rate = slot->rate >= 0 ? told(slot->rate) : (double)NAN,
        .first_ns = slot->first_ns > 0 && slot->first_ns <= stamp_ns ? slot->first_ns : 0,
        .tells_waits = slot->waits == 1 || phase == CT_PHASE_COLLECTIVE,
        .total = slot->total > 0 && slot->total <= CT_PROGRESS_STEP_MAX ? slot->total : 0,
    };
    if (slot->checkpoint_begin_ns > 0 && slot->checkpoint_end_ns >= slot->checkpoint_begin_ns &&
        slot->checkpoint_end_ns <= now_ns) {
        out->checkpoint_begin_ns = slot->checkpoint_begin_ns;
        out->checkpoint_end_ns = slot->checkpoint_end_ns;
    }
    return true;
}

enum ct_stay ct_progress_stay(const struct ct_progress_slot *slot, int generation)
{
    unsigned bits = slot->stay & 3;
    if (slot->version != CT_PROGRESS_VERSION || bits == CT_STAY_NOT || bits > CT_STAY_PARKED) {
        return CT_STAY_NOT;
    }
    return slot->stay == ct_generation_word(generation, CT_STAY_PARKED) ? CT_STAY_PARKED
                                                                        : CT_STAY_ABLE;
}

bool ct_progress_permanent(const struct ct_progress_slot *slot)
{
    return slot->version == CT_PROGRESS_VERSION && slot->permanent == CT_PROGRESS_PERMANENT;
}

const char *ct_phase_name(enum ct_phase phase)
{
    switch (phase) {
    case CT_PHASE_STARTING:
        return "starting";
    case CT_PHASE_DATA:
        return "data";
    case CT_PHASE_COMPUTE:
        return "compute";
    case CT_PHASE_COLLECTIVE:
        return "collective";
    case CT_PHASE_CHECKPOINT:
        return "checkpoint";
    case CT_PHASE_DONE:
        return "done";
    }
    return "?";
}

int ct_progress_parse(const char *value, char *path, size_t cap, int64_t *offset)
{
    const char *colon = strrchr(value, ':');
    int64_t at;
    if (colon == NULL || colon == value || value[0] != '/' ||
        ct_parse_i64(colon + 1, 0, OFFSET_MAX, &at) != 0 || at % CT_PROGRESS_SLOT != 0) {
        return CT_EFORMAT;
    }
    size_t len = (size_t)(colon - value);
    if (len >= cap) {
        return CT_ELIMIT;
    }
    memcpy(path, value, len);
    path[len] = '\0';
    *offset = at;
    return 0;
}
