/* SPDX-License-Identifier: Apache-2.0
 *
 * The state machine of the job: from the first member to a world that runs, and to the end of that
 * world and of the job. The drawing of states is in members.h.
 *
 * Happy path: members_round_arrived() is called until enough nodes are there. Then follow
 * form_world(), members_round_serving(), members_round_finished() for each member, and end_job().
 *
 * Failure modes: members_round_failed() and members_round_left() stop the world. When all its
 * members have stopped, end_stopping() decides whether another generation follows.
 */
#include "rendezvous/members/members_round.h"

#include "common/exit_code.h"
#include "rendezvous/members/members_ban.h"
#include "rendezvous/members/members_budget.h"
#include "rendezvous/members/members_failover.h"
#include "rendezvous/members/members_history.h"
#include "rendezvous/members/members_join.h"
#include "rendezvous/members/members_rank.h"
#include "rendezvous/members/members_wait.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Newcomers that join a running elastic job within this time share one restart. It is long enough
 * for the machines of one allocation, and short compared with the start of a worker. */
#define NEWCOMERS_NS (200 * CT_NS_PER_MS)
/* However late a world forms, there is at least this time to pledge it, and then for rank 0 to
 * serve. An etcd that chooses a leader takes seconds to answer, a loaded machine as many. */
#define FORMING_LEAST_NS (30 * CT_NS_PER_S)

static const struct ct_sm_state states[] = {
    [STATE_GATHERING] = {"gathering", CT_SM_BIT(STATE_FORMING) | CT_SM_BIT(STATE_OVER)},
    [STATE_FORMING] = {"forming", CT_SM_BIT(STATE_RUNNING) | CT_SM_BIT(STATE_STOPPING) |
                                      CT_SM_BIT(STATE_OVER)},
    [STATE_RUNNING] = {"running", CT_SM_BIT(STATE_STOPPING) | CT_SM_BIT(STATE_OVER)},
    [STATE_STOPPING] = {"stopping", CT_SM_BIT(STATE_GATHERING) | CT_SM_BIT(STATE_OVER)},
    [STATE_OVER] = {"over", 0},
};

static void clear_deadlines(struct ct_members *m)
{
    m->due = (struct members_deadlines){NEVER, NEVER, NEVER, NEVER, NEVER, NEVER};
}

void members_round_init(struct ct_members *m)
{
    ct_sm_init(&m->sm, "membership", states, STATE_GATHERING, 0, m->options.log);
    clear_deadlines(m);
}

/* ---- the world forms ------------------------------------------------------------------------ */

static void tell_world(struct ct_members *m, struct ct_member *member, bool serve)
{
    struct ct_msg_world *world = &m->msg.world;
    *world = (struct ct_msg_world){
        .node_rank = member->node_rank,
        .node_count = m->node_count,
        .first_rank = member->first_rank,
        .world_size = m->world_size,
        .first_role_rank = member->first_role_rank,
        .role_size = member->role_size,
        .restarts = m->restarts,
        .serve = serve,
        .master_port = m->master_port,
    };
    memcpy(world->master_addr, m->master_addr, sizeof(world->master_addr));
    memcpy(world->store_addr, m->store_addr, sizeof(world->store_addr));
    memcpy(world->ports, m->ports, sizeof(world->ports));
    member->told = true;
    member->told_spare = false;
    members_send(m, member);
}

static void give_time_to_form(struct ct_members *m, int64_t now_ns)
{
    int64_t least_ns = now_ns + FORMING_LEAST_NS;
    if (m->due.join_ns == NEVER || m->due.join_ns < least_ns) {
        m->due.join_ns = least_ns;
    }
}

/* Tells rank 0 of the world, before all others. */
static void begin_to_serve(struct ct_members *m, int64_t now_ns)
{
    give_time_to_form(m, now_ns);
    (void)members_msg(m, CT_MSG_WORLD);
    tell_world(m, m->server, true);
}

/* Fills `sorted` with the members of the next world: those of the last one, then the others in the
 * order in which they joined, and those that are left out only if there are not enough. Returns
 * their number. */
