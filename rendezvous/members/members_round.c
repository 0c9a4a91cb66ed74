/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a world and of the job. The drawing of states is in members.h.
 */
#include "rendezvous/members/members_impl.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const struct ct_sm_state members_states[] = {
    [STATE_GATHERING] = {"gathering", CT_SM_BIT(STATE_FORMING) | CT_SM_BIT(STATE_OVER)},
    [STATE_FORMING] = {"forming", CT_SM_BIT(STATE_RUNNING) | CT_SM_BIT(STATE_STOPPING) |
                                      CT_SM_BIT(STATE_OVER)},
    [STATE_RUNNING] = {"running", CT_SM_BIT(STATE_STOPPING) | CT_SM_BIT(STATE_OVER)},
    [STATE_STOPPING] = {"stopping", CT_SM_BIT(STATE_GATHERING) | CT_SM_BIT(STATE_OVER)},
    [STATE_OVER] = {"over", 0},
};

struct ct_msg *members_msg(struct ct_members *m, enum ct_msg_type type)
{
    memset(&m->msg, 0, sizeof(m->msg));
    m->msg.type = type;
    m->msg.generation = m->generation;
    return &m->msg;
}

void members_send(struct ct_members *m, struct ct_member *member)
{
    m->options.send(m->options.data, member, &m->msg);
}

void members_no_timers(struct ct_members *m)
{
    m->join_ns = m->settle_ns = m->newcomers_ns = m->say_ns = m->pause_ns = NEVER;
}

/* ---- the end of the job --------------------------------------------------------------------- */

static void end_round(struct ct_members *m, const char *why, int64_t now_ns)
{
    struct ct_story_round *round = members_round(m);
    round->ended_ms = members_ms(m, now_ns);
    (void)snprintf(round->why, sizeof(round->why), "%s", why);
}

static void over(struct ct_members *m, int exit_code, const char *why, int64_t now_ns)
{
    members_no_timers(m);
    m->exit_code = exit_code;
    (void)snprintf(m->over_why, sizeof(m->over_why), "%s", why);
    ct_sm_move(&m->sm, STATE_OVER, why, now_ns);
    struct ct_msg *msg = members_msg(m, CT_MSG_OVER);
    msg->exit_code = exit_code;
    (void)snprintf(msg->text, sizeof(msg->text), "%s", why);
    msg->story = m->story;
    EACH_MEMBER(m, pos)
    {
        members_send(m, MEMBER_OF(pos, link));
    }
}

static int preempted_code(const struct ct_members *m)
{
    bool in_order = !m->unclean && m->preempted != SIGINT;
    return in_order ? CT_EXIT_PREEMPTED : 128 + m->preempted;
}

/* ---- the end of a world --------------------------------------------------------------------- */

static void say_pause(struct ct_members *m, int64_t pause_ms)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_WAITING);
    (void)snprintf(msg->text, sizeof(msg->text),
                   "%d generations in a row failed within a second of their start: the next one "
                   "starts in %d s, and the pause doubles with each that follows, up to %d s",
                   m->early_row, (int)(pause_ms / 1000), EARLY_LAST_MS / 1000);
    EACH_MEMBER(m, pos)
    {
        members_send(m, MEMBER_OF(pos, link));
    }
}

/* How long the next generation waits: what fails as soon as it starts would burn the budget of
 * restarts, and load the machines, in no time. */
static int64_t pause_ms(struct ct_members *m, const struct ct_failure *first)
{
    const struct ct_story_round *round = members_round(m);
    bool early = first != NULL && first->kind == CT_FAILURE_WORKER && first->early;
    bool ran = round->formed_ms > 0 && round->ended_ms - round->formed_ms >= EARLY_FIRST_MS;
    if (!early) {
        /* One that was stopped in its first second, for newcomers, says nothing. */
        m->early_row = first != NULL || ran ? 0 : m->early_row;
        return 0;
    }
    m->early_row += m->early_row < INT_MAX;
    if (m->early_row <= EARLY_FREE) {
        return 0;
    }
    int64_t pause = EARLY_FIRST_MS;
    for (int i = EARLY_FREE + 1; i < m->early_row && pause < EARLY_LAST_MS; i++) {
        pause *= 2;
    }
    pause = pause < EARLY_LAST_MS ? pause : EARLY_LAST_MS;
    if (m->early_row == EARLY_FREE + 1) {
        say_pause(m, pause);
    }
    return pause;
}

