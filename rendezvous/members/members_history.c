/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of failures. Those of one generation are in the order in which they happened, which
 * need not be the order in which they were reported, because the first one is to blame for the end
 * of the generation. Losses that do no harm come last. Only the first ROUND_FAILURES_KEPT of a
 * generation are kept, and the texts of a failure only while the budget of memory has room for
 * them.
 */
#include "rendezvous/members/members_history.h"

#include "common/exit_code.h"
#include "common/ranges.h"

#include <stdio.h>
#include <string.h>

static struct ct_failure *failure_at(struct ct_members *m, uint64_t n)
{
    return &m->history.failures[n % CT_FAILURE_HISTORY_KEPT];
}

/* ---- long texts ----------------------------------------------------------------------------- */

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

/* Frees the texts of a failure on record. */
static void drop_texts(struct ct_members *m, struct ct_failure *known)
{
    size_t cost = text_cost(known);
    members_give(m, cost);
    m->kept -= m->options.budget != NULL ? cost : 0;
    ct_failure_fini(known);
}

/* Takes memory for the texts from the budget. If it has no room, frees the texts. */
static void keep_texts(struct ct_members *m, struct ct_failure *failure)
{
    size_t cost = text_cost(failure);
    if (!members_take(m, cost)) {
        ct_failure_fini(failure);
    } else {
        m->kept += m->options.budget != NULL ? cost : 0;
    }
}

int members_history_inherit(struct ct_members *m, const struct ct_failure_history *from)
{
    struct ct_failure_history *to = &m->history;
    memcpy(to->rounds, from->rounds, sizeof(to->rounds));
    to->num_rounds = from->num_rounds;
    to->num_failures = from->num_failures;
    for (int i = 0; i < CT_FAILURE_HISTORY_KEPT; i++) {
        if (ct_failure_copy(&from->failures[i], &to->failures[i]) != 0) {
            return CT_ENOMEM;
        }
        keep_texts(m, &to->failures[i]);
    }
    return 0;
}

/* ---- the record ----------------------------------------------------------------------------- */

/* Adds a failure before those of its generation whose `order_ns` is larger. Returns whether it is
 * now the first. */
static bool record(struct ct_members *m, struct ct_failure *failure, int64_t happened_ns,
                   int64_t order_ns)
{
    struct ct_failure_history *history = &m->history;
    uint64_t from = m->round_failures_from, kept = history->num_failures - from;
    failure->generation = m->generation;
    failure->time_ms = members_ms(m, happened_ns);
    if (kept == ROUND_FAILURES_KEPT) {
        if (m->order_ns[kept - 1] <= order_ns) {
            ct_failure_fini(failure);
            return false;
        }
        drop_texts(m, failure_at(m, from + --kept));
    } else {
        drop_texts(m, failure_at(m, history->num_failures++));
    }
    keep_texts(m, failure);
    while (kept > 0 && m->order_ns[kept - 1] > order_ns) {
        *failure_at(m, from + kept) = *failure_at(m, from + kept - 1);
        m->order_ns[kept] = m->order_ns[kept - 1];
        kept--;
    }
    *failure_at(m, from + kept) = *failure;
    m->order_ns[kept] = order_ns;
    failure->tail = failure->message = failure->traceback = failure->advice = NULL;
    return kept == 0;
}

bool members_history_record(struct ct_members *m, struct ct_failure *failure, int64_t happened_ns)
{
    return record(m, failure, happened_ns, happened_ns);
}

void members_history_record_harmless(struct ct_members *m, struct ct_failure *loss, int64_t now_ns)
{
    (void)record(m, loss, now_ns, NEVER);
}

const struct ct_failure *members_history_first(const struct ct_members *m)
{
    bool own = m->history.num_failures > m->round_failures_from;
    return own && m->order_ns[0] == NEVER ? NULL
                                          : ct_failure_history_first(&m->history, m->generation);
}

void members_history_complete(struct ct_members *m, struct ct_failure *failure)
{
    for (uint64_t n = m->round_failures_from; n < m->history.num_failures; n++) {
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

void members_history_loss(const struct ct_member *member, enum ct_failure_kind kind,
                          const char *why, struct ct_failure *out)
{
    char ranks[CT_RANGES_MACHINE_MAX];
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
    (void)ct_ranges_machine(member->first_rank, member->workers, ranks);
    /* A long reason is cut, because the ranks behind it must be shown. */
    switch (kind) {
    case CT_FAILURE_AGENT:
        (void)snprintf(out->what, sizeof(out->what), "its ctrun is gone: %.300s (%s)", why, ranks);
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

void members_history_describe(const struct ct_failure *failure, char *out, size_t size)
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

void members_history_begin(struct ct_members *m, const struct ct_history_round *round)
{
    m->round_failures_from = m->history.num_failures;
    m->history.rounds[m->history.num_rounds++ % CT_FAILURE_HISTORY_KEPT] = *round;
}

struct ct_history_round *members_history_round(struct ct_members *m)
{
    CT_ASSERT(m->history.num_rounds > 0);
    return &m->history.rounds[(m->history.num_rounds - 1) % CT_FAILURE_HISTORY_KEPT];
}
