/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/net/plan.h"

#include "common/alloc.h"
#include "worker/shm/sum.h"

bool plan_power_of_two(int n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

int plan_levels(int nodes)
{
    int levels = 0;
    while (plan_power_of_two(nodes) && 1 << levels < nodes) {
        levels++;
    }
    return levels;
}

int plan_init(struct plan *plan, int nodes)
{
    *plan = (struct plan){0};
    plan->steps = ct_calloc(2 * (size_t)nodes, sizeof(*plan->steps));
    return plan->steps != NULL ? 0 : CT_ENOMEM;
}

void plan_fini(struct plan *plan)
{
    ct_free(plan->steps);
    *plan = (struct plan){0};
}

static struct plan_step *add_step(struct plan *plan, int to, int from)
{
    struct plan_step *step = &plan->steps[plan->count++];
    *step = (struct plan_step){.to = to, .from = from};
    return step;
}

static void segment(size_t bytes, int index, int nodes, size_t *begin, size_t *end)
{
    sum_share(bytes / sizeof(float), index, nodes, begin, end);
    *begin *= sizeof(float);
    *end *= sizeof(float);
}

void plan_ring(struct plan *plan, int node, int nodes, size_t bytes)
{
    plan->count = 0;
    size_t base = 0;
    for (int s = 0; s < 2 * (nodes - 1); s++) {
        struct plan_step *step = add_step(plan, PLAN_NEXT, PLAN_PREV);
        /* s < 2 nodes, so the remainders are of positive numbers. */
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

void plan_tree(struct plan *plan, int node, int nodes, size_t bytes)
{
    plan->count = 0;
    int levels = plan_levels(nodes);
    size_t begin = 0, end = bytes;
    for (int k = 0; k < levels; k++) {
        bool upper = node >> k & 1;
        size_t cut_begin, middle;
        segment(end - begin, 0, 2, &cut_begin, &middle);
        middle += begin;
        struct plan_step *step = add_step(plan, PLAN_PARTNER + k, PLAN_PARTNER + k);
        step->send_begin = upper ? begin : middle;
        step->send_end = upper ? middle : end;
        step->recv_begin = begin = upper ? middle : begin;
        step->recv_end = end = upper ? end : middle;
        step->add = true;
        step->mine_first = !upper;
        step->send_own = step->recv_own = k == 0;
    }
    for (int k = levels - 1; k >= 0; k--) {
        const struct plan_step *there = &plan->steps[k];
        struct plan_step *back = add_step(plan, PLAN_PARTNER + k, PLAN_PARTNER + k);
        back->send_begin = there->recv_begin;
        back->send_end = there->recv_end;
        back->recv_begin = there->send_begin;
        back->recv_end = there->send_end;
        back->follows = k == levels - 1;
    }
}

void plan_doubling(struct plan *plan, int node, int nodes, size_t bytes)
{
    plan->count = 0;
    for (int k = 0; k < plan_levels(nodes); k++) {
        struct plan_step *step = add_step(plan, PLAN_PARTNER + k, PLAN_PARTNER + k);
        step->send_end = step->recv_end = bytes;
        step->add = step->copy = true;
        step->mine_first = (node >> k & 1) == 0;
        step->send_own = step->recv_own = k == 0;
    }
}

void plan_broadcast(struct plan *plan, int node, int nodes, int root, size_t bytes)
{
    plan->count = 0;
    int place = (node - root + nodes) % nodes; /* in the chain that starts at the root */
    if (place > 0) {
        add_step(plan, PLAN_NOBODY, PLAN_PREV)->recv_end = bytes;
    }
    if (place < nodes - 1) {
        struct plan_step *step = add_step(plan, PLAN_NEXT, PLAN_NOBODY);
        step->send_end = bytes;
        step->follows = place > 0;
    }
}
