/* SPDX-License-Identifier: Apache-2.0
 *
 * The office (rendezvous/election/office.h) knows voters by id only. Here they are found among the
 * members and among those that were lost, and records are sent. Who is a voter, and how long there
 * is a quorum, is remembered until it may change.
 *
 * What was heard counts from when it was sent, since a beat may have waited in a socket. A pledge
 * was sent after the record that it answers.
 */
#include "rendezvous/members/members_failover.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "rendezvous/members/members_history.h"

#include <stdio.h>
#include <string.h>

static int64_t later(int64_t a_ns, int64_t b_ns)
{
    return a_ns > b_ns ? a_ns : b_ns;
}

static int64_t lease_ns(const struct ct_members *m)
{
    return m->job.heartbeat_ms * CT_NS_PER_MS;
}

/* Returns the latest time at which a node last heard at `said_ns` can still run workers. */
static int64_t stopped_by(const struct ct_members *m, int64_t said_ns)
{
    return said_ns + lease_ns(m) + ct_election_late_ns(m->job.heartbeat_ms);
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

static void describe_loss(struct members_failover *f)
{
    const struct ct_members_failover *options = &f->options;
    const struct ct_world_voters *world = ct_job_record_newest(&f->found);
    const struct ct_voter *voter = ct_world_voters_find(world, options->ended_by.id);
    const char *address = voter != NULL ? voter->address : options->ended_by.address;
    f->loss = (struct ct_failure){
        .kind = options->ended_by_silence ? CT_FAILURE_SILENT : CT_FAILURE_AGENT,
        .node_rank = voter != NULL ? (int)(voter - world->list) : -1,
        .rank = -1,
        .local_rank = -1,
        .exit_code = CT_EXIT_NODE_LOST,
    };
    (void)snprintf(f->loss.host, sizeof(f->loss.host), "%s",
                   options->ended_by_name != NULL && options->ended_by_name[0] != '\0'
                       ? options->ended_by_name
                       : address);
    (void)snprintf(f->loss.address, sizeof(f->loss.address), "%s", address);
    bool node = !options->ended_by_daemon;
    (void)snprintf(f->loss.what, sizeof(f->loss.what), "%s%.300s%s",
                   node && !options->ended_by_silence ? "its ctrun is gone: " : "",
                   options->ended_why != NULL ? options->ended_why : "",
                   node ? " (it hosted the job's store)" : "");
}

/* Copies what is known of former generations, and makes sure that the newest one is there. */
static int take_history(struct ct_members *m)
{
    const struct ct_members_failover *options = &m->failover->options;
    if (options->history != NULL && members_history_inherit(m, options->history) != 0) {
        return CT_ENOMEM;
    }
    if (m->history.num_rounds == 0 || members_history_round(m)->generation != m->generation) {
        members_history_begin(m, &options->round);
    }
    m->round_failures_from = m->history.num_failures;
    return 0;
}

/* Returns a place in the ring, that of the oldest one there. */
static struct members_lost *take_lost(const struct ct_members *m)
{
    struct members_failover *f = m->failover;
    struct members_lost *lost = &f->lost[f->num_lost++ % CT_VOTERS_BOTH];
    if (lost->ran && !lost->dead) {
        f->forgotten_ns = later(f->forgotten_ns, stopped_by(m, lost->said_ns));
    }
    return lost;
}

/* A voter on record that has not come to this host is dead. It may have voted for another one. */
static void note_dead(const struct ct_members *m, uint64_t id)
{
    struct members_lost *lost = lost_of(m->failover, id);
    if (lost == NULL) {
        lost = take_lost(m);
        *lost = (struct members_lost){.id = id, .said_ns = INT64_MIN};
    }
    lost->dead = true;
}

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
    m->failover = f;
    f->options = *options;
    f->begun_ns = f->forgotten_ns = INT64_MIN;
    f->arbiter_there = options->arbiter_there;
    f->arbiter_said_ns = options->arbiter_there ? options->arbiter_said_ns : INT64_MIN;
    f->loss.node_rank = -1;
    m->options.failover = NULL;
    ct_job_record_init(&f->found);
    if (options->record != NULL) {
        f->found = *options->record;
        f->elected = true;
        m->generation = ct_job_record_generation(&f->found);
        m->restarts = f->found.restarts;
        m->last_node_count = f->found.formed.count;
        f->owes = m->generation >= 0;
        /* The former host died before its lease ended, so it decided nothing without this one.
         * Without an arbiter, half of its world is already a quorum (ct_office_begin() below), so
         * its death only shortens the fence. */
        f->lost[f->num_lost++] =
            (struct members_lost){.id = options->lost.id,
                                  .said_ns = INT64_MIN,
                                  .dead = options->lost_is_dead,
                                  .in_time = options->arbiter && options->lost_in_time};
        if (options->ended_by.id != options->lost.id) { /* it is probed, too */
            f->lost[f->num_lost++] =
                (struct members_lost){.id = options->ended_by.id, .said_ns = INT64_MIN};
        }
        for (int i = 0; i < options->num_dead; i++) {
            note_dead(m, options->dead[i]);
        }
        describe_loss(f);
    }
    ct_office_begin(&f->office, options->is_daemon ? 0 : options->self.id,
                    options->lost_in_time ? options->lost.id : 0, options->arbiter, options->term,
                    &f->found);
    int rc = f->owes ? take_history(m) : 0;
    f->options.record = NULL;
    f->options.history = NULL;
    f->options.ended_by_name = f->options.ended_why = NULL;
    return rc;
}

