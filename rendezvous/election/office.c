/* SPDX-License-Identifier: Apache-2.0
 *
 * Every change of the record gets a new version, so that a pledge says which one it means. A plan
 * that came to nothing stays on record until the next one replaces it: some voters may have pledged
 * it, and only this host knows that it was never carried out.
 *
 * A take-over pledges the record as it was found, so both worlds still count in an election. Only
 * when it is certain does the planned world count alone. Else a plan that few had pledged could win
 * an election against the world before it.
 */
#include "rendezvous/election/office.h"

#include <stddef.h>
#include <string.h>

void ct_office_begin(struct ct_office *office, uint64_t self, uint64_t lost, bool arbiter,
                     uint64_t term, const struct ct_job_record *record)
{
    *office = (struct ct_office){
        .self = self, .lost = lost, .arbiter = arbiter, .record = *record, .inherited = true};
    office->record.term = term;
    office->record.version = 1;
}

static bool half_counts(const struct ct_office *office, const struct ct_world_voters *world)
{
    return office->self == 0 || ct_world_voters_find(world, office->self) != NULL ||
           (office->lost != 0 && ct_world_voters_find(world, office->lost) != NULL);
}

static bool is_among(uint64_t id, const uint64_t *ids, int count)
{
    for (int i = 0; i < count; i++) {
        if (ids[i] == id) {
            return true;
        }
    }
    return false;
}

static bool enough(const struct ct_office *office, const struct ct_world_voters *world,
                   const struct ct_presence *who)
{
    bool many =
        office->arbiter
            ? ct_world_voters_enough_with_arbiter(world, who->there, who->num_there)
            : ct_world_voters_enough(world, who->there, who->num_there, half_counts(office, world));
    if (many || world->count == 0) {
        return many;
    }
    for (int i = 0; i < world->count; i++) {
        uint64_t id = world->list[i].id;
        if (!is_among(id, who->there, who->num_there) && !is_among(id, who->dead, who->num_dead)) {
            return false;
        }
    }
    return true;
}

bool ct_office_has_quorum(const struct ct_office *office, const struct ct_presence *who)
{
    const struct ct_job_record *record = &office->record;
    return enough(office, &record->formed, who) &&
           (!ct_office_must_take_over(office) || enough(office, &record->planned, who));
}

int64_t ct_office_lease(const struct ct_office *office, const struct ct_presence *who,
                        const int64_t *heard_ns, int64_t lease_ns)
{
    int64_t best = INT64_MIN;
    struct ct_presence left = {.num_dead = who->num_dead};
    memcpy(left.dead, who->dead, sizeof(left.dead));
    if (ct_office_has_quorum(office, &left)) {
        return INT64_MAX; /* nobody else is needed */
    }
    for (int i = 0; i < who->num_there; i++) {
        left.num_there = 0;
        for (int k = 0; k < who->num_there && heard_ns[i] > best; k++) {
            if (heard_ns[k] >= heard_ns[i]) {
                left.there[left.num_there++] = who->there[k];
            }
        }
        if (left.num_there > 0 && ct_office_has_quorum(office, &left)) {
            best = heard_ns[i];
        }
    }
    return best == INT64_MIN ? INT64_MIN : best + lease_ns;
}

bool ct_office_must_take_over(const struct ct_office *office)
{
    return office->inherited && office->record.planned.generation >= 0;
}

static void open_proposal(struct ct_office *office, enum ct_proposal what, const uint64_t *ids,
                          int count)
{
    office->open = what;
    office->num_asked = count;
    memcpy(office->asked, ids, (size_t)count * sizeof(ids[0]));
    memset(office->pledged, 0, sizeof(office->pledged));
    office->record.version++;
}

int ct_office_take_over(struct ct_office *office, const struct ct_presence *who)
{
    CT_ASSERT(office->open == CT_PROPOSAL_NONE && ct_office_must_take_over(office));
    if (who->num_there == 0 || !ct_office_has_quorum(office, who)) {
        return CT_EBUSY;
    }
    open_proposal(office, CT_PROPOSAL_TAKE_OVER, who->there, who->num_there);
    return 0;
}

int ct_office_propose_end(struct ct_office *office, int exit_code, const struct ct_presence *who)
{
    CT_ASSERT(office->open == CT_PROPOSAL_NONE);
    if (who->num_there == 0 || !ct_office_has_quorum(office, who)) {
        return CT_EBUSY;
    }
    office->record.over = true;
    office->record.exit_code = exit_code;
    open_proposal(office, CT_PROPOSAL_END, who->there, who->num_there);
    return 0;
}

int ct_office_propose_world(struct ct_office *office, const struct ct_world_voters *world,
                            int restarts, const struct ct_presence *who)
{
    uint64_t ids[CT_OFFICE_ASKED_MAX];
    int count = 0;
    CT_ASSERT(office->open == CT_PROPOSAL_NONE && !ct_office_must_take_over(office));
    CT_ASSERT(world->generation > ct_job_record_generation(&office->record) &&
              !office->record.over);
    if (!ct_office_has_quorum(office, who)) {
        return CT_EBUSY;
    }
    for (int i = 0; i < world->count; i++) {
        ids[count++] = world->list[i].id;
    }
    for (int i = 0; i < who->num_there; i++) {
        if (!is_among(who->there[i], ids, count)) {
            ids[count++] = who->there[i];
        }
    }
    office->inherited = false;
    office->record.planned = *world;
    office->record.restarts = restarts;
    open_proposal(office, CT_PROPOSAL_WORLD, ids, count);
    return 0;
}

enum ct_proposal ct_office_pledged(struct ct_office *office, uint64_t id, uint64_t term,
                                   uint64_t version)
{
    enum ct_proposal done = office->open;
    struct ct_job_record *record = &office->record;
    if (done == CT_PROPOSAL_NONE || term != record->term || version != record->version) {
        return CT_PROPOSAL_NONE;
    }
    bool all = true;
    for (int i = 0; i < office->num_asked; i++) {
        office->pledged[i] = office->pledged[i] || office->asked[i] == id;
        all = all && office->pledged[i];
    }
    if (!all) {
        return CT_PROPOSAL_NONE;
    }
    office->open = CT_PROPOSAL_NONE;
    if (done == CT_PROPOSAL_WORLD || done == CT_PROPOSAL_TAKE_OVER) {
        record->formed = record->planned;
        record->planned = (struct ct_world_voters){.generation = -1};
    }
    record->ended = done == CT_PROPOSAL_END;
    record->version++;
    return done;
}

void ct_office_withdraw(struct ct_office *office)
{
    office->open = CT_PROPOSAL_NONE;
}

bool ct_office_left(struct ct_office *office, uint64_t id)
{
    bool asked = false;
    for (int i = 0; i < office->num_asked; i++) {
        asked = asked || office->asked[i] == id;
    }
    if (office->open == CT_PROPOSAL_NONE || !asked) {
        return false;
    }
    office->open = CT_PROPOSAL_NONE;
    return true;
}
