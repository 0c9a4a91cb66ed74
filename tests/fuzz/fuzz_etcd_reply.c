/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever answers in etcd's place: each reply is read as that to every call.
 */
#include "tests/fuzz/fuzz.h"

#include "common/alloc.h"
#include "rendezvous/etcd/etcd_message.h"

#include <string.h>

static void check(enum ct_etcd_next next, const struct ct_etcd_reply *reply)
{
    CT_ASSERT((next == CT_ETCD_DONE) == (reply->rc == 0));
    CT_ASSERT(next == CT_ETCD_DONE || reply->err.text[0] != '\0');
    CT_ASSERT(reply->num_values >= 0 && reply->num_values <= CT_ETCD_OPS_MAX);
    CT_ASSERT(reply->lease >= 0 && reply->ttl_s >= 0 && reply->ttl_s <= CT_ETCD_TTL_MAX_S);
    for (int i = 0; i < reply->num_values; i++) {
        const struct ct_etcd_value *value = &reply->values[i];
        CT_ASSERT(value->len <= CT_ETCD_VALUE_MAX && value->bytes[value->len] == '\0');
        CT_ASSERT(value->found == (value->mod_revision > 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct ct_etcd_txn txn = {
        .then = {{.what = CT_ETCD_GET, .key = "k"}},
        .num_then = 1,
        .otherwise = {{.what = CT_ETCD_GET, .key = "k"}, {.what = CT_ETCD_GET, .key = "other"}},
        .num_otherwise = 2,
    };
    static const long statuses[] = {200, 400};
    const char *bytes = (const char *)data;
    struct ct_buf body = CT_BUF_INIT;
    struct ct_etcd_shape shape;
    CT_ASSERT(ct_etcd_message_txn(&txn, &shape, &body, NULL) == 0);
    ct_buf_fini(&body);
    for (size_t i = 0; i < sizeof(statuses) / sizeof(statuses[0]); i++) {
        for (enum ct_etcd_call call = CT_ETCD_TXN; call <= CT_ETCD_KEEP_ALIVE; call++) {
            struct ct_etcd_reply reply;
            check(ct_etcd_message_read(call, &shape, statuses[i], bytes, size, &reply), &reply);
            ct_etcd_reply_fini(&reply);
        }
        char *token = NULL;
        int rc = 0;
        struct ct_err err;
        enum ct_etcd_next next =
            ct_etcd_message_read_login(statuses[i], bytes, size, &token, &rc, &err);
        CT_ASSERT((next == CT_ETCD_DONE) == (token != NULL) && next != CT_ETCD_RELOGIN);
        CT_ASSERT((token != NULL) == (rc == 0));
        ct_free(token);
    }
    return 0;
}