bool members_failover_take_loss(struct ct_members *m, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    if (f == NULL || !f->owes) {
        return false;
    }
    struct ct_history_round *round = members_history_round(m);
    struct ct_failure loss = f->loss;
    f->owes = false;
    if (round->ended_ms == 0) {
        round->ended_ms = members_ms(m, now_ns);
        if (f->options.ended_by.id == 0) {
            (void)snprintf(round->why, sizeof(round->why),
                           "its host was lost, or had lost more than half of its nodes");
        } else if (f->options.ended_by_daemon) {
            (void)snprintf(round->why, sizeof(round->why),
                           "the ctrdzvd on %.100s at %.64s, which hosted the job's store, was "
                           "lost: %.250s",
                           loss.host, loss.address, loss.what);
        } else {
            members_history_describe(&loss, round->why, sizeof(round->why));
        }
    }
    if (loss.node_rank >= 0) {
        (void)members_history_record(m, &loss, now_ns);
    }
    return true;
}

size_t members_failover_cost(const struct ct_members *m)
{
    return m->failover != NULL ? sizeof(*m->failover) + CT_BLOCK_COST : 0;
}

bool members_failover_is_behind(const struct ct_members *m, const struct ct_msg_join *join)
{
    const struct ct_job_record theirs = {.term = join->record_term,
                                         .version = join->record_version};
    return members_failover_on(m) && join->record_version != 0 &&
           ct_job_record_compare(&theirs, &m->failover->office.record) > 0;
}

bool members_failover_lost_daemon(const struct ct_members *m)
{
    return m->failover != NULL && m->failover->options.ended_by_daemon;
}

