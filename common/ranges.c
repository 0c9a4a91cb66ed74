/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks over a set and joins members that follow each other. It needs no memory but that of the
 * buffer to which a list is appended.
 */
#include "common/ranges.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

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

static int count_between(const struct ct_ranges *ranges, int from, int to)
{
    int count = 0;
    for (int i = from; i < to; i++) {
        count += ranges->has(ranges->set, i);
    }
    return count;
}

int ct_ranges_add_some_ranks(const struct ct_ranges *ranges, size_t room, struct ct_buf *out)
{
    int count = count_between(ranges, 0, ranges->count), left = count, at = 0, before = 0;
    char range[CT_RANGE_MAX];
    const char *between = "";
    ct_buf_addf(out, count == 1 ? "rank " : "ranks ");
    for (size_t used = 0; ct_ranges_next(ranges, &at, range); before = at, between = ", ") {
        used += strlen(between) + strlen(range);
        if (used > room) {
            ct_buf_addf(out, " and %d more", left);
            break;
        }
        ct_buf_addf(out, "%s%s", between, range);
        left -= count_between(ranges, before, at);
    }
    return count;
}

int ct_ranges_add_ranks(const struct ct_ranges *ranges, struct ct_buf *out)
{
    return ct_ranges_add_some_ranks(ranges, SIZE_MAX, out);
}

const char *ct_ranges_machine(int first_rank, int workers, char out[CT_RANGES_MACHINE_MAX])
{
    char range[CT_RANGE_MAX];
    (void)snprintf(out, CT_RANGES_MACHINE_MAX, "%s%s", workers == 1 ? "rank " : "ranks ",
                   ct_range_text(first_rank, first_rank + (workers - 1), range));
    return out;
}
