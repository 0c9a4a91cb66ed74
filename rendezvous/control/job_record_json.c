/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and reads records of this form, and checks what has been read:
 *
 *     {"term":1,"version":4,"restarts":0,"over":false,"exit_code":0,
 *      "formed":{"generation":0,"voters":[{"id":7,"address":"10.0.0.1","port":4711}]},
 *      "planned":{"generation":-1,"voters":[]}}
 */
#include "rendezvous/control/job_record_json.h"

#include "common/addr.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stddef.h>
#include <string.h>

#define NUMBER(type, name, min, max)                                   \
    {                                                                  \
        1, #name, CT_JSON_I64, offsetof(type, name), 0, min, max, NULL \
    }

/* Ids, terms and versions have no sign, but all fit in an int64_t. */
static const struct ct_json_field record_fields[] = {
    NUMBER(struct ct_job_record, term, 1, CT_TERM_MAX),
    NUMBER(struct ct_job_record, version, 1, CT_JSON_INT_MAX - 1),
    {1, "restarts", CT_JSON_INT, offsetof(struct ct_job_record, restarts), 0, 0, INT_MAX, NULL},
    {1, "over", CT_JSON_BOOL, offsetof(struct ct_job_record, over), 0, 0, 0, NULL},
    {1, "exit_code", CT_JSON_INT, offsetof(struct ct_job_record, exit_code), 0, 0, 255, NULL},
};
static const struct ct_json_field voter_fields[] = {
    NUMBER(struct ct_voter, id, 1, CT_JSON_INT_MAX - 1),
    {1, "address", CT_JSON_TEXT, offsetof(struct ct_voter, address), CT_VOTER_ADDRESS_MAX, 0, 0,
     NULL},
    {1, "port", CT_JSON_PORT, offsetof(struct ct_voter, port), 0, 0, 0, NULL},
};
/* A host that carries on counts from here, and no job has had so many. */
#define GENERATION_MAX (INT_MAX / 2)
static const struct ct_json_field world_fields[] = {
    {1, "generation", CT_JSON_INT, offsetof(struct ct_world_voters, generation), 0, -1,
     GENERATION_MAX, NULL},
};
#define COUNT(fields) (sizeof(fields) / sizeof((fields)[0]))

/* ---- to JSON -------------------------------------------------------------------------------- */

static int fields_to_json(const struct ct_json_field *fields, size_t count, const void *from,
                          cJSON **out)
{
    cJSON *object = cJSON_CreateObject();
    if (object == NULL || ct_json_write_fields(object, fields, count, 1, from) != 0) {
        cJSON_Delete(object);
        return CT_ENOMEM;
    }
    *out = object;
    return 0;
}

int ct_job_record_voter_to_json(const struct ct_voter *voter, struct cJSON **out)
{
    return fields_to_json(voter_fields, COUNT(voter_fields), voter, out);
}

static int add_voters(cJSON *object, const struct ct_world_voters *world)
{
    cJSON *array = cJSON_AddArrayToObject(object, "voters");
    for (int i = 0; array != NULL && i < world->count; i++) {
        cJSON *voter = NULL;
        if (ct_job_record_voter_to_json(&world->list[i], &voter) != 0 ||
            !cJSON_AddItemToArray(array, voter)) {
            cJSON_Delete(voter);
            return CT_ENOMEM;
        }
    }
    return array != NULL ? 0 : CT_ENOMEM;
}

static int add_world(cJSON *object, const char *name, const struct ct_world_voters *world)
{
    cJSON *part = NULL;
    if (fields_to_json(world_fields, COUNT(world_fields), world, &part) != 0) {
        return CT_ENOMEM;
    }
    if (add_voters(part, world) != 0 || !cJSON_AddItemToObject(object, name, part)) {
        cJSON_Delete(part);
        return CT_ENOMEM;
    }
    return 0;
}

int ct_job_record_to_json(const struct ct_job_record *record, struct cJSON **out)
{
    cJSON *object = NULL;
    if (fields_to_json(record_fields, COUNT(record_fields), record, &object) != 0) {
        return CT_ENOMEM;
    }
    if (add_world(object, "formed", &record->formed) != 0 ||
        add_world(object, "planned", &record->planned) != 0) {
        cJSON_Delete(object);
        return CT_ENOMEM;
    }
    *out = object;
    return 0;
}

/* ---- from JSON ------------------------------------------------------------------------------ */

int ct_job_record_voter_from_json(const struct cJSON *json, struct ct_voter *out,
                                  struct ct_err *err)
{
    struct sockaddr_storage addr;
    socklen_t len;
    if (!cJSON_IsObject(json)) {
        return ct_err_set(err, CT_EFORMAT, "a voter must be an object");
    }
    int rc = ct_json_read_fields(json, voter_fields, COUNT(voter_fields), 1, out, err);
    if (rc != 0) {
        return rc;
    }
    if (out->port == 0 || !ct_addr_literal(out->address, out->port, &addr, &len)) {
        return ct_err_set(err, CT_EFORMAT, "a voter's address must be a numeric one with a port");
    }
    return 0;
}

static int read_world(const cJSON *object, const char *name, struct ct_world_voters *out,
                      struct ct_err *err)
{
    const cJSON *part = cJSON_GetObjectItemCaseSensitive(object, name), *item;
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(part, "voters");
    if (!cJSON_IsObject(part) || !cJSON_IsArray(array)) {
        return ct_err_set(err, CT_EFORMAT, "field \"%s\" must be an object with voters", name);
    }
    int rc = ct_json_read_fields(part, world_fields, COUNT(world_fields), 1, out, err);
    if (rc != 0) {
        return rc;
    }
    out->count = 0;
    cJSON_ArrayForEach(item, array)
    {
        struct ct_voter voter = {0};
        if (out->count == CT_VOTERS_MAX) {
            return ct_err_set(err, CT_EFORMAT, "a world has more than %d voters", CT_VOTERS_MAX);
        }
        rc = ct_job_record_voter_from_json(item, &voter, err);
        if (rc != 0) {
            return rc;
        }
        if (ct_world_voters_find(out, voter.id) != NULL) {
            return ct_err_set(err, CT_EFORMAT, "a voter is listed twice");
        }
        out->list[out->count++] = voter;
    }
    if ((out->generation < 0) != (out->count == 0)) {
        return ct_err_set(err, CT_EFORMAT, "a world must have voters");
    }
    return 0;
}

int ct_job_record_from_json(const struct cJSON *json, struct ct_job_record *out, struct ct_err *err)
{
    if (!cJSON_IsObject(json)) {
        return ct_err_set(err, CT_EFORMAT, "field \"record\" must be an object");
    }
    int rc = ct_json_read_fields(json, record_fields, COUNT(record_fields), 1, out, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_world(json, "formed", &out->formed, err);
    if (rc == 0) {
        rc = read_world(json, "planned", &out->planned, err);
    }
    if (rc == 0 && out->planned.generation >= 0 &&
        out->planned.generation <= out->formed.generation) {
        rc = ct_err_set(err, CT_EFORMAT, "the planned generation must follow the last one");
    }
    return rc;
}
