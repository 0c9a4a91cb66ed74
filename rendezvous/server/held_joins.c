/* SPDX-License-Identifier: Apache-2.0
 *
 * A short list in the order of time, so that who has come first is looked at first.
 */
#include "rendezvous/server/held_joins.h"

#include "common/alloc.h"
#include "common/clock.h"

#include <string.h>

#define LOOK_NS (CT_HELD_JOINS_LOOK_MS * CT_NS_PER_MS)
#define COST (sizeof(struct ct_held_join) + CT_BLOCK_COST)

static bool has_place(const struct ct_held_joins *held, const struct ct_msg_join *join)
{
    int of_job = 0, of_host = 0;
    for (int i = 0; i < held->count; i++) {
        const struct ct_msg_join *other = &held->list[i]->join;
        if (strcmp(other->run_id, join->run_id) == 0) {
            of_job++;
            of_host += strcmp(other->host, join->host) == 0;
        }
    }
    return held->count < CT_HELD_JOINS_MAX && of_job < CT_HELD_JOINS_OF_JOB_MAX &&
           of_host < CT_HELD_JOINS_OF_HOST_MAX;
}

bool ct_held_joins_add(struct ct_held_joins *held, void *conn, const struct ct_msg_join *join,
                       int64_t now_ns)
{
    if (!has_place(held, join) || (held->budget != NULL && !ct_budget_take(held->budget, COST))) {
        return false;
    }
    struct ct_held_join *added = ct_malloc(sizeof(*added));
    if (added == NULL) {
        if (held->budget != NULL) {
            ct_budget_give(held->budget, COST);
        }
        return false;
    }
    *added = (struct ct_held_join){.conn = conn, .since_ns = now_ns, .join = *join};
    if (held->count == 0) {
        held->look_ns = now_ns + LOOK_NS;
    }
    held->list[held->count++] = added;
    return true;
}

static int index_of(const struct ct_held_joins *held, const void *conn)
{
    for (int i = 0; i < held->count; i++) {
        if (held->list[i]->conn == conn) {
            return i;
        }
    }
    return -1;
}

void ct_held_joins_remove(struct ct_held_joins *held, const void *conn)
{
    int i = index_of(held, conn);
    if (i < 0) {
        return;
    }
    ct_free(held->list[i]);
    held->count--;
    memmove(&held->list[i], &held->list[i + 1], (size_t)(held->count - i) * sizeof(held->list[0]));
    if (held->budget != NULL) {
        ct_budget_give(held->budget, COST);
    }
}

void ct_held_joins_tick(struct ct_held_joins *held, int64_t now_ns,
                        void (*again)(const struct ct_held_join *join))
{
    if (now_ns < ct_held_joins_next(held)) {
        return;
    }
    held->look_ns = now_ns + LOOK_NS;
    for (int i = 0; i < held->count;) {
        const struct ct_held_join *join = held->list[i];
        again(join);
        i += i < held->count && held->list[i] == join;
    }
}

int64_t ct_held_joins_next(const struct ct_held_joins *held)
{
    return held->count > 0 ? held->look_ns : INT64_MAX;
}
