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
 * way out (fused) or by a pass of our own (apart). cuBLASLt does not promise the first for every
 * shape, least of all for sizes of 1, and on some shapes it takes longer than both together. So
 * both are timed once per shape.
 */
#include "kernels/cuda/gemm_plan.h"

#include "common/alloc.h"
#include "common/buf.h"

#include <string.h>

/* Layers whose bits are known to hold what their forward pass left there. */
#define MAX_MARKED 64

/* Room for the e4m3 copy of a factor, and its scale. */
struct copy8 {
    struct ct_cuda_room room;
    float *scale; /* the scale and a word of scratch, as ct_launch_fp8() wants */
};

/* As many as cuBLASLt's plans. */
#define MAX_CHOICES 128

enum layer_part { PART_Y, PART_DW, PART_DX };

/* Numbers of one size, so that there is nothing between them that compares. */
struct choice_key {
    uint64_t part, precision, wide, relu, bits, batch, in, out;
};

struct choice {
    struct choice_key key;
    bool fused;
    float fused_us, apart_us; /* 0 = not timed */
};

struct ct_cuda_gemm {
    struct ct_gemm_cache *cache;
    struct choice choices[MAX_CHOICES];
    size_t choice_count, next_choice; /* in use; the one that the next new shape takes */
    const void *marked[MAX_MARKED];   /* bits that cuBLASLt wrote; nobody else knows their layout */
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

/* ---- fused or apart -------------------------------------------------------------------------- */

static struct choice *find_choice(struct ct_cuda_gemm *gemm, const struct choice_key *key)
{
    for (size_t i = 0; i < gemm->choice_count; i++) {
        if (memcmp(&gemm->choices[i].key, key, sizeof(*key)) == 0) {
            return &gemm->choices[i];
        }
    }
    return NULL;
}

/* What cannot be timed is fused: so it is while recording, and after a failure, which is told when
 * it comes again. CT_EUNSUPPORTED is no failure. */
static bool fused_is_faster(struct ct_cuda *cuda, const struct choice_key *key,
                            ct_cuda_way_fn fused, ct_cuda_way_fn apart, const void *op)
{
    struct ct_cuda_gemm *gemm = cuda->gemm;
    const struct choice *known = find_choice(gemm, key);
    if (known != NULL || cuda->recording) {
        return known == NULL || known->fused;
    }
    struct choice made = {.key = *key};
    int rc = ct_cuda_time(cuda, fused, op, &made.fused_us, NULL);
    made.fused = rc != CT_EUNSUPPORTED &&
                 (rc != 0 || ct_cuda_time(cuda, apart, op, &made.apart_us, NULL) != 0 ||
                  made.fused_us <= made.apart_us);
    gemm->choices[gemm->next_choice] = made;
    gemm->next_choice = (gemm->next_choice + 1) % MAX_CHOICES;
    gemm->choice_count += gemm->choice_count < MAX_CHOICES;
    return made.fused;
}

int ct_cuda_gemm_explain(const struct ct_cuda_gemm *gemm, struct ct_buf *to)
{
    static const char *const parts[] = {[PART_Y] = "y", [PART_DW] = "dw and db", [PART_DX] = "dx"};
    int rc = ct_gemm_cache_explain(gemm->cache, to);
    for (size_t i = 0; rc == 0 && i < gemm->choice_count; i++) {
        const struct choice *c = &gemm->choices[i];
        rc = ct_buf_printf(
            to,
            "{\"plan\": \"layer\", \"part\": \"%s\", \"precision\": \"%s\", \"batch\": %zu, "
            "\"in\": %zu, \"out\": %zu, \"fused\": %s, \"fused_us\": %.3f, \"apart_us\": %.3f}\n",
            parts[c->key.part], ct_precision_name((enum ct_precision)c->key.precision),
            (size_t)c->key.batch, (size_t)c->key.in, (size_t)c->key.out,
            c->fused ? "true" : "false", (double)c->fused_us, (double)c->apart_us);
    }
    return rc;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* One product of a layer with what follows it. */
struct forward {
    const struct ct_linear *op;
    struct ct_gemm_key key;
    struct ct_gemm_operands operands;
};

static int linear_fused(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct forward *f = data;
    const struct ct_linear *op = f->op;
    struct ct_gemm_key k = f->key;
    struct ct_gemm_operands o = f->operands;
    bool e4m3 = k.precision == CT_PRECISION_FP8;
    int rc = CT_EUNSUPPORTED;
    /* Elsewhere a bias has the result's type. An e4m3 product takes a bfloat16 one with any. */
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

static int linear_apart(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct forward *f = data;
    mark(cuda->gemm, f->op->bits, false);
    int rc = ct_cuda_product(cuda, f->key, &f->operands, err);
    if (rc == 0) {
        CT_CUDA_TRY(err, ct_launch_add_bias(cuda->stream, f->key.precision, f->op));
    }
    return rc;
}

/* Without bits the gradient needs a pass for its mask. That is counted here; a mask of y by itself
 * changes nothing. */
static int linear_apart_with_mask(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct forward *f = data;
    const struct ct_linear *op = f->op;
    int rc = linear_apart(cuda, data, err);
    if (rc == 0) {
        CT_CUDA_TRY(
            err, ct_launch_mask(cuda->stream, f->key.precision, op->batch * op->out, op->y, op->y));
    }
    return rc;
}

static int linear_by(struct ct_cuda *cuda, const struct ct_linear *op, enum ct_precision precision,
                     const struct ct_gemm_operands *o, struct ct_err *err)
{
    const struct forward f = {
        .op = op,
        .key = {.product = CT_PRODUCT_Y,
                .precision = precision,
                .wide = op->wide,
                .batch = op->batch,
                .in = op->in,
                .out = op->out},
        .operands = *o,
    };
    bool with_bits = op->relu && !op->wide && op->bits != NULL;
    const struct choice_key key = {.part = PART_Y,
                                   .precision = precision,
                                   .wide = op->wide,
                                   .relu = op->relu,
                                   .bits = with_bits,
                                   .batch = op->batch,
                                   .in = op->in,
                                   .out = op->out};
    mark(cuda->gemm, op->bits, false);
    if (op->in > 1 && op->out > 1 &&
        fused_is_faster(cuda, &key, linear_fused, with_bits ? linear_apart_with_mask : linear_apart,
                        &f)) {
        int rc = linear_fused(cuda, &f, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
    }
    return linear_apart(cuda, &f, err);
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

/* ---- backward -------------------------------------------------------------------------------- */

struct backward {
    const struct ct_linear_grad *op;
    struct ct_gemm_key key;
};

static struct choice_key key_of(const struct backward *b, enum layer_part part)
{
    return (struct choice_key){.part = part,
                               .precision = b->key.precision,
                               .batch = b->key.batch,
                               .in = b->key.in,
                               .out = b->key.out};
}

static int weights_fused(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    const struct ct_linear_grad *op = b->op;
    const struct ct_gemm_operands o = {.a = op->x, .b = op->dy, .d = op->dw, .extra = op->db};
    struct ct_gemm_key k = b->key;
    k.product = CT_PRODUCT_DW_DB;
    k.wide = true;
    return ct_cuda_attempt(cuda, k, &o, err);
}

static int weights_apart(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    const struct ct_linear_grad *op = b->op;
    const struct ct_gemm_operands o = {.a = op->x, .b = op->dy, .d = op->dw};
    struct ct_gemm_key k = b->key;
    k.product = CT_PRODUCT_DW;
    k.wide = true;
    CT_CUDA_TRY(err, ct_launch_column_sums(cuda->stream, k.precision, 1, op->batch, op->out, op->dy,
                                           0, op->db));
    return ct_cuda_product(cuda, k, &o, err);
}

static int gradient_of_weights(struct ct_cuda *cuda, const struct backward *b, struct ct_err *err)
{
    const struct choice_key key = key_of(b, PART_DW);
    if (b->key.in > 1 && b->key.out > 1 &&
        fused_is_faster(cuda, &key, weights_fused, weights_apart, b)) {
        int rc = weights_fused(cuda, b, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
    }
    return weights_apart(cuda, b, err);
}

static int input_fused(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    const struct ct_linear_grad *op = b->op;
    const struct ct_gemm_operands o = {.a = op->w, .b = op->dy, .d = op->dx, .bits = op->bits};
    struct ct_gemm_key k = b->key;
    k.product = CT_PRODUCT_DX_BITS;
    return ct_cuda_attempt(cuda, k, &o, err);
}

static int input_apart(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    const struct ct_linear_grad *op = b->op;
    const struct ct_gemm_operands o = {.a = op->w, .b = op->dy, .d = op->dx};
    struct ct_gemm_key k = b->key;
    k.product = CT_PRODUCT_DX;
    int rc = ct_cuda_product(cuda, k, &o, err);
    if (rc == 0 && op->mask != NULL) {
        CT_CUDA_TRY(
            err, ct_launch_mask(cuda->stream, k.precision, op->batch * op->in, op->dx, op->mask));
    }
    return rc;
}

static int gradient_of_input(struct ct_cuda *cuda, const struct backward *b, struct ct_err *err)
{
    const struct choice_key key = key_of(b, PART_DX);
    if (b->op->mask != NULL && is_marked(cuda->gemm, b->op->bits) &&
        fused_is_faster(cuda, &key, input_fused, input_apart, b)) {
        int rc = input_fused(cuda, b, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
    }
    return input_apart(cuda, b, err);
}

int ct_cuda_linear_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err)
{
    if (op->cut.rows > 0) {
        return ct_cuda_cut_grad(cuda, op, err);
    }
    enum ct_precision precision = cuda->base.precision;
    const struct backward b = {
        .op = op,
        .key = {.precision = precision == CT_PRECISION_FP8 ? CT_PRECISION_BF16 : precision,
                .batch = op->batch,
                .in = op->in,
                .out = op->out},
    };
    int rc = gradient_of_weights(cuda, &b, err);
    return rc == 0 && op->dx != NULL ? gradient_of_input(cuda, &b, err) : rc;
}
