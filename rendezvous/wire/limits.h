/* SPDX-License-Identifier: Apache-2.0
 *
 * Every limit of the store in one place, each with where its number comes from.
 */
#ifndef CT_RENDEZVOUS_WIRE_LIMITS_H
#define CT_RENDEZVOUS_WIRE_LIMITS_H

#include <stddef.h>

/* ---- limits of the protocol; PyTorch's libuv server has the same ones ----------------------- */

/* Bytes of a key as it stands on the wire, with the '/' that clients put in front. */
#define CT_MAX_KEY_LEN ((size_t)8192)
/* Bytes of a value; one of exactly this length is accepted. */
#define CT_MAX_VALUE_LEN ((size_t)8 << 20)
/* Keys of one CHECK, WAIT, MULTI_GET or MULTI_SET. */
#define CT_MAX_KEYS ((size_t)131072)

/* ---- limits of this server ------------------------------------------------------------------ */

/* Bytes of one request, about 1 GiB: the longest WAIT that the limits above allow (opcode, count,
 * keys). Without this limit a MULTI_SET could announce 1 TiB. */
#define CT_MAX_REQUEST_LEN (1 + 8 + CT_MAX_KEYS * (8 + CT_MAX_KEY_LEN))

/* Bytes of a reply that are copied, as for LIST_KEYS: as many as a request may have. */
#define CT_MAX_REPLY_LEN CT_MAX_REQUEST_LEN

/* Bytes asked from the kernel per read. The loop has one such buffer for all clients. */
#define CT_READ_CHUNK ((size_t)65536)

/* Bytes that are read from clients and copied for requests in one turn of the loop: a few
 * milliseconds of small requests. The rest waits for the next turn. */
#define CT_TURN_BYTES ((size_t)131072)

/* When CT_TURN_BYTES are used up, each further connection may still send this much in the same
 * turn, so that a small request is always served in it. Fifty clients that never stop sending make
 * the turn 4 ms longer. */
#define CT_CROWDED_CHUNK ((size_t)4096)

/* A request that copies this much in addition to its own bytes waits for a turn that has room. */
#define CT_HEAVY_BYTES ((size_t)65536)

/* A request about many keys is served in slices, one in each turn of the loop. A slice ends after
 * so many keys, or after so many bytes: one to three milliseconds, or the time for one large value.
 */
#define CT_SLICE_KEYS ((size_t)4096)
#define CT_SLICE_BYTES ((size_t)262144)

/* A connection whose unsent replies reach this many bytes is not served until they are sent. A
 * connection with this many bytes of unsent notices of watched keys is closed, since the changes of
 * keys cannot be held back. Twice the usual loopback socket buffer; not tuned. */
#define CT_OUT_STALL_BYTES ((size_t)1 << 20)

/* Values up to this length are copied into the reply, longer ones are referenced: below it the copy
 * is cheaper than another entry in the write vector. Not tuned. */
#define CT_OUT_COPY_MAX ((size_t)1024)

/* Memory that one connection gets for an incomplete request, a wait and replies even when the
 * store's memory (--max-memory) is used up, so that keys can still be read. A connection that uses
 * it is not served while its replies take half of it. */
#define CT_GRANT_BYTES ((size_t)65536)

/* Entries of one write vector. IOV_MAX is 1024; 64 keep the array small on the stack. */
#define CT_OUT_IOV_MAX 64

/* Connections accepted at each address in a turn of the loop before clients are served; each takes
 * some 11 us. Accepting could go on for as long as new ones come fast enough. */
#define CT_TURN_ACCEPTS 64

/* How long the server waits before it tries again to accept a connection when it cannot even refuse
 * one. Not tuned. */
#define CT_ACCEPT_PAUSE_MS 100

/* How many woken connections are written to before other sockets are polled again. Each takes some
 * 5 us, so that 19,000 of them would delay every other client by 0.1 s; this many take 0.3 ms. A
 * poll costs less than one write. */
#define CT_WAKE_SLICE 64

/* Bytes of one write. Fifty clients that read as fast as they can get 3 MB in a turn of the loop,
 * which delays the others by some 10 ms. */
#define CT_WRITE_BYTES ((size_t)65536)

/* Bytes written to all connections in a turn of the loop. After that, each further connection is
 * written to only once in this turn, at most CT_CROWDED_CHUNK. Without this limit 64 KiB for each
 * of a thousand connections took 50 ms. */
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

/* ---- limits of HTTP, which a few people and probes use beside thousands of clients ---------- */

#define CT_HTTP_CONNECTIONS 256U

/* How many HTTP connections may belong to peers that are not admitted and to other users of this
 * machine, so that they leave room for the user's own. One more ends one on which nothing was asked
 * that needs a right. */
#define CT_HTTP_UNADMITTED 32

/* Connections answered without libmicrohttpd. One more ends the oldest that has not asked. */
#define CT_HTTP_RESERVE 32U

/* Bytes for the head of a request and of its answer, per connection. Browsers send some 2 KiB. */
#define CT_HTTP_MEMORY ((size_t)16384)

/* Milliseconds from one answered request (or the first byte) to the next. */
#define CT_HTTP_REQUEST_MS 5000

/* Viewers of the live page, and those who wait for the end of the job; they leave room for
 * probes. */
#define CT_PAGE_VIEWERS 64U

/* The live page looks at the job once a second. Its samples take at most one part in
 * CT_PAGE_COST_FACTOR of the time, and its viewers get so many bytes a second at most, all
 * together: both by looking less often, down to once in CT_PAGE_SAMPLE_MAX_MS, in which time a
 * viewer whose peer is still there must have been sent something. */
#define CT_PAGE_SAMPLE_MS 1000
#define CT_PAGE_SAMPLE_MAX_MS 4000
#define CT_PAGE_COST_FACTOR 200
#define CT_PAGE_BYTES_PER_S ((size_t)8 << 20)

/* Keys listed by /keys. */
#define CT_HTTP_KEYS_MAX 10000

/* ---- limits of agent control ---------------------------------------------------------------- */

/* Connections whose peer has not proved the token yet, or that are being closed. One more ends a
 * connection of the address that has most of them. The agents of a large job connect all at once,
 * and try again. Connections that have sent nothing yet are counted separately, with the same
 * limit. Not tuned. */
#define CT_CONTROL_MAX_PENDING ((size_t)4096)

/* If there are few descriptors, each of the two kinds of connections may take one in
 * CT_CONTROL_PENDING_PART of them, but at least CT_CONTROL_MIN_PENDING. The rest is for the job. */
#define CT_CONTROL_PENDING_PART 8
#define CT_CONTROL_MIN_PENDING ((size_t)16)

/* Jobs that one daemon serves at a time. */
#define CT_CONTROL_MAX_JOBS 1024

/* When so many bytes wait for an agent, it is given up: several of the longest messages. */
#define CT_CONTROL_MAX_BACKLOG ((size_t)8 << 20)

#endif
