/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether NCCL works on GPU 0 as worker/nccl/ uses it, as far as one GPU can show: non-blocking
 * initialisation, a grouped send to and receive from itself, eager and captured into a CUDA graph
 * that is replayed, with a second stream and without; then an abort with work under way, and all of
 * it again with a new communicator in the same process. A sum in place of one rank returns at once
 * and shows nothing; sending to itself runs NCCL's kernels.
 *
 * Prints TAP and lines of JSON; exit code 77 without a GPU. Each wait has a time limit.
 */
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXIT_SKIP 77
#define COUNT ((size_t)1 << 20) /* numbers of a message */
#define REPLAYS 200
#define WAIT_MS 20000.0

static jmp_buf on_failure;
static int number, failed;

__attribute__((format(printf, 2, 3), noreturn)) static void fail(int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    printf("# gpu_nccl.c:%d: ", line);
    (void)vprintf(fmt, ap);
    printf("\n");
    va_end(ap);
    longjmp(on_failure, 1);
}

#define CUDA(call)                                                        \
    do {                                                                  \
        cudaError_t status_ = (call);                                     \
        if (status_ != cudaSuccess) {                                     \
            fail(__LINE__, "%s: %s", #call, cudaGetErrorString(status_)); \
        }                                                                 \
    } while (0)

/* A non-blocking communicator may still be at it. */
#define NCCL(comm, call)                          \
    do {                                          \
        ncclResult_t result_ = (call);            \
        settle((comm), result_, __LINE__, #call); \
    } while (0)

static double now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void settle(ncclComm_t comm, ncclResult_t result, int line, const char *what)
{
    double until = now_ms() + WAIT_MS;
    while (result == ncclInProgress && now_ms() < until) {
        if (ncclCommGetAsyncError(comm, &result) != ncclSuccess) {
            fail(line, "%s: no asynchronous error can be asked for", what);
        }
    }
    if (result != ncclSuccess) {
        fail(line, "%s: %s: %s", what, ncclGetErrorString(result), ncclGetLastError(comm));
    }
}

static void tell(const char *what, double value)
{
    printf("{\"what\": \"%s\", \"value\": %.4f}\n", what, value);
    (void)fflush(stdout);
}

struct scene {
    cudaStream_t stream, side;
    cudaEvent_t forked, joined;
    float *send, *recv;
    float *host;
    ncclComm_t comm;
    cudaGraphExec_t exec;
    float value; /* of the first number that was sent last */
};

/* ---- parts ----------------------------------------------------------------------------------- */

static void init(struct scene *s)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    double began = now_ms();
    NCCL(NULL, ncclGetUniqueId(&id));
    ncclResult_t result = ncclCommInitRankConfig(&s->comm, 1, id, 0, &config);
    settle(s->comm, result, __LINE__, "ncclCommInitRankConfig");
    tell("nccl_init_ms", now_ms() - began);
}

static void put_numbers(struct scene *s)
{
    s->value += 1;
    for (size_t i = 0; i < COUNT; i++) {
        s->host[i] = s->value + (float)(i % 1024);
    }
    CUDA(cudaMemcpyAsync(s->send, s->host, COUNT * sizeof(float), cudaMemcpyHostToDevice,
                         s->stream));
    CUDA(cudaMemsetAsync(s->recv, 0xff, COUNT * sizeof(float), s->stream));
    CUDA(cudaStreamSynchronize(s->stream));
}

static void await(struct scene *s, int line)
{
    double until = now_ms() + WAIT_MS;
    cudaError_t status = cudaErrorNotReady;
    while (status == cudaErrorNotReady && now_ms() < until) {
        ncclResult_t result = ncclSuccess;
        if (ncclCommGetAsyncError(s->comm, &result) != ncclSuccess || result != ncclSuccess) {
            fail(line, "asynchronous error: %s", ncclGetErrorString(result));
        }
        status = cudaStreamQuery(s->stream);
    }
    if (status != cudaSuccess) {
        fail(line, "the stream: %s", cudaGetErrorString(status));
    }
}

static void expect_numbers(struct scene *s)
{
    await(s, __LINE__);
    memset(s->host, 0, COUNT * sizeof(float));
    CUDA(cudaMemcpyAsync(s->host, s->recv, COUNT * sizeof(float), cudaMemcpyDeviceToHost,
                         s->stream));
    CUDA(cudaStreamSynchronize(s->stream));
    for (size_t i = 0; i < COUNT; i++) {
        if (s->host[i] != s->value + (float)(i % 1024)) {
            fail(__LINE__, "number %zu is %g, not %g", i, (double)s->host[i],
                 (double)(s->value + (float)(i % 1024)));
        }
    }
}

static void exchange(struct scene *s, cudaStream_t stream)
{
    NCCL(s->comm, ncclGroupStart());
    (void)ncclSend(s->send, COUNT, ncclFloat, 0, s->comm, stream);
    (void)ncclRecv(s->recv, COUNT, ncclFloat, 0, s->comm, stream);
    NCCL(s->comm, ncclGroupEnd());
}

static void record(struct scene *s, bool beside)
{
    cudaGraph_t graph = NULL;
    CUDA(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    if (beside) {
        CUDA(cudaEventRecord(s->forked, s->stream));
        CUDA(cudaStreamWaitEvent(s->side, s->forked, 0));
    }
    exchange(s, beside ? s->side : s->stream);
    if (beside) {
        CUDA(cudaEventRecord(s->joined, s->side));
        CUDA(cudaStreamWaitEvent(s->stream, s->joined, 0));
    }
    CUDA(cudaStreamEndCapture(s->stream, &graph));
    CUDA(cudaGraphInstantiate(&s->exec, graph, 0));
    CUDA(cudaGraphDestroy(graph));
}

static void forget(struct scene *s)
{
    if (s->exec != NULL) {
        (void)cudaGraphExecDestroy(s->exec);
        s->exec = NULL;
    }
}

/* ---- checks ---------------------------------------------------------------------------------- */

static void check_init(struct scene *s)
{
    init(s);
}

static void check_self(struct scene *s)
{
    put_numbers(s);
    exchange(s, s->stream);
    expect_numbers(s);
}

static void check_sum(struct scene *s)
{
    put_numbers(s);
    NCCL(s->comm, ncclAllReduce(s->send, s->recv, COUNT, ncclFloat, ncclSum, s->comm, s->stream));
    expect_numbers(s);
}

static void replay(struct scene *s, const char *what)
{
    put_numbers(s);
    CUDA(cudaGraphLaunch(s->exec, s->stream));
    expect_numbers(s);
    put_numbers(s);
    double began = now_ms();
    for (int i = 0; i < REPLAYS; i++) {
        CUDA(cudaGraphLaunch(s->exec, s->stream));
    }
    await(s, __LINE__);
    tell(what, (now_ms() - began) / REPLAYS * 1e3);
    expect_numbers(s);
}

static void check_recorded(struct scene *s)
{
    record(s, false);
    replay(s, "nccl_self_4mib_replay_us");
    forget(s);
}

static void check_recorded_beside(struct scene *s)
{
    record(s, true);
    replay(s, "nccl_self_4mib_replay_beside_us");
}

/* The graph of the check before must go first: NCCL waits for those that hold its collectives. */
static void check_abort(struct scene *s)
{
    put_numbers(s);
    for (int i = 0; i < REPLAYS; i++) {
        CUDA(cudaGraphLaunch(s->exec, s->stream));
    }
    forget(s);
    exchange(s, s->stream);
    double began = now_ms();
    ncclResult_t result = ncclCommAbort(s->comm);
    s->comm = NULL;
    tell("nccl_abort_ms", now_ms() - began);
    if (result != ncclSuccess) {
        fail(__LINE__, "ncclCommAbort: %s", ncclGetErrorString(result));
    }
    CUDA(cudaStreamSynchronize(s->stream));
}

static void check_destroy(struct scene *s)
{
    forget(s);
    NCCL(s->comm, ncclCommFinalize(s->comm));
    ncclResult_t result = ncclCommDestroy(s->comm);
    s->comm = NULL;
    if (result != ncclSuccess) {
        fail(__LINE__, "ncclCommDestroy: %s", ncclGetErrorString(result));
    }
}

static void run(const char *name, void (*check)(struct scene *), struct scene *s)
{
    bool ok = setjmp(on_failure) == 0;
    if (ok) {
        check(s);
    } else {
        failed++;
    }
    printf("%s %d - %s\n", ok ? "ok" : "not ok", ++number, name);
    (void)fflush(stdout);
}

static bool prepare(struct scene *s)
{
    if (setjmp(on_failure) != 0) {
        return false;
    }
    void *send, *recv;
    CUDA(cudaSetDevice(0));
    CUDA(cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    CUDA(cudaStreamCreateWithFlags(&s->side, cudaStreamNonBlocking));
    CUDA(cudaEventCreateWithFlags(&s->forked, cudaEventDisableTiming));
    CUDA(cudaEventCreateWithFlags(&s->joined, cudaEventDisableTiming));
    CUDA(cudaMalloc(&send, COUNT * sizeof(float)));
    CUDA(cudaMalloc(&recv, COUNT * sizeof(float)));
    s->send = send, s->recv = recv;
    s->host = malloc(COUNT * sizeof(float));
    return s->host != NULL;
}

int main(void)
{
    static const struct {
        const char *name;
        void (*check)(struct scene *s);
    } checks[] = {
        {"init", check_init},
        {"send to itself", check_self},
        {"sum out of place", check_sum},
        {"recorded and replayed", check_recorded},
        {"recorded on a second stream", check_recorded_beside},
        {"abort with work under way", check_abort},
        {"init after the abort", check_init},
        {"send to itself after the abort", check_self},
        {"recorded after the abort", check_recorded_beside},
        {"destroy", check_destroy},
    };
    const size_t count = sizeof checks / sizeof checks[0];
    struct scene s = {0};
    int devices = 0, version = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("1..0 # SKIP no GPU\n");
        return EXIT_SKIP;
    }
    if (ncclGetVersion(&version) == ncclSuccess) {
        tell("nccl_version", version);
    }
    if (!prepare(&s)) {
        printf("Bail out! no streams and memory\n");
        return 1;
    }
    for (size_t i = 0; i < count; i++) {
        run(checks[i].name, checks[i].check, &s);
        if (s.comm == NULL && failed > 0) {
            printf("Bail out! there is no communicator\n");
            return 1;
        }
    }
    printf("1..%zu\n", count);
    return failed > 0;
}
