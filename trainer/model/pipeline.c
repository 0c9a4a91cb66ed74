/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a step's actions in the order of pipeline_schedule.h: each receives from a neighbour,
 * computes and sends. Links and communicator are opened with the pipeline and freed with it. When a
 * neighbour dies or aborts, the link's call fails, and with it the step; ct_pipeline_abort() wakes
 * the others.
 */
#include "trainer/model/pipeline.h"

#include "common/alloc.h"
#include "trainer/data/sampler.h"
#include "trainer/model/pipeline_schedule.h"

/* Enough that stages idle for a fifth of the time at most while a step begins and ends. */
#define MICROS_PER_STAGE 4

/* Passes that may be queued on a GPU before the host waits itself. One more would make the device's
 * own call wait. */
#define QUEUED_MAX CT_DEVICE_BATCHES_AHEAD

/* ---- beside the device ----------------------------------------------------------------------- */

/* Before the host queues what `may_wait` for the device, or too much: waits itself, since it
 * notices that a peer is gone, and the device's own calls do not. */
static int await_queue(struct ct_pipeline *pipe, bool may_wait, struct ct_err *err)
{
    if (pipe->dev->kind == CT_DEVICE_CPU ||
        pipe->cursor != NULL || /* nobody waits while recording */
        (!may_wait && pipe->queued < QUEUED_MAX)) {
        return 0;
    }
    pipe->queued = 0;
    return ct_group_sync(pipe->group, err);
}

/* Links and sums are ordered on a GPU's side stream: after what is computed so far, */
static int fork_side(struct ct_pipeline *pipe, struct ct_err *err)
{
    const struct ct_device_ops *ops = pipe->dev->ops;
    return ops->fork != NULL ? ops->fork(pipe->dev, err) : 0;
}

/* ... and before what is computed next. */
static int join_side(struct ct_pipeline *pipe, struct ct_err *err)
{
    const struct ct_device_ops *ops = pipe->dev->ops;
    return ops->join != NULL ? ops->join(pipe->dev, err) : 0;
}

/* Nobody waits for a message to be taken: its place is written again only after one of the other
 * direction has come, or after join_side(). */
static int give(struct ct_pipeline *pipe, struct ctw_link *link, const void *buf, size_t bytes,
                int tag, struct ct_err *err)
{
    int rc = fork_side(pipe, err);
    if (rc != 0) {
        return rc;
    }
    return ctw_link_send(link, buf, bytes, tag, err);
}

static int take(struct ct_pipeline *pipe, struct ctw_link *link, void *buf, size_t bytes, int tag,
                struct ct_err *err)
{
    int rc = fork_side(pipe, err);
    if (rc != 0) {
        return rc;
    }
    rc = ctw_link_recv(link, buf, bytes, tag, err);
    if (rc != 0) {
        return rc;
    }
    return join_side(pipe, err);
}

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

/* The samples of a micro-batch: `rows` of this rank's from `begin` on. */
struct samples {
    const struct ct_device_dataset *data;
    const uint32_t *index; /* NULL while recording */
    size_t begin, rows;
};

static int load(struct ct_pipeline *pipe, struct ct_model *slot, const struct samples *s,
                struct ct_err *err)
{
    if (pipe->cursor != NULL) {
        struct ct_step_cursor cursor = *pipe->cursor;
        cursor.begin += s->begin;
        slot->cursor = &cursor;
        int rc = ct_model_load(slot, s->data, NULL, s->rows, err);
        slot->cursor = NULL;
        return rc;
    }
    /* Augmented images are brought there with the host waiting. */
    int rc = await_queue(pipe, s->data->augment != NULL, err);
    if (rc != 0) {
        return rc;
    }
    return ct_model_load(slot, s->data, s->index + s->begin, s->rows, err);
}

/* From the stage below or the data set, through this stage's layers, to the stage above. On the
 * last stage the logits and labels are then in the slot. */
