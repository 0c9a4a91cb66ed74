/* SPDX-License-Identifier: Apache-2.0
 *
 * The priority of a spare. It imports at idle priority, and as a worker it has the priority that
 * any other worker has.
 */
#ifndef CT_LAUNCHER_WARM_SPARE_PRIORITY_H
#define CT_LAUNCHER_WARM_SPARE_PRIORITY_H

#include <stdbool.h>
#include <sys/types.h>

/* May this process take the idle priority back from a child? The kernel lets only those do so who
 * have CAP_SYS_NICE in the first user namespace, or a high RLIMIT_NICE. */
bool ct_spare_priority_may_idle(void);

/* Gives all threads of the process, and of what is below it, the priority of the calling thread: a
 * wrapper around the interpreter may wait for it. Returns false if the kernel refuses. */
bool ct_spare_priority_restore(pid_t pid);

#endif
