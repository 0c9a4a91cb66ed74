/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: resolve the name (a literal address needs no thread), connect, make the proof (see
 * control.h), and call on_up. Then messages pass both ways, and a BEAT is sent every third of the
 * heartbeat, and sooner while the last one has no answer. A local link is one end of a
 * socketpair(2) whose other end the server in this process takes. It has no proof.
 *
 * Other paths: the server may start later than this process, and its name may become known even
 * later. After every failure before on_up there is another attempt, with growing pauses, until
 * `connect_ms` have passed. If the server closes the connection during the proof, it is tried again
 * for a few seconds only, because it is probably no store of ctrun.
 *
 * Failure modes: any error after on_up ends the link through on_lost. So does silence for the
 * heartbeat timeout of our JOIN, or for twice that time if the server's machine still sends
 * acknowledgements. A server that gives leases is not excused: its link ends with the last lease.
 *
 * Who frees: finish_if_last() frees the link when channels, resolver and timer are closed. Each
 * attempt has a channel of its own, because a handle cannot connect twice.
 */
#include "rendezvous/client/link_uv.h"

#include "common/addr.h"
#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/control/channel_uv.h"
#include "rendezvous/control/proof.h"
#include "rendezvous/server/server_uv.h"
#include "rendezvous/wire/port_holder.h"

#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The first pause between two attempts. Each next one is twice as long, up to the maximum. */
#define RETRY_FIRST_MS 20
#define RETRY_MAX_MS 1000

/* How long to retry with a server that accepts connections and closes them without an answer. */
#define HANGUP_MS 3000

/* A firewall that drops packets gives no answer, and the kernel repeats its SYN less and less
 * often. A new attempt notices sooner that the firewall was opened. */
#define ATTEMPT_MS 5000

/* When the first warning comes that the store cannot be reached, and how often it is repeated.
 * The warning about missing nodes has the same times. */
#define WARN_AFTER_MS 5000
#define WARN_EVERY_MS 30000
/* An unknown name is usually mistyped, so its first warning comes at once. It is no error, because
 * the name of a Kubernetes pod may be published later. */
#define WARN_NAME_EVERY_MS 15000

#define HOLDER_MAX 160

/* Beats within the heartbeat timeout, so that two may be lost or late. While a beat has no answer,
 * the next ones come BEATS_SOONER times sooner, because three losses in a row are not rare on a
 * network that loses a tenth of its packets. */
#define BEATS 3
#define BEATS_SOONER 4
/* And more often where each answer prolongs a lease, since a late one would end the generation. */
#define BEATS_OF_LEASE 2

enum link_state {
    LINK_RESOLVING,
    LINK_CONNECTING,
    LINK_PROVING,
    LINK_UP,
    LINK_RETRYING,
    LINK_LOST
};

struct attempt {
    struct ct_channel channel;
    uv_connect_t connect;
    struct ct_link *link; /* the link that it belongs to */
};

struct ct_link {
    struct ct_link_options options;
    uv_loop_t *loop;
    enum link_state state;
    uv_timer_t timer;
    uv_getaddrinfo_t resolver;
    struct attempt *attempt; /* NULL = none */
    bool resolving;          /* the loop uses `resolver` */
    int64_t begun_ns, heard_ns;
    int64_t hangup_ns; /* when the server first closed a connection during the proof; 0 = never */
    int64_t warned_ns; /* when the last warning came that the store cannot be reached; 0 = never */
    int64_t beat_ns;   /* when the last beat was sent */
    uint64_t retry_ms;
    int64_t heartbeat_ms; /* 0 = not known yet */
    int64_t lease_ns;     /* when the lease ends; 0 = the server gives none */
    uint64_t beat_ms;     /* from beat to beat */
    struct ct_err last;   /* why the last attempt failed */
    bool refused;         /* because nobody listens there */
    struct ct_msg *msg;   /* for messages of the link itself */
    struct ct_proof proof;
    char host[CT_HOST_MAX];
    char own_address[CT_HOST_MAX];
    struct ct_link_host there;
    bool timer_open, closing;
    size_t attempts; /* attempts whose channel is not closed yet */
    ct_link_close_fn close_cb;
    void *close_data;
};