static int forward(struct ct_pipeline *pipe, struct ct_model *slot, const float *params,
                   const struct samples *s, struct ct_err *err)
{
    size_t rows = s->rows;
    if (pipe->below == NULL || pipe->above == NULL) {
        int rc = load(pipe, slot, s, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (pipe->below != NULL) {
        int rc = take(pipe, pipe->below, slot->act[0], bytes_in(pipe, rows), TAG_ACTIVATION, err);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = await_queue(pipe, pipe->fresh, err);
    if (rc != 0) {
        return rc;
    }
    pipe->queued++;
    rc = ct_model_forward(slot, params, rows, err);
    if (rc != 0) {
        return rc;
    }
    if (pipe->above == NULL) {
        return 0;
    }
    return give(pipe, pipe->above, slot->act[pipe->layout.layer_count], bytes_out(pipe, rows),
                TAG_ACTIVATION, err);
}

/* The first micro-batch's gradients are written, the others' added. */
static int backward(struct ct_pipeline *pipe, struct ct_model *slot, const float *params,
                    size_t rows, bool first, struct ct_err *err)
{
    if (pipe->above != NULL) {
        int rc =
            take(pipe, pipe->above, ct_model_top(slot), bytes_out(pipe, rows), TAG_GRADIENT, err);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = await_queue(pipe, pipe->fresh, err);
    if (rc != 0) {
        return rc;
    }
    pipe->queued++;
    rc = ct_model_backward(slot, params, first ? pipe->grads : pipe->part, rows, err);
    if (rc != 0) {
        return rc;
    }
    if (pipe->below != NULL) {
        rc =
            give(pipe, pipe->below, ct_model_bottom(slot), bytes_in(pipe, rows), TAG_GRADIENT, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (first) {
        return 0;
    }
    /* An update at a rate of -1 adds. */
    const struct ct_sgd add = {
        .count = pipe->layout.count, .param = pipe->grads, .grad = pipe->part, .lr = -1.0f};
    return pipe->dev->ops->sgd(pipe->dev, &add, err);
}

int ct_pipeline_run(struct ct_pipeline *pipe, const float *params,
                    const struct ct_device_dataset *data, const uint32_t *index, size_t rows,
                    float scale, double *totals, struct ct_err *err)
{
    /* All stages of a replica know how many rows it has, and come to the same number. */
    size_t micros = rows < pipe->micros ? rows : pipe->micros;
    pipe->fresh = rows != pipe->seen_rows;
    pipe->seen_rows = rows;
    if (micros == 0) {
        return pipe->dev->ops->clear(pipe->dev, pipe->grads, pipe->layout.count * sizeof(float),
                                     err);
    }
    for (size_t i = 0; i < 2 * micros; i++) {
        struct ct_pipe_action action = ct_pipe_action(pipe->stages, pipe->stage, micros, i);
        struct ct_model *slot = &pipe->slots[action.micro % pipe->slot_count];
        size_t begin, end;
        ct_sampler_share(rows, (int)action.micro, (int)micros, &begin, &end);
        if (action.backward) {
            int rc = backward(pipe, slot, params + pipe->base, end - begin, action.micro == 0, err);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        const struct samples samples = {data, index, begin, end - begin};
        int rc = forward(pipe, slot, params + pipe->base, &samples, err);
        if (rc != 0) {
            return rc;
        }
        if (pipe->above == NULL) {
            rc = ct_model_loss(slot, end - begin, scale, true, totals, err);
            if (rc != 0) {
                return rc;
            }
        }
    }
    return 0;
}

int ct_pipeline_evaluate(struct ct_pipeline *pipe, const float *params,
                         const struct ct_device_dataset *data, const uint32_t *index, size_t rows,
                         double *totals, struct ct_err *err)
{
    struct ct_model *slot = &pipe->slots[0];
    pipe->fresh = rows != pipe->seen_test_rows;
    pipe->seen_test_rows = rows;
    const struct samples samples = {.data = data, .index = index, .rows = rows};
    int rc = forward(pipe, slot, params + pipe->base, &samples, err);
    if (rc != 0) {
        return rc;
    }
    return pipe->above == NULL ? ct_model_loss(slot, rows, 0, false, totals, err)
                               : join_side(pipe, err);
}

int ct_pipeline_reduce(struct ct_pipeline *pipe, size_t *begin, size_t *end, struct ct_err *err)
{
    int rc = fork_side(pipe, err);
    if (rc != 0) {
        return rc;
    }
    rc = ctw_comm_reduce_scatter(pipe->replicas, pipe->grads, pipe->layout.count, begin, end, err);
    if (rc != 0) {
        return rc;
    }
    return join_side(pipe, err);
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

/* Lower first, on every stage: so the links of a replica open from the bottom up. */
static int open_links(struct ct_pipeline *pipe, struct ct_err *err)
{
    struct ctw_comm *world = pipe->group->comm;
    int rank = ctw_comm_rank(world);
    if (pipe->stage > 0) {
        int rc = ctw_link_open(world, rank - 1, bytes_in(pipe, pipe->rows), &pipe->below, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (pipe->stage + 1 == pipe->stages) {
        return 0;
    }
    return ctw_link_open(world, rank + 1, bytes_out(pipe, pipe->rows), &pipe->above, err);
}

static int alloc_gradients(struct ct_pipeline *pipe, struct ct_err *err)
{
    size_t bytes = pipe->layout.count * sizeof(float);
    void *grads, *part;
    int rc = ctw_comm_alloc(pipe->replicas, CTW_MEMORY_OWN, bytes, &grads, err);
    if (rc != 0) {
        return rc;
    }
    pipe->grads = grads;
    rc = pipe->dev->ops->alloc(pipe->dev, bytes, &part, err);
    if (rc != 0) {
        return rc;
    }
    pipe->part = part;
    return 0;
}

static int alloc_slots(struct ct_pipeline *pipe, const uint16_t *narrow, struct ct_err *err)
{
    size_t count = ct_pipe_depth(pipe->stages, pipe->stage, pipe->micros);
    pipe->slots = ct_calloc(count, sizeof *pipe->slots);
    if (pipe->slots == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    while (pipe->slot_count < count) {
        struct ct_model *slot = &pipe->slots[pipe->slot_count];
        int rc = ct_model_init(slot, &pipe->layout, pipe->dev, pipe->rows, err);
        if (rc != 0) {
            return rc;
        }
        slot->narrow = narrow != NULL ? narrow + pipe->base : NULL;
        pipe->slot_count++;
    }
    return 0;
}

/* A GPU enlarges a room for indices by giving back what there was. That waits for all it has to do,
 * messages among it, so it must be done before there are any: loads labels into every room, as many
 * as there will ever be. */
static int make_room(struct ct_pipeline *pipe, struct ct_err *err)
{
    if (pipe->dev->kind == CT_DEVICE_CPU) {
        return 0;
    }
    uint32_t *index = ct_calloc(pipe->rows, sizeof *index);
    if (index == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    const uint8_t *some = (const uint8_t *)pipe->slots[0].arena;
    const struct ct_gather op = {
        .images = some,
        .labels = some,
        .index = index,
        .batch = pipe->rows,
        .stddev = 1,
        .x = pipe->slots[0].act[0],
        .y = pipe->slots[0].labels,
    };
    int rc = 0;
    for (int i = 0; rc == 0 && i < QUEUED_MAX; i++) {
        rc = pipe->dev->ops->gather(pipe->dev, &op, err);
    }
    ct_free(index);
    return rc;
}

int ct_pipeline_open(const struct ct_pipeline_options *o, struct ct_group *group,
                     struct ct_device *dev, const struct ct_layout *whole, const uint16_t *narrow,
                     struct ct_pipeline **out, struct ct_err *err)
{
    struct ct_pipeline *pipe = ct_calloc(1, sizeof *pipe);
    if (pipe == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    size_t first, end;
    pipe->dev = dev;
    pipe->group = group;
    pipe->stages = o->stages;
    pipe->stage = (size_t)o->rank % o->stages;
    pipe->micros = o->micros > 0 ? o->micros : MICROS_PER_STAGE * o->stages;
    pipe->rows = (o->rows - 1) / pipe->micros + 1;
    pipe->rows = pipe->rows > o->test_rows ? pipe->rows : o->test_rows;
    ct_pipe_layers(whole, pipe->stages, pipe->stage, &first, &end);
    ct_layout_stage(whole, first, end, &pipe->layout);
    pipe->place = whole->layer[first].weight;
    pipe->base = o->apart ? 0 : pipe->place;
    int rc = ctw_comm_split(group->comm, (int)pipe->stage, o->rank, &pipe->replicas, err);
    if (rc != 0) {
        goto fail;
    }
    rc = open_links(pipe, err);
    if (rc != 0) {
        goto fail;
    }
    rc = alloc_gradients(pipe, err);
    if (rc != 0) {
        goto fail;
    }
    rc = alloc_slots(pipe, narrow, err);
    if (rc != 0) {
        goto fail;
    }
    rc = make_room(pipe, err);
    if (rc != 0) {
        goto fail;
    }
    *out = pipe;
    return 0;
fail:
    ct_pipeline_abort(pipe);
    ct_pipeline_free(pipe);
    return rc;
}

void ct_pipeline_abort(struct ct_pipeline *pipe)
{
    if (pipe != NULL) {
        ctw_link_abort(pipe->below);
        ctw_link_abort(pipe->above);
        if (pipe->replicas != NULL) {
            ctw_comm_abort(pipe->replicas);
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
    ctw_comm_free(pipe->replicas);
    ct_free(pipe);
}
