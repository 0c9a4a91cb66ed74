/* SPDX-License-Identifier: Apache-2.0
 *
 * One destination of bytes, ctrun's own stdout or stderr. Writing never blocks the loop, and the
 * descriptor, which other programs share, is never made non-blocking. For the files of this folder
 * only.
 */
#ifndef CT_LAUNCHER_OUTPUT_SINK_UV_H
#define CT_LAUNCHER_OUTPUT_SINK_UV_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* Bytes of a live line: the widest terminals have some 500 columns. */
#define CT_SINK_LIVE_MAX 2048

enum ct_sink_kind {
    CT_SINK_DIRECT, /* a file or a device like /dev/null: takes all at once */
    CT_SINK_OWN,    /* terminal or pipe, opened anew: a non-blocking description of our own */
    CT_SINK_SHARED, /* terminal or pipe that could not be opened anew, socket: asked by poll(2) */
    CT_SINK_GONE    /* closed, or has failed: everything is thrown away */
};

struct ct_sink;

struct ct_sink_ops {
    void (*on_gone)(struct ct_sink *sink, int errnum); /* once; the sink is CT_SINK_GONE already */
    void (*on_full)(struct ct_sink *sink,
                    int errnum);              /* once: its disk is full, what is put is lost */
    void (*on_written)(struct ct_sink *sink); /* something that had to wait has left */
};

struct ct_sink {
    const struct ct_sink_ops *ops;
    void *data; /* the owner's */
    enum ct_sink_kind kind;
    int fd; /* where we write: the borrowed one or, of CT_SINK_OWN, our own */
    bool is_socket;
    bool is_terminal;
    bool full;             /* of a file: the disk was full at the last write */
    bool said_full;        /* on_full() was called */
    char last;             /* the last byte, at first '\n': is the cursor inside a line? */
    bool live;             /* the live line stands there, and the cursor at its beginning */
    struct ct_buf pending; /* bytes put and not yet written */
    uint64_t put;          /* bytes in all */
    bool polling;          /* `poll` is in use */
    uv_poll_t poll;        /* for CT_SINK_OWN */
    uv_timer_t timer;      /* for CT_SINK_SHARED */
    int open_handles;
    void (*on_closed)(struct ct_sink *sink);
};

/* Borrows `fd` and `ops`. The memory belongs to the sink until on_closed. A descriptor that is not
 * open makes a sink that is gone from the start, without on_gone. */
void ct_sink_init(struct ct_sink *sink, uv_loop_t *loop, int fd, const struct ct_sink_ops *ops,
                  void *data);

/* Writes as much as possible at once and keeps the rest. CT_ENOMEM: the rest is lost. */
CT_MUST_CHECK int ct_sink_put(struct ct_sink *sink, const void *bytes, size_t len);

/* Shows `line` (one row of a terminal) as the live line, which the next ct_sink_put() erases; NULL
 * only erases it. Shows nothing where something waits or the cursor is inside a worker's line. */
void ct_sink_live(struct ct_sink *sink, const char *line);

/* How many of all bytes that were ever put have been written (struct ct_backlog). */
uint64_t ct_sink_written(const struct ct_sink *sink);

/* Drops what is pending and closes the sink. */
void ct_sink_close(struct ct_sink *sink, void (*on_closed)(struct ct_sink *sink));

#endif
