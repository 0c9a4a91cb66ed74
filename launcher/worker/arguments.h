/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of workers, for programs that take their place in the job as options instead of
 * from the environment: `--process_id=${rank}`. Pure.
 */
#ifndef CT_LAUNCHER_WORKER_ARGUMENTS_H
#define CT_LAUNCHER_WORKER_ARGUMENTS_H

#include "common/err.h"
#include "launcher/util/strlist.h"
#include "launcher/worker/job_ports.h"
#include "launcher/worker/worker_env.h"

/* Adds the ports that argv[1] and later ask for to *ports. Refuses what can only be a mistake:
 * CT_EINVAL or CT_ELIMIT for ${port:...} with a wrong name or too many names, CT_EINVAL for ${name}
 * that is one or two letters from a name below, or has other capital letters or blanks. The text
 * names the argument. */
CT_MUST_CHECK int ct_arguments_check(char *const *argv, struct ct_job_ports *ports,
                                     struct ct_err *err);

/* argv (borrowed) with ${rank}, ${world_size}, ${local_rank}, ${local_world_size}, ${node_rank},
 * ${nnodes}, ${master_addr}, ${master_port}, ${port:NAME} and $local_rank replaced from argv[1] on;
 * "$$" is "$", other names stay as they are (Python's string.Template.safe_substitute). `index`
 * counts the workers of this launcher. Gives *out, which starts empty. CT_ENOMEM; CT_ENOENT: the
 * number of a port is not known. */
CT_MUST_CHECK int ct_arguments_expand(char *const *argv, const struct ct_worker_env *env, int index,
                                      struct ct_strlist *out, struct ct_err *err);

#endif
