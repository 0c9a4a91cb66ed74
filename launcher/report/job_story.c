/* SPDX-License-Identifier: Apache-2.0
 *
 * The text fills at most a page: the first failure with what its worker wrote, the other failures,
 * one line for each of the last generations, and where the time before the first generation went.
 *
 * Failure modes: without memory a text or document is incomplete, and the caller gets CT_ENOMEM.
 */
#include "launcher/report/job_story.h"

#include "common/clock.h"
#include "common/text.h"
#include "launcher/report/report.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Later failures are mostly consequences of the first one, and old generations mostly resemble the
 * last ones. */
#define LATER_SHOWN 4
#define ROUNDS_SHOWN 5

/* ---- collecting ----------------------------------------------------------------------------- */

void ct_job_story_init(struct ct_job_story *story, int workers, int64_t now_ns)
{
    *story = (struct ct_job_story){.begun_ns = now_ns, .workers = workers, .generation = -1};
}

void ct_job_story_fini(struct ct_job_story *story)
{
    ct_failure_history_fini(&story->history);
}

void ct_job_story_connected(struct ct_job_story *story, int64_t now_ns)
{
    story->first_connected_ns = now_ns;
}

void ct_job_story_waiting(struct ct_job_story *story, const char *text)
{
    if (story->worlds == 0) {
        (void)snprintf(story->waited, sizeof(story->waited), "%s", text);
    }
}

void ct_job_story_world(struct ct_job_story *story, const struct ct_msg_world *world,
                        int generation, int64_t now_ns)
{
    if (story->worlds++ == 0) {
        story->first_world_ns = now_ns;
    }
    story->several_nodes = story->several_nodes || world->node_count > 1;
    story->generation = generation;
    story->node_rank = world->node_rank;
    story->first_rank = world->first_rank;
    story->restarts = world->restarts;
}

void ct_job_story_started(struct ct_job_story *story, int64_t now_ns)
{
    if (story->worlds == 1) {
        story->first_started_ns = now_ns;
    }
}

void ct_job_story_stepped(struct ct_job_story *story, int64_t first_step_ns)
{
    if (story->worlds == 1) {
        story->first_step_ns = first_step_ns;
    }
}

void ct_job_story_take_history(struct ct_job_story *story, struct ct_failure_history *history)
{
    ct_failure_history_fini(&story->history);
    story->history = *history;
    memset(history, 0, sizeof(*history));
}

const struct ct_failure *ct_job_story_failure_elsewhere(const struct ct_job_story *story)
{
    const struct ct_failure *first = ct_failure_history_first(&story->history, story->generation);
    return first != NULL && first->node_rank != story->node_rank ? first : NULL;
}

/* Returns the number of the first of the last `kept` entries. */
static uint64_t oldest(uint64_t count, uint64_t kept)
{
    return count > kept ? count - kept : 0;
}

static bool is_lost(const struct ct_failure_history *history, int generation, int node_rank)
{
    for (uint64_t i = oldest(history->num_failures, CT_FAILURE_HISTORY_KEPT);
         i < history->num_failures; i++) {
        const struct ct_failure *failure = &history->failures[i % CT_FAILURE_HISTORY_KEPT];
        if (failure->generation == generation && failure->node_rank == node_rank &&
            failure->kind != CT_FAILURE_WORKER) {
            return true;
        }
    }
    return false;
}

int ct_job_story_reporting_node(const struct ct_job_story *story, bool link_is_lost)
{
    int teller = link_is_lost ? 1 : 0;
    while (teller < story->node_rank && is_lost(&story->history, story->generation, teller)) {
        teller++;
    }
    return teller;
}

/* ---- words ---------------------------------------------------------------------------------- */

/* Appends a text of an agent without its control characters, because it goes to a terminal. */
static void add_clean(const char *text, struct ct_buf *out)
{
    size_t before = out->len;
    ct_buf_addf(out, "%s", text);
    if (out->len > before) {
        ct_text_clean((char *)ct_buf_bytes(out) + before); /* ct_buf_addf() has added a NUL */
    }
}

