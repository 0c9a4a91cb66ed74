/* SPDX-License-Identifier: Apache-2.0
 *
 * One table for each struct serves both directions. The report uses the same names.
 */
#include "launcher/preflight/preflight_json.h"

#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <limits.h>
#include <math.h>
#include <string.h>

#define OF_ALL 1
/* What another machine says is printed, so it must be a number of a usual length: clocks that
 * differ by 30,000 years, a petabyte per second, a latency of a day. */
#define CLOCK_MAX_S INT64_C(1000000000000)
#define RATE_MAX INT64_C(1000000000000000)
#define LATENCY_MAX_S 86400
/* Among the machines of a job; a report leaves it out. */
#define INTERNAL 2

#define AT(member) offsetof(struct ct_preflight_machine, member)
#define TEXT(on, name, member)                                                                    \
    {                                                                                             \
        on, name, CT_JSON_CUT, AT(member), sizeof(((struct ct_preflight_machine *)0)->member), 0, \
            0, NULL                                                                               \
    }
#define BYTES(name, member)                                                 \
    {                                                                       \
        OF_ALL, name, CT_JSON_I64, AT(member), 0, -1, CT_JSON_INT_MAX, NULL \
    }
static const struct ct_json_field machine_fields[] = {
    {OF_ALL, "node_rank", CT_JSON_INT, AT(node_rank), 0, 0, INT_MAX, NULL},
    TEXT(OF_ALL, "host", host),
    TEXT(OF_ALL, "address", address),
    {INTERNAL, "port", CT_JSON_PORT, AT(port), 0, 0, 0, NULL},
    {INTERNAL, "takes_part", CT_JSON_BOOL, AT(takes_part), 0, 0, 0, NULL},
    TEXT(INTERNAL, "limits", limits),
    {OF_ALL, "workers", CT_JSON_INT, AT(workers), 0, 0, INT_MAX, NULL},
    TEXT(OF_ALL, "stuck", stuck),
    BYTES("shm_size", shm_size),
    BYTES("shm_free", shm_free),
    BYTES("memlock", memlock),
    {OF_ALL, "rdma_devices", CT_JSON_INT, AT(rdma), 0, 0, INT_MAX, NULL},
    TEXT(OF_ALL, "folder", folder),
    BYTES("folder_free", folder_free),
    {OF_ALL, "clock_s", CT_JSON_REAL, AT(clock_s), 0, -CLOCK_MAX_S, CLOCK_MAX_S, NULL},
    {OF_ALL, "gpus", CT_JSON_INT, AT(gpus), 0, -1, CT_PREFLIGHT_GPUS_MAX, NULL},
    TEXT(OF_ALL, "gpu_trouble", gpu_trouble),
    {OF_ALL, "xids", CT_JSON_INT, AT(xids), 0, -1, INT_MAX, NULL},
    TEXT(OF_ALL, "last_xid", last_xid),
};
#undef AT
#define MACHINE_FIELDS (sizeof(machine_fields) / sizeof(machine_fields[0]))

#define AT(member) offsetof(struct ct_preflight_link, member)
static const struct ct_json_field link_fields[] = {
    {OF_ALL, "partner", CT_JSON_INT, AT(partner), 0, 0, INT_MAX, NULL},
    {OF_ALL, "bytes_per_s", CT_JSON_REAL, AT(rate), 0, 0, RATE_MAX, NULL},
    {OF_ALL, "latency_s", CT_JSON_REAL, AT(latency_s), 0, 0, LATENCY_MAX_S, NULL},
    {OF_ALL, "error", CT_JSON_CUT, AT(error), CT_PREFLIGHT_TEXT_MAX, 0, 0, NULL},
};
#undef AT
#define LINK_FIELDS (sizeof(link_fields) / sizeof(link_fields[0]))

/* A file system may have more bytes than JSON counts exactly. */
static int64_t countable(int64_t bytes)
{
    return bytes < CT_JSON_INT_MAX ? bytes : CT_JSON_INT_MAX;
}

static int write_machine(const struct ct_preflight_machine *machine, unsigned long mask,
                         cJSON *object)
{
    struct ct_preflight_machine copy = *machine;
    copy.shm_size = countable(copy.shm_size);
    copy.shm_free = countable(copy.shm_free);
    copy.memlock = countable(copy.memlock);
    copy.folder_free = countable(copy.folder_free);
    return ct_json_write_fields(object, machine_fields, MACHINE_FIELDS, mask, &copy);
}

int ct_preflight_machine_write(const struct ct_preflight_machine *machine, struct ct_buf *out)
{
    cJSON *object = cJSON_CreateObject();
    if (object == NULL) {
        return CT_ENOMEM;
    }
    int rc = write_machine(machine, OF_ALL | INTERNAL, object);
    if (rc == 0) {
        rc = ct_json_print(object, out);
    }
    cJSON_Delete(object);
    return rc;
}

int ct_preflight_machine_read(const char *text, struct ct_preflight_machine *out,
                              struct ct_err *err)
{
    struct ct_preflight_machine machine;
    cJSON *object = cJSON_Parse(text);
    ct_preflight_machine_init(&machine);
    int rc = cJSON_IsObject(object)
                 ? ct_json_read_fields(object, machine_fields, MACHINE_FIELDS, OF_ALL | INTERNAL,
                                       &machine, err)
                 : ct_err_set(err, CT_EFORMAT, "what a machine has found is no JSON object");
    cJSON_Delete(object);
    *out = rc == 0 ? machine : *out;
    return rc;
}

