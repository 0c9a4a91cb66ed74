/* SPDX-License-Identifier: Apache-2.0
 *
 * What the matrices of a product are in cuBLASLt's words.
 */
#ifndef CT_KERNELS_CUDA_GEMM_SHAPE_H
#define CT_KERNELS_CUDA_GEMM_SHAPE_H

#include "kernels/cuda/gemm_plan.h"

struct ct_gemm_shape {
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    size_t lda, ldb, ldd, a_cols, b_cols, d_cols;
    size_t a_step, b_step, d_step; /* numbers from one part's to the next one's; 0 = not cut */
    cudaDataType_t a, b, result;
};

struct ct_gemm_shape ct_gemm_shape_of(const struct ct_gemm_key *key);
/* The operands of part number `part`, where `all` are those of a cut batch. */
struct ct_gemm_operands ct_gemm_part_of(const struct ct_gemm_shape *shape,
                                        const struct ct_gemm_operands *all, size_t part);

#endif
