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
 *
 * With fp8 each of the three products multiplies 8-bit copies (fp8_copies.c) where its sizes are
 * multiples of 16 and that is faster than bfloat16, the time of copying included.
 */
#include "kernels/cuda/gemm_plan.h"

#include "common/alloc.h"
#include "common/buf.h"
#include "kernels/cuda/fp8_copies.h"

#include <string.h>

/* Layers whose bits are known to hold what their forward pass left there. */
#define MAX_MARKED 64

/* As many as cuBLASLt's plans. */
#define MAX_CHOICES 256

enum layer_part { PART_Y, PART_DW, PART_DX };
enum layer_ways { WAYS_OF_PASSES, WAYS_OF_TYPES }; /* fused or apart; fp8 or bfloat16 */

/* Numbers of one size, so that there is nothing between them that compares. */
struct choice_key {
    uint64_t part, ways, precision, wide, relu, bits, batch, in, out;
    uint64_t unfit; /* the first way cannot be: sizes or addresses are no multiples of 16 */
};

struct choice {
    struct choice_key key;
    bool first;                /* is the faster one */
    float first_us, second_us; /* 0 = not timed */
};

struct ct_cuda_gemm {
    struct ct_gemm_cache *cache;
    struct choice choices[MAX_CHOICES];
    size_t choice_count, next_choice; /* in use; the one that the next new shape takes */
    const void *marked[MAX_MARKED];   /* bits that cuBLASLt wrote; nobody else knows their layout */
    size_t next_mark;
    struct ct_cuda_fp8 *fp8;
};

