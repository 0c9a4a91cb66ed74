/* SPDX-License-Identifier: Apache-2.0
 *
 * The history as a ring of its last entries, and as JSON in both directions. Two tables hold the
 * fields.
 *
 * Failure modes: if a document would not fit into a frame, long texts of older failures are left
 * out. Reading refuses a wrong type or range.
 */
#include "rendezvous/control/failure_history.h"

#include "common/alloc.h"
#include "rendezvous/control/control.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <limits.h>
#include <string.h>

/* Bytes of long texts in one document. Written as JSON a byte may become six ("\u001b"), and the
 * document has to fit into a frame. */
#define TEXTS_MAX ((size_t)128 << 10)

static const char *const kinds[] = {
    [CT_FAILURE_WORKER] = "worker",
    [CT_FAILURE_AGENT] = "agent",
    [CT_FAILURE_SILENT] = "silent",
    [CT_FAILURE_LEFT] = "left",
};
_Static_assert(sizeof(enum ct_failure_kind) == sizeof(int), "CT_JSON_NAME stores an int");

enum { PLAIN = 1, LONG_TEXTS = 2, STEPS = 4, PAUSE = 8, UNFIT = 16 };

#define AT(member) offsetof(struct ct_failure, member)
static const struct ct_json_field failure_fields[] = {
    {PLAIN, "kind", CT_JSON_NAME, AT(kind), sizeof(kinds) / sizeof(kinds[0]), 0, 0, kinds},
    {PLAIN, "generation", CT_JSON_INT, AT(generation), 0, 0, INT_MAX, NULL},
    {PLAIN, "node_rank", CT_JSON_INT, AT(node_rank), 0, -1, CT_MAX_NODES, NULL},
    {PLAIN, "host", CT_JSON_CUT, AT(host), CT_HOST_MAX, 0, 0, NULL},
    {PLAIN, "address", CT_JSON_CUT, AT(address), CT_HOST_MAX, 0, 0, NULL},
    {PLAIN, "rank", CT_JSON_INT, AT(rank), 0, -1, CT_MAX_WORLD, NULL},
    {PLAIN, "local_rank", CT_JSON_INT, AT(local_rank), 0, -1, CT_MAX_WORLD, NULL},
    {PLAIN, "pid", CT_JSON_I64, AT(pid), 0, 0, CT_JSON_INT_MAX, NULL},
    {PLAIN, "exit_code", CT_JSON_INT, AT(exit_code), 0, 0, 255, NULL},
    {PLAIN, "permanent", CT_JSON_BOOL, AT(permanent), 0, 0, 0, NULL},
    {PLAIN, "early", CT_JSON_BOOL, AT(early), 0, 0, 0, NULL},
    {PLAIN, "time_ms", CT_JSON_I64, AT(time_ms), 0, 0, CT_JSON_INT_MAX, NULL},
    {PLAIN, "what", CT_JSON_CUT, AT(what), CT_FAILURE_WHAT_MAX, 0, 0, NULL},
    /* These are absent if no step was completed, and in the messages of an older ctrun. */
    {STEPS, "first_step", CT_JSON_I64, AT(steps.first), 0, 0, CT_JSON_INT_MAX, NULL},
    {STEPS, "last_step", CT_JSON_I64, AT(steps.last), 0, 0, CT_JSON_INT_MAX, NULL},
    {UNFIT, "unfit", CT_JSON_BOOL, AT(unfit), 0, 0, 0, NULL}, /* likewise */
    {LONG_TEXTS, "tail", CT_JSON_OWNED, AT(tail), CT_FAILURE_TEXT_MAX, 0, 0, NULL},
    {LONG_TEXTS, "message", CT_JSON_OWNED, AT(message), CT_FAILURE_TEXT_MAX, 0, 0, NULL},
    {LONG_TEXTS, "traceback", CT_JSON_OWNED, AT(traceback), CT_FAILURE_TEXT_MAX, 0, 0, NULL},
    {LONG_TEXTS, "advice", CT_JSON_OWNED, AT(advice), CT_FAILURE_TEXT_MAX, 0, 0, NULL},
};
#undef AT
#define FAILURE_FIELDS (sizeof(failure_fields) / sizeof(failure_fields[0]))

