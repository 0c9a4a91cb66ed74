/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring of the last hangs. A hang is added when it is told, and its record is brought up to date
 * until it is over or the workers have ended.
 */
#include "launcher/report/hang_log.h"

#include "common/text.h"
#include "rendezvous/wire/json.h"

/* Lines on the screen, where the rest of a story follows. */
#define SHOWN 4

void ct_hang_log_add(struct ct_hang_log *log, const struct ct_hang_record *record)
{
    log->kept[log->count++ % CT_HANG_LOG_KEPT] = *record;
}

struct ct_hang_record *ct_hang_log_last(struct ct_hang_log *log)
{
    return log->count > 0 ? &log->kept[(log->count - 1) % CT_HANG_LOG_KEPT] : &log->none;
}

static const char *outcome(const struct ct_hang_record *record)
{
    return record->killed ? "killed" : record->failed ? "failed" : record->over ? "over" : "none";
}

int ct_hang_log_to_json(const struct ct_hang_log *log, struct cJSON *root)
{
    cJSON *array = cJSON_AddArrayToObject(root, "hangs");
    bool ok = array != NULL && ct_json_add_number(root, "hang_count", (double)log->count);
    uint64_t n = log->count > CT_HANG_LOG_KEPT ? log->count - CT_HANG_LOG_KEPT : 0;
    for (; ok && n < log->count; n++) {
        const struct ct_hang_record *record = &log->kept[n % CT_HANG_LOG_KEPT];
        cJSON *item = ct_json_append_object(array);
        ok = item != NULL && ct_json_add_number(item, "generation", record->generation) &&
             ct_json_add_number(item, "rank", record->rank) &&
             ct_json_add_name(item, "host", record->host) &&
             ct_json_add_number(item, "time_ms", (double)record->time_ms) &&
             ct_json_add_number(item, "for_s", (double)record->for_ms / 1000) &&
             ct_json_add_text(item, "outcome", outcome(record)) &&
             ct_json_add_name(item, "why", record->why) &&
             ct_json_add_name(item, "at", record->at) &&
             ct_json_add_name(item, "operation", record->operation);
    }
    return ok ? 0 : CT_ENOMEM;
}

static void add_line(const struct ct_hang_record *record, const char *prefix, struct ct_buf *out)
{
    size_t before = out->len;
    ct_buf_addf(out, "%shang in generation %d: ", prefix, record->generation);
    if (record->rank >= 0) {
        ct_buf_addf(out, "rank %d", record->rank);
    } else {
        ct_buf_addf(out, "the job");
    }
    ct_buf_addf(out, " stood still for %.1f s", (double)record->for_ms / 1000);
    if (record->at[0] != '\0') {
        ct_buf_addf(out, " at %s", record->at);
    }
    if (record->operation[0] != '\0') {
        ct_buf_addf(out, "; ranks here waited in %s", record->operation);
    }
    ct_buf_addf(out, "%s",
                record->killed   ? "; it was killed"
                : record->failed ? "; then a worker failed"
                : record->over   ? "; then it went on"
                                 : "");
    if (ct_buf_status(out) == 0) {
        ct_text_clean((char *)ct_buf_bytes(out) + before); /* it goes to a terminal */
    }
    ct_buf_addf(out, "\n");
}

int ct_hang_log_text(const struct ct_hang_log *log, const char *prefix, struct ct_buf *out)
{
    for (uint64_t n = log->count > SHOWN ? log->count - SHOWN : 0; n < log->count; n++) {
        add_line(&log->kept[n % CT_HANG_LOG_KEPT], prefix, out);
    }
    return ct_buf_status(out);
}
