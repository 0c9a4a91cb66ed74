/* SPDX-License-Identifier: Apache-2.0
 *
 * One request for each machine: for the worker whose local rank is 0, since its machine answers for
 * all of its workers. The peer is not trusted: its words are cleaned before they are printed.
 */
#include "rendezvous/ctrun-stat/stat_stacks.h"

#include "common/clock.h"
#include "common/text.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/http_client.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Appends the lines of a stranger's text. */
static void add_lines(const char *text, struct ct_buf *out)
{
    char line[1024];
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        (void)snprintf(line, sizeof(line), "%.*s", len < sizeof(line) ? (int)len : 1023, text);
        ct_text_clean(line);
        ct_buf_addf(out, "  %s\n", line);
        text += len + (text[len] == '\n');
    }
}

static int read_answer(const struct ct_buf *bytes, const struct ct_http_reply *reply,
                       struct ct_buf *out)
{
    cJSON *json =
        cJSON_ParseWithLength((const char *)ct_buf_bytes(bytes) + reply->body, reply->len);
    const char *text = ct_json_text(json, "text", NULL);
    const char *why = ct_json_text(json, "error", "the answer is of an unknown kind");
    if (reply->code == 403) {
        why = "the job has a token: give it with --token-file or CTRUN_TOKEN";
    }
    add_lines(text != NULL ? text : why, out);
    cJSON_Delete(json);
    return ct_buf_status(out);
}

static int ask_machine(const struct ct_stat_options *options, const char *token, int job, int rank,
                       struct ct_buf *out)
{
    char path[64];
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    struct ct_err err = {0};
    (void)snprintf(path, sizeof(path), "/page/ask/stacks/%d/%d", job, rank);
    const struct ct_http_request request = {.method = "POST", .path = path, .bearer = token};
    int64_t deadline_ns = ct_deadline_in(NULL, (int64_t)options->timeout_s * 1000);
    int rc = ct_http_ask(&options->where, &request, deadline_ns, &bytes, &reply, &err);
    if (rc == 0) {
        rc = read_answer(&bytes, &reply, out);
    } else {
        add_lines(err.text, out);
        rc = ct_buf_status(out);
    }
    ct_buf_fini(&bytes);
    return rc;
}

static int ask_all(const struct ct_stat_options *options, const char *token,
                   const struct cJSON *status, struct ct_buf *out, struct ct_err *err)
{
    int number = 0, asked = 0;
    for (const cJSON *job = ct_status_next_job(status, NULL); job != NULL;
         job = ct_status_next_job(status, job), number++) {
        const cJSON *worker;
        cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
        {
            char host[CT_TEXT_EXCERPT_MAX];
            double rank = ct_json_number(worker, "rank", -1);
            if (ct_json_number(worker, "local_rank", -1) != 0 || rank < 0 || rank > INT_MAX) {
                continue;
            }
            ct_buf_addf(out, "%s:\n", ct_text_excerpt(ct_json_text(worker, "host", "?"), host));
            if (ask_machine(options, token, number, (int)rank, out) != 0) {
                return ct_err_set(err, CT_ENOMEM, "out of memory");
            }
            asked++;
        }
    }
    return asked > 0 ? 0 : ct_err_set(err, CT_ENOENT, "no workers run there");
}

int ct_stat_stacks(const struct ct_stat_options *options, const char *token_env,
                   const struct cJSON *status, struct ct_buf *out, struct ct_err *err)
{
    struct ct_token token = {0};
    int rc = ct_token_find(options->token_file, token_env, &token, err);
    if (rc == 0) {
        rc = ask_all(options, token.text, status, out, err);
    }
    ct_token_wipe(&token);
    return rc;
}
