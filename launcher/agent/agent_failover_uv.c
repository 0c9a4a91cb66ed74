/* SPDX-License-Identifier: Apache-2.0
 *
 * A job that goes on when the host of its membership is lost (docs/FAILOVER.md). The election says
 * who is the next host (rendezvous/client/elector_uv.h); here its links, stores and workers follow.
 *
 * Happy path: the link comes up, and this node opens a port at which other agents can ask it. The
 * link is lost. The workers stop, and the agents look for a host. Either this node connects to
 * another one, or it takes over: its own port becomes the job's store, and it joins itself. JOIN is
 * said when the workers have stopped.
 *
 * Other paths: this node hosts, but has lost more than half of the world. It stops its workers,
 * drops its members and looks for another host. A new link may lead to a node that does not host
 * any more; then the election goes on asking. Before its first world, this node may be sent on to
 * another host, and comes back if it finds none there (agent_moves.h).
 *
 * Failure modes: no host is found in time, or this job cannot outlive its host (no world was
 * certain yet). Then it ends as a job without failover does.
 *
 * Who frees: close_store() of agent_store_uv.c, when nothing has to be told any more. The elector
 * frees itself when its sockets are closed.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/host_list.h"
#include "rendezvous/admission/voter_id.h"
#include "rendezvous/election/arbiter.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* For how many leases an agent looks for a host. With an arbiter, which may be away for longer, it
 * looks for join_timeout instead. */
#define GIVE_UP_LEASES 5

static const struct ct_election *state(const struct ct_agent_run *run)
{
    return ct_elector_state(run->failover.elector);
}

static int64_t lease_ms(const struct ct_agent_run *run)
{
    return run->job->options->rdzv_conf.heartbeat_ms;
}

static bool is_ending(const struct ct_agent_run *run)
{
    const struct ct_agent *agent = &run->agent;
    return agent->over || agent->lost || agent->signo != 0 || agent->sm.state == CT_AGENT_DONE ||
           agent->sm.state == CT_AGENT_DISMISSING;
}

int64_t ct_agent_failover_grace_ms(const struct ct_agent_run *run, int64_t grace_ms)
{
    if (run->failover.elector == NULL || run->failover.stop_by_ns == INT64_MAX) {
        return grace_ms;
    }
    int64_t left_ms = (run->failover.stop_by_ns - ct_clock_now(NULL)) / CT_NS_PER_MS;
    left_ms = left_ms > 0 ? left_ms : 0;
    return grace_ms < 0 || left_ms < grace_ms ? left_ms : grace_ms;
}

/* ---- the host is lost ----------------------------------------------------------------------- */

/* Stops the workers, and joins no world before another host is found. */
static void drift(struct ct_agent_run *run, int64_t lease_ns)
{
    run->failover.stop_by_ns = lease_ns + ct_election_late_ns(lease_ms(run));
    run->failover.adrift = true;
    run->failover.dialling = 0;
    ct_link_close(run->membership.link, 0, NULL, NULL);
    run->membership.link = NULL;
    ct_agent_address_close(&run->address); /* the agent must not hear that the link is up */
    ct_agent_guest_close(&run->guest);
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_ADRIFT});
}

static void forget_hosting(struct ct_agent_run *run, const struct ct_voter *next)
{
    (void)ct_host_loss_note(&run->failover.loss, ct_job_record_generation(&state(run)->record),
                            NULL, false);
    ct_server_unhost(run->store.server, next);
    ct_agent_store_let_go(run);
    drift(run, ct_clock_now(NULL));
}

static void say_lost_majority(struct ct_agent_run *run)
{
    (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why),
                   "this machine hosts the job's store, but has lost %s: another one may go on "
                   "with the job",
                   run->job->resolved->etcd != NULL ? "etcd and some of the job's machines"
                                                    : "more than half of the job's machines");
}

