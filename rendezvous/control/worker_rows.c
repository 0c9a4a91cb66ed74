/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads rows from agents, checks their order and ranges, and prints them into the status. Rows are
 * printed without printf(3), which would take longer than everything else.
 */
#include "rendezvous/control/worker_rows.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/progress_page.h"
#include "rendezvous/control/control.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(CT_ROW_UNTOLD == CT_PHASES, "the phase after the last one");

static const char *const states[CT_ROW_STATES] = {
    "waiting", "starting", "running", "parked", "succeeded", "stopped", "failed",
};
static const char *const phases[CT_ROW_PHASES] = {
    "starting", "data", "compute", "collective", "checkpoint", "done", "untold",
};

const char *ct_row_state_name(enum ct_row_state state)
{
    return (unsigned)state < CT_ROW_STATES ? states[state] : "unknown";
}

/* ---- on the wire ---------------------------------------------------------------------------- */

#define ROW(name, kind, at, size, min, max, names)                               \
    {                                                                            \
        1, name, kind, offsetof(struct ct_worker_row, at), size, min, max, names \
    }

static const struct ct_json_field fields[] = {
    ROW("rank", CT_JSON_INT, rank, 0, 0, CT_MAX_WORLD - 1, NULL),
    ROW("local_rank", CT_JSON_INT, local_rank, 0, 0, CT_MAX_NODE_WORKERS - 1, NULL),
    ROW("generation", CT_JSON_INT, generation, 0, -1, INT32_MAX, NULL),
    ROW("state", CT_JSON_NAME, state, CT_ROW_STATES, 0, 0, states),
    ROW("pid", CT_JSON_I64, pid, 0, 0, INT32_MAX, NULL),
    ROW("ended", CT_JSON_BOOL, ended, 0, 0, 0, NULL),
    ROW("exit", CT_JSON_INT, exit_code, 0, -64, 255, NULL),
    ROW("phase", CT_JSON_NAME, phase, CT_ROW_PHASES, 0, 0, phases),
    ROW("step", CT_JSON_I64, step, 0, 0, CT_JSON_INT_MAX, NULL),
    ROW("age_ms", CT_JSON_I64, age_ms, 0, 0, CT_CONTROL_MAX_MS, NULL),
    ROW("loss", CT_JSON_REAL, loss, 0, 0, 0, NULL),
    ROW("rate", CT_JSON_REAL, rate, 0, 0, 0, NULL),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* This field is absent if it is not known, and in the rows of an older ctrun. */
static const struct ct_json_field memory_field =
    ROW("rss_mib", CT_JSON_INT, rss_mib, 0, 0, INT32_MAX, NULL);

int ct_rows_to_json(const struct ct_worker_row *rows, int count, struct cJSON **out)
{
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; array != NULL && i < count; i++) {
        cJSON *item = ct_json_append_object(array);
        bool memory = rows[i].rss_mib > 0 && count <= CT_ROW_MEMORY_WORKERS;
        if (item == NULL || ct_json_write_fields(item, fields, FIELDS, 1, &rows[i]) != 0 ||
            ct_json_write_fields(item, &memory_field, memory, 1, &rows[i]) != 0) {
            cJSON_Delete(array);
            array = NULL;
        }
    }
    *out = array;
    return array != NULL ? 0 : CT_ENOMEM;
}

static void print_real(double value, char out[CT_ROW_REAL_MAX])
{
    (void)snprintf(out, isnan(value) ? 1 : CT_ROW_REAL_MAX, "%.9g", value);
}

