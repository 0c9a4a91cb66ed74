/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/pipeline.h"

#include "common/alloc.h"
#include "trainer/pipeline_plan.h"
#include "trainer/sampler.h"

/* Enough that stages idle for a fifth of the time at most while a step begins and ends. */
#define MICROS_PER_STAGE 4

/* ---- passes ---------------------------------------------------------------------------------- */

/* Tags of messages, which only serve to notice when two stages are out of step. */
enum { TAG_ACTIVATION, TAG_GRADIENT };

static size_t bytes_in(const struct ct_pipeline *pipe, size_t rows)
{
    return rows * pipe->layout.layer[0].in * ct_precision_bytes(pipe->dev->precision);
}

static size_t bytes_out(const struct ct_pipeline *pipe, size_t rows)
{
    return rows * pipe->layout.layer[pipe->layout.layer_count - 1].out *
           ct_precision_bytes(pipe->dev->precision);
}

/* From the stage below or the data set, through this stage's layers, to the stage above. On the
 * last stage the logits and labels are then in the slot. */
static int forward(struct ct_pipeline *pipe, struct ct_model *slot, const float *params,
                   const struct ct_resident *data, const uint32_t *index, size_t rows,
                   struct ct_err *err)
{
    int rc = 0;
    if (pipe->below == NULL || pipe->above == NULL) {
        rc = ct_model_load(slot, data, index, rows, err);
    }
    if (rc == 0 && pipe->below != NULL) {
        rc = ctw_link_recv(pipe->below, slot->act[0], bytes_in(pipe, rows), TAG_ACTIVATION, err);
    }
    if (rc == 0) {
        rc = ct_model_forward(slot, params, rows, err);
    }
    if (rc == 0 && pipe->above != NULL) {
        rc = ctw_link_send(pipe->above, slot->act[pipe->layout.layer_count], bytes_out(pipe, rows),
                           TAG_ACTIVATION, err);
    }
    return rc;
}

/* The first micro-batch's gradients are written, the others' added. */
static int backward(struct ct_pipeline *pipe, struct ct_model *slot, const float *params,
                    size_t rows, bool first, struct ct_err *err)
{
    int rc = 0;
    if (pipe->above != NULL) {
        rc = ctw_link_recv(pipe->above, ct_model_top(slot), bytes_out(pipe, rows), TAG_GRADIENT,
                           err);
    }
    if (rc == 0) {
        rc = ct_model_backward(slot, params, first ? pipe->grads : pipe->part, rows, err);
    }
    if (rc == 0 && pipe->below != NULL) {
        rc = ctw_link_send(pipe->below, ct_model_bottom(slot), bytes_in(pipe, rows), TAG_GRADIENT,
                           err);
    }
    if (rc == 0 && !first) {
        /* An update at a rate of -1 adds. */
        const struct ct_sgd add = {
            .count = pipe->layout.count, .param = pipe->grads, .grad = pipe->part, .lr = -1.0f};
        rc = pipe->dev->ops->sgd(pipe->dev, &add, err);
    }
    return rc;
}

int ct_pipeline_run(struct ct_pipeline *pipe, const float *params, const struct ct_resident *data,
                    const uint32_t *index, size_t rows, float scale, double *totals,
                    struct ct_err *err)
{
    /* All stages of a lane know how many rows it has, and come to the same number. */
    size_t micros = rows < pipe->micros ? rows : pipe->micros;
    int rc = 0;
    if (micros == 0) {
        return pipe->dev->ops->clear(pipe->dev, pipe->grads, pipe->layout.count * sizeof(float),
                                     err);
    }
    for (size_t i = 0; rc == 0 && i < 2 * micros; i++) {
        struct ct_pipe_action action = ct_pipe_action(pipe->stages, pipe->stage, micros, i);
        struct ct_model *slot = &pipe->slots[action.micro % pipe->slot_count];
        size_t begin, end;
        ct_share(rows, (int)action.micro, (int)micros, &begin, &end);
        if (action.backward) {
            rc = backward(pipe, slot, params + pipe->base, end - begin, action.micro == 0, err);
            continue;
        }
        rc = forward(pipe, slot, params + pipe->base, data, index + begin, end - begin, err);
        if (rc == 0 && pipe->above == NULL) {
            rc = ct_model_loss(slot, end - begin, scale, true, totals, err);
        }
    }
    return rc;
}

int ct_pipeline_evaluate(struct ct_pipeline *pipe, const float *params,
                         const struct ct_resident *data, const uint32_t *index, size_t rows,
                         double *totals, struct ct_err *err)
{
    struct ct_model *slot = &pipe->slots[0];
    int rc = forward(pipe, slot, params + pipe->base, data, index, rows, err);
    if (rc == 0 && pipe->above == NULL) {
        rc = ct_model_loss(slot, rows, 0, false, totals, err);
    }
    return rc;
}

