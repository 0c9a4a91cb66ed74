/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the host is lost, and the timer ticks the election. It asks; each voter on record
 * gets a connection of its own (link_uv.h) with one question. An answer goes to the election, and
 * what is to be done to the owner.
 *
 * Other paths: a voter that has not answered the last question gets the newest one instead. The
 * former host is asked like the others, but where this agent was connected to it, and not at the
 * address on record, by which another machine has reached it. If its machine refuses the
 * connection, its process is dead; this agent has been connected to the same port before, so no
 * firewall is in the way. A refusal also proves the death of any other voter that has answered at
 * its port before. Therefore all voters are asked once when a world has begun, and those that did
 * not answer are asked again when the host is lost.
 *
 * A host that was elected tells whoever listens where the job met first, every few seconds, where
 * the job is now. If the first host was started again, it listens there and waits for a job of its
 * own. It connects to the host of which it was told before it gives up that job, because a host
 * that it cannot reach would leave it with no job at all.
 *
 * Failure modes: a voter that cannot be reached, has another token or answers nonsense is asked
 * again with the next question. Nothing that it says is taken for the answer of another one.
 *
 * Who frees: a link frees itself. The elector is freed when its timer and all links are closed.
 */
#include "rendezvous/client/elector_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/client/link_uv.h"
#include "rendezvous/etcd/arbiter_uv.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* How long a machine may take to answer. A new connection notices sooner than the kernel that a
 * network which was cut is there again. */
#define ANSWER_MS 1000

/* A new life of the first host waits so long for other nodes at least, by default. */
#define TELL_NS (2 * CT_NS_PER_S)

/* A host that is lost has a successor after about two leases. Who finds nobody for so many waits
 * for a job that was killed. */
#define KILLED_LEASES 4

struct asked {
    struct ct_elector *elector;
    struct ct_voter voter; /* id 0 = the place is free */
    struct ct_link *link;  /* NULL = it has answered, or cannot be reached */
    struct ct_vote_ask question;
    bool sent;
    bool reaches; /* the answer does not matter */
    bool reached; /* this voter has answered there */
};

struct ct_elector {
    struct ct_elector_options options;
    uv_loop_t *loop;
    uv_timer_t timer;
    struct ct_election election;
    struct asked asked[CT_VOTERS_BOTH];
    struct ct_etcd_arbiter *arbiter; /* NULL = the job has none */
    struct ct_link *telling;         /* to where the job met first; NULL = not now */
    int64_t tell_ns;                 /* when that is told next */
    struct ct_voter told;            /* who says that it hosts this job; id 0 = nobody */
    uint64_t told_term;
    struct ct_link *reaching; /* to that one; NULL = not now */
    bool reached;             /* it hosts there in that term, so the election is to hear of it */
    uint64_t unreached;       /* the last one of whom it was said that it is not reached */
    struct ct_msg *msg;       /* that is sent next; on the heap because it is large */
    size_t links;             /* not closed yet */
    uint64_t far_told;        /* the agent of the last warning about a term */
    bool killed_told;         /* it was said that nobody of the job answers */
    struct ct_refusal_log far_terms, unreachable; /* ids are the peer's to choose */
    bool timer_open, closing;
};

static void rearm(struct ct_elector *elector);

/* ---- closing -------------------------------------------------------------------------------- */

