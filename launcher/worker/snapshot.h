/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that outlives the workers: an empty file in memory, which the launcher keeps from the
 * first generation to the end of the job. What one generation writes there, the next one can read.
 * The file is gone when the launcher ends. The workers alone decide its size and content.
 */
#ifndef CT_LAUNCHER_WORKER_SNAPSHOT_H
#define CT_LAUNCHER_WORKER_SNAPSHOT_H

#include "common/log.h"

#include <stddef.h>

struct ct_snapshot {
    int fd;
    char env[64]; /* "CTRUN_SNAPSHOT=/proc/PID/fd/N" */
};

#define CT_SNAPSHOT_INIT \
    {                    \
        .fd = -1         \
    }

/* Does not fail: without the file a warning is logged (`log` may be NULL), and workers start
 * without a snapshot. */
void ct_snapshot_open(struct ct_snapshot *snapshot, const struct ct_log *log);
void ct_snapshot_fini(struct ct_snapshot *snapshot); /* CT_SNAPSHOT_INIT is allowed */

/* The string to put into the environment of every worker, borrowed; NULL when there is no file. */
static inline const char *ct_snapshot_env(const struct ct_snapshot *snapshot)
{
    return snapshot->fd >= 0 ? snapshot->env : NULL;
}

#endif
