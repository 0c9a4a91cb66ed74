/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys and values are base64 in this JSON, numbers of 64 bits are texts, and a field that is zero
 * or empty is left out. Before 3.6 an error has its text twice, as "error" and as "message"; the
 * error of a stream, such as a keep-alive, is an object "error".
 */
#include "rendezvous/etcd/etcd_message.h"

#include "common/alloc.h"
#include "common/num.h"
#include "common/text.h"
#include "rendezvous/wire/json.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

/* Codes of gRPC that etcd's errors carry. */
#define GRPC_CANCELLED 1
#define GRPC_UNKNOWN 2 /* what etcd has no code for, such as a proposal that its leader dropped */
#define GRPC_DEADLINE_EXCEEDED 4
#define GRPC_PERMISSION_DENIED 7
#define GRPC_RESOURCE_EXHAUSTED 8
#define GRPC_INTERNAL 13
#define GRPC_UNAVAILABLE 14
#define GRPC_DATA_LOSS 15 /* a member whose data are damaged */
#define GRPC_UNAUTHENTICATED 16

const char *ct_etcd_message_path(enum ct_etcd_call call)
{
    switch (call) {
    case CT_ETCD_TXN:
        return "/v3/kv/txn";
    case CT_ETCD_GRANT:
        return "/v3/lease/grant";
    case CT_ETCD_KEEP_ALIVE:
        return "/v3/lease/keepalive";
    case CT_ETCD_LOGIN:
        break;
    }
    return "/v3/auth/authenticate";
}

/* ---- bodies --------------------------------------------------------------------------------- */

static void add_base64(struct ct_buf *out, const char *name, const void *bytes, size_t len)
{
    ct_buf_addf(out, "\"%s\":\"", name);
    size_t size = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
    if (ct_buf_reserve(out, size) != 0) {
        out->failed = true;
        return;
    }
    char *at = (char *)ct_buf_tail(out);
    out->len += strlen(sodium_bin2base64(at, size, bytes, len, sodium_base64_VARIANT_ORIGINAL));
    ct_buf_add(out, "\"", 1);
}

static int check_key(const char *key, struct ct_err *err)
{
    if (key == NULL || key[0] == '\0') {
        return ct_err_set(err, CT_EINVAL, "a key of etcd is empty");
    }
    if (strnlen(key, CT_ETCD_KEY_MAX + 1) > CT_ETCD_KEY_MAX) {
        return ct_err_set(err, CT_EINVAL, "a key of etcd is longer than %d bytes", CT_ETCD_KEY_MAX);
    }
    return 0;
}

static int check_count(int num, struct ct_err *err)
{
    if (num < 0 || num > CT_ETCD_OPS_MAX) {
        return ct_err_set(err, CT_EINVAL,
                          "a transaction of etcd has %d parts of one kind, not 0 to %d", num,
                          CT_ETCD_OPS_MAX);
    }
    return 0;
}

static int add_compares(const struct ct_etcd_txn *txn, struct ct_buf *out, struct ct_err *err)
{
    int rc = check_count(txn->num_compares, err);
    ct_buf_addf(out, "{\"compare\":[");
    for (int i = 0; rc == 0 && i < txn->num_compares; i++) {
        const struct ct_etcd_compare *c = &txn->compares[i];
        rc = check_key(c->key, err);
        if (rc != 0) {
            return rc;
        }
        if (c->mod_revision < 0) {
            return ct_err_set(err, CT_EINVAL, "a revision of etcd is negative");
        }
        ct_buf_addf(out,
                    "%s{\"result\":\"EQUAL\",\"target\":\"MOD\",\"mod_revision\":\"%" PRId64 "\",",
                    i > 0 ? "," : "", c->mod_revision);
        add_base64(out, "key", c->key, strlen(c->key));
        ct_buf_addf(out, "}");
    }
    return rc;
}

