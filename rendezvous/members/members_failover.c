/* SPDX-License-Identifier: Apache-2.0
 *
 * The office (rendezvous/election/office.h) knows voters by id only. Here they are found among the
 * members and among those that were lost, and records are sent.
 *
 * What was heard counts from when it was sent, since a beat may have waited in a socket. A pledge
 * was sent after the record that it answers.
 */
#include "rendezvous/members/members_failover.h"

#include "common/alloc.h"

#include <stdio.h>
#include <string.h>

int members_failover_init(struct ct_members *m)
{
    const struct ct_members_failover *options = m->options.failover;
    if (options == NULL) {
        return 0;
    }
    struct members_failover *f = ct_calloc(1, sizeof(*f));
    if (f == NULL) {
        return CT_ENOMEM;
    }
    ct_job_record_init(&f->found);
    if (options->record != NULL) {
        f->found = *options->record;
        m->generation = ct_job_record_generation(&f->found);
        m->restarts = f->found.restarts;
        m->charged = f->found.charged;
        m->last_node_count = f->found.formed.count;
        f->owes = m->generation >= 0;
    }
    f->options = *options;
    f->options.record = NULL;
    ct_office_begin(&f->office, options->self.id, options->term, &f->found);
    m->failover = f;
    m->options.failover = NULL;
    return 0;
}

bool members_failover_on(const struct ct_members *m)
{
    return m->failover != NULL && m->begun && m->job.voter.id != 0;
}

static int64_t lease_ns(const struct ct_members *m)
{
    return m->job.heartbeat_ms * CT_NS_PER_MS;
}

/* ---- who is there --------------------------------------------------------------------------- */

static struct ct_member *member_of(const struct ct_members *m, uint64_t id)
{
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->voter.id == id) {
            return member;
        }
    }
    return NULL;
}

static struct members_lost *lost_of(struct members_failover *f, uint64_t id)
{
    for (int i = 0; i < CT_VOTERS_BOTH; i++) {
        if (f->lost[i].id == id) {
            return &f->lost[i];
        }
    }
    return NULL;
}

/* `heard_ns` may be NULL. */
static void find_presence(const struct ct_members *m, bool with_lost, struct ct_presence *who,
                          int64_t *heard_ns)
{
    uint64_t ids[CT_VOTERS_BOTH];
    int count = ct_job_record_voters(&m->failover->office.record, ids);
    *who = (struct ct_presence){.num_there = 0};
    for (int i = 0; i < count; i++) {
        const struct ct_member *member = member_of(m, ids[i]);
        const struct members_lost *lost = lost_of(m->failover, ids[i]);
        if (member == NULL && lost != NULL && lost->in_time) {
            who->dead[who->num_dead++] = ids[i];
        } else if (member != NULL || (with_lost && lost != NULL)) {
            if (heard_ns != NULL) {
                heard_ns[who->num_there] = member != NULL ? member->said_ns : lost->said_ns;
            }
            who->there[who->num_there++] = ids[i];
        }
    }
}

/* When have the voters of this world that are neither there nor dead stopped their workers at the
 * latest? */
static int64_t fence_of(const struct ct_members *m, const struct ct_world_voters *world)
{
    int64_t fence_ns = INT64_MIN;
    for (int i = 0; i < world->count; i++) {
        const struct members_lost *lost = lost_of(m->failover, world->list[i].id);
        if (member_of(m, world->list[i].id) != NULL || (lost != NULL && lost->dead)) {
            continue;
        }
        int64_t until_ns = m->failover->options.fence_ns;
        if (lost != NULL) {
            int64_t after_ns = lost->said_ns + lease_ns(m) + lease_ns(m) / 16;
            until_ns = after_ns > until_ns ? after_ns : until_ns;
        }
        fence_ns = until_ns > fence_ns ? until_ns : fence_ns;
    }
    return fence_ns;
}

/* A world that this host has planned and not told to anybody runs nowhere. */
static int64_t fence(const struct ct_members *m)
{
    const struct ct_office *office = &m->failover->office;
    int64_t formed_ns = fence_of(m, &office->record.formed);
    int64_t planned_ns =
        ct_office_must_take_over(office) ? fence_of(m, &office->record.planned) : INT64_MIN;
    return planned_ns > formed_ns ? planned_ns : formed_ns;
}

/* ---- proposals ------------------------------------------------------------------------------ */

static void send_record(struct ct_members *m, struct ct_member *only)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_RECORD);
    msg->record = &m->failover->office.record;
    if (only != NULL) {
        members_send(m, only);
    } else {
        members_send_all(m);
    }
}

static void send_proposal(struct ct_members *m, int64_t now_ns)
{
    m->failover->proposed_ns = now_ns;
    send_record(m, NULL);
}

