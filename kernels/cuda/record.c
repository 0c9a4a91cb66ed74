/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings: CUDA graphs that are captured from the device's stream. The other two streams join a
 * capture at fork() or fork_updates(). CUDA requires that they are joined again before the capture
 * ends. A capture that breaks gives no graph, and record_end() reports it.
 */
#include "kernels/cuda/cuda.h"

#include "common/alloc.h"
#include "common/buf.h"

struct ct_recording {
    cudaGraphExec_t exec;
};

int ct_cuda_record(struct ct_device *dev, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    /* The mode concerns this thread only, because NCCL's own threads may allocate meanwhile. */
    CT_CUDA_TRY(err, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal));
    cuda->recording = true;
    return 0;
}

static int instantiate(struct ct_cuda *cuda, cudaGraph_t graph, struct ct_recording **out,
                       struct ct_err *err)
{
    CT_CUDA_TRY(err, cudaGraphGetNodes(graph, NULL, &cuda->recorded_nodes));
    struct ct_recording *made = ct_calloc(1, sizeof(*made));
    if (made == NULL) {
        return ct_err_set(err, CT_ENOMEM, "no memory for a recording");
    }
    /* Each node keeps the priority of the stream that it was captured from. */
    cudaError_t status =
        cudaGraphInstantiate(&made->exec, graph, cudaGraphInstantiateFlagUseNodePriority);
    if (status != cudaSuccess) {
        ct_free(made);
        return ct_cuda_fail(err, status, __FILE__, __LINE__, "cudaGraphInstantiate");
    }
    *out = made;
    return 0;
}

int ct_cuda_record_end(struct ct_device *dev, struct ct_recording **out, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    cudaGraph_t graph = NULL;
    cuda->recording = false;
    /* Ends the capture in any case, so that the stream can be used again. A broken capture gives no
     * graph. */
    cudaError_t status = cudaStreamEndCapture(cuda->stream, &graph);
    int rc = 0;
    if (out == NULL) {
        (void)cudaGetLastError();
    } else if (status != cudaSuccess) {
        rc = ct_cuda_fail(err, status, __FILE__, __LINE__, "cudaStreamEndCapture");
    } else {
        rc = instantiate(cuda, graph, out, err);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    return rc;
}

int ct_cuda_replay(struct ct_device *dev, struct ct_recording *recording, struct ct_err *err)
{
    CT_CUDA_TRY(err, cudaGraphLaunch(recording->exec, ct_cuda_of(dev)->stream));
    return 0;
}

void ct_cuda_forget(struct ct_device *dev, struct ct_recording *recording)
{
    (void)dev;
    if (recording != NULL) {
        (void)cudaGraphExecDestroy(recording->exec);
        ct_free(recording);
    }
}

int ct_cuda_advance(struct ct_device *dev, uint64_t *now, uint64_t steps, struct ct_err *err)
{
    CT_CUDA_TRY(
        err, ct_launch_advance(ct_cuda_on(ct_cuda_of(dev), ct_cuda_of(dev)->stream), now, steps));
    return 0;
}

/* The event can be recorded again while an older wait for it is still queued, because a wait
 * refers to the last recording at the time at which the wait was queued. */
static int order(cudaStream_t first, cudaStream_t then, cudaEvent_t event, struct ct_err *err)
{
    CT_CUDA_TRY(err, cudaEventRecord(event, first));
    CT_CUDA_TRY(err, cudaStreamWaitEvent(then, event, 0));
    return 0;
}

int ct_cuda_fork(struct ct_device *dev, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    return order(cuda->stream, cuda->side, cuda->forked, err);
}

int ct_cuda_join(struct ct_device *dev, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    return order(cuda->side, cuda->stream, cuda->joined, err);
}

int ct_cuda_explain(struct ct_device *dev, struct ct_buf *to, struct ct_err *err)
{
    const struct ct_cuda *cuda = ct_cuda_of(dev);
    int rc = ct_cuda_gemm_explain(cuda->gemm, to);
    if (rc == 0) {
        rc = ct_cuda_head_explain(cuda->head, to);
    }
    if (rc == 0) {
        rc = ct_cuda_early_explain(cuda, to);
    }
    if (rc == 0) {
        rc = ct_buf_printf(to, "{\"plan\": \"recording\", \"nodes\": %zu}\n", cuda->recorded_nodes);
    }
    return rc == 0 ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

int ct_cuda_fork_updates(struct ct_device *dev, bool of_side, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    return order(of_side ? cuda->side : cuda->stream, cuda->updates, cuda->to_update, err);
}

int ct_cuda_join_updates(struct ct_device *dev, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    return order(cuda->updates, cuda->stream, cuda->updated, err);
}