static void describe_loss(struct ct_agent_run *run, const struct ct_err *why)
{
    struct ct_agent_failover *failover = &run->failover;
    if (ct_host_loss_note(&failover->loss, ct_job_record_generation(&state(run)->record),
                          &state(run)->host, failover->daemon)) {
        failover->silent = why->code == CT_ETIMEDOUT;
        memcpy(failover->lost_host, failover->host, sizeof(failover->lost_host));
        (void)snprintf(failover->why, sizeof(failover->why), "%.300s", why->text);
    }
    (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why),
                   "%.100s%s%.100s%s, which hosts the job's store, is lost: %.200s; %s",
                   failover->host, failover->host[0] != '\0' ? " (" : "", failover->where,
                   failover->host[0] != '\0' ? ")" : "", why->text,
                   failover->trouble[0] != '\0' ? "the job waits for etcd"
                                                : "another machine takes over");
}

/* ---- the next host -------------------------------------------------------------------------- */

/* The job ends here, for the reason in stop_why. */
static void end_job(struct ct_agent_run *run, int exit_code)
{
    if (!is_ending(run)) {
        ct_agent_report_say(run->output, "%s", run->report.stop_why);
    }
    ct_agent_dispatch(run,
                      (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = exit_code});
}

static void give_up(struct ct_agent_run *run, int exit_code)
{
    const struct ct_agent_failover *failover = &run->failover;
    const char *etcd = run->job->resolved->etcd;
    bool alone = false; /* the only reason is that no other machine has come */
    bool known = run->agent.generation >= 0 && exit_code >= 0;
    bool first = run->agent.generation < 0 && etcd != NULL;
    if (etcd != NULL && !known) {
        const char *why = failover->trouble[0] != '\0' ? failover->trouble
                          : ct_election_knows_nobody_of_it(state(run))
                              ? "none of the machines that etcd names for it has answered"
                              : failover->unjoined;
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why),
                       "%s was found in %g s%s%.300s",
                       first ? "no host of the job" : "no other host of the job",
                       (double)run->job->options->rdzv_conf.join_ms / 1000,
                       why[0] != '\0' ? ": " : " through etcd at ", why[0] != '\0' ? why : etcd);
        alone = first && why[0] == '\0' && !is_ending(run);
    } else {
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why), "%s",
                       known ? "the host of the job was lost while the job ended"
                             : "the host of the job is lost, and no other one was found that more "
                               "than half of the job's machines can reach");
    }
    end_job(run, known ? exit_code : first ? CT_EXIT_RDZV_TIMEOUT : CT_EXIT_NODE_LOST);
    if (alone) {
        ct_agent_report_say(run->output,
                            "what to do: start ctrun on the other machines, with the same etcd and "
                            "--rdzv-id; --rdzv-conf join_timeout=SECONDS waits longer");
    }
}

static void open_link(struct ct_agent_run *run)
{
    struct ct_err err = {0};
    ct_link_close(run->membership.link, 0, NULL, NULL);
    run->membership.link = NULL;
    if (ct_agent_link_open(run, &err) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "%s", err.text);
        run->failover.dialling = 0; /* the next answer leads here again */
    }
}

static void join(struct ct_agent_run *run, const struct ct_voter *at)
{
    if (run->failover.dialling == at->id) {
        return;
    }
    run->failover.dialling = at->id;
    ct_agent_store_move(&run->store, at->address, at->port);
    open_link(run);
}

/* Before its first world, this node goes to where the store is said to be. */
static void move(struct ct_agent_run *run)
{
    ct_agent_address_close(&run->address); /* the agent must not hear that the old link is up */
    open_link(run);
    if (run->membership.link == NULL) {
        give_up(run, -1);
    }
}

static void go_back(struct ct_agent_run *run, const char *why)
{
    const struct ct_store_address *first = &run->job->resolved->store_address;
    char back[CT_ADDR_JOIN_MAX], there[CT_ADDR_JOIN_MAX];
    ct_addr_join(first->host, first->port, back, sizeof(back));
    ct_addr_join(run->store.address.host, run->store.address.port, there, sizeof(there));
    ct_agent_report_say(
        run->output, "went back to %s, because the job's store is not at %s as it was told: %.200s",
        back, there, why);
    run->store.address = *first;
    move(run);
}