static int choose_members(struct ct_members *m)
{
    int n = 0;
    for (int pass = 0; pass < 2; pass++) {
        EACH_MEMBER(m, pos)
        {
            struct ct_member *member = MEMBER_OF(pos, link);
            if (!member->left_out && (member->node_rank >= 0) == (pass == 0) &&
                n < m->job.max_nodes) {
                m->sorted[n++] = member;
            }
        }
    }
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->left_out && n < m->job.min_nodes) {
            m->sorted[n++] = member;
        }
    }
    return n;
}

static void end_job(struct ct_members *m, int exit_code, const char *why, int64_t now_ns);

/* The loss of the former host is accounted for like that of any node; that of a ctrdzvd costs the
 * job none. Returns false if the job ends because of it. */
static bool pay_for_host(struct ct_members *m, int64_t now_ns)
{
    if (!members_failover_take_loss(m, now_ns)) {
        return true;
    }
    if (members_elastic(m) || m->job.spares > 0 || members_failover_lost_daemon(m) ||
        members_budget_take(m, now_ns)) {
        return true;
    }
    end_job(m, CT_EXIT_NODE_LOST, "the machine that hosted the job's store was lost", now_ns);
    return false;
}

/* Carries on what a former host has begun, even while nodes are missing. Returns false if no world
 * may be formed now. */
static bool inherit(struct ct_members *m, int64_t now_ns)
{
    bool plan;
    int ends = -1;
    if (!members_failover_owes(m, &plan)) {
        return true;
    }
    if (members_failover_is_ready(m, now_ns, &ends)) {
        return pay_for_host(m, now_ns);
    }
    if (ends >= 0) {
        end_job(m, ends, "", now_ns);
    }
    return !plan;
}

/* Ranks the members of the next world, and has it pledged if it has to be. Returns their number, 0
 * = this host may not decide about it. */
static int plan_world(struct ct_members *m, int64_t now_ns)
{
    int n = choose_members(m);
    for (int i = 0; i < n; i++) {
        m->sorted[i]->former_rank = m->sorted[i]->node_rank;
    }
    members_rank_nodes(m->sorted, n);
    m->pledging = members_failover_on(m);
    if (!m->pledging || members_failover_propose(m, n, now_ns) == 0) {
        return n;
    }
    m->pledging = false;
    /* Newcomers must not keep the places of nodes of the last world that are on their way. */
    for (int i = 0; i < n; i++) {
        m->sorted[i]->node_rank = m->sorted[i]->former_rank;
    }
    return 0;
}

/* Begins the generation of m->sorted[0..n-1]. */
static void begin_generation(struct ct_members *m, int n, int64_t now_ns)
{
    m->world_size = members_rank_workers(m->sorted, n);
    m->generation++;
    m->node_count = m->last_node_count = m->unstarted = m->unfinished = n;
    m->any_finished = m->charged = m->judged = false;
    m->no_restart[0] = '\0';
    m->no_restart_code = 0;
    m->server = m->sorted[0];
    m->master_addr[0] = '\0';
    m->master_port = 0;
    m->ports[0] = '\0';
    m->due.settle_ns = m->due.say_ns = NEVER;
    give_time_to_form(m, now_ns);
    m->settled = false;
    for (int i = 0; i < n; i++) {
        struct ct_member *member = m->sorted[i];
        member->in_world = member->served = true;
        member->told = member->started = member->finished = member->stopped = false;
    }
    members_place_forget_gone(&m->places);
    const struct ct_history_round round = {
        .generation = m->generation,
        .nodes = n,
        .world_size = m->world_size,
        .paused_ms = m->paused_ms,
    };
    m->paused_ms = 0;
    members_history_begin(m, &round);
    ct_sm_move(&m->sm, STATE_FORMING, "enough nodes are there", now_ns);
}

/* Does nothing while the world may not be formed yet. */
static void form_world(struct ct_members *m, int64_t now_ns)
{
    int ends;
    if (!members_failover_is_ready(m, now_ns, &ends)) {
        if (ends >= 0) {
            end_job(m, ends, "", now_ns);
        }
        return;
    }
    int n = pay_for_host(m, now_ns) ? plan_world(m, now_ns) : 0;
    if (n == 0) {
        return;
    }
    begin_generation(m, n, now_ns);
    if (!m->pledging) {
        begin_to_serve(m, now_ns);
    }
}