bool members_failover_on(const struct ct_members *m)
{
    return m->failover != NULL && m->begun && m->job.voter.id != 0;
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

/* Finds the members that are voters on record. Every change of the record has a new version, so
 * nothing is to be done if that is the one of the last time. */
static void find_seats(const struct ct_members *m)
{
    struct members_failover *f = m->failover;
    uint64_t ids[CT_VOTERS_BOTH];
    if (f->seated == f->office.record.version) {
        return;
    }
    f->num_seats = ct_job_record_voters(&f->office.record, ids);
    for (int i = 0; i < f->num_seats; i++) {
        f->seats[i] = (struct members_seat){.id = ids[i], .member = member_of(m, ids[i])};
    }
    f->seated = f->office.record.version;
    f->quorum_known = false;
}

struct ct_member *members_failover_voter(const struct ct_members *m, uint64_t id)
{
    const struct members_failover *f = m->failover;
    if (!members_failover_on(m) || id == 0) {
        return NULL;
    }
    find_seats(m);
    for (int i = 0; i < f->num_seats; i++) {
        if (f->seats[i].id == id) {
            return f->seats[i].member;
        }
    }
    return NULL;
}

static bool is_seated(const struct ct_members *m, const struct ct_member *member)
{
    const struct members_failover *f = m->failover;
    for (int i = 0; i < f->num_seats; i++) {
        if (f->seats[i].member == member) {
            return true;
        }
    }
    return false;
}

/* `heard_ns` may be NULL. */
static void find_presence(const struct ct_members *m, bool with_lost, struct ct_presence *who,
                          int64_t *heard_ns)
{
    const struct members_failover *f = m->failover;
    find_seats(m);
    *who = (struct ct_presence){.num_there = 0};
    for (int i = 0; i < f->num_seats; i++) {
        const struct ct_member *member = f->seats[i].member;
        const struct members_lost *lost = lost_of(m->failover, f->seats[i].id);
        if (member == NULL && lost != NULL && lost->in_time) {
            who->dead[who->num_dead++] = f->seats[i].id;
        } else if (member != NULL || (with_lost && lost != NULL)) {
            if (heard_ns != NULL) {
                heard_ns[who->num_there] = member != NULL ? member->said_ns : lost->said_ns;
            }
            who->there[who->num_there++] = f->seats[i].id;
        }
    }
    if (with_lost ? f->arbiter_said_ns != INT64_MIN : f->arbiter_there) {
        if (heard_ns != NULL) {
            heard_ns[who->num_there] = f->arbiter_said_ns;
        }
        who->there[who->num_there++] = CT_ARBITER_ID;
    }
}

void members_failover_heard(struct ct_members *m, const struct ct_member *member)
{
    if (m->failover != NULL && is_seated(m, member)) {
        m->failover->quorum_known = false;
    }
}

/* Has no other voter of this world come to this host? Then they may all be alive, and refused by a
 * firewall on this machine. A world of two does not count as left alone, because otherwise neither
 * of the two could go on without the other. */
static bool is_left_alone(const struct members_failover *f, const struct ct_world_voters *world)
{
    for (int i = 0; i < f->num_seats; i++) {
        uint64_t id = f->seats[i].id;
        if (f->seats[i].member != NULL && id != f->options.self.id &&
            ct_world_voters_find(world, id) != NULL) {
            return false;
        }
    }
    return world->count > 2;
}

/* Returns when every voter of this world that is absent, and not known to be dead, has stopped its
 * workers. INT64_MIN: there is none. If this host is left alone, no death counts as known. */
static int64_t fence_of(const struct ct_members *m, const struct ct_world_voters *world)
{
    const struct members_failover *f = m->failover;
    int64_t fence_ns = INT64_MIN;
    find_seats(m);
    bool alone = is_left_alone(f, world);
    for (int i = 0; i < f->num_seats; i++) {
        uint64_t id = f->seats[i].id;
        const struct members_lost *lost = lost_of(m->failover, id);
        if (f->seats[i].member != NULL || (lost != NULL && lost->dead && !alone) ||
            ct_world_voters_find(world, id) == NULL) {
            continue;
        }
        fence_ns = later(fence_ns, f->options.fence_ns);
        fence_ns = later(fence_ns, lost != NULL ? stopped_by(m, lost->said_ns) : INT64_MIN);
    }
    return fence_ns;
}

/* Returns when all lost nodes have stopped their workers, those without a vote included. Nodes
 * without a vote that a former host had are not known here. A world has such nodes only if it has
 * CT_VOTERS_MAX voters; then the fence of the election counts, even if all nodes have come. */
static int64_t fence_of_others(const struct ct_members *m)
{
    const struct members_failover *f = m->failover;
    bool inherited =
        f->elected && !f->served && ct_job_record_newest(&f->found)->count == CT_VOTERS_MAX;
    int64_t fence_ns = later(f->forgotten_ns, inherited ? f->options.fence_ns : INT64_MIN);
    for (int i = 0; i < CT_VOTERS_BOTH; i++) {
        const struct members_lost *lost = &f->lost[i];
        if (lost->ran && !lost->dead) {
            fence_ns = later(fence_ns, stopped_by(m, lost->said_ns));
        }
    }
    return fence_ns;
}

/* Returns when no absent node can run workers of an earlier world any more. A world that this host
 * itself has planned does not count, because nobody was told to begin it. */
static int64_t fence(const struct ct_members *m)
{
    const struct ct_office *office = &m->failover->office;
    int64_t fence_ns = later(fence_of(m, &office->record.formed), fence_of_others(m));
    return ct_office_must_take_over(office) ? later(fence_ns, fence_of(m, &office->record.planned))
                                            : fence_ns;
}

/* ---- proposals ------------------------------------------------------------------------------ */

static void tell_arbiter(const struct ct_members *m)
{
    if (m->failover->options.arbiter && m->options.arbitrate != NULL) {
        m->options.arbitrate(m->options.data, &m->failover->office.record);
    }
}

static void send_record(struct ct_members *m, struct ct_member *only)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_RECORD);
    msg->record = &m->failover->office.record;
    if (only != NULL) {
        members_send(m, only);
    } else {
        members_send_all(m);
        tell_arbiter(m);
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

/* Returns what the record says of this member. An agent of this machine, above all that of this
 * process, has come by an address that others may not reach, so they are given the one by which
 * they reach this machine. */
static struct ct_voter voter_of(const struct ct_members *m, const struct ct_member *member)
{
    struct ct_voter voter = member->voter;
    const char *here = m->store_addr[0] != '\0'  ? m->store_addr
                       : m->here_addr[0] != '\0' ? m->here_addr
                                                 : "127.0.0.1";
    if (members_address(member)[0] == '\0') {
        (void)snprintf(voter.address, sizeof(voter.address), "%.*s", CT_VOTER_ADDRESS_MAX - 1,
                       here);
    }
    return voter;
}

int members_failover_propose(struct ct_members *m, int n, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    struct ct_presence who;
    struct ct_world_voters world = {.generation = m->generation + 1};
    for (int i = 0; i < n && world.count < CT_VOTERS_MAX; i++) {
        /* Nobody could read a record that has a voter twice: one that has come by another
         * connection before its first world, and whose earlier one is not known to have ended. */
        if (ct_world_voters_find(&world, m->sorted[i]->voter.id) == NULL) {
            world.list[world.count++] = voter_of(m, m->sorted[i]);
        }
    }
    find_presence(m, false, &who, NULL);
    int rc = ct_office_propose_world(&f->office, &world, m->restarts, &who);
    if (rc == 0) {
        send_proposal(m, now_ns);
    }
    return rc;
}

void members_failover_withdraw(struct ct_members *m)
{
    if (m->failover != NULL) {
        ct_office_withdraw(&m->failover->office);
    }
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

static enum ct_proposal take_pledge(struct ct_members *m, uint64_t id, uint64_t term,
                                    uint64_t version)
{
    struct members_failover *f = m->failover;
    enum ct_proposal done = ct_office_pledged(&f->office, id, term, version);
    if (done == CT_PROPOSAL_WORLD || done == CT_PROPOSAL_TAKE_OVER) {
        f->served = f->served || done == CT_PROPOSAL_WORLD;
        send_record(m, NULL);
    } else if (done == CT_PROPOSAL_END) {
        tell_arbiter(m); /* then another job may have this name */
    }
    return done;
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
        members_failover_heard(m, member);
    }
    return take_pledge(m, member->voter.id, msg->term, msg->record_version);
}

enum ct_proposal members_failover_arbiter_pledged(struct ct_members *m, uint64_t term,
                                                  uint64_t version, int64_t sent_ns)
{
    struct members_failover *f = m->failover;
    f->arbiter_there = true;
    f->arbiter_said_ns = sent_ns;
    f->quorum_known = false;
    return take_pledge(m, CT_ARBITER_ID, term, version);
}

bool members_failover_arbiter_left(struct ct_members *m)
{
    m->failover->arbiter_there = false;
    return ct_office_left(&m->failover->office, CT_ARBITER_ID);
}

/* ---- members come and go -------------------------------------------------------------------- */

/* Gives a node of the last world its node rank back, unless somebody has it. */
static void give_rank_back(const struct ct_members *m, struct ct_member *member)
{
    const struct ct_world_voters *world = ct_job_record_newest(&m->failover->found);
    const struct ct_voter *voter = ct_world_voters_find(world, member->voter.id);
    if (voter == NULL) {
        return;
    }
    EACH_MEMBER(m, pos)
    {
        if (MEMBER_OF(pos, link)->node_rank == voter - world->list) {
            return;
        }
    }
    member->node_rank = (int)(voter - world->list);
}

void members_failover_joined(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    if (!members_failover_on(m)) {
        return;
    }
    for (int i = 0; i < f->num_seats; i++) {
        if (f->seats[i].id == member->voter.id && f->seats[i].member == NULL) {
            f->seats[i].member = member;
            f->quorum_known = false;
        }
    }
    struct members_lost *lost = lost_of(f, member->voter.id);
    if (lost != NULL) {
        lost->ran = false; /* a node that lost its connection joins when its workers have stopped */
    }
    if (f->begun_ns == INT64_MIN) {
        f->begun_ns = now_ns;
        members_place_lost(&m->places, f->loss.node_rank, f->loss.host, f->loss.address, now_ns);
    }
    if (f->elected && !f->served) {
        give_rank_back(m, member);
    }
    /* Without it, the agent could not tell what was decided before it came. */
    if (ct_job_record_generation(&f->office.record) >= 0) {
        send_record(m, member);
    }
}

/* Has the process of this member come back by another connection? It has stopped its workers before
 * it did so. */
static bool is_back(const struct ct_members *m, const struct ct_member *member)
{
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *other = MEMBER_OF(pos, link);
        if (other != member && other->voter.id == member->voter.id) {
            return true;
        }
    }
    return false;
}

