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

/* What refused a product, of how many kernels, and at how many parts of a cut batch. */
struct refusal {
    enum { BY_HEURISTIC, BY_WORKSPACE, BY_CHECK } by;
    int offered;
    size_t parts;
};

struct ct_gemm_plan {
    struct ct_gemm_key key;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
    bool refused; /* cuBLASLt has no kernel; nothing above but the key is there */
    struct refusal why;
    int offered; /* kernels that were chosen from */
    float us;    /* what the chosen one took, 0 = not timed */
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

/* Not every product has every operand: sets the pointer to one if it is there. */
static int set_pointer(cublasLtMatmulDesc_t op, cublasLtMatmulDescAttributes_t id,
                       const void *pointer, struct ct_err *err)
{
    return pointer != NULL ? set(op, id, &pointer, sizeof(pointer), err) : 0;
}

/* What changes from call to call of one shape. */
static int point(const struct ct_gemm_plan *p, const struct ct_gemm_operands *o, struct ct_err *err)
{
    int rc = set_pointer(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, o->extra, err);
    if (rc != 0) {
        return rc;
    }
    rc = set_pointer(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, o->bits, err);
    if (rc != 0) {
        return rc;
    }
    rc = set_pointer(p->op, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, o->a_scale, err);
    if (rc != 0) {
        return rc;
    }
    return set_pointer(p->op, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, o->b_scale, err);
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
    if (rc != 0) {
        return rc;
    }
    rc = set(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &s.tb, sizeof(s.tb), err);
    if (rc != 0) {
        return rc;
    }
    rc = set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &s.epilogue, sizeof(s.epilogue), err);
    if (rc != 0) {
        return rc;
    }
    if (o->extra != NULL) {
        /* Else it would be taken for numbers of the result's type. */
        cudaDataType_t type = p->key.bias16 ? CUDA_R_16BF : CUDA_R_32F;
        rc = set(p->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof(type), err);
        if (rc != 0) {
            return rc;
        }
    }
    if (o->bits != NULL) {
        int64_t ld = (int64_t)((s.ldd + 127) / 128 * 128);
        rc = set(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &ld, sizeof(ld), err);
        if (rc != 0) {
            return rc;
        }
    }
    if (s.a == CUDA_R_8F_E4M3 && s.b == CUDA_R_8F_E4M3) {
        /* Sums in the tensor core's own precision: good enough for y, not for gradients. */
        int8_t fast = 1;
        rc = set(p->op, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof(fast), err);
        if (rc != 0) {
            return rc;
        }
    }
    rc = point(p, o, err);
    if (rc != 0) {
        return rc;
    }
    /* The rows of each stored matrix are its leading dimension: all are dense. */
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->a, s.a, s.lda, s.a_cols, (int64_t)s.lda));
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->b, s.b, s.ldb, s.b_cols, (int64_t)s.ldb));
    CT_CUBLAS_TRY(err,
                  cublasLtMatrixLayoutCreate(&p->d, s.result, s.ldd, s.d_cols, (int64_t)s.ldd));
    return p->key.of > 0 && !p->key.in_turn ? set_steps(p, &s, err) : 0;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* What a kernel may do: the memory that it has, and how it may add pieces of dot products. */
struct limits {
    size_t workspace;
    uint32_t schemes;
};

static size_t workspace_of(const struct ct_gemm_key *k)
{
    return k->of > 0 && !k->in_turn ? 0 : CT_CUDA_WORKSPACE;
}

static int set_limits(cublasLtMatmulPreference_t pref, const struct ct_gemm_key *k,
                      const struct limits *limits, struct ct_err *err)
{
    /* C is D here, unread as beta is 0, and must be declared all the same. */
    const cublasLtMatmulPreferenceAttributes_t ids[4] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES};
    CT_CUBLAS_TRY(
        err, cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                  &limits->schemes, sizeof(limits->schemes)));
    CT_CUBLAS_TRY(
        err, cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &limits->workspace, sizeof(limits->workspace)));
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

/* Timing may overwrite the result: no kernel reads it, and the real call writes it again. */
static int run_candidate(struct ct_cuda *cuda, const void *op, struct ct_err *err)
{
    const struct candidate *c = op;
    CT_CUBLAS_TRY(err, multiply(c->cache, cuda, c->plan, c->operands, c->algo));
    return 0;
}

