/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads /proc/PID/stat and the affinity mask. A process that does not exist is CT_ENOENT.
 */
#include "worker/job/proc.h"

#include "common/buf.h"
#include "common/file.h"
#include "common/num.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>

/* /proc/<pid>/stat is about 400 bytes. */
#define STAT_MAX 4096

/* Blanks between the closing bracket of the name and field 22, starttime (proc(5)). */
#define BLANKS_BEFORE_START 20

static int parse_start_time(const char *stat, uint64_t *out)
{
    /* The name may contain any character, also brackets, so its end is the last one. */
    const char *p = strrchr(stat, ')');
    for (int i = 0; i < BLANKS_BEFORE_START && p != NULL; i++) {
        p = strchr(p + 1, ' ');
    }
    if (p == NULL) {
        return CT_EFORMAT;
    }
    char digits[24];
    size_t len = strcspn(p + 1, " \n");
    if (len >= sizeof(digits)) {
        return CT_EFORMAT;
    }
    memcpy(digits, p + 1, len);
    digits[len] = '\0';
    int64_t ticks;
    int rc = ct_parse_i64(digits, 0, INT64_MAX, &ticks);
    if (rc == 0) {
        *out = (uint64_t)ticks;
    }
    return rc;
}

int proc_start_time(pid_t pid, uint64_t *out)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    struct ct_buf stat = CT_BUF_INIT;
    int rc = ct_file_read(path, STAT_MAX, &stat, NULL);
    if (rc == 0) {
        const char *text = ct_buf_cstr(&stat);
        rc = text != NULL ? parse_start_time(text, out) : CT_ENOMEM;
    }
    ct_buf_fini(&stat);
    return rc;
}

int proc_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) {
        return CPU_COUNT(&set);
    }
    /* sched_getaffinity() fails if there are more than CPU_SETSIZE cores. */
    return get_nprocs();
}