bool members_failover_is_ready(struct ct_members *m, int64_t now_ns, int *ends)
{
    struct members_failover *f = m->failover;
    *ends = -1;
    if (!members_failover_on(m)) {
        return true;
    }
    if (f->office.open != CT_PROPOSAL_NONE) {
        return false;
    }
    if (fence(m) > now_ns) {
        m->due.fence_ns = fence(m);
        return false;
    }
    if (f->found.over) {
        *ends = f->found.exit_code;
        return false;
    }
    if (ct_office_must_take_over(&f->office)) {
        struct ct_presence who;
        find_presence(m, false, &who, NULL);
        if (ct_office_take_over(&f->office, &who) == 0) {
            send_proposal(m, now_ns);
        }
        return false;
    }
    return true;
}

int members_failover_propose(struct ct_members *m, int n, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    struct ct_presence who;
    struct ct_world_voters world = {.generation = m->generation + 1};
    for (int i = 0; i < n && world.count < CT_VOTERS_MAX; i++) {
        world.list[world.count++] = m->sorted[i]->voter;
    }
    find_presence(m, false, &who, NULL);
    int rc = ct_office_propose_world(&f->office, &world, m->restarts, &who);
    if (rc == 0) {
        send_proposal(m, now_ns);
    }
    return rc;
}

int members_failover_end(struct ct_members *m, int exit_code, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    struct ct_presence who;
    if (!members_failover_on(m) || f->office.record.formed.generation < 0) {
        return CT_ENOENT;
    }
    ct_office_withdraw(&f->office);
    find_presence(m, false, &who, NULL);
    int rc = ct_office_propose_end(&f->office, exit_code, &who);
    if (rc == 0) {
        send_proposal(m, now_ns);
    }
    return rc;
}

enum ct_proposal members_failover_pledged(struct ct_members *m, struct ct_member *member,
                                          const struct ct_msg *msg, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    (void)now_ns;
    if (!members_failover_on(m)) {
        return CT_PROPOSAL_NONE;
    }
    bool answers = f->office.open != CT_PROPOSAL_NONE && msg->term == f->office.record.term &&
                   msg->record_version == f->office.record.version;
    if (answers && f->proposed_ns > member->said_ns) {
        member->said_ns = f->proposed_ns;
    }
    enum ct_proposal done =
        ct_office_pledged(&f->office, member->voter.id, msg->term, msg->record_version);
    if (done == CT_PROPOSAL_WORLD || done == CT_PROPOSAL_TAKE_OVER) {
        f->served = f->served || done == CT_PROPOSAL_WORLD;
        send_record(m, NULL);
    }
    return done;
}

/* ---- members come and go -------------------------------------------------------------------- */

void members_failover_joined(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    (void)now_ns;
    /* Without it, the agent could not tell what was decided before it came. */
    if (members_failover_on(m) && ct_job_record_generation(&m->failover->office.record) >= 0) {
        send_record(m, member);
    }
}

bool members_failover_left(struct ct_members *m, const struct ct_member *member, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    (void)now_ns;
    if (!members_failover_on(m) || member->voter.id == 0) {
        return false;
    }
    struct members_lost *lost = lost_of(f, member->voter.id);
    if (lost == NULL) {
        lost = &f->lost[f->num_lost++ % CT_VOTERS_BOTH];
    }
    *lost = (struct members_lost){.id = member->voter.id, .said_ns = member->said_ns};
    return ct_office_left(&f->office, member->voter.id);
}

void ct_members_dead(struct ct_members *m, uint64_t id, int64_t now_ns)
{
    struct members_lost *lost = members_failover_on(m) && id != 0 ? lost_of(m->failover, id) : NULL;
    if (lost != NULL && !lost->dead) {
        lost->dead = true;
        lost->in_time = now_ns < lost->said_ns + lease_ns(m);
        m->due.fence_ns = now_ns;
    }
}

/* ---- leases --------------------------------------------------------------------------------- */

static int64_t quorum_until(const struct ct_members *m)
{
    struct ct_presence who;
    int64_t heard_ns[CT_VOTERS_BOTH];
    find_presence(m, true, &who, heard_ns);
    return ct_office_lease(&m->failover->office, &who, heard_ns, lease_ns(m));
}

int64_t ct_members_lease_ms(const struct ct_members *m, int64_t now_ns)
{
    if (!members_failover_on(m)) {
        return -1;
    }
    int64_t until_ns = m->failover->served ? quorum_until(m) : NEVER;
    int64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    return left_ns < lease_ns(m) ? left_ns / CT_NS_PER_MS : m->job.heartbeat_ms;
}

void members_failover_tick(struct ct_members *m, int64_t now_ns)
{
    if (members_failover_next(m) <= now_ns) {
        m->failover->deposed = true;
        if (m->options.deposed != NULL) {
            m->options.deposed(m->options.data);
        }
    }
}

int64_t members_failover_next(const struct ct_members *m)
{
    const struct members_failover *f = m->failover;
    return members_failover_on(m) && f->served && !f->deposed && f->options.self.id != 0
               ? quorum_until(m)
               : NEVER;
}
