/* SPDX-License-Identifier: Apache-2.0
 *
 * The cache holds a fixed number of plans. A new shape takes the place of the oldest one, and all
 * are freed with the device. Where cuBLASLt offers no kernel the call fails with CT_EUNSUPPORTED,
 * which is remembered, too.
 */
#include "kernels/cuda/gemm_plan.h"

#include "common/alloc.h"
#include "common/buf.h"
#include "kernels/cuda/gemm_shape.h"

#include <string.h>

/* Three layers' worth of products, fused and apart, full and short batch, training and evaluation,
 * several times. */
#define MAX_SHAPES 256
#define MAX_ALIGNMENT 256u
/* What a thread loads at once, and what the tensor memory accelerator wants. */
#define VECTOR_BYTES 16u
/* The heuristic's order is good: the best is nearly always among its first few. */
#define CANDIDATES 8

struct ct_gemm_plan {
    struct ct_gemm_key key;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    bool refused; /* cuBLASLt has no kernel; nothing above but the key is there */
    int offered;  /* kernels that were chosen from */
    float us;     /* what the chosen one took, 0 = not timed */
};

struct ct_gemm_cache {
    cublasLtHandle_t lt;
    struct ct_gemm_plan plans[MAX_SHAPES];
    size_t count, next; /* plans in use; the one that the next new shape takes */
};

static void drop(struct ct_gemm_plan *p)
{
    if (p->a != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->a);
    }
    if (p->b != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->b);
    }
    if (p->d != NULL) {
        (void)cublasLtMatrixLayoutDestroy(p->d);
    }
    if (p->op != NULL) {
        (void)cublasLtMatmulDescDestroy(p->op);
    }
    *p = (struct ct_gemm_plan){0};
}

/* ---- life ------------------------------------------------------------------------------------ */

int ct_gemm_cache_new(struct ct_gemm_cache **out, struct ct_err *err)
{
    struct ct_gemm_cache *cache = ct_calloc(1, sizeof(*cache));
    if (cache == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for the matrix products' shapes");
    }
    cublasStatus_t status = cublasLtCreate(&cache->lt);
    if (status != CUBLAS_STATUS_SUCCESS) {
        ct_free(cache);
        return ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtCreate");
    }
    *out = cache;
    return 0;
}

void ct_gemm_cache_free(struct ct_gemm_cache *cache)
{
    if (cache == NULL) {
        return;
    }
    for (size_t i = 0; i < cache->count; i++) {
        drop(&cache->plans[i]);
    }
    (void)cublasLtDestroy(cache->lt);
    ct_free(cache);
}

/* ---- describing ------------------------------------------------------------------------------ */

static int set(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t id, const void *value,
               size_t bytes, struct ct_err *err)
{
    CT_CUBLAS_TRY(err, cublasLtMatmulDescSetAttribute(op, id, value, bytes));
    return 0;
}

/* What changes from call to call of one shape. */
static int point(const struct ct_gemm_plan *p, const struct ct_gemm_operands *o, struct ct_err *err)
{
    int rc = 0;
    if (o->extra != NULL) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &o->extra, sizeof(o->extra), err);
    }
    if (rc == 0 && o->bits != NULL) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &o->bits, sizeof(o->bits), err);
    }
    if (rc == 0 && o->a_scale != NULL) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &o->a_scale, sizeof(o->a_scale), err);
    }
    if (rc == 0 && o->b_scale != NULL) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &o->b_scale, sizeof(o->b_scale), err);
    }
    return rc;
}

static int set_steps(const struct ct_gemm_plan *p, const struct ct_gemm_shape *s,
                     struct ct_err *err)
{
    const cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->d};
    const int64_t steps[] = {(int64_t)s->a_step, (int64_t)s->b_step, (int64_t)s->d_step};
    for (int i = 0; i < 3; i++) {
        CT_CUBLAS_TRY(err, cublasLtMatrixLayoutSetAttribute(
                               layouts[i], CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &steps[i],
                               sizeof(steps[i])));
    }
    return 0;
}

/* Of a cut batch: of how many parts the matrices are. */
static int set_parts(const struct ct_gemm_plan *p, size_t parts, struct ct_err *err)
{
    const cublasLtMatrixLayout_t layouts[] = {p->a, p->b, p->d};
    const int32_t count = (int32_t)parts;
    for (int i = 0; i < 3; i++) {
        CT_CUBLAS_TRY(err, cublasLtMatrixLayoutSetAttribute(layouts[i],
                                                            CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                            &count, sizeof(count)));
    }
    return 0;
}

