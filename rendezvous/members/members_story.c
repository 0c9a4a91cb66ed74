/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is to blame: failures in the order in which they happened, and members in words.
 */
#include "rendezvous/members/members_impl.h"

#include <stdio.h>
#include <string.h>

static struct ct_failure *failure_at(struct ct_members *m, uint64_t n)
{
    return &m->story.failures[n % CT_STORY_KEPT];
}

/* ---- texts, which are a worker's and long --------------------------------------------------- */

static size_t text_cost(const struct ct_failure *failure)
{
    const char *const texts[] = {failure->tail, failure->message, failure->traceback,
                                 failure->advice};
    size_t cost = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cost += texts[i] != NULL ? strlen(texts[i]) + 1 + CT_BLOCK_COST : 0;
    }
    return cost;
}

/* Frees the texts of a failure of the story. */
static void drop_texts(struct ct_members *m, struct ct_failure *known)
{
    size_t cost = text_cost(known);
    members_give(m, cost);
    m->kept -= m->options.budget != NULL ? cost : 0;
    ct_failure_fini(known);
}

/* The story is to have them; where there is no room it does without. */
static void keep_texts(struct ct_members *m, struct ct_failure *failure)
{
    size_t cost = text_cost(failure);
    if (!members_take(m, cost)) {
        ct_failure_fini(failure);
    } else {
        m->kept += m->options.budget != NULL ? cost : 0;
    }
}

/* ---- the story ------------------------------------------------------------------------------ */

bool members_record(struct ct_members *m, struct ct_failure *failure, int64_t happened_ns)
{
    struct ct_story *story = &m->story;
    uint64_t from = m->round_failures_from, kept = story->num_failures - from;
    failure->generation = m->generation;
    failure->time_ms = members_ms(m, happened_ns);
    if (kept == ROUND_FAILURES_KEPT) {
        if (m->happened_ns[kept - 1] <= happened_ns) {
            ct_failure_fini(failure);
            return false;
        }
        drop_texts(m, failure_at(m, from + --kept));
    } else {
        drop_texts(m, failure_at(m, story->num_failures++));
    }
    keep_texts(m, failure);
    /* Those of one generation stand in the order in which they happened. */
    while (kept > 0 && m->happened_ns[kept - 1] > happened_ns) {
        *failure_at(m, from + kept) = *failure_at(m, from + kept - 1);
        m->happened_ns[kept] = m->happened_ns[kept - 1];
        kept--;
    }
    *failure_at(m, from + kept) = *failure;
    m->happened_ns[kept] = happened_ns;
    failure->tail = failure->message = failure->traceback = failure->advice = NULL;
    return kept == 0;
}

void members_complete(struct ct_members *m, struct ct_failure *failure)
{
    for (uint64_t n = m->round_failures_from; n < m->story.num_failures; n++) {
        struct ct_failure *known = failure_at(m, n);
        if (known->node_rank == failure->node_rank && known->rank == failure->rank &&
            known->kind == CT_FAILURE_WORKER) {
            drop_texts(m, known);
            keep_texts(m, failure);
            known->tail = failure->tail;
            known->message = failure->message;
            known->traceback = failure->traceback;
            known->advice = failure->advice;
            (void)snprintf(known->what, sizeof(known->what), "%s", failure->what);
            failure->tail = failure->message = failure->traceback = failure->advice = NULL;
            return;
        }
    }
}

void members_loss(const struct ct_member *member, enum ct_failure_kind kind, const char *why,
                  struct ct_failure *out)
{
    char ranks[64];
    int last = member->first_rank + member->workers - 1;
    *out = (struct ct_failure){
        .kind = kind,
        .node_rank = member->node_rank,
        .rank = -1,
        .local_rank = -1,
        .pid = member->pid,
        .exit_code = CT_EXIT_NODE_LOST,
    };
    (void)snprintf(out->host, sizeof(out->host), "%s", member->host);
    (void)snprintf(out->address, sizeof(out->address), "%s", members_address(member));
    if (member->workers == 1) {
        (void)snprintf(ranks, sizeof(ranks), "rank %d", last);
    } else {
        (void)snprintf(ranks, sizeof(ranks), "ranks %d-%d", member->first_rank, last);
    }
    /* The reason is cut, not what stands around it. */
    switch (kind) {
    case CT_FAILURE_AGENT:
        (void)snprintf(out->what, sizeof(out->what),
                       "the connection to its ctrun was lost: %.300s (%s)", why, ranks);
        break;
    case CT_FAILURE_LEFT:
        (void)snprintf(out->what, sizeof(out->what), "its ctrun left the job: %.300s (%s)", why,
                       ranks);
        break;
    case CT_FAILURE_WORKER:
    case CT_FAILURE_SILENT:
        (void)snprintf(out->what, sizeof(out->what), "%.300s (%s)", why, ranks);
        break;
    }
}

const char *members_address(const struct ct_member *member)
{
    const char *address = member->address;
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ? "" : address;
}

void members_name(const struct ct_member *member, char out[MEMBER_NAME_MAX])
{
    const char *address = members_address(member);
    (void)snprintf(out, MEMBER_NAME_MAX, "%.110s%s%.64s", member->host,
                   address[0] != '\0' ? " at " : "", address);
}

void members_describe(const struct ct_failure *failure, char *out, size_t size)
{
    const char *at = failure->address[0] != '\0' ? " at " : "";
    if (failure->rank >= 0) {
        (void)snprintf(out, size, "rank %d on %.100s%s%.64s: %.250s", failure->rank, failure->host,
                       at, failure->address, failure->what);
    } else {
        (void)snprintf(out, size, "node %d (%.100s%s%.64s): %.250s", failure->node_rank,
                       failure->host, at, failure->address, failure->what);
    }
}

struct ct_story_round *members_round(struct ct_members *m)
{
    CT_ASSERT(m->story.num_rounds > 0);
    return &m->story.rounds[(m->story.num_rounds - 1) % CT_STORY_KEPT];
}
