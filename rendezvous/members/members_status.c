/* SPDX-License-Identifier: Apache-2.0
 *
 * The job in the status, as man/ctstatus.5 describes it. The functions return false when memory is
 * out; nothing else can fail.
 */
#include "rendezvous/members/members.h"

#include "common/text.h"
#include "rendezvous/members/members_core.h"
#include "rendezvous/members/members_failover.h"
#include "rendezvous/members/members_history.h"
#include "rendezvous/members/members_wait.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <string.h>

/* Nodes whose hangs are shown. A job hangs in one place; more of them would hide other problems. */
#define HANGS_SHOWN 16

/* Appends a text that may quote peers, so it is cleaned. */
static bool append_text(cJSON *array, const char *text)
{
    cJSON *item = cJSON_CreateString(text);
    if (item != NULL) {
        ct_text_clean(item->valuestring);
    }
    if (item == NULL || !cJSON_AddItemToArray(array, item)) {
        cJSON_Delete(item);
        return false;
    }
    return true;
}

static const char *job_state(const struct ct_members *m)
{
    switch (members_state(m)) {
    case STATE_GATHERING:
        return "waiting";
    case STATE_FORMING:
        return "starting";
    case STATE_RUNNING:
        return m->unstarted > 0 ? "starting" : "running";
    case STATE_STOPPING:
        return "stopping";
    default:
        return "done";
    }
}

static const char *node_state(const struct ct_members *m, const struct ct_member *member)
{
    if (!member->in_world) {
        return member->told_spare ? "spare" : "waiting";
    }
    if (members_state(m) == STATE_STOPPING) {
        return member->stopped ? "stopped" : "stopping";
    }
    if (member->finished) {
        return "finished";
    }
    return member->started ? "running" : "starting";
}

static bool add_warm(cJSON *node, const struct ct_warm_facts *warm)
{
    if (warm->wanted == 0) {
        return true;
    }
    cJSON *item = cJSON_AddObjectToObject(node, "warm");
    return item != NULL && ct_json_add_number(item, "wanted", warm->wanted) &&
           ct_json_add_number(item, "ready", warm->ready) &&
           ct_json_add_text(item, "state", ct_msg_making_name(warm->making)) &&
           ct_json_add_number(item, "workers", warm->workers) &&
           ct_json_add_number(item, "mib", warm->mib) && ct_json_add_name(item, "off", warm->off) &&
           ct_json_add_name(item, "cold", warm->cold);
}

/* The sums over all nodes, if any of them has --warm. */
static bool add_warm_sums(cJSON *job, const struct ct_members *m)
{
    int wanted = 0, ready = 0, workers = 0, mib = 0;
    EACH_MEMBER(m, pos)
    {
        const struct ct_warm_facts *warm = &MEMBER_OF(pos, link)->warm;
        wanted += warm->wanted;
        ready += warm->ready;
        workers += warm->workers;
        mib = warm->mib > mib ? warm->mib : mib;
    }
    return wanted == 0 || (ct_json_add_number(job, "warm_wanted", wanted) &&
                           ct_json_add_number(job, "warm_ready", ready) &&
                           ct_json_add_number(job, "warm_workers", workers) &&
                           ct_json_add_number(job, "warm_spare_mib", mib));
}

static bool add_nodes(cJSON *job, const struct ct_members *m, int64_t now_ns)
{
    cJSON *array = cJSON_AddArrayToObject(job, "nodes");
    if (array == NULL) {
        return false;
    }
    EACH_MEMBER(m, pos)
    {
        const struct ct_member *member = MEMBER_OF(pos, link);
        int64_t last_seen_ms = (now_ns - member->heard_ns) / CT_NS_PER_MS;
        cJSON *item = ct_json_append_object(array);
        if (item == NULL || !ct_json_add_number(item, "index", member->node_rank) ||
            !ct_json_add_name(item, "host", member->host) ||
            !ct_json_add_name(item, "address", member->address) ||
            !ct_json_add_text(item, "state", node_state(m, member)) ||
            !ct_json_add_number(item, "workers", member->workers) ||
            !ct_json_add_number(item, "last_seen_s", (double)last_seen_ms / 1000) ||
            !add_warm(item, &member->warm)) {
            return false;
        }
    }
    return true;
}