/* ---- closing -------------------------------------------------------------------------------- */

/* Frees the link when it is closing and the loop uses nothing of it any more. */
static void finish_if_last(struct ct_link *link)
{
    if (!link->closing || link->timer_open || link->resolving || link->attempts > 0) {
        return;
    }
    ct_link_close_fn cb = link->close_cb;
    void *data = link->close_data;
    ct_free(link->msg);
    ct_free(link);
    if (cb != NULL) {
        cb(data);
    }
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct ct_link *link = CT_CONTAINER_OF(handle, struct ct_link, timer);
    link->timer_open = false;
    finish_if_last(link);
}

static void on_channel_closed(struct ct_channel *channel)
{
    struct attempt *attempt = CT_CONTAINER_OF(channel, struct attempt, channel);
    struct ct_link *link = attempt->link;
    if (link->attempt == attempt) {
        link->attempt = NULL;
    }
    ct_free(attempt);
    link->attempts--;
    if (link->closing && link->attempt == NULL && !uv_is_closing((uv_handle_t *)&link->timer)) {
        uv_close((uv_handle_t *)&link->timer,
                 on_timer_closed); /* everything was flushed before the timer fired */
    }
    finish_if_last(link);
}

/* Gives up the present connection, if there is one. */
static void hang_up(struct ct_link *link)
{
    if (link->attempt != NULL) {
        ct_channel_close(&link->attempt->channel);
        link->attempt = NULL;
    }
}

static void on_flush_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    hang_up(link);
    uv_close((uv_handle_t *)timer, on_timer_closed);
}

void ct_link_close(struct ct_link *link, uint64_t flush_ms, ct_link_close_fn cb, void *data)
{
    if (link == NULL) {
        if (cb != NULL) {
            cb(data);
        }
        return;
    }
    link->closing = true;
    link->close_cb = cb;
    link->close_data = data;
    if (link->resolving) {
        (void)uv_cancel((uv_req_t *)&link->resolver);
    }
    if (link->state == LINK_UP && flush_ms > 0) {
        (void)uv_timer_start(&link->timer, on_flush_timer, flush_ms, 0);
        ct_channel_finish(&link->attempt->channel);
        return;
    }
    hang_up(link);
    uv_close((uv_handle_t *)&link->timer, on_timer_closed);
}

/* ---- losing --------------------------------------------------------------------------------- */

static int64_t elapsed_ms(int64_t since_ns)
{
    return (ct_clock_now(NULL) - since_ns) / CT_NS_PER_MS;
}

/* Ends the link for good. `err` is copied. */
static void lose(struct ct_link *link, const struct ct_err *err)
{
    if (link->state == LINK_LOST || link->closing) {
        return;
    }
    struct ct_err copy = *err; /* it may be link->last, and the callback may close */
    link->state = LINK_LOST;
    (void)uv_timer_stop(&link->timer);
    hang_up(link);
    link->options.on_lost(link->options.data, &copy);
}

/* ---- trying again --------------------------------------------------------------------------- */

static void dial(struct ct_link *link);
static int open_local(struct ct_link *link, struct ct_err *err);
static void start_local(struct ct_link *link);

static void on_retry_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    if (link->refused && link->options.on_refused != NULL) {
        link->options.local = link->options.on_refused(link->options.data);
    }
    if (link->options.local == NULL) {
        dial(link);
    } else if (open_local(link, &link->last) == 0) {
        start_local(link);
    } else {
        lose(link, &link->last);
    }
}

/* Warns that there is no connection yet, so that a user who mistyped the address notices it long
 * before `connect_ms` are over. */