/* Called when somebody came or went: forms the world if there is none and it is complete. */
static void form_if_complete(struct ct_members *m, int64_t now_ns)
{
    if (members_state(m) != STATE_GATHERING || !inherit(m, now_ns)) {
        return;
    }
    int there = members_ban_eligible(m);
    members_wait_plan(m, now_ns);
    if (there < m->job.min_nodes || m->due.pause_ns != NEVER) {
        m->due.settle_ns = NEVER;
        m->settled = false;
    } else if (there >= m->job.max_nodes ||
               (m->last_node_count > 0 && there >= m->last_node_count) || m->job.settle_ms == 0 ||
               m->settled) {
        form_world(m, now_ns);
    } else if (m->due.settle_ns == NEVER) {
        m->due.settle_ns = now_ns + m->job.settle_ms * CT_NS_PER_MS;
    }
}

/* Sets the deadlines for a world that forms after the pause. */
static void begin_gathering(struct ct_members *m, int64_t pause_ms, int64_t now_ns)
{
    m->unclean = m->settled = false;
    m->paused_ms = pause_ms;
    m->gather_ns = now_ns + pause_ms * CT_NS_PER_MS;
    m->due.pause_ns = pause_ms > 0 ? m->gather_ns : NEVER;
    m->said_ns = INT64_MIN;
    m->due.join_ns = m->gather_ns + m->job.join_ms * CT_NS_PER_MS;
    form_if_complete(m, now_ns);
}

static void end_pause(struct ct_members *m, int64_t now_ns)
{
    m->due.pause_ns = NEVER;
    form_if_complete(m, now_ns);
}

/* Decides about members that are not in the running world. Either the world is stopped soon to take
 * them in, or they are told that they are spares. */
static void place_newcomers(struct ct_members *m, int64_t now_ns)
{
    bool wanted = members_elastic(m) && m->node_count < m->job.max_nodes && !m->any_finished;
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world) {
            continue;
        }
        if (member->left_out && !member->told_spare) {
            members_ban_tell(m, member);
        }
        if (member->left_out) {
            continue;
        }
        if (wanted) {
            m->due.newcomers_ns =
                m->due.newcomers_ns == NEVER ? now_ns + NEWCOMERS_NS : m->due.newcomers_ns;
            return;
        }
        if (!member->told_spare) {
            member->told_spare = true;
            (void)members_msg(m, CT_MSG_SPARE);
            members_send(m, member);
        }
    }
}

void members_round_serving(struct ct_members *m, const struct ct_msg *serving, int64_t now_ns)
{
    const char *address = serving->text[0] != '\0' ? serving->text : m->server->address;
    (void)snprintf(m->master_addr, sizeof(m->master_addr), "%.*s", CT_HOST_MAX - 1, address);
    m->master_port = serving->port;
    memcpy(m->ports, serving->world.ports, sizeof(m->ports));
    clear_deadlines(m);
    members_history_round(m)->formed_ms = members_ms(m, now_ns);
    members_history_round(m)->waited_ms = (now_ns - m->gather_ns) / CT_NS_PER_MS;
    ct_sm_move(&m->sm, STATE_RUNNING, "rank 0 serves", now_ns);
    (void)members_msg(m, CT_MSG_WORLD);
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && !member->told) {
            tell_world(m, member, false);
        }
    }
    place_newcomers(m, now_ns);
}

/* ---- the end of the job --------------------------------------------------------------------- */

static void end_round(struct ct_members *m, const char *why, int64_t now_ns)
{
    struct ct_history_round *round = members_history_round(m);
    round->ended_ms = members_ms(m, now_ns);
    (void)snprintf(round->why, sizeof(round->why), "%s", why);
}

static void send_over(struct ct_members *m)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_OVER);
    m->pledging = false;
    msg->exit_code = m->exit_code;
    msg->world.restarts = m->restarts;
    (void)snprintf(msg->text, sizeof(msg->text), "%s", m->over_why);
    msg->history = m->history;
    members_send_all(m);
}

/* Has the end pledged, or tells it at once if nobody needs to pledge it. A host that may not decide
 * ends the job on its side only. */
