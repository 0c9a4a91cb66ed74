/* SPDX-License-Identifier: Apache-2.0
 *
 * `ctrun --detach`: the job goes on in a process of its own, without a terminal, and what it writes
 * goes to the file console.log in its folder (state_folder.h). The ctrun that the user has started
 * waits until the job runs or has failed to start.
 */
#ifndef CT_LAUNCHER_DETACH_DETACH_H
#define CT_LAUNCHER_DETACH_DETACH_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/detach/detached_job.h"

#include <stdbool.h>

/* Zeroed memory is a job that is not detached, for which everything below does nothing. */
struct ct_detach {
    bool begun;
    int folder; /* of the job */
    int exit;   /* its file `exit` */
    int pipe;   /* to the ctrun that waits; -1 = it has heard */
    struct ct_detached_job job;
};

/* Everything is borrowed. With --agent-stdin another ctrun has started this one: its words come
 * through standard input, the end of which ends a job that does not run yet. */
struct ct_detach_spec {
    const struct ct_options *options;
    char *const *env;
    const char *host;
    const char *run_id;
    /* Was the run id given by somebody, or drawn at random? The id of the job begins with it then.
     * If it is neither, the id does not: other jobs may have the same run id. */
    bool run_id_given, run_id_random;
};

/* A ctrun that another one has started says this in the line by which it tells that its workers
 * run. */
#define CT_DETACH_OUTPUT_IN ", its output is in "

/* Outcomes of ct_detach_begin(). */
enum { CT_DETACH_LEFT = 1 };

/* Does nothing without --detach. Forks. The new process, which runs the job, returns 0. The old one
 * returns CT_DETACH_LEFT when the job runs, or has ended before: *exit_code is 0 then, or the
 * job's. Until then it shows on `err_fd` what the job writes, and passes SIGINT, SIGTERM and
 * SIGQUIT on to it. At the end it says on `out_fd` where the job is, or on `err_fd` if that fails
 * or `out_fd` is -1: without its id the job is hard to find. An error belongs to whichever process
 * returns it. Call before any thread is started, and when standard input is not needed any more. */
CT_MUST_CHECK int ct_detach_begin(struct ct_detach *detach, const struct ct_detach_spec *spec,
                                  int out_fd, int err_fd, int *exit_code, struct ct_err *err);

/* The workers run, perhaps again; `address` (HOST:PORT) is that of the job's store now, and
 * `others` names the machines that may go on with the job when this one is lost, "" = none. NULL is
 * allowed for `detach`. */
void ct_detach_started(struct ct_detach *detach, const char *address, const char *others);

/* The job has ended with this code. */
void ct_detach_end(struct ct_detach *detach, int exit_code);

/* Writes down on this machine that it has started the job on others: `job` has the id, and where
 * the job is. CT_EBUSY: this machine has a job of this id. */
CT_MUST_CHECK int ct_detach_note(char *const *env, const char *host, struct ct_detached_job *job,
                                 struct ct_err *err);

#endif
