/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: on_read() collects bytes and passes each complete frame to on_msg. ct_channel_send()
 * writes at once what the socket takes; the rest goes through one uv_write at a time.
 *
 * Other paths: on_msg may close the channel, also between two frames of one read. If a message
 * cannot be queued (no memory), the idle handle ends the channel, so that on_end is not called
 * inside ct_channel_send().
 *
 * Failure modes: end of file, a socket error, bytes that are no frame, or a frame whose MAC is
 * wrong end the channel through on_end, once.
 *
 * Many channels at once (struct ct_channel_turns): each turn of the loop reads a limited number of
 * bytes from all of them together. Channels beyond that wait in a queue and are not read from
 * meanwhile.
 *
 * Who frees: ct_channel_close() closes both handles; buffers go in the last close callback.
 */
#include "rendezvous/control/channel_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/wire/limits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Room for several messages, most of which have some hundred bytes. */
#define READ_CHUNK ((size_t)4096)

/* Bytes of frames read in one turn of the loop: some 2 ms. A longer frame has its own turn. */
#define TURN_BYTES ((size_t)65536)
/* Reading so many bytes from a socket costs as much as decoding one byte of a frame. */
#define READS_PER_FRAME 4

static struct ct_channel *channel_of(void *handle)
{
    return ((uv_handle_t *)handle)->data;
}

/* ---- closing -------------------------------------------------------------------------------- */

static void on_close(uv_handle_t *handle)
{
    struct ct_channel *channel = channel_of(handle);
    if (--channel->handles > 0) {
        return;
    }
    ct_buf_fini(&channel->in);
    ct_buf_fini(&channel->out);
    ct_buf_fini(&channel->sending);
    ct_frame_mac_fini(&channel->mac_in);
    ct_frame_mac_fini(&channel->mac_out);
    if (channel->budget != NULL) {
        ct_budget_give(channel->budget, channel->charged);
    }
    channel->on_closed(channel);
}

void ct_channel_close(struct ct_channel *channel)
{
    if (channel->closing) {
        return;
    }
    channel->closing = true;
    ct_list_remove(&channel->at_turns);
    uv_close((uv_handle_t *)&channel->handle, on_close);
    uv_close((uv_handle_t *)&channel->failer, on_close);
}

static void end(struct ct_channel *channel, int code, const char *why)
{
    struct ct_err err = {0};
    if (!channel->closing && channel->finishing) {
        ct_channel_close(channel);
    } else if (!channel->closing) {
        (void)ct_err_set(&err, code, "%s", why);
        (void)uv_read_stop(&channel->handle.stream);
        channel->on_end(channel, &err);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static void give_back(struct ct_buf *buf)
{
    if (buf->len == 0 && buf->cap > CT_KEEP_BUF_BYTES) {
        ct_buf_fini(buf);
    }
}

/* Charges the budget with what the buffers hold. Returns false if that is more than CT_GRANT_BYTES
 * and the budget has no room. */
static bool charge(struct ct_channel *channel)
{
    give_back(&channel->in);
    give_back(&channel->out);
    size_t holds = channel->in.cap + channel->out.cap + channel->sending.cap;
    if (channel->budget == NULL) {
        return true;
    }
    if (holds <= CT_GRANT_BYTES || holds <= channel->charged) {
        ct_budget_give(channel->budget, channel->charged);
        ct_budget_force(channel->budget, holds);
    } else if (!ct_budget_take(channel->budget, holds - channel->charged)) {
        return false;
    }
    channel->charged = holds;
    return true;
}

/* ---- sending -------------------------------------------------------------------------------- */

static void on_failer(uv_idle_t *idle)
{
    struct ct_channel *channel = channel_of(idle);
    (void)uv_idle_stop(idle);
    end(channel, channel->failed, ct_code_text(channel->failed));
}

static void fail_later(struct ct_channel *channel, int code)
{
    channel->failed = code;
    (void)uv_idle_start(&channel->failer, on_failer);
}

static void flush(struct ct_channel *channel);

static void on_written(uv_write_t *write, int status)
{
    struct ct_channel *channel = write->data;
    channel->writing = false;
    ct_buf_reset(&channel->sending);
    if (channel->closing) {
        return;
    }
    if (status < 0) {
        end(channel, CT_ECLOSED, uv_strerror(status));
        return;
    }
    flush(channel);
    (void)charge(channel);
}

static void flush(struct ct_channel *channel)
{
    if (channel->writing || channel->closing || channel->failed != 0) {
        return;
    }
    if (channel->out.len > 0) {
        uv_buf_t bytes =
            uv_buf_init((char *)ct_buf_bytes(&channel->out), (unsigned)channel->out.len);
        int sent = uv_try_write(&channel->handle.stream, &bytes, 1);
        if (sent > 0) {
            ct_buf_consume(&channel->out, (size_t)sent);
        } else if (sent != UV_EAGAIN) {
            fail_later(channel, CT_ECLOSED);
            return;
        }
    }
    if (channel->out.len == 0) {
        if (channel->finishing) {
            ct_channel_close(channel);
        }
        return;
    }
    struct ct_buf rest = channel->out;
    channel->out = channel->sending;
    channel->sending = rest;
    uv_buf_t bytes = uv_buf_init((char *)ct_buf_bytes(&rest), (unsigned)rest.len);
    channel->write.data = channel;
    channel->writing = true;
    if (uv_write(&channel->write, &channel->handle.stream, &bytes, 1, on_written) != 0) {
        channel->writing = false;
        fail_later(channel, CT_ECLOSED);
    }
}

void ct_channel_send(struct ct_channel *channel, const struct ct_msg *msg)
{
    if (channel->closing || channel->finishing || channel->failed != 0) {
        return;
    }
    size_t at = channel->out.len;
    int rc = ct_msg_encode(msg, &channel->out);
    if (rc == 0 && channel->mac_out.on) {
        rc = ct_frame_mac_add(&channel->mac_out, &channel->out, at);
    }
    if (rc != 0) {
        fail_later(channel, rc);
        return;
    }
    flush(channel);
    if (!charge(channel)) {
        fail_later(channel, CT_ELIMIT);
    }
}

void ct_channel_send_text(struct ct_channel *channel, enum ct_msg_type type, int exit_code,
                          const char *text)
{
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg)); /* too large for the stack */
    if (msg != NULL) {
        msg->type = type;
        msg->exit_code = exit_code;
        (void)snprintf(msg->text, sizeof(msg->text), "%s", text);
        ct_channel_send(channel, msg);
        ct_free(msg);
    }
}

