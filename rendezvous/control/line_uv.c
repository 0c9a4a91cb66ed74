/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: on_read collects bytes and hands each complete frame to on_msg; ct_line_send() writes
 * at once what the socket takes, the rest goes through one uv_write at a time.
 *
 * Other paths: on_msg may close the line, also between two frames of one read. A message that could
 * not be queued (no memory) ends the line from the idle handle, so that the sender is not called
 * back from inside its own call.
 *
 * Failure modes: end of file, a socket error, bytes that are no frame, or a frame whose MAC is
 * wrong end the line through on_end, once.
 *
 * Many lines at once (struct ct_line_turns): each turn of the loop reads a limited number of bytes
 * from all of them together. Lines beyond that wait in a queue and are not read from meanwhile.
 *
 * Who frees: ct_line_close() closes both handles; buffers go in the last close callback.
 */
#include "rendezvous/control/line_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/wire/limits.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Most messages are some hundred bytes; several fit. */
#define READ_CHUNK ((size_t)4096)

/* Bytes of frames that are read in one turn of the loop: some 2 ms of work at the worst. A longer
 * frame has a turn for itself. */
#define TURN_BYTES ((size_t)65536)
/* Reading so many bytes from a socket costs as much as decoding one byte of a frame. */
#define READS_PER_FRAME 4

static struct ct_line *line_of(void *handle)
{
    return ((uv_handle_t *)handle)->data;
}

/* ---- closing -------------------------------------------------------------------------------- */

static void on_close(uv_handle_t *handle)
{
    struct ct_line *line = line_of(handle);
    if (--line->handles > 0) {
        return;
    }
    ct_buf_fini(&line->in);
    ct_buf_fini(&line->out);
    ct_buf_fini(&line->sending);
    ct_frame_mac_fini(&line->mac_in);
    ct_frame_mac_fini(&line->mac_out);
    if (line->budget != NULL) {
        ct_budget_give(line->budget, line->charged);
    }
    line->on_closed(line);
}

void ct_line_close(struct ct_line *line)
{
    if (line->closing) {
        return;
    }
    line->closing = true;
    ct_list_remove(&line->at_turns);
    uv_close((uv_handle_t *)&line->handle, on_close);
    uv_close((uv_handle_t *)&line->failer, on_close);
}

static void end(struct ct_line *line, int code, const char *why)
{
    struct ct_err err = {0};
    if (!line->closing && line->finishing) {
        ct_line_close(line);
    } else if (!line->closing) {
        (void)ct_err_set(&err, code, "%s", why);
        (void)uv_read_stop(&line->handle.stream);
        line->on_end(line, &err);
    }
}

/* ---- memory --------------------------------------------------------------------------------- */

static void give_back(struct ct_buf *buf)
{
    if (buf->len == 0 && buf->cap > CT_KEEP_BUF_BYTES) {
        ct_buf_fini(buf);
    }
}

/* Tells the budget how much the buffers hold. False: more than it allows, and more than
 * CT_GRANT_BYTES. */
static bool charge(struct ct_line *line)
{
    give_back(&line->in);
    give_back(&line->out);
    size_t holds = line->in.cap + line->out.cap + line->sending.cap;
    if (line->budget == NULL) {
        return true;
    }
    if (holds <= CT_GRANT_BYTES || holds <= line->charged) {
        ct_budget_give(line->budget, line->charged);
        ct_budget_force(line->budget, holds);
    } else if (!ct_budget_take(line->budget, holds - line->charged)) {
        return false;
    }
    line->charged = holds;
    return true;
}

/* ---- sending -------------------------------------------------------------------------------- */

static void on_failer(uv_idle_t *idle)
{
    struct ct_line *line = line_of(idle);
    (void)uv_idle_stop(idle);
    end(line, line->failed, ct_code_text(line->failed));
}

static void fail_later(struct ct_line *line, int code)
{
    line->failed = code;
    (void)uv_idle_start(&line->failer, on_failer);
}

static void flush(struct ct_line *line);

static void on_written(uv_write_t *write, int status)
{
    struct ct_line *line = write->data;
    line->writing = false;
    ct_buf_reset(&line->sending);
    if (line->closing) {
        return;
    }
    if (status < 0) {
        end(line, CT_ECLOSED, uv_strerror(status));
        return;
    }
    flush(line);
    (void)charge(line);
}