static int add_op(const struct ct_etcd_op *op, struct ct_buf *out, struct ct_err *err)
{
    static const char *const names[] = {
        [CT_ETCD_PUT] = "request_put",
        [CT_ETCD_GET] = "request_range",
    };
    int rc = check_key(op->key, err);
    if (rc != 0) {
        return rc;
    }
    ct_buf_addf(out, "{\"%s\":{", names[op->what]);
    add_base64(out, "key", op->key, strlen(op->key));
    if (op->what == CT_ETCD_PUT) {
        if (op->len > CT_ETCD_VALUE_MAX) {
            return ct_err_set(err, CT_EINVAL, "a value for etcd is longer than %zu bytes",
                              CT_ETCD_VALUE_MAX);
        }
        if (op->lease < 0) {
            return ct_err_set(err, CT_EINVAL, "a lease of etcd is negative");
        }
        ct_buf_addf(out, ",\"lease\":\"%" PRId64 "\",", op->lease);
        add_base64(out, "value", op->value, op->len);
    }
    ct_buf_addf(out, "}}");
    return 0;
}

static int add_branch(const char *name, const struct ct_etcd_op *ops, int num, int branch,
                      struct ct_etcd_shape *shape, struct ct_buf *out, struct ct_err *err)
{
    int rc = check_count(num, err);
    if (rc != 0) {
        return rc;
    }
    ct_buf_addf(out, "],\"%s\":[", name);
    shape->num[branch] = num;
    for (int i = 0; i < num; i++) {
        ct_buf_add(out, ",", i > 0 ? 1 : 0);
        rc = add_op(&ops[i], out, err);
        if (rc != 0) {
            return rc;
        }
        shape->what[branch][i] = ops[i].what;
        memcpy(shape->keys[branch][i], ops[i].key, strlen(ops[i].key) + 1);
    }
    return 0;
}

static int finish(struct ct_buf *out, struct ct_err *err)
{
    return ct_buf_status(out) == 0 ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

int ct_etcd_message_txn(const struct ct_etcd_txn *txn, struct ct_etcd_shape *shape,
                        struct ct_buf *out, struct ct_err *err)
{
    memset(shape, 0, sizeof(*shape));
    int rc = add_compares(txn, out, err);
    if (rc == 0) {
        rc = add_branch("success", txn->then, txn->num_then, 1, shape, out, err);
    }
    if (rc == 0) {
        rc = add_branch("failure", txn->otherwise, txn->num_otherwise, 0, shape, out, err);
    }
    if (rc != 0) {
        return rc;
    }
    ct_buf_addf(out, "]}");
    return finish(out, err);
}

int ct_etcd_message_grant(int64_t ttl_s, struct ct_buf *out, struct ct_err *err)
{
    if (ttl_s <= 0 || ttl_s > CT_ETCD_TTL_MAX_S) {
        return ct_err_set(err, CT_EINVAL,
                          "a lease of etcd has 1 to %" PRId64 " seconds, not %" PRId64,
                          CT_ETCD_TTL_MAX_S, ttl_s);
    }
    ct_buf_addf(out, "{\"TTL\":\"%" PRId64 "\"}", ttl_s);
    return finish(out, err);
}

int ct_etcd_message_keep_alive(int64_t lease, struct ct_buf *out, struct ct_err *err)
{
    if (lease <= 0) {
        return ct_err_set(err, CT_EINVAL, "%" PRId64 " is not a lease of etcd", lease);
    }
    ct_buf_addf(out, "{\"ID\":\"%" PRId64 "\"}", lease);
    return finish(out, err);
}

static void add_json_text(struct ct_buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == '"' || c == '\\') {
            ct_buf_addf(out, "\\u%04x", c);
        } else {
            ct_buf_add(out, text, 1);
        }
    }
}

