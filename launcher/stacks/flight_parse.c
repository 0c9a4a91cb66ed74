/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the last entries become operations, and their groups are entered as they appear.
 *
 * Failure modes: an entry without a group or number, and what exceeds the limits, is passed over.
 */
#include "launcher/stacks/flight_parse.h"

#include "common/alloc.h"
#include "common/text.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

static void copy(const char *text, char *out, size_t size)
{
    (void)snprintf(out, size, "%s", text);
    ct_text_clean(out);
}

static int to_number(double value)
{
    return value >= 1 && value < INT_MAX ? (int)value : 0;
}

/* The index of the group; -1 = there are too many. Each back end counts the collectives of a group
 * for itself, so its name becomes a part of the group's: "gloo:all_reduce" of "0" is in "gloo:0".
 */
static int find_group(struct ct_flight *flight, const char *operation, const char *name,
                      const char *description)
{
    char key[CT_FLIGHT_NAME_MAX];
    (void)snprintf(key, sizeof(key), "%.*s:%s", (int)strcspn(operation, ":"), operation, name);
    ct_text_clean(key);
    for (int i = 0; i < flight->group_count; i++) {
        if (strcmp(flight->groups[i].name, key) == 0) {
            return i;
        }
    }
    if (flight->group_count == CT_FLIGHT_GROUPS_MAX) {
        return -1;
    }
    struct ct_flight_group *group = &flight->groups[flight->group_count];
    memcpy(group->name, key, sizeof(key));
    copy(strcmp(description, "undefined") == 0 ? "" : description, group->description,
         sizeof(group->description));
    return flight->group_count++;
}

/* Writes "Float [5, 2]" for the first array, and how many others there are; "" without arrays. */
static void describe_shape(const cJSON *entry, char out[CT_FLIGHT_SHAPE_MAX])
{
    const cJSON *sizes = cJSON_GetObjectItemCaseSensitive(entry, "input_sizes");
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(entry, "input_dtypes");
    const cJSON *first = cJSON_GetArrayItem(sizes, 0), *size;
    const char *type = cJSON_GetStringValue(cJSON_GetArrayItem(types, 0));
    if (!cJSON_IsArray(first)) {
        return;
    }
    copy(type != NULL ? type : "", out, CT_FLIGHT_NAME_MAX);
    size_t len = strlen(out);
    len += (size_t)snprintf(out + len, CT_FLIGHT_SHAPE_MAX - len, "%s[", len > 0 ? " " : "");
    const char *comma = "";
    cJSON_ArrayForEach(size, first)
    {
        if (len > CT_FLIGHT_SHAPE_MAX - 32) {
            break;
        }
        len += (size_t)snprintf(out + len, CT_FLIGHT_SHAPE_MAX - len, "%s%d", comma,
                                to_number(cJSON_GetNumberValue(size)));
        comma = ", ";
    }
    int more = cJSON_GetArraySize(sizes) - 1;
    len += (size_t)snprintf(out + len, CT_FLIGHT_SHAPE_MAX - len, "]");
    if (more > 0) {
        (void)snprintf(out + len, CT_FLIGHT_SHAPE_MAX - len, " and %d more", more);
    }
}

static void take_entry(struct ct_flight *flight, const cJSON *entry)
{
    const cJSON *group = cJSON_GetObjectItemCaseSensitive(entry, "process_group");
    const char *name = cJSON_GetStringValue(cJSON_GetArrayItem(group, 0));
    const char *description = cJSON_GetStringValue(cJSON_GetArrayItem(group, 1));
    const char *state = ct_json_text(entry, "state", "");
    int number = to_number(ct_json_number(entry, "collective_seq_id", 0));
    if (name == NULL || number == 0 || ct_json_number(entry, "is_p2p", 0) != 0) {
        return;
    }
    const char *words = ct_json_text(entry, "profiling_name", "");
    int index = find_group(flight, words, name, description != NULL ? description : "");
    if (index < 0 || flight->op_count == CT_FLIGHT_OPS_MAX) {
        return;
    }
    struct ct_flight_group *known = &flight->groups[index];
    known->last = number > known->last ? number : known->last;
    struct ct_flight_op *op = &flight->ops[flight->op_count++];
    op->group = index;
    op->number = number;
    op->pending = ct_json_number(entry, "retired", 0) == 0 && strcmp(state, "completed") != 0;
    const char *colon = strrchr(words, ':'); /* "gloo:all_reduce" */
    copy(colon != NULL ? colon + 1 : words, op->name, sizeof(op->name));
    describe_shape(entry, op->shape);
}

int ct_flight_parse(const char *json, size_t len, struct ct_flight *out)
{
    ct_json_use_our_memory();
    cJSON *root = cJSON_ParseWithLength(json, len);
    const cJSON *version = cJSON_GetObjectItemCaseSensitive(root, "version");
    const cJSON *entries = cJSON_GetObjectItemCaseSensitive(root, "entries"), *entry;
    bool valid = cJSON_IsString(version) && strncmp(version->valuestring, "2.", 2) == 0;
    int rc = valid ? 0 : CT_EFORMAT;
    if (rc != 0) {
        goto out;
    }
    if (out->groups == NULL) {
        out->groups = ct_calloc(CT_FLIGHT_GROUPS_MAX, sizeof(*out->groups));
        out->ops = ct_calloc(CT_FLIGHT_OPS_MAX, sizeof(*out->ops));
    }
    if (out->groups == NULL || out->ops == NULL) {
        rc = CT_ENOMEM;
        goto out;
    }
    int skip = cJSON_GetArraySize(entries) - CT_FLIGHT_OPS_TAKEN;
    cJSON_ArrayForEach(entry, entries)
    {
        if (skip-- <= 0) {
            take_entry(out, entry);
        }
    }
    out->known = true;
out:
    cJSON_Delete(root);
    return rc;
}