static int read_row(const cJSON *item, struct ct_worker_row *row, const struct ct_worker_row *first,
                    int i, struct ct_err *err)
{
    if (!cJSON_IsObject(item)) {
        return ct_err_set(err, CT_EFORMAT, "a row must be an object");
    }
    bool memory = cJSON_GetObjectItemCaseSensitive(item, "rss_mib") != NULL;
    int rc = ct_json_read_fields(item, fields, FIELDS, 1, row, err);
    if (rc != 0) {
        return rc;
    }
    if (memory) {
        rc = ct_json_read_fields(item, &memory_field, 1, 1, row, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (row->local_rank != i) {
        return ct_err_set(err, CT_EFORMAT, "local rank %d stands in the place of %d",
                          row->local_rank, i);
    }
    if (row->rank != first->rank + i) {
        return ct_err_set(err, CT_EFORMAT, "rank %d stands in the place of %d", row->rank,
                          first->rank + i);
    }
    print_real(row->loss, row->loss_text);
    print_real(row->rate, row->rate_text);
    return 0;
}

int ct_rows_from_json(const struct cJSON *array, struct ct_worker_row **out, int *count,
                      struct ct_err *err)
{
    if (!cJSON_IsArray(array)) {
        return ct_err_set(err, CT_EFORMAT, "field \"workers\" must be an array");
    }
    int n = cJSON_GetArraySize(array);
    if (n > CT_MAX_NODE_WORKERS) {
        return ct_err_set(err, CT_EFORMAT, "field \"workers\" has %d rows, a node has %d at most",
                          n, CT_MAX_NODE_WORKERS);
    }
    if (n == 0) {
        *out = NULL;
        *count = 0;
        return 0;
    }
    struct ct_worker_row *rows = ct_calloc((size_t)n, sizeof(rows[0]));
    if (rows == NULL) {
        return CT_ENOMEM;
    }
    int i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, array)
    {
        int rc = read_row(item, &rows[i], &rows[0], i, err);
        if (rc != 0) {
            ct_free(rows);
            if (rc == CT_EFORMAT) {
                (void)ct_err_wrap(err, "row %d of \"workers\"", i);
            }
            return rc;
        }
        i++;
    }
    *out = rows;
    *count = n;
    return 0;
}

/* ---- in the status -------------------------------------------------------------------------- */

void ct_status_rows_fini(struct ct_status_rows *rows)
{
    ct_free(rows->spans);
    rows->spans = NULL;
    rows->count = rows->room = 0;
}

/* Bytes of the longest row without the host: the names, eight integers and two other numbers. */
#define ROW_TEXT_MAX 512

/* Each put_ function writes at `at`, where the longest row fits, and returns where it ends. */
static char *put(char *at, const char *text)
{
    return mempcpy(at, text, strlen(text));
}

static char *put_int(char *at, int64_t value)
{
    char digits[24];
    size_t n = 0;
    uint64_t left = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do {
        digits[n++] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (value < 0) {
        *at++ = '-';
    }
    while (n > 0) {
        *at++ = digits[--n];
    }
    return at;
}

static char *put_seconds(char *at, int64_t ms)
{
    at = put_int(at, ms / 1000);
    *at++ = '.';
    for (int64_t unit = 100; unit > 0; unit /= 10) {
        *at++ = (char)('0' + ms / unit % 10);
    }
    return at;
}

static char *put_real(char *at, const char *text)
{
    return put(at, text[0] != '\0' ? text : "null");
}

static char *put_row(char *at, const struct ct_worker_row *row, int rank, const char *host,
                     size_t host_len)
{
    at = put_int(put(at, "{\"rank\":"), rank);
    at = put_int(put(at, ",\"local_rank\":"), row->local_rank);
    at = put_int(put(at, ",\"pid\":"), row->pid);
    at = put(at, ",\"host\":");
    memcpy(at, host, host_len);
    at = put(put(put(at + host_len, ",\"state\":\""), states[row->state]), "\",\"exit\":");
    at = row->ended ? put_int(at, row->exit_code) : put(at, "null");
    at = put_int(put(at, ",\"restarts\":"), row->generation);
    if (row->rss_mib > 0) {
        at = put_int(put(at, ",\"rss_bytes\":"), (int64_t)row->rss_mib << 20);
    }
    if (row->phase == CT_ROW_UNTOLD) {
        return put(at, ",\"progress\":null}");
    }
    at = put(put(put(at, ",\"progress\":{\"phase\":\""), phases[row->phase]), "\",\"step\":");
    at = put_int(at, row->step);
    at = put_seconds(put(at, ",\"age_s\":"), row->age_ms);
    at = put_real(put(at, ",\"loss\":"), row->loss_text);
    at = put_real(put(at, ",\"samples_per_s\":"), row->rate_text);
    return put(at, "}}");
}

static int collect(struct ct_status_rows *rows, const struct ct_row_span *span, int count)
{
    if (rows->count == rows->room) {
        size_t room = rows->room > 0 ? 2 * rows->room : 16;
        struct ct_row_span *grown = ct_realloc(rows->spans, room * sizeof(grown[0]));
        if (grown == NULL) {
            return CT_ENOMEM;
        }
        rows->spans = grown;
        rows->room = room;
    }
    rows->spans[rows->count] = *span;
    rows->spans[rows->count].job = rows->job;
    rows->spans[rows->count++].count = count;
    return 0;
}

int ct_status_rows_add(struct ct_status_rows *rows, const struct ct_row_span *span,
                       const char *host, struct ct_buf *out)
{
    int left = CT_STATUS_ROWS_MAX - rows->taken;
    int count = span->count < left ? span->count : left;
    rows->more = rows->more || count < span->count;
    rows->taken += count;
    if (count == 0) {
        return 0;
    }
    if (!rows->print) {
        return collect(rows, span, count);
    }
    size_t host_len = strlen(host);
    for (int i = 0; i < count; i++) {
        if (ct_buf_reserve(out, ROW_TEXT_MAX + host_len) != 0) {
            return CT_ENOMEM;
        }
        char *from = (char *)ct_buf_tail(out), *at = from;
        if (out->len > 1) { /* there is more than the bracket */
            *at++ = ',';
        }
        at = put_row(at, &span->rows[i], span->first_rank + i, host, host_len);
        out->len += (size_t)(at - from);
    }
    return 0;
}
