/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks over a set and joins members that follow each other. It needs no memory but that of the
 * buffer to which a list is appended.
 */
#include "common/ranges.h"

#include <stdio.h>

const char *ct_range_text(int first, int last, char out[CT_RANGE_MAX])
{
    (void)snprintf(out, CT_RANGE_MAX, last > first ? "%d-%d" : "%d", first, last);
    return out;
}

bool ct_ranges_next(const struct ct_ranges *ranges, int *at, char out[CT_RANGE_MAX])
{
    int first = *at;
    while (first < ranges->count && !ranges->has(ranges->set, first)) {
        first++;
    }
    int end = first;
    while (end < ranges->count && ranges->has(ranges->set, end)) {
        end++;
    }
    *at = end;
    if (end > first) {
        (void)ct_range_text(ranges->first + first, ranges->first + end - 1, out);
    }
    return end > first;
}

void ct_ranges_add(const struct ct_ranges *ranges, const char *comma, struct ct_buf *out)
{
    char range[CT_RANGE_MAX];
    const char *between = "";
    for (int at = 0; ct_ranges_next(ranges, &at, range); between = comma) {
        ct_buf_addf(out, "%s%s", between, range);
    }
}

int ct_ranges_add_ranks(const struct ct_ranges *ranges, struct ct_buf *out)
{
    int count = 0;
    for (int i = 0; i < ranges->count; i++) {
        count += ranges->has(ranges->set, i);
    }
    ct_buf_addf(out, count == 1 ? "rank " : "ranks ");
    ct_ranges_add(ranges, ", ", out);
    return count;
}

const char *ct_ranges_machine(int first_rank, int workers, char out[CT_RANGES_MACHINE_MAX])
{
    char range[CT_RANGE_MAX];
    (void)snprintf(out, CT_RANGES_MACHINE_MAX, "%s%s", workers == 1 ? "rank " : "ranks ",
                   ct_range_text(first_rank, first_rank + (workers - 1), range));
    return out;
}
