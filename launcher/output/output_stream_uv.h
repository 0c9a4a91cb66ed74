/* SPDX-License-Identifier: Apache-2.0
 *
 * One stream of one worker, as the files of this folder see it; for others see output_uv.h.
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
    bool drops; /* lines for which the sink has no room, rather than have the worker wait */
    struct ct_backlog backlog; /* what waits in the sink */
    struct ct_output_fold fold;
    bool dropping;    /* nothing is put until half of that has left */
    uint64_t dropped; /* lines, since it was said last */
};

/* How much of this stream may wait in a sink. */
size_t ct_output_stream_keep(const struct ct_output *output);

/* Some bytes have left the sink: a stream that drops lines may have room again, and then says what
 * is missing. */
void ct_output_stream_room(struct ct_output_stream *stream);

/* Reads a stream again that was paused. */
void ct_output_stream_resume(struct ct_output_stream *stream);

/* Takes what is in the pipe now, no more (its writer may never stop), and ends the stream. */
void ct_output_stream_cut_off(struct ct_output_stream *stream);

#endif
