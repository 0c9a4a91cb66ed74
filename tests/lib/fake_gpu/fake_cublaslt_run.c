/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the products of the fake GPU's cuBLASLt.
 */
#include "tests/lib/fake_gpu/fake_cublaslt.h"
#include "tests/lib/fake_gpu/fake_number.h"

#include <stdlib.h>
#include <string.h>

static double get(const void *p, cudaDataType type, size_t i)
{
    if (type == CUDA_R_32F) {
        return (double)((const float *)p)[i];
    }
    if (type == CUDA_R_16BF) {
        return (double)from_bf16(((const uint16_t *)p)[i]);
    }
    uint8_t v = ((const uint8_t *)p)[i];
    return (double)(type == CUDA_R_8F_E5M2 ? from_e5m2(v) : from_e4m3(v));
}

static void put(void *p, cudaDataType type, size_t i, double v)
{
    if (type == CUDA_R_32F) {
        ((float *)p)[i] = (float)v;
    } else {
        ((uint16_t *)p)[i] = to_bf16((float)v);
    }
}

/* Returns element [row, col] of a factor after its transposition. */
static double factor(const void *p, const struct fake_layout *l, cublasOperation_t t, size_t row,
                     size_t col)
{
    return get(p, l->type, t == CUBLAS_OP_N ? col * l->ld + row : row * l->ld + col);
}

static double finish(const struct fake_product *p, size_t row, size_t col, double v)
{
    const struct fake_desc *d = &p->desc;
    cudaDataType bias_type = d->has_bias_type ? d->bias_type : p->ld.type;
    uint8_t *bits = d->aux != NULL ? (uint8_t *)d->aux + (col * (size_t)d->aux_ld + row) / 8 : NULL;
    uint8_t bit = (uint8_t)(1 << row % 8);
    switch ((int)d->epilogue) {
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
        v += get(d->bias, bias_type, row);
        *bits = (uint8_t)(v >= 0 ? *bits | bit : *bits & ~bit);
        return v < 0 ? 0 : v;
    case CUBLASLT_EPILOGUE_RELU_BIAS:
        v += get(d->bias, bias_type, row);
        return v < 0 ? 0 : v;
    case CUBLASLT_EPILOGUE_BIAS:
        return v + get(d->bias, bias_type, row);
    case CUBLASLT_EPILOGUE_DRELU:
        return *bits & bit ? v : 0;
    default:
        return v;
    }
}

/* Rows whose sums are computed at the same time: few enough for registers. */
#define SIDE_BY_SIDE ((size_t)8)

/* Returns the numbers of a factor, with element [j, i] at i * width + j and 0 beyond `cols`. Each
 * number is converted once, and not once for each product that it is in, which saves most of the
 * time. */
static float *unpack(const void *p, const struct fake_layout *l, cublasOperation_t t, size_t rows,
                     size_t cols, size_t *width)
{
    *width = (cols + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE * SIDE_BY_SIDE;
    float *numbers = calloc(rows * *width, sizeof *numbers);
    if (numbers == NULL) {
        abort();
    }
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < cols; j++) {
            numbers[i * *width + j] = (float)factor(p, l, t, j, i);
        }
    }
    return numbers;
}

/* Adds in float, so that the order of the additions changes the bits. Each lane has a sum of its
 * own; these are added at the end. */
static void dots(const float *a, size_t step, const float *b, size_t k, size_t lanes, float *sums)
{
    for (size_t lane = 0; lane < lanes; lane++) {
        float part[SIDE_BY_SIDE] = {0};
        for (size_t i = lane; i < k; i += lanes) {
            for (size_t r = 0; r < SIDE_BY_SIDE; r++) {
                part[r] += a[i * step + r] * b[i];
            }
        }
        for (size_t r = 0; r < SIDE_BY_SIDE; r++) {
            sums[r] = lane == 0 ? part[r] : sums[r] + part[r];
        }
    }
}

static void run_one(const struct fake_product *p)
{
    const struct fake_desc *d = &p->desc;
    size_t k = d->ta == CUBLAS_OP_N ? p->la.cols : p->la.rows, wide_a, wide_b;
    double scale = p->la.type == CUDA_R_8F_E4M3 ? (double)*d->a_scale * (double)*d->b_scale : 1;
    float *a = unpack(p->a, &p->la, d->ta, k, p->ld.rows, &wide_a);
    float *b = unpack(p->b, &p->lb, d->tb, p->ld.cols, k, &wide_b);
    for (size_t col = 0; col < p->ld.cols; col++) {
        for (size_t row = 0; row < p->ld.rows; row += SIDE_BY_SIDE) {
            float sums[SIDE_BY_SIDE];
            dots(a + row, wide_a, b + col * wide_b, k, p->lanes, sums);
            for (size_t r = 0; r < SIDE_BY_SIDE && row + r < p->ld.rows; r++) {
                put(p->d, p->ld.type, col * p->ld.ld + row + r,
                    finish(p, row + r, col, (double)sums[r] * scale));
            }
        }
    }
    for (size_t col = 0; d->epilogue == CUBLASLT_EPILOGUE_BGRADB && col < p->ld.cols; col++) {
        double sum = 0;
        for (size_t i = 0; i < k; i++) {
            sum += (double)b[col * wide_b + i];
        }
        put(d->bias, d->bias_type, col, sum);
    }
    free(a);
    free(b);
}

static size_t bytes_of(cudaDataType type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1;
}

/* Was this product computed just before, with nothing run since? A product that is timed runs
 * several times in a row, with the same result. */
static bool is_done(const struct fake_product *p)
{
    static struct fake_product last;
    static uint64_t last_done;
    bool same = fake_done == last_done + 1 && memcmp(p, &last, sizeof last) == 0;
    last = *p;
    last_done = fake_done;
    return same && p->d != p->a && p->d != p->b;
}

void fake_run_product(const void *data)
{
    struct fake_product p = *(const struct fake_product *)data;
    if (is_done(data)) {
        return;
    }
    for (int32_t i = 0; i < p.ld.count; i++) {
        run_one(&p);
        p.a = (const char *)p.a + (size_t)p.la.step * bytes_of(p.la.type);
        p.b = (const char *)p.b + (size_t)p.lb.step * bytes_of(p.lb.type);
        p.d = (char *)p.d + (size_t)p.ld.step * bytes_of(p.ld.type);
    }
}
