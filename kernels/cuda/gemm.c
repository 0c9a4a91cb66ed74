/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers by cuBLASLt. It is column major, so each row-major matrix is handed over as its
 * transpose and the two factors change places:
 *
 *   y  = x * w^T    becomes  y^T  = w * x^T     (m = out, n = batch, k = in)
 *   dw = dy^T * x   becomes  dw^T = x^T * dy    (m = in, n = out, k = batch)
 *   dx = dy * w     becomes  dx^T = w^T * dy^T  (m = in, n = batch, k = out)
 *
 * What follows a product (bias, ReLU and its bits; the bias gradient; the ReLU mask) is done on its
 * way out where cuBLASLt has such a kernel, by a pass of our own where it has not: it does not
 * promise them for every shape, least of all for sizes of 1.
 */
#include "kernels/cuda/gemm_plan.h"

#include "common/alloc.h"

/* Layers whose bits are known to hold what their forward pass left there. */
#define MAX_MARKED 64

/* Room for the e4m3 copy of a factor, and its scale. */
struct copy8 {
    struct ct_cuda_room room;
    float *scale; /* the scale and a word of scratch, as ct_launch_fp8() wants */
};

struct ct_cuda_gemm {
    struct ct_gemm_cache *cache;
    const void *marked[MAX_MARKED]; /* bits that cuBLASLt wrote; nobody else knows their layout */
    size_t next_mark;
    struct copy8 x8, w8;
};

int ct_cuda_gemm_new(struct ct_cuda_gemm **out, struct ct_err *err)
{
    struct ct_cuda_gemm *gemm = ct_calloc(1, sizeof(*gemm));
    if (gemm == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for the matrix products");
    }
    int rc = ct_gemm_cache_new(&gemm->cache, err);
    if (rc != 0) {
        ct_free(gemm);
        return rc;
    }
    *out = gemm;
    return 0;
}

void ct_cuda_gemm_free(struct ct_cuda_gemm *gemm)
{
    if (gemm == NULL) {
        return;
    }
    struct copy8 *copies[2] = {&gemm->x8, &gemm->w8};
    for (int i = 0; i < 2; i++) {
        ct_cuda_room_free(&copies[i]->room);
        (void)cudaFree(copies[i]->scale);
    }
    ct_gemm_cache_free(gemm->cache);
    ct_free(gemm);
}

int ct_cuda_gemm_explain(const struct ct_cuda_gemm *gemm, struct ct_buf *to)
{
    return ct_gemm_cache_explain(gemm->cache, to);
}

/* ---- bits ------------------------------------------------------------------------------------ */

static bool is_marked(const struct ct_cuda_gemm *gemm, const void *bits)
{
    for (size_t i = 0; bits != NULL && i < MAX_MARKED; i++) {
        if (gemm->marked[i] == bits) {
            return true;
        }
    }
    return false;
}

static void mark(struct ct_cuda_gemm *gemm, const void *bits, bool good)
{
    if (bits == NULL || is_marked(gemm, bits) == good) {
        return;
    }
    if (good) {
        gemm->marked[gemm->next_mark] = bits;
        gemm->next_mark = (gemm->next_mark + 1) % MAX_MARKED;
        return;
    }
    for (size_t i = 0; i < MAX_MARKED; i++) {
        gemm->marked[i] = gemm->marked[i] == bits ? NULL : gemm->marked[i];
    }
}

/* ---- e4m3 ------------------------------------------------------------------------------------ */

static int make_copy8(struct ct_cuda *cuda, struct copy8 *copy, const void *from, size_t count,
                      struct ct_err *err)
{
    if (copy->scale == NULL) {
        CT_CUDA_TRY(err, cudaMalloc((void **)&copy->scale, 2 * sizeof(*copy->scale)));
    }
    int rc = ct_cuda_room_get(&copy->room, count, err);
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, ct_launch_fp8(cuda->stream, count, from, copy->room.data, copy->scale));
    return 0;
}

/* ---- layers ---------------------------------------------------------------------------------- */

int ct_cuda_product(struct ct_cuda *cuda, struct ct_gemm_key key, const struct ct_gemm_operands *o,
                    struct ct_err *err)
{
    return ct_gemm_run(cuda->gemm->cache, cuda, key, o, err);
}

int ct_cuda_attempt(struct ct_cuda *cuda, struct ct_gemm_key key, const struct ct_gemm_operands *o,
                    struct ct_err *err)
{
    struct ct_err refusal = {0};
    int rc = ct_cuda_product(cuda, key, o, &refusal);
    return rc == 0 || rc == CT_EUNSUPPORTED ? rc : ct_err_set(err, rc, "%s", refusal.text);
}