/* Returns the host name in JSON quotes, as each row has it. */
static char *quoted_host(const struct ct_member *member)
{
    cJSON *object = cJSON_CreateObject();
    char *text = object != NULL && ct_json_add_name(object, "host", member->host)
                     ? cJSON_PrintUnformatted(object->child)
                     : NULL;
    cJSON_Delete(object);
    return text;
}

static bool add_rows(const struct ct_member *member, struct ct_status_rows *rows,
                     struct ct_buf *text)
{
    const struct ct_row_span span = {
        .first_rank = member->first_rank,
        .count = member->num_rows,
        .rows = member->rows,
    };
    char *host = rows->print ? quoted_host(member) : NULL;
    bool ok = (host != NULL || !rows->print) && ct_status_rows_add(rows, &span, host, text) == 0;
    cJSON_free(host);
    return ok;
}

static bool add_raw(cJSON *job, const char *name, const char *text)
{
    return text != NULL && cJSON_AddRawToObject(job, name, text) != NULL;
}

/* Adds the workers' rows, with ranks of the present world, because rows may be older. */
static bool add_workers(cJSON *job, const struct ct_members *m, struct ct_status_rows *rows)
{
    struct ct_buf text = CT_BUF_INIT;
    bool ok = ct_buf_append(&text, "[", 1) == 0;
    rows->more = false;
    for (const struct ct_list *pos = m->all.next; ok && pos != &m->all; pos = pos->next) {
        const struct ct_member *member = MEMBER_OF(pos, link);
        ok = !member->in_world || add_rows(member, rows, &text);
    }
    ok = ok && ct_buf_append(&text, "]", 1) == 0 && add_raw(job, "workers", ct_buf_cstr(&text)) &&
         ct_json_add_bool(job, "workers_more", rows->more);
    ct_buf_fini(&text);
    return ok;
}

struct missing {
    cJSON *array;
    bool ok;
};

static void add_missing(void *data, const char *text)
{
    struct missing *missing = data;
    missing->ok = missing->ok && append_text(missing->array, text);
}

static bool add_missing_nodes(cJSON *job, const struct ct_members *m, int64_t now_ns)
{
    struct missing missing = {cJSON_AddArrayToObject(job, "missing_nodes"), true};
    if (missing.array != NULL && m->begun && members_state(m) == STATE_GATHERING) {
        members_wait_missing(m, now_ns, add_missing, &missing);
    }
    return missing.array != NULL && missing.ok;
}

/* What the worker wrote last: for the live page alone, since it may be long. */
static bool add_tail(cJSON *item, const struct ct_failure *failure, bool wanted)
{
    const char *tail = failure->traceback != NULL ? failure->traceback : failure->tail;
    if (!wanted || tail == NULL) {
        return true;
    }
    size_t len = strlen(tail), cut = len > CT_STATUS_TAIL_MAX ? len - CT_STATUS_TAIL_MAX : 0;
    cJSON *array = cJSON_AddArrayToObject(item, "tail");
    bool ok = array != NULL;
    for (const char *line = tail + cut; ok && *line != '\0';) {
        size_t n = strcspn(line, "\n");
        char text[CT_STATUS_TAIL_MAX + 1];
        memcpy(text, line, n);
        text[n] = '\0';
        ok = append_text(array, text);
        line += n + (line[n] == '\n');
    }
    return ok;
}

/* The generations of the job: when each was formed, how long it waited for its nodes, why it ended.
 */
