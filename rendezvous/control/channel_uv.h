/* SPDX-License-Identifier: Apache-2.0
 *
 * A stream socket that carries control frames in both directions. Both ends of agent control use
 * it.
 *
 * A channel is embedded in its owner's object, which must stay until on_closed. All callbacks come
 * from the loop, never from inside a call of this header. After ct_channel_close() only on_closed
 * comes.
 */
#ifndef CT_RENDEZVOUS_CONTROL_CHANNEL_UV_H
#define CT_RENDEZVOUS_CONTROL_CHANNEL_UV_H

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

/* What the channels of a server share. The bytes of frames that are read in one turn of the loop
 * are limited, so that other clients of the loop need not wait long. Channels with further frames
 * wait for another turn. */
struct ct_channel_turns {
    uv_idle_t idle;       /* runs from the first frame of a turn until nobody waits */
    struct ct_list queue; /* channels that wait; nothing is read from their sockets meanwhile */
    size_t left;          /* bytes that may still be read in this turn */
};

struct ct_channel {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } handle;
    uv_write_t write;
    uv_idle_t failer; /* calls on_end after a failed ct_channel_send() */
    struct ct_buf in;
    struct ct_buf out;     /* to be sent next */
    struct ct_buf sending; /* what `write` sends */
    size_t max_frame;
    struct ct_channel_turns *turns; /* NULL = no limit; may be set before ct_channel_start() */
    struct ct_list at_turns;
    struct ct_budget *budget; /* counts the buffers; NULL = no limit; may be set before it, too */
    size_t charged;
    /* The MACs of received and of sent frames; off until the owner starts them. */
    struct ct_frame_mac mac_in, mac_out;
    int failed;     /* code of a failed ct_channel_send(); 0 = none */
    bool writing;   /* the loop uses `write` */
    bool finishing; /* closes when all is sent */
    bool closing;
    int handles;                                                    /* not closed yet */
    void (*on_msg)(struct ct_channel *channel, struct ct_msg *msg); /* borrowed; may be changed */
    /* Called when no more messages will come: CT_ECLOSED, CT_EIO, or what is wrong with a frame.
     * The owner has to close the channel. */
    void (*on_end)(struct ct_channel *channel, const struct ct_err *err);
    void (*on_closed)(struct ct_channel *channel);
};

/* The caller closes the handle `idle` when no channel is left. */
void ct_channel_turns_init(struct ct_channel_turns *turns, uv_loop_t *loop);

/* `channel` is zeroed memory with its callbacks set. Reads nothing yet. */
void ct_channel_init_tcp(struct ct_channel *channel, uv_loop_t *loop);

/* The same for a connected socket, which it takes in any case: TCP, or one of a socketpair(). */
void ct_channel_init_fd(struct ct_channel *channel, uv_loop_t *loop, int fd);

/* Reads from now on. Frames longer than `max_frame` end the channel; it may be set again later. */
CT_MUST_CHECK int ct_channel_start(struct ct_channel *channel, size_t max_frame);

/* Sends, or queues what the socket does not take at once. */
void ct_channel_send(struct ct_channel *channel, const struct ct_msg *msg);

/* The same for a message that has only a text, which is cut if it is too long, and perhaps an exit
 * code. Without memory nothing is sent. */
void ct_channel_send_text(struct ct_channel *channel, enum ct_msg_type type, int exit_code,
                          const char *text);

/* Answers a BEAT, unless earlier answers have not been read. *beat becomes the answer. A lease of
 * -1 is none. */
void ct_channel_answer_beat(struct ct_channel *channel, struct ct_msg *beat, int64_t lease_ms);

/* Bytes that wait to be sent. They become more if the peer does not read. */
size_t ct_channel_backlog(const struct ct_channel *channel);

/* How long ago the peer's machine sent anything, acknowledgements included. It shows that the
 * machine is alive although messages are delayed. INT64_MAX = not known. */
int64_t ct_channel_quiet_ns(const struct ct_channel *channel);

/* Closes as soon as everything is sent. Nothing more is read. */
void ct_channel_finish(struct ct_channel *channel);

/* Repeated calls are allowed. */
void ct_channel_close(struct ct_channel *channel);

#endif
