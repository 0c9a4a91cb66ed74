/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides the node rank of each node and the ranks of its workers.
 *
 * A node claims the node rank that a flag or the scheduler gave it, else the one that it had in the
 * last world. A survivor is a node of the last world. If the claims of all survivors can be met,
 * they keep their numbers. Newcomers get the number that they want if it is free, else the free
 * numbers in natural order of host names. Otherwise (the world shrinks, or wishes have gaps) all
 * nodes are numbered from 0 in the order of their claims.
 */
#include "rendezvous/members/members_rank.h"

#include "common/host_order.h"

#include <stdlib.h>
#include <string.h>

static bool survives(const struct ct_member *node)
{
    return node->node_rank >= 0;
}

static int claim(const struct ct_member *node)
{
    if (node->wish >= 0) {
        return node->wish;
    }
    return survives(node) ? node->node_rank : CT_MAX_NODES;
}

static int by_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Compares by claim. Of equal claims that of a survivor comes first. */
static int compare_claims(const void *pa, const void *pb)
{
    const struct ct_member *a = *(struct ct_member *const *)pa;
    const struct ct_member *b = *(struct ct_member *const *)pb;
    if (claim(a) != claim(b)) {
        return claim(a) < claim(b) ? -1 : 1;
    }
    if (survives(a) != survives(b)) {
        return survives(a) ? -1 : 1;
    }
    int hosts = ct_host_compare(a->host, b->host);
    return hosts != 0 ? hosts : by_order(a->order, b->order);
}

static int compare_ranks(const void *pa, const void *pb)
{
    const struct ct_member *a = *(struct ct_member *const *)pa;
    const struct ct_member *b = *(struct ct_member *const *)pb;
    return (a->node_rank > b->node_rank) - (a->node_rank < b->node_rank);
}

/* Can the claims of all survivors be met? The array is sorted by claims. */
static bool all_fit(struct ct_member *const *nodes, int n)
{
    int last = -1;
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (survives(nodes[i])) {
            if (claim(nodes[i]) >= n || claim(nodes[i]) == last) {
                return false;
            }
            last = claim(nodes[i]);
            any = true;
        }
    }
    /* If a wish in the first world is too high, wishes have gaps. Then only their order counts. */
    for (int i = 0; !any && i < n; i++) {
        if (nodes[i]->wish >= n) {
            return false;
        }
    }
    return true;
}

/* Gives each number to the first node that claims it, and then the free numbers to the others. The
 * array is sorted by claims, so one pass is enough for each. */
static void meet_claims(struct ct_member **nodes, int n)
{
    int last = -1;
    for (int i = 0; i < n; i++) {
        int want = claim(nodes[i]);
        bool met = want < n && want != last;
        last = met ? want : last;
        nodes[i]->node_rank = met ? want : -1;
    }
    int next = 0, taken = 0; /* `taken` runs over the claims that were met */
    for (int i = 0; i < n; i++) {
        if (nodes[i]->node_rank >= 0) {
            continue;
        }
        for (;; next++) {
            while (taken < n && (claim(nodes[taken]) < next || claim(nodes[taken]) >= n)) {
                taken++;
            }
            if (taken == n || claim(nodes[taken]) != next) {
                break;
            }
        }
        nodes[i]->node_rank = next++;
    }
}

void members_rank_nodes(struct ct_member **nodes, int n)
{
    qsort(nodes, (size_t)n, sizeof(nodes[0]), compare_claims);
    if (all_fit(nodes, n)) {
        meet_claims(nodes, n);
    } else {
        for (int i = 0; i < n; i++) {
            nodes[i]->node_rank = i;
        }
    }
    qsort(nodes, (size_t)n, sizeof(nodes[0]), compare_ranks);
}

static int compare_roles(const void *pa, const void *pb)
{
    const struct ct_member *a = *(struct ct_member *const *)pa;
    const struct ct_member *b = *(struct ct_member *const *)pb;
    int roles = strcmp(a->role, b->role);
    return roles != 0 ? roles : compare_ranks(pa, pb);
}

int members_rank_workers(struct ct_member **nodes, int n)
{
    int world = 0;
    for (int i = 0; i < n; i++) {
        nodes[i]->first_rank = world;
        world += nodes[i]->workers;
    }
    qsort(nodes, (size_t)n, sizeof(nodes[0]), compare_roles);
    for (int from = 0, to; from < n; from = to) {
        int size = 0;
        for (to = from; to < n && strcmp(nodes[to]->role, nodes[from]->role) == 0; to++) {
            nodes[to]->first_role_rank = size;
            size += nodes[to]->workers;
        }
        for (int i = from; i < to; i++) {
            nodes[i]->role_size = size;
        }
    }
    qsort(nodes, (size_t)n, sizeof(nodes[0]), compare_ranks);
    return world;
}