#define AT(member) offsetof(struct ct_history_round, member)
static const struct ct_json_field round_fields[] = {
    {PLAIN, "generation", CT_JSON_INT, AT(generation), 0, 0, INT_MAX, NULL},
    {PLAIN, "nodes", CT_JSON_INT, AT(nodes), 0, 0, CT_MAX_NODES, NULL},
    {PLAIN, "world_size", CT_JSON_INT, AT(world_size), 0, 0, CT_MAX_WORLD, NULL},
    {PLAIN, "formed_ms", CT_JSON_I64, AT(formed_ms), 0, 0, CT_JSON_INT_MAX, NULL},
    {PLAIN, "ended_ms", CT_JSON_I64, AT(ended_ms), 0, 0, CT_JSON_INT_MAX, NULL},
    {PLAIN, "waited_ms", CT_JSON_I64, AT(waited_ms), 0, 0, CT_JSON_INT_MAX, NULL},
    /* Absent without a pause, and in the messages of an older ctrun. */
    {PAUSE, "paused_ms", CT_JSON_I64, AT(paused_ms), 0, 0, CT_JSON_INT_MAX, NULL},
    {PLAIN, "why", CT_JSON_CUT, AT(why), CT_FAILURE_WHAT_MAX, 0, 0, NULL},
};
#undef AT
#define ROUND_FIELDS (sizeof(round_fields) / sizeof(round_fields[0]))

void ct_failure_fini(struct ct_failure *failure)
{
    if (failure == NULL) {
        return;
    }
    ct_free(failure->tail);
    ct_free(failure->message);
    ct_free(failure->traceback);
    ct_free(failure->advice);
    failure->tail = failure->message = failure->traceback = failure->advice = NULL;
}

void ct_failure_history_fini(struct ct_failure_history *history)
{
    for (int i = 0; history != NULL && i < CT_FAILURE_HISTORY_KEPT; i++) {
        ct_failure_fini(&history->failures[i]);
    }
}

static bool copy_text(const char *from, char **to)
{
    *to = from != NULL ? ct_strdup(from) : NULL;
    return from == NULL || *to != NULL;
}

int ct_failure_copy(const struct ct_failure *from, struct ct_failure *out)
{
    struct ct_failure copy = *from;
    copy.tail = copy.message = copy.traceback = copy.advice = NULL;
    if (!copy_text(from->tail, &copy.tail) || !copy_text(from->message, &copy.message) ||
        !copy_text(from->traceback, &copy.traceback) || !copy_text(from->advice, &copy.advice)) {
        ct_failure_fini(&copy);
        return CT_ENOMEM;
    }
    *out = copy;
    return 0;
}

/* ---- the ring ------------------------------------------------------------------------------- */

static uint64_t oldest(uint64_t count)
{
    return count > CT_FAILURE_HISTORY_KEPT ? count - CT_FAILURE_HISTORY_KEPT : 0;
}

const struct ct_failure *ct_failure_history_first(const struct ct_failure_history *history,
                                                  int generation)
{
    for (uint64_t n = oldest(history->num_failures); n < history->num_failures; n++) {
        const struct ct_failure *failure = &history->failures[n % CT_FAILURE_HISTORY_KEPT];
        if (failure->generation == generation) {
            return failure;
        }
    }
    return NULL;
}

/* ---- to JSON -------------------------------------------------------------------------------- */

static size_t text_bytes(const struct ct_failure *failure)
{
    const char *const texts[] = {failure->tail, failure->message, failure->traceback,
                                 failure->advice};
    size_t bytes = 0;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        bytes += texts[i] != NULL ? strlen(texts[i]) : 0;
    }
    return bytes;
}

