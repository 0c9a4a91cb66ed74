/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by cuBLASLt in f32. cuBLASLt is column major, so each row-major matrix is handed
 * over as its transpose and the two factors change places:
 *
 *   y  = x * w^T    becomes  y^T  = w * x^T     (m = out, n = batch, k = in), bias and ReLU fused
 *   dw = dy^T * x   becomes  dw^T = x^T * dy    (m = in, n = out, k = batch)
 *   dx = dy * w     becomes  dx^T = w^T * dy^T  (m = in, n = batch, k = out)
 *
 * The heuristic's choice of a kernel is asked for once per shape and kept, as asking takes longer
 * than a small product. It depends on the pointers' alignment, which is a part of the key.
 */
#include "kernels/cuda/cuda.h"

extern "C" {
#include "common/alloc.h"
}

#define MAX_SHAPES 64
#define MAX_ALIGNMENT 256u
/* NVIDIA's advice for Hopper is 32 MiB; older ones need less. */
#define WORKSPACE_BYTES ((size_t)32 << 20)

/* PRODUCT_Y_BARE leaves bias and ReLU to a kernel of ours. */
enum product { PRODUCT_Y, PRODUCT_Y_RELU, PRODUCT_Y_BARE, PRODUCT_DW, PRODUCT_DX };

struct key {
    enum product product;
    size_t batch, in, out;
    unsigned align[4]; /* of a, b, d, bias */
};

struct plan {
    struct key key;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t a, b, d;
    cublasLtMatmulAlgo_t algo;
};

struct ct_cuda_gemm {
    cublasLtHandle_t lt;
    void *workspace;
    struct plan plans[MAX_SHAPES];
    size_t count, next; /* plans in use; the one that the next new shape takes */
};

/* Column-major operands of one product. */
struct operands {
    const void *a, *b, *bias; /* bias NULL = none */
    void *d;
};

static void drop(struct plan *p)
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
    *p = plan{};
}

int ct_cuda_gemm_new(struct ct_cuda_gemm **out, struct ct_err *err)
{
    struct ct_cuda_gemm *gemm = (struct ct_cuda_gemm *)ct_calloc(1, sizeof(*gemm));
    if (gemm == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for the matrix product's shapes");
    }
    cublasStatus_t status = cublasLtCreate(&gemm->lt);
    if (status != CUBLAS_STATUS_SUCCESS) {
        ct_free(gemm);
        return ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtCreate");
    }
    cudaError_t rc = cudaMalloc(&gemm->workspace, WORKSPACE_BYTES);
    if (rc != cudaSuccess) {
        ct_cuda_gemm_free(gemm);
        return ct_cuda_fail(err, rc, __FILE__, __LINE__, "cudaMalloc of cuBLASLt's workspace");
    }
    *out = gemm;
    return 0;
}

void ct_cuda_gemm_free(struct ct_cuda_gemm *gemm)
{
    if (gemm == NULL) {
        return;
    }
    for (size_t i = 0; i < gemm->count; i++) {
        drop(&gemm->plans[i]);
    }
    (void)cudaFree(gemm->workspace);
    (void)cublasLtDestroy(gemm->lt);
    ct_free(gemm);
}

static unsigned alignment_of(const void *ptr)
{
    uintptr_t at = (uintptr_t)ptr;
    unsigned align = sizeof(float);
    while (align < MAX_ALIGNMENT && at % (align * 2) == 0) {
        align *= 2;
    }
    return align;
}

static bool same(const struct key *a, const struct key *b)
{
    return a->product == b->product && a->batch == b->batch && a->in == b->in && a->out == b->out &&
           a->align[0] == b->align[0] && a->align[1] == b->align[1] && a->align[2] == b->align[2] &&
           a->align[3] == b->align[3];
}

static int describe(struct plan *p, const struct key *k, struct ct_err *err)
{
    cublasOperation_t ta = CUBLAS_OP_N, tb = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    size_t lda = k->in, ldb = k->out, ldd = k->in, a_cols = k->out, b_cols = k->batch;
    size_t d_cols = k->batch;
    switch (k->product) {
    case PRODUCT_Y:
    case PRODUCT_Y_RELU:
    case PRODUCT_Y_BARE: /* a = w, b = x */
        ta = CUBLAS_OP_T;
        ldb = k->in, ldd = k->out;
        if (k->product != PRODUCT_Y_BARE) {
            epilogue =
                k->product == PRODUCT_Y ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_RELU_BIAS;
        }
        break;
    case PRODUCT_DW: /* a = x, b = dy */
        tb = CUBLAS_OP_T;
        a_cols = k->batch, d_cols = k->out;
        break;
    case PRODUCT_DX: /* a = w, b = dy */
    default:
        break;
    }
    CT_CUBLAS_TRY(err, cublasLtMatmulDescCreate(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CT_CUBLAS_TRY(
        err, cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)));
    CT_CUBLAS_TRY(
        err, cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)));
    CT_CUBLAS_TRY(err, cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                      &epilogue, sizeof(epilogue)));
    /* The rows of each stored matrix are its leading dimension: all are dense. */
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->a, CUDA_R_32F, lda, a_cols, (int64_t)lda));
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->b, CUDA_R_32F, ldb, b_cols, (int64_t)ldb));
    CT_CUBLAS_TRY(err, cublasLtMatrixLayoutCreate(&p->d, CUDA_R_32F, ldd, d_cols, (int64_t)ldd));
    return 0;
}

