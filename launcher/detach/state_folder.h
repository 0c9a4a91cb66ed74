/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of this user's detached jobs, $XDG_STATE_HOME/ctrun or ~/.local/state/ctrun, with a
 * folder for each job. Both are this user's alone: who could write there could show another text,
 * or name another process. Everything is opened below a checked descriptor and without following
 * links.
 */
#ifndef CT_LAUNCHER_DETACH_STATE_FOLDER_H
#define CT_LAUNCHER_DETACH_STATE_FOLDER_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>

#define CT_STATE_FOLDER_MAX 1024

/* The files of a job. */
#define CT_STATE_CONSOLE "console.log"
#define CT_STATE_JOB "job"
#define CT_STATE_EXIT "exit"

/* Names the folder. CT_ENOENT if neither variable names one. */
CT_MUST_CHECK int ct_state_folder_path(char *const *env, char out[CT_STATE_FOLDER_MAX],
                                       struct ct_err *err);

/* Adds to an error what to do if the folder cannot be used. Returns err->code, or `code` if `err`
 * is NULL. */
int ct_state_folder_advise(struct ct_err *err, int code);

/* Opens it, after it was made if `make`. Returns its descriptor. CT_ENOENT, CT_EPERM (another
 * user's, or a link, or open to others), CT_EIO. */
CT_MUST_CHECK int ct_state_folder_open(const char *path, bool make, struct ct_err *err);

/* Makes the folder of a new job. CT_EBUSY if there is one of this name. */
CT_MUST_CHECK int ct_state_folder_make_job(int root, const char *name, struct ct_err *err);

/* Opens it again, with the same checks as ct_state_folder_open(). */
CT_MUST_CHECK int ct_state_folder_open_job(int root, const char *name, struct ct_err *err);

/* Opens one of its files for reading, or makes it with `flags` of open(2). CT_EPERM if it is no
 * regular file of this user. Here and below the text of an error does not name the job. */
CT_MUST_CHECK int ct_state_folder_open_file(int job, const char *name, int flags,
                                            struct ct_err *err);

/* Reads the beginning of a file that is open, or of one of the folder, as text. Returns false if
 * there is none. */
bool ct_state_folder_read_fd(int fd, char *out, size_t size);
bool ct_state_folder_read(int job, const char *name, char *out, size_t size);

/* Replaces a file; whoever reads it sees the old content or the new one. */
CT_MUST_CHECK int ct_state_folder_write(int job, const char *name, const char *text, size_t len,
                                        struct ct_err *err);

/* Removes the files of a job and its folder. A folder that holds anything else stays. */
void ct_state_folder_remove_job(int root, const char *name);

#endif
