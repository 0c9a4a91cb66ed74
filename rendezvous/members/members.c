/* SPDX-License-Identifier: Apache-2.0
 *
 * The beginning and the end of the core, the messages of members, and time. Here it is checked that
 * the sender of a message may send it. members_round.c decides what follows from it. A message that
 * breaks the protocol ends its sender's membership (violation()).
 */
#include "rendezvous/members/members.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/members/members_core.h"
#include "rendezvous/members/members_failover.h"
#include "rendezvous/members/members_hang.h"
#include "rendezvous/members/members_history.h"
#include "rendezvous/members/members_join.h"
#include "rendezvous/members/members_round.h"

#include <stdio.h>
#include <string.h>

/* Clocks differ in speed by a two-thousandth at most, which is as much as the kernel corrects one.
 */
#define SPEED_SHARE 2048

int ct_members_new(const struct ct_members_options *options, struct ct_members **out)
{
    struct ct_members *m = ct_calloc(1, sizeof(*m));
    if (m == NULL) {
        return CT_ENOMEM;
    }
    m->options = *options;
    m->options.job = NULL;
    m->options.expected = NULL;
    m->places.budget = options->budget;
    ct_list_init(&m->all);
    ct_list_init(&m->silence);
    m->generation = -1;
    members_round_init(m);
    m->said_ns = m->awake_ns = INT64_MIN;
    m->stands_due_ns = NEVER;
    if (members_failover_init(m) != 0 ||
        (options->job != NULL && members_join_begin(m, options->job, NULL) != 0) ||
        (options->num_expected > 0 &&
         members_place_expect(&m->places, options->expected, options->num_expected) != 0)) {
        ct_members_free(m);
        return CT_ENOMEM;
    }
    *out = m;
    return 0;
}

void ct_members_free(struct ct_members *m)
{
    if (m == NULL) {
        return;
    }
    while (!ct_list_empty(&m->all)) {
        members_join_remove(m, MEMBER_OF(m->all.next, link));
    }
    members_place_fini(&m->places);
    members_give(m, m->kept);
    ct_free(m->sorted);
    ct_free(m->failover);
    ct_failure_history_fini(&m->history);
    ct_free(m);
}

void *ct_member_conn(const struct ct_member *member)
{
    return member->conn;
}

struct ct_member *ct_members_of_rank(const struct ct_members *m, int rank, int *generation)
{
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world && member->told && rank >= member->first_rank &&
            rank - member->first_rank < member->workers) {
            *generation = m->generation;
            return member;
        }
    }
    return NULL;
}

/* ---- what the files of the core share ------------------------------------------------------- */

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

void members_same_begin(struct ct_members *m)
{
    if (ct_msg_encode(&m->msg, &m->frame) == 0) {
        m->msg.frame = &m->frame;
    }
}

void members_same_end(struct ct_members *m)
{
    m->msg.frame = NULL;
    ct_buf_fini(&m->frame);
}

void members_send_all(struct ct_members *m)
{
    members_same_begin(m);
    EACH_MEMBER(m, pos)
    {
        members_send(m, MEMBER_OF(pos, link));
    }
    members_same_end(m);
}

void members_send_world(struct ct_members *m)
{
    members_same_begin(m);
    EACH_MEMBER(m, pos)
    {
        struct ct_member *member = MEMBER_OF(pos, link);
        if (member->in_world) {
            members_send(m, member);
        }
    }
    members_same_end(m);
}

const char *members_address(const struct ct_member *member)
{
    const char *address = member->address;
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0 ? "" : address;
}

void members_name(const struct ct_member *member, char out[MEMBER_NAME_MAX])
{
    const char *address = members_address(member);
    (void)snprintf(out, MEMBER_NAME_MAX, "%.110s%s%.64s", member->host,
                   address[0] != '\0' ? " at " : "", address);
}

/* ---- what members say ----------------------------------------------------------------------- */

/* Tells a member that it is given up. If it still gets the message, it ends its workers. */
static void refuse(struct ct_members *m, struct ct_member *member, const char *why)
{
    struct ct_msg *msg = members_msg(m, CT_MSG_REFUSED);
    msg->exit_code = CT_EXIT_NODE_LOST;
    (void)snprintf(msg->text, sizeof(msg->text), "this node was given up: %s", why);
    members_send(m, member);
}

