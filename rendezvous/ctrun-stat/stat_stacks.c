/* SPDX-License-Identifier: Apache-2.0
 *
 * One request for each machine: for the worker whose local rank is 0, since its machine answers for
 * all of its workers. The peer is not trusted: its words are cleaned before they are printed.
 */
#include "rendezvous/ctrun-stat/stat_stacks.h"

#include "common/clock.h"
#include "common/text.h"
#include "rendezvous/admission/token.h"
#include "rendezvous/ctrun-stat/stat_proof.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* What has come of the machines. `why` is the last line of the first of them that gave no stack. */
struct tally {
    int asked, given;
    char host[CT_TEXT_EXCERPT_MAX], why[256];
};

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

static bool begins(const char *line, const char *with)
{
    return strncmp(line, with, strlen(with)) == 0;
}

/* Does the answer of a machine, as ct_explain_print() writes it, tell where any worker stands? A
 * text without its words may be that of another version, and is believed. */
static bool tells_where(const char *text)
{
    bool is_none = text[0] == '\0';
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += line[0] == '\n';
        if (begins(line, "rank") || begins(line, "stack of ") ||
            begins(line, "no names in the stack of ")) {
            return true;
        }
        is_none = is_none || begins(line, "no stack of ");
    }
    return !is_none;
}

/* Appends an answer, or why there is none. */
static int add_answer(const char *host, const char *text, bool is_given, struct tally *tally,
                      struct ct_buf *out)
{
    add_lines(text, out);
    tally->asked++;
    tally->given += is_given;
    if (!is_given && tally->host[0] == '\0') {
        size_t len = strlen(text);
        while (len > 0 && text[len - 1] == '\n') {
            len--;
        }
        const char *before = len > 0 ? memrchr(text, '\n', len) : NULL;
        const char *last = before != NULL ? before + 1 : text;
        int size = (int)(len - (size_t)(last - text));
        (void)snprintf(tally->host, sizeof(tally->host), "%s", host);
        (void)snprintf(tally->why, sizeof(tally->why), "%.*s", size, last);
        ct_text_clean(tally->why);
    }
    return ct_buf_status(out);
}

/* Why a machine is not asked. The store's own word is for a browser, unless the token is proved. */
static const char *refusal(const struct ct_token *token, bool has_proven, const char *word)
{
    if (has_proven) {
        return word;
    }
    return token != NULL ? ct_stat_proof_not_wanted
                         : "give the job's token with --token-file or CTRUN_TOKEN; a job without "
                           "one tells this to its own user only";
}

static int read_answer(const struct ct_buf *bytes, const struct ct_http_reply *reply,
                       const char *host, const struct ct_token *token, bool has_proven,
                       struct tally *tally, struct ct_buf *out)
{
    cJSON *json =
        cJSON_ParseWithLength((const char *)ct_buf_bytes(bytes) + reply->body, reply->len);
    const char *text = reply->code != 403 ? ct_json_text(json, "text", NULL) : NULL;
    const char *why = ct_json_text(json, "error", "the answer is of an unknown kind");
    if (reply->code == 403) {
        why = refusal(token, has_proven, why);
    }
    if (text != NULL && text[0] == '\0') {
        text = NULL;
        why = "none of its workers runs now";
    }
    int rc =
        add_answer(host, text != NULL ? text : why, text != NULL && tells_where(text), tally, out);
    cJSON_Delete(json);
    return rc;
}

static int ask_machine(const struct ct_stat_options *options, const char *host, int job, int rank,
                       struct tally *tally, struct ct_buf *out)
{
    char path[64];
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_http_reply reply;
    struct ct_err err = {0};
    bool has_proven = false;
    (void)snprintf(path, sizeof(path), "/page/ask/stacks/%d/%d", job, rank);
    const struct ct_http_proof_page page = {"POST", path};
    int64_t deadline_ns = ct_deadline_in(NULL, (int64_t)options->timeout_s * 1000);
    int rc = ct_stat_proof_ask(&options->where, &page, options->token, deadline_ns, &bytes, &reply,
                               &has_proven, &err);
    if (rc == 0) {
        rc = read_answer(&bytes, &reply, host, options->token, has_proven, tally, out);
    } else {
        rc = add_answer(host, err.text, false, tally, out);
    }
    ct_buf_fini(&bytes);
    return rc;
}

int ct_stat_stacks(const struct ct_stat_options *options, const struct cJSON *status,
                   struct ct_buf *out, struct ct_err *err)
{
    struct tally tally = {0};
    bool several = cJSON_GetObjectItemCaseSensitive(status, "jobs") != NULL;
    int place = 0;
    for (const cJSON *job = ct_status_next_job(status, NULL); job != NULL;
         job = ct_status_next_job(status, job), place++) {
        const cJSON *worker;
        /* A store older than this program goes by the place in the document. */
        double told = ct_json_number(job, "number", place);
        int number = told >= 0 && told <= INT_MAX ? (int)told : place;
        cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(job, "workers"))
        {
            char host[CT_TEXT_EXCERPT_MAX], id[CT_TEXT_EXCERPT_MAX], name[CT_STAT_LINE_MAX];
            double rank = ct_json_number(worker, "rank", -1);
            if (ct_json_number(worker, "local_rank", -1) != 0 || rank < 0 || rank > INT_MAX) {
                continue;
            }
            (void)ct_text_excerpt(ct_stat_name(worker, "host", name), host);
            (void)ct_text_excerpt(ct_stat_name(job, "run_id", name), id);
            ct_buf_addf(out, "%s%s%s:\n", host, several ? ", job " : "", several ? id : "");
            if (ask_machine(options, host, number, (int)rank, &tally, out) != 0) {
                return ct_err_set(err, CT_ENOMEM, "out of memory");
            }
        }
    }
    if (tally.given > 0) {
        return 0;
    }
    if (tally.asked == 0) {
        (void)ct_err_set(err, CT_ENOENT, "no workers run there");
    } else {
        (void)ct_err_set(err, CT_ENOENT, "no machine gave a stack; %s: %s", tally.host, tally.why);
    }
    return CT_STAT_STACKS_E_NONE;
}
