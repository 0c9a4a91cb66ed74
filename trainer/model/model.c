/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of the parameters, and one rank's passes over them: load a batch, forward, loss,
 * backward. Memory for activations is allocated once, for the largest batch; ct_model_fini() frees
 * it. A failed device operation is returned unchanged.
 */
#include "trainer/model/model.h"

#include "common/num.h"
#include "trainer/data/augment.h"
#include "trainer/formats/rng.h"

#include <math.h>

/* 64 bytes: a cache line, and the widest vector of the supported CPUs. */
#define ALIGN_FLOATS 16

/* 16 GiB of parameters. Gradients and optimizer state make that four times as much. */
#define COUNT_MAX ((size_t)1 << 32)

static bool take(size_t *place, size_t count, size_t *out)
{
    size_t padded, next;
    if (!ct_add_size(count, ALIGN_FLOATS - 1, &padded)) {
        return false;
    }
    padded -= padded % ALIGN_FLOATS;
    if (!ct_add_size(*place, padded, &next) || next > COUNT_MAX) {
        return false;
    }
    *out = *place;
    *place = next;
    return true;
}

int ct_layout_init(struct ct_layout *layout, size_t features, const struct ct_hidden *hidden,
                   size_t classes, struct ct_err *err)
{
    struct ct_layout made = {.layer_count = hidden->count + 1, .total = hidden->count + 1};
    size_t in = features;
    for (size_t l = 0; l < made.layer_count; l++) {
        struct ct_layer *layer = &made.layer[l];
        size_t weights;
        layer->in = in;
        layer->out = l < hidden->count ? hidden->size[l] : classes;
        if (!ct_mul_size(layer->in, layer->out, &weights) ||
            !take(&made.count, weights, &layer->weight) ||
            !take(&made.count, layer->out, &layer->bias)) {
            return ct_err_set(err, CT_ELIMIT,
                              "layer %zu (%zu to %zu) takes the model beyond %zu parameters", l,
                              layer->in, layer->out, COUNT_MAX);
        }
        made.parameters += weights + layer->out;
        in = layer->out;
    }
    *layout = made;
    return 0;
}

void ct_layout_stage(const struct ct_layout *whole, size_t first, size_t end, struct ct_layout *out)
{
    CT_ASSERT(first < end && end <= whole->layer_count && whole->first == 0);
    size_t base = whole->layer[first].weight;
    size_t limit = end < whole->layer_count ? whole->layer[end].weight : whole->count;
    *out = (struct ct_layout){
        .layer_count = end - first, .first = first, .total = whole->total, .count = limit - base};
    for (size_t l = 0; l < out->layer_count; l++) {
        struct ct_layer *layer = &out->layer[l];
        *layer = whole->layer[first + l];
        layer->weight -= base;
        layer->bias -= base;
        out->parameters += layer->in * layer->out + layer->out;
    }
}

void ct_layout_draw(const struct ct_layout *layout, uint64_t seed, float *params)
{
    for (size_t l = 0; l < layout->layer_count; l++) {
        const struct ct_layer *layer = &layout->layer[l];
        float bound = 1.0f / sqrtf((float)layer->in);
        size_t weights = layer->in * layer->out;
        uint64_t stream = (uint64_t)CT_RNG_INIT + layout->first + l;
        for (size_t i = 0; i < weights + layer->out; i++) {
            float unit = ct_rng_unit(seed, stream, i);
            size_t place = i < weights ? layer->weight + i : layer->bias + (i - weights);
            params[place] = bound * (2.0f * unit - 1.0f);
        }
    }
}

static int alloc_floats(struct ct_device *dev, size_t count, float **out, struct ct_err *err)
{
    void *memory;
    int rc = dev->ops->alloc(dev, count * sizeof(float), &memory, err);
    if (rc == 0) {
        *out = memory;
    }
    return rc;
}

/* Returns the number of floats that hold `count` numbers of `bytes` each. */
static size_t in_floats(size_t count, size_t bytes)
{
    return bytes == sizeof(float) ? count : count / 2 + count % 2;
}

