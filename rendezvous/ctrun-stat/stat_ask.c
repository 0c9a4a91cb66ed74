/* SPDX-License-Identifier: Apache-2.0
 *
 * One request for /status and what may be wrong with its answer. Blocks for at most the timeout.
 * The peer is not trusted: its words are cleaned before a message quotes them.
 */
#include "rendezvous/ctrun-stat/stat_ask.h"

#include "common/clock.h"
#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/http_client.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>

static int read_reply(const struct ct_buf *bytes, const struct ct_http_reply *reply, cJSON **out,
                      struct ct_err *err)
{
    bool healthy;
    if (reply->code == 403) {
        return ct_err_set(err, CT_EPERM, "this machine is not admitted");
    }
    cJSON *status =
        cJSON_ParseWithLength((const char *)ct_buf_bytes(bytes) + reply->body, reply->len);
    if (reply->code != 200) {
        char why[256];
        (void)snprintf(why, sizeof(why), "%s", ct_json_text(status, "error", ""));
        ct_text_clean(why);
        cJSON_Delete(status);
        return ct_err_set(err, CT_EPROTO, "answered with HTTP code %d%s%s", reply->code,
                          why[0] != '\0' ? ": " : "", why);
    }
    if (ct_stat_verdict(status, &healthy) != 0) {
        cJSON_Delete(status);
        return ct_err_set(err, CT_EFORMAT, "answered with something that is no status");
    }
    *out = status;
    return 0;
}

int ct_stat_ask(const struct ct_endpoint *where, int timeout_s, struct cJSON **out,
                struct ct_err *err)
{
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    int64_t deadline_ns = ct_deadline_in(NULL, (int64_t)timeout_s * 1000);
    const struct ct_http_request request = {.method = "GET", .path = "/status"};
    int rc = ct_http_ask(where, &request, deadline_ns, &bytes, &reply, err);
    if (rc == 0) {
        rc = read_reply(&bytes, &reply, out, err);
    }
    ct_buf_fini(&bytes);
    return rc;
}
