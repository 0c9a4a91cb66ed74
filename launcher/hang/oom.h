/* SPDX-License-Identifier: Apache-2.0
 *
 * Did the kernel kill a worker because memory ran out? A worker that dies of SIGKILL cannot say so
 * itself. But its memory cgroup counts the processes that were killed, and the kernel's log names
 * them. Both are read where that is allowed. Nothing here fails: without evidence there is no
 * answer.
 */
#ifndef CT_LAUNCHER_HANG_OOM_H
#define CT_LAUNCHER_HANG_OOM_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The system's files; tests have others. */
struct ct_oom_roots {
    const char *membership; /* "/proc/self/cgroup" */
    const char *cgroups;    /* "/sys/fs/cgroup" */
    const char *kmsg;       /* "/dev/kmsg" */
};

extern const struct ct_oom_roots ct_oom_here;

struct ct_oom {
    int kmsg_fd;      /* at the first record not read yet; -1 = not open, or may not be read */
    uint64_t kills;   /* what the cgroup had counted some seconds ago; later kills are evidence */
    uint64_t latest;  /* what it had counted at the last ct_oom_look() */
    bool has_kills;   /* the cgroup counts them */
    char events[512]; /* the file with the counter */
    char limit[512];  /* the file with the limit of memory */
};

#define CT_OOM_INIT   \
    {                 \
        .kmsg_fd = -1 \
    }

/* Processes that were killed before this call do not count. Uses only the cgroup until
 * ct_oom_follow_log(): a busy kernel's log takes long to open, and a short job must not wait. */
void ct_oom_open(struct ct_oom *oom, const struct ct_oom_roots *roots);
void ct_oom_follow_log(struct ct_oom *oom, const struct ct_oom_roots *roots);
void ct_oom_fini(struct ct_oom *oom); /* repeated calls are allowed */

/* To be called every few seconds. Two calls after a kill, it is no evidence any more: it cannot be
 * the reason why a worker dies now. */
void ct_oom_look(struct ct_oom *oom);

/* For a process `pid` that died of a SIGKILL which ctrun did not send. Appends the evidence that
 * memory ran out, as a clause: "the kernel log says ..." or "the kernel has just killed ...".
 * Appends nothing without evidence. No evidence is used for two processes. CT_ENOMEM. */
CT_MUST_CHECK int ct_oom_find(struct ct_oom *oom, pid_t pid, struct ct_buf *out);

#endif
