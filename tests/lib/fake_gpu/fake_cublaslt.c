/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt of the fake GPU (tests/lib/fake_gpu/fake_gpu.h): descriptors, the heuristic, and the
 * checks of a product. The kernels that the heuristic offers are numbers, each valid for one shape.
 * Each kernel adds in an order of its own. Which one is offered first depends on everything that
 * the heuristic is given. With a workspace, the first kernels split the dot products into pieces,
 * as real ones do to fill a GPU.
 */
#include "tests/lib/fake_gpu/fake_cublaslt.h"

#include <stdlib.h>
#include <string.h>

#define OFFERS 4

struct limits {
    uint64_t workspace;
    uint32_t schemes, align[4];
};

/* The places of these values in the opaque data of a kernel. */
enum { SIGNATURE, LANES, SPLITS, FEWEST };

/* The handles of cuBLASLt are opaque. Here they point to these structures. */
static struct fake_layout *layout_of(cublasLtMatrixLayout_t handle)
{
    return (struct fake_layout *)(void *)handle;
}

static struct fake_desc *desc_of(cublasLtMatmulDesc_t handle)
{
    return (struct fake_desc *)(void *)handle;
}

static struct limits *limits_of(cublasLtMatmulPreference_t handle)
{
    return (struct limits *)(void *)handle;
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
    const struct fake_desc made = {.compute = compute};
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
    struct fake_desc *d = desc_of(handle);
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
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &d->fast, sizeof d->fast},
    };
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
    const struct fake_layout made = {type, rows, cols, (size_t)ld, 1, 0};
    *layout = new_handle(&made, sizeof made);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t id,
                                                const void *value, size_t bytes)
{
    FAKE_ALONE;
    struct fake_layout *l = layout_of(handle);
    if (id == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof l->count) {
        memcpy(&l->count, value, bytes);
    } else if (id == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof l->step) {
        memcpy(&l->step, value, bytes);
    } else {
        fake_rule(false, "an attribute of a matrix that is not known, or of another size");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
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
    const struct limits made = {.schemes = CUBLASLT_REDUCTION_SCHEME_MASK,
                                .align = {256, 256, 256, 256}};
    *pref = new_handle(&made, sizeof made);
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
    struct limits *l = limits_of(pref);
    if (id == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof l->workspace) {
        memcpy(&l->workspace, value, bytes);
    } else if (id == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK && bytes == sizeof l->schemes) {
        memcpy(&l->schemes, value, bytes);
    } else if (id >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
               id <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES && bytes == sizeof l->align[0]) {
        memcpy(&l->align[id - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, bytes);
    } else {
        fake_rule(false, "a preference that is not known, or of another size");
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static uint64_t mix(const uint64_t *parts, size_t count)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ parts[i]) * 1099511628211u;
    }
    return hash;
}

/* Returns a hash of the shape for which a kernel is valid, without the number of matrices. */
static uint64_t signature(const struct fake_desc *d, const struct fake_layout *a,
                          const struct fake_layout *b, const struct fake_layout *out)
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
    return mix(parts, sizeof parts / sizeof parts[0]);
}

/* For each shape, about a third of the epilogues is refused; which ones depends on the chip. */
static bool refuses(const struct fake_desc *d, const struct fake_layout *a,
                    const struct fake_layout *b, const struct fake_layout *out)
{
    const uint64_t told[] = {fake.chip, signature(d, a, b, out)};
    bool drawn = fake.chip != 0 && (mix(told, 2) >> 32) % 3 == 0;
    return d->epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
           (drawn || (fake.no_epilogues & (int)d->epilogue) != 0);
}

static bool has_none(enum fake_kernels kernels)
{
    return (fake.no_kernels & (int)kernels) != 0;
}

/* Is there no kernel within these limits? */
static bool is_without(const struct fake_layout *out, const struct limits *limits)
{
    return has_none(FAKE_AT_ALL) || (has_none(FAKE_OF_BATCHES) && out->count > 1) ||
           (has_none(FAKE_WITHOUT_WORKSPACE) && limits->workspace == 0) ||
           (has_none(FAKE_WITHOUT_SPLITS) && limits->schemes == CUBLASLT_REDUCTION_SCHEME_NONE);
}