/* Gives up a member that broke the protocol with `msg`. `how` says more, or is empty. */
static void violation(struct ct_members *m, struct ct_member *member, const struct ct_msg *msg,
                      const char *how, int64_t now_ns)
{
    char why[256];
    (void)snprintf(why, sizeof(why), "it broke the protocol with \"%s\"%s%s",
                   ct_msg_name(msg->type), how[0] != '\0' ? ": " : "", how);
    uint64_t unreported =
        m->options.faults != NULL
            ? ct_refusal_log_add(m->options.faults, (uint64_t)(now_ns / CT_NS_PER_MS))
            : 1;
    if (unreported > 0) {
        char others[CT_REFUSALS_TEXT_MAX];
        ct_log(m->options.log, CT_LOG_WARNING, "store: node %s%s%s is given up: %s%s", member->host,
               member->address[0] != '\0' ? " at " : "", member->address, why,
               ct_refusals_others(unreported, others));
    }
    refuse(m, member, why);
    members_round_left(m, member, CT_FAILURE_AGENT, why, true, now_ns);
}

/* No machine runs for ten years without a restart. */
static bool clock_is_sound(const struct ct_msg *msg)
{
    return msg->clock_ms > 0 && msg->clock_ms <= CT_CONTROL_MAX_MS;
}

/* Returns when the message was sent, on our clock; not later than now. */
static int64_t clock_of(const struct ct_member *member, const struct ct_msg *msg, int64_t now_ns)
{
    bool known = member->clock_ns != NEVER && clock_is_sound(msg);
    int64_t at = known ? msg->clock_ms * CT_NS_PER_MS + member->clock_ns : now_ns;
    return at < now_ns ? at : now_ns;
}

/* Do the rows match the number of workers that the node joined with, and the ranks that it was
 * given? Rows of an older generation may have the ranks of that generation, which are not shown. */
static bool rows_are_sound(const struct ct_members *m, const struct ct_member *member,
                           const struct ct_msg *msg, char *how, size_t size)
{
    if (msg->num_rows > member->workers) {
        (void)snprintf(how, size, "it reports %d workers but joined with %d", msg->num_rows,
                       member->workers);
        return false;
    }
    for (int i = 0; i < msg->num_rows; i++) {
        const struct ct_worker_row *row = &msg->rows[i];
        if (row->generation > m->generation) {
            (void)snprintf(how, size,
                           "worker %d is said to be of generation %d, which has not begun", i,
                           row->generation);
            return false;
        }
        if (row->generation == m->generation && member->in_world && member->told &&
            row->rank != member->first_rank + i) {
            (void)snprintf(how, size, "worker %d is said to be rank %d but is rank %d", i,
                           row->rank, member->first_rank + i);
            return false;
        }
    }
    return true;
}

/* Keeps the rows for the status. Returns false if they are wrong; the member is given up then. */
static bool take_rows(struct ct_members *m, struct ct_member *member, struct ct_msg *msg,
                      int64_t now_ns)
{
    char how[128];
    if (!msg->has_rows) {
        return true;
    }
    if (!rows_are_sound(m, member, msg, how, sizeof(how))) {
        violation(m, member, msg, how, now_ns);
        return false;
    }
    ct_free(member->rows);
    member->rows = msg->rows;
    member->num_rows = msg->num_rows;
    msg->rows = NULL;
    msg->num_rows = 0;
    return true;
}

static void take_stopped(struct ct_members *m, struct ct_member *member, struct ct_msg *msg,
                         int64_t now_ns)
{
    if (msg->has_failure) {
        msg->failure.node_rank = member->node_rank;
        members_history_complete(m, &msg->failure);
    }
    if (members_state(m) != STATE_STOPPING && !member->finished) {
        violation(m, member, msg, "nobody asked it to", now_ns);
    } else if (!member->stopped) {
        members_round_stopped(m, member, now_ns);
    }
}

/* Takes a message about the present world from a member of it. */
static void take_news(struct ct_members *m, struct ct_member *member, struct ct_msg *msg,
                      int64_t now_ns)
{
    bool at_work = !member->finished && !member->stopped;
    if (msg->type == CT_MSG_STARTED) {
        if (!take_rows(m, member, msg, now_ns)) {
            return;
        }
        m->unstarted -= !member->started;
        member->started = true;
        member->no_check = false;
    } else if (msg->type == CT_MSG_STOPPED) {
        take_stopped(m, member, msg, now_ns);
    } else if (msg->type == CT_MSG_FAILED && at_work) {
        members_round_failed(m, member, &msg->failure, clock_of(member, msg, now_ns), now_ns);
    } else if (msg->type == CT_MSG_FINISHED && at_work) {
        members_round_finished(m, member, now_ns);
    }
}

