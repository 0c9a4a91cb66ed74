/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts refusals and limits the rate of lines about them, so that no peer can fill a log.
 * Pure.
 */
#ifndef CT_RENDEZVOUS_ADMISSION_REFUSAL_LOG_H
#define CT_RENDEZVOUS_ADMISSION_REFUSAL_LOG_H

#include <stdint.h>

/* At most one line in this time. */
#define CT_REFUSAL_QUIET_MS 1000

/* Zeroed memory is valid. */
struct ct_refusal_log {
    uint64_t total;
    uint64_t reported; /* of `total`, those that a line has counted */
    uint64_t next_ms;  /* when a line may come again */
};

/* Counts a refusal. Returns how many the caller should report in one line now; 0 = report nothing,
 * the next line counts this one, too. `now_ms` is any clock that does not go back. */
uint64_t ct_refusal_log_add(struct ct_refusal_log *refusals, uint64_t now_ms);

/* For a line about the last of `unreported`: " (and 12 others like it)", or "". */
#define CT_REFUSALS_TEXT_MAX 48
const char *ct_refusals_others(uint64_t unreported, char out[CT_REFUSALS_TEXT_MAX]);

#endif
