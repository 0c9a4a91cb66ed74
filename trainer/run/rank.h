/* SPDX-License-Identifier: Apache-2.0
 *
 * What one rank does from opening its files to the end of training.
 */
#ifndef CT_TRAINER_RUN_RANK_H
#define CT_TRAINER_RUN_RANK_H

#include "trainer/session/train_options.h"
#include "trainer/session/warm_parts.h"
#include "trainer/show/loggers.h"
#include "worker/ctworker.h"

#include <stdatomic.h>
#include <stdbool.h>

/* The run of a process; with --gpus its ranks are threads. Zeroed except for what is borrowed. */
struct ct_rank_run {
    const struct ct_train_options *options;
    const atomic_int *stop_asked;
    void (*catch_signals)(
        const struct ct_train_options *options); /* called when all ranks are there, before a state
                                                    is restored; again in each generation */
    struct ct_loggers loggers;                   /* of rank 0 */
    struct ct_warm_parts warm;                   /* what was made ready; the rank, or rank 0 of
                                                    the threads, takes it over */
    bool opened;
    atomic_bool trains; /* a rank has reached the first step */
};

/* A ct_rank_fn; `data` is a struct ct_rank_run. A failure ends the peers' collectives, too. */
CT_MUST_CHECK int ct_rank_train(struct ctw_job *job, void *data, struct ct_err *err);

/* Would another start meet the same error? Before the first step, errors of options and files
 * would; those of memory, devices and peers may not. */
bool ct_rank_error_is_permanent(const struct ct_rank_run *run, int code);

#endif
