/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON that etcd's HTTP port takes and gives (versions 3.4, 3.5 and 3.6): bodies of requests,
 * and what the replies say. Pure.
 *
 *     POST /v3/kv/txn             compare some keys, then put and get some
 *     POST /v3/lease/grant        a lease of some seconds
 *     POST /v3/lease/keepalive    a lease begins anew
 *     POST /v3/auth/authenticate  a token for a user's name and password
 */
#ifndef CT_RENDEZVOUS_ETCD_ETCD_MESSAGE_H
#define CT_RENDEZVOUS_ETCD_ETCD_MESSAGE_H

#include "common/addr.h"
#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Compares, and operations of one branch. A record, its owner and its lease need fewer. */
#define CT_ETCD_OPS_MAX 4
/* Bytes of a key. etcd has no limit of its own; ours have a prefix and a run id. */
#define CT_ETCD_KEY_MAX 512
/* Bytes of a value. A record of a job has some hundreds. */
#define CT_ETCD_VALUE_MAX ((size_t)65536)
/* Bytes of a reply. The values of one transaction are longer only if somebody else wrote them. */
#define CT_ETCD_REPLY_MAX ((size_t)262144)
#define CT_ETCD_REPLY_TOO_LONG \
    "the reply is longer than %zu bytes, so a value is not ctrun's, or it is no etcd"
/* Bytes of the token after a login. One that is signed (JWT) has less than 1000. */
#define CT_ETCD_TOKEN_MAX ((size_t)8192)
/* A number of 64 bits in decimal, with its NUL. */
#define CT_ETCD_CLUSTER_MAX 24
/* 30 years: a time in nanoseconds after now still fits into 64 bits. */
#define CT_ETCD_TTL_MAX_S INT64_C(1000000000)

/* All compares of a transaction must hold. */
struct ct_etcd_compare {
    const char *key;
    int64_t mod_revision; /* the key was changed last by this revision; 0 = it does not exist */
};

enum ct_etcd_op_what { CT_ETCD_PUT, CT_ETCD_GET };

struct ct_etcd_op {
    enum ct_etcd_op_what what;
    const char *key;
    const void *value; /* of a PUT; NULL only if `len` is 0 */
    size_t len;
    int64_t lease; /* of a PUT: the key is deleted when the lease ends; 0 = never */
};

/* etcd does all operations of one branch or none. It refuses two changes of one key in a branch. */
struct ct_etcd_txn {
    struct ct_etcd_compare compares[CT_ETCD_OPS_MAX];
    int num_compares;
    struct ct_etcd_op then[CT_ETCD_OPS_MAX]; /* if all compares hold */
    int num_then;
    struct ct_etcd_op otherwise[CT_ETCD_OPS_MAX];
    int num_otherwise;
};

struct ct_etcd_value {
    bool found;
    const char *bytes; /* never NULL; a NUL follows, which `len` does not count */
    size_t len;
    int64_t mod_revision; /* 0 if it was not found */
};

/* What a request has come to. `memory` is private. */
struct ct_etcd_reply {
    int rc; /* see struct ct_etcd in etcd_uv.h */
    struct ct_err err;
    int64_t sent_ns; /* CLOCK_MONOTONIC before the attempt that succeeded; 0 if none did */
    int attempts;    /* how often it was sent */
    char own_address[CT_HOST_MAX]; /* of this machine, on the connection that the answer came by; ""
                                      if there was none */
    bool succeeded;                /* of a transaction: the compares held */
    int64_t revision;              /* etcd's after the request; 0 if it does not say */
    char cluster[CT_ETCD_CLUSTER_MAX];            /* the id of the cluster; "" if it does not say */
    struct ct_etcd_value values[CT_ETCD_OPS_MAX]; /* of the GETs of the branch taken, in order */
    int num_values;
    int64_t lease; /* of a grant and a keep-alive */
    int64_t ttl_s; /* the same; 0 after a keep-alive: the lease has ended */
    void *memory;
};

enum ct_etcd_call {
    CT_ETCD_TXN,
    CT_ETCD_GRANT,
    CT_ETCD_KEEP_ALIVE,
    CT_ETCD_LOGIN,
};

/* What is kept of a transaction in order to understand its reply: [0] otherwise, [1] then. */
struct ct_etcd_shape {
    int num[2];
    enum ct_etcd_op_what what[2][CT_ETCD_OPS_MAX];
    char keys[2][CT_ETCD_OPS_MAX][CT_ETCD_KEY_MAX + 1];
};

/* "/v3/kv/txn" and so on. */
const char *ct_etcd_message_path(enum ct_etcd_call call);

/* ---- bodies; each is appended to `out`, which may hold a part of it after a failure ---------- */

/* CT_EINVAL names what is wrong: a key, a length, a count. CT_ENOMEM. */
CT_MUST_CHECK int ct_etcd_message_txn(const struct ct_etcd_txn *txn, struct ct_etcd_shape *shape,
                                      struct ct_buf *out, struct ct_err *err);

CT_MUST_CHECK int ct_etcd_message_grant(int64_t ttl_s, struct ct_buf *out, struct ct_err *err);

CT_MUST_CHECK int ct_etcd_message_keep_alive(int64_t lease, struct ct_buf *out, struct ct_err *err);

/* `out` must be empty, so that no copy of the password is left where it has grown. The caller wipes
 * it. Both texts are UTF-8. */
CT_MUST_CHECK int ct_etcd_message_login(const char *user, const char *password, struct ct_buf *out);

/* ---- replies -------------------------------------------------------------------------------- */

enum ct_etcd_next {
    CT_ETCD_DONE,      /* the reply has what was asked for */
    CT_ETCD_RELOGIN,   /* etcd wants a (new) token */
    CT_ETCD_ELSEWHERE, /* this member cannot answer; another one may */
    CT_ETCD_GIVE_UP,   /* every member would refuse it */
};

/* Reads the body of any call but a login. Whatever it returns, the caller must call
 * ct_etcd_reply_fini(). Unless it is CT_ETCD_DONE, rc and err of *reply say why, in one line that
 * does not name the endpoint. `shape` is NULL but for a transaction. `status` is HTTP's. */
CT_MUST_CHECK enum ct_etcd_next ct_etcd_message_read(enum ct_etcd_call call,
                                                     const struct ct_etcd_shape *shape, long status,
                                                     const char *bytes, size_t len,
                                                     struct ct_etcd_reply *reply);

/* Reads the body of a login. `token` gets a text that the caller frees after wiping it; "" if etcd
 * wants no logins. Only *rc and *err are written unless it is CT_ETCD_DONE. Never CT_ETCD_RELOGIN.
 */
CT_MUST_CHECK enum ct_etcd_next ct_etcd_message_read_login(long status, const char *bytes,
                                                           size_t len, char **token, int *rc,
                                                           struct ct_err *err);

/* Frees the values. NULL is allowed. */
void ct_etcd_reply_fini(struct ct_etcd_reply *reply);

#endif