static void finish_if_last(struct ct_elector *elector)
{
    if (elector->closing && !elector->timer_open && elector->links == 0) {
        ct_free(elector->msg);
        ct_free(elector);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_elector *elector = CT_CONTAINER_OF(handle, struct ct_elector, timer);
    elector->timer_open = false;
    finish_if_last(elector);
}

static void on_link_closed(void *data)
{
    struct ct_elector *elector = data;
    elector->links--;
    finish_if_last(elector);
}

static void hang_up(struct asked *asked)
{
    if (asked->link != NULL) {
        ct_link_close(asked->link, 0, on_link_closed, asked->elector);
        asked->link = NULL;
    }
}

static void end_telling(struct ct_elector *elector)
{
    if (elector->telling != NULL) {
        ct_link_close(elector->telling, 0, on_link_closed, elector);
        elector->telling = NULL;
    }
}

static void end_reaching(struct ct_elector *elector)
{
    if (elector->reaching != NULL) {
        ct_link_close(elector->reaching, 0, on_link_closed, elector);
        elector->reaching = NULL;
    }
}

static void hang_up_all(struct ct_elector *elector)
{
    for (int i = 0; i < CT_VOTERS_BOTH; i++) {
        hang_up(&elector->asked[i]);
    }
}

void ct_elector_close(struct ct_elector *elector)
{
    if (elector == NULL || elector->closing) {
        return;
    }
    elector->closing = true;
    ct_etcd_arbiter_close(elector->arbiter);
    hang_up_all(elector);
    end_telling(elector);
    end_reaching(elector);
    uv_close((uv_handle_t *)&elector->timer, on_timer_closed);
}

/* ---- asking --------------------------------------------------------------------------------- */

static void ask_all(struct ct_elector *elector, const struct ct_vote_ask *question);

/* Warns of an agent that names a term which the election does not believe, once, at a limited rate.
 */
static void warn_of_far_term(struct ct_elector *elector)
{
    uint64_t id = elector->election.far_id;
    if (id == elector->far_told ||
        ct_refusal_log_add(&elector->far_terms, uv_now(elector->loop)) == 0) {
        return;
    }
    const struct ct_voter *voter = ct_job_record_find(&elector->election.record, id);
    elector->far_told = id;
    ct_log(elector->options.log, CT_LOG_WARNING,
           "%s%s names a term that no election can have reached; it gets no vote here, and nobody "
           "follows it",
           voter != NULL         ? "the agent at "
           : id == CT_ARBITER_ID ? "the job's value in etcd"
                                 : "an agent of this job that belongs to no world",
           voter != NULL ? voter->address : "");
}

/* Warns, once, that etcd still names the machines of a job of this name, but none of them answers.
 */
static void warn_of_killed_job(struct ct_elector *elector, int64_t now_ns)
{
    const struct ct_election *election = &elector->election;
    int64_t patience_ns = KILLED_LEASES * elector->options.lease_ms * CT_NS_PER_MS;
    if (elector->killed_told || election->state != CT_ELECTION_LOOKING ||
        !ct_election_knows_nobody_of_it(election) || now_ns - election->alone_ns < patience_ns) {
        return;
    }
    /* The first world of that job may not have been certain yet. */
    const struct ct_world_voters *world =
        election->record.formed.count > 0 ? &election->record.formed : &election->record.planned;
    elector->killed_told = true;
    ct_log(elector->options.log, CT_LOG_WARNING,
           "etcd knows a job '%s', but none of its machines answers, such as that at %s; if they "
           "were killed, this ctrun begins the job anew when etcd has dropped the key "
           "/ctrun/%s/arbiter, ten minutes after their end, or at once if you delete it",
           elector->options.run_id, world->list[0].address, elector->options.run_id);
}

/* Until the membership has its own record, the arbiter hears this host by the one that it was
 * elected with. */
static void serve_first(struct ct_elector *elector)
{
    struct ct_job_record record = elector->election.record;
    record.term = elector->election.host_term;
    record.version = 1;
    ct_etcd_arbiter_serve(elector->arbiter, &elector->election.self, &record);
}

static void carry_out(struct ct_elector *elector, const struct ct_election_todo *todo)
{
    bool any = todo->host || todo->join || todo->stop_hosting || todo->give_up;
    if (todo->ask) {
        ask_all(elector, &todo->question);
    }
    if (todo->host && elector->arbiter != NULL) {
        serve_first(elector);
    }
    if (any) {
        elector->options.on_todo(elector->options.data, todo);
    }
    rearm(elector);
}

static void on_up(void *data, const char *address)
{
    struct asked *asked = data;
    struct ct_msg *msg = asked->elector->msg;
    (void)address;
    memset(msg, 0, sizeof(*msg));
    msg->type = CT_MSG_ASK;
    msg->ask = asked->question;
    ct_link_send(asked->link, msg);
    asked->sent = true;
}

static void on_message(void *data, struct ct_msg *msg)
{
    struct asked *asked = data;
    struct ct_elector *elector = asked->elector;
    struct ct_election_todo todo;
    hang_up(asked);
    if (msg->type != CT_MSG_VOTE || msg->vote.id != asked->voter.id) {
        return;
    }
    if (!asked->reached) {
        ct_log(elector->options.log, CT_LOG_DEBUG, "agent at %s:%d has answered",
               asked->voter.address, asked->voter.port);
    }
    asked->reached = true;
    if (asked->reaches) {
        return;
    }
    struct ct_vote_answer answer = msg->vote;
    const struct ct_voter *known = ct_job_record_find(&elector->election.record, msg->host.id);
    if (msg->host.id == asked->voter.id) {
        msg->host = asked->voter; /* it need not know by which address others reach it */
    } else if (known != NULL) {
        msg->host = *known;
    }
    answer.record = msg->record;
    answer.host = msg->host.id != 0 ? &msg->host : NULL;
    ct_election_answered(&elector->election, &answer, ct_clock_now(NULL), &todo);
    warn_of_far_term(elector);
    carry_out(elector, &todo);
}

static bool is_same_place(const struct ct_voter *a, const struct ct_voter *b)
{
    return a->port == b->port && strcmp(a->address, b->address) == 0;
}

static void on_lost(void *data, const struct ct_err *why)
{
    struct asked *asked = data;
    struct ct_elector *elector = asked->elector;
    ct_log(elector->options.log, CT_LOG_DEBUG, "agent at %s:%d: %s", asked->voter.address,
           asked->voter.port, why->text);
    hang_up(asked);
    const struct ct_voter *host = &elector->election.host;
    bool followed = asked->voter.id == host->id && is_same_place(&asked->voter, host);
    if (why->sys == ECONNREFUSED && (asked->reached || followed)) {
        ct_election_dead(&elector->election, asked->voter.id, ct_clock_now(NULL));
        rearm(elector);
    }
}

static void ask_one(struct asked *asked)
{
    const struct ct_elector_options *own = &asked->elector->options;
    const struct ct_link_options options = {
        .host = asked->voter.address,
        .port = asked->voter.port,
        .token = own->token,
        .connect_ms = ANSWER_MS,
        .once = true,
        .log = own->log,
        .on_up = on_up,
        .on_message = on_message,
        .on_lost = on_lost,
        .data = asked,
    };
    struct ct_err err = {0};
    asked->sent = false;
    if (ct_link_open(asked->elector->loop, &options, &asked->link, &err) == 0) {
        asked->elector->links++;
    }
}

/* Returns the place of the voter, who is asked where `voter` says from now on. */
static struct asked *place_of(struct ct_elector *elector, const struct ct_voter *voter)
{
    struct asked *free_place = NULL;
    for (int i = 0; i < CT_VOTERS_BOTH; i++) {
        struct asked *asked = &elector->asked[i];
        if (asked->voter.id == voter->id) {
            if (!is_same_place(&asked->voter, voter)) {
                hang_up(asked);
                asked->voter = *voter;
                asked->reached = false;
            }
            return asked;
        }
        bool on_record =
            asked->voter.id != 0 && ct_job_record_find(&elector->election.record, asked->voter.id);
        if (free_place == NULL && !on_record) {
            free_place = asked;
        }
    }
    CT_ASSERT(free_place != NULL); /* there are as many places as voters, and it has none */
    hang_up(free_place);
    *free_place = (struct asked){.elector = elector, .voter = *voter};
    return free_place;
}

/* `reaches`: voters are only to be reached, if they have not been yet. */
static void ask_world(struct ct_elector *elector, const struct ct_world_voters *world,
                      const struct ct_vote_ask *question, bool reaches)
{
    const struct ct_voter *host = &elector->election.host;
    for (int i = 0; i < world->count; i++) {
        /* Both worlds lead to one place. Else it would move with every question, and would never
         * count as reached. */
        const struct ct_voter *voter =
            ct_job_record_find(&elector->election.record, world->list[i].id);
        if (voter->id == elector->election.self.id) {
            continue;
        }
        bool connected = voter->id == host->id && host->address[0] != '\0';
        struct asked *asked = place_of(elector, connected ? host : voter);
        if (reaches && (asked->reached || asked->link != NULL)) {
            continue;
        }
        asked->question = *question;
        asked->reaches = reaches;
        if (asked->link != NULL && asked->sent) {
            hang_up(asked);
        }
        if (asked->link == NULL) {
            ask_one(asked);
        }
    }
}

static void ask_all(struct ct_elector *elector, const struct ct_vote_ask *question)
{
    const struct ct_job_record *record = &elector->election.record;
    ask_world(elector, &record->formed, question, false);
    ask_world(elector, &record->planned, question, false);
    if (elector->arbiter != NULL) {
        ct_etcd_arbiter_ask(elector->arbiter, question);
    }
}

/* Asks each voter once, so that a later refusal at its port proves its death. A voter may be lost
 * with the host, or be elected and die before this agent has asked it for a vote. Only an agent
 * that can be elected itself has a use for such proofs. */
static void reach_all(struct ct_elector *elector)
{
    const struct ct_job_record *record = &elector->election.record;
    const struct ct_vote_ask question = {.id = elector->election.self.id,
                                         .record_term = record->term,
                                         .record_version = record->version};
    if (ct_job_record_find(record, question.id) != NULL) {
        ask_world(elector, &record->formed, &question, true);
        ask_world(elector, &record->planned, &question, true);
    }
}

/* ---- the arbiter ---------------------------------------------------------------------------- */

static void on_arbiter_met(void *data, const char *own_address)
{
    struct ct_elector *elector = data;
    elector->options.on_met(elector->options.data, own_address);
}

static void on_arbiter_answer(void *data, const struct ct_vote_answer *answer)
{
    struct ct_elector *elector = data;
    struct ct_election_todo todo;
    ct_election_answered(&elector->election, answer, ct_clock_now(NULL), &todo);
    warn_of_far_term(elector);
    carry_out(elector, &todo);
}

static void on_arbiter_served(void *data, uint64_t term, uint64_t version, int64_t sent_ns)
{
    struct ct_elector *elector = data;
    elector->options.on_served(elector->options.data, term, version, sent_ns);
}

static void on_arbiter_unserved(void *data, bool bound)
{
    struct ct_elector *elector = data;
    if (bound) {
        ct_election_doubted(&elector->election, ct_clock_now(NULL));
        rearm(elector);
    }
    elector->options.on_unserved(elector->options.data);
}

static bool is_arbiter_void(void *data, uint64_t id)
{
    struct ct_elector *elector = data;
    return elector->options.is_void(elector->options.data, id);
}

static bool is_arbiter_host_dead(void *data, uint64_t id)
{
    const struct ct_elector *elector = data;
    return ct_election_is_dead(&elector->election, id);
}

static void on_arbiter_trouble(void *data, const char *why, bool refused)
{
    struct ct_elector *elector = data;
    elector->options.on_trouble(elector->options.data, why, refused);
}

static int open_arbiter(struct ct_elector *elector, struct ct_err *err)
{
    const struct ct_etcd_arbiter_options options = {
        .settings = elector->options.etcd,
        .run_id = elector->options.run_id,
        .lease_ms = elector->options.lease_ms,
        .on_met = on_arbiter_met,
        .on_answer = on_arbiter_answer,
        .on_served = on_arbiter_served,
        .on_unserved = on_arbiter_unserved,
        .is_void = is_arbiter_void,
        .is_dead = is_arbiter_host_dead,
        .on_trouble = on_arbiter_trouble,
        .data = elector,
    };
    return ct_etcd_arbiter_open(elector->loop, &options, &elector->arbiter, err);
}

bool ct_elector_is_settled(const struct ct_elector *elector)
{
    return elector->arbiter == NULL || ct_etcd_arbiter_is_settled(elector->arbiter);
}

void ct_elector_serve(struct ct_elector *elector, const struct ct_job_record *record)
{
    if (elector->arbiter != NULL && elector->election.state == CT_ELECTION_HOSTING) {
        ct_etcd_arbiter_serve(elector->arbiter, &elector->election.self, record);
    }
}

/* ---- telling where the job is --------------------------------------------------------------- */

static bool has_moved(const struct ct_elector *elector)
{
    return elector->election.state == CT_ELECTION_HOSTING &&
           elector->election.host_term != CT_TERM_FIRST && elector->options.first_port != 0;
}

static void on_telling_up(void *data, const char *address)
{
    struct ct_elector *elector = data;
    struct ct_msg *msg = elector->msg;
    (void)address;
    memset(msg, 0, sizeof(*msg));
    msg->type = CT_MSG_ASK;
    msg->ask = (struct ct_vote_ask){.id = elector->election.self.id};
    msg->host.port = elector->election.self.port;
    msg->term = elector->election.host_term;
    (void)snprintf(msg->join.run_id, sizeof(msg->join.run_id), "%s", elector->options.run_id);
    ct_link_send(elector->telling, msg);
}

/* The answer does not matter. */
static void on_telling_message(void *data, struct ct_msg *msg)
{
    (void)msg;
    end_telling(data);
}

static void on_telling_lost(void *data, const struct ct_err *why)
{
    (void)why;
    end_telling(data);
}

static void tell(struct ct_elector *elector, int64_t now_ns)
{
    const struct ct_link_options options = {
        .host = elector->options.first_host,
        .port = elector->options.first_port,
        .token = elector->options.token,
        .connect_ms = ANSWER_MS,
        .once = true,
        .log = elector->options.log,
        .on_up = on_telling_up,
        .on_message = on_telling_message,
        .on_lost = on_telling_lost,
        .data = elector,
    };
    struct ct_err err = {0};
    end_telling(elector);
    elector->tell_ns = now_ns + TELL_NS;
    if (ct_link_open(elector->loop, &options, &elector->telling, &err) == 0) {
        elector->links++;
    }
}

/* ---- being told ------------------------------------------------------------------------------ */

static void say_unreached(struct ct_elector *elector, const char *why)
{
    const struct ct_voter *told = &elector->told;
    if (elector->unreached != told->id &&
        ct_refusal_log_add(&elector->unreachable, uv_now(elector->loop)) > 0) {
        ct_log(elector->options.log, CT_LOG_WARNING,
               "the agent at %s port %u says that it hosts this job, but %s; until this machine "
               "reaches that host, it waits here for others",
               told->address, (unsigned)told->port, why);
        elector->unreached = told->id;
    }
    elector->told.id = 0;
}

static void on_reaching_up(void *data, const char *address)
{
    struct ct_elector *elector = data;
    const struct ct_link_host *there = ct_link_host(elector->reaching);
    (void)address;
    elector->reached = there->voter.id == elector->told.id && there->term == elector->told_term;
    end_reaching(elector);
    if (!elector->reached) {
        say_unreached(elector, "it does not");
    }
    rearm(elector);
}

static void on_reaching_message(void *data, struct ct_msg *msg)
{
    (void)data;
    (void)msg; /* nothing was asked */
}

static void on_reaching_lost(void *data, const struct ct_err *why)
{
    struct ct_elector *elector = data;
    end_reaching(elector);
    say_unreached(elector, why->sys == ECONNREFUSED    ? "nobody listens there"
                           : why->code == CT_ETIMEDOUT ? "it does not answer"
                                                       : why->text);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer)
{
    struct ct_elector *elector = CT_CONTAINER_OF(timer, struct ct_elector, timer);
    struct ct_election_todo todo;
    if (elector->reached) {
        struct ct_voter host = elector->told;
        elector->reached = false;
        elector->told.id = 0;
        ct_election_told(&elector->election, &host, elector->told_term, ct_clock_now(NULL), &todo);
        warn_of_far_term(elector);
        carry_out(elector, &todo);
        return;
    }
    warn_of_killed_job(elector, ct_clock_now(NULL));
    if (has_moved(elector) && ct_clock_now(NULL) >= elector->tell_ns) {
        tell(elector, ct_clock_now(NULL));
    }
    ct_election_tick(&elector->election, ct_clock_now(NULL), &todo);
    carry_out(elector, &todo);
}

static void rearm(struct ct_elector *elector)
{
    if (elector->closing) {
        return;
    }
    enum ct_election_state state = elector->election.state;
    if (elector->arbiter != NULL && state != CT_ELECTION_HOSTING) {
        ct_etcd_arbiter_serve(elector->arbiter, NULL, NULL);
    }
    if (elector->arbiter != NULL &&
        (state == CT_ELECTION_FOLLOWING || state == CT_ELECTION_ENDED)) {
        /* A vote that nobody needs would bind the arbiter against the host. */
        ct_etcd_arbiter_ask(elector->arbiter, NULL);
    }
    int64_t next_ns = ct_election_next(&elector->election);
    if (has_moved(elector) && elector->tell_ns < next_ns) {
        next_ns = elector->tell_ns;
    }
    next_ns = elector->reached ? 0 : next_ns;
    if (next_ns == INT64_MAX) {
        (void)uv_timer_stop(&elector->timer);
        return;
    }
    int64_t wait_ms = (next_ns - ct_clock_now(NULL) + CT_NS_PER_MS - 1) / CT_NS_PER_MS;
    uv_update_time(elector->loop);
    (void)uv_timer_start(&elector->timer, on_timer, wait_ms > 0 ? (uint64_t)wait_ms : 0, 0);
}

/* ---- what the owner tells ------------------------------------------------------------------- */

void ct_elector_begin_hosting(struct ct_elector *elector)
{
    ct_election_begin_hosting(&elector->election);
}

bool ct_elector_followed(struct ct_elector *elector, const struct ct_voter *host, uint64_t term)
{
    bool may = ct_election_followed(&elector->election, host, term, ct_clock_now(NULL));
    /* A host lets its questions arrive: who was elected in an earlier term learns of it by them. */
    if (may && elector->election.state != CT_ELECTION_HOSTING) {
        hang_up_all(elector);
    }
    rearm(elector);
    return may;
}

void ct_elector_told(struct ct_elector *elector, const struct ct_voter *host, uint64_t term)
{
    const struct ct_link_options options = {
        .host = host->address,
        .port = host->port,
        .token = elector->options.token,
        .connect_ms = ANSWER_MS,
        .once = true,
        .log = elector->options.log,
        .on_up = on_reaching_up,
        .on_message = on_reaching_message,
        .on_lost = on_reaching_lost,
        .data = elector,
    };
    struct ct_err err = {0};
    if (elector->reaching != NULL || elector->reached ||
        !ct_election_may_be_told(&elector->election, host)) {
        return; /* one after the other; it is told again */
    }
    if (ct_link_open(elector->loop, &options, &elector->reaching, &err) == 0) {
        elector->links++;
        elector->told = *host;
        elector->told_term = term;
    }
}

void ct_elector_seek(struct ct_elector *elector, int64_t give_up_ms)
{
    ct_election_seek(&elector->election, give_up_ms, ct_clock_now(NULL));
    rearm(elector);
}

void ct_elector_leased(struct ct_elector *elector, int64_t sent_ns, int64_t lease_ms)
{
    ct_election_leased(&elector->election, sent_ns, lease_ms);
}

int ct_elector_reached(const struct ct_elector *elector, struct ct_voter out[CT_VOTERS_BOTH])
{
    int count = 0;
    for (int i = 0; i < CT_VOTERS_BOTH; i++) {
        const struct ct_voter *voter = &elector->asked[i].voter;
        if (elector->asked[i].reached && !ct_election_is_dead(&elector->election, voter->id) &&
            ct_job_record_find(&elector->election.record, voter->id) != NULL) {
            out[count++] = *voter;
        }
    }
    return count;
}

bool ct_elector_recorded(struct ct_elector *elector, const struct ct_job_record *record)
{
    bool pledges = ct_election_recorded(&elector->election, record);
    if (pledges && record->planned.generation < 0) { /* no other one follows at once */
        reach_all(elector);
    }
    return pledges;
}

void ct_elector_lost(struct ct_elector *elector)
{
    ct_election_lost(&elector->election, ct_clock_now(NULL));
    reach_all(elector);
    rearm(elector);
}

void ct_elector_deposed(struct ct_elector *elector)
{
    ct_election_deposed(&elector->election, ct_clock_now(NULL));
    reach_all(elector);
    rearm(elector);
}

void ct_elector_asked(struct ct_elector *elector, const struct ct_vote_ask *ask,
                      struct ct_msg *vote)
{
    ct_election_asked(&elector->election, ask, ct_clock_now(NULL), &vote->vote);
    warn_of_far_term(elector);
    vote->record = (struct ct_job_record *)vote->vote.record; /* only to be encoded */
    if (vote->vote.host != NULL) {
        vote->host = *vote->vote.host;
    }
    vote->vote.record = NULL;
    vote->vote.host = NULL;
    rearm(elector);
}

/* ---- opening -------------------------------------------------------------------------------- */

const struct ct_election *ct_elector_state(const struct ct_elector *elector)
{
    return &elector->election;
}

void ct_elector_set_self(struct ct_elector *elector, const char *address, uint16_t port)
{
    struct ct_voter *self = &elector->election.self;
    if (address[0] != '\0') {
        (void)snprintf(self->address, sizeof(self->address), "%.*s", CT_VOTER_ADDRESS_MAX - 1,
                       address);
    }
    self->port = port;
    if (elector->election.host.id == self->id) {
        elector->election.host = *self;
    }
}

int ct_elector_open(uv_loop_t *loop, const struct ct_elector_options *options,
                    struct ct_elector **out, struct ct_err *err)
{
    struct ct_elector *elector = ct_calloc(1, sizeof(*elector));
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg));
    if (elector == NULL || msg == NULL) {
        ct_free(elector);
        ct_free(msg);
        return ct_err_set(err, CT_ENOMEM, "out of memory for the choice of another host");
    }
    /* Until its address is known. Who asks this agent knows one by which it can be reached. */
    const struct ct_voter self = {.id = options->id, .address = "127.0.0.1", .port = 1};
    elector->options = *options;
    elector->loop = loop;
    elector->msg = msg;
    ct_election_init(&elector->election, &self, options->etcd != NULL, options->lease_ms,
                     options->give_up_ms);
    int rc = options->etcd != NULL ? open_arbiter(elector, err) : 0;
    if (rc != 0) {
        ct_free(elector);
        ct_free(msg);
        return rc;
    }
    elector->options.etcd = NULL;
    CT_ASSERT(uv_timer_init(loop, &elector->timer) == 0); /* cannot fail */
    elector->timer_open = true;
    *out = elector;
    return 0;
}
