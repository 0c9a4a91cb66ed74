/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_control_take() opens a channel. Its peer proves the token (or is trusted) and
 * joins the core of the job that it names. From then on its messages go to the core, and the core's
 * messages go to the channels. One timer serves all deadlines, also those of connections that have
 * not come so far, or are being ended (pending_conns.h).
 *
 * A station (control_station_uv.h) answers one ASK on a connection instead of JOIN. While it hosts,
 * it takes members and probes those that are lost (death_probe_uv.h). Else it says who hosts.
 *
 * The JOIN of a ctrun that comes before the end of its former life is held (held_joins.h).
 *
 * Other paths: when the core drops a member, what was sent to it is still flushed. A job whose last
 * agent is gone is forgotten, so that its id can be used again.
 *
 * Failure modes: a wrong token, a wrong version or a malformed frame ends that channel and nothing
 * else. Refusals are logged at a limited rate. A channel also ends if the proof takes too long, or
 * if the agent does not read what is sent to it.
 *
 * Who frees: on_channel_closed() frees a connection. A job is freed with its last connection, or
 * with the struct ct_control.
 */
#include "rendezvous/server/control_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/admission/access.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/control/channel_uv.h"
#include "rendezvous/control/proof.h"
#include "rendezvous/server/control_jobs.h"
#include "rendezvous/server/death_probe_uv.h"
#include "rendezvous/server/held_joins.h"
#include "rendezvous/server/pending_conns.h"
#include "rendezvous/server/tick_timer_uv.h"
#include "rendezvous/wire/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum state {
    OPENING, /* no message has come yet */
    PROVING, /* the challenge was sent */
    PROVEN,  /* JOIN must come next */
    HELD,    /* its JOIN is held */
    JOINED,  /* a member, or a guest (CT_MSG_GUEST) */
    ENDING,  /* dropped; the rest is being sent */
};

struct conn {
    struct ct_channel channel;
    struct ct_control *control;
    struct ct_list at_joined;
    struct ct_pending_conn pending;
    enum state state;
    struct ct_control_job *job;
    struct ct_member *member; /* NULL = it is not a member, or no longer */
    struct sockaddr_storage peer, local;
    struct ct_proof proof;
    bool trusted;   /* the other end is in this process */
    bool admitted;  /* on_admit has counted it */
    bool queries;   /* its agent understands CT_MSG_QUERY */
    uint64_t voter; /* of its JOIN; 0 = none */
    uint64_t term;  /* in which it was told that this one hosts; 0 = it was not */
};

struct ct_control {
    struct ct_control_options options;
    uv_loop_t *loop;
    struct ct_tick_timer timer;
    struct ct_control_jobs jobs;
    struct ct_pending_conns pending;
    struct ct_list joined; /* and those whose JOIN is held */
    struct ct_held_joins held;
    size_t conns; /* connections that are not freed yet */
    struct ct_refusal_log refusals;
    struct ct_refusal_log faults; /* channels that broke the protocol */
    struct ct_channel_turns turns;
    struct ct_queries queries;           /* to agents, by their `struct conn` */
    struct ct_probes *probes;            /* NULL = this is no station */
    struct ct_members_failover failover; /* while a station hosts; else its term is 0 */
    bool deposed;                        /* the core has said so in this tick */
    bool timer_open, turns_open, probes_open, closing;
    void (*close_cb)(void *data);
    void *close_data;
};

#define CONN_COST (sizeof(struct conn) + CT_BLOCK_COST)

static void rearm(struct ct_control *control);

/* ---- closing -------------------------------------------------------------------------------- */

static void finish_if_last(struct ct_control *control)
{
    if (!control->closing || control->timer_open || control->turns_open || control->probes_open ||
        control->conns > 0) {
        return;
    }
    void (*cb)(void *data) = control->close_cb;
    void *data = control->close_data;
    ct_control_jobs_fini(&control->jobs);
    ct_free(control);
    if (cb != NULL) {
        cb(data);
    }
}

static void leave_list(struct conn *conn)
{
    ct_pending_conns_remove(&conn->control->pending, &conn->pending);
    ct_held_joins_remove(&conn->control->held, conn);
    ct_list_remove(&conn->at_joined);
}

