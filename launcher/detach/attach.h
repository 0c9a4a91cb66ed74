/* SPDX-License-Identifier: Apache-2.0
 *
 * `ctrun --attach`: shows the last lines of a detached job of this machine and what it writes from
 * then on, until it ends.
 */
#ifndef CT_LAUNCHER_DETACH_ATTACH_H
#define CT_LAUNCHER_DETACH_ATTACH_H

#include "launcher/detach/detached_job.h"

/* No exit code. */
#define CT_ATTACH_VIA (-1)

/* `word` names the job as for ct_detached_list_choose(). Says on `err_fd` what happens. Returns the
 * exit code: that of the job, 128 + SIGINT when the user has left it, CT_EXIT_NODE_LOST if its
 * ctrun was killed, CT_EXIT_USAGE if none or several jobs are meant, CT_EXIT_SETUP if it cannot be
 * shown.
 */
int ct_attach(const char *word, char *const *env, const char *host, int out_fd, int err_fd,
              struct ct_detached_job *via);

#endif