/* Is this node on the way to a host of which it was told? */
static bool is_away(const struct ct_agent_run *run)
{
    return run->failover.moves.away && run->agent.generation < 0 && !is_ending(run);
}

/* The machine to which this node was sent does not host the job, so it goes back to where the store
 * was said to be. Returns false if it has looked for too long. */
static bool come_back(struct ct_agent_run *run, const char *why)
{
    if (ct_agent_moves_failed(&run->failover.moves, ct_clock_now(NULL)) == CT_AGENT_MOVES_END) {
        return false;
    }
    go_back(run, why);
    return true;
}

void ct_agent_failover_moved(struct ct_agent_run *run, const struct ct_voter *host)
{
    struct ct_agent_failover *failover = &run->failover;
    if (failover->elector == NULL || failover->adrift || run->agent.generation >= 0 ||
        is_ending(run) || run->store.server != NULL || host->id == 0 ||
        host->id == state(run)->self.id) {
        return; /* the election knows better, or the link will be lost */
    }
    switch (ct_agent_moves_told(&failover->moves, run->job->options->rdzv_conf.join_ms,
                                ct_clock_now(NULL))) {
    case CT_AGENT_MOVES_GO:
        ct_agent_store_move(&run->store, host->address, host->port);
        move(run);
        return;
    case CT_AGENT_MOVES_BACK:
        go_back(run, "the machines that it is sent to name others");
        return;
    case CT_AGENT_MOVES_END:
        return; /* the link will be lost */
    }
}

/* The newest generation, as this node knows it. */
static struct ct_history_round last_round(const struct ct_agent_run *run)
{
    const struct ct_job_record *record = &state(run)->record;
    bool planned = record->planned.generation >= 0;
    int generation = ct_job_record_generation(record);
    bool known = run->worker_env.generation == generation;
    return (struct ct_history_round){
        .generation = generation,
        .nodes = known     ? run->membership.node_count
                 : planned ? record->planned.count
                           : record->formed.count,
        .world_size = known ? run->worker_env.world_size : 0,
        .formed_ms = known ? run->failover.formed_ms : 0,
    };
}

static void take_over(struct ct_agent_run *run, const struct ct_election_todo *todo)
{
    struct ct_agent_failover *failover = &run->failover;
    if (run->store.own == NULL) {
        return; /* it has followed a host, so it has a port; this cannot happen */
    }
    ct_agent_store_take_over(run);
    int generation = ct_job_record_generation(&state(run)->record);
    bool known = ct_host_loss_ended(&failover->loss, generation);
    struct ct_voter reached[CT_VOTERS_BOTH];
    struct ct_members_failover hosting = {
        .self = state(run)->self,
        .arbiter = run->job->resolved->etcd != NULL,
        .term = state(run)->host_term,
        .record = generation >= 0 ? &state(run)->record : NULL,
        .fence_ns = state(run)->fence_ns,
        .lost = todo->lost,
        .lost_is_dead = todo->lost_is_dead,
        .lost_in_time = todo->lost_in_time,
        .num_dead = state(run)->num_dead,
        .reached = reached,
        .num_reached = ct_elector_reached(failover->elector, reached),
        .ended_by = known ? failover->loss.host : (struct ct_voter){0},
        .ended_by_silence = known && failover->silent,
        .ended_by_daemon = known && failover->loss.daemon,
        .ended_by_name = failover->lost_host,
        .ended_why = failover->why,
        .history = &run->report.story.history,
        .round = last_round(run),
    };
    memcpy(hosting.dead, state(run)->dead, sizeof(hosting.dead));
    ct_server_host(run->store.server, &hosting);
    open_link(run);
}

static void on_todo(void *data, const struct ct_election_todo *todo)
{
    struct ct_agent_run *run = data;
    if (is_ending(run)) {
        return;
    }
    if (todo->stop_hosting && run->store.server != NULL) {
        if (ct_job_record_generation(&state(run)->record) >= 0) {
            say_lost_majority(run);
        } else {
            ct_agent_report_say(run->output,
                                "the job runs already, so this ctrun joins it and hosts no other");
        }
        forget_hosting(run, &todo->at);
    }
    if (todo->host) {
        take_over(run, todo);
    } else if (todo->join) {
        join(run, &todo->at);
    } else if (todo->give_up) {
        give_up(run, todo->exit_code);
    }
}

