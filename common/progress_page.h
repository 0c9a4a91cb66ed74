/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress page: a small file in shared memory, one per machine, with a slot for each worker.
 * A worker writes its progress there without a system call, and its launcher reads it at any time.
 * The environment variable CTRUN_PROGRESS tells a worker the path and where its slot begins:
 *
 *     CTRUN_PROGRESS=/proc/4711/fd/9:256
 *
 * A slot has one writer. Each field is one aligned word, so a reader never sees half of one. Two
 * fields may come from two successive stamps, which does no harm. The launcher treats a slot as
 * hostile input: it copies the slot and believes only what ct_progress_decode() accepts.
 */
#ifndef CT_COMMON_PROGRESS_PAGE_H
#define CT_COMMON_PROGRESS_PAGE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CT_PROGRESS_ENV "CTRUN_PROGRESS"

/* Two cache lines: processors may fetch lines in pairs, and workers must not share a pair. */
#define CT_PROGRESS_SLOT 128

/* "CTP1", little-endian; 0 until the worker has come. */
#define CT_PROGRESS_VERSION UINT32_C(0x31505443)

enum ct_phase {
    CT_PHASE_STARTING, /* no step yet */
    CT_PHASE_DATA,
    CT_PHASE_COMPUTE,
    CT_PHASE_COLLECTIVE, /* waits for its peers, or for what they send */
    CT_PHASE_CHECKPOINT,
    CT_PHASE_DONE,
};

#define CT_PHASES 6

/* "NoRe", little-endian. Data that happens to be there will hardly have this value. */
#define CT_PROGRESS_PERMANENT UINT32_C(0x65526f4e)

/* The step shares one word with the phase, which takes eight bits. */
#define CT_PROGRESS_STEP_MAX ((INT64_C(1) << 55) - 1)

struct ct_progress_slot {
    uint32_t version;
    uint32_t turns;     /* steps completed by this process */
    uint64_t where;     /* step << 8 | phase */
    int64_t stamp_ns;   /* CLOCK_MONOTONIC */
    double loss, rate;  /* not finite = not told */
    int64_t first_ns;   /* as stamp_ns, when turns became 1; 0 = not yet, or not told */
    uint32_t stay;      /* ct_generation_word() of an enum ct_stay */
    uint32_t permanent; /* CT_PROGRESS_PERMANENT: the worker says that a restart cannot help */
    /* Of the last checkpoint, as stamp_ns; 0 = there was none. While one is being taken, its end is
     * before its beginning. */
    int64_t checkpoint_begin_ns, checkpoint_end_ns;
    int64_t total;  /* the step at the end of the training; 0 = not told */
    uint64_t waits; /* 1 = it was in the phase "collective" once, so it tells when it waits */
    int64_t writer; /* pid of the process that has opened the slot; 0 = none has */
    unsigned char rest[CT_PROGRESS_SLOT - 12 * sizeof(uint64_t)];
};

/* Can the process go on in another generation (common/handover.h)? */
enum ct_stay {
    CT_STAY_NOT,    /* no; 0, so also for a worker that does not know the field */
    CT_STAY_ABLE,   /* it parks when it is told to */
    CT_STAY_PARKED, /* it waits for the order that follows the generation in `stay` */
};

/* What a reader may believe. */
struct ct_progress {
    enum ct_phase phase;
    int64_t step;      /* 0 ... CT_PROGRESS_STEP_MAX */
    uint32_t turns;    /* steps this process has completed, modulo 2^32; step may start anywhere */
    int64_t stamp_ns;  /* of the last stamp, never after the time of reading */
    double loss, rate; /* rate: samples per second; NAN = not told */
    int64_t first_ns;  /* when the first step was completed, not after stamp_ns; 0 = not told */
    /* Of the last checkpoint that is complete, the end not before the beginning; 0 = not told */
    int64_t checkpoint_begin_ns, checkpoint_end_ns;
    int64_t total;    /* the step at the end of the training, as told; 0 = not told */
    bool tells_waits; /* by the phase "collective", in which it was at least once */
};

/* A step beyond the range counts as the nearest one within. */
uint64_t ct_progress_where(enum ct_phase phase, int64_t step);

int64_t ct_progress_step(uint64_t where);
enum ct_phase ct_progress_phase(uint64_t where); /* of a slot of one's own: not checked */

/* False: no worker has stamped the slot, or a value is impossible. `now_ns`: CLOCK_MONOTONIC. */
bool ct_progress_decode(const struct ct_progress_slot *slot, int64_t now_ns,
                        struct ct_progress *out);

/* Packs a generation and two bits. Generations that are 2^30 apart give the same word. */
static inline uint32_t ct_generation_word(int generation, unsigned bits)
{
    return (uint32_t)generation << 2 | bits;
}

/* Can the worker go on after `generation`? CT_STAY_PARKED is meant for one generation: if the slot
 * names another one, the answer is CT_STAY_ABLE. */
enum ct_stay ct_progress_stay(const struct ct_progress_slot *slot, int generation);

/* Has the worker said that a restart cannot help? */
bool ct_progress_permanent(const struct ct_progress_slot *slot);

/* "data", "collective", ... Never NULL. */
const char *ct_phase_name(enum ct_phase phase);

/* Splits a value of CTRUN_PROGRESS. The path (cut off, NUL-terminated) goes to `path`. CT_EFORMAT,
 * or CT_ELIMIT when the path is longer than `cap` - 1. */
CT_MUST_CHECK int ct_progress_parse(const char *value, char *path, size_t cap, int64_t *offset);

#endif
