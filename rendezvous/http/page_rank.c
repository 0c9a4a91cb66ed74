/* SPDX-License-Identifier: Apache-2.0
 *
 * The row comes from what the node has told last. The last lines come from the history of failures,
 * which keeps them when the node is gone.
 */
#include "rendezvous/http/page_rank.h"

#include "common/num.h"
#include "rendezvous/control/worker_rows.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <string.h>

bool ct_page_rank_parse(const char *text, int *job, int *rank)
{
    char first[16];
    const char *slash = strchr(text, '/');
    size_t len = slash != NULL ? (size_t)(slash - text) : sizeof(first);
    if (len >= sizeof(first)) {
        return false;
    }
    memcpy(first, text, len);
    first[len] = '\0';
    return ct_parse_int(first, 0, INT_MAX, job) == 0 &&
           ct_parse_int(slash + 1, 0, INT_MAX, rank) == 0;
}

/* Prints the row of the worker into the empty `out`; nothing when there is none. CT_ENOMEM. */
static int print_row(const struct ct_status_rows *rows, int job, int rank, struct ct_buf *out)
{
    for (size_t s = 0; s < rows->count; s++) {
        const struct ct_row_span *span = &rows->spans[s];
        if (span->job == job && rank >= span->first_rank && rank - span->first_rank < span->count) {
            const struct ct_row_span one = {
                .first_rank = rank, .count = 1, .rows = span->rows + (rank - span->first_rank)};
            struct ct_status_rows print = {.print = true};
            return ct_status_rows_add(&print, &one, "null", out);
        }
    }
    return 0;
}

/* Finds the job by its number, and gives its place in the document. NULL = it has gone. */
static const cJSON *find_job(const cJSON *status, int number, int *place)
{
    const cJSON *job = NULL;
    *place = -1;
    while ((job = ct_status_next_job(status, job)) != NULL) {
        ++*place;
        if (ct_json_number(job, "number", *place) == number) {
            break;
        }
    }
    return job;
}

/* The last failure of the worker; NULL = it has not failed. */
static const cJSON *last_failure(const cJSON *job, int rank)
{
    const cJSON *failure, *last = NULL;
    cJSON_ArrayForEach(failure, cJSON_GetObjectItemCaseSensitive(job, "failures"))
    {
        if ((int)ct_json_number(failure, "rank", -1) == rank) {
            last = failure;
        }
    }
    return last;
}

static int print(const cJSON *status, const struct ct_status_rows *rows, bool trusted, int number,
                 int rank, struct ct_http_answer *out)
{
    int place;
    const cJSON *job = find_job(status, number, &place);
    const cJSON *failure = last_failure(job, rank);
    const cJSON *tail = cJSON_GetObjectItemCaseSensitive(failure, "tail");
    bool shown = tail != NULL && trusted;
    struct ct_buf row = CT_BUF_INIT;
    int rc = job != NULL ? print_row(rows, place, rank, &row) : 0;
    char *text = rc == 0 && shown ? cJSON_PrintUnformatted(tail) : NULL;
    if (rc != 0 || (shown && text == NULL)) {
        rc = CT_ENOMEM;
        goto out;
    }
    if (row.len == 0 && failure == NULL) {
        ct_http_answer_error(out, 404, "nobody has told of this rank");
        goto out;
    }
    ct_buf_addf(&out->body, "{\"worker\":");
    if (row.len > 0) {
        ct_buf_add(&out->body, ct_buf_bytes(&row), row.len);
    }
    ct_buf_addf(&out->body, "%s,\"tail\":%s,\"locked\":%s}\n", row.len > 0 ? "" : "null",
                shown ? text : "[]", trusted ? "false" : "true");
    rc = ct_buf_status(&out->body);
out:
    cJSON_free(text);
    ct_buf_fini(&row);
    return rc;
}

void ct_page_rank_answer(const struct ct_http_source *source, bool trusted, const char *path,
                         struct ct_http_answer *out)
{
    struct ct_status_rows rows = {.tails = true};
    cJSON *status = NULL;
    int job, rank;
    *out = (struct ct_http_answer){.code = 200, .type = "application/json"};
    if (!ct_page_rank_parse(path + sizeof(CT_PAGE_RANK_PATH) - 1, &job, &rank)) {
        ct_http_answer_error(out, 404, "no such page");
        return;
    }
    ct_json_use_our_memory();
    int rc = source->status(source->data, &rows, &status);
    if (rc == 0) {
        rc = print(status, &rows, trusted, job, rank, out);
        cJSON_Delete(status);
    }
    ct_status_rows_fini(&rows);
    if (rc != 0) {
        ct_buf_fini(&out->body);
        *out = (struct ct_http_answer){.code = 500, .type = "application/json"};
    }
}
