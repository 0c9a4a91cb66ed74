/* SPDX-License-Identifier: Apache-2.0
 *
 * Variables by which ctrun tells a worker what torchrun's variables do not say. The launcher writes
 * them and libctworker reads them, so both take the names from here. Variables whose value has a
 * form of its own are in common/progress_page.h and common/handover.h. Programs of users may read
 * them, too (ENVIRONMENT in ctworker(3)), so a name does not change.
 */
#ifndef CT_COMMON_ENV_NAMES_H
#define CT_COMMON_ENV_NAMES_H

/* The number of the generation, from 0. worker/job/late_variables.h has the name once more, because
 * the build reads the text of that list. */
#define CT_GENERATION_ENV "CTRUN_GENERATION"

/* The path of a file in memory that outlives the workers (launcher/worker/snapshot.h). */
#define CT_SNAPSHOT_ENV "CTRUN_SNAPSHOT"

/* The index of the worker's GPU among those it sees (CUDA's numbering), and its share of it as
 * "1/k" when k workers use it; without the second the worker has the GPU to itself. */
#define CT_DEVICE_INDEX_ENV "CTRUN_DEVICE_INDEX"
#define CT_GPU_SHARE_ENV "CTRUN_GPU_SHARE"

/* Makes a spare of a process: version, descriptor and role, as docs/WARM.md describes them.
 * launcher/warm/python/sitecustomize.py has the name once more. */
#define CT_WARM_ENV "CTRUN_WARM"

#endif