/* Returns candidate number `i`. For a batch of matrices, the first candidates cannot compute a
 * smaller batch. */
static cublasLtMatmulAlgo_t offer(const struct fake_desc *d, const struct fake_layout *a,
                                  const struct fake_layout *b, const struct fake_layout *out,
                                  const struct limits *limits, int i)
{
    const uint64_t told[] = {signature(d, a, b, out), (uint64_t)out->count, limits->workspace,
                             limits->align[0],        limits->align[1],     limits->align[2],
                             (uint64_t)a->step,       (uint64_t)b->step,    fake.chip};
    uint64_t hash = mix(told, sizeof told / sizeof told[0]) >> 32;
    bool splits = limits->workspace > 0 && limits->schemes != CUBLASLT_REDUCTION_SCHEME_NONE;
    cublasLtMatmulAlgo_t algo = {{0}};
    algo.data[SIGNATURE] = told[0];
    algo.data[LANES] = 1 + (hash + (uint64_t)i) % 4;
    algo.data[SPLITS] = splits && i < OFFERS / 2 ? 2 + hash % 3 : 1;
    algo.data[FEWEST] = out->count > 1 && i < OFFERS / 2 ? 2 : 1;
    if (has_none(FAKE_OF_SMALLER_BATCHES)) {
        algo.data[FEWEST] = (uint64_t)out->count;
    }
    return algo;
}

static size_t workspace_of(const cublasLtMatmulAlgo_t *algo)
{
    return algo->data[SPLITS] > 1 || has_none(FAKE_WITHOUT_WORKSPACE) ? 1024 : 0;
}

static bool is_fp8(const struct fake_layout *l)
{
    return l->type == CUDA_R_8F_E4M3 || l->type == CUDA_R_8F_E5M2;
}

/* Of Hopper: one layout, one at least of the factors e4m3, and no sums of a factor. */
static bool fp8_fits(const struct fake_desc *d, const struct fake_layout *a,
                     const struct fake_layout *b)
{
    bool types = is_fp8(a) && is_fp8(b) && (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3);
    bool sizes = a->rows % 16 == 0 && a->cols % 16 == 0 && b->cols % 16 == 0 && a->ld % 16 == 0 &&
                 b->ld % 16 == 0;
    return types && sizes && d->ta == CUBLAS_OP_T && d->tb == CUBLAS_OP_N && a->rows == b->rows &&
           d->epilogue != CUBLASLT_EPILOGUE_BGRADB && d->compute == CUBLAS_COMPUTE_32F &&
           d->a_scale != NULL && d->b_scale != NULL;
}

