/* SPDX-License-Identifier: Apache-2.0
 *
 * The 8-bit copies that the products of a layer multiply, and their scales. cuBLASLt reads both
 * factors along the dimension that is summed over, so each product wants its own copies:
 *
 *   y:  x, w as they are          dx: w transposed, dy as it is          dw: x and dy transposed
 *
 * The copies are made anew for each product, in memory that all layers share, since the device's
 * one stream computes one product at a time. The scales are kept per layer, which is known by the
 * address and size of its weights. A layer's first scale comes from the numbers themselves, the
 * later ones from those of the calls before (fp8.cu). Memory that is released may come back as
 * another layer's weights, so all scales begin anew then. Failures are those of CUDA's allocator
 * and of launches; the device frees all at its end.
 */
#include "kernels/cuda/fp8_copies.h"

#include "common/alloc.h"

/* Layers whose scales are known; a new one takes the place of the oldest. */
#define MAX_LAYERS 256

struct layer {
    const void *w;
    size_t in, out;
    struct ct_fp8_scale *scales[CT_FP8_TENSORS]; /* NULL = never used */
    bool seeded[CT_FP8_TENSORS];
};

struct ct_cuda_fp8 {
    struct layer layers[MAX_LAYERS];
    size_t count, next; /* in use; the one that the next new layer takes */
    struct ct_cuda_scratch plain[CT_FP8_TENSORS], transposed[CT_FP8_TENSORS];
};

int ct_cuda_fp8_new(struct ct_cuda_fp8 **out, struct ct_err *err)
{
    *out = ct_calloc(1, sizeof(**out));
    return *out != NULL ? 0 : ct_err_set(err, CT_ENOMEM, "no memory for the scales of fp8");
}

void ct_cuda_fp8_free(struct ct_cuda_fp8 *fp8)
{
    if (fp8 == NULL) {
        return;
    }
    for (int t = 0; t < CT_FP8_TENSORS; t++) {
        for (size_t i = 0; i < fp8->count; i++) {
            (void)cudaFree(fp8->layers[i].scales[t]);
        }
        ct_cuda_scratch_free(&fp8->plain[t]);
        ct_cuda_scratch_free(&fp8->transposed[t]);
    }
    ct_free(fp8);
}

void ct_cuda_fp8_forget(struct ct_cuda_fp8 *fp8)
{
    for (size_t i = 0; i < fp8->count; i++) {
        for (int t = 0; t < CT_FP8_TENSORS; t++) {
            fp8->layers[i].seeded[t] = false;
        }
    }
}

static struct layer *layer_of(struct ct_cuda_fp8 *fp8, const void *w, size_t in, size_t out)
{
    for (size_t i = 0; i < fp8->count; i++) {
        struct layer *l = &fp8->layers[i];
        if (l->w == w && l->in == in && l->out == out) {
            return l;
        }
    }
    struct layer *l = &fp8->layers[fp8->next];
    fp8->next = (fp8->next + 1) % MAX_LAYERS;
    fp8->count += fp8->count < MAX_LAYERS;
    l->w = w, l->in = in, l->out = out;
    for (int t = 0; t < CT_FP8_TENSORS; t++) {
        l->seeded[t] = false;
    }
    return l;
}

/* What is recorded has run before, and so has its scale. */
static int seed(struct ct_cuda *cuda, struct layer *l, const struct ct_fp8_wanted *wanted,
                struct ct_err *err)
{
    enum ct_fp8_tensor t = wanted->tensor;
    if (l->scales[t] == NULL) {
        CT_CUDA_TRY(err, cudaMalloc((void **)&l->scales[t], sizeof(*l->scales[t])));
    }
    if (!l->seeded[t] && !cuda->recording) {
        CT_CUDA_TRY(err,
                    ct_launch_fp8_seed(ct_cuda_on(cuda, cuda->stream), wanted->rows * wanted->cols,
                                       wanted->from, l->scales[t]));
        l->seeded[t] = true;
    }
    return 0;
}

int ct_cuda_fp8_copy(struct ct_cuda *cuda, struct ct_cuda_fp8 *fp8,
                     const struct ct_fp8_wanted *wanted, struct ct_fp8_copies *out,
                     struct ct_err *err)
{
    struct layer *l = layer_of(fp8, wanted->w, wanted->in, wanted->out);
    enum ct_fp8_tensor t = wanted->tensor;
    struct ct_cuda_scratch *plain = &fp8->plain[t], *transposed = &fp8->transposed[t];
    size_t bytes = wanted->rows * wanted->cols;
    int rc = seed(cuda, l, wanted, err);
    if (rc == 0 && wanted->plain) {
        rc = ct_cuda_scratch_get(plain, bytes, err);
    }
    if (rc == 0 && wanted->transposed) {
        rc = ct_cuda_scratch_get(transposed, bytes, err);
    }
    if (rc != 0) {
        return rc;
    }
    const struct ct_fp8_copy op = {
        .rows = wanted->rows,
        .cols = wanted->cols,
        .type = t == CT_FP8_DY ? CT_E5M2 : CT_E4M3,
        .from = wanted->from,
        .to = wanted->plain ? plain->data : NULL,
        .transposed = wanted->transposed ? transposed->data : NULL,
        .scale = l->scales[t],
    };
    CT_CUDA_TRY(err, ct_launch_fp8(ct_cuda_on(cuda, cuda->stream), &op));
    *out = (struct ct_fp8_copies){op.to, op.transposed, &l->scales[t]->scale};
    return 0;
}