static void wait_for(struct conn *conn)
{
    bool unproved = !conn->trusted && !conn->admitted;
    ct_pending_conns_add(&conn->control->pending, &conn->pending,
                         unproved ? (const struct sockaddr *)&conn->peer : NULL,
                         ct_clock_now(NULL));
}

/* A member is lost. */
static void probe(struct conn *conn)
{
    if (conn->control->probes != NULL && !conn->control->closing) {
        ct_probes_left(conn->control->probes, conn->voter);
    }
    conn->voter = 0;
}

static void tell_gone(struct conn *conn, const char *why)
{
    struct ct_member *member = conn->member;
    conn->member = NULL;
    probe(conn);
    if (member != NULL && !conn->control->closing) {
        ct_members_gone(conn->job->members, member, why, ct_clock_now(NULL));
        rearm(conn->control);
    }
    ct_queries_gone(&conn->control->queries, conn);
}

static void on_channel_closed(struct ct_channel *channel)
{
    struct conn *conn = CT_CONTAINER_OF(channel, struct conn, channel);
    struct ct_control *control = conn->control;
    tell_gone(conn, "the connection was closed");
    if (conn->admitted) {
        (void)control->options.on_admit(control->options.data, (const struct sockaddr *)&conn->peer,
                                        false);
    }
    leave_list(conn);
    if (conn->job != NULL) {
        ct_control_jobs_release(&control->jobs, conn->job);
    }
    ct_free(conn);
    if (control->options.budget != NULL) {
        ct_budget_give(control->options.budget, CONN_COST);
    }
    control->conns--;
    finish_if_last(control);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_control *control = CT_CONTAINER_OF(handle, struct ct_control, timer.handle);
    control->timer_open = false;
    finish_if_last(control);
}

static void on_turns_closed(uv_handle_t *handle)
{
    struct ct_control *control = CT_CONTAINER_OF(handle, struct ct_control, turns.idle);
    control->turns_open = false;
    finish_if_last(control);
}

static void on_probes_closed(void *data)
{
    struct ct_control *control = data;
    control->probes_open = false;
    finish_if_last(control);
}

static void close_late(struct ct_control *control, int64_t now_ns)
{
    struct ct_pending_conn *late = ct_pending_conns_late(&control->pending, now_ns);
    while (late != NULL) {
        ct_channel_close(&CT_CONTAINER_OF(late, struct conn, pending)->channel);
        late = ct_pending_conns_late(&control->pending, now_ns);
    }
}

void ct_control_close(struct ct_control *control, void (*cb)(void *data), void *data)
{
    if (control == NULL) {
        if (cb != NULL) {
            cb(data);
        }
        return;
    }
    control->closing = true;
    control->close_cb = cb;
    control->close_data = data;
    close_late(control, INT64_MAX);
    for (struct ct_list *at = control->joined.next; at != &control->joined; at = at->next) {
        ct_channel_close(&CT_CONTAINER_OF(at, struct conn, at_joined)->channel);
    }
    uv_close((uv_handle_t *)&control->timer.handle, on_timer_closed);
    uv_close((uv_handle_t *)&control->turns.idle, on_turns_closed);
    if (control->probes != NULL) {
        ct_probes_close(control->probes, on_probes_closed, control);
    }
}

/* ---- refusing ------------------------------------------------------------------------------- */

static void end_soon(struct conn *conn)
{
    leave_list(conn);
    conn->state = ENDING;
    wait_for(conn);
    ct_channel_finish(&conn->channel);
}

static void refuse(struct conn *conn, int exit_code, const char *why)
{
    struct ct_control *control = conn->control;
    char peer[CT_ADDR_TEXT_MAX];
    uint64_t unreported = ct_refusal_log_add(&control->refusals, uv_now(control->loop));
    if (unreported > 0) {
        ct_addr_format((const struct sockaddr *)&conn->peer, peer, sizeof(peer));
        ct_log(control->options.log, CT_LOG_WARNING,
               "store: refused %" PRIu64 " agent%s, the last from %s: %s", unreported,
               unreported == 1 ? "" : "s", conn->trusted ? "this process" : peer, why);
    }
    ct_channel_send_text(&conn->channel, CT_MSG_REFUSED, exit_code, why);
    end_soon(conn);
}

