/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call builds its request in client->out, sends it with one system call and reads the reply. A
 * request that is too long is refused before its first byte is sent, so the connection stays
 * usable. After that any failure leaves the stream at an unknown place, and the connection is dead.
 * The one exception is a wait that times out, which the protocol can cancel.
 */
#include "rendezvous/client/client.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/wire/limits.h"
#include "rendezvous/wire/proto.h"
#include "rendezvous/wire/sock.h"

#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Pauses before connecting again; they double from the first to the last. A local store is up
 * within milliseconds. A store on another machine must not be flooded by a thousand ranks. */
#define RETRY_FIRST_MS 5
#define RETRY_LAST_MS 500
/* A store that does not answer a cancellation within this time counts as lost. */
#define CANCEL_REPLY_MS 5000
/* How often a wait looks whether this process did not run meanwhile. */
#define SLICE_MS 500

struct ct_client {
    int fd;
    bool dead;
    uint16_t port;
    int64_t timeout_ms;
    struct ct_buf out; /* the request being built */
    char host[];
};

/* ---- building requests ---------------------------------------------------------------------- */

static int no_memory(struct ct_err *err)
{
    return ct_err_set(err, CT_ENOMEM, "no memory for a request to the store");
}

static int begin(struct ct_client *c, enum ct_op op, struct ct_err *err)
{
    if (c->dead) {
        return ct_err_set(err, CT_ECLOSED, "connection to the store at %s:%u ended earlier",
                          c->host, (unsigned)c->port);
    }
    ct_buf_reset(&c->out);
    return ct_put_u8(&c->out, (uint8_t)op) == 0 ? 0 : no_memory(err);
}

static int put_key(struct ct_client *c, const char *key, struct ct_err *err)
{
    size_t len = strlen(key);
    if (len > CT_MAX_KEY_LEN - 1) {
        return ct_err_set(err, CT_ELIMIT, "key '%.40s...' is longer than %zu bytes", key,
                          CT_MAX_KEY_LEN - 1);
    }
    if (ct_put_u64(&c->out, 1 + len) != 0 || ct_put_u8(&c->out, '/') != 0 ||
        ct_buf_append(&c->out, key, len) != 0) {
        return no_memory(err);
    }
    return 0;
}

static int begin_key(struct ct_client *c, enum ct_op op, const char *key, struct ct_err *err)
{
    int rc = begin(c, op, err);
    return rc == 0 ? put_key(c, key, err) : rc;
}

/* Of WAIT and CHECK, which take several keys. */
static int begin_one_key(struct ct_client *c, enum ct_op op, const char *key, struct ct_err *err)
{
    int rc = begin(c, op, err);
    if (rc != 0) {
        return rc;
    }
    return ct_put_u64(&c->out, 1) == 0 ? put_key(c, key, err) : no_memory(err);
}

/* ---- talking -------------------------------------------------------------------------------- */

/* Returns when a call that starts now must be over. */
static int64_t deadline_of(const struct ct_client *c)
{
    return ct_deadline_in(NULL, c->timeout_ms);
}

/* Marks the connection dead, names the store in `err`, returns `rc`. */
static int give_up(struct ct_client *c, int rc, struct ct_err *err)
{
    c->dead = true;
    (void)ct_err_wrap(err, "store at %s:%u", c->host, (unsigned)c->port);
    return rc;
}

/* Sends the request and after it `value`, which is not copied. */
static int send_request(struct ct_client *c, const void *value, size_t len, int64_t deadline_ns,
                        struct ct_err *err)
{
    struct iovec iov[2] = {
        {ct_buf_bytes(&c->out), c->out.len},
        {(void *)(uintptr_t)value, len},
    };
    int rc = ct_sock_send(c->fd, iov, 2, deadline_ns, err);
    /* Large requests are rare, so their memory is not kept. */
    if (c->out.cap > CT_KEEP_BUF_BYTES) {
        ct_buf_fini(&c->out);
    }
    return rc == 0 ? 0 : give_up(c, rc, err);
}

static int receive(struct ct_client *c, void *out, size_t len, int64_t deadline_ns,
                   struct ct_err *err)
{
    int rc = ct_sock_recv(c->fd, out, len, deadline_ns, err);
    return rc == 0 ? 0 : give_up(c, rc, err);
}

/* Appends a value to `out`, which a failure leaves as it was. */
static int receive_value(struct ct_client *c, struct ct_buf *out, int64_t deadline_ns,
                         struct ct_err *err)
{
    uint64_t len = 0;
    int rc = receive(c, &len, sizeof(len), deadline_ns, err);
    if (rc != 0) {
        return rc;
    }
    if (len > CT_MAX_VALUE_LEN) {
        return give_up(
            c, ct_err_set(err, CT_EPROTO, "it sent a value of %llu bytes", (unsigned long long)len),
            err);
    }
    if (len == 0) {
        return 0;
    }
    if (ct_buf_reserve(out, (size_t)len) != 0) {
        return give_up(c, no_memory(err), err);
    }
    rc = receive(c, ct_buf_tail(out), (size_t)len, deadline_ns, err);
    if (rc == 0) {
        out->len += (size_t)len;
    }
    return rc;
}

