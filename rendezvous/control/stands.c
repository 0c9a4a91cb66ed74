/* SPDX-License-Identifier: Apache-2.0
 *
 * The short form is an array with an object for each rank:
 *
 *     {"at": "/srv/train.py:7 step", "in": "all_reduce",
 *      "groups": [["gloo:0", "default_pg", 4]],              name, description, last number
 *      "ops": [[0, 4, true, "all_reduce", "Float [5]"]]}     group, number, pending, name, shape
 *
 * A rank without recordings has no "groups". One has no "in" if it is not known whether it is in a
 * collective, or if its ctrun is older.
 */
#include "rendezvous/control/stands.h"

#include "common/alloc.h"
#include "common/ranges.h"
#include "common/text.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Of each group so many last collectives are told, and of so many groups. A job hangs in one of
 * them. */
#define OPS_TOLD 3
#define GROUPS_TOLD 16

/* Different operations that a reason lists. */
#define OPERATIONS_SHOWN 4

int ct_stands_init(struct ct_stands *out, int count)
{
    *out = (struct ct_stands){
        .count = count,
        .flights = ct_calloc((size_t)count, sizeof(*out->flights)),
        .at = ct_calloc((size_t)count, sizeof(*out->at)),
        .in = ct_calloc((size_t)count, sizeof(*out->in)),
    };
    if (out->flights == NULL || out->at == NULL || out->in == NULL) {
        ct_stands_fini(out);
        return CT_ENOMEM;
    }
    return 0;
}

void ct_stands_fini(struct ct_stands *stands)
{
    for (int i = 0; i < stands->count && stands->flights != NULL; i++) {
        ct_flight_fini(&stands->flights[i]);
    }
    ct_free(stands->flights);
    ct_free(stands->at);
    ct_free(stands->in);
    *stands = (struct ct_stands){0};
}

/* ---- the short form -------------------------------------------------------------------------- */

/* Which operations of a rank are told, and by which index their groups are. */
struct selection {
    const struct ct_flight *flight;
    int groups[GROUPS_TOLD]; /* at the rank */
    int group_count;
    int ops[GROUPS_TOLD * OPS_TOLD]; /* the last one first */
    int op_count;
};

static int find_group(const struct selection *selection, int group)
{
    for (int i = 0; i < selection->group_count; i++) {
        if (selection->groups[i] == group) {
            return i;
        }
    }
    return -1;
}

static void select_last(const struct ct_flight *flight, int most, struct selection *out)
{
    int taken[GROUPS_TOLD] = {0};
    *out = (struct selection){.flight = flight};
    for (int i = flight->op_count; i-- > 0 && out->op_count < most;) {
        int group = find_group(out, flight->ops[i].group);
        if (group < 0) {
            if (out->group_count == GROUPS_TOLD) {
                continue;
            }
            group = out->group_count++;
            out->groups[group] = flight->ops[i].group;
        }
        if (taken[group]++ < OPS_TOLD) {
            out->ops[out->op_count++] = i;
        }
    }
}

static bool add(cJSON *array, cJSON *item)
{
    if (item == NULL || !cJSON_AddItemToArray(array, item)) {
        cJSON_Delete(item);
        return false;
    }
    return true;
}

/* Adds an empty array. NULL without memory. */
static cJSON *add_array(cJSON *array)
{
    cJSON *part = cJSON_CreateArray();
    return add(array, part) ? part : NULL;
}

static bool add_groups(const struct selection *selection, cJSON *out)
{
    for (int i = 0; i < selection->group_count; i++) {
        const struct ct_flight_group *group = &selection->flight->groups[selection->groups[i]];
        cJSON *part = add_array(out);
        if (part == NULL || !add(part, cJSON_CreateString(group->name)) ||
            !add(part, cJSON_CreateString(group->description)) ||
            !add(part, cJSON_CreateNumber(group->last))) {
            return false;
        }
    }
    return true;
}

static bool add_ops(const struct selection *selection, cJSON *out)
{
    for (int i = selection->op_count; i-- > 0;) {
        const struct ct_flight_op *op = &selection->flight->ops[selection->ops[i]];
        cJSON *part = add_array(out);
        if (part == NULL || !add(part, cJSON_CreateNumber(find_group(selection, op->group))) ||
            !add(part, cJSON_CreateNumber(op->number)) ||
            !add(part, cJSON_CreateBool(op->pending)) || !add(part, cJSON_CreateString(op->name)) ||
            !add(part, cJSON_CreateString(op->shape))) {
            return false;
        }
    }
    return true;
}

