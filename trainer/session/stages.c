/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the pipeline of a rank, and collects a scattered model for a checkpoint: each stage is
 * broadcast by the rank that has it, in pieces that fit the transit memory. Failures are those of
 * the collectives; the group owns the memory.
 */
#include "trainer/session/stages.h"

/* The most floats of one broadcast between GPUs: 16 MiB, because more is not faster. */
#define TRANSIT ((size_t)4 << 20)

static struct ct_pipeline_options options_of(const struct ct_trainer *t, size_t rows)
{
    const struct ctw_env *env = ctw_job_env(t->job);
    return (struct ct_pipeline_options){
        .stages = t->options.pipeline_stages,
        .micros = t->options.micro_batches,
        .rows = rows,
        .test_rows = CT_EVALUATION_ROWS,
        .layers = t->layout.layer_count,
        .apart = !t->group.shares_model,
        .world = env->world_size,
        .rank = env->rank,
    };
}

int ct_stages_check(const struct ct_trainer *t, struct ct_err *err)
{
    const struct ct_pipeline_options options = options_of(t, 1);
    return ct_pipeline_check(&options, err);
}

struct ct_span ct_stages_held(const struct ct_trainer *t)
{
    size_t stages = t->options.pipeline_stages;
    if (t->group.shares_model || stages == 1) {
        return (struct ct_span){.count = t->layout.count};
    }
    return ct_pipe_span(&t->layout, stages, (size_t)t->group.rank % stages);
}

/* Is this rank's machine without some stage? A machine's ranks are consecutive, so a machine with
 * as many ranks as stages has all. */
static bool lacks_stages(const struct ct_trainer *t)
{
    size_t here = (size_t)ctw_job_env(t->job)->local_world_size;
    return !t->group.shares_model || here < t->options.pipeline_stages;
}

int ct_stages_open(struct ct_trainer *t, size_t rows, struct ct_err *err)
{
    const struct ct_pipeline_options options = options_of(t, rows);
    double lacking = lacks_stages(t) ? 1 : 0;
    int rc = ct_group_sum(&t->group, &lacking, 1, err);
    if (rc == 0 && !t->group.shares_model) {
        rc = ct_group_alloc_model(&t->group, TRANSIT, &t->memory.transit, err);
    }
    if (rc == 0) {
        rc = ct_pipeline_open(&options, &t->group, t->dev, &t->layout, t->memory.narrow, &t->pipe,
                              err);
    }
    t->memory.scattered = rc == 0 && lacking > 0;
    return rc;
}

/* Sends floats [from, from + count) of a stage's part of the array to every rank (or machine).
 * `array` is the part that this rank has. The sender is in the first replica, where a stage's
 * number is its rank. */
static int pass_on(struct ct_trainer *t, float *array, size_t stage, size_t from, size_t count,
                   float *out, struct ct_err *err)
{
    struct ct_span span = ct_pipe_span(&t->layout, t->pipe->stages, stage);
    float *block = array + from;
    if (t->group.shares_model) {
        block += span.first;
    } else if (stage != t->pipe->stage) {
        block = t->memory.transit;
    }
    int rc = ct_group_broadcast_from(&t->group, block, count * sizeof(float), (int)stage, err);
    if (rc == 0 && out != NULL) {
        rc = ct_group_download(&t->group, out + span.first + from, block, count * sizeof(float),
                               err);
    }
    return rc;
}

static int collect(struct ct_trainer *t, float *array, float *out, struct ct_err *err)
{
    int rc = 0;
    for (size_t s = 0; rc == 0 && s < t->pipe->stages; s++) {
        size_t count = ct_pipe_span(&t->layout, t->pipe->stages, s).count;
        size_t most = t->group.shares_model || count < TRANSIT ? count : TRANSIT;
        for (size_t from = 0; rc == 0 && from < count; from += most) {
            size_t left = count - from;
            rc = pass_on(t, array, s, from, left < most ? left : most, out, err);
        }
    }
    return rc;
}

int ct_stages_copy_state(struct ct_trainer *t, float *out, struct ct_err *err)
{
    int rc = collect(t, t->memory.params, out, err);
    for (size_t i = 0; rc == 0 && ct_optimizer_state_name(t->optimizer.kind, i) != NULL; i++) {
        float *place = out != NULL ? out + (i + 1) * t->layout.count : NULL;
        rc = collect(t, t->optimizer.state[i], place, err);
    }
    return rc;
}
