/* SPDX-License-Identifier: Apache-2.0
 *
 * One stream of one worker: its pipe, its log file and its filter. Bytes that are read go to the
 * log file, through the filter, and as whole lines to the sink. output_uv.c has the other paths and
 * the failure modes.
 *
 * Who frees: ct_output_stream_free(); the memory goes in the pipe's close callback.
 */
#include "launcher/output/output_stream_uv.h"

#include "common/alloc.h"
#include "common/file.h"
#include "common/text.h"
#include "launcher/output/output_fold_uv.h"
#include "launcher/output/output_state_uv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

/* ---- dropping -------------------------------------------------------------------------------- */

size_t ct_output_stream_limit(const struct ct_output *output)
{
    size_t share = CT_OUTPUT_KEEP_ALL / (output->stream_count > 0 ? output->stream_count : 1);
    return share > CT_OUTPUT_KEEP         ? CT_OUTPUT_KEEP
           : share < CT_OUTPUT_KEEP_LEAST ? CT_OUTPUT_KEEP_LEAST
                                          : share;
}

/* Writes the message where the missing lines would stand. */
static void say_dropped(struct ct_output_stream *stream)
{
    char number[CT_TEXT_THOUSANDS_MAX], text[160];
    if (stream->dropped == 0) {
        return;
    }
    ct_text_thousands(stream->dropped, number);
    int len = snprintf(
        text, sizeof(text), "ctrun: %s line%s of rank %d %s dropped: the %s was too slow\n", number,
        stream->dropped == 1 ? "" : "s", stream->rank, stream->dropped == 1 ? "was" : "were",
        stream->sink->is_terminal ? "terminal" : "reader");
    stream->dropped = 0;
    ct_output_put(stream->output, stream->sink, text, (size_t)len);
}

void ct_output_stream_has_room(struct ct_output_stream *stream)
{
    if (stream->dropping && ct_backlog_left(&stream->backlog, ct_sink_written(stream->sink)) <=
                                ct_output_stream_limit(stream->output) / 2) {
        stream->dropping = false;
        say_dropped(stream);
    }
}

/* Drops and counts these lines if too much of the stream still waits. Returns whether it did. */
static bool drop(struct ct_output_stream *stream, const struct ct_buf *batch)
{
    if (!stream->drops) {
        return false;
    }
    ct_output_stream_has_room(stream);
    if (!stream->dropping) {
        uint64_t left = ct_backlog_left(&stream->backlog, ct_sink_written(stream->sink));
        stream->dropping = left >= ct_output_stream_limit(stream->output);
    }
    const char *p = (const char *)ct_buf_bytes(batch);
    const char *end = p + batch->len;
    while (stream->dropping && p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        stream->dropped++;
        p++;
    }
    return stream->dropping;
}

static void note_last(const struct ct_output_stream *stream, const struct ct_buf *batch)
{
    struct ct_output *output = stream->output;
    const char *p = (const char *)ct_buf_bytes(batch), *end = p + batch->len;
    if (output->last != stream) {
        output->last = stream;
        output->last_lines = 0;
    }
    while (p < end && (p = memchr(p, '\n', (size_t)(end - p))) != NULL) {
        output->last_lines++;
        p++;
    }
}

bool ct_output_stream_is_last(const struct ct_output_stream *stream, uint64_t lines)
{
    return stream->output->last == stream && stream->output->last_lines >= lines;
}

/* Sends the lines in output->batch to the fold or the sink, unless they are dropped. */
static void pass_on(struct ct_output_stream *stream, int cut_rc)
{
    struct ct_buf *batch = &stream->output->batch;
    int put_rc = 0;
    bool dropped = batch->len > 0 && drop(stream, batch);
    if (dropped) {
        stream->output->last = NULL; /* some of its lines are missing */
    } else if (batch->len > 0) {
        note_last(stream, batch);
        if (stream->fold.workers > 0) {
            ct_output_fold_pass(stream, batch);
        } else {
            put_rc = ct_sink_put(stream->sink, ct_buf_bytes(batch), batch->len);
            ct_backlog_put(&stream->backlog, batch->len, stream->sink->put,
                           ct_output_stream_limit(stream->output));
        }
    }
    ct_buf_reset(batch);
    if (cut_rc != 0 || put_rc != 0) {
        ct_output_say_lost(stream->output);
    }
}

static void take(struct ct_output_stream *stream, const char *bytes, size_t len)
{
    write_log_file(stream, bytes, len);
    if (stream->filter != NULL && ct_line_filter_feed(stream->filter, bytes, len) != 0) {
        ct_output_say_lost(stream->output);
    }
    pass_on(stream, ct_lines_feed(&stream->lines, bytes, len, &stream->output->batch));
}

static void end_stream(struct ct_output_stream *stream)
{
    stream->reading = false;
    stream->paused = false;
    uv_read_stop((uv_stream_t *)&stream->pipe);
    pass_on(stream, ct_lines_finish(&stream->lines, &stream->output->batch));
    say_dropped(stream);
    ct_output_check_drained(stream->output);
}

static void on_stream_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)suggested;
    struct ct_output_stream *stream = handle->data;
    /* All streams share one chunk, because each read is processed before the next one begins. */
    *buf = uv_buf_init(stream->output->chunk, CT_OUTPUT_READ_SIZE);
}