/* ---- this node is asked, or hosts ----------------------------------------------------------- */

static bool on_ask(void *data, const struct ct_vote_ask *ask, struct ct_msg *vote)
{
    struct ct_agent_run *run = data;
    bool hosts = run->store.server != NULL;
    if (run->failover.elector == NULL || (is_ending(run) && !hosts)) {
        return false;
    }
    ct_elector_asked(run->failover.elector, ask, vote);
    return true;
}

/* A later host of this job tells where it is. Jobs may share a token. */
static void on_told(void *data, const struct ct_voter *host, uint64_t term, const char *run_id)
{
    struct ct_agent_run *run = data;
    if (run->failover.elector != NULL && run->store.server != NULL && !is_ending(run) &&
        strcmp(run_id, run->job->run_id) == 0) {
        ct_elector_told(run->failover.elector, host, term);
    }
}

static void on_deposed(void *data)
{
    struct ct_agent_run *run = data;
    if (run->failover.elector == NULL || is_ending(run)) {
        return; /* the workers are being stopped anyway, and the job ends here */
    }
    ct_elector_deposed(run->failover.elector);
    say_lost_majority(run);
    forget_hosting(run, NULL);
}

void ct_agent_failover_host_first(struct ct_agent_run *run)
{
    if (run->failover.elector == NULL) {
        return;
    }
    uint16_t port = ct_server_port(run->store.server);
    run->membership.join.voter.port = port;
    ct_elector_set_self(run->failover.elector, "", port);
    ct_elector_begin_hosting(run->failover.elector);
    const struct ct_members_failover first = {.self = state(run)->self, .term = CT_TERM_FIRST};
    ct_server_host(run->store.server, &first);
}

/* ---- the port of this node ------------------------------------------------------------------ */

/* This node is asked at a port of its own from now on. */
static bool open_port(struct ct_agent_run *run)
{
    struct ct_err err = {0};
    if (run->store.own == NULL && ct_agent_store_open_own(run, &err) != 0) {
        ct_agent_report_say(run->output, "cannot open a port for the job's other machines: %s",
                            err.text);
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why), "%.400s", err.text);
        ct_agent_dispatch(
            run, (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = CT_EXIT_SETUP});
        return false;
    }
    uint16_t port = ct_server_port(run->store.own);
    run->membership.join.voter.port = port;
    ct_elector_set_self(run->failover.elector, run->address.seen, port);
    return true;
}

/* ---- the arbiter ---------------------------------------------------------------------------- */

static void on_record(void *data, const struct ct_job_record *record)
{
    struct ct_agent_run *run = data;
    ct_elector_serve(run->failover.elector, record);
}

static void on_served(void *data, uint64_t term, uint64_t version, int64_t sent_ns)
{
    struct ct_agent_run *run = data;
    const struct ct_arbiter_pledge pledge = {term, version, sent_ns};
    if (run->store.server != NULL) {
        ct_server_arbiter(run->store.server, &pledge);
    }
}

static void on_unserved(void *data)
{
    struct ct_agent_run *run = data;
    if (run->store.server != NULL) {
        ct_server_arbiter(run->store.server, NULL);
    }
}

static bool is_void(void *data, uint64_t id)
{
    struct ct_agent_run *run = data;
    return run->store.server != NULL && ct_server_stands_no_more(run->store.server, id);
}

static void on_trouble(void *data, const char *why, bool refused)
{
    struct ct_agent_run *run = data;
    bool waits = run->failover.adrift;
    if (refused) { /* waiting would not help */
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why), "%.400s", why);
        end_job(run, CT_EXIT_SETUP);
        return;
    }
    (void)snprintf(run->failover.trouble, sizeof(run->failover.trouble), "%s",
                   why != NULL ? why : "");
    if (is_ending(run)) {
        return;
    }
    if (why == NULL) {
        ct_agent_report_say(run->output, "etcd answers again");
    } else {
        ct_agent_report_say(run->output, "etcd cannot be used: %.300s; %s", why,
                            waits ? "this machine waits for it"
                                  : "the job goes on, but if a machine falls silent, it waits "
                                    "for etcd");
    }
}

