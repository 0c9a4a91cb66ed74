/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt of the stand-in: tests/lib/fake_gpu.h. Products of row-by-column loops; kernels that it
 * offers are numbers, each good for the one shape that it was offered for.
 */
#include "tests/lib/fake_gpu_engine.h"
#include "tests/lib/fake_number.h"

#include <cublasLt.h>
#include <stdlib.h>
#include <string.h>

#define OFFERS 2

struct layout {
    cudaDataType type;
    size_t rows, cols, ld;
};

struct desc {
    cublasComputeType_t compute;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    cudaDataType bias_type;
    bool has_bias_type;
    int64_t aux_ld;
    const float *a_scale, *b_scale;
};

/* What a handle points to is ours: the real ones are opaque. */
static struct layout *layout_of(cublasLtMatrixLayout_t handle)
{
    return (struct layout *)(void *)handle;
}

static struct desc *desc_of(cublasLtMatmulDesc_t handle)
{
    return (struct desc *)(void *)handle;
}

static void *new_handle(const void *content, size_t bytes)
{
    void *p = malloc(bytes);
    memcpy(p, content, bytes);
    fake.descriptors++;
    return p;
}

static cublasStatus_t end_handle(void *handle)
{
    free(handle);
    fake.descriptors--;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    FAKE_ALONE;
    if (fake_fails()) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *handle = new_handle("", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    FAKE_ALONE;
    return end_handle(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    FAKE_ALONE;
    fake_rule(scale == CUDA_R_32F, "products are scaled by floats here");
    if (fake_fails()) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    const struct desc made = {.compute = compute};
    *desc = new_handle(&made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    FAKE_ALONE;
    return end_handle(desc);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t id, const void *value,
                                              size_t bytes)
{
    FAKE_ALONE;
    struct desc *d = desc_of(handle);
    const struct {
        cublasLtMatmulDescAttributes_t id;
        void *to;
        size_t bytes;
    } known[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &d->ta, sizeof d->ta},
        {CUBLASLT_MATMUL_DESC_TRANSB, &d->tb, sizeof d->tb},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &d->epilogue, sizeof d->epilogue},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &d->bias, sizeof d->bias},
        {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &d->bias_type, sizeof d->bias_type},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &d->aux, sizeof d->aux},
        {CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &d->aux_ld, sizeof d->aux_ld},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &d->a_scale, sizeof d->a_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &d->b_scale, sizeof d->b_scale},
    };
    if (id == CUBLASLT_MATMUL_DESC_FAST_ACCUM && bytes == sizeof(int8_t)) {
        return CUBLAS_STATUS_SUCCESS;
    }
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].id == id && known[i].bytes == bytes) {
            memcpy(known[i].to, value, bytes);
            d->has_bias_type = d->has_bias_type || id == CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE;
            return CUBLAS_STATUS_SUCCESS;
        }
    }
    fake_rule(false, "an attribute of a product that is not known, or of another size");
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    FAKE_ALONE;
    if (fake_fails()) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    const struct layout made = {type, rows, cols, (size_t)ld};
    *layout = new_handle(&made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    FAKE_ALONE;
    return end_handle(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *pref)
{
    FAKE_ALONE;
    if (fake_fails()) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    *pref = new_handle("", 1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
    FAKE_ALONE;
    return end_handle(pref);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
                                                    cublasLtMatmulPreferenceAttributes_t id,
                                                    const void *value, size_t bytes)
{
    FAKE_ALONE;
    (void)pref;
    (void)id;
    (void)value;
    (void)bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- choosing -------------------------------------------------------------------------------- */

/* What a kernel is good for; its fields are in the eight words that cuBLASLt keeps to itself. */
static uint64_t signature(const struct desc *d, const struct layout *a, const struct layout *b,
                          const struct layout *out)
{
    const uint64_t parts[] = {a->type,
                              a->rows,
                              a->cols,
                              b->type,
                              b->rows,
                              b->cols,
                              out->type,
                              out->rows,
                              out->cols,
                              (uint64_t)d->ta,
                              d->tb,
                              d->epilogue,
                              (uint64_t)d->compute};
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        hash = (hash ^ parts[i]) * 1099511628211u;
    }
    return hash;
}

/* The table of types in cuBLASLt's manual, as far as it goes here. */
static bool types_fit(const struct desc *d, const struct layout *a, const struct layout *b,
                      const struct layout *out)
{
    bool f32 = a->type == CUDA_R_32F && out->type == CUDA_R_32F;
    bool wide = out->type == CUDA_R_32F || out->type == CUDA_R_16BF;
    bool bf16 = a->type == CUDA_R_16BF && wide;
    bool e4m3 = a->type == CUDA_R_8F_E4M3 && wide && d->ta == CUBLAS_OP_T && d->tb == CUBLAS_OP_N &&
                a->rows % 16 == 0 && a->cols % 16 == 0 && b->cols % 16 == 0 && d->a_scale != NULL &&
                d->b_scale != NULL;
    bool tf32 = d->compute != CUBLAS_COMPUTE_32F_FAST_TF32 || f32;
    return a->type == b->type && tf32 && (f32 || bf16 || e4m3);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t lt, cublasLtMatmulDesc_t op,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t pref, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *count)
{
    FAKE_ALONE;
    (void)lt;
    (void)c;
    (void)pref;
    const struct desc *desc = desc_of(op);
    *count = 0;
    if (fake_fails()) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if ((fake.no_epilogues & (int)desc->epilogue) != 0 ||
        !types_fit(desc, layout_of(a), layout_of(b), layout_of(d))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int i = 0; i < requested && i < OFFERS; i++) {
        results[i] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
        results[i].algo.data[0] = signature(desc, layout_of(a), layout_of(b), layout_of(d));
        results[i].algo.data[1] = (uint64_t)i;
        (*count)++;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- multiplying ----------------------------------------------------------------------------- */

struct product {
    struct desc desc;
    struct layout la, lb, ld;
    const void *a, *b;
    void *d;
};

static double get(const void *p, cudaDataType type, size_t i)
{
    if (type == CUDA_R_32F) {
        return (double)((const float *)p)[i];
    }
    return (double)(type == CUDA_R_16BF ? from_bf16(((const uint16_t *)p)[i])
                                        : from_e4m3(((const uint8_t *)p)[i]));
}

static void put(void *p, cudaDataType type, size_t i, double v)
{
    if (type == CUDA_R_32F) {
        ((float *)p)[i] = (float)v;
    } else {
        ((uint16_t *)p)[i] = to_bf16((float)v);
    }
}

/* Element [row, col] of a factor after its transposition. */
static double factor(const void *p, const struct layout *l, cublasOperation_t t, size_t row,
                     size_t col)
{
    return get(p, l->type, t == CUBLAS_OP_N ? col * l->ld + row : row * l->ld + col);
}

static double finish(const struct product *p, size_t row, size_t col, double v)
{
    const struct desc *d = &p->desc;
    cudaDataType bias_type = d->has_bias_type ? d->bias_type : p->ld.type;
    uint8_t *bits = d->aux != NULL ? (uint8_t *)d->aux + (col * (size_t)d->aux_ld + row) / 8 : NULL;
    uint8_t bit = (uint8_t)(1 << row % 8);
    switch ((int)d->epilogue) {
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
        v += get(d->bias, bias_type, row);
        *bits = (uint8_t)(v > 0 ? *bits | bit : *bits & ~bit);
        return v < 0 ? 0 : v;
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        v += get(d->bias, bias_type, row);
        return v < 0 ? 0 : v;
    case CUBLASLT_EPILOGUE_BIAS:
        return v + get(d->bias, bias_type, row);
    case CUBLASLT_EPILOGUE_DRELU:
        return *bits & bit ? v : 0;
    default:
        return v;
    }
}

/* Rows that are summed side by side: few enough for registers. */
#define SIDE_BY_SIDE ((size_t)8)

/* A factor as numbers, its element [j, i] at i * width + j; what is beyond `cols` is 0. That each
 * is read once, not once for each product that it is in, is most of the speed. */
static double *unpack(const void *p, const struct layout *l, cublasOperation_t t, size_t rows,
                      size_t cols, size_t *width)
{
    *width = (cols + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE * SIDE_BY_SIDE;
    double *numbers = calloc(rows * *width, sizeof *numbers);
    if (numbers == NULL) {
        abort();
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            numbers[i * *width + j] = factor(p, l, t, j, i);
        }
    }
    return numbers;
}

static void run_product(const void *data)
{
    const struct product *p = data;
    const struct desc *d = &p->desc;
    size_t k = d->ta == CUBLAS_OP_N ? p->la.cols : p->la.rows, wide_a, wide_b;
    double scale = p->la.type == CUDA_R_8F_E4M3 ? (double)*d->a_scale * (double)*d->b_scale : 1;
    double *a = unpack(p->a, &p->la, d->ta, k, p->ld.rows, &wide_a);
    double *b = unpack(p->b, &p->lb, d->tb, p->ld.cols, k, &wide_b);
    for (size_t col = 0; col < p->ld.cols; col++) {
        for (size_t row = 0; row < p->ld.rows; row += SIDE_BY_SIDE) {
            double sums[SIDE_BY_SIDE] = {0};
            for (size_t i = 0; i < k; i++) {
                const double *from = &a[i * wide_a + row];
                for (size_t r = 0; r < SIDE_BY_SIDE; r++) {
                    sums[r] += from[r] * b[col * wide_b + i];
                }
            }
            for (size_t r = 0; r < SIDE_BY_SIDE && row + r < p->ld.rows; r++) {
                put(p->d, p->ld.type, col * p->ld.ld + row + r,
                    finish(p, row + r, col, sums[r] * scale));
            }
        }
    }
    for (size_t col = 0; d->epilogue == CUBLASLT_EPILOGUE_BGRADB && col < p->ld.cols; col++) {
        double sum = 0;
        for (size_t i = 0; i < k; i++) {
            sum += b[col * wide_b + i];
        }
        put(d->bias, d->bias_type, col, sum);
    }
    free(a);
    free(b);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t lt, cublasLtMatmulDesc_t op, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t la, const void *b,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *c,
                              cublasLtMatrixLayout_t lc, void *d, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *workspace, size_t bytes,
                              cudaStream_t stream)
{
    FAKE_ALONE;
    (void)lt;
    (void)lc;
    (void)workspace;
    (void)bytes;
    struct product p = {*desc_of(op), *layout_of(la), *layout_of(lb), *layout_of(ld), a, b, d};
    fake_rule(*(const float *)alpha == 1.0f && *(const float *)beta == 0.0f && c == d,
              "a product that is scaled or added");
    fake_rule(algo->data[0] == signature(&p.desc, &p.la, &p.lb, &p.ld),
              "a kernel that was chosen for another shape");
    fake_rule(((int)p.desc.epilogue & 128) == 0 ||
                  (p.desc.aux_ld % 128 == 0 && p.desc.aux_ld >= (int64_t)p.ld.rows &&
                   p.desc.aux != NULL && (uintptr_t)p.desc.aux % 16 == 0),
              "bits of a ReLU that are nowhere, not aligned or too narrow");
    if (fake_fails()) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    fake.e4m3 += p.la.type == CUDA_R_8F_E4M3;
    fake_queue(stream, run_product, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    (void)status;
    return "fake cuBLASLt error";
}