static int write_failure(cJSON *object, const struct ct_failure *failure, unsigned long mask)
{
    mask |= failure->steps.any ? STEPS : 0;
    mask |= failure->unfit ? UNFIT : 0;
    return ct_json_write_fields(object, failure_fields, FAILURE_FIELDS, mask, failure);
}

int ct_failure_to_json(const struct ct_failure *failure, struct cJSON **out)
{
    ct_json_use_our_memory();
    cJSON *object = cJSON_CreateObject();
    if (object == NULL || write_failure(object, failure, PLAIN | LONG_TEXTS) != 0) {
        cJSON_Delete(object);
        return CT_ENOMEM;
    }
    *out = object;
    return 0;
}

/* Chooses the failures that keep their long texts: the one that is to blame for the end, then the
 * newest ones, as long as there is room. */
static void pick_texts(const struct ct_failure_history *history, bool keep[CT_FAILURE_HISTORY_KEPT])
{
    size_t room = TEXTS_MAX;
    const struct ct_failure *first = NULL;
    if (history->num_failures > 0) {
        const struct ct_failure *last =
            &history->failures[(history->num_failures - 1) % CT_FAILURE_HISTORY_KEPT];
        first = ct_failure_history_first(history, last->generation);
        room -= text_bytes(first) < room ? text_bytes(first) : room;
    }
    for (uint64_t n = history->num_failures; n-- > oldest(history->num_failures);) {
        const struct ct_failure *failure = &history->failures[n % CT_FAILURE_HISTORY_KEPT];
        size_t bytes = failure == first ? 0 : text_bytes(failure);
        keep[n % CT_FAILURE_HISTORY_KEPT] = bytes <= room;
        room -= bytes <= room ? bytes : 0;
    }
}

static int write_failures(cJSON *object, const struct ct_failure_history *history)
{
    bool keep[CT_FAILURE_HISTORY_KEPT] = {false};
    pick_texts(history, keep);
    cJSON *array = cJSON_AddArrayToObject(object, "failures");
    if (array == NULL) {
        return CT_ENOMEM;
    }
    for (uint64_t n = oldest(history->num_failures); n < history->num_failures; n++) {
        size_t at = n % CT_FAILURE_HISTORY_KEPT;
        cJSON *item = ct_json_append_object(array);
        if (item == NULL || write_failure(item, &history->failures[at],
                                          keep[at] ? PLAIN | LONG_TEXTS : PLAIN) != 0) {
            return CT_ENOMEM;
        }
    }
    return 0;
}

static int write_rounds(cJSON *object, const struct ct_failure_history *history)
{
    cJSON *array = cJSON_AddArrayToObject(object, "rounds");
    if (array == NULL) {
        return CT_ENOMEM;
    }
    for (uint64_t n = oldest(history->num_rounds); n < history->num_rounds; n++) {
        const struct ct_history_round *round = &history->rounds[n % CT_FAILURE_HISTORY_KEPT];
        cJSON *item = ct_json_append_object(array);
        if (item == NULL ||
            ct_json_write_fields(item, round_fields, ROUND_FIELDS,
                                 round->paused_ms > 0 ? PLAIN | PAUSE : PLAIN, round) != 0) {
            return CT_ENOMEM;
        }
    }
    return 0;
}

int ct_failure_history_to_json(const struct ct_failure_history *history, struct cJSON **out)
{
    ct_json_use_our_memory();
    cJSON *object = cJSON_CreateObject();
    if (object == NULL || write_failures(object, history) != 0 ||
        !ct_json_add_number(object, "failure_count", (double)history->num_failures) ||
        write_rounds(object, history) != 0 ||
        !ct_json_add_number(object, "round_count", (double)history->num_rounds)) {
        cJSON_Delete(object);
        return CT_ENOMEM;
    }
    *out = object;
    return 0;
}

/* ---- from JSON ------------------------------------------------------------------------------ */

