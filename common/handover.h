/* SPDX-License-Identifier: Apache-2.0
 *
 * How a process goes on in the next generation of its job, instead of ending and being replaced.
 * The launcher writes orders into a file in memory with a slot for each worker. The environment
 * variable CTRUN_HANDOVER tells a worker the path and where its slot begins, in the form of
 * CTRUN_PROGRESS. The worker answers through its progress page (enum ct_stay):
 *
 *     worker                          launcher
 *     ABLE, once                      nothing
 *     (a peer dies)                   PARK, of the generation that has ended
 *     PARKED, of that generation      (all others are gone) GO, of the next one, with its contract;
 *     reads it, is ABLE again         or END: the job is over
 *
 * A contract is written only while the worker is parked. The worker reads it before it parks again,
 * so it never sees half of one.
 */
#ifndef CT_COMMON_HANDOVER_H
#define CT_COMMON_HANDOVER_H

#include <stdint.h>

#define CT_HANDOVER_ENV "CTRUN_HANDOVER"

/* Names a file that appears, as JSON, when the job is asked to end: signo, deadline (Unix time). */
#define CT_PREEMPT_ENV "CTRUN_PREEMPT_FILE"

/* Room for one or two of the longest paths. Only what is written takes memory. */
#define CT_HANDOVER_SLOT 16384

/* "CTH1", little-endian. */
#define CT_HANDOVER_VERSION UINT32_C(0x31485443)

enum ct_order {
    CT_ORDER_NONE,
    CT_ORDER_PARK,
    CT_ORDER_GO,
    CT_ORDER_END,
};

struct ct_handover_slot {
    uint32_t version;
    uint32_t order; /* ct_generation_word() of an enum ct_order; a futex */
    uint32_t bytes; /* of the text */
    uint32_t unused;
    char text[CT_HANDOVER_SLOT - 4 * sizeof(uint32_t)]; /* "NAME=value\0", one behind the other */
};
_Static_assert(sizeof(struct ct_handover_slot) == CT_HANDOVER_SLOT, "a slot has a fixed size");

#endif