static void propose_end(struct ct_members *m, int64_t now_ns)
{
    int rc = members_failover_end(m, m->exit_code, now_ns);
    m->pledging = rc == 0;
    if (rc == CT_EBUSY) {
        m->exit_code = CT_EXIT_NODE_LOST;
        (void)snprintf(m->over_why, sizeof(m->over_why),
                       "the host of the job may not decide about it any more: %s",
                       members_failover_wait(m, now_ns));
    }
    if (rc != 0) {
        send_over(m);
    }
}

static void end_job(struct ct_members *m, int exit_code, const char *why, int64_t now_ns)
{
    clear_deadlines(m);
    m->exit_code = exit_code;
    (void)snprintf(m->over_why, sizeof(m->over_why), "%s", why);
    ct_sm_move(&m->sm, STATE_OVER, why, now_ns);
    propose_end(m, now_ns);
}

/* Goes on with what has become certain. */
static void decided(struct ct_members *m, enum ct_proposal done, int64_t now_ns)
{
    if (done == CT_PROPOSAL_END) {
        send_over(m);
    } else if (done == CT_PROPOSAL_WORLD) {
        m->pledging = false;
        begin_to_serve(m, now_ns);
    } else if (done == CT_PROPOSAL_TAKE_OVER) {
        form_if_complete(m, now_ns);
    }
}

void members_round_pledged(struct ct_members *m, struct ct_member *member, const struct ct_msg *msg,
                           int64_t now_ns)
{
    decided(m, members_failover_pledged(m, member, msg, now_ns), now_ns);
}

static int preempted_code(const struct ct_members *m)
{
    bool in_order = !m->unclean && m->preempted != SIGINT;
    return in_order ? CT_EXIT_PREEMPTED : 128 + m->preempted;
}

/* ---- the end of a world --------------------------------------------------------------------- */

/* Called when all members of the world have stopped: begins another generation or ends the job. */
static void end_stopping(struct ct_members *m, int64_t now_ns)
{
    const struct ct_failure *first = members_history_first(m);
    bool done = m->unfinished == 0 && first == NULL;
    EACH_MEMBER(m, pos)
    {
        MEMBER_OF(pos, link)->in_world = false;
    }
    m->server = NULL;
    if (m->preempted != 0) {
        end_job(m, preempted_code(m), m->preempt_why, now_ns);
    } else if (done) {
        /* All had finished when they were asked to stop for a newcomer. */
        end_job(m, 0, "", now_ns);
    } else if (m->will_restart) {
        ct_sm_move(&m->sm, STATE_GATHERING, "all have stopped", now_ns);
        members_ban_judge(m, first);
        begin_gathering(m, members_budget_pause_ms(m, first), now_ns);
    } else {
        int code = first != NULL ? first->exit_code : CT_EXIT_NODE_LOST;
        end_job(m, m->no_restart_code != 0 ? m->no_restart_code : code, m->no_restart, now_ns);
    }
}

/* Moves to STOPPING. Members that do not know the world yet wait again; the others stop. */
static void begin_stopping(struct ct_members *m, const char *why, int64_t now_ns)
{
    clear_deadlines(m);
    end_round(m, why, now_ns);
    members_failover_withdraw(m);
    m->unclean = false;
    m->to_stop = 0;
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        member->in_world = member->in_world && member->told;
        m->to_stop += member->in_world && !member->stopped;
    }
    ct_sm_move(&m->sm, STATE_STOPPING, why, now_ns);
}

static bool may_host(const struct ct_members *m, const struct ct_member *member)
{
    return members_failover_on(m) && member->node_rank < CT_VOTERS_MAX;
}

/* Adds to a STOP what has happened: only what is new, since OVER has the whole history, but `all`
 * of it for a node that may have to host the job. */
static void add_news(struct ct_members *m, const struct ct_failure *first, bool all)
{
    struct ct_failure_history *news = &m->msg.history;
    if (all) {
        *news = m->history;
        return;
    }
    news->rounds[0] = *members_history_round(m);
    news->num_rounds = 1;
    if (first != NULL) {
        news->failures[0] = *first;
        news->num_failures = 1;
    }
}