int ct_cuda_gemm_new(struct ct_cuda_gemm **out, struct ct_err *err)
{
    struct ct_cuda_gemm *gemm = ct_calloc(1, sizeof(*gemm));
    if (gemm == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for the matrix products");
    }
    int rc = ct_cuda_fp8_new(&gemm->fp8, err);
    if (rc == 0) {
        rc = ct_gemm_cache_new(&gemm->cache, err);
    }
    if (rc != 0) {
        ct_cuda_gemm_free(gemm);
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
    ct_cuda_fp8_free(gemm->fp8);
    ct_gemm_cache_free(gemm->cache);
    ct_free(gemm);
}

void ct_cuda_gemm_forget(struct ct_cuda_gemm *gemm)
{
    ct_cuda_fp8_forget(gemm->fp8);
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

/* ---- one way or another ---------------------------------------------------------------------- */

static struct choice *find_choice(struct ct_cuda_gemm *gemm, const struct choice_key *key)
{
    for (size_t i = 0; i < gemm->choice_count; i++) {
        if (memcmp(&gemm->choices[i].key, key, sizeof(*key)) == 0) {
            return &gemm->choices[i];
        }
    }
    return NULL;
}

/* Should the first way be taken? Both are timed when a shape is new. While recording nothing can be
 * timed, and of a new shape the first way is taken only if it needs no memory of its own, as the
 * fused one. A first way that is unsupported is not taken. After another failure the first is
 * taken; if it was the one that failed, the real call reports that. */
static bool first_is_faster(struct ct_cuda *cuda, const struct choice_key *key,
                            ct_cuda_way_fn first, ct_cuda_way_fn second, const void *op)
{
    struct ct_cuda_gemm *gemm = cuda->gemm;
    const struct choice *known = find_choice(gemm, key);
    if (known != NULL || cuda->recording) {
        return known == NULL ? key->ways == WAYS_OF_PASSES : known->first;
    }
    struct choice made = {.key = *key};
    int rc = key->unfit ? CT_EUNSUPPORTED : ct_cuda_time(cuda, first, op, &made.first_us, NULL);
    made.first = rc != CT_EUNSUPPORTED &&
                 (rc != 0 || ct_cuda_time(cuda, second, op, &made.second_us, NULL) != 0 ||
                  made.first_us <= made.second_us);
    gemm->choices[gemm->next_choice] = made;
    gemm->next_choice = (gemm->next_choice + 1) % MAX_CHOICES;
    gemm->choice_count += gemm->choice_count < MAX_CHOICES;
    return made.first;
}

/* Addresses and sizes as products of 8-bit numbers want them. */
static bool fits_fp8(const struct choice_key *key, const void *a, const void *b)
{
    return key->in % 16 == 0 && key->out % 16 == 0 && key->batch % 16 == 0 &&
           ((uintptr_t)a | (uintptr_t)b) % 16 == 0;
}

/* `a` and `b` are the factors. */
static bool fp8_is_faster(struct ct_cuda *cuda, struct choice_key key, const void *a, const void *b,
                          ct_cuda_way_fn by_fp8, ct_cuda_way_fn by_bf16, const void *op)
{
    if (cuda->base.precision != CT_PRECISION_FP8) {
        return false;
    }
    key.precision = CT_PRECISION_FP8;
    key.ways = WAYS_OF_TYPES;
    key.unfit = !fits_fp8(&key, a, b);
    return (!key.unfit && cuda->base.fp8_always) ||
           first_is_faster(cuda, &key, by_fp8, by_bf16, op);
}

static enum ct_precision without_fp8(const struct ct_cuda *cuda)
{
    enum ct_precision precision = cuda->base.precision;
    return precision == CT_PRECISION_FP8 ? CT_PRECISION_BF16 : precision;
}

static int explain(const struct choice *c, struct ct_buf *to)
{
    static const char *const parts[] = {[PART_Y] = "y", [PART_DW] = "dw and db", [PART_DX] = "dx"};
    static const char *const ways[][2] = {
        [WAYS_OF_PASSES] = {"fused", "apart"}, [WAYS_OF_TYPES] = {"fp8", "bf16"}};
    const char *const *way = ways[c->key.ways];
    int rc =
        ct_buf_printf(to,
                      "{\"plan\": \"layer\", \"part\": \"%s\", \"precision\": \"%s\", "
                      "\"batch\": %zu, \"in\": %zu, \"out\": %zu, \"%s\": %s",
                      parts[c->key.part], ct_precision_name((enum ct_precision)c->key.precision),
                      (size_t)c->key.batch, (size_t)c->key.in, (size_t)c->key.out, way[0],
                      c->first ? "true" : "false");
    if (rc != 0) {
        return rc;
    }
    return c->key.unfit ? ct_buf_printf(to, ", \"why\": \"no multiples of 16\"}\n")
                        : ct_buf_printf(to, ", \"%s_us\": %.3f, \"%s_us\": %.3f}\n", way[0],
                                        (double)c->first_us, way[1], (double)c->second_us);
}

int ct_cuda_gemm_explain(const struct ct_cuda_gemm *gemm, struct ct_buf *to)
{
    int rc = ct_gemm_cache_explain(gemm->cache, to);
    for (size_t i = 0; rc == 0 && i < gemm->choice_count; i++) {
        rc = explain(&gemm->choices[i], to);
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
        CT_CUDA_TRY(err,
                    ct_launch_add_bias(ct_cuda_on(cuda, cuda->stream), f->key.precision, f->op));
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
        CT_CUDA_TRY(err, ct_launch_mask(ct_cuda_on(cuda, cuda->stream), f->key.precision,
                                        op->batch * op->out, op->y, op->y));
    }
    return rc;
}

static struct choice_key key_of_linear(const struct ct_linear *op, enum ct_precision precision)
{
    return (struct choice_key){.part = PART_Y,
                               .precision = precision,
                               .wide = op->wide,
                               .relu = op->relu,
                               .bits = op->relu && !op->wide && op->bits != NULL,
                               .batch = op->batch,
                               .in = op->in,
                               .out = op->out};
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
    const struct choice_key key = key_of_linear(op, precision);
    mark(cuda->gemm, op->bits, false);
    if (op->in > 1 && op->out > 1 &&
        first_is_faster(cuda, &key, linear_fused, key.bits ? linear_apart_with_mask : linear_apart,
                        &f)) {
        int rc = linear_fused(cuda, &f, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
    }
    return linear_apart(cuda, &f, err);
}

static int linear_fp8(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct ct_linear *op = data;
    struct ct_fp8_wanted want = {.w = op->w, .in = op->in, .out = op->out, .plain = true};
    struct ct_fp8_copies x, w;
    want.tensor = CT_FP8_X, want.from = op->x, want.rows = op->batch, want.cols = op->in;
    int rc = ct_cuda_fp8_copy(cuda, cuda->gemm->fp8, &want, &x, err);
    if (rc != 0) {
        return rc;
    }
    want.tensor = CT_FP8_W, want.from = op->w, want.rows = op->out;
    rc = ct_cuda_fp8_copy(cuda, cuda->gemm->fp8, &want, &w, err);
    if (rc != 0) {
        return rc;
    }
    const struct ct_gemm_operands o = {
        .a = w.plain, .b = x.plain, .d = op->y, .a_scale = w.scale, .b_scale = x.scale};
    return linear_by(cuda, op, CT_PRECISION_FP8, &o, err);
}

static int linear_plain(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct ct_linear *op = data;
    const struct ct_gemm_operands o = {.a = op->w, .b = op->x, .d = op->y};
    return linear_by(cuda, op, without_fp8(cuda), &o, err);
}

int ct_cuda_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err)
{
    if (op->partition.rows > 0) {
        return ct_cuda_cut_linear(cuda, op, err);
    }
    const struct choice_key key = key_of_linear(op, cuda->base.precision);
    bool by_fp8 = fp8_is_faster(cuda, key, op->x, op->w, linear_fp8, linear_plain, op);
    return by_fp8 ? linear_fp8(cuda, op, err) : linear_plain(cuda, op, err);
}

/* ---- backward -------------------------------------------------------------------------------- */

struct backward {
    const struct ct_linear_grad *op;
    struct ct_gemm_key key;
    struct ct_gemm_operands operands; /* of one of its products */
};

static struct backward backward_of(const struct ct_linear_grad *op, enum ct_precision precision)
{
    return (struct backward){
        .op = op,
        .key = {.precision = precision, .batch = op->batch, .in = op->in, .out = op->out},
    };
}

static struct choice_key key_of_grad(const struct ct_linear_grad *op, enum ct_precision precision,
                                     enum layer_part part)
{
    return (struct choice_key){
        .part = part, .precision = precision, .batch = op->batch, .in = op->in, .out = op->out};
}

static int weights_fused(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    struct ct_gemm_operands o = b->operands;
    struct ct_gemm_key k = b->key;
    o.extra = b->op->db;
    k.product = CT_PRODUCT_DW_DB;
    k.wide = true;
    return ct_cuda_attempt(cuda, k, &o, err);
}

static int weights_apart(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    const struct ct_linear_grad *op = b->op;
    struct ct_gemm_key k = b->key;
    k.product = CT_PRODUCT_DW;
    k.wide = true;
    CT_CUDA_TRY(err, ct_launch_column_sums(ct_cuda_on(cuda, cuda->stream), k.precision, 1,
                                           op->batch, op->out, op->dy, 0, op->db));
    return ct_cuda_product(cuda, k, &b->operands, err);
}

static int gradient_of_weights(struct ct_cuda *cuda, const struct backward *b, struct ct_err *err)
{
    const struct choice_key key = key_of_grad(b->op, b->key.precision, PART_DW);
    /* Sums of 8-bit numbers would be coarse, and cuBLASLt does not offer them. */
    if (b->key.in > 1 && b->key.out > 1 && b->key.precision != CT_PRECISION_FP8 &&
        first_is_faster(cuda, &key, weights_fused, weights_apart, b)) {
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
    struct ct_gemm_operands o = b->operands;
    struct ct_gemm_key k = b->key;
    o.bits = b->op->bits;
    k.product = CT_PRODUCT_DX_BITS;
    return ct_cuda_attempt(cuda, k, &o, err);
}

static int input_apart(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct backward *b = data;
    const struct ct_linear_grad *op = b->op;
    struct ct_gemm_key k = b->key;
    k.product = CT_PRODUCT_DX;
    int rc = ct_cuda_product(cuda, k, &b->operands, err);
    if (rc == 0 && op->mask != NULL) {
        CT_CUDA_TRY(err, ct_launch_mask(ct_cuda_on(cuda, cuda->stream), k.precision,
                                        op->batch * op->in, op->dx, op->mask));
    }
    return rc;
}

static int gradient_of_input(struct ct_cuda *cuda, const struct backward *b, struct ct_err *err)
{
    const struct choice_key key = key_of_grad(b->op, b->key.precision, PART_DX);
    if (b->op->mask != NULL && is_marked(cuda->gemm, b->op->bits) &&
        first_is_faster(cuda, &key, input_fused, input_apart, b)) {
        int rc = input_fused(cuda, b, err);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
    }
    return input_apart(cuda, b, err);
}

/* Which of a layer's gradients: one of them or both. */
struct gradients {
    const struct ct_linear_grad *op;
    bool weights, input;
};

static int weights_fp8(struct ct_cuda *cuda, const struct ct_linear_grad *op,
                       const struct ct_fp8_copies *dy, struct ct_err *err)
{
    const struct ct_fp8_wanted want = {.w = op->w,
                                       .in = op->in,
                                       .out = op->out,
                                       .tensor = CT_FP8_X,
                                       .rows = op->batch,
                                       .cols = op->in,
                                       .from = op->x,
                                       .transposed = true};
    struct ct_fp8_copies x;
    int rc = ct_cuda_fp8_copy(cuda, cuda->gemm->fp8, &want, &x, err);
    if (rc != 0) {
        return rc;
    }
    struct backward b = backward_of(op, CT_PRECISION_FP8);
    b.operands = (struct ct_gemm_operands){.a = x.transposed,
                                           .b = dy->transposed,
                                           .d = op->dw,
                                           .a_scale = x.scale,
                                           .b_scale = dy->scale};
    return gradient_of_weights(cuda, &b, err);
}

static int input_fp8(struct ct_cuda *cuda, const struct ct_linear_grad *op,
                     const struct ct_fp8_copies *dy, struct ct_err *err)
{
    const struct ct_fp8_wanted want = {.w = op->w,
                                       .in = op->in,
                                       .out = op->out,
                                       .tensor = CT_FP8_W,
                                       .rows = op->out,
                                       .cols = op->in,
                                       .from = op->w,
                                       .transposed = true};
    struct ct_fp8_copies w;
    int rc = ct_cuda_fp8_copy(cuda, cuda->gemm->fp8, &want, &w, err);
    if (rc != 0) {
        return rc;
    }
    struct backward b = backward_of(op, CT_PRECISION_FP8);
    b.operands = (struct ct_gemm_operands){
        .a = w.transposed, .b = dy->plain, .d = op->dx, .a_scale = w.scale, .b_scale = dy->scale};
    return gradient_of_input(cuda, &b, err);
}

/* Both gradients take one pass over dy. */
static int gradients_fp8(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct gradients *g = data;
    const struct ct_linear_grad *op = g->op;
    const struct ct_fp8_wanted want = {.w = op->w,
                                       .in = op->in,
                                       .out = op->out,
                                       .tensor = CT_FP8_DY,
                                       .rows = op->batch,
                                       .cols = op->out,
                                       .from = op->dy,
                                       .plain = g->input,
                                       .transposed = g->weights};
    struct ct_fp8_copies dy;
    int rc = ct_cuda_fp8_copy(cuda, cuda->gemm->fp8, &want, &dy, err);
    if (rc == 0 && g->weights) {
        rc = weights_fp8(cuda, op, &dy, err);
    }
    return rc == 0 && g->input ? input_fp8(cuda, op, &dy, err) : rc;
}

static int gradients_plain(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    const struct gradients *g = data;
    const struct ct_linear_grad *op = g->op;
    struct backward b = backward_of(op, without_fp8(cuda));
    int rc = 0;
    if (g->weights) {
        b.operands = (struct ct_gemm_operands){.a = op->x, .b = op->dy, .d = op->dw};
        rc = gradient_of_weights(cuda, &b, err);
    }
    if (rc == 0 && g->input) {
        b.operands = (struct ct_gemm_operands){.a = op->w, .b = op->dy, .d = op->dx};
        rc = gradient_of_input(cuda, &b, err);
    }
    return rc;
}

int ct_cuda_linear_grad(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err)
{
    if (op->partition.rows > 0) {
        return ct_cuda_cut_grad(cuda, op, err);
    }
    const struct gradients weights = {op, true, false}, input = {op, false, true};
    const struct gradients both = {op, true, op->dx != NULL};
    /* Each is timed with its own copy of dy, which it may turn out to share. */
    bool weights8 = fp8_is_faster(cuda, key_of_grad(op, CT_PRECISION_FP8, PART_DW), op->x, op->dy,
                                  gradients_fp8, gradients_plain, &weights);
    bool input8 =
        op->dx != NULL && fp8_is_faster(cuda, key_of_grad(op, CT_PRECISION_FP8, PART_DX), op->w,
                                        op->dy, gradients_fp8, gradients_plain, &input);
    if (op->dx == NULL || weights8 == input8) {
        return weights8 ? gradients_fp8(cuda, &both, err) : gradients_plain(cuda, &both, err);
    }
    int rc = weights8 ? gradients_fp8(cuda, &weights, err) : gradients_plain(cuda, &weights, err);
    if (rc != 0) {
        return rc;
    }
    return input8 ? gradients_fp8(cuda, &input, err) : gradients_plain(cuda, &input, err);
}