int ct_preflight_links_write(const struct ct_preflight_machine *machine, struct ct_buf *out)
{
    cJSON *array = cJSON_CreateArray();
    if (array == NULL) {
        return CT_ENOMEM;
    }
    int rc = 0;
    for (int i = 0; i < machine->num_links; i++) {
        cJSON *object = ct_json_append_object(array);
        if (object == NULL) {
            rc = CT_ENOMEM;
            goto out;
        }
        rc = ct_json_write_fields(object, link_fields, LINK_FIELDS, OF_ALL, &machine->links[i]);
        if (rc != 0) {
            goto out;
        }
    }
    rc = ct_json_print(array, out);
out:
    cJSON_Delete(array);
    return rc;
}

int ct_preflight_links_read(const char *text, int count, struct ct_preflight_machine *out,
                            struct ct_err *err)
{
    cJSON *array = cJSON_Parse(text);
    int rc = cJSON_IsArray(array) && cJSON_GetArraySize(array) <= CT_PREFLIGHT_ROUNDS_MAX
                 ? 0
                 : ct_err_set(err, CT_EFORMAT, "what a machine has measured is no JSON array");
    int links = 0;
    for (const cJSON *object = array != NULL ? array->child : NULL; rc == 0 && object != NULL;
         object = object->next) {
        struct ct_preflight_link *link = &out->links[links];
        rc = ct_json_read_fields(object, link_fields, LINK_FIELDS, OF_ALL, link, err);
        if (rc == 0 && link->partner >= count) {
            rc = ct_err_set(err, CT_EFORMAT, "a machine has measured with one that is not there");
        }
        links += rc == 0;
    }
    out->num_links = rc == 0 ? links : 0;
    cJSON_Delete(array);
    return rc;
}

/* ---- the report ----------------------------------------------------------------------------- */

static bool add_real(cJSON *object, const char *name, double value)
{
    return isnan(value) ? cJSON_AddNullToObject(object, name) != NULL
                        : ct_json_add_number(object, name, value);
}

/* Findings are in the order of the machines; *next is the first that is not written yet. */
static bool add_findings(cJSON *object, const struct ct_preflight_verdict *verdict, int machine,
                         int *next)
{
    cJSON *list = cJSON_AddArrayToObject(object, "findings");
    bool unfit = false, ok = list != NULL;
    for (; ok && *next < verdict->num_findings && verdict->findings[*next].machine == machine;
         (*next)++) {
        const struct ct_preflight_finding *finding = &verdict->findings[*next];
        cJSON *item = ct_json_append_object(list);
        unfit = unfit || finding->unfit;
        ok = item != NULL && ct_json_add_bool(item, "unfit", finding->unfit) &&
             ct_json_add_name(item, "what", finding->what) &&
             ct_json_add_name(item, "advice", finding->advice);
    }
    return ok && ct_json_add_bool(object, "fit", !unfit);
}

static bool add_pairs(cJSON *root, const struct ct_preflight_machine *machines, int count,
                      const struct ct_preflight_verdict *verdict)
{
    cJSON *pairs = cJSON_AddObjectToObject(root, "pairs");
    bool ok = pairs != NULL && ct_json_add_number(pairs, "measured", verdict->pairs) &&
              ct_json_add_number(pairs, "broken", verdict->broken_pairs) &&
              ct_json_add_bool(pairs, "all", ct_preflight_all_meet(count)) &&
              add_real(pairs, "median_bytes_per_s", verdict->median_rate) &&
              add_real(pairs, "median_latency_s", verdict->median_latency_s);
    if (!ok || verdict->slowest[0] < 0) {
        return ok && cJSON_AddNullToObject(pairs, "slowest") != NULL;
    }
    cJSON *slowest = cJSON_AddObjectToObject(pairs, "slowest");
    cJSON *hosts = slowest != NULL ? cJSON_AddArrayToObject(slowest, "node_ranks") : NULL;
    for (int i = 0; ok && i < 2; i++) {
        ok = hosts != NULL &&
             cJSON_AddItemToArray(hosts,
                                  cJSON_CreateNumber(machines[verdict->slowest[i]].node_rank));
    }
    return ok && add_real(slowest, "bytes_per_s", verdict->slowest_rate) &&
           add_real(slowest, "latency_s", verdict->slowest_latency_s);
}

static int add_machine(cJSON *list, const struct ct_preflight_machine *machine,
                       const struct ct_preflight_verdict *verdict, int index, int *next)
{
    cJSON *object = ct_json_append_object(list);
    if (object == NULL) {
        return CT_ENOMEM;
    }
    int rc = write_machine(machine, OF_ALL, object);
    if (rc != 0) {
        return rc;
    }
    return add_findings(object, verdict, index, next) ? 0 : CT_ENOMEM;
}

int ct_preflight_report(const struct ct_preflight_machine *machines, int count,
                        const struct ct_preflight_verdict *verdict, struct cJSON **out)
{
    cJSON *root = cJSON_CreateObject();
    cJSON *list = root != NULL ? cJSON_AddArrayToObject(root, "machines") : NULL;
    int next = 0, rc = CT_ENOMEM;
    if (list == NULL) {
        goto fail;
    }
    for (int i = 0; i < count; i++) {
        rc = add_machine(list, &machines[i], verdict, i, &next);
        if (rc != 0) {
            goto fail;
        }
    }
    if (!add_pairs(root, machines, count, verdict)) {
        rc = CT_ENOMEM;
        goto fail;
    }
    *out = root;
    return 0;
fail:
    cJSON_Delete(root);
    return rc;
}
