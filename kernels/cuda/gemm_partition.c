/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear layers of a batch that is cut into parts (struct ct_partition). All parts are multiplied
 * in one call as a batch of matrices of one shape by one kernel, which is the same whatever their
 * number here. Where no kernel can do any number of parts, the parts are multiplied one after the
 * other, by one kernel that is chosen for the sizes of a part. Which of both is done depends on the
 * layer and on the number of all parts, and so every rank does the same, however many it has.
 *
 * The gradients of weights go into a slot for each part, and are added as a tree:
 *
 *     part 0   dy^T * x, sum of dy   ->  slot 0  \
 *     part 1                         ->  slot 1   +-> dw, db
 *     ...
 *
 * There is no fp8 here: a scale is of all rows that a device has and of the steps before, so bits
 * would depend on where the parts are.
 *
 * The gradient of a part is as large as the weights, so that writing and reading the slots is what
 * this costs: 8 * parts bytes of memory traffic per weight.
 */
#include "kernels/cuda/gemm_plan.h"

/* Slots begin where cudaMalloc() could have put them. */
#define SLOT_FLOATS 64

static int begin(struct ct_cuda *cuda, const struct ct_partition *partition, size_t in, size_t out,
                 struct ct_gemm_key *key, struct ct_err *err)
{
    if (cuda->base.precision == CT_PRECISION_FP8) {
        return ct_err_set(err, CT_EUNSUPPORTED,
                          "fp8 scales all rows of a batch by the largest number among them, which "
                          "is not the same in every part of it");
    }
    *key = (struct ct_gemm_key){
        .precision = cuda->base.precision,
        .batch = partition->rows,
        .in = in,
        .out = out,
        .parts = partition->parts,
        .of = partition->of > partition->parts ? partition->of : partition->parts,
    };
    return 0;
}

/* One way to compute something, with the key of its products. */
typedef int (*way_fn)(struct ct_cuda *cuda, const void *op, struct ct_gemm_key k,
                      struct ct_err *err);

static int at_once_or_in_turn(struct ct_cuda *cuda, const void *op, struct ct_gemm_key k,
                              way_fn way, struct ct_err *err)
{
    struct ct_err at_once = {0};
    int rc = way(cuda, op, k, &at_once);
    if (rc != CT_EUNSUPPORTED) {
        return rc == 0 ? 0 : ct_err_set(err, rc, "%s", at_once.text);
    }
    k.in_turn = true;
    rc = way(cuda, op, k, err);
    if (rc == CT_EUNSUPPORTED) {
        (void)ct_err_wrap(err, "%s; then", at_once.text);
    }
    return rc;
}

static int linear(struct ct_cuda *cuda, const void *data, struct ct_gemm_key k, struct ct_err *err)
{
    const struct ct_linear *op = data;
    struct ct_gemm_operands o = {.a = op->w, .b = op->x, .d = op->y};
    int rc = CT_EUNSUPPORTED;
    if (op->in > 1 && op->out > 1) {
        k.bias16 = ct_precision_narrow(k.precision) && !op->wide && op->b16 != NULL;
        k.product = op->relu ? CT_PRODUCT_Y_RELU : CT_PRODUCT_Y_BIAS;
        o.extra = k.bias16 ? (const void *)op->b16 : op->b;
        rc = ct_cuda_attempt(cuda, k, &o, err);
    }
    if (rc != CT_EUNSUPPORTED) {
        return rc;
    }
    k.bias16 = false;
    k.product = CT_PRODUCT_Y;
    o.extra = NULL;
    rc = ct_cuda_product(cuda, k, &o, err);
    if (rc == 0) {
        struct ct_linear all = *op;
        all.batch = op->partition.rows * op->partition.parts;
        CT_CUDA_TRY(err, ct_launch_add_bias(ct_cuda_on(cuda, cuda->stream), k.precision, &all));
    }
    return rc;
}

int ct_cuda_cut_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err)
{
    struct ct_gemm_key k;
    int rc = begin(cuda, &op->partition, op->in, op->out, &k, err);
    if (rc != 0) {
        return rc;
    }
    k.wide = op->wide;
    return at_once_or_in_turn(cuda, op, k, linear, err);
}

static int product(struct ct_cuda *cuda, const void *operands, struct ct_gemm_key k,
                   struct ct_err *err)
{
    return ct_cuda_product(cuda, k, operands, err);
}

static int add_slots(struct ct_cuda *cuda, struct ct_gemm_key k, size_t count, const float *from,
                     float *to, struct ct_err *err)
{
    const struct ct_tree_sum op = {
        .n = k.parts, .count = count, .step = k.slot, .from = from, .to = to};
    CT_CUDA_TRY(err, ct_launch_tree_sum(ct_cuda_on(cuda, cuda->stream), &op));
    return 0;
}

static int gradient_of_weights(struct ct_cuda *cuda, const struct ct_linear_grad *op,
                               struct ct_gemm_key k, struct ct_err *err)
{
    size_t weights = op->in * op->out;
    float *dw = op->dw, *db = op->db;
    k.product = CT_PRODUCT_DW;
    k.wide = true;
    k.slot = (weights + op->out + SLOT_FLOATS - 1) / SLOT_FLOATS * SLOT_FLOATS;
    if (k.parts > 1) {
        int rc = ct_cuda_scratch_get(&cuda->slots, k.parts * k.slot * sizeof(float), err);
        if (rc != 0) {
            return rc;
        }
        dw = cuda->slots.data;
        db = dw + weights;
    }
    CT_CUDA_TRY(err, ct_launch_column_sums(ct_cuda_on(cuda, cuda->stream), k.precision, k.parts,
                                           k.batch, op->out, op->dy, k.slot, db));
    const struct ct_gemm_operands o = {.a = op->x, .b = op->dy, .d = dw};
    int rc = at_once_or_in_turn(cuda, &o, k, product, err);
    if (rc == 0 && k.parts > 1) {
        rc = add_slots(cuda, k, weights, dw, op->dw, err);
    }
    return rc == 0 && k.parts > 1 ? add_slots(cuda, k, op->out, db, op->db, err) : rc;
}

int ct_cuda_cut_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err)
{
    struct ct_gemm_key k;
    int rc = begin(cuda, &op->partition, op->in, op->out, &k, err);
    if (rc == 0) {
        rc = gradient_of_weights(cuda, op, k, err);
    }
    if (rc != 0 || op->dx == NULL) {
        return rc;
    }
    const struct ct_gemm_operands o = {.a = op->w, .b = op->dy, .d = op->dx};
    k.product = CT_PRODUCT_DX;
    rc = at_once_or_in_turn(cuda, &o, k, product, err);
    if (rc == 0 && op->mask != NULL) {
        size_t numbers = op->partition.rows * op->partition.parts * op->in;
        CT_CUDA_TRY(err, ct_launch_mask(ct_cuda_on(cuda, cuda->stream), k.precision, numbers,
                                        op->dx, op->mask));
    }
    return rc;
}