static void on_stream_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buf)
{
    struct ct_output_stream *stream = handle->data;
    if (n < 0) {
        end_stream(stream);
    } else if (n > 0) {
        take(stream, buf->base, (size_t)n);
        if (stream->reading && stream->sink->pending.len > CT_OUTPUT_HIGH && !stream->drops) {
            stream->paused = true;
            uv_read_stop(handle);
        }
    }
}

void ct_output_stream_resume(struct ct_output_stream *stream)
{
    stream->paused = false;
    /* Cannot fail: the pipe is open and was read before. */
    (void)uv_read_start((uv_stream_t *)&stream->pipe, on_stream_alloc, on_stream_read);
}

/* Takes what is in the pipe now. */
static void take_ready(struct ct_output_stream *stream)
{
    uv_os_fd_t fd;
    int ready = 0;
    if (uv_fileno((uv_handle_t *)&stream->pipe, &fd) == 0 && ioctl(fd, FIONREAD, &ready) == 0) {
        while (ready > 0) {
            ssize_t n = read(fd, stream->output->chunk, CT_OUTPUT_READ_SIZE);
            if (n > 0) {
                take(stream, stream->output->chunk, (size_t)n);
                ready -= (int)n;
            } else if (n == 0 || errno != EINTR) {
                break;
            }
        }
    }
}

void ct_output_stream_cut_off(struct ct_output_stream *stream)
{
    take_ready(stream);
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
            ends[0] = -1; /* the handle owns it now */
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

/* Sets the destinations of a stream that has none yet. */
static int open_route(struct ct_output_stream *stream,
                      const struct ct_output_stream_options *options, struct ct_err *err)
{
    int rc = 0;
    stream->rank = options->rank;
    if (options->mode == CT_LINES_TERMINAL && stream->sink->is_terminal) {
        stream->fold = options->fold;
    }
    ct_lines_init(&stream->lines, options->mode, options->prefix);
    if (options->log_path != NULL) {
        rc = open_log(stream, options->log_path, err);
    }
    if (rc == 0 && options->filter != NULL) {
        rc = ct_line_filter_open(options->filter, &stream->filter, err);
    }
    return rc;
}

static void close_route(struct ct_output_stream *stream)
{
    if (stream->log_fd >= 0) {
        close(stream->log_fd);
        stream->log_fd = -1;
    }
    if (stream->fold.workers > 0) {
        /* Lines of this stream may wait there. */
        ct_output_fold_flush(stream->output, stream->sink);
        stream->fold = (struct ct_output_fold){0};
    }
    ct_free(stream->log_path);
    stream->log_path = NULL;
    ct_lines_fini(&stream->lines);
    ct_line_filter_free(stream->filter);
    stream->filter = NULL;
}

void ct_output_stream_stays(struct ct_output_stream *stream, bool stays)
{
    stream->stays = stays;
}

int ct_output_stream_next(struct ct_output_stream *stream,
                          const struct ct_output_stream_options *options, struct ct_err *err)
{
    ct_output_stream_catch_up(stream);
    pass_on(stream, ct_lines_finish(&stream->lines, &stream->output->batch));
    say_dropped(stream);
    close_route(stream);
    stream->stays = false;
    return open_route(stream, options, err);
}

int ct_output_stream_open(struct ct_output *output, const struct ct_output_stream_options *options,
                          struct ct_output_stream **out, int *child_fd, struct ct_err *err)
{
    struct ct_output_stream *stream = ct_calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for a worker's output");
    }
    stream->output = output;
    stream->sink = ct_output_sink(output, options->to);
    stream->child_fd = -1;
    stream->log_fd = -1;
    stream->drops = options->slow == CT_SLOW_OUTPUT_DROP ||
                    (options->slow == CT_SLOW_OUTPUT_AUTO && stream->sink->is_terminal);
    ct_list_append(&output->streams, &stream->link);
    output->stream_count++;
    bool inherit = options->inherit && !output->apart;
    if (inherit && stream->sink->is_terminal) {
        output->shared_terminal = true;
        ct_output_live(output, NULL);
    }

    int fd = output->fds[options->to == CT_OUTPUT_ERR];
    int rc = open_route(stream, options, err);
    if (rc == 0 && !inherit) {
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

void ct_output_stream_catch_up(struct ct_output_stream *stream)
{
    if (stream->has_pipe && stream->reading) {
        take_ready(stream);
    }
}

int ct_output_stream_tail(const struct ct_output_stream *stream, const char *indent,
                          struct ct_buf *out)
{
    return ct_lines_tail(&stream->lines, indent, out);
}

const char *ct_output_stream_tail_bytes(const struct ct_output_stream *stream, size_t *len)
{
    return ct_lines_tail_bytes(&stream->lines, len);
}

static void on_pipe_closed(uv_handle_t *handle)
{
    ct_free(handle->data);
}

void ct_output_stream_free(struct ct_output_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    ct_output_stream_spawned(stream);
    close_route(stream);
    if (stream->output->last == stream) {
        stream->output->last = NULL;
    }
    ct_list_remove(&stream->link);
    stream->output->stream_count--;
    if (stream->has_pipe) {
        uv_close((uv_handle_t *)&stream->pipe, on_pipe_closed);
    } else {
        ct_free(stream);
    }
}
