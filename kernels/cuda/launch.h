/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the .cu files and the host code of the plug-in, which is plain C. Each
 * function launches a kernel of our own. Tests link the host code with the same kernels, compiled
 * for the CPU.
 *
 * The functions neither wait nor allocate, and they check nothing: sizes must be above zero, and
 * pointers must be device memory. A `void *` points to floats, or to bfloat16 numbers where
 * ct_precision_narrow(p). The result says whether the launch succeeded.
 */
#ifndef CT_KERNELS_CUDA_LAUNCH_H
#define CT_KERNELS_CUDA_LAUNCH_H

#include "kernels/device/device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a kernel is launched. If `early`, its blocks may come to the device before the work in
 * front of it on the stream has ended, where they wait for that. This saves a part of the time
 * between two kernels. It takes compute capability 9.0. */
struct ct_launch_on {
    cudaStream_t stream;
    bool early;
};

/* The most blocks of a loss kernel: enough to fill any GPU. */
#define CT_LOSS_BLOCKS 1024u

/* The sums of all blocks. The last block to finish adds them to the totals. */
struct ct_loss_sums {
    double part[CT_LOSS_BLOCKS][2];
    unsigned done;     /* number of blocks that have finished; 0 between launches */
    double unasked[2]; /* totals that nobody reads, of losses that are only timed */
};

/* Launches whose largest numbers decide the scale of the next one. */
#define CT_FP8_HISTORY 16u

/* Of one tensor, in device memory, zeroed at first. */
struct ct_fp8_scale {
    float scale; /* the last copies' numbers are to be multiplied by it; cuBLASLt reads it */
    unsigned largest[CT_FP8_HISTORY]; /* bits of floats; 0 = not there yet */
    unsigned next;                    /* entry of `largest` that the next launch overwrites */
    unsigned most, done;              /* of the running launch; 0 between launches */
};

/* e4m3 has 3 bits of fraction and goes up to 448, e5m2 has 2 and goes up to 57344. */
enum ct_fp8_type { CT_E4M3, CT_E5M2 };

/* to[r, c] = transposed[c, r] = from[r, c] / scale->scale in 8 bits, saturated; NaN where `from` is
 * not finite. The scale is twice the largest number of the history, divided by the largest number
 * of the type, but no smaller than the smallest normal float. While the history has only zeros, it
 * stays as it was, 1 at first. The sizes are multiples of 16, the arrays aligned to 16 bytes. */
struct ct_fp8_copy {
    size_t rows, cols;
    enum ct_fp8_type type;
    const uint16_t *from;     /* [rows, cols], bfloat16 */
    uint8_t *to, *transposed; /* NULL = not wanted */
    struct ct_fp8_scale *scale;
};

/* Is there machine code, or PTX, for the current device? Launches nothing. */
cudaError_t ct_launch_check(void);
/* The samples are those of `index`, which is device memory, or those of op->cursor if `index` is
 * NULL. op->index is not read. */
cudaError_t ct_launch_gather(struct ct_launch_on on, enum ct_precision p,
                             const struct ct_gather *op, const uint32_t *index);
/* Adds up the columns of each part of a matrix: sums[part * step + c] = the sum over r of
 * m[part * rows + r, c]. The bits of a part's sum depend on the numbers of that part alone. */
cudaError_t ct_launch_column_sums(struct ct_launch_on on, enum ct_precision p, size_t parts,
                                  size_t rows, size_t cols, const void *m, size_t step,
                                  float *sums);
cudaError_t ct_launch_tree_sum(struct ct_launch_on on, const struct ct_tree_sum *op);
/* y = act(y + b) in place. */
cudaError_t ct_launch_add_bias(struct ct_launch_on on, enum ct_precision p,
                               const struct ct_linear *op);
/* x[i] = 0 where mask[i] <= 0. */
cudaError_t ct_launch_mask(struct ct_launch_on on, enum ct_precision p, size_t count, void *x,
                           const void *mask);
/* `sums` is device memory that is zeroed once. Launches that may run at the same time need one
 * each. */
cudaError_t ct_launch_loss(struct ct_launch_on on, enum ct_precision p, const struct ct_loss *op,
                           struct ct_loss_sums *sums);
/* Computes op->linear, op->loss and op->grad.dx; if `whole`, also op->grad.dw and db, which takes
 * one block of the GPU. There are at most 32 classes, and op->grad.mask is NULL or op->linear.x. */
cudaError_t ct_launch_head(struct ct_launch_on on, enum ct_precision p, const struct ct_head *op,
                           bool whole, struct ct_loss_sums *sums);
/* `scalars` is used if op->cursor is NULL. */
cudaError_t ct_launch_sgd(struct ct_launch_on on, const struct ct_sgd *op,
                          struct ct_update_scalars scalars);
cudaError_t ct_launch_adamw(struct ct_launch_on on, const struct ct_adamw *op,
                            struct ct_update_scalars scalars);
cudaError_t ct_launch_narrow(struct ct_launch_on on, size_t count, const float *from, uint16_t *to);
cudaError_t ct_launch_advance(struct ct_launch_on on, uint64_t *now, uint64_t steps);
/* Copies in 8 bits. From zeroed memory, or after ct_launch_fp8_seed(), `scale` is kept by the
 * launches, which must not run at one time. */
cudaError_t ct_launch_fp8(struct ct_launch_on on, const struct ct_fp8_copy *op);
/* Makes the first scale: the history is the largest of these numbers alone. `count` is a multiple
 * of 8, `from` is aligned to 16 bytes. */
cudaError_t ct_launch_fp8_seed(struct ct_launch_on on, size_t count, const uint16_t *from,
                               struct ct_fp8_scale *scale);

#ifdef __cplusplus
}
#endif

#endif
