/* SPDX-License-Identifier: Apache-2.0
 *
 * What the live page shows of the workers of this node beside their progress. The last lines of
 * their output, and where they stand, are sent when the membership asks for them, because somebody
 * looks at a worker. Their memory is sent with the beats.
 *
 * Failure modes: a question of another generation, or of a kind that a newer ctrun has, gets an
 * answer that says so. Without memory there is no answer, and the asker's time runs out.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/process/proctree.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Looking at a worker takes some 10 us, so 512 workers take 5 ms. */
#define MEMORY_EVERY_NS (5 * CT_NS_PER_S)

void ct_agent_sample_memory(struct ct_agent_run *run)
{
    int64_t now_ns = ct_clock_now(NULL);
    bool first = run->workers.memory_ns == 0;
    if (!first && now_ns - run->workers.memory_ns < MEMORY_EVERY_NS) {
        return;
    }
    run->workers.memory_ns = now_ns;
    ct_oom_look(&run->workers.oom);
    for (int i = 0; i < run->agent.workers; i++) {
        struct ct_worker *worker = &run->workers.list[i];
        struct ct_proctree_entry entry;
        bool known = run->agent.states[i] == CT_WORKER_ALIVE &&
                     ct_proctree_read_pid(worker->report.pid, &entry);
        worker->report.stopped = known && entry.state == 'T';
        uint64_t pages = known ? entry.rss_pages : 0;
        uint64_t pages_of_mib = (uint64_t)(1 << 20) / (uint64_t)sysconf(_SC_PAGESIZE);
        uint64_t mib = pages / pages_of_mib + (pages % pages_of_mib > 0);
        worker->rss_mib = mib < INT_MAX ? (int)mib : INT_MAX;
    }
}

/* Less than CT_QUERY_TIMEOUT_MS, so that the answer is there in time. */
#define STACKS_BUDGET_MS 2500

/* Appends the last lines of one stream below a title; nothing if there are none. */
static int add_stream(const struct ct_output_stream *stream, const char *title, struct ct_buf *out)
{
    struct ct_buf lines = CT_BUF_INIT;
    int rc = stream != NULL ? ct_output_stream_tail(stream, "", &lines) : 0;
    if (rc == 0 && lines.len > 0) {
        rc = ct_buf_printf(out, "%s:\n%s", title, ct_buf_cstr(&lines));
    }
    ct_buf_fini(&lines);
    return rc;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* Sends the answer if there is memory for it; else the asker's time runs out. */
static void send_answer(struct ct_agent_run *run, int id, bool ok, struct ct_buf *text)
{
    struct ct_msg *msg = run->membership.msg;
    memset(msg, 0, sizeof(*msg));
    msg->type = CT_MSG_RESULT;
    msg->query.id = id;
    msg->ok = ok;
    msg->result = text->len > 0 ? ct_strndup(ct_buf_cstr(text), CT_QUERY_TEXT_MAX) : NULL;
    if (ct_buf_status(text) == 0 && (text->len == 0 || msg->result != NULL) &&
        run->membership.link != NULL) {
        ct_link_send(run->membership.link, msg);
    }
    ct_msg_fini(msg);
}

static void refuse(struct ct_agent_run *run, int id, const char *why)
{
    struct ct_buf text = CT_BUF_INIT;
    ct_buf_addf(&text, "%s", why);
    send_answer(run, id, false, &text);
    ct_buf_fini(&text);
}

static void answer_output(struct ct_agent_run *run, int id, const struct ct_worker *worker)
{
    struct ct_buf text = CT_BUF_INIT;
    if (add_stream(worker->out, "stdout", &text) == 0 &&
        add_stream(worker->err, "stderr", &text) == 0) {
        send_answer(run, id, true, &text);
    }
    ct_buf_fini(&text);
}

static void on_stacks(void *data, const struct ct_probe *probe)
{
    struct ct_agent_query_open *open = data;
    struct ct_buf text = CT_BUF_INIT;
    struct ct_explain explain = ct_stack_asker_explain(&open->run->asker, probe, open->only);
    explain.whole_job = explain.whole_job && open->only < 0;
    open->task = NULL;
    if (ct_explain_print(&explain, "", &text) == 0) {
        send_answer(open->run, open->id, true, &text);
    }
    ct_buf_fini(&text);
}

/* Asks the workers; the answer is sent when they have answered. */
static void begin_stacks(struct ct_agent_run *run, int id, int only)
{
    const struct ct_stack_question question = {
        .only = only, .suspect = only, .budget_ms = STACKS_BUDGET_MS};
    for (int i = 0; i < CT_AGENT_QUERIES_MAX; i++) {
        struct ct_agent_query_open *open = &run->queries.open[i];
        if (open->task != NULL) {
            continue;
        }
        *open = (struct ct_agent_query_open){.run = run, .id = id, .only = only};
        if (ct_stack_asker_ask(&run->asker, &question, on_stacks, open, &open->task, NULL) != 0) {
            refuse(run, id, "this machine has no memory or descriptors left to ask its workers");
        }
        return;
    }
    refuse(run, id, "the workers of this machine are being asked already; ask again");
}

void ct_agent_tell_stands(void *data, const struct ct_stands *stands)
{
    struct ct_agent_run *run = data;
    struct ct_msg *msg = run->membership.msg;
    struct ct_buf text = CT_BUF_INIT;
    memset(msg, 0, sizeof(*msg));
    msg->type = CT_MSG_STANDS;
    msg->generation = run->agent.generation;
    if (stands != NULL && ct_stands_encode(stands, &text) == 0) {
        msg->result = ct_strdup(ct_buf_cstr(&text)); /* without memory nothing is known */
    }
    ct_buf_fini(&text);
    if (run->membership.link != NULL) {
        ct_link_send(run->membership.link, msg);
    }
    ct_msg_fini(msg);
}

void ct_agent_tell_hang(void *data)
{
    ct_agent_link_beat(data);
}

void ct_agent_queries_close(struct ct_agent_run *run)
{
    for (int i = 0; i < CT_AGENT_QUERIES_MAX; i++) {
        ct_probe_task_stop(run->queries.open[i].task);
        run->queries.open[i].task = NULL;
    }
}

void ct_agent_query(struct ct_agent_run *run, const struct ct_msg_query *query, int generation)
{
    int local_rank = query->rank - run->worker_env.first_rank;
    char why[128];
    if (generation != run->agent.generation || local_rank < 0 ||
        local_rank >= run->job->resolved->workers) {
        (void)snprintf(why, sizeof(why), "rank %d does not run here now", query->rank);
        refuse(run, query->id, why);
    } else if (strcmp(query->kind, CT_QUERY_OUTPUT) == 0) {
        answer_output(run, query->id, &run->workers.list[local_rank]);
    } else if (strcmp(query->kind, CT_QUERY_STACK) == 0) {
        begin_stacks(run, query->id, local_rank);
    } else if (strcmp(query->kind, CT_QUERY_STACKS) == 0) {
        begin_stacks(run, query->id, -1);
    } else {
        (void)snprintf(why, sizeof(why), "this ctrun cannot tell the %.*s of a worker",
                       CT_QUERY_KIND_MAX, query->kind);
        refuse(run, query->id, why);
    }
}
