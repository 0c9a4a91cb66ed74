/* SPDX-License-Identifier: Apache-2.0
 *
 * JOINs that are neither taken nor refused yet, because the place of the node is still taken by an
 * older ctrun of its machine, which may be gone (ct_members_holds()). Pure.
 */
#ifndef CT_RENDEZVOUS_SERVER_HELD_JOINS_H
#define CT_RENDEZVOUS_SERVER_HELD_JOINS_H

#include "rendezvous/control/control.h"
#include "rendezvous/store/budget.h"

#include <stdbool.h>
#include <stdint.h>

/* In all, of one job, and of one host name in it: no job can take the places of all others, and a
 * machine seldom has more than one. Each is looked at once in CT_HELD_JOINS_LOOK_MS, for which all
 * members are looked at. */
#define CT_HELD_JOINS_MAX 32
#define CT_HELD_JOINS_OF_JOB_MAX 8
#define CT_HELD_JOINS_OF_HOST_MAX 2
#define CT_HELD_JOINS_LOOK_MS 100

struct ct_held_join {
    void *conn;       /* the caller's */
    int64_t since_ns; /* when it came */
    struct ct_msg_join join;
};

/* Zeroed memory is empty. */
struct ct_held_joins {
    struct ct_budget *budget;                     /* counts the memory; NULL = no limit */
    struct ct_held_join *list[CT_HELD_JOINS_MAX]; /* the oldest first */
    int count;
    int64_t look_ns; /* when they are looked at next, if there are any */
};

/* Copies the JOIN. Returns false if there are too many of its kind, or no memory is left. */
bool ct_held_joins_add(struct ct_held_joins *held, void *conn, const struct ct_msg_join *join,
                       int64_t now_ns);

/* Does nothing if it is not held. */
void ct_held_joins_remove(struct ct_held_joins *held, const void *conn);

/* Calls `again` for each, which may remove it, if it is time; that is at ct_held_joins_next(),
 * INT64_MAX = never. */
void ct_held_joins_tick(struct ct_held_joins *held, int64_t now_ns,
                        void (*again)(const struct ct_held_join *join));
int64_t ct_held_joins_next(const struct ct_held_joins *held);

#endif