/* Does the failure name the whole node or a worker of it, as it must? */
static bool failure_is_sound(const struct ct_member *member, const struct ct_msg *msg)
{
    const struct ct_failure *failure = &msg->failure;
    if (msg->type != CT_MSG_FAILED && !(msg->type == CT_MSG_STOPPED && msg->has_failure)) {
        return true;
    }
    bool whole_node = failure->local_rank == -1 && failure->rank == -1;
    return whole_node || (failure->local_rank >= 0 && failure->local_rank < member->workers &&
                          failure->rank == member->first_rank + failure->local_rank);
}

static void take_of_generation(struct ct_members *m, struct ct_member *member, struct ct_msg *msg,
                               int64_t now_ns)
{
    bool of_the_past = msg->generation < m->generation || !member->in_world ||
                       members_state(m) == STATE_OVER || members_state(m) == STATE_GATHERING;
    bool of_the_future = msg->generation > m->generation;
    if (of_the_past && !of_the_future) {
        return;
    }
    if (of_the_future || !member->told || !failure_is_sound(member, msg)) {
        violation(m, member, msg, "", now_ns);
    } else if (msg->type == CT_MSG_SERVING) {
        if (member != m->server) {
            violation(m, member, msg, "", now_ns);
        } else if (members_state(m) == STATE_FORMING) {
            members_round_serving(m, msg, now_ns);
        }
    } else {
        take_news(m, member, msg, now_ns);
    }
}

/* Notes when a message was sent. */
static void note_said(struct ct_members *m, struct ct_member *member, const struct ct_msg *msg,
                      int64_t now_ns)
{
    int64_t said_ns = clock_of(member, msg, now_ns);
    if (said_ns > member->said_ns) {
        member->said_ns = said_ns;
        members_failover_heard(m, member);
    }
}

/* Takes the smallest difference that was seen: that of the message which took the shortest time.
 * Its clock may go slower than ours, so the difference that counts grows with time. Else its
 * messages would seem to be older each hour. */
static void map_clock(struct ct_member *member, const struct ct_msg *msg, int64_t now_ns)
{
    if (!clock_is_sound(msg)) {
        return;
    }
    int64_t difference = now_ns - msg->clock_ms * CT_NS_PER_MS;
    int64_t most = member->clock_ns != NEVER
                       ? member->clock_ns + (now_ns - member->mapped_ns) / SPEED_SHARE
                       : NEVER;
    member->clock_ns = difference < most ? difference : most;
    member->mapped_ns = now_ns;
}

void ct_members_message(struct ct_members *m, struct ct_member *member, struct ct_msg *msg,
                        int64_t now_ns)
{
    member->heard_ns = member->alive_ns = now_ns;
    ct_list_remove(&member->silence);
    ct_list_append(&m->silence, &member->silence);
    switch (msg->type) {
    case CT_MSG_BEAT:
        map_clock(member, msg, now_ns);
        note_said(m, member, msg, now_ns);
        member->warm = msg->warm;
        member->hang = msg->hang;
        if (take_rows(m, member, msg, now_ns)) {
            members_hang_vote(m, member, &msg->still, now_ns);
        }
        break;
    case CT_MSG_FAILED:
        map_clock(member, msg, now_ns);
        take_of_generation(m, member, msg, now_ns);
        break;
    case CT_MSG_SERVING:
    case CT_MSG_STARTED:
    case CT_MSG_FINISHED:
    case CT_MSG_STOPPED:
        take_of_generation(m, member, msg, now_ns);
        break;
    case CT_MSG_PREEMPT:
        /* A node that has never been in a world may not end the job: it sends LEAVE. */
        if (member->served) {
            members_round_preempt(m, member, msg, now_ns);
        } else {
            violation(m, member, msg, "", now_ns);
        }
        break;
    case CT_MSG_PLEDGE:
        members_round_pledged(m, member, msg, now_ns);
        break;
    case CT_MSG_STANDS:
        members_hang_stands(m, member, msg, now_ns);
        break;
    case CT_MSG_LEAVE:
        members_round_left(m, member, CT_FAILURE_LEFT,
                           msg->text[0] != '\0' ? msg->text : "no reason given", true, now_ns);
        break;
    case CT_MSG_OPEN:
    case CT_MSG_CHALLENGE:
    case CT_MSG_ANSWER:
    case CT_MSG_ACCEPTED:
    case CT_MSG_REFUSED:
    case CT_MSG_JOIN:
    case CT_MSG_GUEST:
    case CT_MSG_WAITING:
    case CT_MSG_SPARE:
    case CT_MSG_WORLD:
    case CT_MSG_STOP:
    case CT_MSG_OVER:
    case CT_MSG_QUERY:
    case CT_MSG_RECORD:
    case CT_MSG_ASK:
    case CT_MSG_VOTE:
    case CT_MSG_RESULT: /* the server takes it for itself */
    case CT_MSG_TYPES:
        violation(m, member, msg, "", now_ns);
        break;
    }
}