static void flush(struct ct_line *line)
{
    if (line->writing || line->closing || line->failed != 0) {
        return;
    }
    if (line->out.len > 0) {
        uv_buf_t bytes = uv_buf_init((char *)ct_buf_bytes(&line->out), (unsigned)line->out.len);
        int sent = uv_try_write(&line->handle.stream, &bytes, 1);
        if (sent > 0) {
            ct_buf_consume(&line->out, (size_t)sent);
        } else if (sent != UV_EAGAIN) {
            fail_later(line, CT_ECLOSED);
            return;
        }
    }
    if (line->out.len == 0) {
        if (line->finishing) {
            ct_line_close(line);
        }
        return;
    }
    struct ct_buf rest = line->out;
    line->out = line->sending;
    line->sending = rest;
    uv_buf_t bytes = uv_buf_init((char *)ct_buf_bytes(&rest), (unsigned)rest.len);
    line->write.data = line;
    line->writing = true;
    if (uv_write(&line->write, &line->handle.stream, &bytes, 1, on_written) != 0) {
        line->writing = false;
        fail_later(line, CT_ECLOSED);
    }
}

void ct_line_send(struct ct_line *line, const struct ct_msg *msg)
{
    if (line->closing || line->finishing || line->failed != 0) {
        return;
    }
    size_t at = line->out.len;
    int rc = ct_msg_encode(msg, &line->out);
    if (rc == 0 && line->mac_out.on) {
        rc = ct_frame_mac_add(&line->mac_out, &line->out, at);
    }
    if (rc != 0) {
        fail_later(line, rc);
        return;
    }
    flush(line);
    if (!charge(line)) {
        fail_later(line, CT_ELIMIT);
    }
}

size_t ct_line_backlog(const struct ct_line *line)
{
    return line->out.len + line->sending.len;
}

int64_t ct_line_quiet_ns(const struct ct_line *line)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&line->handle, &fd) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0) {
        return INT64_MAX; /* closing, or not TCP */
    }
    return info.tcpi_last_ack_recv * CT_NS_PER_MS;
}

void ct_line_finish(struct ct_line *line)
{
    line->finishing = true;
    flush(line);
    if (line->failed != 0) {
        ct_line_close(line);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct ct_line *line = line_of(handle);
    size_t chunk = line->max_frame < READ_CHUNK ? line->max_frame : READ_CHUNK;
    *buf = ct_buf_reserve(&line->in, chunk) == 0
               ? uv_buf_init((char *)ct_buf_tail(&line->in), (unsigned)chunk)
               : uv_buf_init(NULL, 0); /* on_read hears UV_ENOBUFS */
}

static size_t longest_frame(const struct ct_line *line)
{
    return line->max_frame + (line->mac_in.on ? CT_FRAME_MAC_LEN : 0);
}

/* Reads the message at the front; *used is how long its frame was. */
static int read_frame(struct ct_line *line, struct ct_msg *msg, size_t *used, struct ct_err *err)
{
    unsigned char *frame = ct_buf_bytes(&line->in);
    size_t len = 0;
    int rc = ct_msg_length(frame, line->in.len, longest_frame(line), &len, err);
    if (rc != 0) {
        return rc;
    }
    *used = len;
    rc = line->mac_in.on ? ct_frame_mac_take(&line->mac_in, frame, &len, err) : 0;
    if (rc != 0) {
        return rc;
    }
    return ct_msg_decode(frame, len, line->max_frame, msg, &len, err);
}

static void on_turn(uv_idle_t *idle);

/* Takes the bytes of a frame from this turn. */
static void spend(struct ct_line_turns *turns, size_t bytes)
{
    turns->left -= bytes < turns->left ? bytes : turns->left;
    (void)uv_idle_start(&turns->idle, on_turn);
}

/* The turn ends here: lines that read on would overtake this one. */
static void wait_for_turn(struct ct_line *line)
{
    line->turns->left = 0;
    (void)uv_read_stop(&line->handle.stream);
    ct_list_append(&line->turns->queue, &line->at_turns);
    (void)uv_idle_start(&line->turns->idle, on_turn);
}

/* Has this turn of the loop room for the frame at the front? One that is larger than a turn has a
 * turn of its own: a beat of 4,000 workers takes 17 ms. */
static bool fits_turn(const struct ct_line *line)
{
    const struct ct_line_turns *turns = line->turns;
    size_t len = 0;
    if (turns == NULL || turns->left == TURN_BYTES) {
        return true;
    }
    return turns->left > 0 && (ct_msg_length(ct_buf_bytes(&line->in), line->in.len,
                                             longest_frame(line), &len, NULL) != 0 ||
                               len <= turns->left);
}

/* Reads the frames that are there; `msg` is scratch. */
static void read_into(struct ct_line *line, struct ct_msg *msg)
{
    while (!line->closing && !line->finishing) {
        struct ct_err err = {0};
        size_t used = 0;
        if (!fits_turn(line)) {
            wait_for_turn(line);
            return;
        }
        int rc = read_frame(line, msg, &used, &err);
        if (rc == CT_MSG_E_MORE) {
            return;
        }
        if (line->turns != NULL) {
            spend(line->turns, rc == 0 ? used : line->in.len);
        }
        if (rc != 0) {
            end(line, rc, err.text[0] != '\0' ? err.text : ct_code_text(rc));
            return;
        }
        ct_buf_consume(&line->in, used);
        line->on_msg(line, msg);
        ct_msg_fini(msg);
        memset(msg, 0, sizeof(*msg));
    }
}

/* A struct ct_msg is large, and thousands of lines may be silent, so none of them keeps one. */
static void read_frames(struct ct_line *line)
{
    struct ct_msg *msg = ct_calloc(1, sizeof(*msg));
    if (msg == NULL) {
        end(line, CT_ENOMEM, ct_code_text(CT_ENOMEM));
        return;
    }
    read_into(line, msg);
    ct_free(msg);
    if (!line->closing && !charge(line)) {
        end(line, CT_ELIMIT, "the store's memory is used up (--max-memory)");
    }
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf);

static void on_turn(uv_idle_t *idle)
{
    struct ct_line_turns *turns = CT_CONTAINER_OF(idle, struct ct_line_turns, idle);
    turns->left = TURN_BYTES;
    while (turns->left > 0 && !ct_list_empty(&turns->queue)) {
        struct ct_line *line = CT_CONTAINER_OF(turns->queue.next, struct ct_line, at_turns);
        ct_list_remove(&line->at_turns);
        (void)uv_read_start(&line->handle.stream, on_alloc, on_read);
        read_frames(line);
    }
    if (turns->left == TURN_BYTES && ct_list_empty(&turns->queue)) {
        (void)uv_idle_stop(idle);
    }
}

void ct_line_turns_init(struct ct_line_turns *turns, uv_loop_t *loop)
{
    CT_ASSERT(uv_idle_init(loop, &turns->idle) == 0); /* cannot fail */
    ct_list_init(&turns->queue);
    turns->left = TURN_BYTES;
}

static void on_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    (void)buf;
    struct ct_line *line = line_of(stream);
    if (nread > 0) {
        line->in.len += (size_t)nread;
        if (line->turns != NULL) {
            spend(line->turns, (size_t)nread / READS_PER_FRAME);
        }
        read_frames(line);
    } else if (nread == UV_EOF) {
        end(line, CT_ECLOSED, "the connection was closed");
    } else if (nread < 0) {
        end(line, nread == UV_ENOBUFS ? CT_ENOMEM : CT_ECLOSED, uv_strerror((int)nread));
    }
}

