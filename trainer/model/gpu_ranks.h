/* SPDX-License-Identifier: Apache-2.0
 *
 * --gpus N: one process drives N GPUs, each by a thread that is a rank like any worker. The model
 * gets exactly the updates that it would get from N workers with one GPU each.
 */
#ifndef CT_TRAINER_MODEL_GPU_RANKS_H
#define CT_TRAINER_MODEL_GPU_RANKS_H

#include "common/err.h"
#include "worker/ctworker.h"

/* The work of a rank, with the options of the process. A failure ends the other ranks, too. */
typedef int (*ct_rank_fn)(struct ctw_job *job, void *data, struct ct_err *err);

/* Calls `run` for ranks 0 to gpus - 1, for rank 0 on the calling thread, and waits for all.
 * CT_EUNSUPPORTED if there are fewer GPUs (CT_EIO if that is new, after the first generation),
 * CT_EINVAL if `job` is a worker with peers. Otherwise returns what `run` did; of several failures,
 * the one that caused the others. */
CT_MUST_CHECK int ct_gpu_ranks_run(int gpus, struct ctw_job *job, ct_rank_fn run, void *data,
                                   struct ct_err *err);

#endif
