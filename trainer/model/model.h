/* SPDX-License-Identifier: Apache-2.0
 *
 * A multi-layer perceptron. All parameters are one flat array of floats, so that gradients can be
 * summed, and parameters updated and stored, without knowledge of layers.
 *
 *     [ layers.0.weight | layers.0.bias | layers.1.weight | ... ]   each part at a multiple of 64
 * bytes
 *
 * The gaps contain zeros: their gradient is never written, so every update rule leaves them zero.
 */
#ifndef CT_TRAINER_MODEL_MODEL_H
#define CT_TRAINER_MODEL_MODEL_H

#include "common/err.h"
#include "kernels/device/device.h"

#include <stddef.h>
#include <stdint.h>

/* Plain MLPs of more layers do not train, and a limit keeps the layout free of allocations. */
#define CT_HIDDEN_MAX 32

/* Units of each hidden layer, from the input on. */
struct ct_hidden {
    size_t count;
    size_t size[CT_HIDDEN_MAX];
};

#define CT_LAYERS_MAX (CT_HIDDEN_MAX + 1)

struct ct_layer {
    size_t in, out;
    size_t weight; /* index of weight[out][in] in the flat array */
    size_t bias;   /* index of bias[out] */
};

struct ct_layout {
    size_t layer_count;
    size_t first, total; /* layer[0] is layer `first` of the `total` layers of the whole model */
    struct ct_layer layer[CT_LAYERS_MAX];
    size_t count;      /* length of the flat array, with gaps */
    size_t parameters; /* without the gaps */
};

/* CT_ELIMIT if the model would have more than 2^32 floats. */
CT_MUST_CHECK int ct_layout_init(struct ct_layout *layout, size_t features,
                                 const struct ct_hidden *hidden, size_t classes,
                                 struct ct_err *err);

/* Gives layers [first, end) of a whole model as a layout of their part of the flat array. */
void ct_layout_stage(const struct ct_layout *whole, size_t first, size_t end,
                     struct ct_layout *out);

/* Draws initial values like torch.nn.Linear: uniform within +-1/sqrt(in), for weights and biases.
 * They depend on the seed only. `params` is host memory of layout->count floats. */
void ct_layout_draw(const struct ct_layout *layout, uint64_t seed, float *params);

/* Buffers for one forward and backward pass of at most max_rows samples, in device memory. */
struct ct_model {
    const struct ct_layout *layout; /* borrowed */
    struct ct_device *dev;          /* borrowed */
    size_t max_rows;
    struct ct_partition partition; /* how batches are divided into parts; {0} at first */
    /* Borrowed: a copy of the parameters in the device's precision, at the same indices. NULL = the
     * parameters themselves are read. */
    const uint16_t *narrow;
    /* Borrowed: gives the samples instead of an index. NULL = the index is used. */
    const struct ct_step_cursor *cursor;
    /* Called when a layer's gradient is queued; NULL = not called. */
    int (*layer_done)(void *data, size_t layer, struct ct_err *err);
    void *layer_done_data;
    float *arena;
    void *bits[CT_LAYERS_MAX];    /* on GPUs: which outputs of layer l are positive; else NULL */
    void *act[CT_LAYERS_MAX + 1]; /* act[0] = input, act[l + 1] = output of layer l */
    void *delta[2];               /* gradients by a layer's output; layers use the two in turn */
    uint8_t *labels;
};

/* Images and labels of one split in device memory. */
struct ct_augment;
struct ct_device_dataset {
    const uint8_t *images, *labels;
    float mean, stddev;
    const struct ct_augment *augment; /* augments images as they are loaded; NULL = does not */
};

CT_MUST_CHECK int ct_model_init(struct ct_model *model, const struct ct_layout *layout,
                                struct ct_device *dev, size_t max_rows, struct ct_err *err);
void ct_model_fini(struct ct_model *model); /* NULL and zeroed memory are allowed */

/* The parts of ct_model_run(), for a model that is one stage of several: then act[0] comes from the
 * stage before, and the content of ct_model_top() from the stage after. */
CT_MUST_CHECK int ct_model_load(struct ct_model *model, const struct ct_device_dataset *data,
                                const uint32_t *index, size_t rows, struct ct_err *err);
CT_MUST_CHECK int ct_model_forward(struct ct_model *model, const float *params, size_t rows,
                                   struct ct_err *err);
/* Computes the loss of the logits; with `gradient`, its gradient goes to ct_model_top(). */
CT_MUST_CHECK int ct_model_loss(struct ct_model *model, size_t rows, float scale, bool gradient,
                                double *totals, struct ct_err *err);
CT_MUST_CHECK int ct_model_backward(struct ct_model *model, const float *params, float *grads,
                                    size_t rows, struct ct_err *err);

/* The gradient by the output and, after ct_model_backward(), the gradient by the input, to which
 * the activation of the layer below has not been applied. */
void *ct_model_top(const struct ct_model *model);
void *ct_model_bottom(const struct ct_model *model);

/* Loads samples index[0 .. rows) and computes their logits and loss. Adds the summed loss and the
 * number of correct predictions to totals[0] and totals[1] (device memory). If grads is not NULL,
 * the gradients of (loss sum * scale) replace its content. 1 <= rows <= max_rows. */
CT_MUST_CHECK int ct_model_run(struct ct_model *model, const float *params,
                               const struct ct_device_dataset *data, const uint32_t *index,
                               size_t rows, float scale, float *grads, double *totals,
                               struct ct_err *err);

#endif