bool members_failover_left(struct ct_members *m, const struct ct_member *member,
                           enum ct_failure_kind kind)
{
    struct members_failover *f = m->failover;
    if (!members_failover_on(m) || member->voter.id == 0) {
        return false;
    }
    f->seated = is_seated(m, member) ? 0 : f->seated;
    f->quorum_known = false;
    struct members_lost *lost = lost_of(f, member->voter.id);
    if (lost == NULL) {
        lost = take_lost(m);
    }
    /* A node that takes its leave runs nothing any more. It has followed this host until now, and
     * will vote for nobody. */
    bool took_leave = kind == CT_FAILURE_LEFT;
    *lost = (struct members_lost){.id = member->voter.id,
                                  .said_ns = member->said_ns,
                                  .dead = took_leave,
                                  .in_time = took_leave,
                                  .ran = member->in_world && member->told && !member->finished &&
                                         !member->stopped && !is_back(m, member)};
    return ct_office_left(&f->office, member->voter.id);
}

void ct_members_dead(struct ct_members *m, uint64_t id, int64_t now_ns)
{
    struct members_failover *f = m->failover;
    if (!members_failover_on(m) || id == 0) {
        return;
    }
    struct members_lost *lost = lost_of(f, id);
    bool came = lost != NULL || member_of(m, id) != NULL;
    if (lost != NULL && !lost->dead) {
        lost->dead = true;
        lost->in_time = now_ns < lost->said_ns + lease_ns(m);
    } else if (!came && ct_job_record_find(&f->office.record, id) != NULL) {
        note_dead(m, id);
    } else {
        return;
    }
    f->quorum_known = false;
    m->due.fence_ns = now_ns;
}