static int set_limits(cublasLtMatmulPreference_t pref, const struct key *k, struct ct_err *err)
{
    const cublasLtMatmulPreferenceAttributes_t ids[3] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    size_t workspace = WORKSPACE_BYTES;
    CT_CUBLAS_TRY(
        err, cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                  &workspace, sizeof(workspace)));
    for (int i = 0; i < 3; i++) {
        uint32_t align = k->align[i];
        CT_CUBLAS_TRY(err,
                      cublasLtMatmulPreferenceSetAttribute(pref, ids[i], &align, sizeof(align)));
    }
    /* C is D here, unread as beta is 0, and must be declared all the same. */
    uint32_t align_c = k->align[2];
    CT_CUBLAS_TRY(
        err, cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                                                  &align_c, sizeof(align_c)));
    return 0;
}

static int choose(struct ct_cuda_gemm *gemm, struct plan *p, const struct key *k,
                  struct ct_err *err)
{
    cublasLtMatmulPreference_t pref = NULL;
    CT_CUBLAS_TRY(err, cublasLtMatmulPreferenceCreate(&pref));
    int rc = set_limits(pref, k, err);
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    if (rc == 0) {
        cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(gemm->lt, p->op, p->a, p->b, p->d,
                                                               p->d, pref, 1, &found, &count);
        if (status != CUBLAS_STATUS_SUCCESS) {
            rc = ct_cublas_fail(err, status, __FILE__, __LINE__, "cublasLtMatmulAlgoGetHeuristic");
        } else if (count == 0) {
            rc = ct_err_set(err, CT_EUNSUPPORTED, "cuBLASLt has no kernel");
        }
    }
    (void)cublasLtMatmulPreferenceDestroy(pref);
    if (rc == 0) {
        p->algo = found.algo;
    }
    return rc;
}

static int find(struct ct_cuda_gemm *gemm, const struct key *k, const void *bias, struct plan **out,
                struct ct_err *err)
{
    for (size_t i = 0; i < gemm->count; i++) {
        if (same(&gemm->plans[i].key, k)) {
            *out = &gemm->plans[i];
            return 0;
        }
    }
    struct plan made = {};
    made.key = *k;
    int rc = describe(&made, k, err);
    if (rc == 0 && bias != NULL) {
        /* Some kernels are ruled out by the bias pointer's alignment. */
        cublasStatus_t status = cublasLtMatmulDescSetAttribute(
            made.op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
        if (status != CUBLAS_STATUS_SUCCESS) {
            rc = ct_cublas_fail(err, status, __FILE__, __LINE__, "setting the bias pointer");
        }
    }
    if (rc == 0) {
        rc = choose(gemm, &made, k, err);
    }
    if (rc != 0) {
        drop(&made);
        (void)ct_err_wrap(err, "batch %zu, layer %zu -> %zu", k->batch, k->in, k->out);
        return rc;
    }
    struct plan *slot = &gemm->plans[gemm->next];
    drop(slot);
    *slot = made;
    gemm->next = (gemm->next + 1) % MAX_SHAPES;
    gemm->count += gemm->count < MAX_SHAPES;
    *out = slot;
    return 0;
}

static int run(struct ct_cuda *cuda, struct key k, const struct operands *o, struct ct_err *err)
{
    const float one = 1.0f, zero = 0.0f;
    k.align[0] = alignment_of(o->a);
    k.align[1] = alignment_of(o->b);
    k.align[2] = alignment_of(o->d);
    k.align[3] = alignment_of(o->bias);
    struct plan *p;
    int rc = find(cuda->gemm, &k, o->bias, &p, err);
    if (rc != 0) {
        return rc;
    }
    if (o->bias != NULL) {
        CT_CUBLAS_TRY(err, cublasLtMatmulDescSetAttribute(p->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                          &o->bias, sizeof(o->bias)));
    }
    CT_CUBLAS_TRY(err, cublasLtMatmul(cuda->gemm->lt, p->op, &one, o->a, p->a, o->b, p->b, &zero,
                                      o->d, p->d, o->d, p->d, &p->algo, cuda->gemm->workspace,
                                      WORKSPACE_BYTES, cuda->stream));
    return 0;
}

/* cuBLASLt does not promise its fused epilogues for every shape, least of all for sizes of 1. */
int ct_cuda_gemm_linear(struct ct_cuda *cuda, const struct ct_linear *op, struct ct_err *err)
{
    struct key k = {op->relu ? PRODUCT_Y_RELU : PRODUCT_Y, op->batch, op->in, op->out, {}};
    struct operands o = {op->w, op->x, op->b, op->y};
    if (op->in > 1 && op->out > 1) {
        struct ct_err refusal = {};
        int rc = run(cuda, k, &o, &refusal);
        if (rc != CT_EUNSUPPORTED) {
            return rc == 0 ? 0 : ct_err_set(err, rc, "%s", refusal.text);
        }
    }
    k.product = PRODUCT_Y_BARE;
    o.bias = NULL;
    int rc = run(cuda, k, &o, err);
    return rc == 0 ? ct_cuda_add_bias(cuda, op, err) : rc;
}

int ct_cuda_gemm_dw(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err)
{
    struct key k = {PRODUCT_DW, op->batch, op->in, op->out, {}};
    struct operands o = {op->x, op->dy, NULL, op->dw};
    return run(cuda, k, &o, err);
}

int ct_cuda_gemm_dx(struct ct_cuda *cuda, const struct ct_linear_grad *op, struct ct_err *err)
{
    struct key k = {PRODUCT_DX, op->batch, op->in, op->out, {}};
    struct operands o = {op->w, op->dy, NULL, op->dx};
    return run(cuda, k, &o, err);
}