static void stop_world(struct ct_members *m, const char *why, bool will_restart, int64_t now_ns)
{
    const struct ct_failure *first = members_history_first(m);
    m->will_restart = will_restart;
    begin_stopping(m, why, now_ns);
    struct ct_msg *msg = members_msg(m, CT_MSG_STOP);
    msg->will_restart = will_restart;
    (void)snprintf(msg->text, sizeof(msg->text), "%s", why);
    for (int pass = 0; pass < 2; pass++) {
        add_news(m, first, pass == 1);
        members_same_begin(m);
        EACH_MEMBER(m, pos)
        {
            struct ct_member *member = MEMBER_OF(pos, link);
            if (member->in_world && (pass == 1) == may_host(m, member)) {
                members_send(m, member);
            }
        }
        members_same_end(m);
    }
    if (m->to_stop == 0) {
        end_stopping(m, now_ns);
    }
}

void members_round_failed(struct ct_members *m, struct ct_member *member,
                          struct ct_failure *failure, int64_t happened_ns, int64_t now_ns)
{
    char why[CT_FAILURE_WHAT_MAX];
    failure->kind = CT_FAILURE_WORKER;
    failure->node_rank = member->node_rank;
    failure->exit_code = failure->exit_code != 0 ? failure->exit_code : 1;
    bool no_check = members_ban_no_check(m, member, failure);
    bool permanent = failure->permanent || no_check;
    if (no_check) {
        (void)snprintf(m->no_restart, sizeof(m->no_restart), "the command of --health-check %s",
                       m->job.max_nodes == 1 ? "cannot be run" : "can be run on no machine");
    }
    bool stuck = m->preempted == 0 && members_budget_is_stuck(m, failure);
    (void)snprintf(failure->host, sizeof(failure->host), "%s", member->host);
    (void)snprintf(failure->address, sizeof(failure->address), "%s", members_address(member));
    /* A machine that is not fit costs no restart if another one takes its place. */
    bool spared = failure->unfit && members_ban_spares(m, member);
    members_history_describe(failure, why, sizeof(why));
    bool first = members_history_record(m, failure, happened_ns);
    bool again =
        m->preempted == 0 && !permanent && !stuck && (spared || members_budget_take(m, now_ns));
    if (members_state(m) != STATE_STOPPING) {
        stop_world(m, why, again, now_ns);
        return;
    }
    m->unclean = true;
    m->will_restart = m->will_restart && again;
    if (first && m->preempted == 0) {
        end_round(m, why, now_ns);
    }
}

void members_round_finished(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    member->finished = true;
    m->any_finished = true;
    m->unfinished--;
    if (m->unfinished == 0 && members_state(m) == STATE_RUNNING) {
        end_round(m, "done", now_ns);
        end_job(m, 0, "", now_ns);
    }
}

void members_round_stopped(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    member->stopped = true;
    if (members_state(m) == STATE_STOPPING) {
        m->unclean = m->unclean || !member->finished;
        if (--m->to_stop == 0) {
            end_stopping(m, now_ns);
        }
    }
}

/* ---- losing a node -------------------------------------------------------------------------- */

/* May another generation follow the loss of a node? It uses no restart if the job can go on with
 * the nodes that are there. */
static bool may_go_on(struct ct_members *m, const struct ct_failure *loss, int64_t now_ns)
{
    return !members_budget_is_stuck(m, loss) &&
           (members_elastic(m) || m->count >= m->job.min_nodes || members_budget_take(m, now_ns));
}

