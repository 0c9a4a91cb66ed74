/* SPDX-License-Identifier: Apache-2.0
 *
 * Wire codec of PyTorch's TCPStore protocol: bytes in, requests out. No I/O, no allocation while
 * decoding.
 *
 * There are no frames: a request ends where its last field ends. ct_scan() finds that end. It
 * remembers how far it came, so it may be called each time more bytes have come, even one at a
 * time, and reads each field once. Every length is compared with its limit before any arithmetic.
 * Only a complete request is decoded.
 *
 * Integers are in host byte order, which the protocol prescribes.
 */
#ifndef CT_RENDEZVOUS_WIRE_PROTO_H
#define CT_RENDEZVOUS_WIRE_PROTO_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

/* X(name, value, fields). The values are those of the current dialect. WATCH_KEY does not exist
 * there, so it has a value that PyTorch will not use soon. Fields: m magic, u 32 bits, i 64 bits, k
 * key, v value; '*' is a count, and what follows it is repeated that often. */
#define CT_OPS(X)            \
    X(VALIDATE, 0, "m")      \
    X(SET, 1, "kv")          \
    X(COMPARE_SET, 2, "kvv") \
    X(GET, 3, "k")           \
    X(ADD, 4, "ki")          \
    X(CHECK, 5, "*k")        \
    X(WAIT, 6, "*k")         \
    X(GETNUMKEYS, 7, "")     \
    X(DELETE_KEY, 8, "k")    \
    X(APPEND, 9, "kv")       \
    X(MULTI_GET, 10, "*k")   \
    X(MULTI_SET, 11, "*kv")  \
    X(CANCEL_WAIT, 12, "")   \
    X(PING, 13, "u")         \
    X(QUEUE_PUSH, 14, "kv")  \
    X(QUEUE_POP, 15, "k")    \
    X(QUEUE_LEN, 16, "k")    \
    X(LIST_KEYS, 17, "")     \
    X(BARRIER, 18, "ki")     \
    X(WATCH_KEY, 31, "k")

enum ct_op {
#define CT_OP_ENUM(name, value, fields) CT_OP_##name = value,
    CT_OPS(CT_OP_ENUM)
#undef CT_OP_ENUM
};

/* Every opcode is below it: the size of a table by opcode. */
#define CT_OP_LIMIT 32

/* PyTorch up to 2.0 (Debian 12 has 1.13) numbers the same requests differently and has no VALIDATE.
 * 1.13 has no CANCEL_WAIT either: a client that gives up a WAIT just sends its next request.
 * Replies are the same. Only the legacy dialect lets a client watch keys. From then on each change
 * of a watched key sends it a notice: one byte for what happened, the key, the old value and the
 * new value. A value that does not exist is sent as an empty one. */
enum ct_dialect {
    CT_DIALECT_CURRENT, /* 2.1 and later: the numbers above */
    CT_DIALECT_LEGACY,
};

#define CT_PROTO_MAGIC UINT32_C(0x3C85F7CE)

/* Replies of one byte. */
#define CT_CHECK_READY 0
#define CT_CHECK_NOT_READY 1
#define CT_WAIT_DONE 0
#define CT_WAIT_CANCELED 1
#define CT_WATCH_REGISTERED 3

/* The first byte of a notice. */
#define CT_WATCH_UPDATED 0
#define CT_WATCH_CREATED 1
#define CT_WATCH_DELETED 2

/* Borrowed bytes. */
struct ct_bytes {
    const unsigned char *ptr;
    size_t len;
};

/* A decoded request; all bytes are borrowed from the buffer it was decoded from. */
struct ct_request {
    enum ct_op op;
    struct ct_bytes key;    /* of requests about one key or queue */
    struct ct_bytes value;  /* SET, APPEND, QUEUE_PUSH; what COMPARE_SET expects */
    struct ct_bytes second; /* what COMPARE_SET desires */
    int64_t number;         /* what ADD adds; how many BARRIER waits for */
    uint32_t nonce;         /* PING */
    size_t count;           /* keys or pairs of CHECK, WAIT, MULTI_GET, MULTI_SET ... */
    struct ct_bytes items;  /* ... to be taken one by one with ct_request_next() */
};

/* Zeroed memory stands before the first byte of a request in the current dialect. */
struct ct_scan {
    enum ct_dialect dialect;
    const char *field;  /* next field; NULL until the opcode is known */
    const char *repeat; /* first field of the repeated group */
    size_t rounds;      /* groups to come after this one */
    size_t at;          /* bytes understood so far */
    enum ct_op op;
};

/* Outcome of ct_scan(): the request is not complete yet. */
#define CT_SCAN_E_MORE 1

/* Which dialect a client speaks, from the first bytes it sends: VALIDATE and its magic, or anything
 * else. A legacy SET cannot be mistaken for VALIDATE: the magic would be the length of its key, far
 * beyond the limit. CT_SCAN_E_MORE while both are possible. */
CT_MUST_CHECK int ct_dialect_detect(const unsigned char *bytes, size_t len, enum ct_dialect *out);

/* Prepares for the next request of the same client. */
void ct_scan_next(struct ct_scan *scan);

/* `bytes` begins at the first byte of the request in every call, and `len` is not smaller than in
 * the last one. 0: the request is complete and scan->at bytes long. CT_EPROTO or CT_ELIMIT: the
 * peer does not speak the protocol, and its connection cannot be used any more. */
CT_MUST_CHECK int ct_scan(struct ct_scan *scan, const unsigned char *bytes, size_t len,
                          struct ct_err *err);

/* Decodes the request that ct_scan() found complete at `bytes`. */
void ct_request_decode(const struct ct_scan *scan, const unsigned char *bytes,
                       struct ct_request *out);

/* Takes the next key or value from `items`, the caller's copy of request.items. */
struct ct_bytes ct_request_next(struct ct_bytes *items);

const char *ct_op_name(enum ct_op op);

/* ---- encoding: each appends one field; CT_ENOMEM leaves the buffer as it was ---------------- */

CT_MUST_CHECK int ct_put_u8(struct ct_buf *buf, uint8_t v);
CT_MUST_CHECK int ct_put_u32(struct ct_buf *buf, uint32_t v);
CT_MUST_CHECK int ct_put_u64(struct ct_buf *buf, uint64_t v);

/* Length and bytes. */
CT_MUST_CHECK int ct_put_bytes(struct ct_buf *buf, const void *bytes, size_t len);

#endif
