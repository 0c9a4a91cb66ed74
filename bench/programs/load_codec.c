/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes that the load generator sends, and those that must come back, in PyTorch's protocol and
 * in Redis'. A server that only echoes gets those of PyTorch.
 */
#include "bench/programs/load.h"

#include "rendezvous/wire/proto.h"

#include <string.h>

#define KEY "/bench"
#define VALUE "0123456789abcdef"
#define NONCE UINT32_C(0x62656e63)

static void check(int rc)
{
    if (rc != 0) {
        load_fail("out of memory");
    }
}

static void put_op(struct ct_buf *out, enum ct_op op)
{
    check(ct_put_u8(out, (uint8_t)op));
}

static void put_text(struct ct_buf *out, const char *text)
{
    check(ct_put_bytes(out, text, strlen(text)));
}

static void put_raw(struct ct_buf *out, const char *text)
{
    check(ct_buf_append(out, text, strlen(text)));
}

void load_put_add(struct ct_buf *out, const char *key, int64_t delta)
{
    put_op(out, CT_OP_ADD);
    put_text(out, key);
    check(ct_put_u64(out, (uint64_t)delta));
}

void load_put_wait(struct ct_buf *out, const char *key)
{
    put_op(out, CT_OP_WAIT);
    check(ct_put_u64(out, 1));
    put_text(out, key);
}

void load_put_set(struct ct_buf *out, const char *key)
{
    put_op(out, CT_OP_SET);
    put_text(out, key);
    put_text(out, VALUE);
}

void load_put_ping(struct ct_buf *out)
{
    put_op(out, CT_OP_PING);
    check(ct_put_u32(out, NONCE));
}

void load_put_barrier(struct ct_buf *out, const char *key, int64_t world)
{
    put_op(out, CT_OP_BARRIER);
    put_text(out, key);
    check(ct_put_u64(out, (uint64_t)world));
}

static void redis_op(const struct load_options *options, struct load_exchange *out)
{
    if (options->op == LOAD_GET) {
        put_raw(&out->request, "*2\r\n$3\r\nGET\r\n$6\r\n" KEY "\r\n");
        put_raw(&out->reply, "$16\r\n" VALUE "\r\n");
    } else {
        put_raw(&out->request, "*3\r\n$3\r\nSET\r\n$6\r\n" KEY "\r\n$16\r\n" VALUE "\r\n");
        put_raw(&out->reply, "+OK\r\n");
    }
}

void load_exchange_op(const struct load_options *options, struct load_exchange *out)
{
    memset(out, 0, sizeof(*out));
    if (options->protocol == LOAD_REDIS) {
        redis_op(options, out);
    } else if (options->op == LOAD_GET) {
        put_op(&out->request, CT_OP_GET);
        put_text(&out->request, KEY);
        put_text(&out->reply, VALUE);
    } else {
        load_put_set(&out->request, KEY);
        load_put_ping(&out->request);
        check(ct_put_u32(&out->reply, NONCE));
    }
}

void load_exchange_greeting(const struct load_options *options, struct load_exchange *out)
{
    memset(out, 0, sizeof(*out));
    if (options->protocol == LOAD_ECHO) {
        load_exchange_op(options, out);
    } else if (options->protocol == LOAD_REDIS) {
        put_raw(&out->request, "PING\r\n");
        put_raw(&out->reply, "+PONG\r\n");
    } else {
        put_op(&out->request, CT_OP_VALIDATE);
        check(ct_put_u32(&out->request, CT_PROTO_MAGIC));
        load_put_ping(&out->request);
        check(ct_put_u32(&out->reply, NONCE));
    }
}

void load_exchange_preset(const struct load_options *options, struct load_exchange *out)
{
    struct load_options set = *options;
    set.op = LOAD_SET;
    memset(out, 0, sizeof(*out));
    if (options->protocol != LOAD_ECHO) {
        load_exchange_op(&set, out);
    }
}

void load_exchange_fini(struct load_exchange *ex)
{
    ct_buf_fini(&ex->request);
    ct_buf_fini(&ex->reply);
}
