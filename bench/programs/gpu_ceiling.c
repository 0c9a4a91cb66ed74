/* SPDX-License-Identifier: Apache-2.0
 *
 * What GPU 0 can do at best, measured where the other figures are: a copy within its memory, large
 * products by cuBLASLt on random numbers (zeros would draw less power and run faster), launching an
 * empty graph; and what a program pays before its first step. None of our code is in the way.
 *
 *     bench-gpu-ceiling [SIDE [COPY_MIB]]
 *
 * Prints a line of JSON for each; exit code 77 without a GPU.
 */
#include "common/num.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define EXIT_SKIP 77
#define COPY_MIB 4096
#define SIDE 8192
#define WORKSPACE ((size_t)64 << 20)
/* Of which the fastest is taken. */
#define CANDIDATES 8
#define GRAPHS 2000
#define CHAIN 200

static void need_cuda(cudaError_t status, int line)
{
    if (status != cudaSuccess) {
        (void)fprintf(stderr, "bench-gpu-ceiling: line %d: %s\n", line, cudaGetErrorString(status));
        exit(EXIT_FAILURE);
    }
}

static void need_lt(cublasStatus_t status, int line)
{
    if (status != CUBLAS_STATUS_SUCCESS) {
        (void)fprintf(stderr, "bench-gpu-ceiling: line %d: cuBLASLt status %d\n", line,
                      (int)status);
        exit(EXIT_FAILURE);
    }
}

#define CUDA(call) need_cuda((call), __LINE__)
#define LT(call) need_lt((call), __LINE__)

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void tell(const char *what, double value)
{
    printf("{\"what\": \"%s\", \"value\": %.4f}\n", what, value);
    (void)fflush(stdout);
}

static double elapsed_ms(cudaEvent_t start, cudaEvent_t stop)
{
    float ms = 0;
    CUDA(cudaEventSynchronize(stop));
    CUDA(cudaEventElapsedTime(&ms, start, stop));
    return (double)ms;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Two blocks of so many bytes, or of half, a quarter... of it if there is no more. */
static size_t two_blocks(size_t bytes, void **a, void **b)
{
    for (;; bytes /= 2) {
        if (cudaMalloc(a, bytes) == cudaSuccess) {
            if (cudaMalloc(b, bytes) == cudaSuccess) {
                return bytes;
            }
            CUDA(cudaFree(*a));
        }
        (void)cudaGetLastError();
        if (bytes < 2) {
            need_cuda(cudaErrorMemoryAllocation, __LINE__);
        }
    }
}

static void time_copy(size_t bytes, cudaStream_t stream, cudaEvent_t start, cudaEvent_t stop)
{
    void *from, *to;
    bytes = two_blocks(bytes, &from, &to);
    CUDA(cudaMemsetAsync(from, 0x5a, bytes, stream));
    double best = 0;
    for (int i = 0; i < 10; i++) {
        CUDA(cudaEventRecord(start, stream));
        CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
        CUDA(cudaEventRecord(stop, stream));
        double rate = 2.0 * (double)bytes / elapsed_ms(start, stop) / 1e9;
        best = rate > best ? rate : best;
    }
    CUDA(cudaFree(from));
    CUDA(cudaFree(to));
    tell("copy_tb_per_s", best);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static cudaGraphExec_t graph_of(cudaStream_t stream, int nodes, void *memory)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < nodes; i++) {
        CUDA(cudaMemsetAsync(memory, i, 4, stream));
    }
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
    return exec;
}

static double time_graphs(cudaStream_t stream, cudaGraphExec_t exec, int count)
{
    CUDA(cudaGraphLaunch(exec, stream));
    CUDA(cudaStreamSynchronize(stream));
    double began = now_ms();
    for (int i = 0; i < count; i++) {
        CUDA(cudaGraphLaunch(exec, stream));
    }
    CUDA(cudaStreamSynchronize(stream));
    return (now_ms() - began) / count * 1e3;
}

/* One launch after the other, of a graph of one tiny node and of many: what is paid for a launch,
 * and for a node that depends on the one before. */
static void time_launches(cudaStream_t stream)
{
    void *memory;
    CUDA(cudaMalloc(&memory, 4));
    cudaGraphExec_t one = graph_of(stream, 1, memory), many = graph_of(stream, CHAIN, memory);
    double single = time_graphs(stream, one, GRAPHS);
    tell("graph_launch_us", single);
    tell("graph_node_us", time_graphs(stream, many, GRAPHS / CHAIN) / CHAIN);
    CUDA(cudaGraphExecDestroy(one));
    CUDA(cudaGraphExecDestroy(many));
    CUDA(cudaFree(memory));
}

/* ---- products -------------------------------------------------------------------------------- */

struct kind {
    const char *name;
    cudaDataType_t factor, result;
    cublasComputeType_t compute;
    size_t factor_bytes;
    int side, runs;
};

