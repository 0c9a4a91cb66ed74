/* SPDX-License-Identifier: Apache-2.0
 *
 * One stream of one worker. For the files of this folder only; others use output_uv.h.
 */
#ifndef CT_LAUNCHER_OUTPUT_OUTPUT_STREAM_UV_H
#define CT_LAUNCHER_OUTPUT_OUTPUT_STREAM_UV_H

#include "common/list.h"
#include "launcher/output/backlog.h"
#include "launcher/output/output_uv.h"
#include "launcher/output/sink_uv.h"

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
    bool drops;                /* drops lines when the sink is full, so the worker need not wait */
    struct ct_backlog backlog; /* how much of this stream waits in the sink */
    struct ct_output_fold fold;
    bool dropping;    /* lines are dropped until half of the backlog has been written */
    uint64_t dropped; /* lines since the last message about it */
};

/* How much of this stream may wait in a sink. */
size_t ct_output_stream_limit(const struct ct_output *output);

/* To be called when the sink has written bytes. If a stream that drops lines has room again, it
 * says how many lines are missing. */
void ct_output_stream_has_room(struct ct_output_stream *stream);

/* Goes on reading a stream that was paused. */
void ct_output_stream_resume(struct ct_output_stream *stream);

/* Reads what is in the pipe now and ends the stream. It reads no further, because a process that
 * writes may never stop. */
void ct_output_stream_cut_off(struct ct_output_stream *stream);

#endif
