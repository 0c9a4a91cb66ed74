/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's side of the progress page (common/progress_page.h).
 */
#ifndef CT_WORKER_JOB_PROGRESS_H
#define CT_WORKER_JOB_PROGRESS_H

#include "common/progress_page.h"

/* Zeroed memory means that there is no page. */
struct progress_page {
    struct ct_progress_slot *slot; /* in shared memory; NULL = nobody reads */
    void *mapping;
    size_t mapped;
};

/* Maps the slot that CTRUN_PROGRESS names. It cannot fail, because a job works without the page:
 * with an invalid value, or another program's file, there is none. */
void progress_map(struct progress_page *page, const char *value);

/* Maps the slot and resets it, unless another process that lives has opened it: children inherit
 * CTRUN_PROGRESS, and what the worker has told must stay. */
void progress_open(struct progress_page *page, const char *value);
void progress_close(struct progress_page *page);

/* Resets the page as for a process that has just begun, except what progress_stay() has set. */
void progress_renew(struct progress_page *page);

/* All that is told below, and by ctw_progress() and its like, counts only in the process that has
 * opened the slot: what a child of it does, such as a data loader, is no progress of the worker. */

/* Publishes a ct_generation_word() of an enum ct_stay. */
void progress_stay(struct progress_page *page, uint32_t stay);

/* Publishes that a restart of this worker cannot help; any process may. The next progress_open()
 * clears it. */
void progress_permanent(struct progress_page *page);

/* Enclose a wait for peers: the phase becomes COLLECTIVE, then again what it was. `page` may be
 * NULL. */
uint64_t progress_begin_wait(struct progress_page *page);
void progress_end_wait(struct progress_page *page, uint64_t before);

#endif
