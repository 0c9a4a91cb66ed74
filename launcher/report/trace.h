/* SPDX-License-Identifier: Apache-2.0
 *
 * What happened on this machine, as a trace that Perfetto and chrome://tracing open: the "JSON
 * Array Format" of the Trace Event Format (Google, 2016), which is one array of events. So the
 * traces of several machines become one by putting their arrays together. Pure.
 *
 * A span is an event of type "X" (complete), which is written when it has ended. Spans of one track
 * lie within each other. The job has a track, and each worker has one.
 *
 * Times are monotonic, in nanoseconds; in the trace they are microseconds of Unix time.
 *
 * Without memory, and beyond CT_TRACE_MAX bytes, events are left out and counted.
 */
#ifndef CT_LAUNCHER_REPORT_TRACE_H
#define CT_LAUNCHER_REPORT_TRACE_H

#include "common/buf.h"
#include "common/err.h"
#include "common/progress_page.h"
#include "rendezvous/control/failure_history.h"

#include <stdbool.h>
#include <stdint.h>

/* A day of 8 workers needs less than 1 MiB. */
#define CT_TRACE_MAX ((size_t)32 << 20)

/* Spans of the job's track that have begun and not ended; they lie within each other in this order.
 */
enum ct_trace_job {
    CT_TRACE_CONNECT,    /* from the start of ctrun until the job's store has answered */
    CT_TRACE_RENDEZVOUS, /* from then, or from the end of a generation, until the next world */
    CT_TRACE_GENERATION, /* from the world to the end of all its processes */
    CT_TRACE_SPAWN,      /* the start of all workers */
    CT_TRACE_STOP,       /* from the order to stop to the end of all processes */
    CT_TRACE_JOB_SPANS,
};

struct ct_trace_worker {
    int rank;           /* in the generation that runs */
    int64_t pid;        /* 0: the process has ended, or none was started */
    int64_t started_ns; /* of the process, or of this generation in it */
    bool stepped;       /* the span of the start-up has been written */
    bool seen;          /* `last` was filled in */
    struct ct_progress last;
    int64_t checkpoint_ns; /* the beginning of the last checkpoint that was written */
    int64_t phase_ns;      /* since when the worker has been in this phase of this step */
    int64_t sampled_ns;    /* when it was seen there last */
};

/* Zeroed memory records nothing. */
struct ct_trace {
    struct ct_trace_worker *workers; /* owned; by local rank */
    int count;
    int64_t unix_ns;      /* what to add to a monotonic time */
    uint32_t process;     /* names this ctrun in the trace; two machines hardly have the same */
    struct ct_buf events; /* each one followed by ",\n" */
    uint64_t dropped;
    int64_t open_ns[CT_TRACE_JOB_SPANS]; /* when it began; 0: it has not */
    int generation, restarts, nodes, world_size;
    int64_t counted_ns, interval_ns; /* of the counters */
    uint64_t counts;
};

/* `unix_ns` is the time of day at the monotonic time 0, `host` the name of this machine, `pid` that
 * of this ctrun. CT_ENOMEM. */
CT_MUST_CHECK int ct_trace_init(struct ct_trace *trace, int workers, int64_t unix_ns,
                                const char *host, int64_t pid);
void ct_trace_fini(struct ct_trace *trace); /* NULL is allowed */

/* The following do nothing if the trace records nothing. To begin a span that has begun does
 * nothing. */
void ct_trace_job_begin(struct ct_trace *trace, enum ct_trace_job span, int64_t now_ns);

/* `why` is shown with the span; NULL adds nothing. */
void ct_trace_job_end(struct ct_trace *trace, enum ct_trace_job span, const char *why,
                      int64_t now_ns);

/* Ends the wait and begins a generation. */
void ct_trace_world(struct ct_trace *trace, int generation, int restarts, int nodes, int world_size,
                    int64_t now_ns);

/* A process was started, or goes on in another generation. */
void ct_trace_worker_begin(struct ct_trace *trace, int local_rank, int rank, int64_t pid,
                           int64_t now_ns);

/* It has ended, or has left its generation; `how` says it in words. */
void ct_trace_worker_end(struct ct_trace *trace, int local_rank, const char *how, int64_t now_ns);

/* Takes what the progress pages say: valid[i] says whether pages[i] was written. A phase in which a
 * worker was seen twice in the same step becomes a span. So does each checkpoint, unless the next
 * one begins before it is seen. Steps, losses and rates become counters. */
void ct_trace_sample(struct ct_trace *trace, const struct ct_progress *pages, const bool *valid,
                     int64_t now_ns);

/* Something that takes no time. local_rank -1: of the whole job. */
void ct_trace_instant(struct ct_trace *trace, int local_rank, const char *text, int64_t now_ns);

/* Ends all spans, adds the failures of other machines (node_rank is this one's), and appends the
 * document. CT_ENOMEM. */
CT_MUST_CHECK int ct_trace_print(struct ct_trace *trace, const char *host, int node_rank,
                                 const struct ct_failure_history *history, int64_t now_ns,
                                 struct ct_buf *out);

#endif
