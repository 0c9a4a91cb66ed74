/* SPDX-License-Identifier: Apache-2.0
 *
 * Has a worker missed a deadline that it has set itself? These are the timers of PyTorch's
 * torch.distributed.elastic.timer: a worker says by when it will have left a scope, and is ended if
 * it has not left it by then. Unlike in hang.h, the deadline is the worker's own, and its progress
 * does not matter. The worker writes lines of JSON,
 *
 *     {"version": 1, "pid": 42, "scope_id": "train.py#7", "expiration_time": 1.7e9, "signal": 9}
 *
 * with Unix time; a negative expiration_time releases the timer. Pure: lines and times go in, the
 * worker to end comes out. The lines may hold anything, because a worker writes them.
 */
#ifndef CT_LAUNCHER_HANG_FILE_TIMER_H
#define CT_LAUNCHER_HANG_FILE_TIMER_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The client refuses to write more than PIPE_BUF bytes, and adds the line's end. */
#define CT_FILE_TIMER_LINE_MAX 4097
/* Per worker. Nested scopes in threads and data loaders need some; more than this is a leak. */
#define CT_FILE_TIMERS_MAX 256

/* ---- lines ----------------------------------------------------------------------------------- */

/* Zeroed memory is at the beginning of a line. */
struct ct_file_timer_lines {
    char text[CT_FILE_TIMER_LINE_MAX + 1];
    size_t len;
    bool too_long; /* the rest of this line is passed over */
};

/* Takes at most `len` bytes and stops at the end of a line. Returns how many bytes it took. Sets
 * *line to the line that has ended, without '\n' and with a '\0', valid until the next call; or to
 * NULL when no line has ended, or the line was too long. */
size_t ct_file_timer_cut(struct ct_file_timer_lines *lines, const char *bytes, size_t len,
                         const char **line);

struct ct_file_timer_request {
    pid_t pid;      /* 1 or more */
    double expires; /* Unix time; negative = release */
    int signal;     /* 0 = none: the timer ends nobody */
    char scope[CT_FILE_TIMER_LINE_MAX + 1];
};

/* CT_EFORMAT, with the reason. */
CT_MUST_CHECK int ct_file_timer_parse(const char *line, struct ct_file_timer_request *out,
                                      struct ct_err *err);

/* ---- the table ------------------------------------------------------------------------------- */

struct ct_file_timers_worker;

struct ct_file_timers {
    int workers;
    struct ct_file_timers_worker *worker; /* by local rank */
    int64_t next_ns;                      /* when to step at the latest; INT64_MAX = never */
};

CT_MUST_CHECK int ct_file_timers_init(struct ct_file_timers *timers, int workers);
void ct_file_timers_fini(struct ct_file_timers *timers); /* zeroed memory is allowed */

/* Forgets what a worker of an earlier generation has left. */
void ct_file_timers_reset(struct ct_file_timers *timers, int local_rank);

/* Sets or releases the timer of this process and scope. `unix_now` and `now_ns` are the same moment
 * on two clocks. CT_ELIMIT when the worker has CT_FILE_TIMERS_MAX timers; CT_ENOMEM. */
CT_MUST_CHECK int ct_file_timers_take(struct ct_file_timers *timers, int local_rank,
                                      const struct ct_file_timer_request *request, int64_t now_ns,
                                      double unix_now);

/* Forgets the timers of processes that are not there any more, as `is_there` says. */
typedef bool (*ct_file_timer_pid_fn)(void *data, int local_rank, pid_t pid);
void ct_file_timers_sweep(struct ct_file_timers *timers, int local_rank,
                          ct_file_timer_pid_fn is_there, void *data);

struct ct_file_timer_due {
    int local_rank;
    pid_t pid;
    int signal; /* 0 = the timer asks for none */
    /* An earlier signal has had its time to end the worker, which is `grace_ns`, or
     * CT_STOP_GIVE_UP_MS for SIGKILL. The caller checks whether the worker still lives. */
    bool again;
    int64_t late_ns;
    char scope[CT_FILE_TIMER_LINE_MAX + 1]; /* "" when `again` */
};

/* Gives the next timer or signal that is due, and forgets it together with the worker's other
 * timers that have expired. Returns false when nothing is due: call it until then. */
bool ct_file_timers_due(struct ct_file_timers *timers, int64_t now_ns, int64_t grace_ns,
                        struct ct_file_timer_due *out);

#endif
