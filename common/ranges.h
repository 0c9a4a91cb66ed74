/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of ranks and of CPUs, as people write them: "0, 2-7".
 */
#ifndef CT_COMMON_RANGES_H
#define CT_COMMON_RANGES_H

#include "common/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* A set of numbers from 0 to count - 1. */
struct ct_ranges {
    bool (*has)(const void *set, int number);
    const void *set; /* borrowed */
    int count;
    int first; /* is added to every number that is written: the first rank of a machine */
};

/* "-2147483648--2147483648" and a NUL. */
#define CT_RANGE_MAX 24

/* Writes "2-7", or "2" if that is all. Returns `out`. */
const char *ct_range_text(int first, int last, char out[CT_RANGE_MAX]);

/* Writes the next members that follow each other. *at is 0 at first. False after the last. */
bool ct_ranges_next(const struct ct_ranges *ranges, int *at, char out[CT_RANGE_MAX]);

/* Appends all of them with `comma` between two, as ct_buf_addf() does. */
void ct_ranges_add(const struct ct_ranges *ranges, const char *comma, struct ct_buf *out);

/* Appends "rank 3" or "ranks 0, 2-7" in the same way. Returns how many they are. */
int ct_ranges_add_ranks(const struct ct_ranges *ranges, struct ct_buf *out);

/* The same for a line of a report: what does not fit into `room` bytes is counted, as in
 * "ranks 0, 2-7 and 430 more". */
int ct_ranges_add_some_ranks(const struct ct_ranges *ranges, size_t room, struct ct_buf *out);

/* Writes the ranks of a machine with at least one worker: "rank 3" or "ranks 2-7". Returns `out`.
 */
#define CT_RANGES_MACHINE_MAX (sizeof("ranks ") + CT_RANGE_MAX)
const char *ct_ranges_machine(int first_rank, int workers, char out[CT_RANGES_MACHINE_MAX]);

#endif