/* Numbers of any of the types that are neither huge nor NaN, with random bits below. */
static void fill(void *device, size_t bytes, const struct kind *kind, cudaStream_t stream)
{
    uint32_t *host = malloc(bytes);
    if (host == NULL) {
        (void)fprintf(stderr, "bench-gpu-ceiling: out of memory\n");
        exit(EXIT_FAILURE);
    }
    uint64_t state = 1;
    for (size_t i = 0; i < bytes / sizeof *host; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(state >> 32);
        host[i] = kind->factor_bytes == 4   ? (bits & 0x807fffffu) | 0x3f000000u
                  : kind->factor_bytes == 2 ? (bits & 0x807f807fu) | 0x3f003f00u
                                            : (bits & 0x87878787u) | 0x30303030u;
    }
    CUDA(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    free(host);
}

struct product {
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t op;
    cublasLtMatrixLayout_t factor, result;
    void *a, *b, *d, *workspace;
    cudaStream_t stream;
};

static cublasStatus_t multiply(const struct product *p, const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1.0f, zero = 0.0f;
    return cublasLtMatmul(p->lt, p->op, &one, p->a, p->factor, p->b, p->factor, &zero, p->d,
                          p->result, p->d, p->result, algo, p->workspace, WORKSPACE, p->stream);
}

static void time_product(struct product *p, const struct kind *kind, cudaEvent_t start,
                         cudaEvent_t stop)
{
    cublasLtMatmulPreference_t pref;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    const size_t workspace = WORKSPACE;
    int count = 0;
    LT(cublasLtMatmulPreferenceCreate(&pref));
    LT(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &workspace, sizeof workspace));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        p->lt, p->op, p->factor, p->factor, p->result, p->result, pref, CANDIDATES, found, &count);
    LT(cublasLtMatmulPreferenceDestroy(pref));
    double best = 0;
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        if (multiply(p, &found[i].algo) != CUBLAS_STATUS_SUCCESS) { /* and warms up */
            (void)cudaGetLastError();
            continue;
        }
        CUDA(cudaEventRecord(start, p->stream));
        for (int run = 0; run < kind->runs; run++) {
            LT(multiply(p, &found[i].algo));
        }
        CUDA(cudaEventRecord(stop, p->stream));
        double seconds = elapsed_ms(start, stop) / 1e3;
        double n = kind->side, rate = 2.0 * n * n * n * kind->runs / seconds / 1e12;
        best = rate > best ? rate : best;
    }
    char what[64];
    (void)snprintf(what, sizeof what, "gemm_%s_tflops", kind->name);
    tell(what, best);
}

static void time_kind(cublasLtHandle_t lt, const struct kind *kind, cudaStream_t stream,
                      cudaEvent_t start, cudaEvent_t stop)
{
    struct product p = {.lt = lt, .stream = stream};
    const cublasOperation_t transposed = CUBLAS_OP_T; /* the only way for e4m3 */
    const size_t numbers = (size_t)kind->side * (size_t)kind->side;
    const uint64_t side = (uint64_t)kind->side;
    CUDA(cudaMalloc(&p.a, numbers * kind->factor_bytes));
    CUDA(cudaMalloc(&p.b, numbers * kind->factor_bytes));
    CUDA(cudaMalloc(&p.d, numbers * sizeof(float)));
    CUDA(cudaMalloc(&p.workspace, WORKSPACE));
    fill(p.a, numbers * kind->factor_bytes, kind, stream);
    fill(p.b, numbers * kind->factor_bytes, kind, stream);
    LT(cublasLtMatmulDescCreate(&p.op, kind->compute, CUDA_R_32F));
    LT(cublasLtMatmulDescSetAttribute(p.op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                      sizeof transposed));
    LT(cublasLtMatrixLayoutCreate(&p.factor, kind->factor, side, side, (int64_t)side));
    LT(cublasLtMatrixLayoutCreate(&p.result, kind->result, side, side, (int64_t)side));
    time_product(&p, kind, start, stop);
    LT(cublasLtMatrixLayoutDestroy(p.factor));
    LT(cublasLtMatrixLayoutDestroy(p.result));
    LT(cublasLtMatmulDescDestroy(p.op));
    void *memory[] = {p.a, p.b, p.d, p.workspace};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        CUDA(cudaFree(memory[i]));
    }
}

int main(int argc, char *argv[])
{
    int64_t side = SIDE, mib = COPY_MIB;
    if (argc > 3 || (argc > 1 && ct_parse_i64(argv[1], 16, 1 << 16, &side) != 0) ||
        (argc > 2 && ct_parse_i64(argv[2], 1, 1 << 16, &mib) != 0)) {
        (void)fprintf(stderr, "usage: bench-gpu-ceiling [SIDE [COPY_MIB]]\n");
        return 2;
    }
    const int large = (int)side;
    const struct kind kinds[] = {
        {"bf16", CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2, large, 20},
        {"fp8", CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_COMPUTE_32F, 1, large, 20},
        {"tf32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4, large, 10},
        {"f32", CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 4, large / 2, 10},
    };
    cudaStream_t stream;
    cudaEvent_t start, stop;
    cublasLtHandle_t lt;
    double began = now_ms();
    cudaError_t status = cudaFree(NULL);
    if (status != cudaSuccess) {
        printf("1..0 # SKIP %s\n", cudaGetErrorString(status));
        return EXIT_SKIP;
    }
    double context = now_ms();
    LT(cublasLtCreate(&lt));
    double handle = now_ms();
    tell("start_context_ms", context - began);
    tell("start_cublaslt_ms", handle - context);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaEventCreate(&start));
    CUDA(cudaEventCreate(&stop));
    time_copy((size_t)mib << 20, stream, start, stop);
    time_launches(stream);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        time_kind(lt, &kinds[i], stream, start, stop);
    }
    LT(cublasLtDestroy(lt));
    return EXIT_SUCCESS;
}