static bool is_loopback(const char *address)
{
    struct sockaddr_storage addr;
    socklen_t len;
    return ct_addr_literal(address, 0, &addr, &len) &&
           ct_addr_is_loopback((const struct sockaddr *)&addr);
}

/* What etcd tells the others must be numeric, and --local-addr may be a name. */
static int take_local_address(struct ct_agent_run *run, struct ct_err *err)
{
    const char *local = run->job->options->local_addr;
    struct sockaddr_storage addr;
    socklen_t len;
    int rc = ct_addr_resolve(local, 0, &addr, &len, err);
    if (rc != 0) {
        return ct_err_wrap(err, "--local-addr");
    }
    ct_addr_host((const struct sockaddr *)&addr, run->address.seen, sizeof(run->address.seen));
    if (is_loopback(run->address.seen) && !is_loopback(local)) {
        ct_log(&run->log, CT_LOG_WARNING,
               "--local-addr: %s is %s on this machine (see /etc/hosts), where other machines "
               "cannot reach it",
               local, run->address.seen);
    }
    return 0;
}

static void warn_of_loopback(struct ct_agent_run *run)
{
    if (is_loopback(run->address.seen)) {
        ct_log(&run->log, CT_LOG_WARNING,
               "this machine reaches etcd by %s, where other machines cannot reach it: give its "
               "own address by --local-addr",
               run->address.seen);
    }
}

/* Etcd has answered. Other machines have to reach this one at the address from which it reaches
 * etcd, unless the user has given another. */
static void on_met(void *data, const char *own_address)
{
    struct ct_agent_run *run = data;
    if (is_ending(run)) {
        return;
    }
    if (!ct_options_name_address(run->job->options)) {
        (void)snprintf(run->address.seen, sizeof(run->address.seen), "%s", own_address);
        warn_of_loopback(run);
    }
    (void)open_port(run);
}

int ct_agent_failover_seek(struct ct_agent_run *run, struct ct_err *err)
{
    if (ct_options_name_address(run->job->options)) {
        int rc = take_local_address(run, err);
        if (rc != 0) {
            return rc;
        }
        rc = ct_agent_store_open_own(run, err);
        if (rc != 0) {
            return rc;
        }
    }
    run->failover.adrift = true;
    ct_elector_seek(run->failover.elector, run->job->options->rdzv_conf.join_ms);
    return 0;
}

/* ---- the link ------------------------------------------------------------------------------- */

/* Notes why the host that etcd names did not take this machine. That is not final: the host may be
 * dead, and another program may have its port now. But if the tokens differ, the user should know
 * before join_timeout is over. */
static void note_unjoined(struct ct_agent_run *run, const struct ct_err *why)
{
    char text[CT_FAILURE_WHAT_MAX], where[CT_ADDR_JOIN_MAX];
    ct_addr_join(run->store.address.host, run->store.address.port, where, sizeof(where));
    (void)snprintf(text, sizeof(text), "%.100s does not take this machine: %.200s", where,
                   why->text);
    if (run->agent.generation >= 0 || strcmp(text, run->failover.unjoined) == 0) {
        return;
    }
    memcpy(run->failover.unjoined, text, sizeof(text));
    if (why->code == CT_EPERM) {
        ct_agent_report_say(run->output, "%s; it looks for another host of the job", text);
    }
}