static bool add_rounds(cJSON *job, const struct ct_members *m)
{
    const struct ct_failure_history *history = &m->history;
    cJSON *array = cJSON_AddArrayToObject(job, "rounds");
    bool ok = array != NULL;
    uint64_t n = history->num_rounds > CT_FAILURE_HISTORY_KEPT
                     ? history->num_rounds - CT_FAILURE_HISTORY_KEPT
                     : 0;
    for (; ok && n < history->num_rounds; n++) {
        const struct ct_history_round *round = &history->rounds[n % CT_FAILURE_HISTORY_KEPT];
        cJSON *item = ct_json_append_object(array);
        ok = item != NULL && ct_json_add_number(item, "generation", round->generation) &&
             ct_json_add_number(item, "nodes", round->nodes) &&
             ct_json_add_number(item, "world_size", round->world_size) &&
             ct_json_add_number(item, "waited_s", (double)round->waited_ms / 1000) &&
             ct_json_add_number(item, "formed", (double)round->formed_ms / 1000) &&
             ct_json_add_number(item, "ended", (double)round->ended_ms / 1000) &&
             ct_json_add_name(item, "why", round->why);
    }
    return ok;
}

static bool add_failures(cJSON *job, const struct ct_members *m, bool tails)
{
    const struct ct_failure_history *history = &m->history;
    cJSON *array = cJSON_AddArrayToObject(job, "failures");
    if (array == NULL) {
        return false;
    }
    uint64_t n = history->num_failures > CT_FAILURE_HISTORY_KEPT
                     ? history->num_failures - CT_FAILURE_HISTORY_KEPT
                     : 0;
    for (; n < history->num_failures; n++) {
        const struct ct_failure *failure = &history->failures[n % CT_FAILURE_HISTORY_KEPT];
        cJSON *item = ct_json_append_object(array);
        if (item == NULL || !ct_json_add_number(item, "generation", failure->generation) ||
            !ct_json_add_number(item, "node", failure->node_rank) ||
            !ct_json_add_number(item, "rank", failure->rank) ||
            !ct_json_add_number(item, "pid", (double)failure->pid) ||
            !ct_json_add_name(item, "host", failure->host) ||
            !ct_json_add_number(item, "exit", failure->exit_code) ||
            !ct_json_add_name(item, "reason", failure->what) ||
            !ct_json_add_number(item, "time", (double)failure->time_ms / 1000) ||
            !add_tail(item, failure, tails)) {
            return false;
        }
    }
    return ct_json_add_number(job, "failure_count", (double)history->num_failures);
}

/* Does the node report a hang of the generation that runs, of a rank of its own? */
static bool has_hang(const struct ct_members *m, const struct ct_member *member)
{
    const struct ct_hang_report *hang = &member->hang;
    return members_state(m) == STATE_RUNNING && member->in_world && hang->stands &&
           hang->generation == m->generation &&
           (hang->rank < 0 || (hang->rank >= member->first_rank &&
                               hang->rank - member->first_rank < member->workers));
}

/* The hangs that are reported and not over, and how many they are. Each node can report one. */
static bool add_hangs(cJSON *job, const struct ct_members *m, int64_t now_ns)
{
    cJSON *array = cJSON_AddArrayToObject(job, "hangs");
    bool ok = array != NULL;
    int count = 0;
    for (const struct ct_list *pos = m->all.next; ok && pos != &m->all; pos = pos->next) {
        const struct ct_member *member = MEMBER_OF(pos, link);
        if (!has_hang(m, member) || count++ >= HANGS_SHOWN) {
            continue;
        }
        const struct ct_hang_report *hang = &member->hang;
        int64_t ms = hang->still_ms + (now_ns - member->heard_ns) / CT_NS_PER_MS;
        cJSON *item = ct_json_append_object(array);
        ok = item != NULL && ct_json_add_number(item, "rank", hang->rank) &&
             ct_json_add_number(item, "node", member->node_rank) &&
             ct_json_add_name(item, "host", member->host) &&
             ct_json_add_number(item, "for_s", (double)ms / 1000) &&
             ct_json_add_name(item, "why", hang->why);
    }
    return ok && ct_json_add_number(job, "hang_count", count);
}

