/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that need no host (--cuda-graph): gathering, both passes, the sum of the gradients and the
 * update are recorded once as they are queued for one step, and replayed, several steps at a time
 * where nothing on the host waits for them. What differs from step to step is in device memory: the
 * epoch's order of samples, its learning rates, and the number of the batch.
 *
 * Of a pipeline, one step is replayed at a time. Its messages are recorded with it: the sum of the
 * gradients, which comes last, waits until they have left.
 *
 * Whole batches only. The first of a run and the short last one of an epoch are queued as ever;
 * that also chooses kernels and makes room, which cannot be done while recording. When recording
 * fails, all are.
 */
#ifndef CT_TRAINER_LOOP_CUDA_GRAPH_H
#define CT_TRAINER_LOOP_CUDA_GRAPH_H

#include "trainer/session/trainer.h"

/* Makes room on the device; nothing to do where it cannot record or the options say no. */
CT_MUST_CHECK int ct_cuda_graph_open(struct ct_trainer *t, struct ct_err *err);
void ct_cuda_graph_close(struct ct_trainer *t); /* before the communicator goes */

/* The sampler has shuffled: brings the epoch's order and rates to the device, if they have not been
 * prepared. */
CT_MUST_CHECK int ct_cuda_graph_epoch(struct ct_trainer *t, struct ct_err *err);

/* All steps of the epoch are queued: shuffles for the next one and queues what it needs behind
 * them, so that the device need not wait for the host between the two. */
CT_MUST_CHECK int ct_cuda_graph_prepare(struct ct_trainer *t, struct ct_err *err);

/* Does up to `most` steps from t->at.batch on and says how many in *done: 0 when the next one must
 * be queued as ever. Collective, with the same number on all ranks. */
CT_MUST_CHECK int ct_cuda_graph_run(struct ct_trainer *t, size_t most, size_t *done,
                                    struct ct_err *err);

#endif