bool ct_agent_failover_lost(struct ct_agent_run *run, const struct ct_err *why)
{
    if (is_away(run)) {
        return come_back(run, why->sys == ECONNREFUSED ? "nobody listens there" : why->text);
    }
    if (run->failover.elector == NULL || is_ending(run) ||
        (state(run)->record.formed.generation < 0 && run->job->resolved->etcd == NULL) ||
        run->store.server != NULL) {
        return false;
    }
    if (state(run)->state == CT_ELECTION_FOLLOWING) {
        describe_loss(run, why);
        ct_elector_lost(run->failover.elector);
        drift(run, state(run)->lease_ns);
    } else {
        /* The one that seemed to host is not there; the election goes on asking. */
        note_unjoined(run, why);
        run->failover.dialling = 0;
        ct_link_close(run->membership.link, 0, NULL, NULL);
        run->membership.link = NULL;
    }
    return true;
}

/* Names the record in the JOIN, so that a host which has forgotten the job does not take this node
 * for a new one. */
static void tell_record(struct ct_agent_run *run)
{
    const struct ct_job_record *record = &state(run)->record;
    bool has_one = ct_job_record_generation(record) >= 0;
    run->membership.join.record_term = has_one ? record->term : 0;
    run->membership.join.record_version = has_one ? record->version : 0;
}

static void end_drift(struct ct_agent_run *run, const char *name, const char *address)
{
    unsigned port = run->store.address.port;
    bool moved = run->failover.adrift || run->failover.moves.away;
    bool say = moved && ct_agent_report_speaks(run->job->resolved);
    if (say && run->store.server != NULL) {
        ct_agent_report_say(run->output,
                            "this machine hosts the job's store now, at %.200s port %u",
                            run->store.address.master, port);
        ct_agent_page_say(run, false);
    } else if (say) {
        ct_agent_report_say(run->output, "%.100s hosts the job's store now, at %.100s port %u",
                            name, address, port);
    }
    tell_record(run);
    if (run->failover.moves.away) {
        run->store.busy[0] = '\0';
        run->store.unresolved = false;
        ct_agent_moves_proved(&run->failover.moves);
    }
    run->failover.adrift = false;
    run->failover.dialling = 0;
    run->failover.stop_by_ns = INT64_MAX;
    (void)snprintf(run->failover.host, sizeof(run->failover.host), "%s", name);
    (void)snprintf(run->failover.where, sizeof(run->failover.where), "%s", address);
}

bool ct_agent_failover_up(struct ct_agent_run *run)
{
    struct ct_agent_failover *failover = &run->failover;
    if (failover->elector == NULL) {
        return true;
    }
    if (run->store.server != NULL) {
        bool may = ct_elector_followed(failover->elector, &state(run)->self, state(run)->host_term);
        CT_ASSERT(may); /* it is the host */
        failover->daemon = false;
        end_drift(run, run->job->machine->host, state(run)->self.address);
        return true;
    }
    struct ct_link_host there = *ct_link_host(run->membership.link);
    if (there.voter.id == 0 && !failover->adrift) {
        return true; /* a server that cannot be replaced: the job ends with it */
    }
    if (there.voter.id != 0 && !open_port(run)) {
        return false;
    }
    if (there.voter.id == 0 || !ct_elector_followed(failover->elector, &there.voter, there.term)) {
        failover->dialling = 0;
        ct_link_close(run->membership.link, 0, NULL, NULL);
        run->membership.link = NULL;
        bool back =
            is_away(run) && come_back(run, "the term of the host there is over, or too high");
        if (!back && !failover->adrift) {
            give_up(run, -1);
        }
        return false;
    }
    failover->daemon = there.daemon;
    end_drift(run, there.name, there.voter.address);
    return true;
}

void ct_agent_failover_record(struct ct_agent_run *run, const struct ct_msg *msg)
{
    if (run->failover.elector == NULL || !ct_elector_recorded(run->failover.elector, msg->record)) {
        return;
    }
    struct ct_msg *pledge = run->membership.msg;
    run->failover.pledged_ns = ct_clock_now(NULL);
    memset(pledge, 0, sizeof(*pledge));
    pledge->type = CT_MSG_PLEDGE;
    pledge->clock_ms = run->failover.pledged_ns / CT_NS_PER_MS;
    pledge->term = msg->record->term;
    pledge->record_version = msg->record->version;
    ct_link_send(run->membership.link, pledge);
}

