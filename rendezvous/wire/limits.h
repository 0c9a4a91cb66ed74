/* SPDX-License-Identifier: Apache-2.0
 *
 * Every limit of the store in one place, each with where its number comes from.
 */
#ifndef CT_RENDEZVOUS_WIRE_LIMITS_H
#define CT_RENDEZVOUS_WIRE_LIMITS_H

#include <stddef.h>

/* ---- of the protocol: PyTorch's libuv server has the same, and its users rely on them ------- */

/* Bytes of a key as it stands on the wire, with the '/' that clients put in front. */
#define CT_MAX_KEY_LEN ((size_t)8192)
/* Bytes of a value; one of exactly this length is accepted. */
#define CT_MAX_VALUE_LEN ((size_t)8 << 20)
/* Keys of one CHECK, WAIT, MULTI_GET or MULTI_SET. */
#define CT_MAX_KEYS ((size_t)131072)

/* ---- of this server ------------------------------------------------------------------------- */

/* Bytes of one request: the longest WAIT that the limits above allow (opcode, count, keys), about
 * 1 GiB. Without it a MULTI_SET could announce 1 TiB. */
#define CT_MAX_REQUEST_LEN (1 + 8 + CT_MAX_KEYS * (8 + CT_MAX_KEY_LEN))

/* Bytes of one reply that are copied: those of LIST_KEYS in a store that is large. As many as a
 * request may have. */
#define CT_MAX_REPLY_LEN CT_MAX_REQUEST_LEN

/* Bytes asked from the kernel per read: a loop-wide buffer, so its size costs nothing per client.
 */
#define CT_READ_CHUNK ((size_t)65536)

/* Bytes read from clients, or copied for one request, in a turn of the loop before the others get
 * theirs: a few milliseconds of small requests. */
#define CT_TURN_BYTES ((size_t)131072)

/* When CT_TURN_BYTES are used up, each further connection may still send this much in the same
 * turn, so that a small request is always served in it. Fifty clients that never stop sending make
 * the turn 4 ms longer. */
#define CT_CROWDED_CHUNK ((size_t)4096)

/* A request that copies this much in addition to its own bytes waits for a turn that has room. */
#define CT_HEAVY_BYTES ((size_t)65536)

/* Of a request about many keys so many are served in a turn of the loop, and no more after so many
 * bytes of it: one to three milliseconds, or those of one large value. */
#define CT_SLICE_KEYS ((size_t)4096)
#define CT_SLICE_BYTES ((size_t)262144)

/* A connection whose unsent replies reach this many bytes is not served until they are sent. A
 * connection with this many bytes of unsent notices of watched keys is closed, since the changes of
 * keys cannot be held back. Twice the usual loopback socket buffer; not tuned. */
#define CT_OUT_STALL_BYTES ((size_t)1 << 20)

/* Values up to this length are copied into the reply, longer ones are referenced: below it the copy
 * is cheaper than another entry in the write vector. Not tuned. */
#define CT_OUT_COPY_MAX ((size_t)1024)

/* Memory that one connection gets even when the store's memory (--max-memory) is used up: for an
 * incomplete request, a wait, replies. So reads still work. Such a connection is not served while
 * its replies take half of it. */
#define CT_GRANT_BYTES ((size_t)65536)

/* Entries of one write vector. IOV_MAX is 1024; 64 keep the array small on the stack. */
#define CT_OUT_IOV_MAX 64

/* Connections accepted in a turn of the loop before the others get theirs: some 11 us each. libuv
 * alone goes on for as long as somebody connects faster than this. */
#define CT_TURN_ACCEPTS 64

/* How many woken connections are written to before other sockets are polled again. 19,000 of them
 * at some 5 us each would hold up every other client for 0.1 s; this many take 0.3 ms. The poll
 * costs less than one of the writes. */
#define CT_WAKE_SLICE 64

/* Bytes of one write: fifty clients that read as fast as they can get 3 MB in a turn of the loop,
 * which holds up the others for some 10 ms. */
#define CT_WRITE_BYTES ((size_t)65536)

/* Bytes written in a turn of the loop, to all, before each further connection is written to once
 * only, and CT_CROWDED_CHUNK at most: with a thousand of them 64 KiB each took 50 ms. */
#define CT_TURN_WRITE_BYTES ((size_t)1048576)

/* A buffer that grew beyond this is given back when it is empty. */
#define CT_KEEP_BUF_BYTES ((size_t)65536)

/* Connections of peers that are not admitted. They are kept until their first bytes come, which may
 * ask for something that everybody may have, such as /healthz. One more ends the oldest, so that
 * silent peers cannot take all descriptors. Not tuned. */
#define CT_MAX_UNADMITTED 16

/* The kernel clamps it to net.core.somaxconn. */
#define CT_LISTEN_BACKLOG 65535

/* Idle seconds before the kernel probes a silent peer. Silence itself is legal for ever: PyTorch's
 * watchdogs ask rarely, and the second connection of 1.13 never speaks. */
#define CT_KEEPALIVE_S 60

/* ---- of HTTP: for a few people and probes, beside the thousands of clients ------------------ */

#define CT_HTTP_CONNECTIONS 256U

/* How many of these may be held by peers that are not admitted and by other users of this machine,
 * so that they leave room for our own. */
#define CT_HTTP_UNADMITTED 32

/* Connections that wait to be answered without the library; one more ends the oldest that has not
 * asked yet. */
#define CT_HTTP_RESERVE 32U

/* Bytes for the head of a request and of its answer, per connection. Browsers send some 2 KiB. */
#define CT_HTTP_MEMORY ((size_t)16384)

/* Milliseconds from one answered request (or the first byte) to the next. */
#define CT_HTTP_REQUEST_MS 5000

/* Keys listed by /keys. */
#define CT_HTTP_KEYS_MAX 10000

/* ---- of agent control ----------------------------------------------------------------------- */

/* Connections whose peer has not proved itself yet, or is being closed. One more ends one of the
 * address that holds most of them. The agents of a large job connect all at once, and try again.
 * Connections that have sent nothing yet are counted separately, with the same limit. Not tuned. */
#define CT_CONTROL_MAX_PENDING ((size_t)4096)

/* Where descriptors are few, each of the two kinds gets at most one in CT_CONTROL_PENDING_PART of
 * them, so that the rest is left to the job, but never fewer than CT_CONTROL_MIN_PENDING. */
#define CT_CONTROL_PENDING_PART 8
#define CT_CONTROL_MIN_PENDING ((size_t)16)

/* Jobs that one daemon serves at a time. */
#define CT_CONTROL_MAX_JOBS 1024

/* Bytes that an agent leaves unread before it is given up: several of the longest messages. */
#define CT_CONTROL_MAX_BACKLOG ((size_t)8 << 20)

#endif
