/* SPDX-License-Identifier: Apache-2.0
 *
 * What ctrun does about a hang. It does not decide whether there is one: hang.h does that for the
 * workers of this machine, hang_vote.h for the workers of all machines. A verdict is printed, then
 * where the workers stand (stack_asker_uv.h). Until it is over, the status tells of it. With
 * --on-hang restart or abort the suspect is killed afterwards, so that it is a failed worker like
 * any other, with CT_END_HUNG for its end. A Python program that told nobody where it stands is
 * aborted first, for then it writes its own stack.
 */
#ifndef CT_LAUNCHER_MONITOR_HANG_MONITOR_UV_H
#define CT_LAUNCHER_MONITOR_HANG_MONITOR_UV_H

#include "common/err.h"
#include "launcher/hang/hang_sampler_uv.h"
#include "launcher/hang/hang_standing.h"
#include "launcher/monitor/stack_asker_uv.h"
#include "launcher/monitor/worker_uv.h"
#include "launcher/report/hang_log.h"

#include <stdbool.h>

/* Zeroed memory watches nothing. Everything is borrowed. */
struct ct_hang_monitor {
    const struct ct_job_spec *job;
    const struct ct_worker_env *worker_env;
    const struct ct_progress_reader *progress;
    struct ct_output *output;
    struct ct_worker *workers; /* by local rank */
    const bool *stopping;      /* the workers were told to end, so no progress is no hang */
    struct ct_stack_asker *asker;
    struct ct_hang_sampler *sampler;
    struct ct_probe_task *task;     /* asks where the workers stand; NULL = none does */
    struct ct_hang_verdict verdict; /* that is explained or acted upon */
    enum ct_hang_duty {
        CT_HANG_ACT,   /* when the task has ended, kill the suspect */
        CT_HANG_TELL,  /* ... nothing more */
        CT_HANG_STAND, /* ... tell the membership where the workers stand, and await its word */
    } duty;
    bool awaits;                      /* the membership was told where the workers stand */
    struct ct_hang_standing standing; /* the hang that was printed last, until it is over */
    bool has_killed;                  /* a suspect of this generation */
    struct ct_hang_log *log;          /* of the job */
    char *kernel_stack;               /* of the suspect, to be printed after `task`; NULL = none */
    int kernel_rank;                  /* its local rank */
    void (*on_report)(void *data);    /* `standing` has changed: the membership should hear of it */
    /* Tells the membership where the workers stand; `stands` NULL = nothing is known. */
    void (*on_stands)(void *data, const struct ct_stands *stands);
    void *data;
    bool is_open;
    uv_timer_t kill_timer; /* runs while a suspect writes its stack */
    int aborted_rank;      /* the local rank of that suspect */
    struct ct_hang_loop {
        struct ct_probe_task *task; /* looks at the rank that alone uses the CPU */
        int local_rank;
        int seen;        /* so many looks in a row have found `stack` */
        int64_t next_ns; /* when to look again */
        char *stack;     /* that was seen last; NULL = none */
        bool told;       /* a verdict was given for it */
    } loop;
};

/* Call it with the other fields filled in. Does nothing without --hang-timeout and --slow-factor.
 */
CT_MUST_CHECK int ct_hang_monitor_open(struct ct_hang_monitor *monitor, uv_loop_t *loop,
                                       struct ct_err *err);

/* Starts anew, because a new generation of workers begins. */
void ct_hang_monitor_reset(struct ct_hang_monitor *monitor);

/* A worker has ended that was not told to. */
void ct_hang_monitor_take_end(struct ct_hang_monitor *monitor, bool success);

/* Gives what the next beat tells the other machines about the workers here. */
void ct_hang_monitor_vote(const struct ct_hang_monitor *monitor, struct ct_hang_vote *out);

/* Gives what the next beat tells about a hang that was reported, for the status. */
void ct_hang_monitor_report(const struct ct_hang_monitor *monitor, struct ct_hang_report *out);

/* Takes the verdict on all machines' votes from the membership. `text` is as in struct ct_msg. */
void ct_hang_monitor_take_job_verdict(struct ct_hang_monitor *monitor,
                                      const struct ct_hang_vote *given, const char *text);

void ct_hang_monitor_close(struct ct_hang_monitor *monitor); /* repeated calls are allowed */

#endif
