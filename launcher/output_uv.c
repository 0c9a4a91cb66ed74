/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a pipe is readable; its bytes go to the log file, are cut into lines, and the whole
 * lines leave with one write to the sink.
 *
 * Other paths: the sink holds more than CT_OUTPUT_HIGH: the stream is paused until it has fallen to
 * CT_OUTPUT_LOW. The worker has ended but someone holds its pipe: ct_output_settle() takes what is
 * there and closes.
 *
 * Failure modes: log file cannot be written: said once, the file is closed, the worker's output
 * still is shown. The sink is gone: said once, the pipes are still read, so that workers never
 * block on it. Out of memory: said once, the bytes at hand are lost.
 *
 * Who frees: a stream lives until ct_output_stream_free(), its memory until the pipe's close
 * callback; the output until its last handle's close callback.
 */
#include "launcher/output_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "common/list.h"
#include "launcher/sink_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

/* One read of a pipe: its default capacity. */
#define READ_SIZE 65536

struct ct_output_stream {
    struct ct_list link; /* in output->streams */
    struct ct_output *output;
    struct ct_sink *sink;
    struct ct_lines lines;
    uv_pipe_t pipe;
    bool has_pipe; /* the handle is initialised and not closing */
    bool reading;  /* the end of the pipe has not been seen */
    bool paused;   /* not read, because the sink is full */
    int child_fd;  /* ours to close after the spawn; -1 = none */
    int log_fd;    /* -1 = none */
    char *log_path;
    struct ct_line_filter *filter; /* NULL = none */
};

struct ct_output {
    uv_loop_t *loop;
    const struct ct_log *log;
    struct ct_list streams;
    int fds[2];              /* of the options, for workers that inherit */
    struct ct_sink sinks[2]; /* stdout, stderr */
    int sink_count;          /* 1 when both are the same file */
    bool said_lost;
    uv_timer_t timer; /* of settling */
    bool settling;
    int64_t linger_ns, deadline_ns; /* monotonic */
    ct_output_fn settled_cb, closed_cb;
    void *settled_data, *closed_data;
    int open_parts; /* sinks and timer that are not closed yet */
    struct ct_buf batch;
    char chunk[READ_SIZE];
};

static void check_settled(struct ct_output *output);

static struct ct_sink *sink_of(struct ct_output *output, enum ct_output_fd fd)
{
    return &output->sinks[fd == CT_OUTPUT_ERR && output->sink_count == 2];
}

static void say_lost(struct ct_output *output)
{
    if (!output->said_lost) {
        output->said_lost = true;
        ct_log(output->log, CT_LOG_WARNING,
               "some output of the workers is lost: memory or a disk is full");
    }
}

/* ---- one stream -------------------------------------------------------------------------------
 */

static void write_log_file(struct ct_output_stream *stream, const char *bytes, size_t len)
{
    if (stream->log_fd >= 0 && ct_fd_write_all(stream->log_fd, bytes, len) != 0) {
        int error = errno;
        close(stream->log_fd);
        stream->log_fd = -1;
        ct_log(stream->output->log, CT_LOG_WARNING,
               "cannot write %s: %s; the file ends here, the job goes on", stream->log_path,
               strerror(error));
    }
}

/* Sends the lines cut so far on their way. */
static void pass_on(struct ct_output_stream *stream, int cut_rc)
{
    struct ct_buf *batch = &stream->output->batch;
    int put_rc = ct_sink_put(stream->sink, ct_buf_bytes(batch), batch->len);
    ct_buf_reset(batch);
    if (cut_rc != 0 || put_rc != 0) {
        say_lost(stream->output);
    }
}

static void take(struct ct_output_stream *stream, const char *bytes, size_t len)
{
    write_log_file(stream, bytes, len);
    if (stream->filter != NULL && ct_line_filter_feed(stream->filter, bytes, len) != 0) {
        say_lost(stream->output);
    }
    pass_on(stream, ct_lines_feed(&stream->lines, bytes, len, &stream->output->batch));
}

static void end_stream(struct ct_output_stream *stream)
{
    stream->reading = false;
    stream->paused = false;
    uv_read_stop((uv_stream_t *)&stream->pipe);
    pass_on(stream, ct_lines_finish(&stream->lines, &stream->output->batch));
    check_settled(stream->output);
}

static void on_stream_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct ct_output_stream *stream = handle->data;
    /* One chunk for all: it is used up before the next read begins. */
    *buf = uv_buf_init(stream->output->chunk, READ_SIZE);
}

static void on_stream_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf)
{
    struct ct_output_stream *stream = handle->data;
    if (n < 0) {
        end_stream(stream);
    } else if (n > 0) {
        take(stream, buf->base, (size_t)n);
        if (stream->reading && stream->sink->pending.len > CT_OUTPUT_HIGH) {
            stream->paused = true;
            uv_read_stop(handle);
        }
    }
}

