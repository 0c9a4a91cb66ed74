/* SPDX-License-Identifier: Apache-2.0
 *
 * What a job needs before it can begin, out of its options and the environment.
 */
#ifndef CT_LAUNCHER_SETUP_PREPARE_H
#define CT_LAUNCHER_SETUP_PREPARE_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/process/guard.h"
#include "launcher/process/logdir.h"
#include "launcher/setup/machine.h"
#include "launcher/worker/command.h"
#include "rendezvous/admission/token.h"

#include <stdbool.h>
#include <sys/resource.h>

/* Opens /dev/null on every descriptor 0-2 that is closed. Otherwise a socket would get its number,
 * and workers would inherit the socket as their standard input or output. Returns false if standard
 * output was one of them. */
bool ct_prepare_standard_fds(void);

/* Unblocks all signals: a launcher that blocks some for its own threads hands that on, and ctrun
 * would hear neither a request to end nor the end of a child. Ignored ones stay ignored, as by
 * nohup(1). Ignores SIGPIPE and SIGXFSZ, because neither a reader that goes away (ctrun | head) nor
 * `ulimit -f` must take the job with it. */
void ct_prepare_signals(void);

/* The id of the job: the one that was decided, or a random one, which goes to `uuid`. Gives *out,
 * borrowed from one of these. */
CT_MUST_CHECK int ct_prepare_run_id(const struct ct_resolved *resolved, char uuid[CT_UUID_TEXT],
                                    const char **out, struct ct_err *err);

/* Finds the program. `own_dir` is the folder of ctrun's executable, "" when unknown. On failure
 * also sets *exit_code, which is a shell's for such a command; errors as ct_command_resolve(). */
CT_MUST_CHECK int ct_prepare_command(const struct ct_options *options, const char *own_dir,
                                     char *const *env, struct ct_command *out, int *exit_code,
                                     struct ct_err *err);

/* Raises the limit of open files. `original` gets the limit from before, which workers get back.
 * CT_ELIMIT when the limit is too low for so many workers. */
CT_MUST_CHECK int ct_prepare_open_files(int workers, struct rlimit *original, struct ct_err *err);

/* Overwrites the job's secret in the environment, so that nothing started later inherits it and
 * ps(1) does not show it. */
void ct_prepare_wipe_token(char *const *env);

/* Has the user given the job's secret, in one of these ways? */
bool ct_prepare_has_token(const struct ct_options *options, char *const *env);

/* A job that meets through etcd needs a token and an id: without an id of its own, it would become
 * one job with another one in that etcd. CT_EINVAL. */
CT_MUST_CHECK int ct_prepare_etcd_check(const struct ct_options *options,
                                        const struct ct_resolved *resolved, char *const *env,
                                        struct ct_err *err);

/* Gives the job's secret: from standard input with --agent-stdin, otherwise from --token-file or
 * the environment, where it is then overwritten. Its length is 0 when there is none. Errors as
 * ct_token_read(). */
CT_MUST_CHECK int ct_prepare_token(const struct ct_options *options, char *const *env,
                                   struct ct_token *out, struct ct_err *err);

/* Does the user want the files of this run? */
bool ct_prepare_wants_logs(const struct ct_resolved *resolved);

/* Refuses --report and --trace over a file that is no JSON, which may be the user's program: the
 * option's file was forgotten. CT_EINVAL. */
CT_MUST_CHECK int ct_prepare_outputs(const struct ct_options *options, struct ct_err *err);

/* Checks that the files of --report and --trace can be written, because an error at the end of the
 * job would come too late. Then makes the folder for log and error files. Errors as
 * ct_logdir_init() and ct_file_replace_check(). Gives *out. */
CT_MUST_CHECK int ct_prepare_logdir(const struct ct_options *options,
                                    const struct ct_resolved *resolved, char *const *env,
                                    const char *run_id, struct ct_logdir *out, struct ct_err *err);

/* Starts the process that cleans up if ctrun is killed; it removes a temporary log folder that the
 * user did not ask for. Errors as ct_guard_start(). Gives *out. */
CT_MUST_CHECK int ct_prepare_guard(const struct ct_resolved *resolved,
                                   const struct ct_logdir *logdir, const struct ct_cookie *cookie,
                                   struct ct_guard **out, struct ct_err *err);

#endif
