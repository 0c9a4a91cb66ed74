/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: resolve, connect, prove (control.h shows the exchange), on_up; then messages both
 * ways and a BEAT every third of the heartbeat, sooner while the last one has no answer. A local
 * link is one end of a socketpair() whose other end the server in this process takes: the same
 * line, without a proof.
 *
 * Other paths: the server may start after us, and its name may be known later still: resolving and
 * connecting are repeated until `connect_ms` have passed, with pauses that grow. A connection that
 * ends inside the proof is tried again too, but not for long: that is what a stranger's server
 * does.
 *
 * Failure modes: anything wrong after on_up ends the link through on_lost; so does silence for the
 * heartbeat that our JOIN named, or for twice that where the server's machine still answers.
 *
 * Who frees: everything goes when line, resolver and timer are closed. Each try has a line of its
 * own, as a handle cannot connect twice.
 */
#include "rendezvous/client/link_impl_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/server/server_uv.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Beats in the time that counts as silence: two may be lost or late. While one has no answer the
 * next follow that many times sooner: three losses in a row are nothing rare on a line that loses a
 * tenth. */
#define BEATS 3
#define SOONER 4

/* ---- closing -------------------------------------------------------------------------------- */

void ct_link_finish_if_last(struct ct_link *link)
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
    ct_link_finish_if_last(link);
}

static void on_line_closed(struct ct_line *line)
{
    struct ct_link_try *attempt = CT_CONTAINER_OF(line, struct ct_link_try, line);
    struct ct_link *link = attempt->link;
    if (link->attempt == attempt) {
        link->attempt = NULL;
    }
    ct_free(attempt);
    link->attempts--;
    if (link->closing && link->attempt == NULL && !uv_is_closing((uv_handle_t *)&link->timer)) {
        uv_close((uv_handle_t *)&link->timer, on_timer_closed); /* flushed before its time */
    }
    ct_link_finish_if_last(link);
}

void ct_link_hang_up(struct ct_link *link)
{
    if (link->attempt != NULL) {
        ct_line_close(&link->attempt->line);
        link->attempt = NULL;
    }
}

static void on_flush_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    ct_link_hang_up(link);
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
    if (link->state == CT_LINK_UP && flush_ms > 0) {
        (void)uv_timer_start(&link->timer, on_flush_timer, flush_ms, 0);
        ct_line_finish(&link->attempt->line);
        return;
    }
    ct_link_hang_up(link);
    uv_close((uv_handle_t *)&link->timer, on_timer_closed);
}

/* ---- losing --------------------------------------------------------------------------------- */

int64_t ct_link_elapsed_ms(int64_t since_ns)
{
    return (ct_clock_now(NULL) - since_ns) / CT_NS_PER_MS;
}

void ct_link_lose(struct ct_link *link, const struct ct_err *err)
{
    if (link->state == CT_LINK_LOST || link->closing) {
        return;
    }
    struct ct_err copy = *err; /* it may be link->last, and the callback may close */
    link->state = CT_LINK_LOST;
    (void)uv_timer_stop(&link->timer);
    ct_link_hang_up(link);
    link->options.on_lost(link->options.data, &copy);
}

/* ---- beats ---------------------------------------------------------------------------------- */

/* The membership gives us the same time (members.h). */
static bool is_held_up(const struct ct_link *link, int64_t silent_ms)
{
    int64_t quiet_ms = ct_line_quiet_ns(&link->attempt->line) / CT_NS_PER_MS;
    return quiet_ms < link->heartbeat_ms && silent_ms / 2 < link->heartbeat_ms;
}

static void on_beat_timer(uv_timer_t *timer);

static void plan_beat(struct ct_link *link, bool answered)
{
    uint64_t after_ms = answered ? link->beat_ms : link->beat_ms / SOONER;
    (void)uv_timer_start(&link->timer, on_beat_timer, after_ms > 0 ? after_ms : 1, 0);
}

static void on_beat_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    plan_beat(link, link->heard_ns >= link->beat_ns);
    /* Who has stood still himself (a paused machine, a stopped process) cannot blame the other. */
    if (ct_link_elapsed_ms(link->beat_ns) > link->heartbeat_ms / 2) {
        link->heard_ns = ct_clock_now(NULL);
    }
    link->beat_ns = ct_clock_now(NULL);
    int64_t silent_ms = ct_link_elapsed_ms(link->heard_ns);
    if (silent_ms >= link->heartbeat_ms && !is_held_up(link, silent_ms)) {
        struct ct_err err = {0};
        (void)ct_err_set(&err, CT_ETIMEDOUT, "nothing was heard from the job's store for %.1f s",
                         (double)silent_ms / 1000);
        ct_link_lose(link, &err);
        return;
    }
    memset(link->msg, 0, sizeof(*link->msg));
    link->msg->type = CT_MSG_BEAT;
    link->msg->clock_ms = ct_clock_now(NULL) / CT_NS_PER_MS;
    if (link->options.on_beat != NULL) {
        link->options.on_beat(link->options.data, link->msg);
    }
    ct_line_send(&link->attempt->line, link->msg);
    ct_msg_fini(link->msg);
}

/* As our JOIN has it. In one process neither end can be lost without the other. */
static void start_beats(struct ct_link *link, int64_t heartbeat_ms)
{
    link->heartbeat_ms = link->options.local != NULL ? INT64_MAX : heartbeat_ms;
    link->heard_ns = ct_clock_now(NULL);
    link->beat_ns = link->heard_ns;
    link->beat_ms = (uint64_t)heartbeat_ms / BEATS;
    uv_update_time(link->loop);
    plan_beat(link, true);
}

