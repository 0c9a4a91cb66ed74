/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's side of common/handover.h: reads the launcher's orders about this process's
 * generation, and the environment of the next one.
 */
#ifndef CT_WORKER_JOB_ORDER_READER_H
#define CT_WORKER_JOB_ORDER_READER_H

#include "common/err.h"
#include "common/handover.h"
#include "common/progress_page.h"

#include <stdbool.h>
#include <stddef.h>

/* Zeroed memory means that no launcher gives orders. */
struct order_reader {
    const struct ct_handover_slot *slot; /* in shared memory */
    void *mapping;
    size_t mapped;
    int generation; /* the generation of this process */
    bool able;      /* the process has said that it can go on in the next one */
};

/* Maps the slot that CTRUN_HANDOVER names, for reading. It cannot fail: an invalid value means that
 * there are no orders. */
void order_reader_open(struct order_reader *handover, const char *value, int generation);
void order_reader_close(struct order_reader *handover);

/* Has the launcher ended this process's generation, so that no peer joins a collective any more?
 * Costs a load and a comparison. False if `handover` is NULL or the process cannot go on. */
static inline bool order_reader_ended(const struct order_reader *handover)
{
    if (handover == NULL || !handover->able) {
        return false;
    }
    uint32_t order = __atomic_load_n(&handover->slot->order, __ATOMIC_RELAXED);
    return order == ct_generation_word(handover->generation, CT_ORDER_PARK) ||
           (order & 3) == CT_ORDER_END;
}

/* CT_EPEER with the reason if the generation has ended, else 0. */
CT_MUST_CHECK int order_reader_check(const struct order_reader *handover, struct ct_err *err);

/* Waits until the launcher has ended this generation. CT_ETIMEDOUT; CT_EABORTED if the job is over.
 */
CT_MUST_CHECK int order_reader_await_end(const struct order_reader *handover, int64_t timeout_ms,
                                         struct ct_err *err);

/* Waits, without a limit, for the next generation. Gives its environment in *text, which the caller
 * must ct_free() and whose last byte is a NUL, and its number modulo 2^30. CT_EABORTED if the job
 * is over; CT_EPROTO, CT_ENOMEM. */
CT_MUST_CHECK int order_reader_await_next(const struct order_reader *handover, char **text,
                                          size_t *bytes, uint32_t *generation, struct ct_err *err);

#endif