void ct_channel_answer_beat(struct ct_channel *channel, struct ct_msg *beat, int64_t lease_ms)
{
    int64_t clock_ms = beat->clock_ms;
    if (ct_channel_backlog(channel) > 0) {
        return;
    }
    ct_msg_fini(beat);
    *beat = (struct ct_msg){.type = CT_MSG_BEAT,
                            .clock_ms = clock_ms,
                            .has_lease = lease_ms >= 0,
                            .lease_ms = lease_ms >= 0 ? lease_ms : 0};
    ct_channel_send(channel, beat);
}

size_t ct_channel_backlog(const struct ct_channel *channel)
{
    return channel->out.len + channel->sending.len;
}

int64_t ct_channel_quiet_ns(const struct ct_channel *channel)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&channel->handle, &fd) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
        return INT64_MAX; /* closing, or not TCP */
    }
    return info.tcpi_last_ack_recv * CT_NS_PER_MS;
}

void ct_channel_finish(struct ct_channel *channel)
{
    channel->finishing = true;
    flush(channel);
    if (channel->failed != 0) {
        ct_channel_close(channel);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct ct_channel *channel = channel_of(handle);
    size_t chunk = channel->max_frame < READ_CHUNK ? channel->max_frame : READ_CHUNK;
    *buf = ct_buf_reserve(&channel->in, chunk) == 0
               ? uv_buf_init((char *)ct_buf_tail(&channel->in), (unsigned)chunk)
               : uv_buf_init(NULL, 0); /* on_read() gets UV_ENOBUFS */
}

static size_t longest_frame(const struct ct_channel *channel)
{
    return channel->max_frame + (channel->mac_in.on ? CT_FRAME_MAC_LEN : 0);
}

/* Reads the message at the front. *used gets the length of its frame. */
static int read_frame(struct ct_channel *channel, struct ct_msg *msg, size_t *used,
                      struct ct_err *err)
{
    unsigned char *frame = ct_buf_bytes(&channel->in);
    size_t len = 0;
    int rc = ct_msg_length(frame, channel->in.len, longest_frame(channel), &len, err);
    if (rc != 0) {
        return rc;
    }
    *used = len;
    rc = channel->mac_in.on ? ct_frame_mac_take(&channel->mac_in, frame, &len, err) : 0;
    if (rc != 0) {
        return rc;
    }
    return ct_msg_decode(frame, len, channel->max_frame, msg, &len, err);
}

static void on_turn(uv_idle_t *idle);

/* Takes the bytes of a frame from this turn. */
static void spend(struct ct_channel_turns *turns, size_t bytes)
{
    turns->left -= bytes < turns->left ? bytes : turns->left;
    (void)uv_idle_start(&turns->idle, on_turn);
}

/* Lets the channel wait for the next turn. This turn ends for all channels, because otherwise
 * channels with shorter frames would overtake this one. */
static void wait_for_turn(struct ct_channel *channel)
{
    channel->turns->left = 0;
    (void)uv_read_stop(&channel->handle.stream);
    ct_list_append(&channel->turns->queue, &channel->at_turns);
    (void)uv_idle_start(&channel->turns->idle, on_turn);
}

/* Does the frame at the front fit into what is left of this turn? A frame that is larger than a
 * turn, such as a beat of 4,000 workers (17 ms), gets a turn of its own. */
static bool fits_turn(const struct ct_channel *channel)
{
    const struct ct_channel_turns *turns = channel->turns;
    size_t len = 0;
    if (turns == NULL || turns->left == TURN_BYTES) {
        return true;
    }
    return turns->left > 0 && (ct_msg_length(ct_buf_bytes(&channel->in), channel->in.len,
                                             longest_frame(channel), &len, NULL) != 0 ||
                               len <= turns->left);
}

/* Reads the frames that have come, one after the other, into `msg`. */
static void read_into(struct ct_channel *channel, struct ct_msg *msg)
{
    while (!channel->closing && !channel->finishing) {
        struct ct_err err = {0};
        size_t used = 0;
        if (!fits_turn(channel)) {
            wait_for_turn(channel);
            return;
        }
        int rc = read_frame(channel, msg, &used, &err);
        if (rc == CT_MSG_E_MORE) {
            return;
        }
        if (channel->turns != NULL) {
            spend(channel->turns, rc == 0 ? used : channel->in.len);
        }
        if (rc != 0) {
            end(channel, rc, err.text[0] != '\0' ? err.text : ct_code_text(rc));
            return;
        }
        ct_buf_consume(&channel->in, used);
        channel->on_msg(channel, msg);
        ct_msg_fini(msg);
        memset(msg, 0, sizeof(*msg));
    }
}

/* Reads the frames that have come. The message is allocated here, because it is large, and
 * thousands of channels may be silent. */
static void read_frames(struct ct_channel *channel)
{
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg));
    if (msg == NULL) {
        end(channel, CT_ENOMEM, ct_code_text(CT_ENOMEM));
        return;
    }
    read_into(channel, msg);
    ct_free(msg);
    if (!channel->closing && !charge(channel)) {
        end(channel, CT_ELIMIT, "the store's memory is used up (--max-memory)");
    }
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf);

