/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that all streams of one ctrun share: its stdout and stderr, and what waits for them.
 */
#ifndef CT_LAUNCHER_OUTPUT_OUTPUT_STATE_UV_H
#define CT_LAUNCHER_OUTPUT_OUTPUT_STATE_UV_H

#include "common/list.h"
#include "launcher/output/output_uv.h"
#include "launcher/output/sink_uv.h"

/* One read of a pipe: its default capacity. */
#define CT_OUTPUT_READ_SIZE 65536

struct ct_output {
    uv_loop_t *loop;
    const struct ct_log *log;
    struct ct_list streams;
    int fds[2];              /* as in the options, for workers that inherit them */
    bool apart;              /* no worker does */
    struct ct_sink sinks[2]; /* stdout, stderr */
    int sink_count;          /* 1 when both are the same file */
    size_t stream_count;
    const struct ct_output_stream *last; /* that lines were shown of last; NULL = of none */
    uint64_t last_lines;                 /* how many of it, and of no other stream since */
    bool said_lost;
    bool shared_terminal;    /* a worker writes to a terminal itself */
    uint64_t live_mark;      /* bytes of stderr when the live line was last asked for */
    struct ct_fold folds[2]; /* of the sinks */
    uv_timer_t fold_timer;
    uv_timer_t timer; /* of draining */
    bool draining;
    int64_t linger_ns, deadline_ns; /* monotonic */
    ct_output_fn drained_cb, closed_cb;
    void *drained_data, *closed_data;
    int open_parts; /* sinks and timer that are not closed yet */
    struct ct_buf batch;
    char *chunk; /* CT_OUTPUT_READ_SIZE bytes into which every stream is read */
};

struct ct_sink *ct_output_sink(struct ct_output *output, enum ct_output_fd fd);

/* Writes lines of ctrun's own; they start on a new line. */
void ct_output_put(struct ct_output *output, struct ct_sink *sink, const char *bytes, size_t len);

/* Logs, only the first time, that output was lost because memory ran out. */
void ct_output_say_lost(struct ct_output *output);

/* To be called when a stream has ended or a sink has written bytes. Calls the callback of
 * ct_output_drain() if nothing is left to wait for. */
void ct_output_check_drained(struct ct_output *output);

#endif