/* Makes the text of one rank with at most so many operations. NULL without memory. */
static char *print_rank(const struct ct_stands *stands, int rank, int most)
{
    const struct ct_flight *flight = &stands->flights[rank];
    struct selection selection;
    char *text = NULL;
    cJSON *object = cJSON_CreateObject();
    if (object == NULL || !ct_json_add_text(object, "at", stands->at[rank]) ||
        (stands->in[rank][0] != '\0' && !ct_json_add_text(object, "in", stands->in[rank]))) {
        goto out;
    }
    if (flight->known) {
        cJSON *groups = cJSON_AddArrayToObject(object, "groups");
        cJSON *ops = cJSON_AddArrayToObject(object, "ops");
        select_last(flight, most, &selection);
        if (groups == NULL || ops == NULL || !add_groups(&selection, groups) ||
            !add_ops(&selection, ops)) {
            goto out;
        }
    }
    text = cJSON_PrintUnformatted(object);
out:
    cJSON_Delete(object);
    return text;
}

/* Appends one rank in at most `room` bytes. */
static int encode_rank(const struct ct_stands *stands, int rank, size_t room, struct ct_buf *out)
{
    for (int most = GROUPS_TOLD * OPS_TOLD; most > 0; most /= 2) {
        char *text = print_rank(stands, rank, most);
        if (text == NULL) {
            return CT_ENOMEM;
        }
        bool fits = strlen(text) <= room;
        if (fits) {
            ct_buf_addf(out, "%s", text);
        }
        cJSON_free(text);
        if (fits) {
            return ct_buf_status(out);
        }
    }
    ct_buf_addf(out, "{}");
    return ct_buf_status(out);
}

int ct_stands_encode(const struct ct_stands *stands, struct ct_buf *out)
{
    size_t room = (CT_STANDS_TEXT_MAX - 3) / (size_t)(stands->count > 0 ? stands->count : 1);
    ct_json_use_our_memory();
    ct_buf_addf(out, "[");
    for (int i = 0; i < stands->count; i++) {
        ct_buf_addf(out, i > 0 ? "," : "");
        if (encode_rank(stands, i, room > 1 ? room - 1 : 0, out) != 0) {
            return CT_ENOMEM;
        }
    }
    ct_buf_addf(out, "]");
    return ct_buf_status(out);
}

/* ---- reading it ------------------------------------------------------------------------------ */

static void copy(const cJSON *item, char *out, size_t size)
{
    const char *text = cJSON_GetStringValue(item);
    (void)snprintf(out, size, "%s", text != NULL ? text : "");
    ct_text_clean(out);
}

/* A number from `min` to `max`; -1 = it is none. */
static int number_of(const cJSON *item, int min, int max)
{
    double value = cJSON_IsNumber(item) ? cJSON_GetNumberValue(item) : -1;
    return value >= min && value <= max ? (int)value : -1;
}

static bool read_groups(const cJSON *groups, struct ct_flight *out)
{
    const cJSON *group;
    cJSON_ArrayForEach(group, groups)
    {
        struct ct_flight_group *to = &out->groups[out->group_count++];
        copy(cJSON_GetArrayItem(group, 0), to->name, sizeof(to->name));
        copy(cJSON_GetArrayItem(group, 1), to->description, sizeof(to->description));
        to->last = number_of(cJSON_GetArrayItem(group, 2), 1, INT_MAX);
        if (to->name[0] == '\0' || to->last < 0) {
            return false;
        }
    }
    return true;
}

static bool read_ops(const cJSON *ops, struct ct_flight *out)
{
    const cJSON *op;
    cJSON_ArrayForEach(op, ops)
    {
        struct ct_flight_op *to = &out->ops[out->op_count++];
        to->group = number_of(cJSON_GetArrayItem(op, 0), 0, out->group_count - 1);
        to->number = number_of(cJSON_GetArrayItem(op, 1), 1, INT_MAX);
        to->pending = cJSON_IsTrue(cJSON_GetArrayItem(op, 2));
        copy(cJSON_GetArrayItem(op, 3), to->name, sizeof(to->name));
        copy(cJSON_GetArrayItem(op, 4), to->shape, sizeof(to->shape));
        if (to->group < 0 || to->number < 0) {
            return false;
        }
    }
    return true;
}