int ct_model_init(struct ct_model *model, const struct ct_layout *layout, struct ct_device *dev,
                  size_t max_rows, struct ct_err *err)
{
    struct ct_model made = {.layout = layout, .dev = dev, .max_rows = max_rows};
    /* Offsets are computed first; they become pointers when the arena is allocated. */
    size_t number = ct_precision_bytes(dev->precision);
    size_t total = 0, widest = 0, act[CT_LAYERS_MAX + 1], delta[2];
    size_t bits[CT_LAYERS_MAX] = {0};
    bool fits = true;
    for (size_t l = 0; l <= layout->layer_count; l++) {
        size_t width = l == 0 ? layout->layer[0].in : layout->layer[l - 1].out;
        size_t floats = 0;
        bool logits = layout->first + l == layout->total;
        widest = layout->first + l > 0 && width > widest ? width : widest;
        fits = fits && ct_mul_size(width, max_rows, &floats) &&
               take(&total, in_floats(floats, logits ? sizeof(float) : number), &act[l]);
    }
    for (size_t i = 0; i < 2; i++) {
        size_t floats = 0;
        fits = fits && ct_mul_size(widest, max_rows, &floats) &&
               take(&total, in_floats(floats, number), &delta[i]);
    }
    for (size_t l = 0; fits && dev->kind != CT_DEVICE_CPU && l < layout->layer_count; l++) {
        size_t bytes = ct_relu_bits_bytes(max_rows, layout->layer[l].out);
        fits = take(&total, bytes / sizeof(float), &bits[l]);
    }
    if (!fits) {
        return ct_err_set(err, CT_ELIMIT, "%zu samples at a time need too much memory", max_rows);
    }
    int rc = alloc_floats(dev, total, &made.arena, err);
    if (rc != 0) {
        return rc;
    }
    void *labels;
    rc = dev->ops->alloc(dev, max_rows, &labels, err);
    if (rc != 0) {
        dev->ops->release(dev, made.arena);
        return rc;
    }
    for (size_t l = 0; l <= layout->layer_count; l++) {
        made.act[l] = made.arena + act[l];
    }
    for (size_t l = 0; dev->kind != CT_DEVICE_CPU && l < layout->layer_count; l++) {
        made.bits[l] = made.arena + bits[l];
    }
    made.delta[0] = made.arena + delta[0];
    made.delta[1] = made.arena + delta[1];
    made.labels = labels;
    *model = made;
    return 0;
}

void ct_model_fini(struct ct_model *model)
{
    if (model != NULL && model->dev != NULL) {
        model->dev->ops->release(model->dev, model->arena);
        model->dev->ops->release(model->dev, model->labels);
        *model = (struct ct_model){0};
    }
}

/* Returns the address from which a layer's weights are read. */
static const void *weights_of(const struct ct_model *model, const float *params,
                              const struct ct_layer *layer)
{
    return model->narrow != NULL ? (const void *)(model->narrow + layer->weight)
                                 : params + layer->weight;
}

int ct_model_load(struct ct_model *model, const struct ct_device_dataset *data,
                  const uint32_t *index, size_t rows, struct ct_err *err)
{
    CT_ASSERT(rows >= 1 && rows <= model->max_rows);
    const struct ct_gather op = {
        .images = data->images,
        .labels = data->labels,
        .index = index,
        .batch = rows,
        .features = model->layout->first == 0 ? model->layout->layer[0].in : 0,
        .mean = data->mean,
        .stddev = data->stddev,
        .x = model->act[0],
        .y = model->labels,
        .cursor = model->cursor,
        .partition = model->partition,
    };
    return data->augment != NULL ? ct_augment_gather(data->augment, &op, err)
                                 : model->dev->ops->gather(model->dev, &op, err);
}

static struct ct_linear linear_of(const struct ct_model *model, const float *params, size_t l,
                                  size_t rows)
{
    const struct ct_layout *layout = model->layout;
    const struct ct_layer *layer = &layout->layer[l];
    bool logits = layout->first + l + 1 == layout->total;
    return (struct ct_linear){
        .batch = rows,
        .partition = model->partition,
        .in = layer->in,
        .out = layer->out,
        .x = model->act[l],
        .w = weights_of(model, params, layer),
        .b = params + layer->bias,
        .y = model->act[l + 1],
        .relu = !logits,
        .wide = logits,
        .b16 = model->narrow != NULL ? model->narrow + layer->bias : NULL,
        .bits = logits ? NULL : model->bits[l],
    };
}

/* Runs the first `layers` layers only. */
static int forward(struct ct_model *model, const float *params, size_t rows, size_t layers,
                   struct ct_err *err)
{
    int rc = 0;
    for (size_t l = 0; rc == 0 && l < layers; l++) {
        const struct ct_linear op = linear_of(model, params, l, rows);
        rc = model->dev->ops->linear(model->dev, &op, err);
    }
    return rc;
}