/* `failed` says that a rank has failed, "failed " or "" if that was said before. */
static int add_headline(const struct ct_failure *failure, const char *failed, struct ct_buf *out)
{
    if (failure->unfit) {
        ct_buf_addf(out, "machine ");
        add_clean(failure->host, out);
        ct_buf_addf(out, "%s", failure->address[0] != '\0' ? " at " : "");
        add_clean(failure->address, out);
        ct_buf_addf(out, " is not fit: ");
        add_clean(failure->what, out);
        return ct_buf_status(out);
    }
    if (failure->kind == CT_FAILURE_WORKER && failure->rank < 0) { /* no rank stands out */
        ct_buf_addf(out, "the job hung: ");
        add_clean(failure->what, out);
        return ct_buf_status(out);
    }
    if (failure->rank >= 0) {
        ct_buf_addf(out, "rank %d %son ", failure->rank, failed);
    } else {
        ct_buf_addf(out, "node %d (", failure->node_rank);
    }
    add_clean(failure->host, out);
    ct_buf_addf(out, "%s", failure->address[0] != '\0' ? " at " : "");
    add_clean(failure->address, out);
    ct_buf_addf(out, failure->rank >= 0 ? ": " : ") is lost: ");
    add_clean(failure->what, out);
    return ct_buf_status(out);
}

int ct_job_story_headline(const struct ct_failure *failure, struct ct_buf *out)
{
    return add_headline(failure, "failed ", out);
}

static void add_clock(int64_t time_ms, struct ct_buf *out)
{
    time_t seconds = (time_t)(time_ms / 1000);
    struct tm local;
    char text[16];
    if (localtime_r(&seconds, &local) != NULL &&
        strftime(text, sizeof(text), "%H:%M:%S", &local) != 0) {
        ct_buf_addf(out, "%s", text);
    }
}

/* Adds what the worker wrote. ct_report_add_evidence() wants each line of the tail indented. */
static int add_said(const struct ct_failure *first, struct ct_buf *out)
{
    struct ct_buf tail = CT_BUF_INIT;
    if (first->tail != NULL) {
        ct_report_quote(first->tail, &tail);
    }
    const char *shown = ct_buf_cstr(&tail);
    int rc = shown != NULL ? ct_buf_status(&tail) : CT_ENOMEM;
    if (rc == 0) {
        const struct ct_report_evidence said = {
            .rank = first->rank,
            .message = first->message,
            .traceback = first->traceback,
            .tail = shown,
        };
        rc = ct_report_add_evidence(&said, out);
    }
    ct_buf_fini(&tail);
    return rc;
}

static int add_first(const struct ct_job_story *story, const struct ct_failure *first,
                     struct ct_buf *out)
{
    ct_buf_addf(out, CT_REPORT_PREFIX "the job failed");
    if (first->time_ms > 0) {
        ct_buf_addf(out, " at ");
        add_clock(first->time_ms, out);
    }
    ct_buf_addf(out, " in generation %d: ", first->generation);
    ct_job_story_headline(first, out);
    ct_buf_addf(out, "\n");
    if (first->node_rank == story->node_rank && first->generation == story->generation) {
        return 0; /* it stands in the report of this node, right above */
    }
    if (first->unfit && first->tail != NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX "its health check wrote last:\n");
        ct_report_quote(first->tail, out);
    }
    int rc = first->rank >= 0 ? add_said(first, out) : 0;
    if (rc != 0) {
        return rc;
    }
    if (first->advice != NULL && first->advice[0] != '\0') {
        ct_buf_addf(out, CT_REPORT_PREFIX "what to do: ");
        add_clean(first->advice, out);
        ct_buf_addf(out, "\n");
    }
    return 0;
}

static void add_later(const struct ct_failure_history *history, const struct ct_failure *first,
                      struct ct_buf *out)
{
    int shown = 0;
    for (uint64_t i = oldest(history->num_failures, CT_FAILURE_HISTORY_KEPT);
         i < history->num_failures; i++) {
        const struct ct_failure *other = &history->failures[i % CT_FAILURE_HISTORY_KEPT];
        if (other == first || other->generation != first->generation || shown++ >= LATER_SHOWN) {
            continue;
        }
        ct_buf_addf(out, CT_REPORT_PREFIX "also, ");
        ct_job_story_headline(other, out);
        ct_buf_addf(out, "\n");
    }
}

