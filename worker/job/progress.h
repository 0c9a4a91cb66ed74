/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker's side of the progress page (common/progress_page.h).
 */
#ifndef CT_WORKER_JOB_PROGRESS_H
#define CT_WORKER_JOB_PROGRESS_H

#include "common/progress_page.h"

/* Zeroed memory is "no page". */
struct progress_page {
    struct ct_progress_slot *slot; /* in shared memory, NULL = nobody reads */
    void *mapping;
    size_t mapped;
};

/* Maps the slot that CTRUN_PROGRESS names. A page is a convenience, so that nothing here fails: a
 * variable that makes no sense, or a file of somebody else's, leaves the job without one. */
void progress_open(struct progress_page *page, const char *value);
void progress_close(struct progress_page *page);

/* As progress_open() leaves the page: of a process that has just begun. Keeps what it says of
 * staying. */
void progress_renew(struct progress_page *page);

/* Says a ct_generation_word() of an enum ct_stay. */
void progress_stay(struct progress_page *page, uint32_t stay);

/* Says that a restart of this worker cannot help, until a process opens the page anew. */
void progress_permanent(struct progress_page *page);

/* Around a wait for peers: the phase becomes COLLECTIVE, then again what it was. `page` may be
 * NULL. */
uint64_t progress_begin_wait(struct progress_page *page);
void progress_end_wait(struct progress_page *page, uint64_t before);

#endif