static int read_flight(const cJSON *rank, struct ct_flight *out)
{
    const cJSON *groups = cJSON_GetObjectItemCaseSensitive(rank, "groups");
    const cJSON *ops = cJSON_GetObjectItemCaseSensitive(rank, "ops");
    int group_count = cJSON_GetArraySize(groups), op_count = cJSON_GetArraySize(ops);
    if (groups == NULL) {
        return 0;
    }
    if (!cJSON_IsArray(groups) || !cJSON_IsArray(ops) || group_count > GROUPS_TOLD ||
        op_count > GROUPS_TOLD * OPS_TOLD) {
        return CT_EFORMAT;
    }
    ct_flight_fini(out); /* a machine that tells twice */
    out->groups = ct_calloc((size_t)group_count + 1, sizeof(*out->groups));
    out->ops = ct_calloc((size_t)op_count + 1, sizeof(*out->ops));
    if (out->groups == NULL || out->ops == NULL) {
        ct_flight_fini(out);
        return CT_ENOMEM;
    }
    out->known = true;
    if (!read_groups(groups, out) || !read_ops(ops, out)) {
        ct_flight_fini(out);
        return CT_EFORMAT;
    }
    return 0;
}

int ct_stands_decode(const char *text, int first, int count, struct ct_stands *out)
{
    ct_json_use_our_memory();
    cJSON *array = cJSON_Parse(text);
    const cJSON *rank;
    int rc = cJSON_IsArray(array) ? 0 : CT_EFORMAT, at = first;
    cJSON_ArrayForEach(rank, array)
    {
        if (rc != 0 || at >= first + count || at >= out->count) {
            break;
        }
        copy(cJSON_GetObjectItemCaseSensitive(rank, "at"), out->at[at], sizeof(out->at[at]));
        copy(cJSON_GetObjectItemCaseSensitive(rank, "in"), out->in[at], sizeof(out->in[at]));
        rc = read_flight(rank, &out->flights[at]);
        at++;
    }
    cJSON_Delete(array);
    return rc;
}

/* ---- who ------------------------------------------------------------------------------------- */

static bool is_elsewhere(const struct ct_stands *stands, int rank)
{
    return strcmp(stands->in[rank], CT_STAND_IN_NONE) == 0;
}

static bool is_in_collective(const struct ct_stands *stands, int rank)
{
    return stands->in[rank][0] != '\0' && !is_elsewhere(stands, rank);
}

static bool has_pending(const struct ct_flight *flight)
{
    for (int i = 0; i < flight->op_count; i++) {
        if (flight->ops[i].pending) {
            return true;
        }
    }
    return false;
}

/* The only rank in no collective, while all others are in one; -1 = there is none. One that has
 * begun a collective and has not yet asked for its end may wait for others in its own way. */
static int find_absent(const struct ct_stands *stands)
{
    int absent = -1;
    for (int i = 0; i < stands->count; i++) {
        if (is_in_collective(stands, i)) {
            continue;
        }
        if (absent >= 0 || !is_elsewhere(stands, i) || has_pending(&stands->flights[i])) {
            return -1;
        }
        absent = i;
    }
    return stands->count > 1 ? absent : -1;
}

/* Appends why this rank is named, whom find_absent() has found. */
static void add_absent(const struct ct_stands *stands, int absent, struct ct_buf *reason)
{
    int other = absent == 0 ? 1 : 0, others = stands->count - 1;
    const char *where = stands->in[other];
    for (int i = 0; i < stands->count; i++) {
        if (i != absent && strcmp(stands->in[i], where) != 0) {
            ct_buf_addf(reason,
                        "rank %d is in no collective, and each of the %d others waits in one",
                        absent, others);
            return;
        }
    }
    ct_buf_addf(reason, "rank %d did not come to %s, in which ", absent, where);
    if (others == 1) {
        ct_buf_addf(reason, "rank %d waits", other);
    } else {
        ct_buf_addf(reason, "%d ranks wait", others);
    }
}

/* Has this rank come to a collective, and another one has not? Then it holds nobody up. */
static bool is_waiting_for_another(const struct ct_stands *stands, int rank)
{
    for (int i = 0; i < stands->count; i++) {
        if (is_elsewhere(stands, i)) {
            return is_in_collective(stands, rank);
        }
    }
    return false;
}

