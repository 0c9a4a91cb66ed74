/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the members of each process group are found by sorting all memberships by the name of
 * the group, and what they have called at the same number is compared. docs/ARCHITECTURE.md says
 * who asks.
 *
 * Failure modes: a recording that keeps too little of the past cannot be compared there, so nothing
 * is said of that number. A group of which a rank knows nothing has no such member, unless it is
 * the default group, of which every rank is a member.
 */
#include "rendezvous/control/flight.h"

#include "common/alloc.h"

#include <stdlib.h>
#include <string.h>

/* PyTorch names its groups by numbers, as text; the first one is the default group. Each back end
 * has one. */
#define DEFAULT_GROUP ":0"
#define BACK_ENDS_MAX 8

void ct_flight_fini(struct ct_flight *flight)
{
    ct_free(flight->groups);
    ct_free(flight->ops);
    *flight = (struct ct_flight){0};
}

int ct_flight_copy(const struct ct_flight *flight, struct ct_flight *out)
{
    size_t groups = (size_t)flight->group_count, ops = (size_t)flight->op_count;
    struct ct_flight copy = *flight;
    if (!flight->known) {
        return 0;
    }
    copy.groups = ct_calloc(groups + 1, sizeof(*copy.groups));
    copy.ops = ct_calloc(ops + 1, sizeof(*copy.ops));
    if (copy.groups == NULL || copy.ops == NULL) {
        ct_flight_fini(&copy);
        return CT_ENOMEM;
    }
    if (groups > 0) {
        memcpy(copy.groups, flight->groups, groups * sizeof(*copy.groups));
    }
    if (ops > 0) {
        memcpy(copy.ops, flight->ops, ops * sizeof(*copy.ops));
    }
    *out = copy;
    return 0;
}

/* ---- memberships ----------------------------------------------------------------------------- */

/* A rank in a group. */
struct membership {
    const struct ct_flight_group *title; /* any member's words for the group */
    int rank;
    int group; /* index at that rank; -1 = it has recorded nothing of this default group */
};

/* The members of one group. */
struct group {
    const struct ct_flight *flights; /* by rank */
    const struct membership *members;
    int count;
};

static bool is_default(const struct ct_flight_group *group)
{
    const char *colon = strchr(group->name, ':');
    return colon != NULL && strcmp(colon, DEFAULT_GROUP) == 0;
}