/* Moves those that can run to the front, in their order, and says how many they are. */
static int usable(size_t workspace, cublasLtMatmulHeuristicResult_t *found, int count)
{
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (found[i].state == CUBLAS_STATUS_SUCCESS && found[i].workspaceSize <= workspace) {
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

static int refuse(struct ct_gemm_plan *p, struct refusal why)
{
    p->why = why;
    return CT_EUNSUPPORTED;
}

/* Every rank, with whatever number of parts, comes to the same kernel, or to none. */
static int pick_steady(struct ct_gemm_cache *cache, struct ct_gemm_plan *p,
                       const cublasLtMatmulHeuristicResult_t *found, int count, struct ct_err *err)
{
    struct refusal why = {.by = BY_CHECK, .offered = count};
    bool good = false;
    p->offered = count;
    for (int i = 0; !good && i < count; i++) {
        p->algo = found[i].algo;
        good = true;
        for (size_t parts = 1; good && parts <= p->key.of; parts *= 2) {
            int rc = check(cache, p, &p->algo, parts, &good, err);
            if (rc != 0) {
                return rc;
            }
            why.parts = parts;
        }
    }
    int rc = set_parts(p, p->key.parts, err);
    if (rc != 0) {
        return rc;
    }
    return good ? 0 : refuse(p, why);
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
        /* A kernel that does not run is skipped. If none runs, the first stays chosen and the
         * product reports the failure. */
        if (ct_cuda_time(cuda, run_candidate, &c, &us, NULL) == 0 && (!timed || us < p->us)) {
            timed = true;
            p->algo = found[i].algo;
            p->us = us;
        }
    }
}

/* Gives the kernels that the heuristic offers within these limits, none if it refuses. */
static int ask(struct ct_gemm_cache *cache, const struct ct_gemm_plan *p, struct limits limits,
               cublasLtMatmulHeuristicResult_t found[CANDIDATES], int *count, struct ct_err *err)
{
    *count = 0;
    cublasLtMatmulPreference_t pref = NULL;
    CT_CUBLAS_TRY(err, cublasLtMatmulPreferenceCreate(&pref));
    int rc = set_limits(pref, &p->key, &limits, err);
    if (rc != 0) {
        goto out;
    }
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(cache->lt, p->op, p->a, p->b, p->d, p->d,
                                                           pref, CANDIDATES, found, count);
    *count = status == CUBLAS_STATUS_SUCCESS ? usable(limits.workspace, found, *count) : 0;
    if (status != CUBLAS_STATUS_SUCCESS && !is_refusal(status)) {
        rc = ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic");
    }
out:
    (void)cublasLtMatmulPreferenceDestroy(pref);
    return rc;
}

static int choose_at_once(struct ct_gemm_cache *cache, struct ct_gemm_plan *p, struct ct_err *err)
{
    struct limits limits = {.workspace = 0, .schemes = CUBLASLT_REDUCTION_SCHEME_NONE};
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    int rc = set_parts(p, p->key.of, err);
    if (rc != 0) {
        return rc;
    }
    rc = ask(cache, p, limits, found, &count, err);
    if (rc != 0) {
        return rc;
    }
    if (count > 0) {
        return pick_steady(cache, p, found, count, err);
    }
    /* No kernel is taken from the second answer. It only tells whether memory was missing. */
    limits.workspace = CT_CUDA_WORKSPACE;
    rc = ask(cache, p, limits, found, &count, err);
    if (rc != 0) {
        return rc;
    }
    const struct refusal why = {.by = count > 0 ? BY_WORKSPACE : BY_HEURISTIC, .offered = count};
    return refuse(p, why);
}

static int choose_in_turn(struct ct_gemm_cache *cache, struct ct_gemm_plan *p, struct ct_err *err)
{
    /* The last resort adds in a step of its own, and not as the pieces come. */
    static const uint32_t schemes[] = {CUBLASLT_REDUCTION_SCHEME_NONE,
                                       CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                                       CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE};
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    for (size_t i = 0; p->offered == 0 && i < sizeof schemes / sizeof schemes[0]; i++) {
        const struct limits limits = {.workspace = CT_CUDA_WORKSPACE, .schemes = schemes[i]};
        int rc = ask(cache, p, limits, found, &p->offered, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (p->offered == 0) {
        return refuse(p, (struct refusal){.by = BY_HEURISTIC});
    }
    p->algo = found[0].algo;
    return 0;
}

static int choose(struct ct_gemm_cache *cache, struct ct_cuda *cuda, struct ct_gemm_plan *p,
                  const struct ct_gemm_operands *o, struct ct_err *err)
{
    if (p->key.of > 0) {
        return p->key.in_turn ? choose_in_turn(cache, p, err) : choose_at_once(cache, p, err);
    }
    const struct limits limits = {.workspace = CT_CUDA_WORKSPACE,
                                  .schemes = CUBLASLT_REDUCTION_SCHEME_MASK};
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    int count = 0;
    int rc = ask(cache, p, limits, found, &count, err);
    if (rc != 0) {
        return rc;
    }
    if (count == 0) {
        return refuse(p, (struct refusal){.by = BY_HEURISTIC});
    }
    pick(cache, cuda, p, o, found, count);
    return 0;
}

static int make_plan(struct ct_gemm_cache *cache, struct ct_cuda *cuda, struct ct_gemm_plan *p,
                     const struct ct_gemm_operands *o, struct ct_err *err)
{
    int rc = describe(p, o, err);
    if (rc != 0) {
        return rc;
    }
    return choose(cache, cuda, p, o, err);
}

/* ---- the cache ------------------------------------------------------------------------------- */

static bool same(const struct ct_gemm_key *a, const struct ct_gemm_key *b)
{
    return a->product == b->product && a->precision == b->precision && a->wide == b->wide &&
           a->bias16 == b->bias16 && a->batch == b->batch && a->in == b->in && a->out == b->out &&
           a->parts == b->parts && a->of == b->of && a->in_turn == b->in_turn &&
           a->slot == b->slot && memcmp(a->align, b->align, sizeof(a->align)) == 0;
}

static void tell_refusal(const struct ct_gemm_plan *p, struct ct_err *err)
{
    const struct refusal *why = &p->why;
    if (why->by == BY_WORKSPACE) {
        (void)ct_err_set(
            err, CT_EUNSUPPORTED,
            "each of the kernels that cuBLASLt offers (%d) wants a workspace, in which "
            "it may add in another order",
            why->offered);
    } else if (why->by == BY_CHECK) {
        (void)ct_err_set(err, CT_EUNSUPPORTED,
                         "none of the kernels that cuBLASLt offers for %zu parts (%d) does every "
                         "number of them: the last one refused %zu",
                         p->key.of, why->offered, why->parts);
    } else {
        (void)ct_err_set(err, CT_EUNSUPPORTED, "cuBLASLt has no kernel");
    }
}

static int answer(struct ct_gemm_plan *p, struct ct_gemm_plan **out, struct ct_err *err)
{
    if (p->refused) {
        tell_refusal(p, err);
        return CT_EUNSUPPORTED;
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
    int rc = make_plan(cache, cuda, &made, o, err);
    if (rc != 0) {
        const struct ct_gemm_plan refused = {.key = *k, .refused = true, .why = made.why};
        drop(&made);
        if (rc != CT_EUNSUPPORTED) {
            return rc;
        }
        made = refused;
    }
    struct ct_gemm_plan *slot = &cache->plans[cache->next];
    drop(slot);
    *slot = made;
    cache->next = (cache->next + 1) % MAX_SHAPES;
    cache->count += cache->count < MAX_SHAPES;
    return answer(slot, out, err);
}

/* The alignment of one part of a cut batch and of the next one. A larger one than kernels use is
 * not told to the heuristic, because ranks have their parts at other addresses, and all must get
 * the same kernel. */
static unsigned alignment_of(const struct ct_gemm_key *k, const void *ptr, const void *next)
{
    uintptr_t bits = (uintptr_t)ptr | (uintptr_t)next | (k->of > 0 ? VECTOR_BYTES : MAX_ALIGNMENT);
    return (unsigned)(bits & -bits);
}

static void set_alignments(struct ct_gemm_key *k, const struct ct_gemm_shape *s,
                           const struct ct_gemm_operands *o)
{
    const struct ct_gemm_operands next = ct_gemm_part_of(s, o, 1);
    k->align[0] = alignment_of(k, o->a, next.a);
    k->align[1] = alignment_of(k, o->b, next.b);
    k->align[2] = alignment_of(k, o->d, next.d);
    k->align[3] = alignment_of(k, o->extra, next.extra);
}

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

static int run(struct ct_gemm_cache *cache, struct ct_cuda *cuda, const struct ct_gemm_plan *p,
               const struct ct_gemm_shape *s, const struct ct_gemm_operands *o, struct ct_err *err)
{
    size_t times = p->key.in_turn ? p->key.parts : 1;
    for (size_t i = 0; i < times; i++) {
        const struct ct_gemm_operands part = ct_gemm_part_of(s, o, i);
        cublasStatus_t status = multiply(cache, cuda, p, &part, &p->algo);
        if (status != CUBLAS_STATUS_SUCCESS) {
            int rc = ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtMatmul");
            /* After CT_EUNSUPPORTED the caller would compute the product in another way. Ranks with
             * other numbers of parts would not, and their bits would differ. */
            return rc == CT_EUNSUPPORTED && p->key.of > 0
                       ? ct_err_set(err, CT_EIO, "cuBLASLt refuses the kernel that it offered")
                       : rc;
        }
    }
    return 0;
}

static void name_product(const struct ct_gemm_key *k, struct ct_err *err)
{
    if (k->of > 0) {
        (void)ct_err_wrap(err, "%s of %zu of %zu parts %s, batch %zu each, layer %zu -> %zu",
                          product_name(k->product), k->parts, k->of,
                          k->in_turn ? "one after the other" : "at once", k->batch, k->in, k->out);
    } else {
        (void)ct_err_wrap(err, "%s of batch %zu, layer %zu -> %zu", product_name(k->product),
                          k->batch, k->in, k->out);
    }
}

/* Gives the plan of a product, with the operands of this call. */
static int prepare(struct ct_gemm_cache *cache, struct ct_cuda *cuda, const struct ct_gemm_key *k,
                   const struct ct_gemm_operands *o, struct ct_gemm_plan **out, struct ct_err *err)
{
    /* The heuristic cannot be told where a bias is. Its kernels read vectors of it. */
    if (o->extra != NULL && k->align[3] < VECTOR_BYTES) {
        return ct_err_set(err, CT_EUNSUPPORTED, "a bias at no multiple of 16 bytes");
    }
    int rc = find(cache, cuda, k, o, out, err);
    if (rc != 0) {
        return rc;
    }
    return point(*out, o, err);
}

int ct_gemm_run(struct ct_gemm_cache *cache, struct ct_cuda *cuda, struct ct_gemm_key key,
                const struct ct_gemm_operands *o, struct ct_err *err)
{
    const struct ct_gemm_shape shape = ct_gemm_shape_of(&key);
    set_alignments(&key, &shape, o);
    struct ct_gemm_plan *p = NULL;
    int rc = prepare(cache, cuda, &key, o, &p, err);
    if (rc != 0) {
        name_product(&key, err);
        return rc;
    }
    return run(cache, cuda, p, &shape, o, err);
}

/* ---- what was chosen ------------------------------------------------------------------------- */

/* -1 where cuBLASLt does not say. */
static int config_of(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t id)
{
    int32_t value = -1;
    size_t written = 0;
    cublasStatus_t status =
        cublasLtMatmulAlgoConfigGetAttribute(algo, id, &value, sizeof value, &written);
    return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : -1;
}

static int explain_refusal(const struct ct_gemm_plan *p, struct ct_buf *to)
{
    struct ct_err why = {0};
    tell_refusal(p, &why);
    return ct_buf_printf(to, ", \"why\": \"%s\"", why.text);
}

static int explain_choice(const struct ct_gemm_plan *p, struct ct_buf *to)
{
    return ct_buf_printf(to,
                         ", \"offered\": %d, \"us\": %.3f, \"algorithm\": %d, \"tile\": %d, "
                         "\"stages\": %d, \"split_k\": %d, \"reduction\": %d",
                         p->offered, (double)p->us, config_of(&p->algo, CUBLASLT_ALGO_CONFIG_ID),
                         config_of(&p->algo, CUBLASLT_ALGO_CONFIG_TILE_ID),
                         config_of(&p->algo, CUBLASLT_ALGO_CONFIG_STAGES_ID),
                         config_of(&p->algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
                         config_of(&p->algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
}

static int explain(const struct ct_gemm_plan *p, struct ct_buf *to)
{
    const struct ct_gemm_key *k = &p->key;
    int rc = ct_buf_printf(to,
                           "{\"plan\": \"product\", \"product\": \"%s\", \"precision\": \"%s\", "
                           "\"batch\": %zu, \"in\": %zu, \"out\": %zu, \"parts\": %zu, "
                           "\"of\": %zu, \"in_turn\": %s, \"refused\": %s",
                           product_name(k->product), ct_precision_name(k->precision), k->batch,
                           k->in, k->out, k->parts, k->of, k->in_turn ? "true" : "false",
                           p->refused ? "true" : "false");
    if (rc != 0) {
        return rc;
    }
    rc = p->refused ? explain_refusal(p, to) : explain_choice(p, to);
    if (rc != 0) {
        return rc;
    }
    return ct_buf_printf(to, "}\n");
}

int ct_gemm_cache_explain(const struct ct_gemm_cache *cache, struct ct_buf *to)
{
    for (size_t i = 0; i < cache->count; i++) {
        int rc = explain(&cache->plans[i], to);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
