/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the file to execute for what the user calls the program.
 *
 *     x.py or --module    the interpreter (PYTHON_EXEC, else python3 of PATH) with -u
 *     a name with '/'     that file
 *     any other name      in PATH, else a program of ctrun: beside its executable or in libexec
 *
 * The program is looked up once, before any worker starts, so that a wrong name gives one error.
 */
#ifndef CT_LAUNCHER_WORKER_COMMAND_H
#define CT_LAUNCHER_WORKER_COMMAND_H

#include "common/err.h"
#include "launcher/cli/options.h"
#include "launcher/util/strlist.h"
#include "launcher/worker/job_ports.h"

/* Zeroed memory is an empty command. */
struct ct_command {
    char *path;                /* what to execute */
    struct ct_strlist argv;    /* argv[0] included; borrows from the options */
    struct ct_job_ports ports; /* that the arguments ask for */
    bool python;               /* argv is: interpreter, -u, perhaps -m, program, arguments */
};

void ct_command_fini(struct ct_command *command);

/* `own_dir` is the folder of ctrun's executable, NULL when unknown. CT_ENOENT (not found: exit
 * 127), CT_EPERM (not executable: exit 126), CT_EINVAL and CT_ELIMIT (an argument refers to what
 * does not exist: exit 2), CT_ENOMEM; the text names the program or the argument. Gives *out. */
CT_MUST_CHECK int ct_command_resolve(const struct ct_options *options, char *const *env,
                                     const char *own_dir, struct ct_command *out,
                                     struct ct_err *err);

/* Finds a file of ctrun's own that is not executable, by its name below ctrun's folder in a build
 * folder, or below its libexec folder. Gives *out, to be freed. CT_ENOENT, CT_EPERM, CT_ENOMEM. */
CT_MUST_CHECK int ct_command_find_own(const char *own_dir, const char *name, char **out);

/* Finds a program as a shell does: in PATH, unless the name has a slash. Gives *out, to be freed.
 * CT_ENOENT, CT_EPERM, CT_ENOMEM. */
CT_MUST_CHECK int ct_command_find(const char *name, char *const *env, char **out,
                                  struct ct_err *err);

#endif