/* Called when a member of the world is lost; `was` is a copy of it. */
static void lost_of_world(struct ct_members *m, const struct ct_member *was,
                          struct ct_failure *failure, int64_t now_ns)
{
    char why[CT_FAILURE_WHAT_MAX];
    /* A node whose workers have all finished is needed only if it has the workers' store, and some
     * workers have not finished. */
    bool harmless = was->finished && (was->node_rank != 0 || m->unfinished == 0);
    /* A node may leave once it was asked to end, or the job is over. */
    bool counts = m->preempted == 0 && was->told && members_state(m) != STATE_OVER;
    members_history_describe(failure, why, sizeof(why));
    if (counts && harmless) {
        members_history_record_harmless(m, failure, now_ns);
    } else if (counts) {
        (void)members_history_record(m, failure, now_ns);
    }
    switch (members_state(m)) {
    case STATE_FORMING:
        stop_world(m, why, true, now_ns);
        break;
    case STATE_RUNNING:
        if (!harmless) {
            stop_world(m, why, may_go_on(m, failure, now_ns), now_ns);
        }
        break;
    case STATE_STOPPING:
        m->unclean = m->unclean || !was->finished;
        m->will_restart = m->will_restart && (m->preempted != 0 || may_go_on(m, failure, now_ns));
        if (!was->stopped && --m->to_stop == 0) {
            end_stopping(m, now_ns);
        }
        break;
    default:
        break;
    }
}

void members_round_left(struct ct_members *m, struct ct_member *member, enum ct_failure_kind kind,
                        const char *why, bool connected, int64_t now_ns)
{
    struct ct_failure failure;
    const struct ct_member was = *member;
    members_history_loss(member, kind, why, &failure);
    ct_log(m->options.log, CT_LOG_DEBUG, "job %s: node %s is gone: %s", m->job.run_id, member->host,
           failure.what);
    if (connected) {
        m->options.drop(m->options.data, member);
    }
    if (members_state(m) != STATE_OVER) {
        members_place_release(&m->places, member);
        members_place_remember(&m->places, member, now_ns);
    }
    bool open = members_failover_left(m, member, kind);
    members_join_remove(m, member);
    if (open && members_state(m) == STATE_OVER) {
        propose_end(m, now_ns); /* the others have to pledge it without that one */
    }
    if (was.in_world) {
        lost_of_world(m, &was, &failure, now_ns);
    } else if (open && members_state(m) == STATE_FORMING) {
        stop_world(m, "a node that was left out was lost before it had pledged", true, now_ns);
    } else {
        form_if_complete(m, now_ns);
    }
    if (m->count == 0 && members_state(m) != STATE_OVER) {
        end_job(m, CT_EXIT_NODE_LOST, "all nodes have left", now_ns);
    }
}

/* ---- what comes from outside ---------------------------------------------------------------- */

void ct_members_arbiter_pledged(struct ct_members *m, uint64_t term, uint64_t version,
                                int64_t sent_ns, int64_t now_ns)
{
    if (!members_failover_on(m)) {
        return;
    }
    bool came = !m->failover->arbiter_there;
    decided(m, members_failover_arbiter_pledged(m, term, version, sent_ns), now_ns);
    if (came) {
        form_if_complete(m, now_ns); /* it may have been all that was missing */
    }
}

void ct_members_arbiter_lost(struct ct_members *m, int64_t now_ns)
{
    if (!members_failover_on(m) || !members_failover_arbiter_left(m)) {
        return;
    }
    if (members_state(m) == STATE_OVER) {
        propose_end(m, now_ns);
    } else if (members_state(m) == STATE_FORMING) {
        stop_world(m, "the arbiter of the job cannot be asked any more", true, now_ns);
    } else {
        form_if_complete(m, now_ns); /* it was asked about the plan of a former host */
    }
}

void members_round_arrived(struct ct_members *m, int64_t now_ns)
{
    switch (members_state(m)) {
    case STATE_GATHERING:
        if (m->due.join_ns == NEVER) {
            begin_gathering(m, 0, now_ns);
        } else {
            form_if_complete(m, now_ns);
        }
        break;
    case STATE_RUNNING:
        place_newcomers(m, now_ns);
        break;
    default:
        break; /* the new member waits for the next state */
    }
}

