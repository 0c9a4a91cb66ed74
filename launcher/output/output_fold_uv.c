/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a line of a worker waits in the fold of its terminal for equal ones. When all workers
 * have written it, or the timer fires, it goes to the sink.
 *
 * Other paths: some lines do not wait, and everything that waits leaves in front of them: ctrun's
 * own lines, a segment of a progress bar, and lines of a stream that carries many workers when they
 * do not say whose they are. The end of a stream also sends out what waits.
 *
 * Failure modes: a line without memory for it is lost, and the user is told once.
 *
 * Who frees: the fold owns the lines that wait. Each line refers to the stream whose backlog is
 * charged for it, so the fold is emptied before a stream is freed.
 */
#include "launcher/output/output_fold_uv.h"

#include "common/clock.h"
#include "launcher/output/output_state_uv.h"
#include "launcher/output/output_stream_uv.h"

#include <string.h>

static struct ct_fold *fold_of(struct ct_output *output, const struct ct_sink *sink)
{
    return &output->folds[sink - output->sinks];
}

/* Charges the stream for the last `len` bytes in `out`, which goes to the sink next. */
static void charge(struct ct_output_stream *stream, size_t len, const struct ct_buf *out)
{
    ct_backlog_put(&stream->backlog, len, stream->sink->put + out->len,
                   ct_output_stream_limit(stream->output));
}

/* Appends the lines that are due. Each is charged to the stream that wrote it first. */
static int collect(struct ct_fold *fold, int64_t now_ns, struct ct_buf *out)
{
    for (;;) {
        void *owner;
        size_t before = out->len;
        int rc = ct_fold_next(fold, now_ns, out, &owner);
        if (rc != 0) {
            return rc == CT_FOLD_NONE_DUE ? 0 : rc;
        }
        charge(owner, out->len - before, out);
    }
}

/* Writes what was collected; takes `out`. */
static void finish(struct ct_output *output, struct ct_sink *sink, int rc, struct ct_buf *out)
{
    int put_rc = out->len > 0 ? ct_sink_put(sink, ct_buf_bytes(out), out->len) : 0;
    ct_buf_fini(out);
    if (rc != 0 || put_rc != 0) {
        ct_output_say_lost(output);
    }
}

static void emit(struct ct_output *output, struct ct_sink *sink, int64_t now_ns)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = collect(fold_of(output, sink), now_ns, &out);
    finish(output, sink, rc, &out);
}

static void on_fold_timer(uv_timer_t *timer);

static void set_timer(struct ct_output *output, int64_t now_ns)
{
    int64_t a = ct_fold_due_ns(&output->folds[0]), b = ct_fold_due_ns(&output->folds[1]);
    int64_t due_ns = a < b ? a : b;
    if (due_ns == INT64_MAX) {
        uv_timer_stop(&output->fold_timer);
    } else {
        int64_t left_ns = due_ns > now_ns ? due_ns - now_ns : 0;
        uv_timer_start(&output->fold_timer, on_fold_timer, (uint64_t)(left_ns / CT_NS_PER_MS) + 1,
                       0);
    }
}

static void on_fold_timer(uv_timer_t *timer)
{
    struct ct_output *output = timer->data;
    int64_t now_ns = ct_clock_now(NULL);
    for (int i = 0; i < output->sink_count; i++) {
        emit(output, &output->sinks[i], now_ns);
    }
    set_timer(output, now_ns);
}

void ct_output_fold_flush(struct ct_output *output, struct ct_sink *sink)
{
    if (fold_of(output, sink)->count > 0) {
        emit(output, sink, INT64_MAX);
        set_timer(output, 0);
    }
}

/* Fills in *out. Returns false when the line must not wait. */
static bool describe(struct ct_output_stream *stream, const char *bytes, size_t len,
                     struct ct_fold_line *out)
{
    *out = (struct ct_fold_line){
        .rank = stream->rank,
        .first_rank = stream->fold.first_rank,
        .workers = stream->fold.workers,
        .bytes = bytes,
        .len = len,
        .prefix_len = stream->lines.prefix_len,
        .host = stream->fold.host,
        .colour = stream->fold.colour,
        .owner = stream,
    };
    if (memchr(bytes, '\r', len) != NULL) {
        return false;
    }
    return !stream->fold.forwarded ||
           (ct_lines_read_prefix(bytes, len, &out->rank, &out->prefix_len) &&
            out->rank < CT_FOLD_RANKS_MAX);
}

void ct_output_fold_pass(struct ct_output_stream *stream, const struct ct_buf *batch)
{
    struct ct_output *output = stream->output;
    struct ct_fold *waiting = fold_of(output, stream->sink);
    struct ct_fold_line line;
    const char *p = (const char *)ct_buf_bytes(batch), *end = p + batch->len;
    struct ct_buf out = CT_BUF_INIT;
    int64_t now_ns = ct_clock_now(NULL);
    int result = 0;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        size_t len = (size_t)((newline != NULL ? newline + 1 : end) - p);
        bool folds = describe(stream, p, len, &line);
        int rc = folds ? ct_fold_add(waiting, &line, now_ns) : 0;
        if (rc == 0) {
            rc = collect(waiting, folds ? now_ns : INT64_MAX, &out);
        }
        if (rc == 0 && !folds) {
            rc = ct_buf_append(&out, p, len);
            charge(stream, len, &out);
        }
        if (rc != 0) {
            result = rc;
        }
        p += len;
    }
    finish(output, stream->sink, result, &out);
    set_timer(output, now_ns);
}
