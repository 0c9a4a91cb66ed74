/* SPDX-License-Identifier: Apache-2.0
 *
 * One table says which field is in which message (ON()). It serves both directions. Objects such as
 * a failure or the rows of workers are parts with functions of their own.
 *
 * Failure modes: ct_msg_decode() bounds the length of a frame and the number of its JSON values
 * before cJSON sees it. Each field is checked for type and range.
 */
#include "rendezvous/control/control.h"

#include "common/alloc.h"
#include "common/json_count.h"
#include "rendezvous/control/job_record_json.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"

#include <arpa/inet.h>
#include <limits.h>
#include <string.h>

static const char *const names[CT_MSG_TYPES] = {
    [CT_MSG_OPEN] = "open",         [CT_MSG_CHALLENGE] = "challenge", [CT_MSG_ANSWER] = "answer",
    [CT_MSG_ACCEPTED] = "accepted", [CT_MSG_REFUSED] = "refused",     [CT_MSG_JOIN] = "join",
    [CT_MSG_SERVING] = "serving",   [CT_MSG_STARTED] = "started",     [CT_MSG_FAILED] = "failed",
    [CT_MSG_FINISHED] = "finished", [CT_MSG_STOPPED] = "stopped",     [CT_MSG_BEAT] = "beat",
    [CT_MSG_PREEMPT] = "preempt",   [CT_MSG_LEAVE] = "leave",         [CT_MSG_WAITING] = "waiting",
    [CT_MSG_SPARE] = "spare",       [CT_MSG_WORLD] = "world",         [CT_MSG_STOP] = "stop",
    [CT_MSG_OVER] = "over",         [CT_MSG_GUEST] = "guest",         [CT_MSG_QUERY] = "query",
    [CT_MSG_RESULT] = "result",     [CT_MSG_STANDS] = "stands",       [CT_MSG_PLEDGE] = "pledge",
    [CT_MSG_ASK] = "ask",           [CT_MSG_VOTE] = "vote",           [CT_MSG_RECORD] = "record",
};

/* ---- the fields of each message -------------------------------------------------------------- */

#define ON(type) (1UL << CT_MSG_##type)
#define OF_A_GENERATION                                                                           \
    (ON(SERVING) | ON(STARTED) | ON(FAILED) | ON(FINISHED) | ON(STOPPED) | ON(WORLD) | ON(STOP) | \
     ON(QUERY) | ON(STANDS))
#define HAS_ANSWER (ON(CHALLENGE) | ON(ANSWER))
#define HAS_HISTORY (ON(STOP) | ON(OVER))
#define HAS_FAILURE (ON(FAILED) | ON(STOPPED))
#define HAS_WORKERS (ON(STARTED) | ON(BEAT))
#define HAS_RECORD (ON(RECORD) | ON(VOTE))

#define TEXT(on, name, at)                                                                        \
    {                                                                                             \
        on, name, CT_JSON_TEXT, offsetof(struct ct_msg, at), sizeof(((struct ct_msg *)0)->at), 0, \
            0, 0                                                                                  \
    }
#define INT(on, name, at, min, max)                                           \
    {                                                                         \
        on, name, CT_JSON_INT, offsetof(struct ct_msg, at), 0, min, max, NULL \
    }
#define I64(on, name, at, min, max)                                           \
    {                                                                         \
        on, name, CT_JSON_I64, offsetof(struct ct_msg, at), 0, min, max, NULL \
    }
#define OTHER(on, name, at, kind)                                                                 \
    {                                                                                             \
        on, name, kind, offsetof(struct ct_msg, at), sizeof(((struct ct_msg *)0)->at), 0, 0, NULL \
    }