/* Reads what is in the pipe now, no more (its writer may never stop), and ends the stream. */
static void cut_off(struct ct_output_stream *stream)
{
    uv_os_fd_t fd;
    int ready = 0;
    if (uv_fileno((uv_handle_t *)&stream->pipe, &fd) == 0 && ioctl(fd, FIONREAD, &ready) == 0) {
        while (ready > 0) {
            ssize_t n = read(fd, stream->output->chunk, READ_SIZE);
            if (n > 0) {
                take(stream, stream->output->chunk, (size_t)n);
                ready -= (int)n;
            } else if (n == 0 || errno != EINTR) {
                break;
            }
        }
    }
    end_stream(stream);
}

static int open_log(struct ct_output_stream *stream, const char *path, struct ct_err *err)
{
    stream->log_path = ct_strdup(path);
    if (stream->log_path == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the log file %s", path);
    }
    stream->log_fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    if (stream->log_fd < 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno, "cannot open log file %s", path);
    }
    return 0;
}

static int open_pipe(struct ct_output_stream *stream, int *child_fd, struct ct_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return ct_err_sys(err, ct_code_from_errno(errno), errno,
                          "cannot make a pipe for a worker's output");
    }
    int rc = uv_pipe_init(stream->output->loop, &stream->pipe, 0);
    if (rc == 0) {
        stream->pipe.data = stream;
        stream->has_pipe = true;
        rc = uv_pipe_open(&stream->pipe, ends[0]);
        if (rc == 0) {
            ends[0] = -1; /* the handle's now */
            rc = uv_read_start((uv_stream_t *)&stream->pipe, on_stream_alloc, on_stream_read);
        }
    }
    if (rc != 0) {
        close(ends[1]);
        if (ends[0] >= 0) {
            close(ends[0]);
        }
        return ct_err_set(err, CT_EIO, "cannot read a worker's output: %s", uv_strerror(rc));
    }
    stream->reading = true;
    stream->child_fd = ends[1];
    *child_fd = ends[1];
    return 0;
}

int ct_output_stream_open(struct ct_output *output, const struct ct_output_stream_options *options,
                          struct ct_output_stream **out, int *child_fd, struct ct_err *err)
{
    struct ct_output_stream *stream = ct_calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for a worker's output");
    }
    stream->output = output;
    stream->sink = sink_of(output, options->to);
    stream->child_fd = -1;
    stream->log_fd = -1;
    ct_list_append(&output->streams, &stream->link);
    ct_lines_init(&stream->lines, options->mode, options->prefix);

    int rc = 0;
    int fd = output->fds[options->to == CT_OUTPUT_ERR];
    if (options->log_path != NULL) {
        rc = open_log(stream, options->log_path, err);
    }
    if (rc == 0 && options->filter != NULL) {
        rc = ct_line_filter_open(options->filter, &stream->filter, err);
    }
    if (rc == 0 && !options->inherit) {
        rc = open_pipe(stream, &fd, err);
    }
    if (rc != 0) {
        ct_output_stream_free(stream);
        return rc;
    }
    *child_fd = fd;
    *out = stream;
    return 0;
}

void ct_output_stream_spawned(struct ct_output_stream *stream)
{
    if (stream->child_fd >= 0) {
        close(stream->child_fd);
        stream->child_fd = -1;
    }
}

int ct_output_stream_tail(const struct ct_output_stream *stream, const char *indent,
                          struct ct_buf *out)
{
    return ct_lines_tail(&stream->lines, indent, out);
}

static void free_stream(struct ct_output_stream *stream)
{
    ct_free(stream->log_path);
    ct_lines_fini(&stream->lines);
    ct_line_filter_free(stream->filter);
    ct_free(stream);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    free_stream(handle->data);
}

void ct_output_stream_free(struct ct_output_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    ct_output_stream_spawned(stream);
    if (stream->log_fd >= 0) {
        close(stream->log_fd);
    }
    ct_list_remove(&stream->link);
    if (stream->has_pipe) {
        uv_close((uv_handle_t *)&stream->pipe, on_pipe_closed);
    } else {
        free_stream(stream);
    }
}

/* ---- sinks ------------------------------------------------------------------------------------
 */

static void resume_streams(struct ct_output *output, const struct ct_sink *sink)
{
    for (struct ct_list *l = output->streams.next; l != &output->streams; l = l->next) {
        struct ct_output_stream *stream = CT_CONTAINER_OF(l, struct ct_output_stream, link);
        if (stream->paused && stream->sink == sink) {
            stream->paused = false;
            /* Cannot fail: the pipe is open and was read before. */
            (void)uv_read_start((uv_stream_t *)&stream->pipe, on_stream_alloc, on_stream_read);
        }
    }
}

static void on_sink_written(struct ct_sink *sink)
{
    if (sink->pending.len <= CT_OUTPUT_LOW) {
        resume_streams(sink->data, sink);
    }
    check_settled(sink->data);
}

static void on_sink_gone(struct ct_sink *sink, int errnum)
{
    struct ct_output *output = sink->data;
    ct_log(output->log, CT_LOG_WARNING,
           "%s: %s; what workers write there is not shown any more, the job goes on",
           sink == &output->sinks[0] ? "stdout" : "stderr", strerror(errnum));
    on_sink_written(sink);
}

static const struct ct_sink_ops sink_ops = {.on_gone = on_sink_gone, .on_written = on_sink_written};