int ct_etcd_message_login(const char *user, const char *password, struct ct_buf *out)
{
    CT_ASSERT(out->len == 0);
    /* A character becomes six at most. With all the memory at once nothing is left behind. */
    if (ct_buf_reserve(out, 6 * (strlen(user) + strlen(password)) + 64) != 0) {
        return CT_ENOMEM;
    }
    ct_buf_addf(out, "{\"name\":\"");
    add_json_text(out, user);
    ct_buf_addf(out, "\",\"password\":\"");
    add_json_text(out, password);
    ct_buf_addf(out, "\"}");
    return ct_buf_status(out);
}

/* ---- numbers and bytes ---------------------------------------------------------------------- */

/* Reads a number that is a text or a number, from 0 to `max`; 0 if it is absent. False for anything
 * else. */
static bool read_number(const cJSON *object, const char *name, int64_t max, int64_t *out)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (item == NULL || cJSON_IsNull(item)) {
        *out = 0;
        return true;
    }
    if (cJSON_IsString(item)) {
        return ct_parse_i64(item->valuestring, 0, max, out) == 0;
    }
    /* Above 2^53 a number is not exact. */
    if (!cJSON_IsNumber(item) ||
        !(item->valuedouble >= 0 && item->valuedouble <= 9007199254740992.0)) {
        return false;
    }
    *out = (int64_t)item->valuedouble;
    return (double)*out == item->valuedouble && *out <= max;
}

/* Reads bytes that are at most `max`; none if they are absent. False for anything but base64. */
static bool read_bytes(const cJSON *object, const char *name, size_t max, char *out, size_t *len)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    *len = 0;
    if (item == NULL || cJSON_IsNull(item)) {
        return true;
    }
    if (!cJSON_IsString(item)) {
        return false;
    }
    const char *end;
    size_t digits = strlen(item->valuestring);
    return sodium_base642bin((unsigned char *)out, max, item->valuestring, digits, NULL, len, &end,
                             sodium_base64_VARIANT_ORIGINAL) == 0 &&
           end == item->valuestring + digits;
}

/* ---- errors --------------------------------------------------------------------------------- */

struct problem {
    const char *message; /* "" if there is none */
    int code;            /* gRPC's; 0 if there is none */
};

/* Finds the error in a reply. */
static struct problem find_problem(const cJSON *json)
{
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const cJSON *from = cJSON_IsObject(error) ? error : json;
    double code = ct_json_number(from, "code", ct_json_number(from, "grpc_code", 0));
    return (struct problem){
        .message = ct_json_text(from, "message", ct_json_text(json, "error", "")),
        .code = code > 0 && code < 100 ? (int)code : 0,
    };
}

/* Sets the reason and returns `next`. */
#define FAIL(next, code, ...) (*rc = ct_err_set(err, code, __VA_ARGS__), next)

static bool says(const struct problem *p, const char *words)
{
    return strstr(p->message, words) != NULL;
}

/* What a server says about a login is not shown, since it could repeat the password. */
static enum ct_etcd_next judge_login(const struct problem *p, long status, int *rc,
                                     struct ct_err *err)
{
    if (says(p, "authentication failed") || p->code == GRPC_UNAUTHENTICATED) {
        return FAIL(CT_ETCD_GIVE_UP, CT_EPERM,
                    "authentication failed: wrong user name or password, see ETCDCTL_USER and "
                    "ETCDCTL_PASSWORD");
    }
    if (p->code == 0) {
        return FAIL(CT_ETCD_ELSEWHERE, CT_EPROTO,
                    "no etcd of version 3.4 or newer answers the login there (HTTP status %ld)",
                    status);
    }
    return FAIL(CT_ETCD_ELSEWHERE, CT_EIO, "cannot log in (HTTP status %ld, code %d)", status,
                p->code);
}

