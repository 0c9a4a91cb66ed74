/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits communicators. In the host back end the ranks find their groups by one all-reduce, in
 * which each rank fills in its own color, key and machine: whole numbers that a float holds
 * exactly. A failure ends the parent, as that of any collective.
 */
#include "common/alloc.h"
#include "worker/net/net.h"
#include "worker/open/comm_open.h"

#include <stdio.h>
#include <stdlib.h>

/* A float holds every whole number up to here exactly. */
#define EXACT_MAX (1 << 24)

/* ---- host back end --------------------------------------------------------------------------- */

/* What each rank contributes to the all-reduce. */
enum { SAYS_COLOR, SAYS_KEY, SAYS_NODE, SAYS_COUNT };

struct member {
    float key;
    int rank, node; /* numbers in the parent */
};

static int compare(const void *left, const void *right)
{
    const struct member *a = left, *b = right;
    return a->key != b->key ? (a->key > b->key) - (a->key < b->key)
                            : (a->rank > b->rank) - (a->rank < b->rank);
}

/* Lists the ranks with this rank's color in the group's order. `members` has room for all ranks. */
static int list_members(const struct ctw_comm *comm, const float *said, struct member *members,
                        int *count, struct ct_err *err)
{
    const float *mine = said + SAYS_COUNT * (size_t)comm->rank;
    *count = 0;
    for (int r = 0; r < comm->size; r++) {
        const float *theirs = said + SAYS_COUNT * (size_t)r;
        float node = theirs[SAYS_NODE];
        if (!(node >= 0 && node < NET_HOSTS_MAX)) {
            return ct_err_set(err, CT_EPROTO, "rank %d gave an invalid machine number", r);
        }
        if (theirs[SAYS_COLOR] == mine[SAYS_COLOR]) {
            members[(*count)++] = (struct member){theirs[SAYS_KEY], r, (int)node};
        }
    }
    qsort(members, (size_t)*count, sizeof(*members), compare);
    return 0;
}

/* Finds this rank's place in the group. Only machines with a member get a number. */
static int find_place(const struct ctw_comm *comm, const struct member *members, int count,
                      struct comm_setup *place, struct ct_err *err)
{
    bool seen[NET_HOSTS_MAX] = {false};
    int nodes = 0, first = 0;
    for (int i = 0; i < count; i++) {
        const struct member *m = &members[i];
        if (i == 0 || m->node != members[i - 1].node) {
            if (seen[m->node]) {
                return ct_err_set(err, CT_EINVAL,
                                  "the keys put rank %d apart from other ranks of its machine, "
                                  "which must follow each other in a group",
                                  m->rank);
            }
            seen[m->node] = true;
            first = i;
            nodes++;
        }
        if (m->rank == comm->rank) {
            place->rank = i;
            place->first = first;
            place->local_rank = i - first;
            place->node = nodes - 1;
        }
        place->local_size += m->node == comm->node;
    }
    place->size = count;
    place->nodes = nodes;
    return 0;
}

static int find_group(const struct ctw_comm *comm, const float *said, struct comm_setup *place,
                      struct ct_err *err)
{
    struct member *members = ct_calloc((size_t)comm->size, sizeof(*members));
    if (members == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    int count;
    int rc = list_members(comm, said, members, &count, err);
    if (rc == 0) {
        rc = find_place(comm, members, count, place, err);
    }
    ct_free(members);
    return rc;
}

static int split_host(struct ctw_comm *comm, int color, int key, const struct comm_origin *origin,
                      struct ctw_comm **out, struct ct_err *err)
{
    struct comm_origin own = *origin;
    struct comm_setup setup = comm_setup_of(&own);
    size_t count = SAYS_COUNT * (size_t)comm->size;
    float *said = ct_calloc(count, sizeof(*said));
    if (said == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    float *mine = said + SAYS_COUNT * (size_t)comm->rank;
    mine[SAYS_COLOR] = (float)color;
    mine[SAYS_KEY] = (float)key;
    mine[SAYS_NODE] = (float)comm->node;
    int rc = comm->ops->all_reduce(comm, said, said, count, err);
    if (rc == 0 && color >= 0) {
        rc = find_group(comm, said, &setup, err);
    }
    ct_free(said);
    if (rc == 0 && color >= 0) {
        rc = comm_check_order(setup.order, setup.size, err);
    }
    return rc != 0 || color < 0 ? rc : comm_open_without_gpus(&setup, out, err);
}

/* ---- any back end ---------------------------------------------------------------------------- */

static int check(const struct ctw_comm *comm, int color, int key, struct ctw_comm **out,
                 struct ct_err *err)
{
    if (out == NULL || color > EXACT_MAX || color < -EXACT_MAX || key > EXACT_MAX ||
        key < -EXACT_MAX) {
        return ct_err_set(err, CT_EINVAL, "invalid argument");
    }
    if (comm->ops->split == NULL && comm->backend != CTW_BACKEND_HOST) {
        return ct_err_set(err, CT_EUNSUPPORTED, "this communicator cannot be split");
    }
    return 0;
}

static int split(struct ctw_comm *comm, int color, int key, struct ctw_comm **out,
                 struct ct_err *err)
{
    int rc = check(comm, color, key, out, err);
    if (rc != 0) {
        return rc;
    }
    struct comm_origin origin = {.job = comm->origin.job,
                                 .timeout_ms = comm->origin.timeout_ms,
                                 .order = comm->origin.order};
    int n = snprintf(origin.name, sizeof(origin.name), "%s/%u.%d", comm->origin.name,
                     comm->origin.splits++, color);
    if (n < 0 || (size_t)n >= sizeof(origin.name)) {
        return ct_err_set(err, CT_ELIMIT, "communicators are split too deep");
    }
    struct ctw_comm *group = NULL;
    comm_begin_wait(comm);
    rc = comm->ops->split != NULL ? comm->ops->split(comm, color, key, &origin, &group, err)
                                  : split_host(comm, color, key, &origin, &group, err);
    if (rc == 0 && group != NULL) {
        group->origin = origin;
        group->progress = comm->progress;
    }
    if (rc == 0) {
        *out = group;
    }
    return rc;
}

int ctw_comm_split(struct ctw_comm *comm, int color, int key, struct ctw_comm **out,
                   struct ct_err *err)
{
    if (comm->dead != 0) {
        return comm_refuse_dead(comm, "split", err);
    }
    return comm_end_call(comm, split(comm, color, key, out, &comm->reason), "split", err);
}
