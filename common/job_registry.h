/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs of this user on this machine: one small file for each ctrun that hosts a store, so that
 * ctrun-stat finds it without an address. The folder belongs to the user alone; who could write to
 * it could send ctrun-stat to another store.
 */
#ifndef CT_COMMON_JOB_REGISTRY_H
#define CT_COMMON_JOB_REGISTRY_H

#include "common/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CT_JOB_ADDRESS_MAX 320
#define CT_JOB_NAME_MAX 256 /* no run id is longer */
#define CT_JOB_PROGRAM_MAX 256
#define CT_JOB_FOLDER_MAX 512

/* Jobs that are listed; more are ignored. */
#define CT_JOBS_MAX 256

struct ct_job_entry {
    pid_t pid;                        /* of the ctrun that hosts the store */
    char address[CT_JOB_ADDRESS_MAX]; /* HOST:PORT */
    char name[CT_JOB_NAME_MAX];       /* the run id, cleaned */
    char program[CT_JOB_PROGRAM_MAX]; /* and its arguments, cleaned, cut with "..."; "" = unknown */
    int64_t age_s;                    /* since that ctrun began; -1 = unknown */
    char state;     /* of that ctrun, as in /proc/PID/stat: 'T' or 't' = it is stopped */
    bool elsewhere; /* it is in another network namespace than this process */
};

/* Names the folder: `runtime_dir`/ctrun if that is an absolute path ($XDG_RUNTIME_DIR; may be
 * NULL), else /tmp/ctrun-UID. */
void ct_job_registry_folder(const char *runtime_dir, uid_t uid, char out[CT_JOB_FOLDER_MAX]);

/* Enters the job of this process; makes the folder. CT_EPERM: the folder is another user's, or a
 * link, or others may use it. */
CT_MUST_CHECK int ct_job_registry_add(const char *folder, const char *address, const char *name,
                                      const char *program, struct ct_err *err);

/* Removes the entry of this process, if there is one. */
void ct_job_registry_remove(const char *folder);

/* Reads the jobs that run, in the order of their process ids, and removes the entries of those that
 * do not. No folder means no jobs. Returns their number, or as ct_job_registry_add(). */
CT_MUST_CHECK int ct_job_registry_list(const char *folder, struct ct_job_entry out[CT_JOBS_MAX],
                                       struct ct_err *err);

#endif
