/* SPDX-License-Identifier: Apache-2.0
 *
 * One copy of the data set for all workers of a host. The first worker of each host loads it into
 * memory without a name, which takes a second for compressed files, and publishes the place in the
 * job's store; the others map it. Nothing is left behind when a worker dies.
 */
#ifndef CT_TRAINER_DATA_DATASET_CACHE_H
#define CT_TRAINER_DATA_DATASET_CACHE_H

#include "trainer/data/dataset.h"
#include "worker/ctworker.h"

/* As ct_dataset_load(). Collective over the workers of a host; if the worker that loads fails, all
 * fail. If memory cannot be shared, each worker loads the set itself. */
CT_MUST_CHECK int ct_dataset_load_shared(const char *source, struct ctw_job *job,
                                         struct ct_dataset *out, struct ct_err *err);

/* For a worker that already has the set, in a later generation: publishes its place for workers
 * that were just started, if this is the worker that publishes. Does not wait. */
CT_MUST_CHECK int ct_dataset_tell(struct ctw_job *job, const struct ct_dataset *set,
                                  struct ct_err *err);

#endif