static enum ct_etcd_next judge(enum ct_etcd_call call, const struct problem *p, long status,
                               int *rc, struct ct_err *err)
{
    char shown[CT_TEXT_EXCERPT_MAX];
    const char *message = ct_text_excerpt(p->message, shown);
    if (says(p, "user name is empty")) {
        return FAIL(CT_ETCD_RELOGIN, CT_EPERM,
                    "it wants a user name and a password: set ETCDCTL_USER and ETCDCTL_PASSWORD");
    }
    if (p->code == GRPC_UNAUTHENTICATED || says(p, "invalid auth token") ||
        says(p, "revision of auth store is old")) {
        /* It may have forgotten the token, or not have heard of a new one yet. */
        return FAIL(CT_ETCD_RELOGIN, CT_EIO, "it does not accept the login: %s", message);
    }
    if (says(p, "lease not found") && call != CT_ETCD_GRANT) {
        return FAIL(CT_ETCD_GIVE_UP, CT_ENOENT, "the lease has ended");
    }
    switch (p->code) {
    case GRPC_PERMISSION_DENIED:
        return FAIL(CT_ETCD_GIVE_UP, CT_EPERM,
                    "the user may not read and write the job's key: grant it a role that may "
                    "readwrite the prefix /ctrun/ (etcdctl role grant-permission): %s",
                    message);
    case GRPC_CANCELLED:
    case GRPC_UNKNOWN:
    case GRPC_DEADLINE_EXCEEDED:
    case GRPC_RESOURCE_EXHAUSTED:
    case GRPC_INTERNAL:
    case GRPC_UNAVAILABLE:
    case GRPC_DATA_LOSS:
        return FAIL(CT_ETCD_ELSEWHERE, CT_EIO, "it cannot answer now: %s", message);
    default:
        break;
    }
    if (p->message[0] != '\0' && p->code != 0) {
        return FAIL(CT_ETCD_GIVE_UP, CT_EINVAL, "it refuses the request: %s", message);
    }
    return FAIL(CT_ETCD_ELSEWHERE, CT_EPROTO,
                "no etcd of version 3.4 or newer answers there (HTTP status %ld)", status);
}

/* ---- replies -------------------------------------------------------------------------------- */

/* Parses a body. CT_ETCD_DONE: *json is an object without an error, which the caller deletes. */
static enum ct_etcd_next parse(enum ct_etcd_call call, long status, const char *bytes, size_t len,
                               cJSON **json, int *rc, struct ct_err *err)
{
    if (len > CT_ETCD_REPLY_MAX) {
        return FAIL(CT_ETCD_ELSEWHERE, CT_ELIMIT, CT_ETCD_REPLY_TOO_LONG, CT_ETCD_REPLY_MAX);
    }
    ct_json_use_our_memory();
    const char *end = bytes;
    cJSON *found = cJSON_ParseWithLengthOpts(bytes, len, &end, 0);
    while (found != NULL && end < bytes + len && strchr(" \t\r\n", *end) != NULL && *end != '\0') {
        end++;
    }
    if (!cJSON_IsObject(found) || end != bytes + len) {
        cJSON_Delete(found);
        found = NULL;
    }
    if (found != NULL && status == 200 &&
        cJSON_GetObjectItemCaseSensitive(found, "error") == NULL) {
        *json = found;
        return CT_ETCD_DONE;
    }
    enum ct_etcd_next next;
    struct problem p = {.message = ""};
    if (found != NULL) {
        p = find_problem(found);
    }
    if (call == CT_ETCD_LOGIN && found != NULL && says(&p, "authentication is not enabled")) {
        *json = found;
        return CT_ETCD_DONE;
    }
    if (found == NULL && status == 200) {
        next = FAIL(CT_ETCD_ELSEWHERE, CT_EPROTO, "the reply is not the JSON of etcd");
    } else if (call == CT_ETCD_LOGIN) {
        next = judge_login(&p, status, rc, err);
    } else {
        next = judge(call, &p, status, rc, err);
    }
    cJSON_Delete(found);
    return next;
}