static void warn(struct ct_link *link, int64_t left_ms)
{
    bool first = link->warned_ns == 0, unknown = link->last.code == CT_ENOENT;
    int64_t since_ns = first ? link->begun_ns : link->warned_ns;
    int64_t again_ms = unknown ? WARN_NAME_EVERY_MS : WARN_EVERY_MS;
    int64_t first_ms = unknown ? 0 : WARN_AFTER_MS;
    if (elapsed_ms(since_ns) < (first ? first_ms : again_ms)) {
        return;
    }
    link->warned_ns = ct_clock_now(NULL);
    if (unknown) {
        ct_log(link->options.log, CT_LOG_WARNING,
               "the name of the job's store, %s, cannot be resolved so far: %s; trying on for "
               "%" PRId64 " s",
               link->host, link->last.text, left_ms / 1000);
    } else {
        ct_log(link->options.log, CT_LOG_WARNING,
               "cannot reach the job's store at %s:%d so far: %s; trying on for %" PRId64 " s",
               link->host, link->options.port, link->last.text, left_ms / 1000);
    }
}

/* After a failed attempt (`link->last` says why): plans the next one, or ends the link. */
static void retry(struct ct_link *link)
{
    hang_up(link);
    if (link->closing || link->state == LINK_LOST) {
        return;
    }
    if (link->options.once) {
        struct ct_err err = link->last;
        err.sys = link->refused ? ECONNREFUSED : 0;
        lose(link, &err);
        return;
    }
    int64_t left_ms = link->options.connect_ms - elapsed_ms(link->begun_ns);
    bool hangs_up = link->hangup_ns != 0 && elapsed_ms(link->hangup_ns) >= HANGUP_MS;
    link->retry_ms = link->retry_ms > 0 ? link->retry_ms : RETRY_FIRST_MS;
    /* An attempt without time left would fail and hide the reason of this failure. */
    if (left_ms <= (int64_t)link->retry_ms || hangs_up) {
        struct ct_err err = link->last;
        if (hangs_up) {
            (void)ct_err_set(&err, CT_EPROTO,
                             "%s:%d answers and hangs up: it is no store of ctrun, or does not "
                             "admit this machine",
                             link->host, link->options.port);
        } else {
            (void)ct_err_wrap(&err, "cannot reach the job's store at %s:%d", link->host,
                              link->options.port);
            err.code = CT_ETIMEDOUT; /* connect_ms is over, whatever the last attempt met */
        }
        lose(link, &err);
        return;
    }
    warn(link, left_ms);
    link->state = LINK_RETRYING;
    uint64_t pause_ms = link->retry_ms;
    link->retry_ms = link->retry_ms * 2 < RETRY_MAX_MS ? link->retry_ms * 2 : RETRY_MAX_MS;
    uv_update_time(link->loop);
    (void)uv_timer_start(&link->timer, on_retry_timer, pause_ms, 0);
}

static void fail_attempt(struct ct_link *link, int code, const char *why)
{
    (void)ct_err_set(&link->last, code, "%s", why);
    retry(link);
}

/* ---- beats ---------------------------------------------------------------------------------- */

/* Are messages only delayed? If the server's machine still sends acknowledgements, silence may last
 * twice as long. The membership gives its members the same time (members.h). */
static bool is_held_up(const struct ct_link *link, int64_t silent_ms)
{
    int64_t quiet_ms = ct_channel_quiet_ns(&link->attempt->channel) / CT_NS_PER_MS;
    return quiet_ms < link->heartbeat_ms && silent_ms / 2 < link->heartbeat_ms;
}

static void on_beat_timer(uv_timer_t *timer);

static void plan_beat(struct ct_link *link, bool answered)
{
    uint64_t after_ms = answered ? link->beat_ms : link->beat_ms / BEATS_SOONER;
    if (link->lease_ns != 0) {
        int64_t left_ms = -elapsed_ms(link->lease_ns);
        after_ms = answered ? after_ms / BEATS_OF_LEASE : after_ms;
        after_ms = left_ms < (int64_t)after_ms ? (left_ms > 0 ? (uint64_t)left_ms : 0) : after_ms;
    }
    (void)uv_timer_start(&link->timer, on_beat_timer, after_ms > 0 ? after_ms : 1, 0);
}

