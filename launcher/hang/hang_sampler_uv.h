/* SPDX-License-Identifier: Apache-2.0
 *
 * Hang detection on a libuv loop: takes samples of the workers once a second, gives them to hang.h,
 * and passes its verdict on in words.
 *
 * What a sample costs: one read for many progress pages. Only workers without a page, and all
 * workers of a job that has stood still for half of its timeout, are also looked up in /proc. That
 * is done so seldom that it takes at most a hundredth of one CPU.
 */
#ifndef CT_LAUNCHER_HANG_HANG_SAMPLER_UV_H
#define CT_LAUNCHER_HANG_HANG_SAMPLER_UV_H

#include "common/err.h"
#include "launcher/hang/hang.h"
#include "launcher/hang/slow.h"
#include "launcher/worker/progress_reader.h"

#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct ct_hang_sampler;

/* Returns the pid of a living worker, else 0. */
typedef pid_t (*ct_hang_sampler_pid_fn)(void *data, int local_rank);

/* A verdict in words. */
struct ct_hang_words {
    const char *text;         /* describes it in lines that begin with `prefix` */
    const char *why;          /* the reason alone, in a clause */
    const char *kernel_stack; /* of the suspect, in indented lines; "" = it is not known */
};

/* All is borrowed for the call. ct_hang_sampler_reset() and ct_hang_sampler_stop() may be called
 * inside. */
typedef void (*ct_hang_sampler_verdict_fn)(void *data, const struct ct_hang_verdict *verdict,
                                           const struct ct_hang_words *words);

/* A sample was taken. If it has brought a verdict, that is told next. ct_hang_sampler_is_over() may
 * be called inside. */
typedef void (*ct_hang_sampler_sampled_fn)(void *data);

/* A rank uses the CPU while all others wait for it (ct_hang_busy_alone()). Called at each sample as
 * long as that lasts. ct_hang_sampler_take_loop() may be called inside. */
typedef void (*ct_hang_sampler_busy_fn)(void *data, int local_rank);

/* A rank works while the others wait for it, step after step. Called once in a generation. */
typedef void (*ct_hang_sampler_slow_fn)(void *data, const struct ct_slow_verdict *verdict);

struct ct_hang_sampler_options {
    int workers;
    int first_rank;                            /* global rank of local rank 0 */
    bool whole_job;                            /* no other machine takes part */
    int64_t timeout_ns;                        /* 0 = auto, -1 = look only for a slow rank */
    double slow_factor;                        /* 0 = look only for hangs */
    const struct ct_progress_reader *progress; /* borrowed until the close callback */
    const char *prefix;                        /* of each line of text; borrowed as well */
    ct_hang_sampler_pid_fn pid_of;
    ct_hang_sampler_verdict_fn on_verdict;
    ct_hang_sampler_sampled_fn on_sampled;
    ct_hang_sampler_busy_fn on_busy_alone;
    ct_hang_sampler_slow_fn on_slow;
    void *data;
};

/* Begins to watch. CT_ENOMEM. Gives *out. */
CT_MUST_CHECK int ct_hang_sampler_start(uv_loop_t *loop,
                                        const struct ct_hang_sampler_options *options,
                                        struct ct_hang_sampler **out, struct ct_err *err);

/* A new generation of workers, which may have other ranks. NULL is allowed. */
void ct_hang_sampler_reset(struct ct_hang_sampler *sampler, int first_rank, bool whole_job);

/* Gives what the last sample says, for the other machines; ranks are global. NULL is allowed. */
void ct_hang_sampler_vote(const struct ct_hang_sampler *sampler, struct ct_hang_vote *out);

/* Takes the verdict that the machines of the job drew together: a worker of this machine holds the
 * job up. on_verdict is called as for a verdict of this machine. Returns false, and calls nothing,
 * if the worker has made progress since, or if a verdict stands that says as much. */
bool ct_hang_sampler_take_job_verdict(struct ct_hang_sampler *sampler,
                                      const struct ct_hang_vote *verdict);

/* The stacks have named a suspect: from now on this verdict stands. */
void ct_hang_sampler_name(struct ct_hang_sampler *sampler, const struct ct_hang_verdict *verdict);

/* Forgets the verdict that stands, because ranks of another machine have made progress. */
void ct_hang_sampler_forget(struct ct_hang_sampler *sampler);

/* Is the hang of this verdict over, as the last sample says? As ct_hang_is_over(). */
bool ct_hang_sampler_is_over(const struct ct_hang_sampler *sampler,
                             const struct ct_hang_verdict *verdict);

/* Takes the caller's word that this rank does not leave one place of its program. Calls on_verdict.
 */
void ct_hang_sampler_take_loop(struct ct_hang_sampler *sampler, int local_rank);

/* Takes no samples until ct_hang_sampler_resume(), because the workers are asked where they stand.
 */
void ct_hang_sampler_pause(struct ct_hang_sampler *sampler);

/* Returns true if no rank has made progress since the verdict. */
bool ct_hang_sampler_resume(struct ct_hang_sampler *sampler);

/* Ends; the memory goes in the close callback. NULL is allowed. */
void ct_hang_sampler_stop(struct ct_hang_sampler *sampler);

#endif