/* The only rank in another place than all others, which are all in one; -1 = there is none. */
static int find_elsewhere(const struct ct_stands *stands)
{
    int other = -1, like_first = 0, like_other = 0;
    for (int i = 0; i < stands->count; i++) {
        if (stands->at[i][0] == '\0') {
            return -1;
        }
        if (strcmp(stands->at[i], stands->at[0]) == 0) {
            like_first++;
        } else if (other < 0 || strcmp(stands->at[i], stands->at[other]) == 0) {
            other = other < 0 ? i : other;
            like_other++;
        } else {
            return -1; /* a third place */
        }
    }
    int found = like_first == 1 && like_other >= 2   ? 0
                : like_other == 1 && like_first >= 2 ? other
                                                     : -1;
    return found >= 0 && !is_waiting_for_another(stands, found) ? found : -1;
}

/* The operation for whose end a rank waits; NULL = it waits for none, or it is not known. One that
 * has begun a collective may do something else meanwhile. */
static const char *operation_of(const struct ct_stands *stands, int rank)
{
    const struct ct_flight *flight = &stands->flights[rank];
    for (int i = 0; !is_elsewhere(stands, rank) && i < flight->op_count; i++) {
        if (flight->ops[i].pending) {
            return flight->ops[i].name;
        }
    }
    return is_in_collective(stands, rank) ? stands->in[rank] : NULL;
}

/* Can ranks that wait in it and in another one be about to meet? A message goes from a send to a
 * receive, and a wait may be for anything. */
static bool may_meet_another(const char *operation)
{
    static const char *const parts[] = {"send", "recv", "wait", "group", "probe", "test"};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strcasestr(operation, parts[i]) != NULL) {
            return true;
        }
    }
    return false;
}

struct in_operation {
    const struct ct_stands *stands;
    const char *operation;
};

static bool is_in(const void *set, int rank)
{
    const struct in_operation *in = set;
    return strcmp(operation_of(in->stands, rank), in->operation) == 0;
}

/* The first rank of each of the first few operations. Each rank is compared with these alone,
 * because a job may have thousands of ranks, each in an operation of another name. */
struct operations {
    int first[OPERATIONS_SHOWN];
    int count;
    int others; /* the number of ranks in none of these */
};

static void add_operation(const struct ct_stands *stands, int rank, struct operations *out)
{
    for (int i = 0; i < out->count; i++) {
        const struct in_operation in = {stands, operation_of(stands, out->first[i])};
        if (is_in(&in, rank)) {
            return;
        }
    }
    if (out->count < OPERATIONS_SHOWN) {
        out->first[out->count++] = rank;
    } else {
        out->others++;
    }
}

/* Appends which rank waits in what if all wait, but for different operations. Then none of them is
 * to blame alone, and a user should hear of both sides. */
static void add_different(const struct ct_stands *stands, struct ct_buf *reason)
{
    struct operations all = {.count = 0};
    for (int i = 0; i < stands->count; i++) {
        const char *operation = operation_of(stands, i);
        if (operation == NULL || may_meet_another(operation)) {
            return;
        }
        add_operation(stands, i, &all);
    }
    if (all.count < 2) {
        return;
    }
    for (int i = 0; i < all.count; i++) {
        const struct in_operation in = {stands, operation_of(stands, all.first[i])};
        const struct ct_ranges ranges = {.has = is_in, .set = &in, .count = stands->count};
        ct_buf_addf(reason, i > 0 ? ", " : "");
        int count = ct_ranges_add_ranks(&ranges, reason);
        ct_buf_addf(reason,
                    i > 0        ? " in %s"
                    : count == 1 ? " waits in %s"
                                 : " wait in %s",
                    in.operation);
    }
    if (all.others > 0) {
        ct_buf_addf(reason, ", and %d more rank%s in others", all.others,
                    all.others == 1 ? "" : "s");
    }
    ct_buf_addf(reason, ": they wait for different operations");
}

int ct_stands_judge(const struct ct_stands *stands, int *rank, struct ct_buf *reason)
{
    struct ct_flight_verdict verdict;
    *rank = -1;
    int rc = ct_flight_judge(stands->flights, stands->count, &verdict, reason);
    if (rc != 0) {
        return rc;
    }
    if (verdict.kind != CT_FLIGHT_NONE) {
        *rank = verdict.rank;
    } else if ((*rank = find_absent(stands)) >= 0) {
        add_absent(stands, *rank, reason);
    } else if ((*rank = find_elsewhere(stands)) >= 0) {
        ct_buf_addf(reason, "rank %d is on another line than all others", *rank);
    } else {
        add_different(stands, reason);
    }
    return ct_buf_status(reason);
}
