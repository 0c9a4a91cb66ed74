/* SPDX-License-Identifier: Apache-2.0
 *
 * Host and record are written and read by job_record_json.h, so they look as in control frames.
 */
#include "rendezvous/etcd/arbiter_json.h"

#include "rendezvous/control/job_record_json.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <string.h>

#define TERM(name, max)                                                                   \
    {                                                                                     \
        1, #name, CT_JSON_I64, offsetof(struct ct_arbiter_state, name), 0, 0, (max), NULL \
    }

static const struct ct_json_field fields[] = {
    TERM(promised, CT_TERM_MAX),
    TERM(promised_to, CT_JSON_INT_MAX - 1),
    TERM(host_term, CT_TERM_MAX),
    {1, "ended", CT_JSON_BOOL, offsetof(struct ct_arbiter_state, record.ended), 0, 0, 0, NULL},
};
#define COUNT (sizeof(fields) / sizeof(fields[0]))

/* Adds `part`, which the object owns then, or frees it. */
static int add(cJSON *object, const char *name, cJSON *part)
{
    if (!cJSON_AddItemToObject(object, name, part)) {
        cJSON_Delete(part);
        return CT_ENOMEM;
    }
    return 0;
}

static int add_parts(cJSON *object, const struct ct_arbiter_state *state)
{
    cJSON *part = NULL;
    if (ct_json_write_fields(object, fields, COUNT, 1, state) != 0) {
        return CT_ENOMEM;
    }
    if (state->host.id != 0 &&
        (ct_job_record_voter_to_json(&state->host, &part) != 0 || add(object, "host", part) != 0)) {
        return CT_ENOMEM;
    }
    if (state->record.version != 0 &&
        (ct_job_record_to_json(&state->record, &part) != 0 || add(object, "record", part) != 0)) {
        return CT_ENOMEM;
    }
    return 0;
}

int ct_arbiter_json_write(const struct ct_arbiter_state *state, struct ct_buf *out)
{
    ct_json_use_our_memory();
    cJSON *object = cJSON_CreateObject();
    int rc = object != NULL ? add_parts(object, state) : CT_ENOMEM;
    if (rc == 0) {
        rc = ct_json_print(object, out);
    }
    cJSON_Delete(object);
    return rc;
}

static int read_parts(const cJSON *object, struct ct_arbiter_state *out, struct ct_err *err)
{
    const cJSON *host = cJSON_GetObjectItemCaseSensitive(object, "host");
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(object, "record");
    *out = (struct ct_arbiter_state){.promised = 0};
    ct_job_record_init(&out->record);
    int rc = ct_json_read_fields(object, fields, COUNT, 1, out, err);
    if (rc == 0 && host != NULL) {
        rc = ct_job_record_voter_from_json(host, &out->host, err);
    }
    if (rc == 0 && record != NULL) {
        rc = ct_job_record_from_json(record, &out->record, err);
    }
    if (rc == 0 && (out->host.id != 0) != (out->host_term != 0)) {
        rc = ct_err_set(err, CT_EFORMAT, "a host must have a term, and a term a host");
    }
    if (rc == 0 && (out->promised != 0) != (out->promised_to != 0)) {
        rc = ct_err_set(err, CT_EFORMAT, "a vote must have a term, and a candidate");
    }
    if (rc == 0 && out->record.ended && !out->record.over) {
        rc = ct_err_set(err, CT_EFORMAT, "a job that has ended must be over");
    }
    return rc;
}

int ct_arbiter_json_read(const char *text, size_t len, struct ct_arbiter_state *out,
                         struct ct_err *err)
{
    const char *end = text;
    ct_json_use_our_memory();
    while (len > 0 && strchr(" \t\r\n", text[len - 1]) != NULL && text[len - 1] != '\0') {
        len--;
    }
    cJSON *object = cJSON_ParseWithLengthOpts(text, len, &end, 0);
    int rc = cJSON_IsObject(object) && end == text + len
                 ? read_parts(object, out, err)
                 : ct_err_set(err, CT_EFORMAT, "it is not one JSON object");
    cJSON_Delete(object);
    return rc;
}