/* Takes the lease that the answer to a beat gives. `clock_ms` is the beat's. */
static void take_lease(struct ct_link *link, const struct ct_msg *answer)
{
    if (!answer->has_lease || answer->clock_ms > ct_clock_now(NULL) / CT_NS_PER_MS) {
        return; /* nobody has sent such a beat */
    }
    int64_t sent_ns = answer->clock_ms * CT_NS_PER_MS;
    int64_t most_ms = (int64_t)link->beat_ms * BEATS;
    int64_t lease_ms = answer->lease_ms < most_ms ? answer->lease_ms : most_ms;
    int64_t until_ns = sent_ns + lease_ms * CT_NS_PER_MS;
    link->lease_ns = until_ns > link->lease_ns ? until_ns : link->lease_ns;
    if (link->options.on_lease != NULL) {
        link->options.on_lease(link->options.data, sent_ns, lease_ms);
    }
}

/* Ends the link if its lease is over. In this process the server itself says when it must stop. */
static bool lease_is_over(struct ct_link *link)
{
    if (link->lease_ns == 0 || link->options.local != NULL || ct_clock_now(NULL) < link->lease_ns) {
        return false;
    }
    struct ct_err err = {0};
    (void)ct_err_set(&err, CT_ETIMEDOUT,
                     "the host of the job has not answered in time, or is cut off itself");
    lose(link, &err);
    return true;
}

static void on_beat_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    if (lease_is_over(link)) {
        return;
    }
    plan_beat(link, link->heard_ns >= link->beat_ns);
    /* If this process did not run (a paused machine), silence means nothing. */
    if (elapsed_ms(link->beat_ns) > link->heartbeat_ms / 2) {
        link->heard_ns = ct_clock_now(NULL);
    }
    link->beat_ns = ct_clock_now(NULL);
    int64_t silent_ms = elapsed_ms(link->heard_ns);
    if (silent_ms >= link->heartbeat_ms && !is_held_up(link, silent_ms)) {
        struct ct_err err = {0};
        (void)ct_err_set(&err, CT_ETIMEDOUT, "nothing was heard from the job's store for %.1f s",
                         (double)silent_ms / 1000);
        lose(link, &err);
        return;
    }
    memset(link->msg, 0, sizeof(*link->msg));
    link->msg->type = CT_MSG_BEAT;
    link->msg->clock_ms = ct_clock_now(NULL) / CT_NS_PER_MS;
    if (link->options.on_beat != NULL) {
        link->options.on_beat(link->options.data, link->msg);
    }
    ct_channel_send(&link->attempt->channel, link->msg);
    ct_msg_fini(link->msg);
}

/* Starts to send beats. `heartbeat_ms` is that of our JOIN. A local link has no limit, because in
 * one process no end can be lost without the other. */
static void start_beats(struct ct_link *link, int64_t heartbeat_ms)
{
    link->heartbeat_ms = link->options.local != NULL ? INT64_MAX : heartbeat_ms;
    link->heard_ns = ct_clock_now(NULL);
    link->beat_ns = link->heard_ns;
    link->beat_ms = (uint64_t)heartbeat_ms / BEATS;
    uv_update_time(link->loop);
    if (link->options.on_lease != NULL) {
        (void)uv_timer_start(&link->timer, on_beat_timer, 0,
                             0); /* without a lease there is no proof */
    } else {
        plan_beat(link, true);
    }
}

void ct_link_send(struct ct_link *link, const struct ct_msg *msg)
{
    if (link == NULL || link->state != LINK_UP || link->closing) {
        return;
    }
    if (msg->type == CT_MSG_JOIN) {
        start_beats(link, msg->join.heartbeat_ms);
    }
    ct_channel_send(&link->attempt->channel, msg);
}

/* ---- the proof ------------------------------------------------------------------------------ */

static void go_up(struct ct_link *link, const char *address)
{
    link->state = LINK_UP;
    (void)uv_timer_stop(&link->timer);
    link->attempt->channel.max_frame = CT_CONTROL_MAX_FRAME;
    link->options.on_up(link->options.data, address);
}

