/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the fake GPU's cuBLASLt share: matrices, operations and products.
 */
#ifndef CT_TESTS_LIB_FAKE_GPU_FAKE_CUBLASLT_H
#define CT_TESTS_LIB_FAKE_GPU_FAKE_CUBLASLT_H

#include "tests/lib/fake_gpu/fake_gpu_engine.h"

#include <cublasLt.h>

/* `count` matrices, `step` numbers apart. */
struct fake_layout {
    cudaDataType type;
    size_t rows, cols, ld;
    int32_t count;
    int64_t step;
};

struct fake_desc {
    cublasComputeType_t compute;
    cublasOperation_t ta, tb;
    cublasLtEpilogue_t epilogue;
    void *bias, *aux;
    cudaDataType bias_type;
    bool has_bias_type;
    int64_t aux_ld;
    const float *a_scale, *b_scale;
    int8_t fast; /* coarse sums of 8-bit products */
};

#define FAKE_LANES_MAX 16

/* `lanes` is the number of partial sums of a dot product, and so the order in which it is added. */
struct fake_product {
    struct fake_desc desc;
    struct fake_layout la, lb, ld;
    const void *a, *b;
    void *d;
    size_t lanes;
};

/* Computes a struct fake_product; to be queued. */
void fake_run_product(const void *data);

#endif