int ct_pipeline_reduce(struct ct_pipeline *pipe, size_t *begin, size_t *end, struct ct_err *err)
{
    return ctw_comm_reduce_scatter(pipe->group, pipe->grads, pipe->layout.count, begin, end, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

int ct_pipeline_check(const struct ct_pipeline_options *o, struct ct_err *err)
{
    if (o->stages > o->layers) {
        return ct_err_set(err, CT_EINVAL,
                          "--pipeline-stages %zu: the model has only %zu layers to place (see "
                          "--hidden)",
                          o->stages, o->layers);
    }
    if ((size_t)o->world % o->stages != 0) {
        return ct_err_set(err, CT_EINVAL,
                          "--pipeline-stages %zu: %d workers are not a multiple of that", o->stages,
                          o->world);
    }
    return 0;
}

/* Lower first, on every stage: so the links of a lane open from the bottom up. */
static int open_links(struct ct_pipeline *pipe, struct ct_err *err)
{
    struct ctw_comm *world = pipe->team->comm;
    int rank = ctw_comm_rank(world), rc = 0;
    if (pipe->stage > 0) {
        rc = ctw_link_open(world, rank - 1, bytes_in(pipe, pipe->rows), &pipe->below, err);
    }
    if (rc == 0 && pipe->stage + 1 < pipe->stages) {
        rc = ctw_link_open(world, rank + 1, bytes_out(pipe, pipe->rows), &pipe->above, err);
    }
    return rc;
}

static int alloc_gradients(struct ct_pipeline *pipe, struct ct_err *err)
{
    size_t bytes = pipe->layout.count * sizeof(float);
    void *grads, *part;
    int rc = ctw_comm_alloc(pipe->group, CTW_MEMORY_OWN, bytes, &grads, err);
    if (rc == 0) {
        pipe->grads = grads;
        rc = pipe->dev->ops->alloc(pipe->dev, bytes, &part, err);
    }
    if (rc == 0) {
        pipe->part = part;
    }
    return rc;
}

static int alloc_slots(struct ct_pipeline *pipe, const uint16_t *narrow, struct ct_err *err)
{
    size_t count = ct_pipe_depth(pipe->stages, pipe->stage, pipe->micros);
    int rc = 0;
    pipe->slots = ct_calloc(count, sizeof *pipe->slots);
    if (pipe->slots == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    while (rc == 0 && pipe->slot_count < count) {
        struct ct_model *slot = &pipe->slots[pipe->slot_count];
        rc = ct_model_init(slot, &pipe->layout, pipe->dev, pipe->rows, err);
        if (rc == 0) {
            slot->narrow = narrow != NULL ? narrow + pipe->base : NULL;
            pipe->slot_count++;
        }
    }
    return rc;
}

int ct_pipeline_open(const struct ct_pipeline_options *o, struct ct_team *team,
                     struct ct_device *dev, const struct ct_layout *whole, const uint16_t *narrow,
                     struct ct_pipeline **out, struct ct_err *err)
{
    struct ct_pipeline *pipe = ct_calloc(1, sizeof *pipe);
    if (pipe == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    size_t first, end;
    pipe->dev = dev;
    pipe->team = team;
    pipe->stages = o->stages;
    pipe->stage = (size_t)o->rank % o->stages;
    pipe->micros = o->micros > 0 ? o->micros : MICROS_PER_STAGE * o->stages;
    pipe->rows = (o->rows - 1) / pipe->micros + 1;
    pipe->rows = pipe->rows > o->test_rows ? pipe->rows : o->test_rows;
    ct_pipe_layers(whole, pipe->stages, pipe->stage, &first, &end);
    ct_layout_stage(whole, first, end, &pipe->layout);
    pipe->base = whole->layer[first].weight;
    int rc = ctw_comm_split(team->comm, (int)pipe->stage, o->rank, &pipe->group, err);
    if (rc == 0) {
        rc = open_links(pipe, err);
    }
    if (rc == 0) {
        rc = alloc_gradients(pipe, err);
    }
    if (rc == 0) {
        rc = alloc_slots(pipe, narrow, err);
    }
    if (rc != 0) {
        ct_pipeline_abort(pipe);
        ct_pipeline_free(pipe);
        return rc;
    }
    *out = pipe;
    return 0;
}

void ct_pipeline_abort(struct ct_pipeline *pipe)
{
    if (pipe != NULL) {
        ctw_link_abort(pipe->below);
        ctw_link_abort(pipe->above);
        if (pipe->group != NULL) {
            ctw_comm_abort(pipe->group);
        }
    }
}

void ct_pipeline_free(struct ct_pipeline *pipe)
{
    if (pipe == NULL) {
        return;
    }
    for (size_t i = 0; i < pipe->slot_count; i++) {
        ct_model_fini(&pipe->slots[i]);
    }
    ct_free(pipe->slots);
    pipe->dev->ops->release(pipe->dev, pipe->part);
    ctw_link_free(pipe->below);
    ctw_link_free(pipe->above);
    ctw_comm_free(pipe->group);
    ct_free(pipe);
}