static void note_host(struct ct_link *link, const struct ct_msg *msg)
{
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    struct ct_link_host *there = &link->there;
    char address[CT_HOST_MAX];
    (void)uv_tcp_getpeername(&link->attempt->channel.handle.tcp, (struct sockaddr *)&addr, &len);
    ct_addr_host((const struct sockaddr *)&addr, address, sizeof(address));
    there->voter = (struct ct_voter){.id = msg->host.id, .port = link->options.port};
    there->term = msg->term;
    there->daemon = msg->daemon;
    (void)snprintf(there->voter.address, sizeof(there->voter.address), "%.*s",
                   CT_VOTER_ADDRESS_MAX - 1, address);
    (void)snprintf(there->name, sizeof(there->name), "%s", msg->join.host);
}

static void prove(struct ct_link *link)
{
    memset(link->msg, 0, sizeof(*link->msg));
    if (ct_proof_open(&link->proof, link->msg) != 0) {
        fail_attempt(link, CT_EIO, "no random numbers");
        return;
    }
    ct_channel_send(&link->attempt->channel, link->msg);
}

static void refuse_store(struct ct_link *link, int code, const char *why)
{
    struct ct_err err = {0};
    (void)ct_err_set(&err, code, "the store at %s:%d %s", link->host, link->options.port, why);
    lose(link, &err);
}

static void on_challenge(struct ct_link *link, struct ct_msg *msg)
{
    struct ct_err err = {0};
    int rc = ct_proof_answer(&link->proof, link->options.token, msg, &err);
    if (rc != 0) {
        refuse_store(link, rc, "does not have this job's token");
        return;
    }
    struct ct_channel *channel = &link->attempt->channel;
    ct_channel_send(channel, msg);
    if (link->options.token != NULL) { /* has_proved() looks for that */
        const struct ct_proof *proof = &link->proof;
        ct_frame_mac_start(&channel->mac_in, link->options.token, CT_ROLE_SERVER,
                           proof->server_nonce, proof->agent_nonce);
        ct_frame_mac_start(&channel->mac_out, link->options.token, CT_ROLE_AGENT,
                           proof->server_nonce, proof->agent_nonce);
    }
}

/* Has the server shown that it has the token, if there is one? It does so in its CHALLENGE, and
 * must not get round it by accepting at once. */
static bool has_proved(const struct ct_link *link)
{
    return link->options.token == NULL || link->attempt->channel.mac_in.on;
}

static void on_msg(struct ct_channel *channel, struct ct_msg *msg)
{
    struct ct_link *link = CT_CONTAINER_OF(channel, struct attempt, channel)->link;
    if (link->closing || link->state == LINK_LOST) {
        return;
    }
    link->heard_ns = ct_clock_now(NULL);
    if (link->state == LINK_UP) {
        if (msg->type == CT_MSG_BEAT) {
            take_lease(link, msg);
        }
        if (msg->type != CT_MSG_BEAT || msg->still.kind != CT_HANG_VOTE_NO) {
            link->options.on_message(link->options.data, msg);
        }
    } else if (msg->type == CT_MSG_CHALLENGE) {
        on_challenge(link, msg);
    } else if (msg->type == CT_MSG_ACCEPTED && !has_proved(link)) {
        refuse_store(link, CT_EPERM, "does not have this job's token");
    } else if (msg->type == CT_MSG_ACCEPTED) {
        note_host(link, msg);
        go_up(link, msg->text);
    } else if (msg->type == CT_MSG_REFUSED) {
        char why[CT_FAILURE_WHAT_MAX + 32];
        (void)snprintf(why, sizeof(why), "refuses this node: %s", msg->text);
        refuse_store(link, CT_EPERM, why);
    } else {
        refuse_store(link, CT_EPROTO, "breaks the agents' protocol");
    }
}

