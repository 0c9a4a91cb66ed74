/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a pipe becomes readable. Its bytes go to the log file and are cut into lines, and all
 * complete lines are written to the sink at once.
 *
 * Other paths: when a sink holds more than CT_OUTPUT_HIGH, its streams are paused until it holds
 * less than CT_OUTPUT_LOW. When a worker has ended but another process holds its pipe,
 * ct_output_drain() reads what is there and closes the pipe.
 *
 * Failure modes: when a log file cannot be written, a message says so once and the file is closed;
 * the output is still shown. When a sink is gone, a message says so once; the pipes are still read,
 * so that workers do not block. When memory runs out, a message says so once, and the bytes just
 * read are lost.
 *
 * Who frees: a stream lives until ct_output_stream_free(), its memory until the close callback of
 * its pipe. The output lives until the close callback of its last handle.
 */
#include "launcher/output/output_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/output/output_fold_uv.h"
#include "launcher/output/output_state_uv.h"
#include "launcher/output/output_stream_uv.h"

#include <string.h>
#include <sys/stat.h>

struct ct_sink *ct_output_sink(struct ct_output *output, enum ct_output_fd fd)
{
    return &output->sinks[fd == CT_OUTPUT_ERR && output->sink_count == 2];
}

void ct_output_say_lost(struct ct_output *output)
{
    if (!output->said_lost) {
        output->said_lost = true;
        ct_log(output->log, CT_LOG_WARNING,
               "some output of the workers is lost: memory or a disk is full");
    }
}

/* ---- sinks ----------------------------------------------------------------------------------- */

static void on_sink_written(struct ct_sink *sink)
{
    struct ct_output *output = sink->data;
    bool resumes = sink->pending.len <= CT_OUTPUT_LOW;
    for (struct ct_list *l = output->streams.next; l != &output->streams; l = l->next) {
        struct ct_output_stream *stream = CT_CONTAINER_OF(l, struct ct_output_stream, link);
        if (stream->sink != sink) {
            continue;
        }
        if (resumes && stream->paused) {
            ct_output_stream_resume(stream);
        }
        ct_output_stream_has_room(stream);
    }
    ct_output_check_drained(output);
}

static void on_sink_gone(struct ct_sink *sink, int errnum)
{
    struct ct_output *output = sink->data;
    ct_log(output->log, CT_LOG_WARNING,
           "%s: %s; what workers write there is not shown any more, the job goes on",
           sink == &output->sinks[0] ? "stdout" : "stderr", strerror(errnum));
    on_sink_written(sink);
}

/* If stderr is the same file, this line is lost, too. */
static void on_sink_full(struct ct_sink *sink, int errnum)
{
    struct ct_output *output = sink->data;
    ct_log(output->log, CT_LOG_WARNING,
           "%s: %s; what workers write there is lost until there is room again, the job goes on",
           sink == &output->sinks[0] ? "stdout" : "stderr", strerror(errnum));
}

static const struct ct_sink_ops sink_ops = {
    .on_gone = on_sink_gone, .on_full = on_sink_full, .on_written = on_sink_written};