static bool add_hang_problems(cJSON *problems, const struct ct_members *m)
{
    char text[CT_FAILURE_WHAT_MAX];
    int count = 0;
    for (const struct ct_list *pos = m->all.next; pos != &m->all; pos = pos->next) {
        const struct ct_member *member = MEMBER_OF(pos, link);
        const struct ct_hang_report *hang = &member->hang;
        if (!has_hang(m, member) || count++ >= HANGS_SHOWN) {
            continue;
        }
        if (hang->rank >= 0) {
            (void)snprintf(text, sizeof(text), "rank %d on %.64s hangs: %s", hang->rank,
                           member->host, hang->why);
        } else {
            (void)snprintf(text, sizeof(text), "the job hangs: %s", hang->why);
        }
        if (!append_text(problems, text)) {
            return false;
        }
    }
    if (count <= HANGS_SHOWN) {
        return true;
    }
    int left = count - HANGS_SHOWN;
    (void)snprintf(text, sizeof(text),
                   left == 1 ? "%d more node reports a hang" : "%d more nodes report a hang", left);
    return append_text(problems, text);
}

/* Adds what is wrong now. After a restart the failures before it are no problem any more. */
static bool add_problems(cJSON *problems, const struct ct_members *m, int64_t now_ns)
{
    const struct ct_failure *first = members_history_first(m);
    char text[CT_FAILURE_WHAT_MAX];
    /* It is no problem if an elastic job has enough nodes and waits for more. */
    bool stuck =
        m->begun && (m->count < m->job.min_nodes || members_failover_wait(m, now_ns)[0] != '\0');
    if (members_state(m) == STATE_GATHERING && stuck) {
        members_wait_text(m, now_ns, text, sizeof(text));
        if (!append_text(problems, text)) {
            return false;
        }
    }
    if (first != NULL) {
        members_history_describe(first, text, sizeof(text));
        if (!append_text(problems, text)) {
            return false;
        }
    }
    if (!add_hang_problems(problems, m)) {
        return false;
    }
    if (m->due.pause_ns != NEVER) {
        (void)snprintf(text, sizeof(text),
                       "workers fail within a second of their start: the next start is in %d s",
                       (int)((m->due.pause_ns - now_ns) / CT_NS_PER_S + 1));
        if (!append_text(problems, text)) {
            return false;
        }
    }
    if (m->preempted != 0) {
        (void)snprintf(text, sizeof(text), "the job was asked to end: %.400s", m->preempt_why);
        return append_text(problems, text);
    }
    if (members_state(m) == STATE_OVER && m->over_why[0] != '\0') {
        return append_text(problems, m->over_why);
    }
    return true;
}

int ct_members_status(const struct ct_members *m, int64_t now_ns, struct ct_status_rows *rows,
                      struct cJSON *root, struct cJSON *problems)
{
    ct_json_use_our_memory();
    cJSON *job = cJSON_AddObjectToObject(root, "job");
    bool ok = job != NULL && ct_json_add_name(job, "run_id", m->job.run_id) &&
              ct_json_add_text(job, "state", job_state(m)) &&
              ct_json_add_number(job, "generation", m->generation > 0 ? m->generation : 0) &&
              ct_json_add_number(job, "max_restarts", m->job.max_restarts) &&
              ct_json_add_number(job, "restarts", m->restarts) &&
              ct_json_add_number(job, "world_size", m->world_size) &&
              ct_json_add_number(job, "min_nodes", m->job.min_nodes) &&
              ct_json_add_number(job, "max_nodes", m->job.max_nodes) && add_warm_sums(job, m) &&
              add_nodes(job, m, now_ns) && add_missing_nodes(job, m, now_ns) &&
              add_workers(job, m, rows) && add_failures(job, m, rows->tails) &&
              add_rounds(job, m) && add_hangs(job, m, now_ns) && add_problems(problems, m, now_ns);
    return ok ? 0 : CT_ENOMEM;
}