/* ---- the proof ------------------------------------------------------------------------------ */

static void on_open_msg(struct conn *conn, struct ct_msg *msg)
{
    struct ct_err err = {0};
    if (ct_proof_challenge(&conn->proof, conn->control->options.token, msg, &err) != 0) {
        refuse(conn, 1, err.text);
        return;
    }
    conn->state = PROVING;
    ct_channel_send(&conn->channel, msg);
}

static void on_answer_msg(struct conn *conn, struct ct_msg *msg)
{
    const struct ct_control_options *options = &conn->control->options;
    struct ct_err err = {0};
    if (ct_proof_check(&conn->proof, options->token, msg, &err) != 0) {
        refuse(conn, 1, err.text);
        return;
    }
    if (options->token != NULL && options->on_admit != NULL) {
        conn->admitted =
            options->on_admit(options->data, (const struct sockaddr *)&conn->peer, true);
        ct_pending_conns_proved(&conn->control->pending, &conn->pending);
    }
    conn->state = PROVEN;
    if (options->token != NULL) {
        const struct ct_proof *proof = &conn->proof;
        ct_frame_mac_start(&conn->channel.mac_in, options->token, CT_ROLE_AGENT,
                           proof->server_nonce, proof->agent_nonce);
        ct_frame_mac_start(&conn->channel.mac_out, options->token, CT_ROLE_SERVER,
                           proof->server_nonce, proof->agent_nonce);
    }
    conn->channel.max_frame = CT_CONTROL_MAX_JOIN;
    msg->type = CT_MSG_ACCEPTED;
    conn->term = conn->control->failover.term;
    if (conn->term != 0) {
        ct_control_station_introduce(options->station, &conn->control->failover, msg);
    }
    ct_addr_host((const struct sockaddr *)&conn->peer, msg->text, sizeof(msg->text));
    ct_channel_send(&conn->channel, msg);
}

/* ---- joining -------------------------------------------------------------------------------- */

static void send_to(void *data, struct ct_member *member, const struct ct_msg *msg)
{
    (void)data;
    struct conn *conn = ct_member_conn(member);
    ct_channel_send(&conn->channel, msg);
    if (ct_channel_backlog(&conn->channel) > CT_CONTROL_MAX_BACKLOG) {
        ct_channel_close(&conn->channel); /* on_channel_closed() tells the core */
    }
}

static int64_t quiet_ns(void *data, const struct ct_member *member)
{
    const struct conn *conn = ct_member_conn(member);
    (void)data;
    return conn->trusted ? -1 : ct_channel_quiet_ns(&conn->channel);
}

static void drop(void *data, struct ct_member *member)
{
    (void)data;
    struct conn *conn = ct_member_conn(member);
    conn->member = NULL;
    probe(conn);
    if (!conn->channel.closing) {
        end_soon(conn);
    }
}

static void let_stay(struct conn *conn)
{
    leave_list(conn);
    conn->state = JOINED;
    ct_list_append(&conn->control->joined, &conn->at_joined);
}

/* Keeps the JOIN, but not the job, which ends with its last member. Returns false if it cannot. */
static bool hold(struct conn *conn, const struct ct_msg_join *join, int64_t now_ns)
{
    struct ct_control *control = conn->control;
    if (conn->state != HELD) {
        if (!ct_held_joins_add(&control->held, conn, join, now_ns)) {
            return false;
        }
        conn->state = HELD;
        ct_channel_send_text(&conn->channel, CT_MSG_WAITING, 0,
                             "the job still counts an earlier ctrun of this machine, and waits a "
                             "moment for its end");
    }
    ct_control_jobs_release(&control->jobs, conn->job);
    conn->job = NULL;
    return true;
}

static void on_member(struct conn *conn, const struct ct_msg_join *join)
{
    struct ct_control *control = conn->control;
    if (control->probes != NULL && !conn->trusted && conn->member != NULL) {
        const struct ct_voter voter = ct_control_station_voter((const struct sockaddr *)&conn->peer,
                                                               join->voter.id, join->voter.port);
        conn->voter = voter.id;
        ct_probes_joined(control->probes, &voter);
    }
    if (control->options.on_join != NULL) {
        control->options.on_join(control->options.join_data, join);
    }
}

