/* SPDX-License-Identifier: Apache-2.0
 *
 * A multi-layer perceptron whose parameters are one flat array of floats, so that gradients are
 * summed, and parameters updated and stored, without knowing of layers.
 *
 *     [ layers.0.weight | layers.0.bias | layers.1.weight | ... ]   each part at a multiple of 64
 * bytes
 *
 * The gaps hold zeros: their gradient is never written, so every update rule leaves them zero.
 */
#ifndef CT_TRAINER_MODEL_MODEL_H
#define CT_TRAINER_MODEL_MODEL_H

#include "common/err.h"
#include "kernels/device/device.h"

#include <stddef.h>
#include <stdint.h>

/* Deeper plain MLPs do not train anyway, and a bound keeps the layout free of allocations. */
#define CT_HIDDEN_MAX 32

/* Units of each hidden layer, the one next to the input first. */
struct ct_hidden {
    size_t count;
    size_t size[CT_HIDDEN_MAX];
};

#define CT_LAYERS_MAX (CT_HIDDEN_MAX + 1)

struct ct_layer {
    size_t in, out;
    size_t weight; /* place of weight[out][in] in the flat array */
    size_t bias;   /* place of bias[out] */
};

struct ct_layout {
    size_t layer_count;
    size_t first, total; /* layer[0] is number `first` of the `total` layers of the whole model */
    struct ct_layer layer[CT_LAYERS_MAX];
    size_t count;      /* floats of the flat array, gaps included */
    size_t parameters; /* without the gaps */
};

/* CT_ELIMIT when the sizes multiply to more than memory can address sensibly (2^32 floats). */
CT_MUST_CHECK int ct_layout_init(struct ct_layout *layout, size_t features,
                                 const struct ct_hidden *hidden, size_t classes,
                                 struct ct_err *err);

/* Layers [first, end) of a whole model: their part of its flat array, as an array of its own. */
void ct_layout_stage(const struct ct_layout *whole, size_t first, size_t end,
                     struct ct_layout *out);

/* Initial values as torch.nn.Linear draws them: uniform within +-1/sqrt(in), weights and biases. A
 * function of the seed alone. `params` is host memory of layout->count floats. */
void ct_layout_draw(const struct ct_layout *layout, uint64_t seed, float *params);

/* Buffers for one forward and backward pass of at most max_rows samples, in device memory. */
struct ct_model {
    const struct ct_layout *layout; /* borrowed */
    struct ct_device *dev;          /* borrowed */
    size_t max_rows;
    struct ct_cut cut; /* of the batches that come; {0} at first */
    /* Borrowed; NULL = the parameters' own. Where the device's precision is not float32: the copy
     * of the parameters in it, at the same places. */
    const uint16_t *narrow;
    /* Borrowed; NULL, or where samples are found in place of an index. */
    const struct ct_course *course;
    /* Called when a layer's gradient is queued; NULL = nobody waits for it. */
    int (*layer_done)(void *data, size_t layer, struct ct_err *err);
    void *layer_done_data;
    float *arena;
    void *bits[CT_LAYERS_MAX];    /* on GPUs: which outputs of layer l are above zero; else NULL */
    void *act[CT_LAYERS_MAX + 1]; /* act[0] = input, act[l + 1] = output of layer l */
    void *delta[2];               /* gradient by a layer's output, layers take turns */
    uint8_t *labels;
};

/* Images and labels of one split in device memory. */
struct ct_augment;
struct ct_resident {
    const uint8_t *images, *labels;
    float mean, stddev;
    const struct ct_augment *augment; /* changes the images as they are loaded; NULL = does not */
};

CT_MUST_CHECK int ct_model_init(struct ct_model *model, const struct ct_layout *layout,
                                struct ct_device *dev, size_t max_rows, struct ct_err *err);
void ct_model_fini(struct ct_model *model); /* NULL and zeroed memory are allowed */

/* The parts of ct_model_run(), for a model that is one stage of several: act[0] then comes from the
 * stage before, and what ct_model_top() gives from the one behind. */
CT_MUST_CHECK int ct_model_load(struct ct_model *model, const struct ct_resident *data,
                                const uint32_t *index, size_t rows, struct ct_err *err);
CT_MUST_CHECK int ct_model_forward(struct ct_model *model, const float *params, size_t rows,
                                   struct ct_err *err);
/* Of the logits; the gradient goes to ct_model_top() where it is asked for. */
CT_MUST_CHECK int ct_model_loss(struct ct_model *model, size_t rows, float scale, bool gradient,
                                double *totals, struct ct_err *err);
CT_MUST_CHECK int ct_model_backward(struct ct_model *model, const float *params, float *grads,
                                    size_t rows, struct ct_err *err);

/* The gradient by the output, and after ct_model_backward() that by the input, before the layer
 * below's activation. */
void *ct_model_top(const struct ct_model *model);
void *ct_model_bottom(const struct ct_model *model);

/* Loads samples index[0 .. rows) and computes the logits and the loss of them: summed loss and
 * number of correct predictions are added to totals[0] and totals[1] (device memory). With grads,
 * the gradients of (loss sum * scale) are written there, over what was there. 1 <= rows <=
 * max_rows. */
CT_MUST_CHECK int ct_model_run(struct ct_model *model, const float *params,
                               const struct ct_resident *data, const uint32_t *index, size_t rows,
                               float scale, float *grads, double *totals, struct ct_err *err);

#endif