static bool same_file(int a, int b)
{
    struct stat x;
    struct stat y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool ct_output_is_terminal(const struct ct_output *output, enum ct_output_fd fd)
{
    return ct_output_sink((struct ct_output *)output, fd)->is_terminal;
}

void ct_output_say(struct ct_output *output, enum ct_output_fd fd, const char *bytes, size_t len)
{
    ct_output_put(output, ct_output_sink(output, fd), bytes, len);
}

void ct_output_put(struct ct_output *output, struct ct_sink *sink, const char *bytes, size_t len)
{
    ct_output_fold_flush(output, sink);
    bool fresh = sink->last == '\n' || sink->last == '\r' || ct_sink_put(sink, "\n", 1) == 0;
    if (!fresh || ct_sink_put(sink, bytes, len) != 0) {
        ct_output_say_lost(output);
    }
}

bool ct_output_can_live(const struct ct_output *output)
{
    const struct ct_sink *out = &output->sinks[0];
    const struct ct_sink *err = ct_output_sink((struct ct_output *)output, CT_OUTPUT_ERR);
    bool apart = out->is_terminal || out->kind == CT_SINK_DIRECT || out->kind == CT_SINK_GONE;
    return err->is_terminal && err->kind != CT_SINK_GONE && apart && !output->shared_terminal;
}

void ct_output_live(struct ct_output *output, const char *line)
{
    struct ct_sink *sink = ct_output_sink(output, CT_OUTPUT_ERR);
    bool scrolls = sink->put != output->live_mark;
    if (line == NULL || (!scrolls && ct_output_can_live(output))) {
        ct_sink_live(sink, line);
    }
    output->live_mark = sink->put;
}

/* ---- the end --------------------------------------------------------------------------------- */

static bool all_ended(const struct ct_output *output)
{
    for (const struct ct_list *l = output->streams.next; l != &output->streams; l = l->next) {
        const struct ct_output_stream *stream = CT_CONTAINER_OF(l, struct ct_output_stream, link);
        if (stream->reading && !stream->stays) {
            return false;
        }
    }
    return true;
}

static bool all_written(const struct ct_output *output)
{
    return output->sinks[0].pending.len == 0 && output->sinks[1].pending.len == 0;
}

static void on_drain_timer(uv_timer_t *timer);

static void flush_folds(struct ct_output *output)
{
    for (int i = 0; i < output->sink_count; i++) {
        ct_output_fold_flush(output, &output->sinks[i]);
    }
}

void ct_output_check_drained(struct ct_output *output)
{
    if (output->draining && all_ended(output)) {
        flush_folds(output);
    }
    if (output->draining && all_ended(output) && all_written(output)) {
        uv_timer_start(&output->timer, on_drain_timer, 0, 0);
    }
}

/* Ends the streams that are still open. A paused stream is ended only if `paused_too`, because its
 * sink is full and would have to hold what is read. */
static void cut_off_streams(struct ct_output *output, bool paused_too)
{
    for (struct ct_list *l = output->streams.next; l != &output->streams; l = l->next) {
        struct ct_output_stream *stream = CT_CONTAINER_OF(l, struct ct_output_stream, link);
        if (stream->reading && !stream->stays && (paused_too || !stream->paused)) {
            ct_output_stream_cut_off(stream);
        }
    }
}

static void on_drain_timer(uv_timer_t *timer)
{
    struct ct_output *output = timer->data;
    int64_t now = ct_clock_now(NULL);
    bool late = now >= output->deadline_ns;
    if (late || now >= output->linger_ns) {
        cut_off_streams(output, late);
        output->linger_ns = now + CT_OUTPUT_LINGER_MS * CT_NS_PER_MS;
    }
    if (late || all_ended(output)) {
        flush_folds(output);
    }
    if (late || (all_ended(output) && all_written(output))) {
        output->draining = false;
        uv_timer_stop(timer);
        output->drained_cb(output->drained_data);
        return;
    }
    int64_t next =
        output->linger_ns < output->deadline_ns ? output->linger_ns : output->deadline_ns;
    uv_timer_start(timer, on_drain_timer, (uint64_t)((next - now) / CT_NS_PER_MS) + 1, 0);
}

void ct_output_drain(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data)
{
    CT_ASSERT(!output->draining);
    output->draining = true;
    output->drained_cb = cb;
    output->drained_data = data;
    output->deadline_ns = ct_deadline_in(NULL, timeout_ms);
    output->linger_ns = ct_deadline_in(NULL, CT_OUTPUT_LINGER_MS);
    uv_timer_start(&output->timer, on_drain_timer, 0, 0);
}

static void part_closed(struct ct_output *output)
{
    if (--output->open_parts > 0) {
        return;
    }
    if (output->closed_cb != NULL) {
        output->closed_cb(output->closed_data);
    }
    ct_fold_fini(&output->folds[0]);
    ct_fold_fini(&output->folds[1]);
    ct_buf_fini(&output->batch);
    ct_free(output->chunk);
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
    output->open_parts = output->sink_count + 2;
    for (int i = 0; i < output->sink_count; i++) {
        ct_sink_close(&output->sinks[i], on_sink_closed);
    }
    uv_close((uv_handle_t *)&output->timer, on_timer_closed);
    uv_close((uv_handle_t *)&output->fold_timer, on_timer_closed);
}

int ct_output_open(uv_loop_t *loop, const struct ct_output_options *options, struct ct_output **out,
                   struct ct_err *err)
{
    struct ct_output *output = ct_calloc(1, sizeof(*output));
    char *chunk = ct_malloc(CT_OUTPUT_READ_SIZE);
    if (output == NULL || chunk == NULL) {
        ct_free(chunk);
        ct_free(output);
        return ct_err_set(err, CT_ENOMEM, "out of memory for the workers' output");
    }
    output->chunk = chunk;
    output->loop = loop;
    output->log = options->log;
    output->fds[0] = options->out_fd;
    output->fds[1] = options->err_fd;
    output->apart = options->apart;
    ct_list_init(&output->streams);
    output->sink_count = same_file(options->out_fd, options->err_fd) ? 1 : 2;
    for (int i = 0; i < output->sink_count; i++) {
        ct_sink_init(&output->sinks[i], loop, output->fds[i], &sink_ops, output);
    }
    for (int i = 0; i < 2; i++) {
        ct_fold_init(&output->folds[i]);
    }
    (void)uv_timer_init(loop, &output->timer); /* cannot fail */
    output->timer.data = output;
    (void)uv_timer_init(loop, &output->fold_timer); /* cannot fail */
    output->fold_timer.data = output;
    *out = output;
    return 0;
}

void ct_output_close(struct ct_output *output, int64_t timeout_ms, ct_output_fn cb, void *data)
{
    if (output == NULL) {
        return;
    }
    CT_ASSERT(ct_list_empty(&output->streams));
    ct_output_live(output, NULL);
    output->closed_cb = cb;
    output->closed_data = data;
    ct_output_drain(output, timeout_ms, close_parts, output);
}