/* Takes the node into its job, refuses it, or holds its JOIN, which came at `since_ns`. */
static void enter(struct conn *conn, const struct ct_msg_join *join, int64_t since_ns)
{
    struct ct_members *members = conn->job->members;
    struct ct_err err = {0};
    char address[CT_HOST_MAX]; /* "" in this process, where the socket has none */
    int64_t now_ns = ct_clock_now(NULL);
    ct_addr_host((const struct sockaddr *)&conn->peer, address, sizeof(address));
    /* The core may answer, or even drop the member, before this returns. */
    int rc = ct_members_join(members, join, address, conn, now_ns, &conn->member, &err);
    if (rc == 0) {
        conn->state = conn->state == ENDING ? ENDING : JOINED;
        on_member(conn, join);
        ct_held_joins_remove(&conn->control->held, conn);
        return;
    }
    if (rc == CT_MEMBERS_E_BEHIND) {
        ct_channel_close(&conn->channel);
        return;
    }
    if ((rc == CT_EBUSY || rc == CT_ELIMIT) &&
        ct_members_holds(members, join, address, since_ns, now_ns) && hold(conn, join, now_ns)) {
        return;
    }
    int missed = ct_members_missed_end(members, &join->voter);
    refuse(conn, missed >= 0 ? missed : rc == CT_EINVAL ? 2 : 1, err.text);
}

/* The JOIN came at `since_ns`, and may have been held since. */
static void on_join(struct conn *conn, const struct ct_msg_join *join, int64_t since_ns)
{
    struct ct_control *control = conn->control;
    struct ct_err err = {0};
    /* It does not host, or hosts in another term. An agent pledges nothing of a term of which it
     * was not told, so no world with it would ever begin. */
    bool told = conn->trusted || conn->term == control->failover.term;
    if (control->options.station != NULL && (control->failover.term == 0 || !told)) {
        ct_control_station_send_on(control->options.station, &conn->channel);
        end_soon(conn);
        return;
    }
    int rc = ct_control_jobs_take(&control->jobs, join->run_id, &conn->job, &err);
    if (rc != 0) {
        refuse(conn, rc == CT_EINVAL ? 2 : 1, err.text);
        return;
    }
    char own[CT_HOST_MAX]; /* "" in this process, which tells nothing */
    ct_addr_host((const struct sockaddr *)&conn->local, own, sizeof(own));
    ct_members_reached(conn->job->members, own,
                       !ct_access_is_here((const struct sockaddr *)&conn->peer,
                                          (const struct sockaddr *)&conn->local));
    if (conn->state == PROVEN) {
        size_t most = CT_CONTROL_MAX_OF_NODE(join->workers);
        conn->channel.max_frame = most < CT_CONTROL_MAX_FRAME ? most : CT_CONTROL_MAX_FRAME;
        conn->queries = join->queries;
        let_stay(conn);
    }
    enter(conn, join, since_ns);
}

static void on_join_again(const struct ct_held_join *held)
{
    struct conn *conn = held->conn;
    const struct ct_msg_join join = held->join; /* what is held is freed */
    if (!conn->channel.closing) {
        on_join(conn, &join, held->since_ns);
    }
}

/* Guests may stay for as long as they like. Only a store with a token has a use for them. */
static void on_guest_msg(struct conn *conn)
{
    if (conn->control->options.token != NULL) {
        let_stay(conn);
    } else {
        refuse(conn, 1, "this store serves workers without a token, so it takes no guests");
    }
}

/* ---- a station ------------------------------------------------------------------------------ */

static void on_record(void *data, const struct ct_job_record *record)
{
    const struct ct_control_station *station = ((struct ct_control *)data)->options.station;
    if (station->on_record != NULL) {
        station->on_record(station->data, record);
    }
}

static void on_deposed(void *data)
{
    ((struct ct_control *)data)->deposed = true;
}

static void on_dead(void *data, uint64_t id)
{
    struct ct_control *control = data;
    if (control->closing) {
        return;
    }
    if (control->failover.num_dead < CT_VOTERS_BOTH) { /* the job may begin only now */
        control->failover.dead[control->failover.num_dead++] = id;
    }
    ct_control_jobs_dead(&control->jobs, id, ct_clock_now(NULL));
    rearm(control);
}

