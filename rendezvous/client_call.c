/* SPDX-License-Identifier: Apache-2.0 */
#include "rendezvous/client_call.h"

#include "common/clock.h"
#include "rendezvous/limits.h"
#include "rendezvous/sock.h"

#include <string.h>

/* ---- building requests ---------------------------------------------------------------------- */

int ct_call_no_memory(struct ct_err *err)
{
    return ct_err_set(err, CT_ENOMEM, "no memory for a request to the store");
}

int ct_call_begin(struct ct_client *c, enum ct_op op, struct ct_err *err)
{
    if (c->dead) {
        return ct_err_set(err, CT_ECLOSED, "connection to the store at %s:%u ended earlier",
                          c->host, (unsigned)c->port);
    }
    ct_buf_reset(&c->out);
    return ct_put_u8(&c->out, (uint8_t)op) == 0 ? 0 : ct_call_no_memory(err);
}

int ct_call_put_key(struct ct_client *c, const char *key, struct ct_err *err)
{
    size_t len = strlen(key);
    if (len > CT_MAX_KEY_LEN - 1) {
        return ct_err_set(err, CT_ELIMIT, "key '%.40s...' is longer than %zu bytes", key,
                          CT_MAX_KEY_LEN - 1);
    }
    if (ct_put_u64(&c->out, 1 + len) != 0 || ct_put_u8(&c->out, '/') != 0 ||
        ct_buf_append(&c->out, key, len) != 0) {
        return ct_call_no_memory(err);
    }
    return 0;
}

int ct_call_check_value(const char *key, size_t len, struct ct_err *err)
{
    return len <= CT_MAX_VALUE_LEN
               ? 0
               : ct_err_set(err, CT_ELIMIT, "value for '%.100s' is longer than %zu bytes", key,
                            CT_MAX_VALUE_LEN);
}

int ct_call_put_value(struct ct_client *c, const char *key, const void *value, size_t len,
                      struct ct_err *err)
{
    int rc = ct_call_check_value(key, len, err);
    if (rc != 0) {
        return rc;
    }
    return ct_put_bytes(&c->out, value, len) == 0 ? 0 : ct_call_no_memory(err);
}

int ct_call_put_count(struct ct_client *c, size_t count, struct ct_err *err)
{
    if (count > CT_MAX_KEYS) {
        return ct_err_set(err, CT_ELIMIT, "%zu keys in one request, more than %zu", count,
                          CT_MAX_KEYS);
    }
    return ct_put_u64(&c->out, count) == 0 ? 0 : ct_call_no_memory(err);
}

int ct_call_begin_key(struct ct_client *c, enum ct_op op, const char *key, struct ct_err *err)
{
    int rc = ct_call_begin(c, op, err);
    return rc == 0 ? ct_call_put_key(c, key, err) : rc;
}

int ct_call_begin_keys(struct ct_client *c, enum ct_op op, const char *const *keys, size_t count,
                       struct ct_err *err)
{
    int rc = ct_call_begin(c, op, err);
    if (rc == 0) {
        rc = ct_call_put_count(c, count, err);
    }
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = ct_call_put_key(c, keys[i], err);
    }
    return rc;
}

/* ---- talking -------------------------------------------------------------------------------- */

int64_t ct_call_deadline(const struct ct_client *c)
{
    return ct_deadline_in(NULL, c->timeout_ms);
}

int ct_call_give_up(struct ct_client *c, int rc, struct ct_err *err)
{
    c->dead = true;
    (void)ct_err_wrap(err, "store at %s:%u", c->host, (unsigned)c->port);
    return rc;
}

/* Sends the request and behind it `value`. */
int ct_call_send(struct ct_client *c, const void *value, size_t len, int64_t deadline_ns,
                 struct ct_err *err)
{
    struct iovec iov[2] = {
        {ct_buf_bytes(&c->out), c->out.len},
        {(void *)(uintptr_t)value, len},
    };
    int rc = ct_sock_send(c->fd, iov, 2, deadline_ns, err);
    /* A large request is rare; its memory is not kept for the small ones. */
    if (c->out.cap > CT_KEEP_BUF_BYTES) {
        ct_buf_fini(&c->out);
    }
    return rc == 0 ? 0 : ct_call_give_up(c, rc, err);
}

int ct_call_receive(struct ct_client *c, void *out, size_t len, int64_t deadline_ns,
                    struct ct_err *err)
{
    int rc = ct_sock_recv(c->fd, out, len, deadline_ns, err);
    return rc == 0 ? 0 : ct_call_give_up(c, rc, err);
}

/* Sends the request and receives a reply of fixed size. */
int ct_call_exchange(struct ct_client *c, void *reply, size_t len, struct ct_err *err)
{
    int64_t deadline = ct_call_deadline(c);
    int rc = ct_call_send(c, NULL, 0, deadline, err);
    return rc == 0 ? ct_call_receive(c, reply, len, deadline, err) : rc;
}

/* Appends a value to `out`, which a failure leaves as it was. */
int ct_call_receive_value(struct ct_client *c, struct ct_buf *out, int64_t deadline_ns,
                          struct ct_err *err)
{
    uint64_t len = 0;
    int rc = ct_call_receive(c, &len, sizeof(len), deadline_ns, err);
    if (rc != 0) {
        return rc;
    }
    if (len > CT_MAX_VALUE_LEN) {
        return ct_call_give_up(
            c, ct_err_set(err, CT_EPROTO, "it sent a value of %llu bytes", (unsigned long long)len),
            err);
    }
    if (len == 0) {
        return 0;
    }
    if (ct_buf_reserve(out, (size_t)len) != 0) {
        return ct_call_give_up(c, ct_call_no_memory(err), err);
    }
    rc = ct_call_receive(c, ct_buf_tail(out), (size_t)len, deadline_ns, err);
    if (rc == 0) {
        out->len += (size_t)len;
    }
    return rc;
}