bool ct_members_stands_no_more(const struct ct_members *m, uint64_t id)
{
    if (!members_failover_on(m) || id == 0) {
        return false;
    }
    const struct members_lost *lost = lost_of(m->failover, id);
    return member_of(m, id) != NULL || (lost != NULL && lost->dead);
}

bool ct_members_waits_first(const struct ct_members *m)
{
    return members_failover_on(m) && m->generation < 0;
}

int ct_members_missed_end(const struct ct_members *m, const struct ct_voter *voter)
{
    bool is_certain = members_state(m) == STATE_OVER && !m->pledging;
    return is_certain && members_failover_on(m) && m->failover->elected &&
                   ct_job_record_find(&m->failover->found, voter->id) != NULL
               ? m->exit_code
               : -1;
}

bool members_failover_owes(const struct ct_members *m, bool *plan)
{
    const struct members_failover *f = m->failover;
    struct ct_presence who;
    *plan = false;
    if (!members_failover_on(m) || !f->elected || f->served) {
        return false;
    }
    find_presence(m, false, &who, NULL);
    *plan = f->found.over || ct_office_must_take_over(&f->office);
    return (*plan || f->owes) && ct_office_has_quorum(&f->office, &who);
}

/* ---- leases --------------------------------------------------------------------------------- */

