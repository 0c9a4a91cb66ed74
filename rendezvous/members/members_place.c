/* SPDX-License-Identifier: Apache-2.0
 *
 * The node ranks that members may want: for each, which host is expected there, which member wants
 * it, and which node had it and left.
 */
#include "rendezvous/members/members_place.h"

#include "common/alloc.h"
#include "rendezvous/members/members_core.h"

#include <string.h>

/* If more members have left, their places are not searched for a host that comes back. When a whole
 * cluster comes back, the order of names gives the same ranks. */
#define GONE_SEARCHED 64

/* ---- names that a scheduler gives ------------------------------------------------------------ */

/* Returns the length of a name without its domain, which one side may have and the other not. An
 * IPv4 address has no domain. */
static size_t label_length(const char *host)
{
    size_t len = strcspn(host, ".");
    return strspn(host, "0123456789") == len ? strlen(host) : len;
}

static int compare_labels(const char *a, const char *b)
{
    size_t alen = label_length(a), blen = label_length(b);
    int order = strncasecmp(a, b, alen < blen ? alen : blen);
    return order != 0 ? order : (alen > blen) - (alen < blen);
}

int members_place_expect(struct members_places *places, const char *const *names, int count)
{
    places->expected = ct_calloc((size_t)count, sizeof(places->expected[0]));
    places->expected_order = ct_calloc((size_t)count, sizeof(places->expected_order[0]));
    if (places->expected == NULL || places->expected_order == NULL) {
        return CT_ENOMEM;
    }
    places->num_expected = count;
    for (int i = 0; i < count; i++) {
        places->expected[i] = ct_strdup(names[i]);
        if (places->expected[i] == NULL) {
            return CT_ENOMEM;
        }
        places->expected_order[i] = i;
    }
    /* This is an insertion sort. Schedulers give names in order, so it takes one comparison for
     * each, and qsort(3) could not pass the names to its comparison. */
    for (int i = 1; i < count; i++) {
        int at = i;
        for (; at > 0 && compare_labels(places->expected[places->expected_order[at - 1]],
                                        places->expected[i]) > 0;
             at--) {
            places->expected_order[at] = places->expected_order[at - 1];
        }
        places->expected_order[at] = i;
    }
    return 0;
}

/* Returns a free place at which this host is expected; -1 = none. */
static int expected_place(const struct members_places *places, const char *host)
{
    int low = 0, high = places->num_expected;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (compare_labels(places->expected[places->expected_order[middle]], host) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    for (; low < places->num_expected; low++) {
        int place = places->expected_order[low];
        if (compare_labels(places->expected[place], host) != 0) {
            break;
        }
        if (place < places->count && places->at[place].wisher == NULL) {
            return place;
        }
    }
    return -1;
}

/* ---- those who left ------------------------------------------------------------------------- */

static void free_gone(struct members_places *places, struct members_place *place)
{
    if (place->gone == NULL) {
        return;
    }
    if (places->budget != NULL) {
        ct_budget_give(places->budget, place->gone->charged);
    }
    ct_free(place->gone);
    place->gone = NULL;
    places->num_gone--;
}

/* Returns the free place that this host had and left; -1 = none, or too many have left. */
static int left_place(const struct members_places *places, const char *host)
{
    for (int i = 0; places->num_gone > 0 && places->num_gone <= GONE_SEARCHED && i < places->count;
         i++) {
        const struct members_place *place = &places->at[i];
        if (place->gone != NULL && place->wisher == NULL && strcmp(place->gone->host, host) == 0) {
            return i;
        }
    }
    return -1;
}

int members_place_find(const struct members_places *places, const char *host)
{
    int place = expected_place(places, host);
    return place >= 0 ? place : left_place(places, host);
}

void members_place_take(struct members_places *places, struct ct_member *member)
{
    if (member->wish >= 0) {
        places->at[member->wish].wisher = member;
        free_gone(places, &places->at[member->wish]);
    }
}

void members_place_release(struct members_places *places, const struct ct_member *member)
{
    if (member->wish >= 0 && places->at[member->wish].wisher == member) {
        places->at[member->wish].wisher = NULL;
    }
}

static struct members_gone *new_gone(const struct members_places *places, const char *host,
                                     const char *address, int64_t now_ns)
{
    size_t host_size = strlen(host) + 1, address_size = strlen(address) + 1;
    size_t size = sizeof(struct members_gone) + host_size + address_size;
    size_t cost = size + CT_BLOCK_COST;
    if (places->budget != NULL && !ct_budget_take(places->budget, cost)) {
        return NULL;
    }
    struct members_gone *gone = ct_malloc(size);
    if (gone == NULL && places->budget != NULL) {
        ct_budget_give(places->budget, cost);
    }
    if (gone != NULL) {
        gone->charged = cost;
        gone->left_ns = now_ns;
        gone->host = (char *)(gone + 1);
        gone->address = gone->host + host_size;
        memcpy(gone->host, host, host_size);
        memcpy(gone->address, address, address_size);
    }
    return gone;
}

void members_place_lost(struct members_places *places, int at, const char *host,
                        const char *address, int64_t now_ns)
{
    if (at < 0 || at >= places->count || places->at[at].wisher != NULL) {
        return;
    }
    free_gone(places, &places->at[at]);
    places->at[at].gone = new_gone(places, host, address, now_ns);
    places->num_gone += places->at[at].gone != NULL;
}

void members_place_remember(struct members_places *places, const struct ct_member *member,
                            int64_t now_ns)
{
    int at = member->node_rank >= 0 ? member->node_rank : member->wish;
    members_place_lost(places, at, member->host, member->address, now_ns);
}

void members_place_forget_gone(struct members_places *places)
{
    for (int i = 0; i < places->count; i++) {
        free_gone(places, &places->at[i]);
    }
}

const char *members_place_name(const struct members_places *places, int place)
{
    const struct members_gone *gone = places->at[place].gone;
    if (gone != NULL) {
        return gone->host;
    }
    return place < places->num_expected ? places->expected[place] : NULL;
}

void members_place_fini(struct members_places *places)
{
    members_place_forget_gone(places);
    for (int i = 0; i < places->num_expected; i++) {
        ct_free(places->expected[i]);
    }
    ct_free(places->expected);
    ct_free(places->expected_order);
    ct_free(places->at);
}