void ct_control_host(struct ct_control *control, const struct ct_members_failover *failover)
{
    CT_ASSERT(control->options.station != NULL);
    control->failover = *failover;
    control->jobs.options.failover = &control->failover;
    ct_control_station_probe(control->probes, failover);
    control->failover.reached = NULL;
    control->failover.num_reached = 0;
}

void ct_control_arbiter(struct ct_control *control, const struct ct_arbiter_pledge *pledge)
{
    control->failover.arbiter_there = pledge != NULL;
    control->failover.arbiter_said_ns = pledge != NULL ? pledge->sent_ns : 0;
    ct_control_jobs_arbiter(&control->jobs, pledge, ct_clock_now(NULL));
    rearm(control);
}

bool ct_control_stands_no_more(const struct ct_control *control, uint64_t id)
{
    return ct_control_jobs_stands_no_more(&control->jobs, id);
}

/* Drops the members of one job; NULL = of all. Their cores are to be freed. */
static void send_on(struct ct_control *control, const struct ct_control_job *job,
                    const struct ct_voter *next)
{
    for (struct ct_list *at = control->joined.next, *after; at != &control->joined; at = after) {
        struct conn *conn = CT_CONTAINER_OF(at, struct conn, at_joined);
        after = at->next;
        if (conn->job == NULL || (job != NULL && conn->job != job)) {
            continue;
        }
        conn->member = NULL;
        ct_probes_forget(control->probes, conn->voter);
        conn->voter = 0;
        if (next != NULL && !conn->trusted) {
            ct_control_station_send_host(&conn->channel, next);
            end_soon(conn);
        } else {
            ct_channel_close(&conn->channel);
        }
    }
}

void ct_control_unhost(struct ct_control *control, const struct ct_voter *next)
{
    control->failover = (struct ct_members_failover){.term = 0};
    send_on(control, NULL, next);
    ct_control_jobs_end(&control->jobs);
    rearm(control);
}

void ct_control_move(struct ct_control *control, const char *run_id, const struct ct_voter *next)
{
    struct ct_control_job *job = ct_control_jobs_waiting(&control->jobs, run_id);
    if (job != NULL) {
        send_on(control, job, next);
        ct_control_jobs_end_one(&control->jobs, job);
        rearm(control);
    }
}

/* ---- the channel ---------------------------------------------------------------------------- */

/* The agent must know that the store lives, and may change its mind. */
static void on_held_msg(struct conn *conn, struct ct_msg *msg)
{
    if (msg->type == CT_MSG_BEAT) {
        ct_channel_answer_beat(&conn->channel, msg, -1);
    } else {
        ct_channel_close(&conn->channel);
    }
}

static void on_member_msg(struct conn *conn, struct ct_msg *msg)
{
    if (conn->member == NULL) {
        return;
    }
    if (msg->type == CT_MSG_RESULT) {
        ct_queries_result(&conn->control->queries, conn, msg->query.id, msg->ok,
                          msg->result != NULL ? msg->result : "");
        return;
    }
    ct_members_message(conn->job->members, conn->member, msg, ct_clock_now(NULL));
    if (msg->type == CT_MSG_BEAT && conn->member != NULL) {
        ct_channel_answer_beat(&conn->channel, msg,
                               ct_members_lease_ms(conn->job->members, ct_clock_now(NULL)));
    }
}

static void on_msg(struct ct_channel *channel, struct ct_msg *msg)
{
    struct conn *conn = CT_CONTAINER_OF(channel, struct conn, channel);
    if (conn->state == OPENING && msg->type == CT_MSG_OPEN) {
        on_open_msg(conn, msg);
    } else if (conn->state == PROVING && msg->type == CT_MSG_ANSWER) {
        on_answer_msg(conn, msg);
    } else if (conn->state == PROVEN && msg->type == CT_MSG_ASK && !conn->trusted &&
               conn->control->options.station != NULL) {
        ct_control_station_answer(conn->control->options.station, &conn->channel,
                                  (const struct sockaddr *)&conn->peer, msg);
        end_soon(conn);
    } else if (conn->state == PROVEN && msg->type == CT_MSG_JOIN) {
        on_join(conn, &msg->join, ct_clock_now(NULL));
    } else if (conn->state == PROVEN && msg->type == CT_MSG_GUEST) {
        on_guest_msg(conn);
    } else if (conn->state == HELD && (msg->type == CT_MSG_BEAT || msg->type == CT_MSG_LEAVE)) {
        on_held_msg(conn, msg);
    } else if (conn->state == JOINED) {
        on_member_msg(conn, msg);
    } else if (conn->state != ENDING) {
        refuse(conn, 1, "it broke the agents' protocol");
    }
    rearm(conn->control);
}