/* The table of types in cuBLASLt's manual, as far as it goes here. */
static bool types_fit(const struct fake_desc *d, const struct fake_layout *a,
                      const struct fake_layout *b, const struct fake_layout *out)
{
    bool f32 = a->type == CUDA_R_32F && out->type == CUDA_R_32F;
    bool wide = out->type == CUDA_R_32F || out->type == CUDA_R_16BF;
    bool bf16 = a->type == CUDA_R_16BF && wide;
    bool same = a->type == b->type;
    bool tf32 = d->compute != CUBLAS_COMPUTE_32F_FAST_TF32 || f32;
    return (tf32 && same && (f32 || bf16)) || (wide && fp8_fits(d, a, b));
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
    const struct fake_desc *desc = desc_of(op);
    *count = 0;
    fake_rule(layout_of(a)->type != CUDA_R_8F_E4M3 || ((int)desc->epilogue & 4) == 0 ||
                  (desc->has_bias_type && desc->bias_type == CUDA_R_16BF),
              "an e4m3 product with a bias that is not bfloat16");
    if (fake_fails()) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    if (refuses(desc, layout_of(a), layout_of(b), layout_of(d)) ||
        !types_fit(desc, layout_of(a), layout_of(b), layout_of(d)) ||
        is_without(layout_of(d), limits_of(pref))) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (int i = 0; i < requested && i < OFFERS; i++) {
        results[i] = (cublasLtMatmulHeuristicResult_t){.state = CUBLAS_STATUS_SUCCESS};
        results[i].algo = offer(desc, layout_of(a), layout_of(b), layout_of(d), limits_of(pref), i);
        results[i].workspaceSize = workspace_of(&results[i].algo);
        (*count)++;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t id,
                                                    void *to, size_t bytes, size_t *written)
{
    FAKE_ALONE;
    const int32_t value = id == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? (int32_t)algo->data[SPLITS] : 0;
    memcpy(to, &value, bytes < sizeof value ? bytes : sizeof value);
    *written = sizeof value;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t lt, cublasLtMatmulDesc_t op,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    FAKE_ALONE;
    (void)lt;
    (void)c;
    if (fake_fails()) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    bool good =
        algo->data[SIGNATURE] == signature(desc_of(op), layout_of(a), layout_of(b), layout_of(d)) &&
        (uint64_t)layout_of(d)->count >= algo->data[FEWEST];
    result->state = good ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = workspace_of(algo);
    return result->state;
}

static bool has_bias(const struct fake_desc *d)
{
    return ((int)d->epilogue & 4) != 0 || d->epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

/* ---- multiplying ----------------------------------------------------------------------------- */

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
    struct fake_product p = {*desc_of(op),
                             *layout_of(la),
                             *layout_of(lb),
                             *layout_of(ld),
                             a,
                             b,
                             d,
                             algo->data[LANES] + 4 * (algo->data[SPLITS] - 1)};
    fake_rule(*(const float *)alpha == 1.0f && *(const float *)beta == 0.0f && c == d,
              "a product that is scaled or added");
    fake_rule(algo->data[SIGNATURE] == signature(&p.desc, &p.la, &p.lb, &p.ld),
              "a kernel that was chosen for another shape");
    fake_rule((uint64_t)p.ld.count >= algo->data[FEWEST] && p.la.count == p.ld.count &&
                  p.lb.count == p.ld.count,
              "a kernel for larger batches, or factors with another number of matrices");
    fake_rule(workspace_of(algo) <= bytes && (bytes == 0 || workspace != NULL),
              "a kernel without the workspace that it needs");
    fake_rule(p.ld.count == 1 || (((int)p.desc.epilogue & (128 | CUBLASLT_EPILOGUE_BGRADB)) == 0),
              "ReLU bits or bias gradients of several matrices, which the fake GPU cannot compute");
    fake_rule(((int)p.desc.epilogue & 128) == 0 ||
                  (p.desc.aux_ld % 128 == 0 && p.desc.aux_ld >= (int64_t)p.ld.rows &&
                   p.desc.aux != NULL && (uintptr_t)p.desc.aux % 16 == 0),
              "bits of a ReLU that are nowhere, not aligned or too narrow");
    fake_rule(!has_bias(&p.desc) || (p.desc.bias != NULL && (uintptr_t)p.desc.bias % 16 == 0),
              "a bias, or a place for its gradient, that is not aligned to 16 bytes");
    fake_rule(!is_fp8(&p.la) || ((uintptr_t)a % 16 == 0 && (uintptr_t)b % 16 == 0),
              "8-bit factors that are not aligned to 16 bytes");
    fake_rule(p.lb.type != CUDA_R_8F_E5M2 || !p.desc.fast, "a gradient that is summed coarsely");
    if (has_none(FAKE_RUNNABLE)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (fake_fails()) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    fake.e4m3 += p.la.type == CUDA_R_8F_E4M3 && p.lb.type == CUDA_R_8F_E4M3;
    fake.e5m2 += p.lb.type == CUDA_R_8F_E5M2;
    fake_queue(stream, fake_run_product, &p, sizeof p);
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    (void)status;
    return "fake cuBLASLt error";
}
