/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads requests to etcd, one per line, and writes what each has come to as a line of JSON. The
 * argument is the list of endpoints; etcdctl's variables are read.
 *
 *     get KEY
 *     put KEY VALUE LEASE             whatever it was
 *     swap KEY VALUE REVISION         if it was changed last by this revision, 0 if it does not
 *                                     exist; else it is read
 *     grant SECONDS
 *     keep-alive LEASE
 */
#include "common/num.h"
#include "rendezvous/etcd/etcd_uv.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct requests {
    struct ct_etcd *etcd;
    bool done;
};

static void add_i64(cJSON *object, const char *name, int64_t number)
{
    char text[32];
    (void)snprintf(text, sizeof(text), "%lld", (long long)number);
    CT_ASSERT(cJSON_AddRawToObject(object, name, text) != NULL);
}

static void on_reply(void *data, const struct ct_etcd_reply *reply)
{
    struct requests *all = data;
    cJSON *json = cJSON_CreateObject();
    CT_ASSERT(ct_json_add_text(json, "rc", reply->rc == 0 ? "" : ct_code_text(reply->rc)));
    CT_ASSERT(ct_json_add_text(json, "error", reply->rc == 0 ? "" : reply->err.text));
    CT_ASSERT(ct_json_add_bool(json, "succeeded", reply->succeeded));
    CT_ASSERT(ct_json_add_bool(json, "sent", reply->sent_ns > 0));
    add_i64(json, "attempts", reply->attempts);
    add_i64(json, "revision", reply->revision);
    add_i64(json, "lease", reply->lease);
    add_i64(json, "ttl", reply->ttl_s);
    cJSON *values = cJSON_AddArrayToObject(json, "values");
    for (int i = 0; i < reply->num_values; i++) {
        const struct ct_etcd_value *value = &reply->values[i];
        cJSON *item = ct_json_append_object(values);
        CT_ASSERT(item != NULL && ct_json_add_bool(item, "found", value->found));
        CT_ASSERT(ct_json_add_text(item, "value", value->bytes));
        add_i64(item, "mod", value->mod_revision);
    }
    struct ct_buf out = CT_BUF_INIT;
    CT_ASSERT(ct_json_print(json, &out) == 0);
    (void)fwrite(ct_buf_bytes(&out), 1, out.len, stdout);
    (void)fflush(stdout);
    ct_buf_fini(&out);
    cJSON_Delete(json);
    all->done = true;
}

static int ask_txn(struct requests *all, char **words, struct ct_err *err)
{
    const char *key = words[1], *value = words[2], *last = words[3];
    struct ct_etcd_txn txn = {.num_then = 1};
    int64_t number = 0;
    CT_ASSERT(key != NULL && (last == NULL || ct_parse_i64(last, 0, INT64_MAX, &number) == 0));
    txn.compares[0] = (struct ct_etcd_compare){.key = key};
    txn.otherwise[0] = (struct ct_etcd_op){.what = CT_ETCD_GET, .key = key};
    txn.then[0] = (struct ct_etcd_op){.what = CT_ETCD_GET, .key = key};
    if (value != NULL) {
        txn.then[0] = (struct ct_etcd_op){
            .what = CT_ETCD_PUT, .key = key, .value = value, .len = strlen(value)};
    }
    if (strcmp(words[0], "swap") == 0) {
        txn.compares[0].mod_revision = number;
        txn.num_compares = txn.num_otherwise = 1;
    } else {
        txn.then[0].lease = number;
    }
    return ct_etcd_txn(all->etcd, &txn, on_reply, all, err);
}

static int ask(struct requests *all, char **words, struct ct_err *err)
{
    int64_t number = 0;
    if (words[1] != NULL) {
        (void)!ct_parse_i64(words[1], 0, INT64_MAX, &number); /* else it is a key */
    }
    if (strcmp(words[0], "grant") == 0) {
        return ct_etcd_grant(all->etcd, number, on_reply, all, err);
    }
    if (strcmp(words[0], "keep-alive") == 0) {
        return ct_etcd_keep_alive(all->etcd, number, on_reply, all, err);
    }
    return ask_txn(all, words, err);
}

int main(int argc, char **argv)
{
    static struct ct_etcd_settings settings;
    const struct ct_etcd_options options = {
        .settings = &settings, .connect_ms = 10000, .attempt_ms = 20000, .request_ms = 30000};
    struct requests all = {NULL, false};
    struct ct_err err;
    uv_loop_t loop;
    char line[4096];
    if (argc != 2 || uv_loop_init(&loop) != 0 ||
        ct_etcd_settings_read(argv[1], environ, &settings, &err) != 0 ||
        ct_etcd_open(&loop, &options, &all.etcd, &err) != 0) {
        (void)fprintf(stderr, "etcd-requests: %s\n", argc != 2 ? "which endpoints?" : err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        char *words[5] = {NULL};
        char *rest = line;
        for (int i = 0; i < 4; i++) {
            words[i] = strtok_r(i == 0 ? line : NULL, " \n", &rest);
            if (words[i] == NULL) {
                break;
            }
        }
        all.done = false;
        if (words[0] == NULL || ask(&all, words, &err) != 0) {
            (void)fprintf(stderr, "etcd-requests: %s\n", err.text);
            return 1;
        }
        while (!all.done) {
            (void)uv_run(&loop, UV_RUN_ONCE);
        }
    }
    ct_etcd_close(all.etcd);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    ct_etcd_settings_fini(&settings);
    return uv_loop_close(&loop) == 0 ? 0 : 1;
}