static const struct ct_json_field fields[] = {
    INT(ON(OPEN), "version", version, 1, INT_MAX),
    OTHER(ON(OPEN) | ON(CHALLENGE), "nonce", nonce, CT_JSON_HEX),
    INT(OF_A_GENERATION, "generation", generation, 0, INT_MAX),
    I64(ON(FAILED) | ON(BEAT) | ON(PLEDGE), "clock_ms", clock_ms, 0, CT_JSON_INT_MAX),
    OTHER(ON(SERVING), "port", port, CT_JSON_PORT),
    TEXT(ON(ACCEPTED) | ON(SERVING), "address", text),
    TEXT(ON(REFUSED), "reason", text),
    TEXT(ON(WAITING) | ON(STOP) | ON(PREEMPT) | ON(LEAVE) | ON(OVER), "text", text),
    INT(ON(REFUSED), "code", exit_code, 0, 255),
    INT(ON(OVER) | ON(LEAVE), "exit_code", exit_code, 0, 255),
    INT(ON(PREEMPT), "signo", signo, 0, 64),
    I64(ON(PREEMPT), "deadline_ms", deadline_ms, -1, CT_CONTROL_MAX_MS),
    OTHER(ON(STOP), "will_restart", will_restart, CT_JSON_BOOL),

    INT(ON(QUERY) | ON(RESULT), "id", query.id, 1, INT_MAX),
    INT(ON(QUERY), "rank", query.rank, 0, CT_MAX_WORLD - 1),
    TEXT(ON(QUERY), "kind", query.kind),
    OTHER(ON(RESULT), "ok", ok, CT_JSON_BOOL),
    {ON(RESULT) | ON(STANDS), "text", CT_JSON_OWNED, offsetof(struct ct_msg, result),
     CT_QUERY_TEXT_MAX, 0, 0, NULL},

    I64(ON(PLEDGE), "term", term, 1, CT_TERM_MAX),
    I64(ON(PLEDGE), "version", record_version, 1, CT_JSON_INT_MAX - 1),
    I64(ON(ASK), "id", ask.id, 1, CT_JSON_INT_MAX - 1),
    I64(ON(ASK), "term", ask.term, 0, CT_TERM_MAX),
    I64(ON(ASK), "record_term", ask.record_term, 0, CT_TERM_MAX),
    I64(ON(ASK), "record_version", ask.record_version, 0, CT_JSON_INT_MAX - 1),
    I64(ON(VOTE), "id", vote.id, 1, CT_JSON_INT_MAX - 1),
    I64(ON(VOTE), "seen", vote.seen, 0, CT_TERM_MAX),
    I64(ON(VOTE), "candidacy", vote.candidacy, 0, CT_TERM_MAX),
    I64(ON(VOTE), "asked_term", vote.asked_term, 0, CT_TERM_MAX),
    OTHER(ON(VOTE), "granted", vote.granted, CT_JSON_BOOL),
    I64(ON(VOTE), "alone_ms", vote.alone_ms, 0, CT_CONTROL_MAX_MS),
    I64(ON(VOTE), "host_term", vote.host_term, 0, CT_TERM_MAX),

    TEXT(ON(JOIN), "run_id", join.run_id),
    TEXT(ON(JOIN), "host", join.host),
    TEXT(ON(JOIN), "role", join.role),
    INT(ON(JOIN), "node_rank", join.node_rank, -1, CT_MAX_NODES - 1),
    INT(ON(JOIN), "workers", join.workers, 1, CT_MAX_WORLD),
    I64(ON(JOIN), "pid", join.pid, 0, CT_JSON_INT_MAX),
    OTHER(ON(JOIN), "hosts", join.hosts, CT_JSON_BOOL),
    INT(ON(JOIN), "min_nodes", join.min_nodes, 1, CT_MAX_NODES),
    INT(ON(JOIN), "max_nodes", join.max_nodes, 1, CT_MAX_NODES),
    INT(ON(JOIN), "spares", join.spares, 0, CT_MAX_NODES),
    INT(ON(JOIN), "max_restarts", join.max_restarts, 0, INT_MAX),
    I64(ON(JOIN), "settle_ms", join.settle_ms, 0, CT_CONTROL_MAX_MS),
    I64(ON(JOIN), "join_ms", join.join_ms, 0, CT_CONTROL_MAX_MS),
    I64(ON(JOIN), "heartbeat_ms", join.heartbeat_ms, 1, CT_CONTROL_MAX_MS),

    INT(ON(WORLD), "node_rank", world.node_rank, 0, CT_MAX_NODES - 1),
    INT(ON(WORLD), "node_count", world.node_count, 1, CT_MAX_NODES),
    INT(ON(WORLD), "first_rank", world.first_rank, 0, CT_MAX_WORLD - 1),
    INT(ON(WORLD), "world_size", world.world_size, 1, CT_MAX_WORLD),
    INT(ON(WORLD), "first_role_rank", world.first_role_rank, 0, CT_MAX_WORLD - 1),
    INT(ON(WORLD), "role_size", world.role_size, 1, CT_MAX_WORLD),
    INT(ON(WORLD), "restarts", world.restarts, 0, INT_MAX),
    OTHER(ON(WORLD), "serve", world.serve, CT_JSON_BOOL),
    TEXT(ON(WORLD), "master_addr", world.master_addr),
    OTHER(ON(WORLD), "master_port", world.master_port, CT_JSON_PORT),
    TEXT(ON(WORLD), "store_addr", world.store_addr),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

/* This one is absent in the OVER of an older ctrun. */
static const struct ct_json_field used_field =
    INT(ON(OVER), "restarts", world.restarts, 0, INT_MAX);

/* This one is absent in the beats of agents, and in a job that ends with its host. */
static const struct ct_json_field lease_field =
    I64(ON(BEAT), "lease_ms", lease_ms, 0, CT_CONTROL_MAX_MS);

/* The fields of the object "still", which is absent while any worker makes progress. */
static const char *const still_kinds[CT_HANG_VOTE_KINDS] = {
    "no", "stopped", "busy", "waiting", "stuck", "napping", "quiet", "behind", "all", "named",
};
static const struct ct_json_field still_fields[] = {
    {ON(BEAT), "kind", CT_JSON_NAME, offsetof(struct ct_msg, still.kind), CT_HANG_VOTE_KINDS, 0, 0,
     still_kinds},
    INT(ON(BEAT), "generation", still.generation, 0, INT_MAX),
    INT(ON(BEAT), "rank", still.rank, 0, CT_MAX_WORLD - 1),
    I64(ON(BEAT), "step", still.step, 0, CT_JSON_INT_MAX),
    OTHER(ON(BEAT), "alone", still.alone, CT_JSON_BOOL),
    OTHER(ON(BEAT), "sure", still.sure, CT_JSON_BOOL),
    I64(ON(BEAT), "still_ms", still.still_ms, 0, CT_CONTROL_MAX_MS),
    TEXT(ON(BEAT), "host", text),
};
#define STILL_FIELDS (sizeof(still_fields) / sizeof(still_fields[0]))

/* The fields of the object "hang", which is absent if no hang is reported. */
static const struct ct_json_field hang_fields[] = {
    INT(ON(BEAT), "generation", hang.generation, 0, INT_MAX),
    INT(ON(BEAT), "rank", hang.rank, -1, CT_MAX_WORLD - 1),
    I64(ON(BEAT), "still_ms", hang.still_ms, 0, CT_CONTROL_MAX_MS),
    TEXT(ON(BEAT), "why", hang.why),
};
#define HANG_FIELDS (sizeof(hang_fields) / sizeof(hang_fields[0]))

/* The fields of the object "warm", which is absent without --warm. */
static const struct ct_json_field warm_fields[] = {
    INT(ON(BEAT), "wanted", warm.wanted, 1, CT_MAX_WORLD),
    INT(ON(BEAT), "ready", warm.ready, 0, CT_MAX_WORLD),
    INT(ON(BEAT), "workers", warm.workers, 0, CT_MAX_WORLD),
    INT(ON(BEAT), "mib", warm.mib, 0, INT_MAX),
    TEXT(ON(BEAT), "off", warm.off),
    TEXT(ON(BEAT), "cold", warm.cold),
};
#define WARM_FIELDS (sizeof(warm_fields) / sizeof(warm_fields[0]))
/* This one is absent in the BEAT of an older ctrun. */
static const char *const makings[CT_WARM_MAKINGS] = {
    "unknown", "ready", "making", "waiting", "memory", "off",
};
static const struct ct_json_field making_field = {
    ON(BEAT), "state", CT_JSON_NAME, offsetof(struct ct_msg, warm.making), CT_WARM_MAKINGS,
    0,        0,       makings};

/* This field is absent without a token. */
static const struct ct_json_field answer_field = OTHER(HAS_ANSWER, "answer", answer, CT_JSON_HEX);
/* These fields are absent in the JOIN of an older ctrun. */
static const struct ct_json_field queries_field =
    OTHER(ON(JOIN), "queries", join.queries, CT_JSON_BOOL);
static const struct ct_json_field stands_field =
    OTHER(ON(JOIN), "stands", join.stands, CT_JSON_BOOL);
/* This one is absent in the JOIN of a node without a preflight. */
static const char *const preflights[CT_JOIN_PREFLIGHTS] = {"none", "first", "each", "only"};
static const struct ct_json_field preflight_field = {ON(JOIN),
                                                     "preflight",
                                                     CT_JSON_NAME,
                                                     offsetof(struct ct_msg, join.preflight),
                                                     CT_JOIN_PREFLIGHTS,
                                                     0,
                                                     0,
                                                     preflights};
/* This one is absent where there is nothing to say, and in the messages of an older ctrun. */
static const struct ct_json_field spare_field = TEXT(ON(SPARE), "text", text);
/* This one is absent if the job has no ports, and in messages of an older ctrun. */
static const struct ct_json_field ports_field = TEXT(ON(SERVING) | ON(WORLD), "ports", world.ports);
/* These are absent in the JOIN of an agent that has no vote. */
static const struct ct_json_field voter_fields[] = {
    I64(ON(JOIN), "id", join.voter.id, 1, CT_JSON_INT_MAX - 1),
    OTHER(ON(JOIN), "port", join.voter.port, CT_JSON_PORT),
};
/* These are absent if it has no record. */
static const struct ct_json_field joined_fields[] = {
    I64(ON(JOIN), "record_term", join.record_term, 1, CT_TERM_MAX),
    I64(ON(JOIN), "record_version", join.record_version, 1, CT_JSON_INT_MAX - 1),
};
/* These are absent in the ACCEPTED of a server that hosts no job which outlives its host. */
static const struct ct_json_field accepted_fields[] = {
    I64(ON(ACCEPTED), "id", host.id, 1, CT_JSON_INT_MAX - 1),
    I64(ON(ACCEPTED), "term", term, 1, CT_TERM_MAX),
    TEXT(ON(ACCEPTED), "host", join.host),
};
/* This one is absent if the host is an agent. */
static const struct ct_json_field daemon_field =
    OTHER(ON(ACCEPTED), "daemon", daemon, CT_JSON_BOOL);
/* These are absent in the ASK of an agent that does not host. */
static const struct ct_json_field hosting_fields[] = {
    TEXT(ON(ASK), "run_id", join.run_id),
    OTHER(ON(ASK), "port", host.port, CT_JSON_PORT),
    I64(ON(ASK), "host_term", term, 1, CT_TERM_MAX),
};
/* This one is absent in votes, and in a verdict that nobody need answer. */
static const struct ct_json_field asks_field = OTHER(ON(BEAT), "asks", still.asks, CT_JSON_BOOL);

const char *ct_msg_name(enum ct_msg_type type)
{
    return (unsigned)type < CT_MSG_TYPES ? names[type] : "unknown";
}

void ct_msg_fini(struct ct_msg *msg)
{
    if (msg == NULL) {
        return;
    }
    ct_failure_fini(&msg->failure);
    ct_failure_history_fini(&msg->history);
    ct_free(msg->result);
    msg->result = NULL;
    ct_free(msg->record);
    msg->record = NULL;
    ct_free(msg->rows);
    msg->rows = NULL;
    msg->num_rows = 0;
}

/* ---- to the wire ---------------------------------------------------------------------------- */

/* Takes `item`; NULL means that its allocation failed. */
static int add_item(cJSON *object, const char *name, cJSON *item)
{
    if (item == NULL || !cJSON_AddItemToObject(object, name, item)) {
        cJSON_Delete(item);
        return CT_ENOMEM;
    }
    return 0;
}

static int still_to_json(const struct ct_msg *msg, cJSON **out)
{
    cJSON *object = cJSON_CreateObject();
    unsigned long on = 1UL << msg->type;
    if (object == NULL || ct_json_write_fields(object, still_fields, STILL_FIELDS, on, msg) != 0 ||
        (msg->still.asks && ct_json_write_fields(object, &asks_field, 1, on, msg) != 0)) {
        cJSON_Delete(object);
        return CT_ENOMEM;
    }
    *out = object;
    return 0;
}

/* The record and the host of an election. */
static int add_election(cJSON *object, const struct ct_msg *msg)
{
    cJSON *part = NULL;
    if (msg->type == CT_MSG_BEAT && msg->has_lease &&
        ct_json_write_fields(object, &lease_field, 1, 1UL << msg->type, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_OVER &&
        ct_json_write_fields(object, &used_field, 1, 1UL << msg->type, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_JOIN && msg->join.voter.id != 0 &&
        ct_json_write_fields(object, voter_fields, 2, 1UL << msg->type, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_JOIN && msg->join.voter.id != 0 && msg->join.record_version != 0 &&
        ct_json_write_fields(object, joined_fields, 2, 1UL << msg->type, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_ACCEPTED && msg->host.id != 0 &&
        (ct_json_write_fields(object, accepted_fields, 3, 1UL << msg->type, msg) != 0 ||
         (msg->daemon &&
          ct_json_write_fields(object, &daemon_field, 1, 1UL << msg->type, msg) != 0))) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_ASK && msg->host.port != 0 &&
        ct_json_write_fields(object, hosting_fields, 3, 1UL << msg->type, msg) != 0) {
        return CT_ENOMEM;
    }
    if (((1UL << msg->type) & HAS_RECORD) != 0 && msg->record != NULL &&
        (ct_job_record_to_json(msg->record, &part) != 0 || add_item(object, "record", part) != 0)) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_VOTE && msg->host.id != 0 &&
        (ct_job_record_voter_to_json(&msg->host, &part) != 0 ||
         add_item(object, "host", part) != 0)) {
        return CT_ENOMEM;
    }
    return 0;
}

const char *ct_msg_making_name(enum ct_warm_making making)
{
    return makings[making];
}

/* Makes an object that only a BEAT has. */
static int part_to_json(const struct ct_msg *msg, const struct ct_json_field *of_part, size_t count,
                        cJSON **out)
{
    cJSON *object = cJSON_CreateObject();
    if (object == NULL ||
        ct_json_write_fields(object, of_part, count, 1UL << msg->type, msg) != 0) {
        cJSON_Delete(object);
        return CT_ENOMEM;
    }
    *out = object;
    return 0;
}

/* The parts of a message that are more than one field. */
static int add_parts(cJSON *object, const struct ct_msg *msg)
{
    unsigned long on = 1UL << msg->type;
    cJSON *part = NULL;
    if ((on & HAS_ANSWER) != 0 && msg->has_answer &&
        ct_json_write_fields(object, &answer_field, 1, on, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_JOIN && msg->join.queries &&
        ct_json_write_fields(object, &queries_field, 1, on, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_JOIN && msg->join.stands &&
        ct_json_write_fields(object, &stands_field, 1, on, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_JOIN && msg->join.preflight != CT_JOIN_PREFLIGHT_NONE &&
        ct_json_write_fields(object, &preflight_field, 1, on, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_SPARE && msg->text[0] != '\0' &&
        ct_json_write_fields(object, &spare_field, 1, on, msg) != 0) {
        return CT_ENOMEM;
    }
    if ((on & ports_field.on) != 0 && msg->world.ports[0] != '\0' &&
        ct_json_write_fields(object, &ports_field, 1, on, msg) != 0) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_JOIN && ct_restart_limits_to_json(&msg->join.limits, object) != 0) {
        return CT_ENOMEM;
    }
    if ((msg->type == CT_MSG_FAILED || ((on & HAS_FAILURE) != 0 && msg->has_failure)) &&
        (ct_failure_to_json(&msg->failure, &part) != 0 || add_item(object, "failure", part) != 0)) {
        return CT_ENOMEM;
    }
    if ((on & HAS_HISTORY) != 0 && (ct_failure_history_to_json(&msg->history, &part) != 0 ||
                                    add_item(object, "story", part) != 0)) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_BEAT && msg->still.kind != CT_HANG_VOTE_NO &&
        (still_to_json(msg, &part) != 0 || add_item(object, "still", part) != 0)) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_BEAT && msg->hang.stands &&
        (part_to_json(msg, hang_fields, HANG_FIELDS, &part) != 0 ||
         add_item(object, "hang", part) != 0)) {
        return CT_ENOMEM;
    }
    if (msg->type == CT_MSG_BEAT && msg->warm.wanted > 0 &&
        (part_to_json(msg, warm_fields, WARM_FIELDS, &part) != 0 ||
         add_item(object, "warm", part) != 0 ||
         ct_json_write_fields(part, &making_field, 1, on, msg) != 0)) {
        return CT_ENOMEM;
    }
    if ((on & HAS_WORKERS) != 0 && msg->has_rows &&
        (ct_rows_to_json(msg->rows, msg->num_rows, &part) != 0 ||
         add_item(object, "workers", part) != 0)) {
        return CT_ENOMEM;
    }
    return add_election(object, msg);
}

static int print(const cJSON *object, struct ct_buf *out)
{
    char *text = cJSON_PrintUnformatted(object);
    if (text == NULL) {
        return CT_ENOMEM;
    }
    size_t len = strlen(text);
    int rc = CT_ELIMIT;
    if (CT_CONTROL_HEADER + len > CT_CONTROL_MAX_FRAME) {
        goto out;
    }
    rc = ct_buf_reserve(out, CT_CONTROL_HEADER + len);
    if (rc != 0) {
        goto out;
    }
    uint32_t header = htonl((uint32_t)CT_CONTROL_FIRST_BYTE << 24 | (uint32_t)len);
    /* The room was reserved above, so neither can fail. */
    CT_ASSERT(ct_buf_append(out, &header, sizeof(header)) == 0);
    CT_ASSERT(ct_buf_append(out, text, len) == 0);
out:
    cJSON_free(text);
    return rc;
}

int ct_msg_encode(const struct ct_msg *msg, struct ct_buf *out)
{
    if (msg->frame != NULL) {
        return ct_buf_append(out, ct_buf_bytes(msg->frame), msg->frame->len);
    }
    ct_json_use_our_memory();
    int rc = CT_ENOMEM;
    cJSON *object = cJSON_CreateObject();
    if (object != NULL && ct_json_add_text(object, "type", ct_msg_name(msg->type)) &&
        ct_json_write_fields(object, fields, FIELDS, 1UL << msg->type, msg) == 0 &&
        add_parts(object, msg) == 0) {
        rc = print(object, out);
    }
    cJSON_Delete(object);
    return rc;
}

/* ---- from the wire -------------------------------------------------------------------------- */

static int read_type(const cJSON *object, struct ct_msg *out, struct ct_err *err)
{
    const struct ct_json_field field = {
        1, "type", CT_JSON_NAME, offsetof(struct ct_msg, type), CT_MSG_TYPES, 0, 0, names,
    };
    _Static_assert(sizeof(out->type) == sizeof(int), "CT_JSON_NAME stores an int");
    return ct_json_read_fields(object, &field, 1, 1, out, err);
}

/* Reads a field that may be absent. */
static int read_optional(const cJSON *object, const struct ct_json_field *field, struct ct_msg *out,
                         struct ct_err *err)
{
    return cJSON_GetObjectItemCaseSensitive(object, field->name) != NULL
               ? ct_json_read_fields(object, field, 1, 1UL << out->type, out, err)
               : 0;
}

static int read_still(const cJSON *still, struct ct_msg *out, struct ct_err *err)
{
    int rc = ct_json_read_fields(still, still_fields, STILL_FIELDS, 1UL << out->type, out, err);
    return rc == 0 ? read_optional(still, &asks_field, out, err) : rc;
}

static int read_election(const cJSON *object, struct ct_msg *out, struct ct_err *err)
{
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(object, "record");
    const cJSON *host = cJSON_GetObjectItemCaseSensitive(object, "host");
    if (out->type == CT_MSG_BEAT) {
        out->has_lease = cJSON_GetObjectItemCaseSensitive(object, "lease_ms") != NULL;
        return read_optional(object, &lease_field, out, err);
    }
    if (out->type == CT_MSG_OVER) {
        return read_optional(object, &used_field, out, err);
    }
    if (out->type == CT_MSG_JOIN && cJSON_GetObjectItemCaseSensitive(object, "id") != NULL) {
        int rc = ct_json_read_fields(object, voter_fields, 2, 1UL << out->type, out, err);
        bool has_record = cJSON_GetObjectItemCaseSensitive(object, "record_term") != NULL;
        return rc == 0 && has_record
                   ? ct_json_read_fields(object, joined_fields, 2, 1UL << out->type, out, err)
                   : rc;
    }
    if (out->type == CT_MSG_ACCEPTED && cJSON_GetObjectItemCaseSensitive(object, "id") != NULL) {
        int rc = ct_json_read_fields(object, accepted_fields, 3, 1UL << out->type, out, err);
        return rc == 0 ? read_optional(object, &daemon_field, out, err) : rc;
    }
    if (out->type == CT_MSG_ASK && cJSON_GetObjectItemCaseSensitive(object, "run_id") != NULL) {
        return ct_json_read_fields(object, hosting_fields, 3, 1UL << out->type, out, err);
    }
    if (out->type == CT_MSG_VOTE && host != NULL) {
        int rc = ct_job_record_voter_from_json(host, &out->host, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (out->type != CT_MSG_RECORD && (out->type != CT_MSG_VOTE || record == NULL)) {
        return 0;
    }
    out->record = ct_calloc(1, sizeof(*out->record));
    return out->record != NULL ? ct_job_record_from_json(record, out->record, err) : CT_ENOMEM;
}

static int read_join(const cJSON *object, struct ct_msg *out, struct ct_err *err)
{
    int rc = read_optional(object, &queries_field, out, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_optional(object, &stands_field, out, err);
    if (rc != 0) {
        return rc;
    }
    rc = read_optional(object, &preflight_field, out, err);
    if (rc != 0) {
        return rc;
    }
    return ct_restart_limits_from_json(object, &out->join.limits, err);
}

static int read_warm(const cJSON *warm, struct ct_msg *out, struct ct_err *err)
{
    int rc = ct_json_read_fields(warm, warm_fields, WARM_FIELDS, 1UL << out->type, out, err);
    if (rc != 0) {
        return rc;
    }
    return read_optional(warm, &making_field, out, err);
}

static int read_parts(const cJSON *object, struct ct_msg *out, struct ct_err *err)
{
    unsigned long on = 1UL << out->type;
    if ((on & HAS_ANSWER) != 0 && cJSON_GetObjectItemCaseSensitive(object, "answer") != NULL) {
        int rc = ct_json_read_fields(object, &answer_field, 1, on, out, err);
        if (rc != 0) {
            return rc;
        }
        out->has_answer = true;
    }
    if (out->type == CT_MSG_JOIN) {
        int rc = read_join(object, out, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (out->type == CT_MSG_SPARE) {
        int rc = read_optional(object, &spare_field, out, err);
        if (rc != 0) {
            return rc;
        }
    }
    if ((on & ports_field.on) != 0) {
        int rc = read_optional(object, &ports_field, out, err);
        if (rc != 0) {
            return rc;
        }
    }
    const cJSON *failure = cJSON_GetObjectItemCaseSensitive(object, "failure");
    if (out->type == CT_MSG_FAILED || ((on & HAS_FAILURE) != 0 && failure != NULL)) {
        int rc = ct_failure_from_json(failure, &out->failure, err);
        if (rc != 0) {
            return rc;
        }
        out->has_failure = true;
    }
    if ((on & HAS_HISTORY) != 0) {
        int rc = ct_failure_history_from_json(cJSON_GetObjectItemCaseSensitive(object, "story"),
                                              &out->history, err);
        if (rc != 0) {
            return rc;
        }
    }
    const cJSON *still = cJSON_GetObjectItemCaseSensitive(object, "still");
    if (out->type == CT_MSG_BEAT && still != NULL) {
        int rc = read_still(still, out, err);
        if (rc != 0) {
            return rc;
        }
    }
    const cJSON *hang = cJSON_GetObjectItemCaseSensitive(object, "hang");
    if (out->type == CT_MSG_BEAT && hang != NULL) {
        int rc = ct_json_read_fields(hang, hang_fields, HANG_FIELDS, on, out, err);
        if (rc != 0) {
            return rc;
        }
        out->hang.stands = true;
    }
    const cJSON *warm = cJSON_GetObjectItemCaseSensitive(object, "warm");
    if (out->type == CT_MSG_BEAT && warm != NULL) {
        int rc = read_warm(warm, out, err);
        if (rc != 0) {
            return rc;
        }
    }
    const cJSON *workers = cJSON_GetObjectItemCaseSensitive(object, "workers");
    if ((on & HAS_WORKERS) != 0 && workers != NULL) {
        int rc = ct_rows_from_json(workers, &out->rows, &out->num_rows, err);
        if (rc != 0) {
            return rc;
        }
        out->has_rows = true;
    }
    return read_election(object, out, err);
}

static int read_message(const cJSON *object, struct ct_msg *out, struct ct_err *err)
{
    int rc = read_type(object, out, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_json_read_fields(object, fields, FIELDS, 1UL << out->type, out, err);
    if (rc == 0) {
        rc = read_parts(object, out, err);
    }
    if (rc == CT_EFORMAT) {
        (void)ct_err_wrap(err, "message \"%s\"", ct_msg_name(out->type));
    }
    return rc;
}

int ct_msg_length(const void *bytes, size_t len, size_t max, size_t *out, struct ct_err *err)
{
    const unsigned char *first = bytes;
    uint32_t header;
    if (len > 0 && *first != CT_CONTROL_FIRST_BYTE) {
        return (*first & CT_CONTROL_FIRST_BYTE) != 0
                   ? ct_err_set(err, CT_ELIMIT, "a frame of 16 MiB or more is not accepted")
                   : ct_err_set(err, CT_EPROTO, "this is no frame of ctrun's control protocol");
    }
    if (len < CT_CONTROL_HEADER) {
        return CT_MSG_E_MORE;
    }
    memcpy(&header, bytes, sizeof(header));
    size_t body = ntohl(header) & 0x7fffffffU;
    if (max < CT_CONTROL_HEADER || body > max - CT_CONTROL_HEADER) {
        return ct_err_set(err, CT_ELIMIT, "a frame of %zu bytes is longer than the limit of %zu",
                          CT_CONTROL_HEADER + body, max);
    }
    if (body > len - CT_CONTROL_HEADER) {
        return CT_MSG_E_MORE;
    }
    *out = CT_CONTROL_HEADER + body;
    return 0;
}

int ct_msg_decode(const void *bytes, size_t len, size_t max, struct ct_msg *out, size_t *used,
                  struct ct_err *err)
{
    const char *text = (const char *)bytes + CT_CONTROL_HEADER;
    const char *end = NULL;
    size_t frame = 0;
    int rc = ct_msg_length(bytes, len, max, &frame, err);
    if (rc != 0) {
        return rc;
    }
    size_t body = frame - CT_CONTROL_HEADER;
    if (ct_json_count_values(text, body) > CT_CONTROL_MAX_VALUES) {
        return ct_err_set(err, CT_ELIMIT, "a frame of more than %zu values is not accepted",
                          CT_CONTROL_MAX_VALUES);
    }
    ct_json_use_our_memory();
    cJSON *object = cJSON_ParseWithLengthOpts(text, body, &end, 0);
    if (!cJSON_IsObject(object) || end != text + body) {
        cJSON_Delete(object);
        return ct_err_set(err, CT_EFORMAT, "a frame must hold one JSON object and nothing else");
    }
    rc = read_message(object, out, err);
    cJSON_Delete(object);
    if (rc != 0) {
        ct_msg_fini(out);
        memset(out, 0, sizeof(*out));
        return rc;
    }
    *used = frame;
    return 0;
}
