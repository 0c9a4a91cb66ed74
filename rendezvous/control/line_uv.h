/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream socket that carries control frames in both directions. Both ends of agent control use
 * it.
 *
 * A line is embedded in its owner's object, which must stay until on_closed. All callbacks come
 * from the loop, never from inside a call of this header. After ct_line_close() only on_closed
 * comes.
 */
#ifndef CT_RENDEZVOUS_CONTROL_LINE_UV_H
#define CT_RENDEZVOUS_CONTROL_LINE_UV_H

#include "common/buf.h"
#include "common/err.h"
#include "common/list.h"
#include "rendezvous/control/control.h"
#include "rendezvous/control/frame_mac.h"
#include "rendezvous/store/budget.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* What the lines of a server share. The bytes of frames that are read in one turn of the loop are
 * limited, so that other clients of the loop are not held up. Lines with further frames wait for
 * another turn. */
struct ct_line_turns {
    uv_idle_t idle;       /* runs from the first frame of a turn until nobody waits */
    struct ct_list queue; /* lines that wait; nothing is read from their sockets meanwhile */
    size_t left;          /* bytes that may still be read in this turn */
};

struct ct_line {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } handle;
    uv_write_t write;
    uv_idle_t failer; /* calls on_end after a failed ct_line_send() */
    struct ct_buf in;
    struct ct_buf out;     /* to be sent next */
    struct ct_buf sending; /* what `write` sends */
    size_t max_frame;
    struct ct_line_turns *turns; /* NULL = no limit; may be set before ct_line_start() */
    struct ct_list at_turns;
    struct ct_budget *budget; /* counts the buffers; NULL = no limit; may be set before it, too */
    size_t charged;
    /* The MACs of received and of sent frames; off until the owner starts them. */
    struct ct_frame_mac mac_in, mac_out;
    int failed;     /* code of a failed ct_line_send(); 0 = none */
    bool writing;   /* `write` is in the loop's hands */
    bool finishing; /* closes when all is sent */
    bool closing;
    int handles;                                              /* not closed yet */
    void (*on_msg)(struct ct_line *line, struct ct_msg *msg); /* borrowed; may be changed */
    /* No more messages will come: CT_ECLOSED, CT_EIO, or what is wrong with a frame. The owner has
     * to close the line. */
    void (*on_end)(struct ct_line *line, const struct ct_err *err);
    void (*on_closed)(struct ct_line *line);
};

/* The caller closes the handle `idle` when no line is left. */
void ct_line_turns_init(struct ct_line_turns *turns, uv_loop_t *loop);

/* `line` is zeroed memory with its callbacks set. Reads nothing yet. CT_ENOMEM leaves nothing
 * behind.
 */
CT_MUST_CHECK int ct_line_init_tcp(struct ct_line *line, uv_loop_t *loop);

/* The same for a connected socket, which it takes in any case: TCP, or one of a socketpair(). */
CT_MUST_CHECK int ct_line_init_fd(struct ct_line *line, uv_loop_t *loop, int fd);

/* Reads from now on. Frames longer than `max_frame` end the line; it may be set again later. */
CT_MUST_CHECK int ct_line_start(struct ct_line *line, size_t max_frame);

/* Sends, or queues what the socket does not take at once. */
void ct_line_send(struct ct_line *line, const struct ct_msg *msg);

/* Bytes that wait to be sent: a peer that does not read makes them grow. */
size_t ct_line_backlog(const struct ct_line *line);

/* How long ago the peer's machine sent anything at all, acknowledgements included: the machine may
 * be well while messages are delayed. INT64_MAX = not known. */
int64_t ct_line_quiet_ns(const struct ct_line *line);

/* Closes as soon as everything is sent. Nothing more is read. */
void ct_line_finish(struct ct_line *line);

/* Repeating is legal. */
void ct_line_close(struct ct_line *line);

#endif
