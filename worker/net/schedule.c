/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the schedules of schedule.h. Each function appends the steps of one host. schedule_init()
 * allocates for the longest schedule, and schedule_fini() frees it; nothing else fails.
 */
#include "worker/net/schedule.h"

#include "common/alloc.h"
#include "worker/shm/sum.h"

bool schedule_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

int schedule_levels(int nodes)
{
    int levels = 0;
    while (schedule_power_of_two(nodes) && 1 << levels < nodes) {
        levels++;
    }
    return levels;
}

int schedule_init(struct schedule *schedule, int nodes)
{
    *schedule = (struct schedule){0};
    schedule->steps = ct_calloc(2 * (size_t)nodes, sizeof(*schedule->steps));
    return schedule->steps != NULL ? 0 : CT_ENOMEM;
}

void schedule_fini(struct schedule *schedule)
{
    ct_free(schedule->steps);
    *schedule = (struct schedule){0};
}

static struct schedule_step *add_step(struct schedule *schedule, int to, int from)
{
    struct schedule_step *step = &schedule->steps[schedule->count++];
    *step = (struct schedule_step){.to = to, .from = from};
    return step;
}

static void segment(size_t bytes, int index, int nodes, size_t *begin, size_t *end)
{
    sum_share(bytes / sizeof(float), index, nodes, begin, end);
    *begin *= sizeof(float);
    *end *= sizeof(float);
}

void schedule_ring(struct schedule *schedule, int node, int nodes, size_t bytes)
{
    schedule->count = 0;
    size_t base = 0;
    for (int s = 0; s < 2 * (nodes - 1); s++) {
        struct schedule_step *step = add_step(schedule, SCHEDULE_NEXT, SCHEDULE_PREV);
        /* s < 2 nodes, so the dividends are not negative. */
        segment(bytes, (node - s + 2 * nodes) % nodes, nodes, &step->send_begin, &step->send_end);
        segment(bytes, (node - s - 1 + 2 * nodes) % nodes, nodes, &step->recv_begin,
                &step->recv_end);
        step->follows = s > 0;
        step->send_own = s == 0;
        step->add = s < nodes - 1;
        if (step->add) {
            step->recv_own = true;
            step->recv_base = base;
            base += step->recv_end - step->recv_begin;
        }
    }
}

void schedule_tree(struct schedule *schedule, int node, int nodes, size_t bytes)
{
    schedule->count = 0;
    int levels = schedule_levels(nodes);
    size_t begin = 0, end = bytes;
    for (int k = 0; k < levels; k++) {
        bool upper = node >> k & 1;
        size_t cut_begin, middle;
        segment(end - begin, 0, 2, &cut_begin, &middle);
        middle += begin;
        struct schedule_step *step = add_step(schedule, SCHEDULE_PARTNER + k, SCHEDULE_PARTNER + k);
        step->send_begin = upper ? begin : middle;
        step->send_end = upper ? middle : end;
        step->recv_begin = begin = upper ? middle : begin;
        step->recv_end = end = upper ? end : middle;
        step->add = true;
        step->mine_first = !upper;
        step->send_own = step->recv_own = k == 0;
    }
    for (int k = levels - 1; k >= 0; k--) {
        const struct schedule_step *there = &schedule->steps[k];
        struct schedule_step *back = add_step(schedule, SCHEDULE_PARTNER + k, SCHEDULE_PARTNER + k);
        back->send_begin = there->recv_begin;
        back->send_end = there->recv_end;
        back->recv_begin = there->send_begin;
        back->recv_end = there->send_end;
        back->follows = k == levels - 1;
    }
}

void schedule_doubling(struct schedule *schedule, int node, int nodes, size_t bytes)
{
    schedule->count = 0;
    for (int k = 0; k < schedule_levels(nodes); k++) {
        struct schedule_step *step = add_step(schedule, SCHEDULE_PARTNER + k, SCHEDULE_PARTNER + k);
        step->send_end = step->recv_end = bytes;
        step->add = step->copy = true;
        step->mine_first = (node >> k & 1) == 0;
        step->send_own = step->recv_own = k == 0;
    }
}

void schedule_broadcast(struct schedule *schedule, int node, int nodes, int root, size_t bytes)
{
    schedule->count = 0;
    int place = (node - root + nodes) % nodes; /* position in the chain that starts at the root */
    if (place > 0) {
        add_step(schedule, SCHEDULE_NOBODY, SCHEDULE_PREV)->recv_end = bytes;
    }
    if (place < nodes - 1) {
        struct schedule_step *step = add_step(schedule, SCHEDULE_NEXT, SCHEDULE_NOBODY);
        step->send_end = bytes;
        step->follows = place > 0;
    }
}