void ct_link_send(struct ct_link *link, const struct ct_msg *msg)
{
    if (link->state != CT_LINK_UP || link->closing) {
        return;
    }
    if (msg->type == CT_MSG_JOIN) {
        start_beats(link, msg->join.heartbeat_ms);
    }
    ct_line_send(&link->attempt->line, msg);
}

/* ---- the proof ------------------------------------------------------------------------------ */

static void go_up(struct ct_link *link, const char *address)
{
    link->state = CT_LINK_UP;
    (void)uv_timer_stop(&link->timer);
    link->attempt->line.max_frame = CT_CONTROL_MAX_FRAME;
    link->options.on_up(link->options.data, address);
}

void ct_link_prove(struct ct_link *link)
{
    memset(link->msg, 0, sizeof(*link->msg));
    if (ct_proof_open(&link->proof, link->msg) != 0) {
        ct_link_fail_try(link, CT_EIO, "no random numbers");
        return;
    }
    ct_line_send(&link->attempt->line, link->msg);
}

static void refuse_store(struct ct_link *link, int code, const char *why)
{
    struct ct_err err = {0};
    (void)ct_err_set(&err, code, "the store at %s:%d %s", link->host, link->options.port, why);
    ct_link_lose(link, &err);
}

static void on_challenge(struct ct_link *link, struct ct_msg *msg)
{
    struct ct_err err = {0};
    int rc = ct_proof_answer(&link->proof, link->options.token, msg, &err);
    if (rc != 0) {
        refuse_store(link, rc, "does not have this job's token");
        return;
    }
    struct ct_line *line = &link->attempt->line;
    ct_line_send(line, msg);
    if (link->options.token != NULL) {
        const struct ct_proof *proof = &link->proof;
        ct_frame_mac_start(&line->mac_in, link->options.token, CT_ROLE_SERVER, proof->server_nonce,
                           proof->agent_nonce);
        ct_frame_mac_start(&line->mac_out, link->options.token, CT_ROLE_AGENT, proof->server_nonce,
                           proof->agent_nonce);
    }
}

static void on_msg(struct ct_line *line, struct ct_msg *msg)
{
    struct ct_link *link = CT_CONTAINER_OF(line, struct ct_link_try, line)->link;
    if (link->closing || link->state == CT_LINK_LOST) {
        return;
    }
    link->heard_ns = ct_clock_now(NULL);
    if (link->state == CT_LINK_UP) {
        if (msg->type != CT_MSG_BEAT || msg->still.kind != CT_HANG_VOTE_NO) {
            link->options.on_message(link->options.data, msg);
        }
    } else if (msg->type == CT_MSG_CHALLENGE) {
        on_challenge(link, msg);
    } else if (msg->type == CT_MSG_ACCEPTED) {
        go_up(link, msg->text);
    } else if (msg->type == CT_MSG_REFUSED) {
        char why[CT_STORY_WHAT_MAX + 32];
        (void)snprintf(why, sizeof(why), "refuses this node: %s", msg->text);
        refuse_store(link, CT_EPERM, why);
    } else {
        refuse_store(link, CT_EPROTO, "breaks the agents' protocol");
    }
}

static void on_line_end(struct ct_line *line, const struct ct_err *err)
{
    struct ct_link *link = CT_CONTAINER_OF(line, struct ct_link_try, line)->link;
    if (link->closing || link->state == CT_LINK_LOST) {
        ct_line_close(line);
        return;
    }
    if (link->state == CT_LINK_UP) {
        ct_link_lose(link, err);
    } else if (err->code == CT_ECLOSED) {
        link->stranger_ns = link->stranger_ns != 0 ? link->stranger_ns : ct_clock_now(NULL);
        ct_link_fail_try(link, err->code, "it closes the connection");
    } else if (err->code == CT_EPERM) {
        struct ct_err why = *err;
        (void)ct_err_wrap(&why, "the store at %s:%d", link->host, link->options.port);
        ct_link_lose(link, &why);
    } else {
        refuse_store(link, CT_EPROTO, "speaks, but is no store of ctrun");
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

int ct_link_try_new(struct ct_link *link, int fd, struct ct_link_try **out)
{
    struct ct_link_try *attempt = ct_calloc(1, sizeof(*attempt));
    if (attempt == NULL) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return CT_ENOMEM;
    }
    attempt->link = link;
    attempt->line.on_msg = on_msg;
    attempt->line.on_end = on_line_end;
    attempt->line.on_closed = on_line_closed;
    int rc = fd >= 0 ? ct_line_init_fd(&attempt->line, link->loop, fd)
                     : ct_line_init_tcp(&attempt->line, link->loop);
    if (rc != 0) {
        ct_free(attempt);
        return rc;
    }
    link->attempts++;
    *out = attempt;
    return 0;
}

static void on_start_timer(uv_timer_t *timer)
{
    struct ct_link *link = CT_CONTAINER_OF(timer, struct ct_link, timer);
    if (link->options.local == NULL) {
        ct_link_dial(link);
    } else if (ct_line_start(&link->attempt->line, CT_CONTROL_MAX_FRAME) == 0) {
        go_up(link, "");
    } else {
        (void)ct_err_set(&link->last, CT_EIO, "cannot read from a socket");
        ct_link_lose(link, &link->last);
    }
}

static int open_local(struct ct_link *link, struct ct_err *err)
{
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) {
        return ct_err_set(err, CT_EIO, "cannot make a socket pair");
    }
    int rc = ct_link_try_new(link, fds[0], &link->attempt);
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
        return ct_err_set(err, CT_ENOMEM, "no memory for the line to the job's store");
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
    (void)uv_timer_start(&link->timer, on_start_timer, 0, 0);
    *out = link;
    return 0;
}

const char *ct_link_local_address(const struct ct_link *link)
{
    return link->own_address;
}
