/* SPDX-License-Identifier: Apache-2.0
 *
 * --gpus N: one process drives N GPUs, each by a thread that is a rank as any worker is. So it does
 * to the model exactly what N workers of one GPU each do to it.
 */
#ifndef CT_TRAINER_MODEL_GPU_RANKS_H
#define CT_TRAINER_MODEL_GPU_RANKS_H

#include "common/err.h"
#include "worker/ctworker.h"

/* What each rank does, with the options of its process. A failure ends the others, too. */
typedef int (*ct_rank_fn)(struct ctw_job *job, void *data, struct ct_err *err);

/* Calls `run` for ranks 0 to gpus - 1, for rank 0 on the calling thread, and waits for all.
 * CT_EUNSUPPORTED when there are fewer GPUs, CT_EINVAL when `job` is a worker with peers. Else what
 * `run` returned: the first failure that is not about a rank that failed before. */
CT_MUST_CHECK int ct_gpu_ranks_run(int gpus, struct ctw_job *job, ct_rank_fn run, void *data,
                                   struct ct_err *err);

#endif
