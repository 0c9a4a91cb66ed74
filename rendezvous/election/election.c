/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules of a vote are in ct_election_asked(), those of a victory in has_won(). An agent that
 * looks for a host asks all voters again and again; each answer may also name a host, whom it then
 * joins. So one question serves an election, an agent that was cut off by itself, and a spare,
 * which has no vote.
 *
 * The pauses between two candidacies are random, and grow with each, so that two candidates do not
 * divide the votes for ever. Those of a low place in the world begin sooner. An answer counts only
 * for the newest candidacy, so no pause is shorter than two answers of the arbiter: one to the
 * question before, which may be under way, and one to this question.
 *
 * Voters learn who was elected by their next question, and may elect another one before. A host
 * that hears of a later candidacy asks for a while whether it was won, for it would wait in vain
 * for voters that are bound to a later term.
 */
#include "rendezvous/election/election.h"

#include "common/clock.h"

#include <string.h>

/* Each place in the world waits this much longer than the one before it with its first question.
 * All see the death of a host at the same time, and would divide the votes if all stood at once. */
#define PLACE_NS (5 * CT_NS_PER_MS)
/* Each further pause is about as long as the search has lasted, within these bounds. Up to as much
 * again is added at random. */
#define PAUSE_FIRST_NS (40 * CT_NS_PER_MS)
#define PAUSE_LAST_NS (640 * CT_NS_PER_MS)
/* An arbiter that takes longer for an answer is away rather than slow. */
#define ARBITER_LAST_NS (1600 * CT_NS_PER_MS)
/* A pause is at least the time of the search divided by this. The arbiter may be away for long, and
 * terms would run out if candidacies did not become rarer. */
#define PAUSE_SHARE 128
/* Clocks may differ in speed, and timers may be late, by a sixteenth of the lease. */
#define LATE_SHARE 16

int64_t ct_election_late_ns(int64_t lease_ms)
{
    return lease_ms * CT_NS_PER_MS / LATE_SHARE;
}

/* Somebody has had no host since `alone_ns`, so others may have had a lease that began then. */
static void raise_fence(struct ct_election *election, int64_t alone_ns)
{
    int64_t lease_ns = election->lease_ms * CT_NS_PER_MS;
    int64_t fence_ns = alone_ns + lease_ns + ct_election_late_ns(election->lease_ms);
    election->fence_ns = fence_ns > election->fence_ns ? fence_ns : election->fence_ns;
}

void ct_election_init(struct ct_election *election, const struct ct_voter *self, bool arbiter,
                      int64_t lease_ms, int64_t give_up_ms)
{
    *election = (struct ct_election){
        .self = *self,
        .arbiter = arbiter,
        .state = CT_ELECTION_LOOKING,
        .lease_ms = lease_ms,
        .give_up_ms = give_up_ms,
        .next_ns = INT64_MAX,
        .give_up_ns = INT64_MAX,
        .lease_ns = INT64_MIN,
        .died_ns = INT64_MIN,
        .asked_ns = INT64_MAX,
        .random = self->id,
    };
    ct_job_record_init(&election->record);
}