void members_round_preempt(struct ct_members *m, const struct ct_member *member,
                           const struct ct_msg *preempt, int64_t now_ns)
{
    char name[MEMBER_NAME_MAX];
    if (m->preempted != 0 || members_state(m) == STATE_OVER) {
        return;
    }
    m->preempted = preempt->signo > 0 ? preempt->signo : SIGTERM;
    /* Every node prints this text, so it must not come from a member's message. */
    members_name(member, name);
    const char *signal_name = sigabbrev_np(m->preempted);
    (void)snprintf(m->preempt_why, sizeof(m->preempt_why), "%s received SIG%s: the job is to end",
                   name, signal_name != NULL ? signal_name : "TERM");
    struct ct_msg *msg = members_msg(m, CT_MSG_PREEMPT);
    msg->signo = m->preempted;
    msg->deadline_ms = preempt->deadline_ms;
    memcpy(msg->text, m->preempt_why, sizeof(msg->text));
    members_send_all(m);
    switch (members_state(m)) {
    case STATE_GATHERING:
        end_job(m, preempted_code(m), m->preempt_why, now_ns);
        break;
    case STATE_STOPPING:
        m->unclean = true; /* they are being stopped for another reason, so the preemption does not
                              end all */
        break;
    default:
        begin_stopping(m, m->preempt_why, now_ns);
        if (m->to_stop == 0) {
            end_stopping(m, now_ns);
        }
        break;
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static void take_newcomers(struct ct_members *m, int64_t now_ns)
{
    char why[CT_FAILURE_WHAT_MAX], name[MEMBER_NAME_MAX];
    const struct ct_member *first = NULL;
    int newcomers = 0;
    m->due.newcomers_ns = NEVER;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (!member->in_world && !member->left_out) {
            first = first != NULL ? first : member;
            newcomers++;
        }
    }
    if (m->any_finished) {
        place_newcomers(m, now_ns); /* the job is about to end, so it goes on without newcomers */
    } else if (newcomers == 1) {
        members_name(first, name);
        (void)snprintf(why, sizeof(why), "node %s joined", name);
        stop_world(m, why, true, now_ns);
    } else if (newcomers > 1) {
        members_name(first, name);
        (void)snprintf(why, sizeof(why), "%d nodes joined, %s first", newcomers, name);
        stop_world(m, why, true, now_ns);
    }
}

static void join_timeout(struct ct_members *m, int64_t now_ns)
{
    char why[CT_FAILURE_WHAT_MAX];
    if (members_state(m) == STATE_FORMING && m->pledging) {
        stop_world(m, "the world was not pledged in time", true, now_ns); /* it is nobody's fault */
        return;
    }
    if (members_state(m) == STATE_FORMING) {
        members_round_left(m, m->server, CT_FAILURE_SILENT,
                           "it did not open the workers' store in time", true, now_ns);
        return;
    }
    if (m->count >= m->job.min_nodes) {
        form_world(m, now_ns); /* settle_ms is longer than join_ms */
    }
    if (members_state(m) == STATE_GATHERING) {
        int len = snprintf(why, sizeof(why), "join_timeout (%g s) is over while ",
                           (double)m->job.join_ms / 1000);
        members_wait_text(m, now_ns, why + len, sizeof(why) - (size_t)len);
        end_job(m, CT_EXIT_RDZV_TIMEOUT, why, now_ns);
    }
}

void members_round_tick(struct ct_members *m, int64_t now_ns)
{
    if (m->due.join_ns <= now_ns) {
        m->due.join_ns = NEVER;
        join_timeout(m, now_ns);
    }
    if (m->due.pause_ns <= now_ns) {
        end_pause(m, now_ns);
    }
    if (m->due.settle_ns <= now_ns) {
        m->due.settle_ns = NEVER;
        form_world(m, now_ns);
        /* Whoever comes late, or is found dead, may end the fence. */
        m->settled = members_state(m) == STATE_GATHERING && m->due.fence_ns != NEVER;
    }
    if (m->due.fence_ns <= now_ns) {
        m->due.fence_ns = NEVER;
        form_if_complete(m, now_ns);
    }
    if (m->due.newcomers_ns <= now_ns) {
        take_newcomers(m, now_ns);
    }
    if (m->due.say_ns <= now_ns) {
        members_wait_tell(m, now_ns);
    }
}

int64_t members_round_next(const struct ct_members *m)
{
    const int64_t times[] = {m->due.join_ns, m->due.settle_ns, m->due.newcomers_ns,
                             m->due.say_ns,  m->due.pause_ns,  m->due.fence_ns};
    int64_t next_ns = NEVER;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        next_ns = times[i] < next_ns ? times[i] : next_ns;
    }
    return next_ns;
}