static void all_stopped(struct ct_members *m, int64_t now_ns)
{
    const struct ct_failure *first = ct_story_first(&m->story, m->generation);
    bool done = m->unfinished == 0 && first == NULL;
    EACH_MEMBER(m, pos)
    {
        MEMBER_OF(pos, link)->in_world = false;
    }
    m->server = NULL;
    if (m->preempted != 0) {
        over(m, preempted_code(m), m->preempt_why, now_ns);
    } else if (done) {
        /* All had finished when they were asked to stop for a newcomer. */
        over(m, 0, "", now_ns);
    } else if (m->will_restart) {
        ct_sm_move(&m->sm, STATE_GATHERING, "all have stopped", now_ns);
        members_gather(m, pause_ms(m, first), now_ns);
    } else {
        over(m, first != NULL ? first->exit_code : CT_EXIT_NODE_LOST, "", now_ns);
    }
}

/* Those who have not heard of the world go back to waiting; counts the others. */
static void begin_stopping(struct ct_members *m, const char *why, int64_t now_ns)
{
    members_no_timers(m);
    end_round(m, why, now_ns);
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

static void stop_world(struct ct_members *m, const char *why, bool will_restart, int64_t now_ns)
{
    const struct ct_failure *first = ct_story_first(&m->story, m->generation);
    m->will_restart = will_restart;
    begin_stopping(m, why, now_ns);
    struct ct_msg *msg = members_msg(m, CT_MSG_STOP);
    msg->will_restart = will_restart;
    (void)snprintf(msg->text, sizeof(msg->text), "%s", why);
    /* Only what is new; the whole story goes out with OVER. */
    msg->story.rounds[0] = *members_round(m);
    msg->story.num_rounds = 1;
    if (first != NULL) {
        msg->story.failures[0] = *first;
        msg->story.num_failures = 1;
    }
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world) {
            members_send(m, member);
        }
    }
    if (m->to_stop == 0) {
        all_stopped(m, now_ns);
    }
}

/* May a failure of this generation be answered by another one? One generation uses at most one of
 * the budget: what else fails in it is the same accident. */
static bool charge(struct ct_members *m)
{
    if (!m->charged && m->restarts < m->job.max_restarts) {
        m->restarts++;
        m->charged = true;
    }
    return m->charged;
}

