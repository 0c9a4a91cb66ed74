/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says about processes.
 */
#ifndef CT_WORKER_JOB_PROC_H
#define CT_WORKER_JOB_PROC_H

#include "common/err.h"

#include <stdint.h>
#include <sys/types.h>

/* When the process started, in clock ticks since boot: with the pid it names one process for good.
 * CT_ENOENT when there is no such process. */
CT_MUST_CHECK int proc_start_time(pid_t pid, uint64_t *out);

/* Cores this process may run on, at least 1. */
int proc_cpu_count(void);

#endif
