/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory is left for spares. Nothing fails: what cannot be read is 0.
 */
#ifndef CT_LAUNCHER_WARM_WARM_MEMORY_H
#define CT_LAUNCHER_WARM_WARM_MEMORY_H

#include "launcher/warm/warm.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The system's files; tests have others. */
struct ct_warm_roots {
    const char *meminfo;    /* "/proc/meminfo" */
    const char *membership; /* "/proc/self/cgroup" */
    const char *cgroups;    /* "/sys/fs/cgroup" */
};

extern const struct ct_warm_roots ct_warm_here;

/* Sets total and available: of the machine, or of our memory cgroup (version 2), or of one above
 * it, whichever is nearest to having less than a tenth left. */
void ct_warm_memory_read(const struct ct_warm_roots *roots, struct ct_warm_memory *out);

/* Gives the bytes that are free when the process and what is below it end: anonymous and huge
 * pages, and files in memory that have no name any more. Returns false if there are too many
 * processes or descriptors for all of them to be looked at, so that there may be any amount of
 * memory more. */
bool ct_warm_memory_of(pid_t pid, uint64_t *bytes);

#endif