int ct_model_forward(struct ct_model *model, const float *params, size_t rows, struct ct_err *err)
{
    return forward(model, params, rows, model->layout->layer_count, err);
}

/* delta[l % 2] is the gradient by the output of layer l. */
void *ct_model_top(const struct ct_model *model)
{
    return model->delta[(model->layout->layer_count - 1) % 2];
}

void *ct_model_bottom(const struct ct_model *model)
{
    return model->delta[1];
}

static struct ct_loss loss_of(const struct ct_model *model, size_t rows, float scale, bool gradient,
                              double *totals)
{
    const struct ct_layout *layout = model->layout;
    return (struct ct_loss){
        .batch = rows,
        .partition = model->partition,
        .classes = layout->layer[layout->layer_count - 1].out,
        .logits = model->act[layout->layer_count],
        .labels = model->labels,
        .scale = scale,
        .dlogits = gradient ? ct_model_top(model) : NULL,
        .totals = totals,
        .cursor = model->cursor,
    };
}

int ct_model_loss(struct ct_model *model, size_t rows, float scale, bool gradient, double *totals,
                  struct ct_err *err)
{
    const struct ct_loss op = loss_of(model, rows, scale, gradient, totals);
    return model->dev->ops->loss(model->dev, &op, err);
}

static struct ct_linear_grad grad_of(const struct ct_model *model, const float *params,
                                     float *grads, size_t l, size_t rows)
{
    const struct ct_layer *layer = &model->layout->layer[l];
    bool below = model->layout->first + l > 0; /* is there a layer whose ReLU made this input? */
    return (struct ct_linear_grad){
        .batch = rows,
        .partition = model->partition,
        .in = layer->in,
        .out = layer->out,
        .x = model->act[l],
        .w = weights_of(model, params, layer),
        .dy = model->delta[l % 2],
        .mask = below ? model->act[l] : NULL,
        .dw = grads + layer->weight,
        .db = grads + layer->bias,
        .dx = below ? model->delta[(l + 1) % 2] : NULL,
        .bits = l > 0 ? model->bits[l - 1] : NULL,
    };
}

static int layer_done(const struct ct_model *model, size_t l, struct ct_err *err)
{
    return model->layer_done != NULL ? model->layer_done(model->layer_done_data, l, err) : 0;
}

/* Runs the first `layers` layers only. */
static int backward(struct ct_model *model, const float *params, float *grads, size_t rows,
                    size_t layers, struct ct_err *err)
{
    int rc = 0;
    for (size_t l = layers; rc == 0 && l-- > 0;) {
        const struct ct_linear_grad op = grad_of(model, params, grads, l, rows);
        rc = model->dev->ops->linear_grad(model->dev, &op, err);
        if (rc == 0) {
            rc = layer_done(model, l, err);
        }
    }
    return rc;
}

int ct_model_backward(struct ct_model *model, const float *params, float *grads, size_t rows,
                      struct ct_err *err)
{
    return backward(model, params, grads, rows, model->layout->layer_count, err);
}

/* Runs all passes on a loaded batch, with the last layer and its loss in one operation. */
static int run_by_head(struct ct_model *model, const float *params, size_t rows, float scale,
                       float *grads, double *totals, struct ct_err *err)
{
    size_t last = model->layout->layer_count - 1;
    int rc = forward(model, params, rows, last, err);
    if (rc == 0) {
        const struct ct_head op = {
            .linear = linear_of(model, params, last, rows),
            .loss = loss_of(model, rows, scale, true, totals),
            .grad = grad_of(model, params, grads, last, rows),
        };
        rc = model->dev->ops->head(model->dev, &op, err);
    }
    if (rc == 0) {
        rc = layer_done(model, last, err);
    }
    return rc == 0 ? backward(model, params, grads, rows, last, err) : rc;
}

int ct_model_run(struct ct_model *model, const float *params, const struct ct_device_dataset *data,
                 const uint32_t *index, size_t rows, float scale, float *grads, double *totals,
                 struct ct_err *err)
{
    int rc = ct_model_load(model, data, index, rows, err);
    if (rc == 0 && grads != NULL && model->partition.rows == 0) {
        return run_by_head(model, params, rows, scale, grads, totals, err);
    }
    if (rc == 0) {
        rc = ct_model_forward(model, params, rows, err);
    }
    if (rc == 0) {
        rc = ct_model_loss(model, rows, scale, grads != NULL, totals, err);
    }
    if (rc == 0 && grads != NULL) {
        rc = ct_model_backward(model, params, grads, rows, err);
    }
    return rc;
}