static void on_channel_end(struct ct_channel *channel, const struct ct_err *err)
{
    struct ct_link *link = CT_CONTAINER_OF(channel, struct attempt, channel)->link;
    if (link->closing || link->state == LINK_LOST) {
        ct_channel_close(channel);
        return;
    }
    if (link->state == LINK_UP) {
        lose(link, err);
    } else if (err->code == CT_ECLOSED) {
        link->hangup_ns = link->hangup_ns != 0 ? link->hangup_ns : ct_clock_now(NULL);
        fail_attempt(link, err->code, "it closes the connection");
    } else if (err->code == CT_EPERM) {
        struct ct_err why = *err;
        (void)ct_err_wrap(&why, "the store at %s:%d", link->host, link->options.port);
        lose(link, &why);
    } else {
        refuse_store(link, CT_EPROTO, "speaks, but is no store of ctrun");
    }
}

/* ---- connecting ----------------------------------------------------------------------------- */

/* Makes an attempt, whose channel takes the socket `fd`, or has none yet if `fd` is -1. */
static int new_attempt(struct ct_link *link, int fd, struct attempt **out)
{
    struct attempt *attempt = ct_calloc(1, sizeof(*attempt));
    if (attempt == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return CT_ENOMEM;
    }
    attempt->link = link;
    attempt->channel.on_msg = on_msg;
    attempt->channel.on_end = on_channel_end;
    attempt->channel.on_closed = on_channel_closed;
    if (fd >= 0) {
        ct_channel_init_fd(&attempt->channel, link->loop, fd);
    } else {
        ct_channel_init_tcp(&attempt->channel, link->loop);
    }
    link->attempts++;
    *out = attempt;
    return 0;
}

static void note_own_address(struct ct_link *link)
{
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    (void)uv_tcp_getsockname(&link->attempt->channel.handle.tcp, (struct sockaddr *)&addr, &len);
    ct_addr_host((const struct sockaddr *)&addr, link->own_address, sizeof(link->own_address));
}

static void on_connected(uv_connect_t *connect, int status)
{
    struct attempt *attempt = CT_CONTAINER_OF(connect, struct attempt, connect);
    struct ct_link *link = attempt->link;
    if (link->closing || link->attempt != attempt) {
        return;
    }
    if (status != 0) {
        link->refused = status == UV_ECONNREFUSED;
        fail_attempt(link, CT_EIO, uv_strerror(status));
        return;
    }
    link->state = LINK_PROVING;
    (void)uv_tcp_nodelay(&attempt->channel.handle.tcp, 1);
    note_own_address(link);
    if (ct_channel_start(&attempt->channel, CT_CONTROL_MAX_GREETING) != 0) {
        fail_attempt(link, CT_EIO, "cannot read from the connection");
        return;
    }
    prove(link);
}

/* The peer has accepted the connection but is silent. Mostly another program has the port. */
static void fail_silent(struct ct_link *link)
{
    struct sockaddr_storage addr = {0};
    int len = sizeof(addr);
    char there[CT_ADDR_TEXT_MAX], holder[HOLDER_MAX] = "", why[HOLDER_MAX + 64];
    (void)uv_tcp_getpeername(&link->attempt->channel.handle.tcp, (struct sockaddr *)&addr, &len);
    ct_addr_host((const struct sockaddr *)&addr, there, sizeof(there));
    if (strcmp(there, link->own_address) == 0) { /* on this machine */
        ct_port_holder((const struct sockaddr *)&addr, holder, sizeof(holder));
    }
    (void)snprintf(why, sizeof(why), "%s takes connections, but does not answer as a store does",
                   holder[0] != '\0' ? holder : "something there");
    fail_attempt(link, CT_ETIMEDOUT, why);
}

static void on_connect_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    if (link->state == LINK_PROVING) {
        fail_silent(link);
    } else {
        fail_attempt(link, CT_ETIMEDOUT, "no answer");
    }
}