static int find_group(const struct ct_flight *flight, const char *name)
{
    for (int i = 0; i < flight->group_count; i++) {
        if (strcmp(flight->groups[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Gives the default groups that any rank has recorded. Returns their number. */
static int find_defaults(const struct ct_flight *flights, int count,
                         const struct ct_flight_group *out[BACK_ENDS_MAX])
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        for (int g = 0; g < flights[i].group_count; g++) {
            const struct ct_flight_group *group = &flights[i].groups[g];
            bool is_new = is_default(group);
            for (int d = 0; d < found && is_new; d++) {
                is_new = strcmp(out[d]->name, group->name) != 0;
            }
            if (is_new && found < BACK_ENDS_MAX) {
                out[found++] = group;
            }
        }
    }
    return found;
}

static int compare(const void *a, const void *b)
{
    const struct membership *left = a, *right = b;
    int order = strcmp(left->title->name, right->title->name);
    return order != 0 ? order : left->rank - right->rank;
}

/* Lists all memberships, sorted by group and rank. CT_ENOMEM. */
static int list_memberships(const struct ct_flight *flights, int count, struct membership **out,
                            int *out_count)
{
    const struct ct_flight_group *defaults[BACK_ENDS_MAX];
    int default_count = find_defaults(flights, count, defaults), used = 0;
    size_t room = 1;
    for (int i = 0; i < count; i++) {
        room += (size_t)flights[i].group_count + (size_t)default_count;
    }
    struct membership *list = ct_calloc(room, sizeof(*list));
    if (list == NULL) {
        return CT_ENOMEM;
    }
    for (int i = 0; i < count; i++) {
        for (int g = 0; g < flights[i].group_count; g++) {
            /* A rank that tells a group twice must not count as two members of it. */
            if (find_group(&flights[i], flights[i].groups[g].name) == g) {
                list[used++] = (struct membership){&flights[i].groups[g], i, g};
            }
        }
        for (int d = 0; d < default_count && flights[i].known; d++) {
            if (find_group(&flights[i], defaults[d]->name) < 0) {
                list[used++] = (struct membership){defaults[d], i, -1};
            }
        }
    }
    qsort(list, (size_t)used, sizeof(*list), compare);
    *out = list;
    *out_count = used;
    return 0;
}

/* ---- what a rank has called ------------------------------------------------------------------ */

static const struct ct_flight *flight_of(const struct group *group, int member)
{
    return &group->flights[group->members[member].rank];
}

/* The number of its last collective in the group. */
static int last_of(const struct group *group, int member)
{
    int index = group->members[member].group;
    return index >= 0 ? flight_of(group, member)->groups[index].last : 0;
}

/* The first collective that has not ended; NULL = the rank waits for none. */
static const struct ct_flight_op *pending_of(const struct ct_flight *flight)
{
    for (int i = 0; i < flight->op_count; i++) {
        if (flight->ops[i].pending) {
            return &flight->ops[i];
        }
    }
    return NULL;
}

/* Must all members of this operation bring equal sizes? For the others, members may differ. */
static bool sizes_must_agree(const char *name)
{
    static const char *const names[] = {"all_reduce", "broadcast", "reduce", "allreduce"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool agree(const struct ct_flight_op *a, const struct ct_flight_op *b)
{
    return strcmp(a->name, b->name) == 0 &&
           (!sizes_must_agree(a->name) || strcmp(a->shape, b->shape) == 0);
}

static const char *title_of(const struct group *group)
{
    const struct ct_flight_group *title = group->members[0].title;
    const char *colon = strchr(title->name, ':');
    return title->description[0] != '\0' ? title->description
           : colon != NULL               ? colon + 1
                                         : title->name;
}

static void print_op(const struct ct_flight_op *op, struct ct_buf *text)
{
    ct_buf_addf(text, "%s", op->name);
    if (op->shape[0] != '\0') {
        ct_buf_addf(text, " of %s", op->shape);
    }
}

static const char *plural(int n)
{
    return n == 1 ? "" : "s";
}

/* ---- rule 1 ---------------------------------------------------------------------------------- */

/* A collective of the group, as one member has called it. */
struct call {
    int rank;
    const struct ct_flight_op *op;
};

static int compare_calls(const void *a, const void *b)
{
    const struct call *left = a, *right = b;
    if (left->op->number != right->op->number) {
        return left->op->number < right->op->number ? -1 : 1;
    }
    return left->rank - right->rank;
}

/* Keeps one call of each rank and number, of a sorted list. Returns how many there are. */
static int keep_one_of_each(struct call *calls, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (kept == 0 || compare_calls(&calls[kept - 1], &calls[i]) != 0) {
            calls[kept++] = calls[i];
        }
    }
    return kept;
}

/* Lists what the members have called, sorted by number and rank. CT_ENOMEM. */
static int list_calls(const struct group *group, struct call **out, int *out_count)
{
    size_t room = 1;
    int used = 0;
    for (int i = 0; i < group->count; i++) {
        room += (size_t)flight_of(group, i)->op_count;
    }
    struct call *calls = ct_calloc(room, sizeof(*calls));
    if (calls == NULL) {
        return CT_ENOMEM;
    }
    for (int i = 0; i < group->count; i++) {
        const struct ct_flight *flight = flight_of(group, i);
        for (int o = 0; o < flight->op_count; o++) {
            if (flight->ops[o].group == group->members[i].group) {
                calls[used++] = (struct call){group->members[i].rank, &flight->ops[o]};
            }
        }
    }
    qsort(calls, (size_t)used, sizeof(*calls), compare_calls);
    *out = calls;
    *out_count = keep_one_of_each(calls, used);
    return 0;
}

/* Finds, among calls of one number, the only one that agrees with none of the others, which must
 * agree with each other. At least three are needed. Gives another one, too. */
static const struct call *find_different(const struct call *calls, int count,
                                         const struct call **other)
{
    const struct call *first = &calls[0], *second = NULL;
    int like_first = 0, like_second = 0;
    for (int i = 0; i < count; i++) {
        if (agree(calls[i].op, first->op)) {
            like_first++;
        } else if (second == NULL || agree(calls[i].op, second->op)) {
            second = second == NULL ? &calls[i] : second;
            like_second++;
        } else {
            return NULL; /* a third kind */
        }
    }
    if (like_first == 1 && like_second >= 2) {
        *other = second;
        return first;
    }
    *other = first;
    return like_second == 1 && like_first >= 2 ? second : NULL;
}

/* Looks for the lowest number of the group at which one member differs. */
static int judge_different(const struct group *group, struct ct_flight_verdict *out,
                           struct ct_buf *text)
{
    struct call *calls;
    int count, rc = list_calls(group, &calls, &count);
    for (int begin = 0, end; rc == 0 && begin < count; begin = end) {
        const struct call *other;
        end = begin + 1;
        while (end < count && calls[end].op->number == calls[begin].op->number) {
            end++;
        }
        const struct call *found = find_different(&calls[begin], end - begin, &other);
        if (found == NULL) {
            continue;
        }
        *out = (struct ct_flight_verdict){.kind = CT_FLIGHT_DIFFERS, .rank = found->rank};
        ct_buf_addf(text, "rank %d came to number %d of group %s with ", found->rank,
                    found->op->number, title_of(group));
        print_op(found->op, text);
        ct_buf_addf(text, ", the others with ");
        print_op(other->op, text);
        break;
    }
    if (rc == 0) {
        ct_free(calls);
    }
    return rc;
}

/* ---- rule 2 ---------------------------------------------------------------------------------- */

/* Looks for the only member that has not come to what others wait for in this group. */
static int judge_absent(const struct group *group, struct ct_flight_verdict *out,
                        struct ct_buf *text)
{
    const struct ct_flight_op *awaited = NULL;
    int waiting = 0, absent = -1;
    for (int i = 0; i < group->count; i++) {
        const struct ct_flight_op *op = pending_of(flight_of(group, i));
        if (op != NULL && op->group == group->members[i].group) {
            awaited = awaited == NULL || op->number > awaited->number ? op : awaited;
            waiting++;
        }
    }
    for (int i = 0; awaited != NULL && i < group->count; i++) {
        if (last_of(group, i) >= awaited->number || pending_of(flight_of(group, i)) != NULL) {
            continue;
        }
        if (absent >= 0) {
            return 0; /* several: nobody stands out */
        }
        absent = group->members[i].rank;
    }
    if (absent < 0) {
        return 0;
    }
    *out = (struct ct_flight_verdict){.kind = CT_FLIGHT_ABSENT, .rank = absent};
    ct_buf_addf(text, "rank %d did not come to %s %d of group %s", absent, awaited->name,
                awaited->number, title_of(group));
    if (awaited->shape[0] != '\0') {
        ct_buf_addf(text, " (%s)", awaited->shape);
    }
    ct_buf_addf(text, "; %d rank%s wait%s there", waiting, plural(waiting),
                waiting == 1 ? "s" : "");
    return 0;
}

/* ---- rule 3 ---------------------------------------------------------------------------------- */

static void judge_silent(const struct ct_flight *flights, int count, struct ct_flight_verdict *out,
                         struct ct_buf *text)
{
    const struct ct_flight_op *awaited = NULL;
    int silent = -1;
    for (int i = 0; i < count; i++) {
        const struct ct_flight_op *op = pending_of(&flights[i]);
        if (!flights[i].known && silent < 0) {
            silent = i;
        } else if (op == NULL) {
            return; /* a second one without a recording, or one that does not wait */
        } else {
            awaited = op;
        }
    }
    if (silent < 0 || awaited == NULL || count < 3) {
        return;
    }
    *out = (struct ct_flight_verdict){.kind = CT_FLIGHT_SILENT, .rank = silent};
    ct_buf_addf(text, "rank %d gave no recording, and all others wait in a collective (%s)", silent,
                awaited->name);
}

/* ---- all rules ------------------------------------------------------------------------------- */

typedef int (*judge_group_fn)(const struct group *group, struct ct_flight_verdict *out,
                              struct ct_buf *text);

/* Applies a rule to one group after the other, until it gives a verdict. CT_ENOMEM. */
static int judge_groups(const struct ct_flight *flights, const struct membership *list, int count,
                        judge_group_fn judge, struct ct_flight_verdict *out, struct ct_buf *text)
{
    int rc = 0;
    for (int begin = 0, end; rc == 0 && begin < count && out->kind == CT_FLIGHT_NONE; begin = end) {
        end = begin + 1;
        while (end < count && strcmp(list[end].title->name, list[begin].title->name) == 0) {
            end++;
        }
        const struct group group = {flights, &list[begin], end - begin};
        rc = judge(&group, out, text);
    }
    return rc;
}

int ct_flight_judge(const struct ct_flight *flights, int count, struct ct_flight_verdict *out,
                    struct ct_buf *text)
{
    struct membership *list;
    int members;
    *out = (struct ct_flight_verdict){.kind = CT_FLIGHT_NONE};
    int rc = list_memberships(flights, count, &list, &members);
    if (rc != 0) {
        return rc;
    }
    rc = judge_groups(flights, list, members, judge_different, out, text);
    if (rc == 0 && out->kind == CT_FLIGHT_NONE) {
        rc = judge_groups(flights, list, members, judge_absent, out, text);
    }
    if (rc == 0 && out->kind == CT_FLIGHT_NONE) {
        judge_silent(flights, count, out, text);
    }
    ct_free(list);
    return rc == 0 ? ct_buf_status(text) : rc;
}