void ct_agent_failover_world(struct ct_agent_run *run)
{
    struct timespec now = {0};
    if (run->failover.elector == NULL) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    run->failover.loss = (struct ct_host_loss){0};
    run->failover.formed_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / CT_NS_PER_MS;
    if (state(run)->state != CT_ELECTION_LOOKING && run->failover.pledged_ns != 0) {
        /* The host has heard the pledge. */
        ct_elector_leased(run->failover.elector, run->failover.pledged_ns, lease_ms(run));
    }
}

void ct_agent_failover_others(const struct ct_agent_run *run, char out[CT_HOST_LIST_MAX])
{
    const char *addresses[CT_VOTERS_MAX];
    int count = 0;
    out[0] = '\0';
    if (run->failover.elector == NULL) {
        return;
    }
    const struct ct_world_voters *world = ct_job_record_newest(&state(run)->record);
    for (int i = 0; i < world->count; i++) {
        if (world->list[i].id != state(run)->self.id) {
            addresses[count++] = world->list[i].address;
        }
    }
    if (count > 0) {
        ct_host_list_text(addresses, count, out, CT_HOST_LIST_MAX);
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

int ct_agent_failover_open(struct ct_agent_run *run, struct ct_err *err)
{
    struct ct_agent_failover *failover = &run->failover;
    struct ct_etcd_settings etcd = {.num_urls = 0}; /* to be wiped */
    uint64_t id = 0;
    failover->stop_by_ns = INT64_MAX;
    /* ct_prepare_etcd_check() has seen to it. */
    CT_ASSERT(run->job->resolved->etcd == NULL || run->job->token != NULL);
    if (!run->job->resolved->failover || run->job->token == NULL) {
        if (run->job->options->rdzv_conf.failover == 1) {
            ct_log(&run->log, CT_LOG_WARNING,
                   "--rdzv-conf failover=1 has no effect in a job %s; see Loss of the store's "
                   "machine in ctrun(1)",
                   run->job->resolved->failover               ? "without a token"
                   : !run->job->resolved->shared              ? "of this machine alone"
                   : run->job->resolved->mode == CT_MODE_SHIM ? "of one ctrun for each rank"
                                                              : "whose first ctrun stays with it "
                                                                "(--hosts without --detach)");
        }
        return 0;
    }
    if (ct_voter_id_make(&id) != 0) {
        return ct_err_set(err, CT_EIO, "no random numbers");
    }
    const struct ct_elector_options options = {
        .token = run->job->token,
        .log = &run->log,
        .id = id,
        .lease_ms = lease_ms(run),
        .give_up_ms = run->job->resolved->etcd != NULL ? run->job->options->rdzv_conf.join_ms
                                                       : GIVE_UP_LEASES * lease_ms(run),
        .run_id = run->job->run_id,
        .first_host = run->job->resolved->store_address.host,
        .first_port = run->job->resolved->store_address.port,
        .etcd = run->job->resolved->etcd != NULL ? &etcd : NULL,
        .on_met = on_met,
        .on_served = on_served,
        .on_unserved = on_unserved,
        .is_void = is_void,
        .on_trouble = on_trouble,
        .on_todo = on_todo,
        .data = run,
    };
    int rc = options.etcd != NULL
                 ? ct_etcd_settings_read(run->job->resolved->etcd, run->job->env, &etcd, err)
                 : 0;
    if (rc == 0) {
        rc = ct_elector_open(&run->loop, &options, &failover->elector, err);
    }
    ct_etcd_settings_fini(&etcd);
    if (rc != 0) {
        return rc;
    }
    failover->station = (struct ct_control_station){
        .name = run->job->machine->host,
        .on_ask = on_ask,
        .on_told = on_told,
        .on_record = on_record,
        .on_deposed = on_deposed,
        .data = run,
    };
    run->membership.join.voter = (struct ct_voter){.id = id, .port = 1};
    return 0;
}

void ct_agent_failover_close(struct ct_agent_run *run)
{
    ct_elector_close(run->failover.elector);
    run->failover.elector = NULL;
}
