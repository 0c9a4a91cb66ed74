/* SPDX-License-Identifier: Apache-2.0
 *
 * What the live page shows of the workers of this node beside their progress. The last lines of
 * their output are sent when the membership asks for them, because somebody looks at a worker.
 * Their memory is sent with the beats.
 *
 * Failure modes: a question of another generation, or of a kind that a newer ctrun has, gets an
 * answer that says so. Without memory there is no answer, and the asker's time runs out.
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/process/proctree.h"

#include <limits.h>
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
    for (int i = 0; i < run->agent.workers; i++) {
        struct ct_worker *worker = &run->workers.list[i];
        struct ct_proctree_entry entry;
        bool known = run->agent.states[i] == CT_WORKER_ALIVE &&
                     ct_proctree_read_pid(worker->report.pid, &entry);
        uint64_t pages = known ? entry.rss_pages : 0;
        uint64_t pages_of_mib = (uint64_t)(1 << 20) / (uint64_t)sysconf(_SC_PAGESIZE);
        uint64_t mib = pages / pages_of_mib + (pages % pages_of_mib > 0);
        worker->rss_mib = mib < INT_MAX ? (int)mib : INT_MAX;
    }
}

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

/* Sets `text` to the answer, or to why there is none, and *ok. CT_ENOMEM. */
static int answer(const struct ct_agent_run *run, const struct ct_msg_query *query, int generation,
                  bool *ok, struct ct_buf *text)
{
    int local_rank = query->rank - run->worker_env.first_rank;
    *ok = false;
    if (generation != run->agent.generation || local_rank < 0 ||
        local_rank >= run->job->resolved->workers) {
        return ct_buf_printf(text, "rank %d does not run here now", query->rank);
    }
    if (strcmp(query->kind, CT_QUERY_OUTPUT) != 0) {
        return ct_buf_printf(text, "this ctrun cannot tell the %s of a worker", query->kind);
    }
    const struct ct_worker *worker = &run->workers.list[local_rank];
    *ok = true;
    int rc = add_stream(worker->out, "stdout", text);
    return rc == 0 ? add_stream(worker->err, "stderr", text) : rc;
}

void ct_agent_query(struct ct_agent_run *run, const struct ct_msg_query *query, int generation)
{
    struct ct_msg *msg = run->membership.msg;
    struct ct_buf text = CT_BUF_INIT;
    bool ok;
    if (answer(run, query, generation, &ok, &text) != 0) {
        goto out;
    }
    memset(msg, 0, sizeof(*msg));
    msg->type = CT_MSG_RESULT;
    msg->query.id = query->id;
    msg->ok = ok;
    msg->result = text.len > 0 ? ct_strndup(ct_buf_cstr(&text), CT_QUERY_TEXT_MAX) : NULL;
    if (text.len == 0 || msg->result != NULL) {
        ct_link_send(run->membership.link, msg);
    }
    ct_msg_fini(msg);
out:
    ct_buf_fini(&text);
}
