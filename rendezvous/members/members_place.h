/* SPDX-License-Identifier: Apache-2.0
 *
 * The places of a job, one for each node rank that a member may want: the host that is expected
 * there, the member that wants it, and the node that had it and left. Pure.
 */
#ifndef CT_RENDEZVOUS_MEMBERS_MEMBERS_PLACE_H
#define CT_RENDEZVOUS_MEMBERS_MEMBERS_PLACE_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_budget;
struct ct_member;

/* A node that left its place. One block, with the texts behind it. */
struct members_gone {
    size_t charged; /* to the budget */
    int64_t left_ns;
    char *host, *address;
};

struct members_place {
    struct ct_member *wisher;  /* the member that wants this node rank; may be NULL */
    struct members_gone *gone; /* the node that had it last and left; may be NULL */
};

/* Zeroed memory is empty. */
struct members_places {
    struct members_place *at;
    int count;
    int num_gone;             /* places whose `gone` is not NULL */
    struct ct_budget *budget; /* counts the memory of those; NULL = no limit. Borrowed */
    char **expected;          /* host names by node rank, as a scheduler or --hosts gives them */
    int *expected_order;      /* indices of `expected` in the order of names, for a binary search */
    int num_expected;
};

void members_place_fini(struct members_places *places);

/* Copies the names. CT_ENOMEM leaves what members_place_fini() frees. */
CT_MUST_CHECK int members_place_expect(struct members_places *places, const char *const *names,
                                       int count);

/* Finds a free place for a member that did not ask for one: a place where its host is expected, or
 * else one that its host had and left; -1 = none. */
int members_place_find(const struct members_places *places, const char *host);

/* Gives `member` the place that it wants, if it wants one. */
void members_place_take(struct members_places *places, struct ct_member *member);

/* Frees the place that the member wanted. */
void members_place_release(struct members_places *places, const struct ct_member *member);

/* Notes that the member has left the place that it had. Call members_place_release() before.
 * Without memory, or room in the budget, nothing is noted. */
void members_place_remember(struct members_places *places, const struct ct_member *member,
                            int64_t now_ns);

/* Remembers the place of a node that was lost without having been a member here; -1 = none. */
void members_place_lost(struct members_places *places, int place, const char *host,
                        const char *address, int64_t now_ns);

/* Forgets who has left which place. */
void members_place_forget_gone(struct members_places *places);

/* The host that had the place, else the one that is expected there; NULL = unknown. */
const char *members_place_name(const struct members_places *places, int place);

#endif
