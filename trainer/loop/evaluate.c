/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates the model. Each rank computes a contiguous share of the test set, in passes of a fixed
 * number of rows; then the sums of all ranks are added. It uses the totals of the training, which
 * the next epoch clears. Failures are those of device and collectives; it allocates nothing.
 */
#include "trainer/loop/train.h"

int ct_trainer_evaluate(struct ct_trainer *t, double *loss, double *accuracy, struct ct_err *err)
{
    size_t begin, end;
    size_t features = t->data.set.features;
    /* In a pipeline each replica computes a share. */
    int stages = (int)t->options.pipeline_stages;
    size_t most = t->pipe != NULL ? t->pipe->rows : t->model.max_rows;
    ct_sampler_share(t->data.set.test.count, t->group.rank / stages, t->group.world / stages,
                     &begin, &end);
    int rc = t->dev->ops->clear(t->dev, t->memory.totals, 2 * sizeof *t->memory.totals, err);
    for (size_t first = begin; rc == 0 && first < end;) {
        ctw_progress(t->job, CTW_PHASE_COMPUTE, t->optimizer.step);
        size_t rows = end - first < most ? end - first : most;
        const struct ct_device_dataset part = {
            .images = t->data.test.images + first * features,
            .labels = t->data.test.labels + first,
            .mean = t->data.test.mean,
            .stddev = t->data.test.stddev,
        };
        rc = t->pipe != NULL ? ct_pipeline_evaluate(t->pipe, t->memory.params, &part,
                                                    t->memory.sequence, rows, t->memory.totals, err)
                             : ct_model_run(&t->model, t->memory.params, &part, t->memory.sequence,
                                            rows, 0, NULL, t->memory.totals, err);
        first += rows;
    }
    double totals[2];
    if (rc == 0) {
        rc = ct_group_sync(&t->group, err);
    }
    if (rc == 0) {
        rc = t->dev->ops->download(t->dev, totals, t->memory.totals, sizeof totals, err);
    }
    if (rc == 0) {
        rc = ct_group_sum(&t->group, totals, 2, err);
    }
    if (rc == 0) {
        *loss = totals[0] / (double)t->data.set.test.count;
        *accuracy = totals[1] / (double)t->data.set.test.count;
    }
    return rc;
}
