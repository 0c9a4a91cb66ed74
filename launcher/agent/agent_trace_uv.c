/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: the other files agent_*_uv.c tell the trace (trace.h) what happens, a timer reads the
 * progress pages, and the end of the job writes the file. Without --trace there is no timer, and
 * nothing is recorded.
 *
 * Failure modes: if the file cannot be written, a warning says so. A ctrun that is killed writes
 * none.
 *
 * Who frees: ct_agent_trace_close().
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* A phase that a worker stays in for two of these is shown. The read takes some microseconds. */
#define SAMPLE_MS 100

static void on_sample_due(uv_timer_t *timer)
{
    struct ct_agent_run *run = timer->data;
    struct ct_agent_trace *trace = &run->trace;
    int64_t now_ns = ct_clock_now(NULL);
    ct_progress_reader_read_all(&run->workers.progress, now_ns, trace->pages, trace->valid);
    ct_trace_sample(&trace->data, trace->pages, trace->valid, now_ns);
}

int ct_agent_trace_open(struct ct_agent_run *run, struct ct_err *err)
{
    struct ct_agent_trace *trace = &run->trace;
    const struct ct_job_spec *job = run->job;
    size_t count = (size_t)job->resolved->workers;
    if (job->options->trace == NULL) {
        return 0;
    }
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    int64_t unix_ns = (int64_t)now.tv_sec * CT_NS_PER_S + now.tv_nsec - ct_clock_now(NULL);
    trace->pages = ct_calloc(count, sizeof(*trace->pages));
    trace->valid = ct_calloc(count, sizeof(*trace->valid));
    if (trace->pages == NULL || trace->valid == NULL ||
        ct_trace_init(&trace->data, (int)count, unix_ns, job->machine->host, uv_os_getpid()) != 0) {
        return ct_err_set(err, CT_ENOMEM, "--trace: out of memory for %zu workers", count);
    }
    ct_trace_job_begin(&trace->data, CT_TRACE_CONNECT, job->begun_ns);
    CT_ASSERT(uv_timer_init(&run->loop, &trace->timer) == 0); /* cannot fail */
    trace->timer.data = run;
    (void)uv_timer_start(&trace->timer, on_sample_due, SAMPLE_MS, SAMPLE_MS);
    return 0;
}

void ct_agent_trace_worker_begin(struct ct_agent_run *run, int local_rank)
{
    const struct ct_report_worker *report = &run->workers.list[local_rank].report;
    ct_trace_worker_begin(&run->trace.data, local_rank, report->rank, report->pid,
                          ct_clock_now(NULL));
}

void ct_agent_trace_worker_end(struct ct_agent_run *run, int local_rank)
{
    struct ct_buf how = CT_BUF_INIT;
    ct_worker_end_describe(&run->workers.list[local_rank].report.end, &how);
    const char *text = ct_buf_status(&how) == 0 ? ct_buf_cstr(&how) : NULL;
    ct_trace_worker_end(&run->trace.data, local_rank, text != NULL ? text : "", ct_clock_now(NULL));
    ct_buf_fini(&how);
}

void ct_agent_trace_stopped(struct ct_agent_run *run)
{
    struct ct_trace *trace = &run->trace.data;
    int64_t now_ns = ct_clock_now(NULL);
    for (int i = 0; i < run->workers.count; i++) {
        if (run->workers.list[i].kept) {
            ct_trace_worker_end(trace, i, "goes on in the next generation", now_ns);
        }
    }
    ct_trace_job_end(trace, CT_TRACE_SPAWN, NULL, now_ns);
    ct_trace_job_end(trace, CT_TRACE_STOP, NULL, now_ns);
    const char *why = run->agent.failure.known ? run->report.failure.what : run->report.stop_why;
    ct_trace_job_end(trace, CT_TRACE_GENERATION, why[0] != '\0' ? why : NULL, now_ns);
}

void ct_agent_trace_signal(struct ct_agent_run *run, int signo)
{
    char text[32];
    const char *name = sigabbrev_np(signo);
    (void)snprintf(text, sizeof(text), "SIG%s received", name != NULL ? name : "?");
    ct_trace_instant(&run->trace.data, -1, text, ct_clock_now(NULL));
}

void ct_agent_trace_write(struct ct_agent_run *run)
{
    const struct ct_job_story *story = &run->report.story;
    struct ct_buf text = CT_BUF_INIT;
    struct ct_err err = {0};
    if (run->job->options->trace == NULL) {
        return;
    }
    int rc = ct_trace_print(&run->trace.data, run->job->machine->host,
                            story->worlds > 0 ? story->node_rank : -1, &story->history,
                            ct_clock_now(NULL), &text);
    if (rc == 0) {
        rc = ct_file_replace(run->job->options->trace, ct_buf_bytes(&text), text.len, &err);
    } else {
        rc = ct_err_set(&err, rc, "out of memory");
    }
    if (rc != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "--trace: %s", err.text);
    }
    ct_buf_fini(&text);
}

void ct_agent_trace_close(struct ct_agent_trace *trace)
{
    if (trace->timer.loop != NULL && !uv_is_closing((uv_handle_t *)&trace->timer)) {
        uv_close((uv_handle_t *)&trace->timer, NULL);
    }
    ct_trace_fini(&trace->data);
    ct_free(trace->pages);
    ct_free(trace->valid);
    trace->pages = NULL;
    trace->valid = NULL;
}