/* ---- opening -------------------------------------------------------------------------------- */

/* The handle of the stream is initialised. */
static int init(struct ct_line *line, uv_loop_t *loop)
{
    line->handle.stream.data = line;
    line->failer.data = line;
    ct_list_init(&line->at_turns);
    CT_ASSERT(uv_idle_init(loop, &line->failer) == 0); /* cannot fail */
    line->handles = 2;
    return 0;
}

int ct_line_init_tcp(struct ct_line *line, uv_loop_t *loop)
{
    CT_ASSERT(uv_tcp_init(loop, &line->handle.tcp) == 0); /* makes no socket yet */
    return init(line, loop);
}

static bool is_local(int fd)
{
    struct sockaddr_storage addr = {0};
    socklen_t len = sizeof(addr);
    return getsockname(fd, (struct sockaddr *)&addr, &len) == 0 && addr.ss_family == AF_UNIX;
}

int ct_line_init_fd(struct ct_line *line, uv_loop_t *loop, int fd)
{
    bool local = is_local(fd);
    CT_ASSERT((local ? uv_pipe_init(loop, &line->handle.pipe, 0)
                     : uv_tcp_init(loop, &line->handle.tcp)) == 0);
    (void)init(line, loop);
    int rc = local ? uv_pipe_open(&line->handle.pipe, fd) : uv_tcp_open(&line->handle.tcp, fd);
    if (rc != 0) {
        (void)close(fd);
        fail_later(line, CT_EIO);
    }
    return 0;
}

/* Messages are so few that the kernel notices a lost one by its timer alone. By default it doubles
 * that timer with each repetition; this keeps it as it is. It fails on a socketpair(), which loses
 * nothing. */
static void repeat_often(struct ct_line *line)
{
    int on = 1;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)&line->handle, &fd) == 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
    }
}

int ct_line_start(struct ct_line *line, size_t max_frame)
{
    line->max_frame = max_frame;
    repeat_often(line);
    return uv_read_start(&line->handle.stream, on_alloc, on_read) == 0 ? 0 : CT_EIO;
}
