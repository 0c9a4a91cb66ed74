/* SPDX-License-Identifier: Apache-2.0
 *
 * A question takes one of a few places, and gives it back before its function is called, because
 * that function may ask again. Ids are not used again for a long time, so a late answer finds no
 * question. Nothing here is allocated.
 */
#include "rendezvous/control/query.h"

#include "common/clock.h"

#include <limits.h>
#include <stddef.h>

#define COST_NS (CT_NS_PER_S / CT_QUERIES_PER_S)

static struct ct_query *find(struct ct_queries *queries, int id)
{
    for (int i = 0; i < CT_QUERIES_OPEN; i++) {
        if (queries->open[i].agent != NULL && queries->open[i].id == id) {
            return &queries->open[i];
        }
    }
    return NULL;
}

static void finish(struct ct_query *query, int code, const char *text)
{
    struct ct_query ended = *query;
    *query = (struct ct_query){.agent = NULL};
    ended.fn(ended.data, code, text);
}

int ct_queries_begin(struct ct_queries *queries, const void *agent, int64_t now_ns, ct_query_fn fn,
                     void *data, int *id, struct ct_err *err)
{
    struct ct_query *place = NULL;
    for (int i = 0; i < CT_QUERIES_OPEN && place == NULL; i++) {
        place = queries->open[i].agent == NULL ? &queries->open[i] : NULL;
    }
    int64_t from_ns = queries->paid_ns > now_ns ? queries->paid_ns : now_ns;
    if (place == NULL || from_ns - now_ns > CT_NS_PER_S) {
        return ct_err_set(err, CT_EBUSY, "too many questions at once; ask again");
    }
    queries->paid_ns = from_ns + COST_NS;
    queries->last_id = queries->last_id < INT_MAX ? queries->last_id + 1 : 1;
    *place = (struct ct_query){
        .agent = agent,
        .id = queries->last_id,
        .deadline_ns = now_ns + CT_QUERY_TIMEOUT_MS * CT_NS_PER_MS,
        .fn = fn,
        .data = data,
    };
    *id = place->id;
    return 0;
}

void ct_queries_result(struct ct_queries *queries, const void *agent, int id, bool ok,
                       const char *text)
{
    struct ct_query *query = find(queries, id);
    if (query != NULL && query->agent == agent) {
        finish(query, ok ? 0 : CT_EUNSUPPORTED, text);
    }
}

void ct_queries_gone(struct ct_queries *queries, const void *agent)
{
    for (int i = 0; i < CT_QUERIES_OPEN; i++) {
        if (queries->open[i].agent == agent) {
            finish(&queries->open[i], CT_ECLOSED, "the machine of this worker has left");
        }
    }
}

void ct_queries_forget(struct ct_queries *queries, int id)
{
    struct ct_query *query = find(queries, id);
    if (query != NULL) {
        *query = (struct ct_query){.agent = NULL};
    }
}

void ct_queries_tick(struct ct_queries *queries, int64_t now_ns)
{
    for (int i = 0; i < CT_QUERIES_OPEN; i++) {
        if (queries->open[i].agent != NULL && queries->open[i].deadline_ns <= now_ns) {
            finish(&queries->open[i], CT_ETIMEDOUT, "the machine of this worker does not answer");
        }
    }
}

int64_t ct_queries_next(const struct ct_queries *queries)
{
    int64_t next_ns = INT64_MAX;
    for (int i = 0; i < CT_QUERIES_OPEN; i++) {
        const struct ct_query *query = &queries->open[i];
        next_ns =
            query->agent != NULL && query->deadline_ns < next_ns ? query->deadline_ns : next_ns;
    }
    return next_ns;
}
