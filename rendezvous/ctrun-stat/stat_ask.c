/* SPDX-License-Identifier: Apache-2.0
 *
 * One request for /status and what may be wrong with its answer. Blocks for at most the timeout.
 * The peer is not trusted: its words are cleaned before a message quotes them.
 *
 * Several stores are asked by a thread each, because those that do not answer take the whole
 * timeout. A thread that cannot be started asks none: its store is asked after the others, before
 * the same deadline. Answers are parsed by the caller's thread alone.
 */
#include "rendezvous/ctrun-stat/stat_ask.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_proof.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/http_client.h"
#include "rendezvous/wire/json.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

/* Says that the store refuses us, and what can be done. */
static int refuse(const struct ct_token *token, struct ct_err *err)
{
    return token == NULL
               ? ct_err_set(err, CT_EPERM,
                            "this machine is not admitted; if the job has a token, name its file "
                            "with --token-file or set " CT_TOKEN_ENV)
               : ct_err_set(err, CT_EPERM, "this machine is not admitted, and %s",
                            ct_stat_proof_not_wanted);
}

static int read_reply(const struct ct_buf *bytes, const struct ct_http_reply *reply,
                      const struct ct_token *token, bool has_proven, cJSON **out,
                      struct ct_err *err)
{
    bool healthy;
    if (reply->code == 403 && !has_proven) {
        return refuse(token, err);
    }
    cJSON *status =
        cJSON_ParseWithLength((const char *)ct_buf_bytes(bytes) + reply->body, reply->len);
    if (reply->code != 200) {
        char why[256];
        (void)snprintf(why, sizeof(why), "%s", ct_json_text(status, "error", ""));
        ct_text_clean(why);
        cJSON_Delete(status);
        return ct_err_set(err,
                          reply->code == 503   ? CT_EBUSY
                          : reply->code == 403 ? CT_EPERM
                                               : CT_EPROTO,
                          "answered with HTTP code %d%s%s", reply->code, why[0] != '\0' ? ": " : "",
                          why);
    }
    if (ct_stat_verdict(status, &healthy) != 0) {
        cJSON_Delete(status);
        return ct_err_set(err, CT_EFORMAT, "answered with something that is no status");
    }
    *out = status;
    return 0;
}

int ct_stat_ask(const struct ct_endpoint *where, const struct ct_token *token, int timeout_s,
                struct cJSON **out, struct ct_err *err)
{
    static const struct ct_http_proof_page page = {"GET", "/status"};
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    bool has_proven = false;
    int64_t deadline_ns = ct_deadline_in(NULL, (int64_t)timeout_s * 1000);
    int rc = ct_stat_proof_ask(where, &page, token, deadline_ns, &bytes, &reply, &has_proven, err);
    if (rc == 0) {
        rc = read_reply(&bytes, &reply, token, has_proven, out, err);
    }
    ct_buf_fini(&bytes);
    return rc;
}

static bool is_out_of_reach(const struct ct_err *err)
{
    return err->sys == EHOSTUNREACH || err->sys == ENETUNREACH || err->sys == EHOSTDOWN ||
           err->sys == ENETDOWN || err->sys == ETIMEDOUT;
}

bool ct_stat_ask_is_gone(const struct ct_err *err)
{
    return err->sys == ECONNREFUSED || err->sys == ECONNRESET ||
           (err->code == CT_ECLOSED && !is_out_of_reach(err));
}

bool ct_stat_ask_may_answer(const struct ct_err *err)
{
    return err->code == CT_ETIMEDOUT || err->code == CT_EBUSY || is_out_of_reach(err);
}

/* ---- several stores -------------------------------------------------------------------------- */

/* Enough for the resolver, and little enough for hundreds of threads. */
#define STACK_BYTES ((size_t)512 << 10)

struct asking {
    const struct ct_endpoint *where;
    int64_t deadline_ns;
    struct ct_buf bytes;
    struct ct_http_reply reply;
    int rc;
    bool has_thread;
    pthread_t thread;
};

static void *ask_one(void *data)
{
    static const struct ct_http_request request = {.method = "GET", .path = "/status"};
    struct asking *asking = data;
    asking->rc = ct_http_ask(asking->where, &request, asking->deadline_ns, &asking->bytes,
                             &asking->reply, NULL);
    return NULL;
}

int ct_stat_ask_all(const struct ct_endpoint *const *stores, int count, int timeout_s,
                    struct cJSON **out)
{
    pthread_attr_t attr;
    int64_t deadline_ns = ct_deadline_in(NULL, (int64_t)timeout_s * 1000);
    struct asking *all = ct_calloc((size_t)(count > 0 ? count : 1), sizeof(*all));
    if (all == NULL || pthread_attr_init(&attr) != 0) {
        ct_free(all);
        return CT_ENOMEM;
    }
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    for (int i = 0; i < count; i++) {
        all[i] = (struct asking){.where = stores[i], .deadline_ns = deadline_ns};
        all[i].has_thread =
            stores[i] != NULL && pthread_create(&all[i].thread, &attr, ask_one, &all[i]) == 0;
    }
    (void)pthread_attr_destroy(&attr);
    for (int i = 0; i < count; i++) {
        if (all[i].has_thread) {
            (void)pthread_join(all[i].thread, NULL);
        } else if (stores[i] != NULL) {
            (void)ask_one(&all[i]);
        }
        out[i] = NULL;
        if (stores[i] != NULL && all[i].rc == 0) {
            (void)!read_reply(&all[i].bytes, &all[i].reply, NULL, false, &out[i], NULL);
        }
        ct_buf_fini(&all[i].bytes);
    }
    ct_free(all);
    return 0;
}