/* Does this base64 stand for more bytes than a value of ours may have? */
static bool is_too_long(const cJSON *value)
{
    const char *digits = cJSON_IsString(value) ? value->valuestring : "";
    size_t len = strlen(digits);
    while (len > 0 && digits[len - 1] == '=') {
        len--;
    }
    return len / 4 * 3 + len % 4 * 3 / 4 > CT_ETCD_VALUE_MAX;
}

/* False if it is not the reply to this GET, or if the value is too long, which the reply then says.
 * *memory is free up to `memory_end`. */
static bool read_get(const cJSON *range, const char *key, char **memory, const char *memory_end,
                     struct ct_etcd_reply *reply)
{
    const cJSON *kvs = cJSON_GetObjectItemCaseSensitive(range, "kvs");
    struct ct_etcd_value *out = &reply->values[reply->num_values++];
    *out = (struct ct_etcd_value){.bytes = ""};
    if (kvs == NULL || cJSON_IsNull(kvs) || (cJSON_IsArray(kvs) && kvs->child == NULL)) {
        return true;
    }
    const cJSON *kv = cJSON_IsArray(kvs) ? kvs->child : NULL;
    if (kv == NULL || !cJSON_IsObject(kv) || kv->next != NULL) {
        return false;
    }
    char name[CT_ETCD_KEY_MAX];
    size_t name_len;
    if (!read_bytes(kv, "key", sizeof(name), name, &name_len) || name_len != strlen(key) ||
        memcmp(name, key, name_len) != 0) {
        return false;
    }
    if (is_too_long(cJSON_GetObjectItemCaseSensitive(kv, "value"))) {
        reply->rc = ct_err_set(&reply->err, CT_ELIMIT,
                               "the value has more than %zu bytes, so it is not ctrun's: delete it",
                               CT_ETCD_VALUE_MAX);
        return false;
    }
    size_t room = (size_t)(memory_end - *memory) - 1;
    if (!read_bytes(kv, "value", room < CT_ETCD_VALUE_MAX ? room : CT_ETCD_VALUE_MAX, *memory,
                    &out->len) ||
        !read_number(kv, "mod_revision", INT64_MAX, &out->mod_revision) || out->mod_revision == 0) {
        return false;
    }
    out->found = true;
    out->bytes = *memory;
    (*memory)[out->len] = '\0';
    *memory += out->len + 1;
    return true;
}

static bool read_txn(const cJSON *json, const struct ct_etcd_shape *shape, char *memory,
                     const char *memory_end, struct ct_etcd_reply *reply)
{
    static const char *const names[] = {
        [CT_ETCD_PUT] = "response_put",
        [CT_ETCD_GET] = "response_range",
    };
    const cJSON *succeeded = cJSON_GetObjectItemCaseSensitive(json, "succeeded");
    if (succeeded != NULL && !cJSON_IsBool(succeeded)) {
        return false;
    }
    reply->succeeded = cJSON_IsTrue(succeeded);
    int branch = reply->succeeded ? 1 : 0;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "responses");
    if (list != NULL && !cJSON_IsArray(list)) {
        return false;
    }
    const cJSON *item = list != NULL ? list->child : NULL;
    for (int i = 0; i < shape->num[branch]; i++, item = item->next) {
        enum ct_etcd_op_what what = shape->what[branch][i];
        const cJSON *response = cJSON_GetObjectItemCaseSensitive(item, names[what]);
        if (item == NULL || !cJSON_IsObject(response)) {
            return false;
        }
        if (what == CT_ETCD_GET &&
            !read_get(response, shape->keys[branch][i], &memory, memory_end, reply)) {
            return false;
        }
    }
    return item == NULL;
}

static bool read_lease(const cJSON *json, bool granted, struct ct_etcd_reply *reply)
{
    return read_number(json, "ID", INT64_MAX, &reply->lease) && reply->lease > 0 &&
           read_number(json, "TTL", CT_ETCD_TTL_MAX_S, &reply->ttl_s) &&
           !(granted && reply->ttl_s == 0);
}

