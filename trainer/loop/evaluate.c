/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/loop/trainer.h"

int ct_trainer_evaluate(struct ct_trainer *t, double *loss, double *accuracy, struct ct_err *err)
{
    size_t begin, end;
    size_t features = t->dataset.features;
    /* With a pipeline each lane does a share. */
    int stages = (int)t->options.pipeline_stages;
    size_t most = t->pipe != NULL ? t->pipe->rows : t->model.max_rows;
    ct_share(t->dataset.test.count, t->team.rank / stages, t->team.world / stages, &begin, &end);
    int rc = t->dev->ops->clear(t->dev, t->totals, 2 * sizeof *t->totals, err);
    for (size_t first = begin; rc == 0 && first < end;) {
        ctw_progress(t->job, CTW_PHASE_COMPUTE, t->optimizer.step);
        size_t rows = end - first < most ? end - first : most;
        const struct ct_resident part = {
            .images = t->test.images + first * features,
            .labels = t->test.labels + first,
            .mean = t->test.mean,
            .stddev = t->test.stddev,
        };
        rc = t->pipe != NULL ? ct_pipeline_evaluate(t->pipe, t->params, &part, t->sequence, rows,
                                                    t->totals, err)
                             : ct_model_run(&t->model, t->params, &part, t->sequence, rows, 0, NULL,
                                            t->totals, err);
        first += rows;
    }
    double totals[2];
    if (rc == 0) {
        rc = ct_team_sync(&t->team, err);
    }
    if (rc == 0) {
        rc = t->dev->ops->download(t->dev, totals, t->totals, sizeof totals, err);
    }
    if (rc == 0) {
        rc = ct_team_sum(&t->team, totals, 2, err);
    }
    if (rc == 0) {
        *loss = totals[0] / (double)t->dataset.test.count;
        *accuracy = totals[1] / (double)t->dataset.test.count;
    }
    return rc;
}