/* Leaves out why the generation of `first` ended, because add_first() has said it. */
static void add_rounds(const struct ct_failure_history *history, const struct ct_failure *first,
                       struct ct_buf *out)
{
    for (uint64_t i = oldest(history->num_rounds, ROUNDS_SHOWN); i < history->num_rounds; i++) {
        const struct ct_history_round *round = &history->rounds[i % CT_FAILURE_HISTORY_KEPT];
        ct_buf_addf(out, CT_REPORT_PREFIX "generation %d: %d node%s, %d rank%s, formed in %.1f s",
                    round->generation, round->nodes, round->nodes == 1 ? "" : "s",
                    round->world_size, round->world_size == 1 ? "" : "s",
                    (double)round->waited_ms / 1000);
        if (round->paused_ms > 0) {
            ct_buf_addf(out, " after a pause of %.0f s", (double)round->paused_ms / 1000);
        }
        if (round->ended_ms > 0) {
            ct_buf_addf(out, ", ran %.1f s", (double)(round->ended_ms - round->formed_ms) / 1000);
        }
        if (round->why[0] != '\0' && (first == NULL || round->generation != first->generation)) {
            ct_buf_addf(out, "; ");
            add_clean(round->why, out);
        }
        ct_buf_addf(out, "\n");
    }
}

static double between_s(int64_t from_ns, int64_t to_ns)
{
    return to_ns > from_ns && from_ns > 0 ? (double)(to_ns - from_ns) / (double)CT_NS_PER_S : 0;
}

static void add_start_up(const struct ct_job_story *story, struct ct_buf *out)
{
    if (story->first_world_ns == 0) {
        return;
    }
    ct_buf_addf(out,
                CT_REPORT_PREFIX "start-up here: connected in %.3f s, waited %.3f s for "
                                 "the other nodes, spawned in %.3f s",
                between_s(story->begun_ns, story->first_connected_ns),
                between_s(story->first_connected_ns, story->first_world_ns),
                between_s(story->first_world_ns, story->first_started_ns));
    if (story->first_warm > 0) {
        ct_buf_addf(out, " (%d of %d warm)", story->first_warm, story->workers);
    }
    if (story->first_step_ns > 0) {
        ct_buf_addf(out, ", first step after another %.3f s",
                    between_s(story->first_started_ns, story->first_step_ns));
    }
    ct_buf_addf(out, "\n");
    if (story->waited[0] != '\0') {
        ct_buf_addf(out, CT_REPORT_PREFIX "  the last word then: ");
        add_clean(story->waited, out);
        ct_buf_addf(out, "\n");
    }
}

/* Did the job end without a failure? Those that a restart has mended do not count. */
static bool ended_well(const struct ct_job_end *end)
{
    return end->exit_code == 0 || end->signo != 0;
}

/* Returns the failure that ended the job: the first one of the last generation that had any. */
static const struct ct_failure *culprit(const struct ct_job_story *story,
                                        const struct ct_job_end *end)
{
    const struct ct_failure_history *history = &story->history;
    if (history->num_failures == 0) {
        return NULL;
    }
    const struct ct_failure *last =
        &history->failures[(history->num_failures - 1) % CT_FAILURE_HISTORY_KEPT];
    return last->generation < end->since ? NULL
                                         : ct_failure_history_first(history, last->generation);
}