/* splitmix64 (Vigna, public domain) */
static uint64_t draw(struct ct_election *election)
{
    uint64_t z = (election->random += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static void see(struct ct_election *election, uint64_t term)
{
    election->seen = term > election->seen ? term : election->seen;
}

bool ct_election_in_reach(uint64_t known, uint64_t term)
{
    return term <= CT_TERM_MAX && ct_term_number(term) <= ct_term_number(known) + CT_TERM_REACH;
}

/* An agent that has had no host knows no term, and believes its first host. */
static bool in_reach(const struct ct_election *election, uint64_t term)
{
    return election->seen == 0 ? term <= CT_TERM_MAX : ct_election_in_reach(election->known, term);
}

bool ct_election_is_dead(const struct ct_election *election, uint64_t id)
{
    for (int i = 0; i < election->num_dead; i++) {
        if (election->dead[i] == id) {
            return true;
        }
    }
    return false;
}

/* If the record has changed, there may be more dead voters than places. A voter without a place
 * counts as silent, for which the next world waits longer. */
static void note_dead(struct ct_election *election, uint64_t id)
{
    bool matters = id == election->host.id || ct_job_record_find(&election->record, id) != NULL;
    if (matters && election->num_dead < CT_VOTERS_BOTH && !ct_election_is_dead(election, id)) {
        election->dead[election->num_dead++] = id;
    }
}

/* An agent that says something is alive, whatever was noted. */
static void revive(struct ct_election *election, uint64_t id)
{
    if (election->state != CT_ELECTION_LOOKING) {
        return;
    }
    for (int i = election->num_dead - 1; i >= 0; i--) {
        if (election->dead[i] == id) {
            election->dead[i] = election->dead[--election->num_dead];
        }
    }
    if (id == election->host.id) {
        election->died_ns = INT64_MIN;
        election->host_is_dead = false;
    }
}

/* Another agent names this term. Returns false if it is out of reach. An agent that has had no host
 * does not remember the term, because it cannot tell whether it is too high. */
static bool hear(struct ct_election *election, uint64_t id, uint64_t term)
{
    revive(election, id);
    if (!in_reach(election, term)) {
        election->far_id = id;
        return false;
    }
    if (election->state == CT_ELECTION_LOOKING && election->seen != 0) {
        see(election, term);
    }
    return true;
}

static bool has_promised(const struct ct_election *election, uint64_t term, uint64_t to)
{
    for (int i = 0; i < election->num_promises; i++) {
        if (election->promises[i].term == term) {
            return election->promises[i].to == to;
        }
    }
    return false;
}

/* Gives a vote. */
static void promise(struct ct_election *election, uint64_t term, uint64_t to)
{
    struct ct_promise *promises = election->promises;
    see(election, term);
    election->candidacy = 0;
    if (has_promised(election, term, to)) {
        return; /* its question came again */
    }
    if (election->num_promises == CT_PROMISES) {
        election->floor = promises[0].term > election->floor ? promises[0].term : election->floor;
        memmove(promises, promises + 1, (CT_PROMISES - 1) * sizeof(promises[0]));
        election->num_promises--;
    }
    election->promised = term;
    promises[election->num_promises++] = (struct ct_promise){term, to};
}

static void release(struct ct_election *election, int at)
{
    election->num_promises--;
    memmove(&election->promises[at], &election->promises[at + 1],
            (size_t)(election->num_promises - at) * sizeof(election->promises[0]));
}

/* May it follow a host of this term? */
static bool may_follow(const struct ct_election *election, uint64_t term)
{
    uint64_t least =
        election->num_promises > 0 ? election->promises[election->num_promises - 1].term : 0;
    return term >= least && term >= election->floor && term >= election->record.term &&
           in_reach(election, term);
}

/* Follows, or is, the host of this term. Votes of earlier terms do not matter any more. */
static void bind(struct ct_election *election, uint64_t term)
{
    see(election, term);
    election->known = election->seen;
    election->candidacy = 0;
    election->num_promises = 0;
    election->floor = term;
    election->promised = term > election->promised ? term : election->promised;
}

/* ---- following and losing a host ------------------------------------------------------------ */

void ct_election_begin_hosting(struct ct_election *election)
{
    election->state = CT_ELECTION_HOSTING;
    election->host = election->self;
    election->host_term = CT_TERM_FIRST;
    see(election, CT_TERM_FIRST);
    election->known = election->seen;
}

/* Remembers the dead host, because another one takes its place. If that one is lost before it has
 * given a lease or formed a world, the death of this one counts in the next election, too. */
static void keep_former(struct ct_election *election)
{
    if (election->host_is_dead) {
        election->former = election->host;
        election->former_term = election->host_term;
        election->former_died_ns = election->died_ns;
    }
}

static void recall_former(struct ct_election *election)
{
    if (election->former.id != 0) {
        election->host = election->former;
        election->host_term = election->former_term;
        election->host_is_dead = true;
        election->died_ns = election->former_died_ns;
        election->former.id = 0;
    }
}

bool ct_election_followed(struct ct_election *election, const struct ct_voter *host, uint64_t term,
                          int64_t now_ns)
{
    /* A term has one host. Another one in it is a new life of a first host, without its memory. */
    bool other =
        term == election->host_term && election->host.id != 0 && election->host.id != host->id;
    if (!may_follow(election, term) || other || election->state == CT_ELECTION_ENDED ||
        (election->state == CT_ELECTION_HOSTING && host->id != election->self.id)) {
        return false;
    }
    bind(election, term);
    if (election->state == CT_ELECTION_LOOKING) {
        keep_former(election);
    }
    if (election->state != CT_ELECTION_HOSTING) {
        election->state = CT_ELECTION_FOLLOWING;
    }
    election->host = *host;
    election->host_term = term;
    election->current = false;
    election->host_is_dead = false;
    election->died_ns = INT64_MIN;
    election->lease_ns = now_ns;
    election->next_ns = election->give_up_ns = INT64_MAX;
    election->asked_ns = INT64_MAX; /* the question is taken back */
    return true;
}

void ct_election_leased(struct ct_election *election, int64_t sent_ns, int64_t lease_ms)
{
    int64_t most_ms = lease_ms < election->lease_ms ? lease_ms : election->lease_ms;
    int64_t until_ns = sent_ns + most_ms * CT_NS_PER_MS;
    if (until_ns > election->lease_ns) {
        election->lease_ns = until_ns;
        election->former.id = election->state == CT_ELECTION_HOSTING ? election->former.id : 0;
    }
}

bool ct_election_recorded(struct ct_election *election, const struct ct_job_record *record)
{
    if (record->term != election->host_term ||
        (election->state != CT_ELECTION_FOLLOWING && election->state != CT_ELECTION_HOSTING) ||
        ct_job_record_compare(record, &election->record) < 0) {
        return false;
    }
    if (record->formed.generation != election->record.formed.generation) {
        /* The death made half of the previous world enough. It does not count for the new world. */
        election->former.id = 0;
    }
    election->record = *record;
    election->current = true;
    return true;
}

/* Who has no place in the last world comes after all voters. */
static int place(const struct ct_election *election)
{
    int i = 0;
    while (i < election->record.formed.count &&
           election->record.formed.list[i].id != election->self.id) {
        i++;
    }
    return i;
}

/* Plans the first question. All notice at the same time that they may stand, so each waits for its
 * place in the world. */
static void stand(struct ct_election *election, int64_t now_ns)
{
    election->next_ns = election->stand_ns = now_ns + place(election) * PLACE_NS;
}

static void look(struct ct_election *election, int64_t now_ns)
{
    election->state = CT_ELECTION_LOOKING;
    election->alone_ns = now_ns;
    election->known = election->seen;
    election->candidacy = 0;
    election->num_dead = 0;
    stand(election, now_ns);
    election->give_up_ns = now_ns + election->give_up_ms * CT_NS_PER_MS;
}

void ct_election_seek(struct ct_election *election, int64_t give_up_ms, int64_t now_ns)
{
    CT_ASSERT(election->arbiter && election->state == CT_ELECTION_LOOKING);
    look(election, now_ns);
    election->next_ns = election->stand_ns = now_ns;
    election->give_up_ns = now_ns + give_up_ms * CT_NS_PER_MS;
}

void ct_election_lost(struct ct_election *election, int64_t now_ns)
{
    if (election->state != CT_ELECTION_FOLLOWING) {
        return;
    }
    look(election, now_ns);
    recall_former(election);
}

void ct_election_dead(struct ct_election *election, uint64_t id, int64_t now_ns)
{
    bool yielded = false;
    for (int i = election->num_promises - 1; i >= 0; i--) {
        if (election->promises[i].to == id) {
            yielded = yielded || election->promises[i].term == election->promised;
            release(election, i);
        }
    }
    if (election->state != CT_ELECTION_LOOKING || id == 0) {
        return;
    }
    note_dead(election, id);
    if (yielded && election->candidacy == 0) {
        stand(election, now_ns); /* it will not win any more */
    }
    if (id == election->host.id && election->died_ns == INT64_MIN) {
        election->died_ns = now_ns;
        election->host_is_dead = election->current && now_ns < election->lease_ns;
    }
}

void ct_election_deposed(struct ct_election *election, int64_t now_ns)
{
    if (election->state == CT_ELECTION_HOSTING) {
        election->host = (struct ct_voter){0};
        election->died_ns = INT64_MIN;
        election->host_is_dead = false;
        look(election, now_ns);
        recall_former(election);
    }
}

static int64_t least_pause(const struct ct_election *election)
{
    int64_t both_ns = 2 * election->arbiter_ns;
    return both_ns > PAUSE_FIRST_NS ? both_ns : PAUSE_FIRST_NS;
}

/* Lets another candidate win. Until `stand_ns` this agent only asks who hosts. The pause is random,
 * so that agents that yielded together do not stand again together. */
static void yield(struct ct_election *election, int64_t now_ns)
{
    election->next_ns = now_ns + least_pause(election);
    election->stand_ns = election->next_ns + (int64_t)(draw(election) % PAUSE_LAST_NS);
}

/* ---- the vote ------------------------------------------------------------------------------- */

static int compare_with(const struct ct_election *election, const struct ct_vote_ask *ask)
{
    const struct ct_job_record theirs = {.term = ask->record_term, .version = ask->record_version};
    return ct_job_record_compare(&election->record, &theirs);
}

/* A host has heard of a later candidacy. */
static void doubt(struct ct_election *election, int64_t now_ns)
{
    election->doubt_ns = now_ns + 2 * election->lease_ms * CT_NS_PER_MS;
    if (election->next_ns == INT64_MAX) {
        election->doubt_pause_ns = PAUSE_FIRST_NS;
        election->next_ns = now_ns + PAUSE_FIRST_NS;
    }
}

void ct_election_doubted(struct ct_election *election, int64_t now_ns)
{
    if (election->state == CT_ELECTION_HOSTING) {
        doubt(election, now_ns);
    }
}

void ct_election_asked(struct ct_election *election, const struct ct_vote_ask *ask, int64_t now_ns,
                       struct ct_vote_answer *answer)
{
    bool hosts = election->state == CT_ELECTION_HOSTING;
    bool follows = election->state == CT_ELECTION_FOLLOWING;
    int newer = compare_with(election, ask);
    bool near = hear(election, ask->id, ask->term);
    *answer = (struct ct_vote_answer){
        .id = election->self.id,
        .asked_term = ask->term,
        .record = newer > 0 ? &election->record : NULL,
        .host = hosts     ? &election->self
                : follows ? &election->host
                          : NULL,
        .host_term = hosts || follows ? election->host_term : 0,
    };
    bool again = has_promised(election, ask->term, ask->id);
    if (election->state == CT_ELECTION_LOOKING && election->seen != 0 && near && newer <= 0 &&
        ask->term != 0 && (ask->term > election->promised || again) &&
        ask->term != election->candidacy) {
        promise(election, ask->term, ask->id);
        answer->granted = true;
        answer->alone_ms = (now_ns - election->alone_ns) / CT_NS_PER_MS;
        yield(election, now_ns);
    }
    if (hosts && near && ask->term > election->host_term) {
        doubt(election, now_ns);
    }
    answer->seen = election->seen;
    answer->candidacy = election->candidacy;
}

/* ---- the candidate -------------------------------------------------------------------------- */

static bool has_granted(const struct ct_election *election, uint64_t id)
{
    for (int i = 0; i < election->num_granted; i++) {
        if (election->granted[i] == id) {
            return true;
        }
    }
    return false;
}

/* Has every voter of this world except its dead host voted for this agent? Then nobody else can win
 * with the arbiter, because that takes one of these votes. */
static bool has_all_others(const struct ct_election *election, const struct ct_world_voters *world)
{
    for (int i = 0; i < world->count; i++) {
        uint64_t id = world->list[i].id;
        if (id != election->host.id && !has_granted(election, id)) {
            return false;
        }
    }
    return world->count > 0;
}

static bool wins(const struct ct_election *election, const struct ct_world_voters *world)
{
    bool half = election->host_is_dead && ct_world_voters_find(world, election->host.id) != NULL;
    if (election->arbiter) {
        return ct_world_voters_enough_with_arbiter(world, election->granted,
                                                   election->num_granted) ||
               (half && has_all_others(election, world));
    }
    return ct_world_voters_enough(world, election->granted, election->num_granted, half);
}

static bool has_won(const struct ct_election *election)
{
    const struct ct_job_record *record = &election->record;
    /* Before the first world is certain, only the first host or the arbiter may decide. */
    return (record->formed.generation >= 0 || election->arbiter) &&
           wins(election, &record->formed) &&
           (record->planned.generation < 0 || wins(election, &record->planned));
}

static void ask_all(struct ct_election *election, int64_t now_ns, struct ct_election_todo *todo)
{
    if (election->arbiter) {
        election->asked_ns = election->asked_ns < now_ns ? election->asked_ns : now_ns;
        election->asked = election->candidacy;
    }
    todo->ask = true;
    todo->question = (struct ct_vote_ask){
        .id = election->self.id,
        .term = election->candidacy,
        .record_term = election->record.term,
        .record_version = election->record.version,
        .followed = election->floor != 0,
    };
}

static void note_grant(struct ct_election *election, uint64_t id, int64_t alone_ns)
{
    bool votes = ct_job_record_find(&election->record, id) != NULL ||
                 (election->arbiter && id == CT_ARBITER_ID);
    if (has_granted(election, id) || election->num_granted == CT_BALLOTS_MAX || !votes) {
        return;
    }
    election->granted[election->num_granted++] = id;
    raise_fence(election, alone_ns);
}

static void check_won(struct ct_election *election, int64_t now_ns, struct ct_election_todo *todo)
{
    if (!has_won(election)) {
        return;
    }
    if (election->host_is_dead) {
        /* Others may have heard the dead host until it died. */
        raise_fence(election, election->died_ns);
    }
    todo->lost = election->host;
    todo->lost_is_dead = election->died_ns != INT64_MIN;
    todo->lost_in_time = election->host_is_dead;
    keep_former(election);
    election->state = CT_ELECTION_HOSTING;
    election->host = election->self;
    election->host_term = election->candidacy;
    bind(election, election->candidacy);
    election->next_ns = election->give_up_ns = INT64_MAX;
    election->lease_ns = now_ns;
    todo->host = true;
}

static uint64_t next_term(const struct ct_election *election)
{
    return (ct_term_number(election->seen) + 1) << 32 | (election->self.id & UINT32_MAX);
}

/* Asks who hosts; if it may stand now, for votes as well. */
static void ask_again(struct ct_election *election, int64_t now_ns, struct ct_election_todo *todo)
{
    /* After the last term, nobody can stand. */
    bool first = election->arbiter && ct_job_record_generation(&election->record) < 0;
    bool stands = (first || ct_job_record_find(&election->record, election->self.id) != NULL) &&
                  ct_term_number(election->seen) < CT_TERM_NUMBER_MAX &&
                  now_ns >= election->stand_ns;
    int64_t pause_ns = least_pause(election);
    for (int64_t passed = now_ns - election->alone_ns;
         pause_ns < passed && pause_ns < PAUSE_LAST_NS;) {
        pause_ns *= 2;
    }
    int64_t long_ns = (now_ns - election->alone_ns) / PAUSE_SHARE;
    pause_ns = long_ns > pause_ns ? long_ns : pause_ns;
    election->next_ns = now_ns + pause_ns + (int64_t)(draw(election) % (uint64_t)pause_ns);
    election->candidacy = 0;
    if (stands) {
        election->candidacy = next_term(election);
        see(election, election->candidacy);
        election->num_granted = 0;
        election->fence_ns = INT64_MIN;
        note_grant(election, election->self.id, election->alone_ns);
    }
    ask_all(election, now_ns, todo);
    if (stands) {
        check_won(election, now_ns, todo);
    }
}

/* Forgets votes that were given to `answer->id` and are void. */
static void check_released(struct ct_election *election, const struct ct_vote_answer *answer)
{
    for (int i = election->num_promises - 1; i >= 0; i--) {
        const struct ct_promise *promise = &election->promises[i];
        if (promise->to == answer->id && answer->seen >= promise->term &&
            answer->candidacy != promise->term &&
            (answer->host == NULL || answer->host_term != promise->term)) {
            release(election, i);
        }
    }
}

/* Does the answer name a host that it may join? */
static bool has_found(const struct ct_election *election, const struct ct_vote_answer *answer)
{
    if (answer->host == NULL || answer->host->id == election->self.id) {
        return false;
    }
    return election->state == CT_ELECTION_HOSTING
               ? answer->host_term > election->host_term && in_reach(election, answer->host_term)
               : election->state == CT_ELECTION_LOOKING && may_follow(election, answer->host_term);
}

/* Looks for a host no more. */
static void end(struct ct_election *election, struct ct_election_todo *todo)
{
    election->state = CT_ELECTION_ENDED;
    election->next_ns = election->give_up_ns = INT64_MAX;
    todo->give_up = true;
    todo->exit_code = election->record.over ? election->record.exit_code : -1;
}

bool ct_election_knows_nobody_of_it(const struct ct_election *election)
{
    return election->arbiter && election->floor == 0 && !election->met &&
           ct_job_record_generation(&election->record) >= 0;
}

/* The value of the arbiter is gone, or is that of a new job. If this agent has learned of the old
 * one, but has never belonged to it, and nobody of it is alive, then that job is over, and nobody
 * here could ever win an election in it. */
static void forget_former_job(struct ct_election *election, int64_t now_ns)
{
    if (election->state == CT_ELECTION_LOOKING && ct_election_knows_nobody_of_it(election)) {
        ct_job_record_init(&election->record);
        election->next_ns = now_ns;
    }
}

/* Learns how slow the arbiter is. If there is a newer question, that one is being asked now. */
static void time_answer(struct ct_election *election, const struct ct_vote_answer *answer,
                        int64_t now_ns)
{
    bool newest = answer->asked_term == election->asked;
    if (election->asked_ns == INT64_MAX) {
        return;
    }
    int64_t took_ns = now_ns - election->asked_ns;
    election->arbiter_ns = took_ns < ARBITER_LAST_NS ? took_ns : ARBITER_LAST_NS;
    election->asked_ns = newest ? INT64_MAX : now_ns;
    int64_t next_ns = now_ns + least_pause(election);
    if (!newest && election->state == CT_ELECTION_LOOKING && next_ns > election->next_ns) {
        election->next_ns = next_ns;
    }
}

/* The arbiter has not voted, and has told when it may. Brings the next candidacy forward to that
 * time, because a longer wait would be of no use. */
static void come_when_free(struct ct_election *election, const struct ct_vote_answer *answer,
                           int64_t now_ns)
{
    int64_t free_ns = now_ns + answer->free_ms * CT_NS_PER_MS + place(election) * PLACE_NS;
    if (election->state == CT_ELECTION_LOOKING && answer->free_ms > 0 &&
        answer->asked_term == election->asked && free_ns < election->next_ns) {
        election->next_ns = free_ns;
    }
}

static void hear_arbiter(struct ct_election *election, const struct ct_vote_answer *answer,
                         int64_t now_ns)
{
    time_answer(election, answer, now_ns);
    come_when_free(election, answer, now_ns);
    if (answer->seen < election->record.term) {
        forget_former_job(election, now_ns);
    }
    if (election->known == 0 && answer->seen <= CT_TERM_MAX) {
        election->known = answer->seen; /* it seeks a job, and knows no term but its own */
    }
}

void ct_election_answered(struct ct_election *election, const struct ct_vote_answer *answer,
                          int64_t now_ns, struct ct_election_todo *todo)
{
    *todo = (struct ct_election_todo){0};
    if (answer->id == CT_ARBITER_ID) {
        hear_arbiter(election, answer, now_ns);
    } else {
        election->met = true;
    }
    (void)hear(election, answer->id, answer->seen);
    check_released(election, answer);
    if (has_found(election, answer)) {
        todo->stop_hosting = election->state == CT_ELECTION_HOSTING;
        ct_election_deposed(election, now_ns);
        if (todo->stop_hosting) {
            yield(election, now_ns);
        }
        todo->join = true;
        todo->at = *answer->host;
        todo->at_term = answer->host_term;
        return;
    }
    if (election->state != CT_ELECTION_LOOKING) {
        return;
    }
    if (answer->record != NULL && ct_job_record_compare(answer->record, &election->record) > 0 &&
        hear(election, answer->id, answer->record->term)) {
        /* It asks again with the newer record, in another term. */
        election->record = *answer->record;
        election->candidacy = 0;
        election->next_ns = now_ns;
        if (election->record.ended) {
            end(election, todo);
            return;
        }
    }
    if (answer->granted && election->candidacy != 0 && answer->asked_term == election->candidacy) {
        note_grant(election, answer->id, now_ns - answer->alone_ms * CT_NS_PER_MS);
        check_won(election, now_ns, todo);
    }
}

bool ct_election_may_be_told(const struct ct_election *election, const struct ct_voter *host)
{
    return election->state == CT_ELECTION_HOSTING && election->host_term == CT_TERM_FIRST &&
           host->id != election->self.id && ct_job_record_generation(&election->record) < 0;
}

void ct_election_told(struct ct_election *election, const struct ct_voter *host, uint64_t term,
                      int64_t now_ns, struct ct_election_todo *todo)
{
    const struct ct_vote_answer answer = {
        .id = host->id, .seen = term, .host = host, .host_term = term};
    *todo = (struct ct_election_todo){0};
    if (ct_election_may_be_told(election, host)) {
        ct_election_answered(election, &answer, now_ns, todo);
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

void ct_election_tick(struct ct_election *election, int64_t now_ns, struct ct_election_todo *todo)
{
    *todo = (struct ct_election_todo){0};
    if (election->state == CT_ELECTION_HOSTING && now_ns >= election->next_ns) {
        election->next_ns =
            now_ns < election->doubt_ns ? now_ns + election->doubt_pause_ns : INT64_MAX;
        election->doubt_pause_ns *= election->doubt_pause_ns < PAUSE_LAST_NS ? 2 : 1;
        ask_all(election, now_ns, todo);
    }
    if (election->state != CT_ELECTION_LOOKING) {
        return;
    }
    if (now_ns >= election->give_up_ns) {
        end(election, todo);
    } else if (now_ns >= election->next_ns) {
        ask_again(election, now_ns, todo);
    }
}

int64_t ct_election_next(const struct ct_election *election)
{
    return election->next_ns < election->give_up_ns ? election->next_ns : election->give_up_ns;
}