static void on_turn(uv_idle_t *idle)
{
    struct ct_channel_turns *turns = CT_CONTAINER_OF(idle, struct ct_channel_turns, idle);
    turns->left = TURN_BYTES;
    while (turns->left > 0 && !ct_list_empty(&turns->queue)) {
        struct ct_channel *channel =
            CT_CONTAINER_OF(turns->queue.next, struct ct_channel, at_turns);
        ct_list_remove(&channel->at_turns);
        (void)uv_read_start(&channel->handle.stream, on_alloc, on_read);
        read_frames(channel);
    }
    if (turns->left == TURN_BYTES && ct_list_empty(&turns->queue)) {
        (void)uv_idle_stop(idle);
    }
}

void ct_channel_turns_init(struct ct_channel_turns *turns, uv_loop_t *loop)
{
    CT_ASSERT(uv_idle_init(loop, &turns->idle) == 0); /* cannot fail */
    ct_list_init(&turns->queue);
    turns->left = TURN_BYTES;
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    (void)buf;
    struct ct_channel *channel = channel_of(stream);
    if (nread > 0 && channel->finishing) {
        return; /* nobody takes it; it is read only so that the end is noticed */
    }
    if (nread > 0) {
        channel->in.len += (size_t)nread;
        if (channel->turns != NULL) {
            spend(channel->turns, (size_t)nread / READS_PER_FRAME);
        }
        read_frames(channel);
    } else if (nread == UV_EOF) {
        end(channel, CT_ECLOSED, "the connection was closed");
    } else if (nread < 0) {
        end(channel, nread == UV_ENOBUFS ? CT_ENOMEM : CT_ECLOSED, uv_strerror((int)nread));
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

/* Initialises the rest of a channel whose stream is initialised. */
static void init(struct ct_channel *channel, uv_loop_t *loop)
{
    channel->handle.stream.data = channel;
    channel->failer.data = channel;
    ct_list_init(&channel->at_turns);
    CT_ASSERT(uv_idle_init(loop, &channel->failer) == 0); /* cannot fail */
    channel->handles = 2;
}

void ct_channel_init_tcp(struct ct_channel *channel, uv_loop_t *loop)
{
    CT_ASSERT(uv_tcp_init(loop, &channel->handle.tcp) == 0); /* makes no socket yet */
    init(channel, loop);
}

static bool is_local(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    return getsockname(fd, (struct sockaddr *)&addr, &len) == 0 && addr.ss_family == AF_UNIX;
}

void ct_channel_init_fd(struct ct_channel *channel, uv_loop_t *loop, int fd)
{
    bool local = is_local(fd);
    CT_ASSERT((local ? uv_pipe_init(loop, &channel->handle.pipe, 0)
                     : uv_tcp_init(loop, &channel->handle.tcp)) == 0);
    init(channel, loop);
    int rc =
        local ? uv_pipe_open(&channel->handle.pipe, fd) : uv_tcp_open(&channel->handle.tcp, fd);
    if (rc != 0) {
        (void)close(fd);
        fail_later(channel, CT_EIO);
    }
}

/* Messages are so rare that only the kernel's timer notices a lost one. By default that timer
 * doubles with each repetition; this option keeps it constant. It fails on a socketpair(2), which
 * loses nothing. */
static void repeat_often(struct ct_channel *channel)
{
    int on = 1;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&channel->handle, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
    }
}

int ct_channel_start(struct ct_channel *channel, size_t max_frame)
{
    channel->max_frame = max_frame;
    repeat_often(channel);
    return uv_read_start(&channel->handle.stream, on_alloc, on_read) == 0 ? 0 : CT_EIO;
}