int ct_job_story_text(const struct ct_job_story *story, const struct ct_job_end *end,
                      struct ct_buf *out)
{
    const struct ct_failure *first = culprit(story, end);
    if (ended_well(end)) {
        return 0;
    }
    if (first != NULL) {
        int rc = add_first(story, first, out);
        if (rc != 0) {
            return rc;
        }
        add_later(&story->history, first, out);
    }
    if (story->why[0] != '\0') {
        ct_buf_addf(out, CT_REPORT_PREFIX "the job ends: ");
        add_clean(story->why, out);
        ct_buf_addf(out, "\n");
    }
    if (end->exit_code == CT_EXIT_RDZV_TIMEOUT) {
        ct_buf_addf(out, CT_REPORT_PREFIX
                    "what to do: start ctrun on the missing nodes, with the same address "
                    "and --rdzv-id; --rdzv-conf join_timeout=SECONDS waits longer\n");
    }
    if (end->exit_code == CT_EXIT_NODE_LOST && end->fixed_nodes && first != NULL &&
        first->rank < 0) {
        ct_buf_addf(out, CT_REPORT_PREFIX
                    "what to do: --nnodes MIN:MAX or --spares lets the job outlive a machine\n");
    }
    if (end->store_lost && first == NULL) {
        ct_buf_addf(out, CT_REPORT_PREFIX
                    "what to do: --rdzv-conf failover=1 and a token, on every machine, let the job "
                    "outlive the machine of its store\n");
    }
    add_rounds(&story->history, first, out);
    ct_hang_log_text(&story->hangs, CT_REPORT_PREFIX, out);
    add_start_up(story, out);
    return ct_buf_status(out);
}

const char *ct_job_story_outcome(const struct ct_job_end *end)
{
    return end->signo != 0 ? "stopped" : end->exit_code == 0 ? "succeeded" : "failed";
}

int ct_job_story_verdict(const struct ct_job_story *story, const struct ct_job_end *end,
                         const struct ct_failure *here, struct ct_buf *out)
{
    const struct ct_failure *elsewhere = ct_job_story_failure_elsewhere(story);
    const struct ct_failure *first = here != NULL && elsewhere == NULL ? here : culprit(story, end);
    if (end->signo != 0) {
        ct_buf_addf(out, "was ended by SIG%s, exit code %d", sigabbrev_np(end->signo),
                    end->exit_code);
    } else if (end->exit_code == 0) {
        ct_buf_addf(out, "succeeded");
        if (story->restarts > 0) {
            ct_buf_addf(out, " after %d restart%s", story->restarts,
                        story->restarts == 1 ? "" : "s");
        }
    } else if (first != NULL) {
        ct_buf_addf(out, "failed: ");
        return add_headline(first, "", out);
    } else if (story->why[0] != '\0') {
        ct_buf_addf(out, "failed: ");
        add_clean(story->why, out);
    } else {
        ct_buf_addf(out, "failed with exit code %d", end->exit_code);
    }
    return ct_buf_status(out);
}

/* ---- the report ----------------------------------------------------------------------------- */

/* Adds null when no worker has reported a step, because 0 would be a time. */
static bool add_first_step(cJSON *times, const struct ct_job_story *story)
{
    static const char name[] = "first_step_s";
    return story->first_step_ns > 0
               ? ct_json_add_number(times, name,
                                    between_s(story->first_started_ns, story->first_step_ns))
               : cJSON_AddNullToObject(times, name) != NULL;
}

static bool add_times(cJSON *root, const struct ct_job_story *story)
{
    cJSON *times = cJSON_AddObjectToObject(root, "start_up");
    return times != NULL &&
           ct_json_add_number(times, "connect_s",
                              between_s(story->begun_ns, story->first_connected_ns)) &&
           ct_json_add_number(times, "wait_s",
                              between_s(story->first_connected_ns, story->first_world_ns)) &&
           ct_json_add_number(times, "spawn_s",
                              between_s(story->first_world_ns, story->first_started_ns)) &&
           ct_json_add_number(times, "warm", story->first_warm) && add_first_step(times, story) &&
           ct_json_add_name(times, "waited_for", story->waited);
}

/* Takes `item`, which may be NULL. */
static int add_item(cJSON *root, const char *name, cJSON *item)
{
    if (cJSON_AddItemToObject(root, name, item)) {
        return 0;
    }
    cJSON_Delete(item);
    return CT_ENOMEM;
}

/* Gives the text with each byte of an unwanted character as \xNN; NULL when memory is out. */
static const char *escape(const char *text, struct ct_buf *out)
{
    ct_buf_reset(out);
    while (*text != '\0') {
        /* cJSON escapes line breaks and the other control characters of ASCII. */
        size_t unwanted = (unsigned char)*text >= ' ' ? ct_text_unwanted(text) : 0;
        for (size_t i = 0; i < unwanted; i++) {
            ct_buf_addf(out, "\\x%02x", (unsigned char)text[i]);
        }
        if (unwanted == 0) {
            ct_buf_add(out, text, 1);
        }
        text += unwanted > 0 ? unwanted : 1;
    }
    return ct_buf_status(out) == 0 ? ct_buf_cstr(out) : NULL;
}

