/* SPDX-License-Identifier: Apache-2.0
 *
 * What output_uv.c (sinks, the end), output_stream_uv.c (one worker's stream) and output_fold_uv.c
 * (equal lines) share.
 */
#ifndef CT_LAUNCHER_OUTPUT_OUTPUT_IMPL_UV_H
#define CT_LAUNCHER_OUTPUT_OUTPUT_IMPL_UV_H

#include "common/list.h"
#include "launcher/output/backlog.h"
#include "launcher/output/output_uv.h"
#include "launcher/output/sink_uv.h"

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
    bool stays;    /* its end is not awaited */
    int child_fd;  /* ours to close after the spawn; -1 = none */
    int log_fd;    /* -1 = none */
    char *log_path;
    struct ct_line_filter *filter; /* NULL = none */
    int rank;
    bool drops; /* lines for which the sink has no room, rather than have the worker wait */
    struct ct_backlog backlog; /* what waits in the sink */
    struct ct_output_fold fold;
    bool dropping;    /* nothing is put until half of that has left */
    uint64_t dropped; /* lines, since it was said last */
};

struct ct_output {
    uv_loop_t *loop;
    const struct ct_log *log;
    struct ct_list streams;
    int fds[2];              /* of the options, for workers that inherit */
    struct ct_sink sinks[2]; /* stdout, stderr */
    int sink_count;          /* 1 when both are the same file */
    size_t stream_count;
    bool said_lost;
    struct ct_fold folds[2]; /* of the sinks */
    uv_timer_t fold_timer;
    uv_timer_t timer; /* of draining */
    bool draining;
    int64_t linger_ns, deadline_ns; /* monotonic */
    ct_output_fn drained_cb, closed_cb;
    void *drained_data, *closed_data;
    int open_parts; /* sinks and timer that are not closed yet */
    struct ct_buf batch;
    char *chunk; /* READ_SIZE bytes for whoever reads; most are never touched */
};

struct ct_sink *ct_output_sink(struct ct_output *output, enum ct_output_fd fd);

/* Lines of a stream that folds, on their way to its sink. */
void ct_output_pass(struct ct_output_stream *stream, const struct ct_buf *batch);

/* Nothing waits in the fold of this sink any longer. */
void ct_output_unfold(struct ct_output *output, struct ct_sink *sink);

/* How much of this stream may wait in a sink. */
size_t ct_output_stream_keep(const struct ct_output *output);

/* ctrun's own lines, on a fresh line. */
void ct_output_put(struct ct_output *output, struct ct_sink *sink, const char *bytes, size_t len);

/* Says once that something was lost for want of memory. */
void ct_output_say_lost(struct ct_output *output);

/* A stream has ended or a sink has taken something: that may have been the last. */
void ct_output_check_drained(struct ct_output *output);

/* Some bytes have left the sink: a stream that drops lines may have room again, and then says what
 * is missing. */
void ct_output_stream_room(struct ct_output_stream *stream);

/* Reads a stream again that was paused. */
void ct_output_stream_resume(struct ct_output_stream *stream);

/* Takes what is in the pipe now, no more (its writer may never stop), and ends the stream. */
void ct_output_stream_cut_off(struct ct_output_stream *stream);

#endif
