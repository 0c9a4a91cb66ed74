/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts about processes, from the kernel.
 */
#ifndef CT_WORKER_JOB_PROC_H
#define CT_WORKER_JOB_PROC_H

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

/* Gives the start time of a process in clock ticks since boot. pid and start time together name one
 * process for ever. CT_ENOENT if there is no such process. */
CT_MUST_CHECK int proc_start_time(pid_t pid, uint64_t *out);

/* Returns the number of cores that this process may run on, at least 1. */
int proc_cpu_count(void);

#endif
