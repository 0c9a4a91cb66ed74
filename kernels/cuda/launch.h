/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of our own, one launch each: all that the .cu files show to the plug-in's host code,
 * which is plain C. Tests link it with the same kernels, run by the processor.
 *
 * Nothing here waits, allocates or checks: sizes are above zero, pointers are device memory. What
 * is `void *` is float, or bfloat16 where ct_precision_narrow(p). The result is the launch's.
 */
#ifndef CT_KERNELS_CUDA_LAUNCH_H
#define CT_KERNELS_CUDA_LAUNCH_H

#include "kernels/device/device.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of a loss: enough to fill any GPU. */
#define CT_LOSS_BLOCKS 1024u

/* What each block has added up, for the last of them to add to the totals. */
struct ct_loss_sums {
    double part[CT_LOSS_BLOCKS][2];
    unsigned done;     /* blocks that are; 0 between launches */
    double unasked[2]; /* totals of losses that nobody wants to know */
};

/* Is there machine code, or PTX, for the current device? Launches nothing. */
cudaError_t ct_launch_check(void);
/* `index` in place of op->index; where op->course is there, it counts and index is not read. */
cudaError_t ct_launch_gather(cudaStream_t stream, enum ct_precision p, const struct ct_gather *op,
                             const uint32_t *index);
/* Of parts of so many rows, one behind the other: sums[part * step + c] = the sum over r of
 * m[part * rows + r, c]. What a part's sum is depends on nothing but its numbers. */
cudaError_t ct_launch_column_sums(cudaStream_t stream, enum ct_precision p, size_t parts,
                                  size_t rows, size_t cols, const void *m, size_t step,
                                  float *sums);
cudaError_t ct_launch_tree_sum(cudaStream_t stream, const struct ct_tree_sum *op);
/* y = act(y + b) in place. */
cudaError_t ct_launch_add_bias(cudaStream_t stream, enum ct_precision p,
                               const struct ct_linear *op);
/* x[i] = 0 where mask[i] <= 0. */
cudaError_t ct_launch_mask(cudaStream_t stream, enum ct_precision p, size_t count, void *x,
                           const void *mask);
/* `sums` is device memory of zeros at first; of launches that may run at one time, each has its
 * own.
 */
cudaError_t ct_launch_loss(cudaStream_t stream, enum ct_precision p, const struct ct_loss *op,
                           struct ct_loss_sums *sums);
/* linear, loss, and grad.dx; at most 32 classes, grad.mask is NULL or linear.x. */
cudaError_t ct_launch_head(cudaStream_t stream, enum ct_precision p, const struct ct_head *op,
                           struct ct_loss_sums *sums);
/* `pace` counts where op->course is NULL. */
cudaError_t ct_launch_sgd(cudaStream_t stream, const struct ct_sgd *op, struct ct_pace pace);
cudaError_t ct_launch_adamw(cudaStream_t stream, const struct ct_adamw *op, struct ct_pace pace);
cudaError_t ct_launch_narrow(cudaStream_t stream, size_t count, const float *from, uint16_t *to);
cudaError_t ct_launch_advance(cudaStream_t stream, uint64_t *now, uint64_t steps);
/* to[i] = from[i] * (1 / *scale) in e4m3, saturated, where *scale = largest |from[i]| / 448, but no
 * smaller than the smallest normal number, or 1 when all are zero. `from` is bfloat16; `scale` is
 * written, and four bytes behind it are scratch. */
cudaError_t ct_launch_fp8(cudaStream_t stream, size_t count, const uint16_t *from, uint8_t *to,
                          float *scale);

#ifdef __cplusplus
}
#endif

#endif
