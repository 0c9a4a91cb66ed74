/* SPDX-License-Identifier: Apache-2.0
 *
 * Was it the kernel that ran out of memory? A worker that dies of SIGKILL cannot say; the memory
 * cgroup counts its victims, and the kernel's log names them. Both are looked at where they may be
 * read; nothing here fails.
 */
#ifndef CT_LAUNCHER_HANG_OOM_H
#define CT_LAUNCHER_HANG_OOM_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where things are; tests have others. */
struct ct_oom_roots {
    const char *membership; /* "/proc/self/cgroup" */
    const char *cgroups;    /* "/sys/fs/cgroup" */
    const char *kmsg;       /* "/dev/kmsg" */
};

extern const struct ct_oom_roots ct_oom_here;

struct ct_oom {
    int kmsg_fd;      /* at the first record not read yet; -1 = not open, or may not be read */
    uint64_t kills;   /* of the cgroup, so far */
    bool has_kills;   /* the cgroup counts them */
    char events[512]; /* the file with the counter */
    char limit[512];  /* that with the limit of memory */
};

#define CT_OOM_INIT   \
    {                 \
        .kmsg_fd = -1 \
    }

/* What has happened before does not count. Opening the log of a busy kernel takes a while that a
 * short job need not wait for: until ct_oom_follow_log() only the cgroup is looked at. */
void ct_oom_open(struct ct_oom *oom, const struct ct_oom_roots *roots);
void ct_oom_follow_log(struct ct_oom *oom, const struct ct_oom_roots *roots);
void ct_oom_fini(struct ct_oom *oom); /* repeated calls are allowed */

/* Appends a clause that says why process `pid`, which died of a SIGKILL that is not ours, was most
 * likely killed for want of memory: "the kernel log says ..." or "its cgroup ...". Appends nothing
 * when nothing speaks for it. What is told once is not told of another process. CT_ENOMEM. */
CT_MUST_CHECK int ct_oom_find(struct ct_oom *oom, pid_t pid, struct ct_buf *out);

#endif