static int64_t quorum_until(const struct ct_members *m)
{
    struct members_failover *f = m->failover;
    struct ct_presence who;
    int64_t heard_ns[CT_BALLOTS_MAX];
    find_seats(m);
    if (!f->quorum_known) {
        find_presence(m, true, &who, heard_ns);
        f->quorum_ns = ct_office_lease(&f->office, &who, heard_ns, lease_ns(m));
        f->quorum_known = true;
    }
    return f->quorum_ns;
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

/* A host that was just elected has no beats yet; its voters are on their way. */
int64_t members_failover_next(const struct ct_members *m)
{
    const struct members_failover *f = m->failover;
    bool is_over = members_state(m) == STATE_OVER && !m->pledging;
    bool replaceable = m->failover != NULL && (f->elected || f->options.arbiter);
    if (!members_failover_on(m) || f->deposed || f->office.self == 0 || is_over ||
        !(f->served || (replaceable && f->begun_ns != INT64_MIN))) {
        return NEVER;
    }
    int64_t patience_ns = f->served ? INT64_MIN : f->begun_ns + 2 * lease_ns(m);
    int64_t until_ns = quorum_until(m);
    return until_ns > patience_ns ? until_ns : patience_ns;
}

/* ---- words ---------------------------------------------------------------------------------- */

const char *members_failover_wait(const struct ct_members *m, int64_t now_ns)
{
    if (!members_failover_on(m)) {
        return "";
    }
    struct ct_presence who;
    find_presence(m, false, &who, NULL);
    const char *missing = m->failover->options.arbiter
                              ? "etcd does not answer, and without it all nodes of the last world "
                                "are needed"
                              : "more than half of the last world is missing";
    return !ct_office_has_quorum(&m->failover->office, &who) ? missing
           : fence(m) > now_ns ? "the next world waits until the nodes that are lost have stopped"
                               : "";
}

bool members_failover_was_host(const struct ct_members *m, int place)
{
    return members_failover_on(m) && !m->failover->served && m->failover->loss.node_rank == place;
}

bool members_failover_has_arbiter(const struct ct_members *m)
{
    return members_failover_on(m) && m->failover->options.arbiter;
}

void members_failover_where(const struct ct_members *m, char *out, size_t size)
{
    const struct members_failover *f = m->failover;
    out[0] = '\0';
    if (members_failover_on(m) && f->elected) {
        const char *address = m->store_addr[0] != '\0' ? m->store_addr : f->options.self.address;
        bool v6 = strchr(address, ':') != NULL;
        (void)snprintf(out, size, "%s%s%s:%u", v6 ? "[" : "", address, v6 ? "]" : "",
                       (unsigned)f->options.self.port);
    }
}
