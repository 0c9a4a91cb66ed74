/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt counts columns first and ours are rows, so each matrix is passed as its transpose and
 * the operands of a product change places.
 */
#include "kernels/cuda/gemm_shape.h"

static cublasLtEpilogue_t epilogue_of(enum ct_gemm_product product)
{
    switch (product) {
    case CT_PRODUCT_Y_BIAS:
        return CUBLASLT_EPILOGUE_BIAS;
    case CT_PRODUCT_Y_RELU:
        return CUBLASLT_EPILOGUE_RELU_BIAS;
    case CT_PRODUCT_Y_RELU_BITS:
        return CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
    case CT_PRODUCT_DW_DB:
        return CUBLASLT_EPILOGUE_BGRADB;
    case CT_PRODUCT_DX_BITS:
        return CUBLASLT_EPILOGUE_DRELU;
    case CT_PRODUCT_Y:
    case CT_PRODUCT_DW:
    case CT_PRODUCT_DX:
        break;
    }
    return CUBLASLT_EPILOGUE_DEFAULT;
}

/* On sm_90 cuBLASLt multiplies 8-bit numbers in one layout only: the numbers that are multiplied
 * and added lie one behind the other in both factors. Those of y do; those of gradients were
 * transposed where they do not (fp8_copies.c). */
static void set_fp8(struct ct_gemm_shape *s, const struct ct_gemm_key *k)
{
    s->a = s->b = CUDA_R_8F_E4M3;
    switch (k->product) {
    case CT_PRODUCT_Y:
    case CT_PRODUCT_Y_BIAS:
    case CT_PRODUCT_Y_RELU:
    case CT_PRODUCT_Y_RELU_BITS:
        return;
    case CT_PRODUCT_DW:
    case CT_PRODUCT_DW_DB: /* a = x^T, b = dy^T */
        s->lda = s->ldb = k->batch;
        s->a_cols = k->in, s->b_cols = k->out;
        break;
    case CT_PRODUCT_DX:
    case CT_PRODUCT_DX_BITS: /* a = w^T, b = dy */
        s->lda = s->ldb = k->out;
        s->a_cols = k->in, s->b_cols = k->batch;
        break;
    }
    s->ta = CUBLAS_OP_T, s->tb = CUBLAS_OP_N;
    s->b = CUDA_R_8F_E5M2;
}

struct ct_gemm_shape ct_gemm_shape_of(const struct ct_gemm_key *k)
{
    bool narrow = ct_precision_narrow(k->precision);
    cudaDataType_t number = narrow ? CUDA_R_16BF : CUDA_R_32F;
    struct ct_gemm_shape s = {
        .ta = CUBLAS_OP_N,
        .tb = CUBLAS_OP_N,
        .epilogue = epilogue_of(k->product),
        .a = number,
        .b = number,
        .result = k->wide ? CUDA_R_32F : number,
    };
    switch (k->product) {
    case CT_PRODUCT_Y:
    case CT_PRODUCT_Y_BIAS:
    case CT_PRODUCT_Y_RELU:
    case CT_PRODUCT_Y_RELU_BITS: /* a = w, b = x */
        s.ta = CUBLAS_OP_T;
        s.lda = k->in, s.ldb = k->in, s.ldd = k->out;
        s.a_cols = k->out, s.b_cols = k->batch, s.d_cols = k->batch;
        break;
    case CT_PRODUCT_DW:
    case CT_PRODUCT_DW_DB: /* a = x, b = dy */
        s.tb = CUBLAS_OP_T;
        s.lda = k->in, s.ldb = k->out, s.ldd = k->in;
        s.a_cols = k->batch, s.b_cols = k->batch, s.d_cols = k->out;
        break;
    case CT_PRODUCT_DX:
    case CT_PRODUCT_DX_BITS: /* a = w, b = dy */
        s.lda = k->in, s.ldb = k->out, s.ldd = k->in;
        s.a_cols = k->out, s.b_cols = k->batch, s.d_cols = k->batch;
        break;
    }
    if (k->precision == CT_PRECISION_FP8) {
        set_fp8(&s, k);
    }
    if (k->of > 0) {
        bool weights = k->product == CT_PRODUCT_DW;
        bool forward = s.ta == CUBLAS_OP_T;
        size_t in = k->batch * k->in, out = k->batch * k->out;
        s.a_step = weights ? in : 0; /* the same weights for all */
        s.b_step = forward ? in : out;
        s.d_step = weights ? k->slot : forward ? out : in;
    }
    return s;
}

/* 8-bit factors have no steps: such a batch is never cut. */
static size_t bytes_of(cudaDataType_t type)
{
    return type == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
}

struct ct_gemm_operands ct_gemm_part_of(const struct ct_gemm_shape *s,
                                        const struct ct_gemm_operands *all, size_t part)
{
    struct ct_gemm_operands o = *all;
    o.a = (const char *)o.a + part * s->a_step * bytes_of(s->a);
    o.b = (const char *)o.b + part * s->b_step * bytes_of(s->b);
    o.d = (char *)o.d + part * s->d_step * bytes_of(s->result);
    return o;
}