static void on_channel_end(struct ct_channel *channel, const struct ct_err *err)
{
    struct conn *conn = CT_CONTAINER_OF(channel, struct conn, channel);
    struct ct_control *control = conn->control;
    uint64_t unreported =
        err->code != CT_ECLOSED ? ct_refusal_log_add(&control->faults, uv_now(control->loop)) : 0;
    if (unreported > 0) {
        char peer[CT_ADDR_TEXT_MAX], others[CT_REFUSALS_TEXT_MAX];
        ct_addr_format((const struct sockaddr *)&conn->peer, peer, sizeof(peer));
        ct_log(control->options.log, CT_LOG_WARNING, "store: agent at %s: %s%s", peer, err->text,
               ct_refusals_others(unreported, others));
    }
    /* The core is told now, so that other members hear of it before the channel is closed. */
    tell_gone(conn, err->text);
    ct_channel_close(channel);
}

/* ---- deadlines ------------------------------------------------------------------------------ */

static void tick(struct ct_tick_timer *timer, int64_t now_ns)
{
    struct ct_control *control = CT_CONTAINER_OF(timer, struct ct_control, timer);
    close_late(control, now_ns);
    ct_control_jobs_tick(&control->jobs, now_ns);
    ct_held_joins_tick(&control->held, now_ns, on_join_again);
    if (control->deposed) {
        control->deposed = false;
        control->options.station->on_deposed(control->options.station->data);
    }
    ct_queries_tick(&control->queries, now_ns);
    rearm(control);
}

static int64_t next_deadline(const struct ct_control *control)
{
    int64_t next_ns = ct_pending_conns_next(&control->pending);
    int64_t jobs_ns = ct_control_jobs_next(&control->jobs);
    int64_t queries_ns = ct_queries_next(&control->queries);
    next_ns = queries_ns < next_ns ? queries_ns : next_ns;
    int64_t held_ns = ct_held_joins_next(&control->held);
    next_ns = held_ns < next_ns ? held_ns : next_ns;
    return jobs_ns < next_ns ? jobs_ns : next_ns;
}