static bool read_reply(enum ct_etcd_call call, const cJSON *json, const struct ct_etcd_shape *shape,
                       size_t room, struct ct_etcd_reply *reply)
{
    if (call == CT_ETCD_KEEP_ALIVE) {
        json = cJSON_GetObjectItemCaseSensitive(json, "result");
        if (!cJSON_IsObject(json)) {
            return false;
        }
    }
    const cJSON *header = cJSON_GetObjectItemCaseSensitive(json, "header");
    if (!cJSON_IsObject(header) || !read_number(header, "revision", INT64_MAX, &reply->revision)) {
        return false;
    }
    (void)snprintf(reply->cluster, sizeof(reply->cluster), "%.*s", CT_ETCD_CLUSTER_MAX - 1,
                   ct_json_text(header, "cluster_id", ""));
    switch (call) {
    case CT_ETCD_TXN:
        return read_txn(json, shape, reply->memory, (char *)reply->memory + room, reply);
    case CT_ETCD_GRANT:
    case CT_ETCD_KEEP_ALIVE:
        return read_lease(json, call == CT_ETCD_GRANT, reply);
    case CT_ETCD_LOGIN:
        break;
    }
    return true;
}

enum ct_etcd_next ct_etcd_message_read(enum ct_etcd_call call, const struct ct_etcd_shape *shape,
                                       long status, const char *bytes, size_t len,
                                       struct ct_etcd_reply *reply)
{
    int *rc = &reply->rc;
    struct ct_err *err = &reply->err;
    cJSON *json = NULL;
    memset(reply, 0, sizeof(*reply));
    enum ct_etcd_next next = parse(call, status, bytes, len, &json, rc, err);
    if (next != CT_ETCD_DONE) {
        return next;
    }
    /* Base64 is longer than what it stands for, so the values and a NUL after each fit. */
    size_t room = len + CT_ETCD_OPS_MAX;
    reply->memory = ct_malloc(room);
    if (reply->memory == NULL) {
        next = FAIL(CT_ETCD_GIVE_UP, CT_ENOMEM, "out of memory");
    } else if (!read_reply(call, json, shape, room, reply)) {
        reply->num_values = 0;
        next = *rc == CT_ELIMIT
                   ? CT_ETCD_GIVE_UP
                   : FAIL(CT_ETCD_ELSEWHERE, CT_EPROTO, "the reply is not the JSON of etcd");
    }
    cJSON_Delete(json);
    return next;
}

enum ct_etcd_next ct_etcd_message_read_login(long status, const char *bytes, size_t len,
                                             char **token, int *rc, struct ct_err *err)
{
    cJSON *json = NULL;
    enum ct_etcd_next next = parse(CT_ETCD_LOGIN, status, bytes, len, &json, rc, err);
    if (next != CT_ETCD_DONE) {
        return next;
    }
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, "token");
    const char *text = status == 200 ? ct_json_text(json, "token", NULL) : "";
    size_t size = text != NULL ? strlen(text) : 0;
    /* It becomes a line of an HTTP header. */
    size_t good = 0;
    while (good < size && text[good] > ' ' && text[good] < 0x7f) {
        good++;
    }
    if (text == NULL || (status == 200 && size == 0) || size > CT_ETCD_TOKEN_MAX || good != size) {
        next = FAIL(CT_ETCD_ELSEWHERE, CT_EPROTO, "the reply to the login has no token");
    } else if ((*token = ct_strdup(text)) == NULL) {
        next = FAIL(CT_ETCD_GIVE_UP, CT_ENOMEM, "out of memory");
    }
    if (cJSON_IsString(item)) {
        sodium_memzero(item->valuestring, strlen(item->valuestring));
    }
    cJSON_Delete(json);
    return next;
}

void ct_etcd_reply_fini(struct ct_etcd_reply *reply)
{
    if (reply != NULL) {
        ct_free(reply->memory);
        reply->memory = NULL;
        reply->num_values = 0;
    }
}
