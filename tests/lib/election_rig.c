/* SPDX-License-Identifier: Apache-2.0
 *
 * Agents are made as they are after a first world, which voter 1 has hosted.
 */
#include "tests/lib/election_rig.h"

#include "tests/lib/ct_test.h"

struct ct_voter rig_voter(uint64_t id)
{
    return (struct ct_voter){.id = id, .address = "10.0.0.1", .port = 1};
}

struct ct_job_record rig_record(int count)
{
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 3;
    record.formed = (struct ct_world_voters){.generation = 0, .count = count};
    for (int i = 0; i < count; i++) {
        record.formed.list[i] = rig_voter((uint64_t)i + 1);
    }
    return record;
}

struct ct_election rig_follower_in(uint64_t id, int count, bool arbiter)
{
    struct ct_election e;
    struct ct_voter self = rig_voter(id), host = rig_voter(1);
    struct ct_job_record record = rig_record(count);
    ct_election_init(&e, &self, arbiter, LEASE_MS, GIVE_UP_MS);
    assert_true(ct_election_followed(&e, &host, CT_TERM_FIRST, 0));
    assert_true(ct_election_recorded(&e, &record));
    ct_election_leased(&e, 0, LEASE_MS);
    return e;
}

struct ct_election rig_follower(uint64_t id, int count)
{
    return rig_follower_in(id, count, false);
}

struct ct_vote_ask rig_stand(struct ct_election *e, int64_t *now_ns, struct ct_election_todo *todo)
{
    *now_ns = ct_election_next(e);
    ct_election_tick(e, *now_ns, todo);
    assert_true(todo->ask);
    return todo->question;
}

void rig_grant(struct ct_election *e, uint64_t id, uint64_t term, int64_t alone_ms, int64_t now_ns,
               struct ct_election_todo *todo)
{
    const struct ct_vote_answer answer = {
        .id = id, .seen = term, .asked_term = term, .granted = true, .alone_ms = alone_ms};
    ct_election_answered(e, &answer, now_ns, todo);
}
