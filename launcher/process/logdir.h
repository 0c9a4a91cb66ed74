/* SPDX-License-Identifier: Apache-2.0
 *
 * Where workers' files are, laid out as torchrun does:
 *
 *     <--log-dir, or a temporary folder>/<run id>_<8 random>/attempt_<n>/<local rank>/
 *         stdout.log  stderr.log  error.json
 *     .../attempt_<n>/filtered_stdout.log  filtered_stderr.log
 *
 * --log-dir /dev/null switches all of it off.
 */
#ifndef CT_LAUNCHER_PROCESS_LOGDIR_H
#define CT_LAUNCHER_PROCESS_LOGDIR_H

#include "common/err.h"

#include <stdbool.h>

/* Zeroed memory is "switched off". */
struct ct_logdir {
    char *base;     /* absolute; NULL when switched off */
    char *run;      /* base/<run id>_<8 random> */
    bool temporary; /* `base` was made here and goes with ct_logdir_fini() unless kept */
};

/* `log_dir` is NULL for a temporary folder under `tmp_dir` (NULL = /tmp). Missing folders are made.
 * CT_EPERM and the like name the path. Gives *out. */
CT_MUST_CHECK int ct_logdir_init(const char *log_dir, const char *tmp_dir, const char *run_id,
                                 struct ct_logdir *out, struct ct_err *err);

/* Removes a temporary folder with all it holds unless `keep`; frees. Zeroed memory is allowed. */
void ct_logdir_fini(struct ct_logdir *logdir, bool keep);

/* Removes `path` with all it holds, as far as that goes. */
void ct_logdir_remove(const char *path);

/* Makes the folders of one generation. Does nothing when switched off. */
CT_MUST_CHECK int ct_logdir_make(const struct ct_logdir *logdir, int generation, int workers,
                                 struct ct_err *err);

/* Gives the path of a worker's file, of its folder when `name` is "", and "" when switched off.
 * NULL when memory is out. */
char *ct_logdir_path(const struct ct_logdir *logdir, int generation, int local_rank,
                     const char *name);

/* Gives the path of a file that all workers of a generation share; NULL when memory is out. Not for
 * a folder that is switched off. */
char *ct_logdir_shared_path(const struct ct_logdir *logdir, int generation, const char *name);

#endif