/* ---- connecting ----------------------------------------------------------------------------- */

static int greet(struct ct_client *c, int64_t deadline_ns, struct ct_err *err)
{
    uint32_t nonce = (uint32_t)getpid(), reply = 0;
    int rc = begin(c, CT_OP_VALIDATE, err);
    if (rc != 0) {
        return rc;
    }
    if (ct_put_u32(&c->out, CT_PROTO_MAGIC) != 0 || ct_put_u8(&c->out, CT_OP_PING) != 0 ||
        ct_put_u32(&c->out, nonce) != 0) {
        return no_memory(err);
    }
    rc = send_request(c, NULL, 0, deadline_ns, err);
    if (rc != 0) {
        return rc;
    }
    rc = receive(c, &reply, sizeof(reply), deadline_ns, err);
    if (rc != 0) {
        return rc;
    }
    if (reply != nonce) {
        return give_up(c, ct_err_set(err, CT_EPROTO, "what answers there is not a store"), err);
    }
    return 0;
}

static int connect_once(struct ct_client *c, int64_t deadline_ns, struct ct_err *err)
{
    int rc = ct_sock_connect(c->host, c->port, deadline_ns, &c->fd, err);
    if (rc != 0) {
        return rc;
    }
    rc = greet(c, deadline_ns, err);
    if (rc != 0) {
        (void)close(c->fd);
        c->fd = -1;
        c->dead = false;
    }
    return rc;
}

/* May another attempt succeed? The store may not be up yet, or its name not be known yet. A store
 * without descriptors accepts the connection and closes it. */
static bool worth_retrying(int rc)
{
    return rc == CT_ECLOSED || rc == CT_ENOENT || rc == CT_ETIMEDOUT;
}

/* Returns between 3/4 and 5/4 of `ms`, so that ranks that start together do not retry together. */
static int64_t jitter(int64_t ms)
{
    uint16_t random = 0;
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
        return ms;
    }
    return ms * 3 / 4 + ms * random / (2 * UINT16_MAX);
}

static int connect_until(struct ct_client *c, int64_t deadline_ns, struct ct_err *err)
{
    int64_t pause = RETRY_FIRST_MS;
    for (;;) {
        int rc = connect_once(c, deadline_ns, err);
        int left = ct_deadline_left_ms(NULL, deadline_ns);
        if (rc == 0 || !worth_retrying(rc) || left == 0) {
            return rc;
        }
        int64_t ms = jitter(pause);
        (void)poll(NULL, 0, left >= 0 && ms > left ? left : (int)ms);
        pause = pause * 2 < RETRY_LAST_MS ? pause * 2 : RETRY_LAST_MS;
    }
}

