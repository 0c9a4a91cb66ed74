/* SPDX-License-Identifier: Apache-2.0
 *
 * Each call builds its request in client->out, sends it with one writev and reads the reply. What
 * can be refused is refused before the first byte goes out, so the connection survives it. Once a
 * byte has gone out, any failure leaves the stream at an unknown place, and the connection is dead.
 * The one exception is a wait that times out, which the protocol can cancel.
 */
#include "rendezvous/client.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/client_call.h"
#include "rendezvous/sock.h"

#include <poll.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* Pause before connecting again: doubles from the first to the last. A local store is up within
 * milliseconds; one on another machine must not be hammered by a thousand ranks. */
#define RETRY_FIRST_MS 5
#define RETRY_LAST_MS 500
/* A store that does not answer a cancellation within this time is not going to. */
#define CANCEL_REPLY_MS 5000

/* ---- connecting ----------------------------------------------------------------------------- */

static int greet(struct ct_client *c, int64_t deadline_ns, struct ct_err *err)
{
    uint32_t nonce = (uint32_t)getpid(), reply = 0;
    int rc = ct_call_begin(c, CT_OP_VALIDATE, err);
    if (rc != 0) {
        return rc;
    }
    if (ct_put_u32(&c->out, CT_PROTO_MAGIC) != 0 || ct_put_u8(&c->out, CT_OP_PING) != 0 ||
        ct_put_u32(&c->out, nonce) != 0) {
        return ct_call_no_memory(err);
    }
    rc = ct_call_send(c, NULL, 0, deadline_ns, err);
    if (rc == 0) {
        rc = ct_call_receive(c, &reply, sizeof(reply), deadline_ns, err);
    }
    if (rc == 0 && reply != nonce) {
        rc = ct_call_give_up(c, ct_err_set(err, CT_EPROTO, "what answers there is not a store"),
                             err);
    }
    return rc;
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

/* A store may not be up yet, its name not be published yet, or it may be out of descriptors, in
 * which case it takes the connection and closes it. */
static bool worth_retrying(int rc)
{
    return rc == CT_ECLOSED || rc == CT_ENOENT || rc == CT_ETIMEDOUT;
}

/* Between 3/4 and 5/4 of `ms`, so that ranks that started together come apart. */
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
        return ct_call_no_memory(err);
    }
    memcpy(c->host, host, len);
    c->fd = -1;
    c->port = port;
    c->timeout_ms = timeout_ms;
    struct ct_err why = {0};
    int rc = connect_until(c, ct_deadline_in(NULL, timeout_ms), &why);
    if (rc != 0) {
        (void)ct_err_set(err, rc, "cannot reach the store at %s:%u within %lld ms: %s", host,
                         (unsigned)port, (long long)timeout_ms, why.text);
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

/* The wait's time is up. 0 when the keys came at the last moment, CT_ETIMEDOUT when they did not.
 */
static int cancel_wait(struct ct_client *c, struct ct_err *err)
{
    int64_t deadline = ct_deadline_in(NULL, CANCEL_REPLY_MS);
    int rc = ct_call_begin(c, CT_OP_CANCEL_WAIT, err);
    if (rc != 0) {
        /* The stream is where it was, but the late reply to the wait would come as another's. */
        return ct_call_give_up(c, rc, err);
    }
    rc = ct_call_send(c, NULL, 0, deadline, err);
    uint8_t reply = CT_WAIT_DONE;
    bool done = false;
    if (rc == 0) {
        rc = ct_call_receive(c, &reply, 1, deadline, err);
    }
    if (rc == 0 && reply == CT_WAIT_DONE) {
        done = true;
        rc = ct_call_receive(c, &reply, 1, deadline, err);
    }
    if (rc == 0 && reply != CT_WAIT_CANCELED) {
        rc = ct_call_give_up(c, ct_err_set(err, CT_EPROTO, "wrong reply to a cancelled wait"), err);
    }
    if (rc != 0) {
        return rc;
    }
    return done ? 0 : CT_ETIMEDOUT;
}

int ct_client_wait(struct ct_client *client, const char *const *keys, size_t count,
                   int64_t timeout_ms, struct ct_err *err)
{
    int rc = ct_call_begin_keys(client, CT_OP_WAIT, keys, count, err);
    if (rc == 0) {
        rc = ct_call_send(client, NULL, 0, ct_call_deadline(client), err);
    }
    if (rc != 0) {
        return rc;
    }
    uint8_t reply = CT_WAIT_CANCELED;
    rc = ct_sock_recv(client->fd, &reply, 1, ct_deadline_in(NULL, timeout_ms), err);
    if (rc == CT_ETIMEDOUT) {
        rc = cancel_wait(client, err);
        if (rc == CT_ETIMEDOUT && !client->dead) {
            (void)ct_err_set(err, rc, "'%.200s'%s did not come into the store within %lld ms",
                             count > 0 ? keys[0] : "", count > 1 ? " or another key" : "",
                             (long long)timeout_ms);
        }
        return rc;
    }
    if (rc == 0 && reply != CT_WAIT_DONE) {
        rc = ct_err_set(err, CT_EPROTO, "wrong reply to a wait");
    }
    return rc == 0 ? 0 : ct_call_give_up(client, rc, err);
}

/* ---- the other operations ------------------------------------------------------------------- */

static int set_or_append(struct ct_client *c, enum ct_op op, const char *key, const void *value,
                         size_t len, struct ct_err *err)
{
    int rc = ct_call_begin_key(c, op, key, err);
    if (rc == 0) {
        rc = ct_call_check_value(key, len, err);
    }
    if (rc == 0 && ct_put_u64(&c->out, len) != 0) {
        rc = ct_call_no_memory(err);
    }
    return rc == 0 ? ct_call_send(c, value, len, ct_call_deadline(c), err) : rc;
}

int ct_client_set(struct ct_client *client, const char *key, const void *value, size_t len,
                  struct ct_err *err)
{
    return set_or_append(client, CT_OP_SET, key, value, len, err);
}

int ct_client_append(struct ct_client *client, const char *key, const void *value, size_t len,
                     struct ct_err *err)
{
    return set_or_append(client, CT_OP_APPEND, key, value, len, err);
}

int ct_client_get(struct ct_client *client, const char *key, int64_t timeout_ms, struct ct_buf *out,
                  struct ct_err *err)
{
    int rc = ct_client_wait(client, &key, 1, timeout_ms, err);
    if (rc == 0) {
        rc = ct_call_begin_key(client, CT_OP_GET, key, err);
    }
    if (rc != 0) {
        return rc;
    }
    int64_t deadline = ct_call_deadline(client);
    rc = ct_call_send(client, NULL, 0, deadline, err);
    return rc == 0 ? ct_call_receive_value(client, out, deadline, err) : rc;
}

int ct_client_add(struct ct_client *client, const char *key, int64_t delta, int64_t *out,
                  struct ct_err *err)
{
    int rc = ct_call_begin_key(client, CT_OP_ADD, key, err);
    if (rc == 0 && ct_put_u64(&client->out, (uint64_t)delta) != 0) {
        rc = ct_call_no_memory(err);
    }
    int64_t sum = 0;
    if (rc == 0) {
        rc = ct_call_exchange(client, &sum, sizeof(sum), err);
    }
    if (rc == 0) {
        *out = sum;
    }
    return rc;
}

int ct_client_compare_set(struct ct_client *client, const char *key, const void *expected,
                          size_t expected_len, const void *desired, size_t desired_len,
                          struct ct_buf *out, struct ct_err *err)
{
    int rc = ct_call_begin_key(client, CT_OP_COMPARE_SET, key, err);
    if (rc == 0) {
        rc = ct_call_put_value(client, key, expected, expected_len, err);
    }
    if (rc == 0) {
        rc = ct_call_put_value(client, key, desired, desired_len, err);
    }
    int64_t deadline = ct_call_deadline(client);
    if (rc == 0) {
        rc = ct_call_send(client, NULL, 0, deadline, err);
    }
    return rc == 0 ? ct_call_receive_value(client, out, deadline, err) : rc;
}

int ct_client_check(struct ct_client *client, const char *const *keys, size_t count, bool *ready,
                    struct ct_err *err)
{
    uint8_t reply = CT_CHECK_NOT_READY;
    int rc = ct_call_begin_keys(client, CT_OP_CHECK, keys, count, err);
    if (rc == 0) {
        rc = ct_call_exchange(client, &reply, sizeof(reply), err);
    }
    if (rc == 0) {
        *ready = reply == CT_CHECK_READY;
    }
    return rc;
}

int ct_client_num_keys(struct ct_client *client, int64_t *out, struct ct_err *err)
{
    int64_t count = 0;
    int rc = ct_call_begin(client, CT_OP_GETNUMKEYS, err);
    if (rc == 0) {
        rc = ct_call_exchange(client, &count, sizeof(count), err);
    }
    if (rc == 0) {
        *out = count;
    }
    return rc;
}

int ct_client_delete(struct ct_client *client, const char *key, bool *removed, struct ct_err *err)
{
    int64_t count = 0;
    int rc = ct_call_begin_key(client, CT_OP_DELETE_KEY, key, err);
    if (rc == 0) {
        rc = ct_call_exchange(client, &count, sizeof(count), err);
    }
    if (rc == 0) {
        *removed = count > 0;
    }
    return rc;
}

int ct_client_multi_get(struct ct_client *client, const char *const *keys, size_t count,
                        struct ct_buf *outs, struct ct_err *err)
{
    int rc = ct_call_begin_keys(client, CT_OP_MULTI_GET, keys, count, err);
    int64_t deadline = ct_call_deadline(client);
    if (rc == 0) {
        rc = ct_call_send(client, NULL, 0, deadline, err);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = ct_call_receive_value(client, &outs[i], deadline, err);
    }
    return rc;
}

int ct_client_multi_set(struct ct_client *client, const struct ct_client_pair *pairs, size_t count,
                        struct ct_err *err)
{
    int rc = ct_call_begin(client, CT_OP_MULTI_SET, err);
    if (rc == 0) {
        rc = ct_call_put_count(client, count, err);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = ct_call_put_key(client, pairs[i].key, err);
        if (rc == 0) {
            rc = ct_call_put_value(client, pairs[i].key, pairs[i].value, pairs[i].len, err);
        }
    }
    return rc == 0 ? ct_call_send(client, NULL, 0, ct_call_deadline(client), err) : rc;
}

int ct_client_ping(struct ct_client *client, struct ct_err *err)
{
    uint32_t nonce = (uint32_t)getpid(), reply = 0;
    int rc = ct_call_begin(client, CT_OP_PING, err);
    if (rc == 0 && ct_put_u32(&client->out, nonce) != 0) {
        rc = ct_call_no_memory(err);
    }
    if (rc == 0) {
        rc = ct_call_exchange(client, &reply, sizeof(reply), err);
    }
    if (rc == 0 && reply != nonce) {
        rc = ct_call_give_up(client, ct_err_set(err, CT_EPROTO, "wrong reply to a ping"), err);
    }
    return rc;
}