static void connect_to(struct ct_link *link, const struct sockaddr *addr)
{
    if (new_attempt(link, -1, &link->attempt) != 0) {
        fail_attempt(link, CT_ENOMEM, "out of memory");
        return;
    }
    link->state = LINK_CONNECTING;
    int rc = uv_tcp_connect(&link->attempt->connect, &link->attempt->channel.handle.tcp, addr,
                            on_connected);
    if (rc != 0) {
        fail_attempt(link, CT_EIO, uv_strerror(rc));
        return;
    }
    int64_t left_ms = link->options.connect_ms - elapsed_ms(link->begun_ns);
    left_ms = left_ms < 0 ? 0 : left_ms > ATTEMPT_MS ? ATTEMPT_MS : left_ms;
    uv_update_time(link->loop);
    (void)uv_timer_start(&link->timer, on_connect_timer, (uint64_t)left_ms, 0);
}

static void on_resolved(uv_getaddrinfo_t *resolver, int status, struct addrinfo *found)
{
    struct ct_link *link = CT_CONTAINER_OF(resolver, struct ct_link, resolver);
    link->resolving = false;
    if (link->closing) {
        finish_if_last(link);
    } else if (status != 0) {
        fail_attempt(link, CT_ENOENT, uv_strerror(status));
    } else {
        connect_to(link, found->ai_addr);
    }
    uv_freeaddrinfo(found);
}

static void dial(struct ct_link *link)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];
    struct sockaddr_storage addr;
    socklen_t len;
    link->state = LINK_RESOLVING;
    link->refused = false;
    /* A literal needs no thread. */
    if (ct_addr_literal(link->host, link->options.port, &addr, &len)) {
        connect_to(link, (const struct sockaddr *)&addr);
        return;
    }
    (void)snprintf(port, sizeof(port), "%u", (unsigned)link->options.port);
    int rc = uv_getaddrinfo(link->loop, &link->resolver, on_resolved, link->host, port, &hints);
    link->resolving = rc == 0;
    if (rc != 0) {
        fail_attempt(link, CT_EIO, uv_strerror(rc));
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

static void start_local(struct ct_link *link)
{
    if (ct_channel_start(&link->attempt->channel, CT_CONTROL_MAX_FRAME) == 0) {
        go_up(link, "");
    } else {
        (void)ct_err_set(&link->last, CT_EIO, "cannot read from a socket");
        lose(link, &link->last);
    }
}

static void on_start_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    if (link->options.local == NULL) {
        dial(link);
    } else {
        start_local(link);
    }
}

static int open_local(struct ct_link *link, struct ct_err *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
        return ct_err_set(err, CT_EIO, "cannot make a socket pair");
    }
    int rc = new_attempt(link, fds[0], &link->attempt);
    if (rc != 0) {
        (void)close(fds[1]);
        return ct_err_set(err, rc, "%s", ct_code_text(rc));
    }
    ct_server_take_agent(link->options.local, fds[1]);
    return 0;
}

int ct_link_open(uv_loop_t *loop, const struct ct_link_options *options, struct ct_link **out,
                 struct ct_err *err)
{
    struct ct_link *link = ct_calloc(1, sizeof(*link));
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg));
    if (link == NULL || msg == NULL) {
        ct_free(link);
        ct_free(msg);
        return ct_err_set(err, CT_ENOMEM, "no memory for the connection to the job's store");
    }
    link->options = *options;
    link->msg = msg;
    link->loop = loop;
    link->begun_ns = ct_clock_now(NULL);
    if (options->host != NULL) {
        (void)snprintf(link->host, sizeof(link->host), "%s", options->host);
    }
    int rc = options->local != NULL ? open_local(link, err) : 0;
    if (rc != 0) {
        ct_free(msg);
        ct_free(link);
        return rc;
    }
    CT_ASSERT(uv_timer_init(loop, &link->timer) == 0); /* cannot fail */
    link->timer_open = true;
    uv_update_time(loop);
    (void)uv_timer_start(&link->timer, on_start_timer, (uint64_t)options->pause_ms, 0);
    *out = link;
    return 0;
}

const struct ct_link_host *ct_link_host(const struct ct_link *link)
{
    return &link->there;
}

const char *ct_link_local_address(const struct ct_link *link)
{
    return link != NULL ? link->own_address : "";
}
