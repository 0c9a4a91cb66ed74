/* SPDX-License-Identifier: Apache-2.0
 *
 * How cuBLASLt computes one product of one shape: its descriptors and the kernel that was chosen.
 * The choice is made once per shape and kept for the life of the device: of the kernels that the
 * heuristic offers, each is run on the first operands that come, and the fastest wins. While work
 * is recorded nothing can be timed, and the heuristic's first one is taken. The winner may be
 * another in the next run, and so the last bits of a result.
 *
 * Of a cut batch (`of` > 0) the bits must be the same in every run, and however many parts are
 * here. So nothing is timed: the first kernel is taken that computes each dot product in one
 * sequence (which cuBLASLt promises where it may not split them and has no memory to do it in), out
 * of those that the heuristic offers for all parts and that can also do any smaller number.
 *
 * There need not be one. So a cut batch can also be multiplied one part after the other
 * (`in_turn`), each by the first kernel that the heuristic offers for one part. That depends on the
 * sizes of a part alone, and so do the bits. It may use the workspace, and split dot products if no
 * other kernel is offered, but only where the pieces are added in a step of their own, in a fixed
 * order.
 */
#ifndef CT_KERNELS_CUDA_GEMM_PLAN_H
#define CT_KERNELS_CUDA_GEMM_PLAN_H

#include "kernels/cuda/cuda.h"

/* The part after Y, DW or DX is what cuBLASLt does on the way out. */
enum ct_gemm_product {
    CT_PRODUCT_Y,           /* x * w^T */
    CT_PRODUCT_Y_BIAS,      /* ... + b */
    CT_PRODUCT_Y_RELU,      /* max(0, ... + b) */
    CT_PRODUCT_Y_RELU_BITS, /* and bits that say where it was above 0 */
    CT_PRODUCT_DW,          /* dy^T * x */
    CT_PRODUCT_DW_DB,       /* and the sum of dy's columns */
    CT_PRODUCT_DX,          /* dy * w */
    CT_PRODUCT_DX_BITS,     /* zeroed where such bits are not set */
};

struct ct_gemm_key {
    enum ct_gemm_product product;
    enum ct_precision precision;
    bool wide;   /* the result is float32 in any precision */
    bool bias16; /* the bias is bfloat16 */
    size_t batch, in, out;
    size_t parts, of;  /* of a cut batch, `batch` rows each: those here, and all; 0 = not cut */
    bool in_turn;      /* the parts are multiplied one after the other */
    size_t slot;       /* floats from one part's DW to the next one's */
    unsigned align[4]; /* of a, b, d, extra: decides which kernels can be used */
};

/* Column-major operands, as gemm.c hands them over. */
struct ct_gemm_operands {
    const void *a, *b;
    void *d;
    const void *extra;              /* bias, or where its gradient goes; NULL = none */
    const void *bits;               /* NULL = none */
    const float *a_scale, *b_scale; /* of 8-bit factors */
};

/* Gives *out, which belongs to the cache. CT_EUNSUPPORTED when cuBLASLt has no kernel for it, which
 * is remembered, too. */
struct ct_gemm_plan;
struct ct_gemm_cache;

CT_MUST_CHECK int ct_gemm_cache_new(struct ct_gemm_cache **out, struct ct_err *err);
void ct_gemm_cache_free(struct ct_gemm_cache *cache); /* NULL is allowed */
/* A line of JSON for each plan; CT_ENOMEM. */
CT_MUST_CHECK int ct_gemm_cache_explain(const struct ct_gemm_cache *cache, struct ct_buf *to);

/* Queues the product on the device's stream. */
CT_MUST_CHECK int ct_gemm_run(struct ct_gemm_cache *cache, struct ct_cuda *cuda,
                              struct ct_gemm_key key, const struct ct_gemm_operands *operands,
                              struct ct_err *err);

/* gemm.c: with the device's own cache. After a refusal (CT_EUNSUPPORTED) of ct_cuda_attempt() `err`
 * is as it was: it is no news for the caller, who has another way. */
CT_MUST_CHECK int ct_cuda_product(struct ct_cuda *cuda, struct ct_gemm_key key,
                                  const struct ct_gemm_operands *operands, struct ct_err *err);
CT_MUST_CHECK int ct_cuda_attempt(struct ct_cuda *cuda, struct ct_gemm_key key,
                                  const struct ct_gemm_operands *operands, struct ct_err *err);

#endif
