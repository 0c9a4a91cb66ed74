/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks gather what each has noticed, so all decide the same in the same step. Rank 0 sets the
 * number of steps until the next exchange, from the time that its last steps took. A failure is
 * that of the exchange.
 */
#include "trainer/model/preempt.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <string.h>
#include <unistd.h>

/* A notice comes seconds to minutes before the end, so a twentieth of a second is soon enough. */
#define EXCHANGE_NS (50 * CT_NS_PER_MS)
/* So that a few fast steps at the start cannot postpone the next exchange for long. */
#define GROWTH_MAX 8

enum { VALUE_WANTS, VALUE_STEPS, VALUE_SUMS, VALUES = VALUE_SUMS + CT_PREEMPT_SUMS };

_Static_assert(VALUES <= CT_GROUP_VALUES_MAX, "they fit into one exchange");

void ct_preempt_init(struct ct_preempt *p, const char *file, const atomic_int *flagged)
{
    *p = (struct ct_preempt){
        .file = file, .flagged = flagged, .next = 1, .last_ns = ct_clock_now(NULL)};
}

static bool noticed(const struct ct_preempt *p)
{
    return (p->flagged != NULL && *p->flagged != 0) ||
           (p->file != NULL && access(p->file, F_OK) == 0);
}

/* Returns the steps until the next exchange, from the time of those since the last one. */
static int64_t interval(struct ct_preempt *p)
{
    int64_t now = ct_clock_now(NULL);
    int64_t steps = p->steps > p->last ? p->steps - p->last : 1;
    int64_t spent = now - p->last_ns + 1;
    int64_t wanted = EXCHANGE_NS / (spent / steps + 1);
    p->last = p->steps;
    p->last_ns = now;
    wanted = wanted < GROWTH_MAX * steps ? wanted : GROWTH_MAX * steps;
    return wanted > 1 ? wanted : 1;
}

bool ct_preempt_due(struct ct_preempt *p)
{
    return ++p->steps >= p->next;
}

int ct_preempt_agree(struct ct_preempt *p, struct ct_group *group, double sums[CT_PREEMPT_SUMS],
                     unsigned *wants, struct ct_err *err)
{
    double mine[VALUES] = {
        [VALUE_WANTS] = (double)(*wants | (noticed(p) ? CT_PREEMPT_STOP : 0U)),
        [VALUE_STEPS] = (double)interval(p),
    };
    memcpy(mine + VALUE_SUMS, sums, CT_PREEMPT_SUMS * sizeof *sums);
    double *all = ct_calloc(VALUES * (size_t)group->world, sizeof *all);
    if (all == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int rc = ct_group_all_gather(group, mine, VALUES, all, err);
    memset(sums, 0, CT_PREEMPT_SUMS * sizeof *sums);
    *wants = 0;
    for (int r = 0; rc == 0 && r < group->world; r++) {
        const double *theirs = all + (size_t)r * VALUES;
        *wants |= (unsigned)theirs[VALUE_WANTS];
        for (size_t i = 0; i < CT_PREEMPT_SUMS; i++) {
            sums[i] += theirs[VALUE_SUMS + i];
        }
    }
    if (rc == 0) {
        p->next = p->steps + (int64_t)all[VALUE_STEPS]; /* rank 0's value, because clocks differ */
    }
    ct_free(all);
    return rc;
}