void ct_members_gone(struct ct_members *m, struct ct_member *member, const char *why,
                     int64_t now_ns)
{
    members_round_left(m, member, CT_FAILURE_AGENT, why, false, now_ns);
}

/* ---- time ----------------------------------------------------------------------------------- */

/* Returns when the member that has been silent longest may be given up. */
static int64_t silence_due(const struct ct_members *m)
{
    if (ct_list_empty(&m->silence)) {
        return NEVER;
    }
    int64_t alive_ns = MEMBER_OF(m->silence.next, silence)->alive_ns;
    int64_t from_ns = alive_ns > m->awake_ns ? alive_ns : m->awake_ns;
    return from_ns + m->job.heartbeat_ms * CT_NS_PER_MS;
}

/* Returns for how long nothing was heard from the member while this process ran. */
static int64_t silence_ns(const struct ct_members *m, const struct ct_member *member,
                          int64_t now_ns)
{
    return now_ns - (member->heard_ns > m->awake_ns ? member->heard_ns : m->awake_ns);
}

/* Gives a silent member more time, up to twice the heartbeat timeout, if its machine still sends
 * acknowledgements. Then its messages may only be delayed. A member of this process always gets it.
 * Returns false if the machine is silent, too, or the time is over. */
static bool excuse(struct ct_members *m, struct ct_member *member, int64_t now_ns)
{
    int64_t budget_ns = m->job.heartbeat_ms * CT_NS_PER_MS;
    int64_t quiet_ns =
        m->options.quiet_ns != NULL ? m->options.quiet_ns(m->options.data, member) : NEVER;
    int64_t silent_ns = silence_ns(m, member, now_ns), latest_ns = now_ns - silent_ns + budget_ns;
    if (quiet_ns < 0) {
        quiet_ns = 0;
        latest_ns = now_ns;
    } else if (quiet_ns >= budget_ns || silent_ns >= 2 * budget_ns) {
        return false;
    }
    member->alive_ns = now_ns - quiet_ns < latest_ns ? now_ns - quiet_ns : latest_ns;
    ct_list_remove(&member->silence);
    struct ct_list *before = m->silence.prev;
    while (before != &m->silence && MEMBER_OF(before, silence)->alive_ns > member->alive_ns) {
        before = before->prev;
    }
    ct_list_append(before->next, &member->silence); /* behind `before` */
    return true;
}

static void judge_silence(struct ct_members *m, int64_t now_ns)
{
    int64_t budget_ns = m->job.heartbeat_ms * CT_NS_PER_MS;
    if (silence_due(m) > now_ns) {
        return;
    }
    if (now_ns - silence_due(m) > budget_ns / 10) {
        /* This process did not run for a while. What came in the meantime is still unread. If the
         * whole job was suspended, the other machines sent nothing, and may go on later than this
         * one. */
        m->awake_ns = now_ns;
        return;
    }
    while (silence_due(m) <= now_ns) {
        struct ct_member *member = MEMBER_OF(m->silence.next, silence);
        if (excuse(m, member, now_ns)) {
            continue;
        }
        char why[128];
        (void)snprintf(why, sizeof(why), "nothing was heard from it for %.1f s",
                       (double)silence_ns(m, member, now_ns) / CT_NS_PER_S);
        refuse(m, member, why);
        members_round_left(m, member, CT_FAILURE_SILENT, why, true, now_ns);
    }
}

void ct_members_tick(struct ct_members *m, int64_t now_ns)
{
    judge_silence(m, now_ns);
    members_hang_tick(m, now_ns);
    members_failover_tick(m, now_ns);
    members_round_tick(m, now_ns);
}

int64_t ct_members_next(const struct ct_members *m)
{
    int64_t silent_ns = silence_due(m), due_ns = members_round_next(m);
    int64_t quorum_ns = members_failover_next(m);
    due_ns = quorum_ns < due_ns ? quorum_ns : due_ns;
    due_ns = m->stands_due_ns < due_ns ? m->stands_due_ns : due_ns;
    return silent_ns < due_ns ? silent_ns : due_ns;
}