/* The ways to a layer's output, best first; CT_EUNSUPPORTED when cuBLASLt has none with a bias. */
static int linear_fused(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_gemm_key k,
                        struct ct_gemm_operands o, struct ct_err *err)
{
    bool e4m3 = k.precision == CT_PRECISION_FP8;
    int rc = CT_EUNSUPPORTED;
    /* Elsewhere a bias has the result's type. An e4m3 product takes a bfloat16 one with any result.
     */
    k.bias16 = ct_precision_narrow(k.precision) && (e4m3 || !k.wide) && op->b16 != NULL;
    if (e4m3 && !k.bias16) {
        return rc;
    }
    o.extra = k.bias16 ? (const void *)op->b16 : op->b;
    if (op->relu && op->bits != NULL) {
        o.bits = op->bits;
        k.product = CT_PRODUCT_Y_RELU_BITS;
        rc = ct_cuda_attempt(cuda, k, &o, err);
        mark(cuda->gemm, op->bits, rc == 0);
        o.bits = NULL;
    }
    if (rc == CT_EUNSUPPORTED) {
        k.product = op->relu ? CT_PRODUCT_Y_RELU : CT_PRODUCT_Y_BIAS;
        rc = ct_cuda_attempt(cuda, k, &o, err);
    }
    return rc;
}

static int linear_by(struct ct_cuda *cuda, const struct ct_linear *op, enum ct_precision precision,
                     const struct ct_gemm_operands *o, struct ct_err *err)
{
    struct ct_gemm_key k = {
        .product = CT_PRODUCT_Y,
        .precision = precision,
        .wide = op->wide,
        .batch = op->batch,
        .in = op->in,
        .out = op->out,
    };
    int rc = CT_EUNSUPPORTED;
    mark(cuda->gemm, op->bits, false);
    if (op->in > 1 && op->out > 1) {
        rc = linear_fused(cuda, op, k, *o, err);
    }
    if (rc != CT_EUNSUPPORTED) {
        return rc;
    }
    rc = ct_cuda_product(cuda, k, o, err);
    if (rc == 0) {
        CT_CUDA_TRY(err, ct_launch_add_bias(cuda->stream, precision, op));
    }
    return rc;
}

/* e4m3 kernels want every size in multiples of 16. */
static int linear8(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err)
{
    if (op->in % 16 != 0 || op->out % 16 != 0 || op->batch % 16 != 0) {
        return CT_EUNSUPPORTED;
    }
    struct ct_cuda_gemm *gemm = cuda->gemm;
    int rc = make_copy8(cuda, &gemm->x8, op->x, op->batch * op->in, err);
    if (rc == 0) {
        rc = make_copy8(cuda, &gemm->w8, op->w, op->out * op->in, err);
    }
    const struct ct_gemm_operands o = {
        .a = gemm->w8.room.data,
        .b = gemm->x8.room.data,
        .d = op->y,
        .a_scale = gemm->w8.scale,
        .b_scale = gemm->x8.scale,
    };
    return rc == 0 ? linear_by(cuda, op, CT_PRECISION_FP8, &o, err) : rc;
}

int ct_cuda_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err)
{
    if (op->cut.rows > 0) {
        return ct_cuda_cut_linear(cuda, op, err);
    }
    enum ct_precision precision = cuda->base.precision;
    if (precision == CT_PRECISION_FP8) {
        int rc = linear8(cuda, op, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
        precision = CT_PRECISION_BF16;
    }
    const struct ct_gemm_operands o = {.a = op->w, .b = op->x, .d = op->y};
    return linear_by(cuda, op, precision, &o, err);
}

static int gradient_of_weights(struct ct_cuda *cuda, const struct ct_linear_grad *op,
                               struct ct_gemm_key k, struct ct_err *err)
{
    struct ct_gemm_operands o = {.a = op->x, .b = op->dy, .d = op->dw, .extra = op->db};
    k.wide = true;
    if (op->in > 1 && op->out > 1) {
        k.product = CT_PRODUCT_DW_DB;
        int rc = ct_cuda_attempt(cuda, k, &o, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
    }
    k.product = CT_PRODUCT_DW;
    o.extra = NULL;
    CT_CUDA_TRY(err, ct_launch_column_sums(cuda->stream, k.precision, 1, op->batch, op->out, op->dy,
                                           0, op->db));
    return ct_cuda_product(cuda, k, &o, err);
}

static int gradient_of_input(struct ct_cuda *cuda, const struct ct_linear_grad *op,
                             struct ct_gemm_key k, struct ct_err *err)
{
    struct ct_gemm_operands o = {.a = op->w, .b = op->dy, .d = op->dx};
    if (op->mask != NULL && is_marked(cuda->gemm, op->bits)) {
        k.product = CT_PRODUCT_DX_BITS;
        o.bits = op->bits;
        int rc = ct_cuda_attempt(cuda, k, &o, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
        o.bits = NULL;
    }
    k.product = CT_PRODUCT_DX;
    int rc = ct_cuda_product(cuda, k, &o, err);
    if (rc == 0 && op->mask != NULL) {
        CT_CUDA_TRY(
            err, ct_launch_mask(cuda->stream, k.precision, op->batch * op->in, op->dx, op->mask));
    }
    return rc;
}

int ct_cuda_linear_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err)
{
    if (op->cut.rows > 0) {
        return ct_cuda_cut_grad(cuda, op, err);
    }
    enum ct_precision precision = cuda->base.precision;
    const struct ct_gemm_key k = {
        .precision = precision == CT_PRECISION_FP8 ? CT_PRECISION_BF16 : precision,
        .batch = op->batch,
        .in = op->in,
        .out = op->out,
    };
    int rc = gradient_of_weights(cuda, op, k, err);
    return rc == 0 && op->dx != NULL ? gradient_of_input(cuda, op, k, err) : rc;
}