/* Makes the texts of `item` and all below it harmless for a terminal. They quote what workers
 * wrote, and a character that reverses the direction of writing would make the report look
 * different. */
static int clean_texts(cJSON *item)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = 0;
    if (cJSON_IsString(item)) {
        const char *escaped = escape(item->valuestring, &text);
        bool same = escaped != NULL && strcmp(escaped, item->valuestring) == 0;
        if (escaped == NULL || (!same && cJSON_SetValuestring(item, escaped) == NULL)) {
            rc = CT_ENOMEM;
        }
    }
    for (cJSON *child = item->child; rc == 0 && child != NULL; child = child->next) {
        rc = clean_texts(child);
    }
    ct_buf_fini(&text);
    return rc;
}

/* What --warm has done on this machine. Missing without it. */
static bool add_warm(cJSON *root, const struct ct_job_end *end)
{
    const struct ct_warm_facts *warm = &end->warm;
    if (warm->wanted == 0) {
        return true;
    }
    cJSON *item = cJSON_AddObjectToObject(root, "warm");
    return item != NULL && ct_json_add_number(item, "wanted", warm->wanted) &&
           ct_json_add_text(item, "state", ct_msg_making_name(warm->making)) &&
           ct_json_add_number(item, "workers", warm->workers) &&
           ct_json_add_number(item, "workers_in_all", end->warm_in_all) &&
           ct_json_add_number(item, "mib", warm->mib) && ct_json_add_name(item, "off", warm->off) &&
           ct_json_add_name(item, "cold", warm->cold);
}

static int add_members(cJSON *root, const struct ct_job_story *story, const struct ct_job_end *end)
{
    const struct ct_failure *first = ended_well(end) ? NULL : culprit(story, end);
    cJSON *failure = NULL, *history = NULL;
    int rc = first != NULL ? ct_failure_to_json(first, &failure) : 0;
    if (rc != 0) {
        return rc;
    }
    rc = add_item(root, "first_failure", failure != NULL ? failure : cJSON_CreateNull());
    if (rc != 0) {
        return rc;
    }
    rc = ct_failure_history_to_json(&story->history, &history);
    if (rc != 0) {
        return rc;
    }
    rc = add_item(root, "story", history);
    if (rc != 0) {
        return rc;
    }
    if (end->preflight != NULL) {
        rc = add_item(root, "preflight", cJSON_Duplicate(end->preflight, true));
        if (rc != 0) {
            return rc;
        }
    }
    rc = clean_texts(root); /* ct_json_add_name() escapes the texts that follow */
    if (rc != 0) {
        return rc;
    }
    bool ok = ct_json_add_name(root, "run_id", end->run_id) &&
              ct_json_add_name(root, "host", end->host) &&
              ct_json_add_number(root, "exit_code", end->exit_code) &&
              ct_json_add_number(root, "signal", end->signo) &&
              ct_json_add_number(root, "node_rank", story->worlds > 0 ? story->node_rank : -1) &&
              ct_json_add_number(root, "generation", story->generation) &&
              ct_json_add_number(root, "restarts", story->restarts) &&
              ct_json_add_number(root, "max_restarts", end->max_restarts) &&
              ct_json_add_name(root, "why", story->why) && add_times(root, story) &&
              add_warm(root, end);
    return ok ? ct_hang_log_to_json(&story->hangs, root) : CT_ENOMEM;
}

int ct_job_story_json(const struct ct_job_story *story, const struct ct_job_end *end,
                      struct ct_buf *out)
{
    cJSON *root = cJSON_CreateObject();
    if (root == NULL) {
        return CT_ENOMEM;
    }
    int rc = add_members(root, story, end);
    if (rc == 0) {
        rc = ct_json_print(root, out);
    }
    cJSON_Delete(root);
    return rc;
}