static int describe(struct ct_gemm_plan *p, const struct ct_gemm_operands *o, struct ct_err *err)
{
    const struct ct_gemm_shape s = ct_gemm_shape_of(&p->key);
    cublasComputeType_t compute =
        p->key.precision == CT_PRECISION_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    CT_CUBLAS_TRY(err, cublasLtMatmulDescCreate(&p->op, compute, CUDA_R_32F));
    int rc = set(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &s.ta, sizeof(s.ta), err);
    if (rc == 0) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &s.tb, sizeof(s.tb), err);
    }
    if (rc == 0) {
        rc = set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &s.epilogue, sizeof(s.epilogue), err);
    }
    if (rc == 0 && o->extra != NULL) {
        /* Else it would be taken for numbers of the result's type. */
        cudaDataType_t type = p->key.bias16 ? CUDA_R_16BF : CUDA_R_32F;
        rc = set(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type), err);
    }
    if (rc == 0 && o->bits != NULL) {
        int64_t ld = (int64_t)((s.ldd + 127) / 128 * 128);
        rc = set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof(ld), err);
    }
    if (rc == 0 && s.a == CUDA_R_8F_E4M3 && s.b == CUDA_R_8F_E4M3) {
        /* Sums in the tensor core's own precision: good enough for y, not for gradients. */
        int8_t fast = 1;
        rc = set(p->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast), err);
    }
    if (rc == 0) {
        rc = point(p, o, err);
    }
    if (rc != 0) {
        return rc;
    }
    /* The rows of each stored matrix are its leading dimension: all are dense. */
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->a, s.a, s.lda, s.a_cols, (int64_t)s.lda));
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->b, s.b, s.ldb, s.b_cols, (int64_t)s.ldb));
    CT_CUBLAS_TRY(err,
                  cublasLtMatrixLayoutCreate(&p->d, s.result, s.ldd, s.d_cols, (int64_t)s.ldd));
    return p->key.of > 0 ? set_steps(p, &s, err) : 0;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static size_t workspace_of(const struct ct_gemm_key *k)
{
    return k->of > 0 ? 0 : CT_CUDA_WORKSPACE;
}

static int set_limits(cublasLtMatmulPreference_t pref, const struct ct_gemm_key *k,
                      struct ct_err *err)
{
    /* C is D here, unread as beta is 0, and must be declared all the same. */
    const cublasLtMatmulPreferenceAttributes_t ids[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    const size_t workspace = workspace_of(k);
    if (k->of > 0) {
        const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
        CT_CUBLAS_TRY(err,
                      cublasLtMatmulPreferenceSetAttribute(
                          pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none, sizeof(none)));
    }
    CT_CUBLAS_TRY(
        err, cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace, sizeof(workspace)));
    for (int i = 0; i < 4; i++) {
        uint32_t align = k->align[i < 3 ? i : 2];
        CT_CUBLAS_TRY(err,
                      cublasLtMatmulPreferenceSetAttribute(pref, ids[i], &align, sizeof(align)));
    }
    return 0;
}

static cublasStatus_t multiply(struct ct_gemm_cache *cache, struct ct_cuda *cuda,
                               const struct ct_gemm_plan *p, const struct ct_gemm_operands *o,
                               const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(cache->lt, p->op, &one, o->a, p->a, o->b, p->b, &zero, o->d, p->d, o->d,
                          p->d, algo, cuda->workspace, workspace_of(&p->key), cuda->stream);
}

struct candidate {
    struct ct_gemm_cache *cache;
    const struct ct_gemm_plan *plan;
    const struct ct_gemm_operands *operands;
    const cublasLtMatmulAlgo_t *algo;
};

/* The result is what it will be anyway, as nothing is read of it. */
static int run_candidate(struct ct_cuda *cuda, const void *op, struct ct_err *err)
{
    const struct candidate *c = op;
    CT_CUBLAS_TRY(err, multiply(c->cache, cuda, c->plan, c->operands, c->algo));
    return 0;
}

/* Moves those that can run to the front, in their order, and says how many they are. */
static int usable(const struct ct_gemm_key *k, cublasLtMatmulHeuristicResult_t *found, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= workspace_of(k)) {
            found[kept++] = found[i];
        }
    }
    return kept;
}

/* cuBLASLt says either of a combination of types, epilogue and sizes that it has no kernel for. */
static bool is_refusal(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
           status == CUBLAS_STATUS_ARCH_MISMATCH;
}

static int check(struct ct_gemm_cache *cache, const struct ct_gemm_plan *p,
                 const cublasLtMatmulAlgo_t *algo, size_t parts, bool *good, struct ct_err *err)
{
    cublasLtMatmulHeuristicResult_t result;
    int rc = set_parts(p, parts, err);
    if (rc != 0) {
        return rc;
    }
    cublasStatus_t status =
        cublasLtMatmulAlgoCheck(cache->lt, p->op, p->a, p->b, p->d, p->d, algo, &result);
    if (status != CUBLAS_STATUS_SUCCESS && !is_refusal(status)) {
        return ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtMatmulAlgoCheck");
    }
    *good = status == CUBLAS_STATUS_SUCCESS && result.workspaceSize == 0;
    return 0;
}