int ct_client_open(const char *host, uint16_t port, int64_t timeout_ms, struct ct_client **out,
                   struct ct_err *err)
{
    size_t len = strlen(host) + 1;
    struct ct_client *c = ct_calloc(1, sizeof(*c) + len);
    if (c == NULL) {
        return no_memory(err);
    }
    memcpy(c->host, host, len);
    c->fd = -1;
    c->port = port;
    c->timeout_ms = timeout_ms;
    struct ct_err why = {0};
    int rc = connect_until(c, ct_deadline_in(NULL, timeout_ms), &why);
    if (rc != 0) {
        (void)ct_err_set(err, rc, "cannot reach the store at %s:%u within %g s: %s", host,
                         (unsigned)port, (double)timeout_ms / 1000, why.text);
        ct_client_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void ct_client_free(struct ct_client *client)
{
    if (client == NULL) {
        return;
    }
    if (client->fd >= 0) {
        (void)close(client->fd);
    }
    ct_buf_fini(&client->out);
    ct_free(client);
}

int ct_client_fd(const struct ct_client *client)
{
    return client->fd;
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Cancels a wait whose time is over. CT_ETIMEDOUT, or 0 if the key came at the last moment. */
static int cancel_wait(struct ct_client *c, struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, CANCEL_REPLY_MS);
    int rc = begin(c, CT_OP_CANCEL_WAIT, err);
    if (rc != 0) {
        /* A late reply to the wait would be taken for that of another request. */
        return give_up(c, rc, err);
    }
    rc = send_request(c, NULL, 0, deadline, err);
    if (rc != 0) {
        return rc;
    }
    uint8_t reply = CT_WAIT_DONE;
    rc = receive(c, &reply, 1, deadline, err);
    bool done = rc == 0 && reply == CT_WAIT_DONE;
    if (done) {
        rc = receive(c, &reply, 1, deadline, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (reply != CT_WAIT_CANCELED) {
        return give_up(c, ct_err_set(err, CT_EPROTO, "wrong reply to a cancelled wait"), err);
    }
    return done ? 0 : CT_ETIMEDOUT;
}

/* Receives the reply to a wait. */
static int await_reply(const struct ct_client *c, uint8_t *reply, int64_t timeout_ms,
                       struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, timeout_ms);
    for (;;) {
        int64_t slice = ct_deadline_in(NULL, SLICE_MS);
        int64_t until = slice < deadline ? slice : deadline;
        int rc = ct_sock_recv(c->fd, reply, 1, until, err);
        int64_t now = ct_clock_now(NULL);
        ct_deadline_put_off(&deadline, until, now);
        if (rc != CT_ETIMEDOUT || now >= deadline) {
            return rc;
        }
    }
}

/* Waits until the key is there. Returns CT_ETIMEDOUT after it has cancelled the wait; the
 * connection stays usable. */
static int wait_for_key(struct ct_client *c, const char *key, int64_t timeout_ms,
                        struct ct_err *err)
{
    int rc = begin_one_key(c, CT_OP_WAIT, key, err);
    if (rc != 0) {
        return rc;
    }
    rc = send_request(c, NULL, 0, deadline_of(c), err);
    if (rc != 0) {
        return rc;
    }
    uint8_t reply = CT_WAIT_CANCELED;
    rc = await_reply(c, &reply, timeout_ms, err);
    if (rc == CT_ETIMEDOUT) {
        rc = cancel_wait(c, err);
        if (rc == CT_ETIMEDOUT && !c->dead) {
            (void)ct_err_set(err, rc, "'%.200s' did not come into the store within %lld ms", key,
                             (long long)timeout_ms);
        }
        return rc;
    }
    if (rc == 0 && reply != CT_WAIT_DONE) {
        rc = ct_err_set(err, CT_EPROTO, "wrong reply to a wait");
    }
    return rc == 0 ? 0 : give_up(c, rc, err);
}

/* ---- the operations ------------------------------------------------------------------------- */

int ct_client_set(struct ct_client *client, const char *key, const void *value, size_t len,
                  struct ct_err *err)
{
    int rc = begin_key(client, CT_OP_SET, key, err);
    if (rc != 0) {
        return rc;
    }
    if (len > CT_MAX_VALUE_LEN) {
        return ct_err_set(err, CT_ELIMIT, "value for '%.100s' is longer than %zu bytes", key,
                          CT_MAX_VALUE_LEN);
    }
    if (ct_put_u64(&client->out, len) != 0) {
        return no_memory(err);
    }
    return send_request(client, value, len, deadline_of(client), err);
}

int ct_client_get(struct ct_client *client, const char *key, int64_t timeout_ms, struct ct_buf *out,
                  struct ct_err *err)
{
    int rc = wait_for_key(client, key, timeout_ms, err);
    if (rc != 0) {
        return rc;
    }
    rc = begin_key(client, CT_OP_GET, key, err);
    if (rc != 0) {
        return rc;
    }
    int64_t deadline = deadline_of(client);
    rc = send_request(client, NULL, 0, deadline, err);
    return rc == 0 ? receive_value(client, out, deadline, err) : rc;
}

int ct_client_check(struct ct_client *client, const char *key, bool *there, struct ct_err *err)
{
    int rc = begin_one_key(client, CT_OP_CHECK, key, err);
    if (rc != 0) {
        return rc;
    }
    int64_t deadline = deadline_of(client);
    rc = send_request(client, NULL, 0, deadline, err);
    if (rc != 0) {
        return rc;
    }
    uint8_t reply = CT_CHECK_NOT_READY;
    rc = receive(client, &reply, 1, deadline, err);
    if (rc == 0 && reply != CT_CHECK_READY && reply != CT_CHECK_NOT_READY) {
        rc = give_up(client, ct_err_set(err, CT_EPROTO, "wrong reply to a check"), err);
    }
    *there = rc == 0 && reply == CT_CHECK_READY;
    return rc;
}

int ct_client_add(struct ct_client *client, const char *key, int64_t delta, int64_t *out,
                  struct ct_err *err)
{
    int rc = begin_key(client, CT_OP_ADD, key, err);
    if (rc != 0) {
        return rc;
    }
    if (ct_put_u64(&client->out, (uint64_t)delta) != 0) {
        return no_memory(err);
    }
    int64_t deadline = deadline_of(client), sum = 0;
    rc = send_request(client, NULL, 0, deadline, err);
    if (rc != 0) {
        return rc;
    }
    rc = receive(client, &sum, sizeof(sum), deadline, err);
    if (rc == 0) {
        *out = sum;
    }
    return rc;
}

int ct_client_delete(struct ct_client *client, const char *key, bool *there, struct ct_err *err)
{
    int rc = begin_key(client, CT_OP_DELETE_KEY, key, err);
    if (rc != 0) {
        return rc;
    }
    int64_t deadline = deadline_of(client), deleted = 0;
    rc = send_request(client, NULL, 0, deadline, err);
    if (rc != 0) {
        return rc;
    }
    rc = receive(client, &deleted, sizeof(deleted), deadline, err);
    if (rc != 0) {
        return rc;
    }
    *there = deleted > 0;
    return 0;
}