static bool same_file(int a, int b)
{
    struct stat x;
    struct stat y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool ct_output_is_terminal(const struct ct_output *output, enum ct_output_fd fd)
{
    return sink_of((struct ct_output *)output, fd)->is_terminal;
}

void ct_output_say(struct ct_output *output, enum ct_output_fd fd, const char *bytes, size_t len)
{
    struct ct_sink *sink = sink_of(output, fd);
    int rc = 0;
    if (sink->last != '\n' && sink->last != '\r') {
        rc = ct_sink_put(sink, "\n", 1);
    }
    rc = rc == 0 ? ct_sink_put(sink, bytes, len) : rc;
    if (rc != 0) {
        say_lost(output);
    }
}

/* ---- the end ----------------------------------------------------------------------------------
 */

static bool all_ended(const struct ct_output *output)
{
    for (const struct ct_list *l = output->streams.next; l != &output->streams; l = l->next) {
        if (CT_CONTAINER_OF(l, struct ct_output_stream, link)->reading) {
            return false;
        }
    }
    return true;
}

static bool all_written(const struct ct_output *output)
{
    return output->sinks[0].pending.len == 0 && output->sinks[1].pending.len == 0;
}

static void on_settle_timer(uv_timer_t *timer);

static void check_settled(struct ct_output *output)
{
    if (output->settling && all_ended(output) && all_written(output)) {
        uv_timer_start(&output->timer, on_settle_timer, 0, 0);
    }
}

/* Ends the streams that are still open; a paused one only when there is no time left, since its
 * sink would have to hold what comes. */
static void cut_off_streams(struct ct_output *output, bool paused_too)
{
    for (struct ct_list *l = output->streams.next; l != &output->streams; l = l->next) {
        struct ct_output_stream *stream = CT_CONTAINER_OF(l, struct ct_output_stream, link);
        if (stream->reading && (paused_too || !stream->paused)) {
            cut_off(stream);
        }
    }
}

static void on_settle_timer(uv_timer_t *timer)
{
    struct ct_output *output = timer->data;
    int64_t now = ct_clock_now(NULL);
    bool late = now >= output->deadline_ns;
    if (late || now >= output->linger_ns) {
        cut_off_streams(output, late);
        output->linger_ns = now + CT_OUTPUT_LINGER_MS * CT_NS_PER_MS;
    }
    if (late || (all_ended(output) && all_written(output))) {
        output->settling = false;
        uv_timer_stop(timer);
        output->settled_cb(output->settled_data);
        return;
    }
    int64_t next =
        output->linger_ns < output->deadline_ns ? output->linger_ns : output->deadline_ns;
    uv_timer_start(timer, on_settle_timer, (uint64_t)((next - now) / CT_NS_PER_MS) + 1, 0);
}

void ct_output_settle(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data)
{
    CT_ASSERT(!output->settling);
    output->settling = true;
    output->settled_cb = cb;
    output->settled_data = data;
    output->deadline_ns = ct_deadline_in(NULL, timeout_ms);
    output->linger_ns = ct_deadline_in(NULL, CT_OUTPUT_LINGER_MS);
    uv_timer_start(&output->timer, on_settle_timer, 0, 0);
}

static void part_closed(struct ct_output *output)
{
    if (--output->open_parts > 0) {
        return;
    }
    if (output->closed_cb != NULL) {
        output->closed_cb(output->closed_data);
    }
    ct_buf_fini(&output->batch);
    ct_free(output);
}

static void on_sink_closed(struct ct_sink *sink)
{
    part_closed(sink->data);
}

static void on_timer_closed(uv_handle_t *handle)
{
    part_closed(handle->data);
}

static void close_parts(void *data)
{
    struct ct_output *output = data;
    output->open_parts = output->sink_count + 1;
    for (int i = 0; i < output->sink_count; i++) {
        ct_sink_close(&output->sinks[i], on_sink_closed);
    }
    uv_close((uv_handle_t *)&output->timer, on_timer_closed);
}

int ct_output_open(uv_loop_t *loop, const struct ct_output_options *options, struct ct_output **out,
                   struct ct_err *err)
{
    struct ct_output *output = ct_calloc(1, sizeof(*output));
    if (output == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the workers' output");
    }
    output->loop = loop;
    output->log = options->log;
    output->fds[0] = options->out_fd;
    output->fds[1] = options->err_fd;
    ct_list_init(&output->streams);
    output->sink_count = same_file(options->out_fd, options->err_fd) ? 1 : 2;
    for (int i = 0; i < output->sink_count; i++) {
        ct_sink_init(&output->sinks[i], loop, output->fds[i], &sink_ops, output);
    }
    (void)uv_timer_init(loop, &output->timer); /* cannot fail */
    output->timer.data = output;
    *out = output;
    return 0;
}

void ct_output_close(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data)
{
    if (output == NULL) {
        return;
    }
    CT_ASSERT(ct_list_empty(&output->streams));
    output->closed_cb = cb;
    output->closed_data = data;
    ct_output_settle(output, timeout_ms, close_parts, output);
}