static void rearm(struct ct_control *control)
{
    if (!control->closing) {
        ct_tick_timer_arm(&control->timer, next_deadline(control));
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

int ct_control_open(uv_loop_t *loop, const struct ct_control_options *options,
                    struct ct_control **out, struct ct_err *err)
{
    struct ct_control *control = ct_calloc(1, sizeof(*control));
    if (control == NULL || (options->station != NULL &&
                            ct_probes_open(loop, on_dead, control, &control->probes) != 0)) {
        ct_free(control);
        return ct_err_set(err, CT_ENOMEM, "no memory for the agents");
    }
    control->probes_open = control->probes != NULL;
    control->options = *options;
    control->held.budget = options->budget;
    control->loop = loop;
    struct timespec unix_time = {0};
    (void)clock_gettime(CLOCK_REALTIME, &unix_time);
    const struct ct_members_options members = {
        .log = options->log,
        .budget = options->budget,
        .faults = &control->faults,
        .epoch_ms = (int64_t)unix_time.tv_sec * 1000 + unix_time.tv_nsec / CT_NS_PER_MS -
                    ct_clock_now(NULL) / CT_NS_PER_MS,
        .job = options->job,
        .proved = options->token != NULL,
        .expected = options->expected,
        .num_expected = options->num_expected,
        .send = send_to,
        .quiet_ns = quiet_ns,
        .drop = drop,
        .arbitrate = options->station != NULL ? on_record : NULL,
        .deposed = options->station != NULL ? on_deposed : NULL,
        .data = control,
    };
    ct_control_jobs_init(&control->jobs, &members, options->run_id);
    control->jobs.keep = options->keep_job;
    ct_pending_conns_init(&control->pending, options->max_pending);
    ct_list_init(&control->joined);
    ct_tick_timer_init(&control->timer, loop, tick);
    control->timer_open = true;
    ct_channel_turns_init(&control->turns, loop);
    control->turns_open = true;
    *out = control;
    return 0;
}

/* Silent peers must not take all descriptors. */
static void end_one_too_many(struct ct_control *control)
{
    struct ct_pending_conn *end = ct_pending_conns_one_too_many(&control->pending);
    if (end != NULL) {
        ct_channel_close(&CT_CONTAINER_OF(end, struct conn, pending)->channel);
    }
}

void ct_control_take(struct ct_control *control, int fd, bool trusted)
{
    struct conn *conn = ct_calloc(1, sizeof(*conn));
    if (conn == NULL || control->closing) {
        ct_free(conn);
        (void)close(fd);
        return;
    }
    socklen_t len = sizeof(conn->peer);
    (void)getpeername(fd, (struct sockaddr *)&conn->peer, &len);
    len = sizeof(conn->local);
    (void)getsockname(fd, (struct sockaddr *)&conn->local, &len);
    conn->channel.on_msg = on_msg;
    conn->channel.on_end = on_channel_end;
    conn->channel.on_closed = on_channel_closed;
    ct_channel_init_fd(&conn->channel, control->loop, fd);
    conn->control = control;
    ct_list_init(&conn->at_joined);
    ct_pending_conn_init(&conn->pending);
    conn->channel.turns = &control->turns;
    conn->channel.budget = control->options.budget;
    if (conn->channel.budget != NULL) {
        ct_budget_force(conn->channel.budget, CONN_COST);
    }
    conn->trusted = trusted;
    conn->state = trusted ? PROVEN : OPENING;
    control->conns++;
    wait_for(conn);
    end_one_too_many(control);
    if (ct_channel_start(&conn->channel,
                         trusted ? CT_CONTROL_MAX_FRAME : CT_CONTROL_MAX_GREETING) != 0) {
        ct_channel_close(&conn->channel);
    }
    rearm(control);
}

/* ---- questions to agents and about them ----------------------------------------------------- */

int ct_control_ask(struct ct_control *control, int job, int rank, const char *kind, ct_query_fn fn,
                   void *data, int *id, struct ct_err *err)
{
    int generation = 0;
    const struct ct_control_job *found = ct_control_jobs_numbered(&control->jobs, job);
    const struct ct_member *member = found != NULL && !control->closing
                                         ? ct_members_of_rank(found->members, rank, &generation)
                                         : NULL;
    if (member == NULL) {
        return ct_err_set(err, CT_ENOENT, "no machine runs this rank now");
    }
    struct conn *conn = ct_member_conn(member);
    if (!conn->queries) {
        return ct_err_set(err, CT_EUNSUPPORTED, "the ctrun of this worker is too old to be asked");
    }
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg));
    if (msg == NULL) {
        return ct_err_set(err, CT_ENOMEM, "the store is out of memory");
    }
    int rc = ct_queries_begin(&control->queries, conn, ct_clock_now(NULL), fn, data, &msg->query.id,
                              err);
    if (rc == 0) {
        *id = msg->query.id;
        msg->type = CT_MSG_QUERY;
        msg->generation = generation;
        msg->query.rank = rank;
        (void)snprintf(msg->query.kind, sizeof(msg->query.kind), "%s", kind);
        ct_channel_send(&conn->channel, msg);
        rearm(control);
    }
    ct_free(msg);
    return rc;
}

void ct_control_forget(struct ct_control *control, int id)
{
    ct_queries_forget(&control->queries, id);
}

bool ct_control_busy(const struct ct_control *control)
{
    return !ct_list_empty(&control->joined);
}

int ct_control_status(const struct ct_control *control, struct ct_status_rows *rows,
                      struct cJSON *root, struct cJSON *problems)
{
    return ct_control_jobs_status(&control->jobs, ct_clock_now(NULL), rows, root, problems);
}
