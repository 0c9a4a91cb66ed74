/* SPDX-License-Identifier: Apache-2.0
 *
 * The file has no name and is opened through /proc/PID/fd, so it is gone when the launcher ends.
 *
 * Failure modes: without memory for it, workers start without a snapshot, which is logged once.
 */
#include "launcher/worker/snapshot.h"

#include "common/env_names.h"
#include "common/file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Workers open the file through /proc and do not inherit it, because the user's program may use the
 * number of an inherited descriptor itself. */
void ct_snapshot_open(struct ct_snapshot *snapshot, const struct ct_log *log)
{
    snapshot->fd = ct_file_in_memory("ctrun-snapshot", false);
    if (snapshot->fd < 0) {
        ct_log(log, CT_LOG_WARNING, "no memory for snapshots: %s", strerror(errno));
        return;
    }
    (void)snprintf(snapshot->env, sizeof(snapshot->env), CT_SNAPSHOT_ENV "=/proc/%ld/fd/%d",
                   (long)getpid(), snapshot->fd);
}

void ct_snapshot_fini(struct ct_snapshot *snapshot)
{
    if (snapshot->fd >= 0) {
        (void)close(snapshot->fd);
    }
    *snapshot = (struct ct_snapshot)CT_SNAPSHOT_INIT;
}
