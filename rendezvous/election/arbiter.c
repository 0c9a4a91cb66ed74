/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules are those of a voter in ct_election_asked(): none votes while it hears a host, nor for
 * a candidate with an older record, nor twice in a term.
 */
#include "rendezvous/election/arbiter.h"

#include "common/clock.h"

#include <stddef.h>

/* The share of a lease by which clocks may differ in speed. */
#define SPEED_SHARE 16
/* The share of a lease for which a candidate that has the vote is left in peace, so that it can
 * win. */
#define PEACE_SHARE 8

void ct_arbiter_init(struct ct_arbiter *arbiter)
{
    *arbiter = (struct ct_arbiter){.revision = -1};
    ct_job_record_init(&arbiter->state.record);
}

void ct_arbiter_learned(struct ct_arbiter *arbiter, const struct ct_arbiter_state *state,
                        int64_t revision, int64_t now_ns)
{
    if (revision == arbiter->revision) {
        return;
    }
    ct_arbiter_init(arbiter);
    if (state != NULL) {
        arbiter->state = *state;
    }
    arbiter->revision = revision;
    arbiter->changed_ns = now_ns;
}

/* Until when does it vote for nobody else, because it hears its host or leaves its candidate in
 * peace? INT64_MIN = it may vote. */
static int64_t bound_until_ns(const struct ct_arbiter *arbiter, const struct ct_vote_ask *ask,
                              uint64_t dead_id, int64_t lease_ns)
{
    const struct ct_arbiter_state *state = &arbiter->state;
    if (state->host.id != 0 && state->host.id != dead_id) {
        return arbiter->changed_ns + lease_ns + lease_ns / SPEED_SHARE;
    }
    if (state->host.id == 0 && state->promised != 0 && state->promised_to != ask->id) {
        return arbiter->changed_ns + lease_ns / PEACE_SHARE;
    }
    return INT64_MIN;
}

bool ct_arbiter_ask(const struct ct_arbiter *arbiter, const struct ct_vote_ask *ask,
                    uint64_t dead_id, int64_t lease_ms, int64_t now_ns,
                    struct ct_vote_answer *answer, struct ct_arbiter_state *next)
{
    const struct ct_arbiter_state *state = &arbiter->state;
    const struct ct_job_record theirs = {.term = ask->record_term, .version = ask->record_version};
    /* A job that has ended, and of which this agent has had no host, was another one of that name.
     */
    bool former = state->record.ended && ask->record_version == 0 && !ask->followed;
    bool newer = !former && ct_job_record_compare(&state->record, &theirs) > 0;
    int64_t until_ns = bound_until_ns(arbiter, ask, dead_id, lease_ms * CT_NS_PER_MS);
    bool bound = !former && now_ns < until_ns;
    uint64_t seen = state->promised > state->host_term ? state->promised : state->host_term;
    *answer = (struct ct_vote_answer){
        .id = CT_ARBITER_ID,
        .seen = seen,
        .asked_term = ask->term,
        .record = newer ? &state->record : NULL,
        .host = bound && state->host.id != 0 ? &state->host : NULL,
        .host_term = bound && state->host.id != 0 ? state->host_term : 0,
        .free_ms = bound ? (until_ns - now_ns - 1) / CT_NS_PER_MS + 1 : 0,
    };
    if (!newer && ask->term != 0 && ask->term == state->promised && ask->id == state->promised_to &&
        state->host.id == 0) {
        answer->granted = true; /* it was written, and the store's answer was lost */
        return false;
    }
    if (bound || newer || ask->term <= seen) {
        return false;
    }
    answer->seen = ask->term;
    answer->granted = true;
    answer->alone_ms = arbiter->revision > 0 ? (now_ns - arbiter->changed_ns) / CT_NS_PER_MS : 0;
    *next = *state;
    next->promised = ask->term;
    next->promised_to = ask->id;
    next->host = (struct ct_voter){0};
    next->host_term = 0;
    if (former) {
        ct_job_record_init(&next->record);
    }
    return true;
}

bool ct_arbiter_serve(const struct ct_arbiter *arbiter, const struct ct_voter *self,
                      const struct ct_job_record *record, uint64_t void_id,
                      struct ct_arbiter_state *next)
{
    const struct ct_arbiter_state *state = &arbiter->state;
    bool free = state->promised_to == self->id || state->promised_to == void_id;
    if (state->host_term > record->term || (state->promised > record->term && !free) ||
        ct_job_record_compare(&state->record, record) > 0) {
        return false;
    }
    *next = (struct ct_arbiter_state){
        .promised = record->term,
        .promised_to = self->id,
        .host = *self,
        .host_term = record->term,
        .record = *record,
    };
    return true;
}
