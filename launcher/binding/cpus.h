/* SPDX-License-Identifier: Apache-2.0
 *
 * A set of CPUs, in memory as sched_setaffinity(2) takes it, and as text as the kernel writes it:
 * "0-3,8,10-11".
 */
#ifndef CT_LAUNCHER_BINDING_CPUS_H
#define CT_LAUNCHER_BINDING_CPUS_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>

/* More than any machine of today has. */
#define CT_CPUS_MAX 4096

/* Zeroed memory is the empty set. The words are those of the kernel's own sets, so that
 * sched_setaffinity(2) takes them as they are. */
struct ct_cpus {
    unsigned long bits[CT_CPUS_MAX / (8 * sizeof(unsigned long))];
};

void ct_cpus_add(struct ct_cpus *cpus, int cpu); /* numbers out of range are passed over */
bool ct_cpus_has(const struct ct_cpus *cpus, int cpu);
int ct_cpus_count(const struct ct_cpus *cpus);

/* The lowest member that is at least `from`, which is not negative; -1 if there is none. */
int ct_cpus_next(const struct ct_cpus *cpus, int from);

/* Reads a list; blanks and a newline at its end are allowed, an empty one is the empty set. Numbers
 * out of range are passed over. CT_EFORMAT. */
CT_MUST_CHECK int ct_cpus_parse(const char *text, struct ct_cpus *out);

CT_MUST_CHECK int ct_cpus_print(const struct ct_cpus *cpus, struct ct_buf *out);

/* The CPUs on which the calling thread may run; the empty set if the kernel does not tell. */
void ct_cpus_allowed(struct ct_cpus *out);

#endif