int ct_failure_from_json(const struct cJSON *json, struct ct_failure *out, struct ct_err *err)
{
    struct ct_failure failure = {0};
    if (!cJSON_IsObject(json)) {
        return ct_err_set(err, CT_EFORMAT, "a failure must be an object");
    }
    unsigned long mask = PLAIN | LONG_TEXTS;
    if (cJSON_GetObjectItemCaseSensitive(json, "first_step") != NULL) {
        failure.steps.any = true;
        mask |= STEPS;
    }
    if (cJSON_GetObjectItemCaseSensitive(json, "unfit") != NULL) {
        mask |= UNFIT;
    }
    int rc = ct_json_read_fields(json, failure_fields, FAILURE_FIELDS, mask, &failure, err);
    if (rc != 0) {
        ct_failure_fini(&failure);
        return rc;
    }
    *out = failure;
    return 0;
}

/* Reads an array, and how many elements there were in all, including those that were forgotten. */
static int read_ring(const cJSON *json, const char *name, const char *count_name,
                     const cJSON **array, uint64_t *count, struct ct_err *err)
{
    const struct ct_json_field field = {1, count_name, CT_JSON_I64, 0, 0, 0, CT_JSON_INT_MAX, NULL};
    int64_t total = 0;
    *array = cJSON_GetObjectItemCaseSensitive(json, name);
    if (!cJSON_IsArray(*array) || cJSON_GetArraySize(*array) > CT_FAILURE_HISTORY_KEPT) {
        return ct_err_set(err, CT_EFORMAT, "field \"%s\" must be an array of at most %d", name,
                          CT_FAILURE_HISTORY_KEPT);
    }
    int rc = ct_json_read_fields(json, &field, 1, 1, &total, err);
    int kept = cJSON_GetArraySize(*array);
    if (rc == 0 &&
        kept != (total < CT_FAILURE_HISTORY_KEPT ? (int)total : CT_FAILURE_HISTORY_KEPT)) {
        rc = ct_err_set(err, CT_EFORMAT, "field \"%s\" does not fit \"%s\"", count_name, name);
    }
    *count = (uint64_t)total;
    return rc;
}

static int read_failures(const cJSON *json, struct ct_failure_history *history, struct ct_err *err)
{
    const cJSON *array, *item;
    int rc = read_ring(json, "failures", "failure_count", &array, &history->num_failures, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t n = oldest(history->num_failures);
    cJSON_ArrayForEach(item, array)
    {
        rc = ct_failure_from_json(item, &history->failures[n++ % CT_FAILURE_HISTORY_KEPT], err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_rounds(const cJSON *json, struct ct_failure_history *history, struct ct_err *err)
{
    const cJSON *array, *item;
    int rc = read_ring(json, "rounds", "round_count", &array, &history->num_rounds, err);
    if (rc != 0) {
        return rc;
    }
    uint64_t n = oldest(history->num_rounds);
    cJSON_ArrayForEach(item, array)
    {
        if (!cJSON_IsObject(item)) {
            return ct_err_set(err, CT_EFORMAT, "a round must be an object");
        }
        bool paused = cJSON_GetObjectItemCaseSensitive(item, "paused_ms") != NULL;
        rc = ct_json_read_fields(item, round_fields, ROUND_FIELDS, paused ? PLAIN | PAUSE : PLAIN,
                                 &history->rounds[n++ % CT_FAILURE_HISTORY_KEPT], err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int ct_failure_history_from_json(const struct cJSON *json, struct ct_failure_history *out,
                                 struct ct_err *err)
{
    if (!cJSON_IsObject(json)) {
        return ct_err_set(err, CT_EFORMAT, "a story must be an object");
    }
    int rc = read_failures(json, out, err);
    if (rc == 0) {
        rc = read_rounds(json, out, err);
    }
    if (rc != 0) {
        ct_failure_history_fini(out);
        memset(out, 0, sizeof(*out));
    }
    return rc;
}
