/* SPDX-License-Identifier: Apache-2.0
 *
 * Who gets which number.
 *
 * A node claims the rank it was told by flag or scheduler, else the one it had in the last world.
 * If all claims of those who stay can be met, they keep their numbers, and newcomers take what is
 * free: their wish, or in natural order of host names. Otherwise (a world that shrinks, or whose
 * wishes have gaps) everyone moves up in the order of claims.
 */
#include "rendezvous/members/members_impl.h"

#include "common/host_order.h"

#include <stdlib.h>
#include <string.h>

static bool stays(const struct ct_member *node)
{
    return node->node_rank >= 0;
}

static int claim(const struct ct_member *node)
{
    if (node->wish >= 0) {
        return node->wish;
    }
    return stays(node) ? node->node_rank : CT_MAX_NODES;
}

static int by_order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Claims first; between equal ones those who stay. */
static int compare_claims(const void *pa, const void *pb)
{
    const struct ct_member *a = *(struct ct_member *const *)pa;
    const struct ct_member *b = *(struct ct_member *const *)pb;
    if (claim(a) != claim(b)) {
        return claim(a) < claim(b) ? -1 : 1;
    }
    if (stays(a) != stays(b)) {
        return stays(a) ? -1 : 1;
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

/* The array is sorted by claims. Do those who stay fit where they want to be? */
static bool all_fit(struct ct_member *const *nodes, int n)
{
    int last = -1;
    bool any = false;
    for (int i = 0; i < n; i++) {
        if (stays(nodes[i])) {
            if (claim(nodes[i]) >= n || claim(nodes[i]) == last) {
                return false;
            }
            last = claim(nodes[i]);
            any = true;
        }
    }
    /* In the first world wishes with gaps keep their order. */
    for (int i = 0; !any && i < n; i++) {
        if (nodes[i]->wish >= n) {
            return false;
        }
    }
    return true;
}

/* Gives numbers in the order of claims, each at most once: first the claims that can be met, then
 * what is free. Being sorted by claim, one pass finds the first of each. */
static void meet_claims(struct ct_member **nodes, int n)
{
    int last = -1;
    for (int i = 0; i < n; i++) {
        int want = claim(nodes[i]);
        bool met = want < n && want != last;
        last = met ? want : last;
        nodes[i]->node_rank = met ? want : -1;
    }
    int next = 0, taken = 0; /* `taken` walks over the claims that were met */
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

void members_number(struct ct_member **nodes, int n)
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

int members_rank(struct ct_member **nodes, int n)
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