/* Every rank, with whatever number of parts, comes to the same kernel, or to none. */
static int pick_steady(struct ct_gemm_cache *cache, struct ct_gemm_plan *p,
                       const cublasLtMatmulHeuristicResult_t *found, int count, struct ct_err *err)
{
    bool good = false;
    int rc = 0;
    for (int i = 0; rc == 0 && !good && i < count; i++) {
        p->algo = found[i].algo;
        good = true;
        for (size_t parts = 1; rc == 0 && good && parts <= p->key.of; parts *= 2) {
            rc = check(cache, p, &p->algo, parts, &good, err);
        }
    }
    if (rc == 0) {
        rc = set_parts(p, p->key.parts, err);
    }
    return rc != 0 || good ? rc : ct_err_set(err, CT_EUNSUPPORTED, "cuBLASLt has no kernel");
}

static void pick(struct ct_gemm_cache *cache, struct ct_cuda *cuda, struct ct_gemm_plan *p,
                 const struct ct_gemm_operands *o, const cublasLtMatmulHeuristicResult_t *found,
                 int count)
{
    p->algo = found[0].algo;
    p->offered = count;
    if (cuda->recording) {
        return;
    }
    bool timed = false;
    for (int i = 0; count > 1 && i < count; i++) {
        float us;
        const struct candidate c = {cache, p, o, &found[i].algo};
        /* One that does not run after all is none. If all are, the product fails in earnest. */
        if (ct_cuda_time(cuda, run_candidate, &c, &us, NULL) == 0 && (!timed || us < p->us)) {
            timed = true;
            p->algo = found[i].algo;
            p->us = us;
        }
    }
}

static int choose(struct ct_gemm_cache *cache, struct ct_cuda *cuda, struct ct_gemm_plan *p,
                  const struct ct_gemm_operands *o, struct ct_err *err)
{
    cublasLtMatmulPreference_t pref = NULL;
    CT_CUBLAS_TRY(err, cublasLtMatmulPreferenceCreate(&pref));
    int rc = set_limits(pref, &p->key, err);
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    if (rc == 0 && p->key.of > 0) {
        rc = set_parts(p, p->key.of, err);
    }
    if (rc == 0) {
        cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
            cache->lt, p->op, p->a, p->b, p->d, p->d, pref, CANDIDATES, found, &count);
        count = status == CUBLAS_STATUS_SUCCESS ? usable(&p->key, found, count) : 0;
        if (status != CUBLAS_STATUS_SUCCESS && !is_refusal(status)) {
            rc = ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic");
        } else if (count == 0) {
            rc = ct_err_set(err, CT_EUNSUPPORTED, "cuBLASLt has no kernel");
        }
    }
    (void)cublasLtMatmulPreferenceDestroy(pref);
    if (rc != 0) {
        return rc;
    }
    if (p->key.of > 0) {
        return pick_steady(cache, p, found, count, err);
    }
    pick(cache, cuda, p, o, found, count);
    return 0;
}

/* ---- the cache ------------------------------------------------------------------------------- */

static bool same(const struct ct_gemm_key *a, const struct ct_gemm_key *b)
{
    return a->product == b->product && a->precision == b->precision && a->wide == b->wide &&
           a->bias16 == b->bias16 && a->batch == b->batch && a->in == b->in && a->out == b->out &&
           a->parts == b->parts && a->of == b->of && a->slot == b->slot &&
           memcmp(a->align, b->align, sizeof(a->align)) == 0;
}

static int answer(struct ct_gemm_plan *p, struct ct_gemm_plan **out, struct ct_err *err)
{
    if (p->refused) {
        return ct_err_set(err, CT_EUNSUPPORTED, "cuBLASLt has no kernel");
    }
    *out = p;
    return 0;
}

static int find(struct ct_gemm_cache *cache, struct ct_cuda *cuda, const struct ct_gemm_key *k,
                const struct ct_gemm_operands *o, struct ct_gemm_plan **out, struct ct_err *err)
{
    for (size_t i = 0; i < cache->count; i++) {
        if (same(&cache->plans[i].key, k)) {
            return answer(&cache->plans[i], out, err);
        }
    }
    struct ct_gemm_plan made = {.key = *k};
    int rc = describe(&made, o, err);
    if (rc == 0) {
        rc = choose(cache, cuda, &made, o, err);
    }
    if (rc != 0) {
        drop(&made);
    }
    if (rc == CT_EUNSUPPORTED) {
        made = (struct ct_gemm_plan){.key = *k, .refused = true};
    } else if (rc != 0) {
        return rc;
    }
    struct ct_gemm_plan *slot = &cache->plans[cache->next];
    drop(slot);
    *slot = made;
    cache->next = (cache->next + 1) % MAX_SHAPES;
    cache->count += cache->count < MAX_SHAPES;
    return answer(slot, out, err);
}

