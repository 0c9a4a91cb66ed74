/* SPDX-License-Identifier: Apache-2.0
 *
 * One copy of the data set for all workers of a host. The first worker of each host loads it (what
 * is compressed takes a second) into memory without a name, and tells the others through the job's
 * store where that is; they map it. Nothing is left behind, whoever dies.
 */
#ifndef CT_TRAINER_DATA_DATASET_CACHE_H
#define CT_TRAINER_DATA_DATASET_CACHE_H

#include "trainer/data/dataset.h"
#include "worker/ctworker.h"

/* As ct_dataset_load(). Collective over the workers of a host; a failure of the one that loads is
 * everyone's. Where memory cannot be shared each worker loads by itself. */
CT_MUST_CHECK int ct_dataset_load_shared(const char *source, struct ctw_job *job,
                                         struct ct_dataset *out, struct ct_err *err);

/* The same in a later generation, for a worker that has the set already: tells those that have just
 * been started where it is, if it is this worker that does. Does not wait. */
CT_MUST_CHECK int ct_dataset_tell(struct ctw_job *job, const struct ct_dataset *set,
                                  struct ct_err *err);

#endif
