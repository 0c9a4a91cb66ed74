/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/stages.h"

#include "trainer/pipeline_plan.h"

static struct ct_pipeline_options options_of(const struct ct_trainer *t, size_t rows)
{
    const struct ctw_env *env = ctw_job_env(t->job);
    return (struct ct_pipeline_options){
        .stages = t->options.pipeline_stages,
        .micros = t->options.micro_batches,
        .rows = rows,
        .test_rows = CT_EVALUATION_ROWS,
        .layers = t->layout.layer_count,
        .world = env->world_size,
        .rank = env->rank,
    };
}

/* Activations pass through memory of the host. */
int ct_stages_check(const struct ct_trainer *t, struct ct_err *err)
{
    if (t->options.pipeline_stages > 1 && t->dev->kind != CT_DEVICE_CPU) {
        return ct_err_set(err, CT_EUNSUPPORTED, "--pipeline-stages needs --device cpu");
    }
    const struct ct_pipeline_options options = options_of(t, 1);
    return ct_pipeline_check(&options, err);
}

/* A machine's ranks follow each other, so those of as many as there are stages have all. */
static bool lacks_stages(const struct ct_trainer *t)
{
    size_t here = (size_t)ctw_job_env(t->job)->local_world_size;
    return !t->team.shares_model || here < t->options.pipeline_stages;
}

int ct_stages_open(struct ct_trainer *t, size_t rows, struct ct_err *err)
{
    const struct ct_pipeline_options options = options_of(t, rows);
    double lacking = lacks_stages(t) ? 1 : 0;
    int rc = ct_team_sum(&t->team, &lacking, 1, err);
    if (rc == 0) {
        rc = ct_pipeline_open(&options, &t->team, t->dev, &t->layout, t->narrow, &t->pipe, err);
    }
    t->scattered = rc == 0 && lacking > 0;
    return rc;
}

/* From the first lane, in which a stage's rank is its number. */
static int spread_stage(struct ct_trainer *t, size_t stage, struct ct_err *err)
{
    size_t first, end;
    struct ct_layout layers;
    ct_pipe_layers(&t->layout, t->pipe->stages, stage, &first, &end);
    ct_layout_stage(&t->layout, first, end, &layers);
    size_t base = t->layout.layer[first].weight, bytes = layers.count * sizeof(float);
    int rc = ct_team_hand_out(&t->team, t->params + base, bytes, (int)stage, err);
    for (size_t i = 0; rc == 0 && ct_optimizer_state_name(t->optimizer.kind, i) != NULL; i++) {
        rc = ct_team_hand_out(&t->team, t->optimizer.state[i] + base, bytes, (int)stage, err);
    }
    return rc;
}

int ct_stages_collect(struct ct_trainer *t, struct ct_err *err)
{
    int rc = 0;
    for (size_t s = 0; rc == 0 && t->scattered && s < t->pipe->stages; s++) {
        rc = spread_stage(t, s, err);
    }
    return rc;
}