void members_failed(struct ct_members *m, struct ct_member *member, struct ct_failure *failure,
                    int64_t happened_ns, int64_t now_ns)
{
    char why[CT_STORY_WHAT_MAX];
    bool permanent = failure->permanent;
    failure->kind = CT_FAILURE_WORKER;
    failure->node_rank = member->node_rank;
    failure->exit_code = failure->exit_code != 0 ? failure->exit_code : 1;
    (void)snprintf(failure->host, sizeof(failure->host), "%s", member->host);
    (void)snprintf(failure->address, sizeof(failure->address), "%s", members_address(member));
    members_describe(failure, why, sizeof(why));
    bool first = members_record(m, failure, happened_ns);
    bool again = m->preempted == 0 && !permanent && charge(m);
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

void members_finished(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    member->finished = true;
    m->any_finished = true;
    m->unfinished--;
    if (m->unfinished == 0 && members_state(m) == STATE_RUNNING) {
        end_round(m, "done", now_ns);
        over(m, 0, "", now_ns);
    }
}

void members_stopped(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    member->stopped = true;
    if (members_state(m) == STATE_STOPPING) {
        m->unclean = m->unclean || !member->finished;
        if (--m->to_stop == 0) {
            all_stopped(m, now_ns);
        }
    }
}

/* ---- losing a node -------------------------------------------------------------------------- */

/* A loss costs nothing where the job can go on with those who are there. */
static bool may_go_on(struct ct_members *m)
{
    return members_elastic(m) || m->count >= m->job.min_nodes || charge(m);
}

static void lost_of_world(struct ct_members *m, const struct ct_member *was,
                          struct ct_failure *failure, int64_t now_ns)
{
    char why[CT_STORY_WHAT_MAX];
    bool serves = was->node_rank == 0;
    members_describe(failure, why, sizeof(why));
    if (m->preempted == 0 && was->told) {
        (void)members_record(m, failure, now_ns);
    }
    switch (members_state(m)) {
    case STATE_FORMING:
        stop_world(m, why, true, now_ns);
        break;
    case STATE_RUNNING:
        /* A node whose workers are done is not needed any more, unless it has the store. */
        if (!was->finished || serves) {
            stop_world(m, why, may_go_on(m), now_ns);
        }
        break;
    case STATE_STOPPING:
        m->unclean = m->unclean || !was->finished;
        m->will_restart = m->will_restart && (m->preempted != 0 || may_go_on(m));
        if (!was->stopped && --m->to_stop == 0) {
            all_stopped(m, now_ns);
        }
        break;
    default:
        break;
    }
}

void members_left(struct ct_members *m, struct ct_member *member, enum ct_failure_kind kind,
                  const char *why, bool connected, int64_t now_ns)
{
    struct ct_failure failure;
    const struct ct_member was = *member;
    members_loss(member, kind, why, &failure);
    ct_log(m->options.log, CT_LOG_DEBUG, "job %s: node %s is gone: %s", m->job.run_id, member->host,
           failure.what);
    if (connected) {
        m->options.drop(m->options.data, member);
    }
    members_remove(m, member, members_state(m) != STATE_OVER, now_ns);
    if (was.in_world) {
        lost_of_world(m, &was, &failure, now_ns);
    } else if (members_state(m) == STATE_GATHERING) {
        members_consider(m, now_ns);
    }
    if (m->count == 0 && members_state(m) != STATE_OVER) {
        over(m, CT_EXIT_NODE_LOST, "all nodes have left", now_ns);
    }
}

/* ---- what comes from outside ---------------------------------------------------------------- */

void members_arrived(struct ct_members *m, int64_t now_ns)
{
    switch (members_state(m)) {
    case STATE_GATHERING:
        if (m->join_ns == NEVER) {
            members_gather(m, 0, now_ns);
        } else {
            members_consider(m, now_ns);
        }
        break;
    case STATE_RUNNING:
        members_place_waiting(m, now_ns);
        break;
    default:
        break; /* it waits for what comes next */
    }
}

void members_preempt(struct ct_members *m, const struct ct_member *member,
                     const struct ct_msg *preempt, int64_t now_ns)
{
    char name[MEMBER_NAME_MAX];
    if (m->preempted != 0 || members_state(m) == STATE_OVER) {
        return;
    }
    m->preempted = preempt->signo > 0 ? preempt->signo : SIGTERM;
    /* In our words: every node prints them. */
    members_name(member, name);
    const char *signal_name = sigabbrev_np(m->preempted);
    (void)snprintf(m->preempt_why, sizeof(m->preempt_why), "%s received SIG%s: the job is to end",
                   name, signal_name != NULL ? signal_name : "TERM");
    struct ct_msg *msg = members_msg(m, CT_MSG_PREEMPT);
    msg->signo = m->preempted;
    msg->deadline_ms = preempt->deadline_ms;
    memcpy(msg->text, m->preempt_why, sizeof(msg->text));
    EACH_MEMBER(m, pos)
    {
        members_send(m, MEMBER_OF(pos, link));
    }
    switch (members_state(m)) {
    case STATE_GATHERING:
        over(m, preempted_code(m), m->preempt_why, now_ns);
        break;
    case STATE_STOPPING:
        m->unclean = true; /* they were being stopped for another reason */
        break;
    default:
        begin_stopping(m, m->preempt_why, now_ns);
        if (m->to_stop == 0) {
            all_stopped(m, now_ns);
        }
        break;
    }
}

/* ---- time ----------------------------------------------------------------------------------- */

static void take_newcomers(struct ct_members *m, int64_t now_ns)
{
    char why[CT_STORY_WHAT_MAX], name[MEMBER_NAME_MAX];
    const struct ct_member *first = NULL;
    int newcomers = 0;
    m->newcomers_ns = NEVER;
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (!member->in_world) {
            first = first != NULL ? first : member;
            newcomers++;
        }
    }
    if (m->any_finished) {
        members_place_waiting(m, now_ns); /* a job that ends is not disturbed */
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
    char why[CT_STORY_WHAT_MAX];
    if (members_state(m) == STATE_FORMING) {
        members_left(m, m->server, CT_FAILURE_SILENT, "it did not open the workers' store in time",
                     true, now_ns);
    } else if (m->count >= m->job.min_nodes) {
        members_form(m, now_ns); /* the settle time is longer than the whole wait may last */
    } else {
        int len = snprintf(why, sizeof(why), "join_timeout (%g s) is over while ",
                           (double)m->job.join_ms / 1000);
        members_waiting_text(m, now_ns, why + len, sizeof(why) - (size_t)len);
        over(m, CT_EXIT_RDZV_TIMEOUT, why, now_ns);
    }
}

void members_timers(struct ct_members *m, int64_t now_ns)
{
    if (m->join_ns <= now_ns) {
        m->join_ns = NEVER;
        join_timeout(m, now_ns);
    }
    if (m->pause_ns <= now_ns) {
        members_resume(m, now_ns);
    }
    if (m->settle_ns <= now_ns) {
        m->settle_ns = NEVER;
        members_form(m, now_ns);
    }
    if (m->newcomers_ns <= now_ns) {
        take_newcomers(m, now_ns);
    }
    if (m->say_ns <= now_ns) {
        members_say_waiting(m, now_ns);
    }
}
