/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether kernels of our own are launched early (programmatic dependent launch, launch.h). On
 * compute capability 9.0 and above a chain of kernels is timed both ways before the first
 * recording, recorded, with all that a step has in front of kernels: nothing, a clearing of memory,
 * a fork and a join. A driver or a device that does not take it so shows that here, and kernels are
 * launched in turn.
 */
#include "kernels/cuda/cuda.h"

#include "common/buf.h"

#define NEEDED_CAPABILITY 90
#define CHAIN 4
#define RUNS 4
/* Numbers that a kernel of the chain converts: few, because what is timed is between kernels. */
#define COUNT ((size_t)1 << 12)

static int run_chain(struct ct_cuda *cuda, const void *data, struct ct_err *err)
{
    (void)data;
    const struct ct_launch_on main = ct_cuda_on(cuda, cuda->stream);
    const struct ct_launch_on beside = ct_cuda_on(cuda, cuda->updates);
    const float *from = cuda->workspace;
    uint16_t *to = (uint16_t *)cuda->workspace + 2 * COUNT;
    CT_CUDA_TRY(err, ct_launch_narrow(main, COUNT, from, to)); /* a recording begins with it */
    CT_CUDA_TRY(err, cudaMemsetAsync(cuda->workspace, 0, COUNT * sizeof(*from), cuda->stream));
    for (int i = 1; i < CHAIN; i++) {
        CT_CUDA_TRY(err, ct_launch_narrow(main, COUNT, from, to));
    }
    int rc = ct_cuda_fork_updates(&cuda->base, false, err);
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, ct_launch_narrow(beside, COUNT, from, to + COUNT));
    rc = ct_cuda_join_updates(&cuda->base, err);
    if (rc != 0) {
        return rc;
    }
    CT_CUDA_TRY(err, ct_launch_narrow(main, COUNT, from, to));
    return 0;
}

/* What cannot be timed cannot be used either. Without memory on the host nothing goes on. */
static int time_chain(struct ct_cuda *cuda, bool early, float *us, bool *timed, struct ct_err *err)
{
    struct ct_err reason = {0};
    cuda->early = early;
    int rc = ct_cuda_time_recorded(cuda, run_chain, NULL, RUNS, us, &reason);
    cuda->early = false;
    *timed = rc == 0;
    return rc == CT_ENOMEM ? ct_err_set(err, rc, "%s", reason.text) : 0;
}

int ct_cuda_prepare_record(struct ct_device *dev, struct ct_err *err)
{
    struct ct_cuda *cuda = ct_cuda_of(dev);
    bool can, timed = false;
    if (cuda->capability < NEEDED_CAPABILITY) {
        return 0;
    }
    CT_CUDA_TRY(err, cudaMemsetAsync(cuda->workspace, 0, COUNT * sizeof(float), cuda->stream));
    int rc = time_chain(cuda, true, &cuda->early_us, &can, err);
    if (rc == 0 && can) {
        rc = time_chain(cuda, false, &cuda->in_turn_us, &timed, err);
    }
    cuda->recorded_nodes = 0;
    cuda->early = rc == 0 && timed && cuda->early_us < cuda->in_turn_us;
    return rc;
}

int ct_cuda_early_explain(const struct ct_cuda *cuda, struct ct_buf *to)
{
    return ct_buf_printf(to,
                         "{\"plan\": \"launch\", \"early\": %s, \"early_us\": %.3f, "
                         "\"in_turn_us\": %.3f}\n",
                         cuda->early ? "true" : "false", (double)cuda->early_us,
                         (double)cuda->in_turn_us);
}
