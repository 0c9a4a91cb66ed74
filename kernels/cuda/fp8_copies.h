/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a layer's tensors in 8 bits, and the scales of each layer.
 */
#ifndef CT_KERNELS_CUDA_FP8_COPIES_H
#define CT_KERNELS_CUDA_FP8_COPIES_H

#include "kernels/cuda/cuda.h"

/* Gradients have a wider range than what they are gradients of: dy is e5m2, the rest is e4m3. */
enum ct_fp8_tensor { CT_FP8_X, CT_FP8_W, CT_FP8_DY, CT_FP8_TENSORS };

struct ct_fp8_wanted {
    const void *w; /* the layer's weights, and its sizes */
    size_t in, out;
    enum ct_fp8_tensor tensor;
    size_t rows, cols; /* as struct ct_fp8_copy has them */
    const void *from;
    bool plain, transposed;
};

/* Valid until the next copies of such a tensor, of any layer. */
struct ct_fp8_copies {
    const void *plain, *transposed; /* NULL = not wanted */
    const float *scale;             /* in device memory */
};

struct ct_cuda_fp8;

CT_MUST_CHECK int ct_cuda_fp8_new(struct ct_cuda_fp8 **out, struct ct_err *err);
void ct_cuda_fp8_free(struct ct_cuda_fp8 *fp8); /* NULL is allowed */
/* Queues the copying on the device's stream. */
CT_MUST_CHECK int ct_cuda_fp8_copy(struct ct_cuda *cuda, struct ct_cuda_fp8 *fp8,
                                   const struct ct_fp8_wanted *wanted, struct ct_fp8_copies *out,
                                   struct ct_err *err);
/* Addresses may belong to other layers from now on. */
void ct_cuda_fp8_forget(struct ct_cuda_fp8 *fp8);

#endif