/* Of one part of a cut batch and of the next, which is `step` bytes behind it. There it is no more
 * than kernels make use of: what is here must not decide, only what the sizes are. */
static unsigned alignment_of(const struct ct_gemm_key *k, const void *ptr, size_t step)
{
    uintptr_t bits = (uintptr_t)ptr | step | (k->of > 0 ? VECTOR_BYTES : MAX_ALIGNMENT);
    return (unsigned)(bits & -bits);
}

static void set_alignments(struct ct_gemm_key *k, const struct ct_gemm_operands *o)
{
    const struct ct_gemm_shape s = ct_gemm_shape_of(k);
    /* 8-bit factors have no steps: such a batch is never cut. */
    size_t factor = s.a == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
    size_t result = s.result == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
    k->align[0] = alignment_of(k, o->a, s.a_step * factor);
    k->align[1] = alignment_of(k, o->b, s.b_step * factor);
    k->align[2] = alignment_of(k, o->d, s.d_step * result);
    k->align[3] = alignment_of(k, o->extra, 0);
}

int ct_gemm_run(struct ct_gemm_cache *cache, struct ct_cuda *cuda, struct ct_gemm_key key,
                const struct ct_gemm_operands *o, struct ct_err *err)
{
    set_alignments(&key, o);
    /* The heuristic cannot be told where a bias is. Its kernels read vectors of it. */
    bool fits = o->extra == NULL || key.align[3] >= VECTOR_BYTES;
    struct ct_gemm_plan *p = NULL;
    int rc = fits ? find(cache, cuda, &key, o, &p, err)
                  : ct_err_set(err, CT_EUNSUPPORTED, "a bias at no multiple of 16 bytes");
    if (rc == 0) {
        rc = point(p, o, err);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "batch %zu, layer %zu -> %zu", key.batch, key.in, key.out);
        return rc;
    }
    CT_CUBLAS_TRY(err, multiply(cache, cuda, p, o, &p->algo));
    return 0;
}

/* ---- what was chosen ------------------------------------------------------------------------- */

static const char *product_name(enum ct_gemm_product product)
{
    static const char *const names[] = {
        [CT_PRODUCT_Y] = "y",
        [CT_PRODUCT_Y_BIAS] = "y+bias",
        [CT_PRODUCT_Y_RELU] = "y+bias+relu",
        [CT_PRODUCT_Y_RELU_BITS] = "y+bias+relu+bits",
        [CT_PRODUCT_DW] = "dw",
        [CT_PRODUCT_DW_DB] = "dw+db",
        [CT_PRODUCT_DX] = "dx",
        [CT_PRODUCT_DX_BITS] = "dx+mask",
    };
    return names[product];
}

/* -1 where cuBLASLt does not say. */
static int config_of(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t id)
{
    int32_t value = -1;
    size_t written = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(algo, id, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : -1;
}

static int explain(const struct ct_gemm_plan *p, struct ct_buf *to)
{
    const struct ct_gemm_key *k = &p->key;
    int rc = ct_buf_printf(to,
                           "{\"plan\": \"product\", \"product\": \"%s\", \"precision\": \"%s\", "
                           "\"batch\": %zu, \"in\": %zu, \"out\": %zu, \"parts\": %zu, "
                           "\"refused\": %s",
                           product_name(k->product), ct_precision_name(k->precision), k->batch,
                           k->in, k->out, k->parts, p->refused ? "true" : "false");
    if (rc == 0 && !p->refused) {
        rc = ct_buf_printf(to,
                           ", \"offered\": %d, \"us\": %.3f, \"algorithm\": %d, \"tile\": %d, "
                           "\"stages\": %d, \"split_k\": %d, \"reduction\": %d",
                           p->offered, (double)p->us, config_of(&p->algo, CUBLASLT_ALGO_CONFIG_ID),
                           config_of(&p->algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                           config_of(&p->algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                           config_of(&p->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                           config_of(&p->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
    }
    return rc == 0 ? ct_buf_printf(to, "}\n") : rc;
}

int ct_gemm_cache_explain(const struct ct_gemm_cache *cache, struct ct_buf *to)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < cache->count; i++) {
        rc = explain(&cache->plans[i], to);
    }
    return rc;
}
