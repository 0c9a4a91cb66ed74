/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_sink_put() writes everything with one write(2).
 *
 * Other paths: after EAGAIN or a short write the rest stays pending, and a poll handle (own
 * description) or a timer (shared description) writes it when there is room.
 *
 * Failure modes: what does not fit on a full disk is lost, and when there is room again, a line
 * stands in its place. After any other error the sink counts as gone. What is pending is dropped,
 * on_gone is called, and later bytes are thrown away.
 *
 * Why an open file description of its own: O_NONBLOCK belongs to the description, which ctrun
 * shares with the shell and with workers that inherit it. They would get EAGAIN, which they do not
 * expect. A terminal or pipe can be opened again through /proc/self/fd, as libuv does with
 * terminals.
 */
#include "launcher/output/sink_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pause before a shared descriptor that was full is tried again. */
#define ASK_AGAIN_MS 2

/* Erases a terminal's line, where a segment that ended in '\r' may still stand. */
#define ERASE "\x1b[K"
/* Erases the live line. A terminal that became narrower may have wrapped it into several rows. */
#define ERASE_LIVE "\x1b[J"

static int reopen(int fd)
{
    char path[32];
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    return open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

/* Gives the sink a file description of its own, if the terminal or pipe can be opened again. */
static void try_own(struct ct_sink *sink, uv_loop_t *loop)
{
    sink->kind = CT_SINK_SHARED;
    int own = reopen(sink->fd);
    if (own < 0) {
        return;
    }
    if (uv_poll_init(loop, &sink->poll, own) != 0) {
        close(own);
        return;
    }
    sink->poll.data = sink;
    sink->open_handles++;
    sink->fd = own;
    sink->kind = CT_SINK_OWN;
}

void ct_sink_init(struct ct_sink *sink, uv_loop_t *loop, int fd, const struct ct_sink_ops *ops,
                  void *data)
{
    *sink =
        (struct ct_sink){.ops = ops, .data = data, .kind = CT_SINK_DIRECT, .fd = fd, .last = '\n'};
    (void)uv_timer_init(loop, &sink->timer); /* cannot fail */
    sink->timer.data = sink;
    sink->open_handles = 1;

    struct stat st;
    if (fstat(fd, &st) != 0) {
        sink->kind = CT_SINK_GONE; /* ctrun was started without it, so there is nothing to report */
        return;
    }
    sink->is_terminal = S_ISCHR(st.st_mode) && isatty(fd);
    sink->is_socket = S_ISSOCK(st.st_mode);
    if (sink->is_socket) {
        sink->kind = CT_SINK_SHARED;
    } else if (sink->is_terminal || S_ISFIFO(st.st_mode)) {
        try_own(sink, loop);
    }
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct ct_sink *sink = handle->data;
    if (--sink->open_handles == 0) {
        sink->on_closed(sink); /* is set, because only ct_sink_close() closes the timer */
    }
}

static void sink_gone(struct ct_sink *sink, int errnum)
{
    if (sink->polling) {
        uv_poll_stop(&sink->poll);
        sink->polling = false;
    }
    uv_timer_stop(&sink->timer);
    if (sink->kind == CT_SINK_OWN) {
        uv_close((uv_handle_t *)&sink->poll, on_handle_closed);
        close(sink->fd);
    }
    sink->kind = CT_SINK_GONE;
    ct_buf_fini(&sink->pending);
    sink->ops->on_gone(sink, errnum);
}

/* As write(2), but never waits for room. */
static ssize_t write_some(struct ct_sink *sink, const void *bytes, size_t len)
{
    if (sink->is_socket) {
        return send(sink->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    if (sink->kind == CT_SINK_SHARED) {
        struct pollfd room = {.fd = sink->fd, .events = POLLOUT};
        if (poll(&room, 1, 0) == 0) {
            errno = EAGAIN;
            return -1;
        }
        /* A pipe that is ready has room for this much (pipe(7)). */
        len = len < PIPE_BUF ? len : PIPE_BUF;
    }
    return write(sink->fd, bytes, len);
}

/* Returns how many bytes were written. Fewer than `len`: there is no more room, or writing failed
 * with *errnum. */
static size_t write_most(struct ct_sink *sink, const char *bytes, size_t len, int *errnum)
{
    size_t done = 0;
    *errnum = 0;
    while (done < len) {
        ssize_t n = write_some(sink, bytes + done, len - done);
        if (n >= 0) {
            done += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            *errnum = errno;
            break;
        }
    }
    return done;
}

/* ---- a disk that is full --------------------------------------------------------------------- */

/* There may be room again later, unlike in a pipe that nobody reads any more. */
static bool is_full(const struct ct_sink *sink, int errnum)
{
    return sink->kind == CT_SINK_DIRECT &&
           (errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG);
}

static void sink_full(struct ct_sink *sink, int errnum)
{
    bool said = sink->said_full;
    sink->full = sink->said_full = true;
    if (!said) {
        sink->ops->on_full(sink, errnum);
    }
}

/* Returns false if there is still no room, or if the sink is gone. */
static bool begin_again(struct ct_sink *sink)
{
    static const char notice[] = "\nctrun: output is missing here, because the disk was full\n";
    const char *text = notice + (sink->last == '\n');
    int errnum;
    size_t len = strlen(text), done = write_most(sink, text, len, &errnum);
    if (done > 0) {
        sink->last = text[done - 1];
    }
    if (errnum != 0 && !is_full(sink, errnum)) {
        sink_gone(sink, errnum);
    }
    sink->full = done < len;
    return !sink->full;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void go_on(struct ct_sink *sink);

static void on_sink_writable(uv_poll_t *poll, int status, int events)
{
    (void)status; /* the write reports an error */
    (void)events;
    go_on(poll->data);
}

static void on_sink_timer(uv_timer_t *timer)
{
    go_on(timer->data);
}

static void wait_for_room(struct ct_sink *sink)
{
    if (sink->kind != CT_SINK_OWN) {
        uv_timer_start(&sink->timer, on_sink_timer, ASK_AGAIN_MS, 0);
    } else if (!sink->polling) {
        int rc = uv_poll_start(&sink->poll, UV_WRITABLE, on_sink_writable);
        sink->polling = rc == 0;
        if (rc != 0) {
            sink_gone(sink, -rc);
        }
    }
}

static void go_on(struct ct_sink *sink)
{
    if (sink->on_closed != NULL || sink->kind == CT_SINK_GONE) {
        return;
    }
    int errnum;
    size_t done =
        write_most(sink, (const char *)ct_buf_bytes(&sink->pending), sink->pending.len, &errnum);
    ct_buf_consume(&sink->pending, done);
    if (errnum != 0) {
        sink_gone(sink, errnum);
    } else if (sink->pending.len > 0) {
        wait_for_room(sink);
    } else if (sink->polling) {
        uv_poll_stop(&sink->poll);
        sink->polling = false;
    }
    sink->ops->on_written(sink);
}

int ct_sink_put(struct ct_sink *sink, const void *bytes, size_t len)
{
    if (sink->kind == CT_SINK_GONE || len == 0) {
        return 0;
    }
    if (sink->is_terminal && sink->last == '\r') {
        const char *erase = sink->live ? ERASE_LIVE : ERASE;
        sink->last = '\n';
        sink->live = false;
        int rc = ct_sink_put(sink, erase, strlen(erase));
        if (rc != 0 || sink->kind == CT_SINK_GONE) {
            return rc;
        }
    }
    if (sink->full && (!begin_again(sink) || (len == 1 && *(const char *)bytes == '\n'))) {
        return 0; /* that has ended the line already */
    }
    char before = sink->last;
    sink->last = ((const char *)bytes)[len - 1];
    sink->put += len;

    size_t done = 0;
    if (sink->pending.len == 0) {
        int errnum;
        done = write_most(sink, bytes, len, &errnum);
        if (errnum != 0 && is_full(sink, errnum)) {
            sink->last = done > 0 ? ((const char *)bytes)[done - 1] : before;
            sink_full(sink, errnum);
            return 0;
        }
        if (errnum != 0) {
            sink_gone(sink, errnum);
            return 0;
        }
    }
    if (done == len) {
        return 0;
    }
    int rc = ct_buf_append(&sink->pending, (const char *)bytes + done, len - done);
    if (rc == 0) {
        wait_for_room(sink);
    } else {
        sink->put -= len - done;
    }
    return rc;
}

void ct_sink_live(struct ct_sink *sink, const char *line)
{
    bool fresh = sink->live || sink->last == '\n';
    if (!sink->is_terminal || !fresh || sink->pending.len > 0 || (line == NULL && !sink->live)) {
        return;
    }
    char bytes[CT_SINK_LIVE_MAX];
    int len = line != NULL ? snprintf(bytes, sizeof(bytes), "%s%.*s\r",
                                      sink->live ? ERASE_LIVE : "", CT_SINK_LIVE_MAX - 16, line)
                           : snprintf(bytes, sizeof(bytes), ERASE_LIVE);
    sink->last = '\n'; /* this writes over the line itself */
    sink->live = false;
    bool put = ct_sink_put(sink, bytes, (size_t)len) == 0;
    sink->live = put && line != NULL;
    sink->last = sink->live ? '\r' : '\n';
}

uint64_t ct_sink_written(const struct ct_sink *sink)
{
    return sink->put - sink->pending.len;
}

void ct_sink_close(struct ct_sink *sink, void (*on_closed)(struct ct_sink *sink))
{
    sink->on_closed = on_closed;
    ct_buf_fini(&sink->pending);
    uv_close((uv_handle_t *)&sink->timer, on_handle_closed);
    if (sink->kind == CT_SINK_OWN) {
        uv_close((uv_handle_t *)&sink->poll, on_handle_closed);
        close(sink->fd);
    }
}
