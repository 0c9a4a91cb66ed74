/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies of a bfloat16 matrix in 8 bits, with one scale for all of it. One pass reads the matrix
 * once and writes the copy, its transpose, and the largest number that it saw:
 *
 *     from [rows, cols] --+--> to         [rows, cols]
 *                         +--> transposed [cols, rows]
 *                         +--> the history of largest numbers
 *
 * The scale comes from the largest numbers of the launches before this one, since that of this one
 * is only known at the end (delayed scaling). The last block to finish puts this launch's largest
 * number into the history. Numbers beyond the scale saturate. What is not finite becomes NaN in the
 * copies, so that it shows in every product, and does not get into the history.
 */
#include "kernels/cuda/number.cuh"

#include <cfloat>
#include <cuda_fp8.h>

#define THREADS 256u
#define WARP 32u
#define MOST_BLOCKS 1024u /* of what ends in an atomic operation each: enough to fill any GPU */
#define PACK (CT_WIDEST / sizeof(__nv_bfloat16))
#define INFINITE 0x7f800000u /* an infinity's bits; those of a NaN are more */
/* Room for what grows from one launch to the next. It costs no precision but that of the smallest
 * numbers. */
#define MARGIN 2.0f

typedef __nv_fp8_e4m3 e4m3;
typedef __nv_fp8_e5m2 e5m2;

__device__ inline float widest(e4m3)
{
    return 448.0f;
}

__device__ inline float widest(e5m2)
{
    return 57344.0f;
}

/* The bits of its size, or 0 if it is not finite. Floats that are not negative are ordered as their
 * bits are, so an integer's atomic finds the largest, the same one in any order. */
__device__ inline unsigned size_of(float v)
{
    unsigned bits = __float_as_uint(fabsf(v));
    return bits < INFINITE ? bits : 0;
}

/* Adds the largest number of each thread to *to. */
__device__ void add_largest(unsigned most, unsigned *to)
{
    __shared__ unsigned of_warp[THREADS / WARP];
    most = __reduce_max_sync(0xffffffffu, most);
    if (threadIdx.x % WARP == 0) {
        of_warp[threadIdx.x / WARP] = most;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (unsigned w = 1; w < THREADS / WARP; w++) {
            most = max(most, of_warp[w]);
        }
        atomicMax(to, most);
    }
}

/* ---- the first scale ------------------------------------------------------------------------- */

__global__ void seed_kernel(size_t packs, const __nv_bfloat16 *from, struct ct_fp8_scale *scale)
{
    ct_begin();
    unsigned most = 0;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs; i += step) {
        ct_pack<__nv_bfloat16, PACK> some = ct_load<PACK>(from, i * PACK);
        for (unsigned k = 0; k < PACK; k++) {
            most = max(most, size_of(ct_get(some.v, k)));
        }
    }
    add_largest(most, &scale->largest[0]);
}

cudaError_t ct_launch_fp8_seed(struct ct_launch_on on, size_t count, const uint16_t *from,
                               struct ct_fp8_scale *scale)
{
    cudaError_t status = cudaMemsetAsync(scale, 0, sizeof(*scale), on.stream);
    if (status != cudaSuccess) {
        return status;
    }
    unsigned blocks = ct_blocks(count / PACK, THREADS);
    blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS;
    return ct_launch<seed_kernel>(on, blocks, THREADS, count / PACK, (const __nv_bfloat16 *)from,
                                  scale);
}

/* ---- both copies ----------------------------------------------------------------------------- */

/* A tile of the matrix per block and turn: each thread reads QUAD rows of PACK numbers, of which it
 * makes a word of each column for the transpose. */
#define QUAD 4u
#define TILE_COLS 64u
#define TILE_ROWS (THREADS / (TILE_COLS / PACK) * QUAD)
#define WORDS (TILE_ROWS / QUAD) /* of a column in the tile */

template <typename T> struct matrix8 {
    size_t rows, cols, tiles, tiles_across;
    const __nv_bfloat16 *from;
    T *to, *transposed; /* either may be NULL */
};

__device__ float scale_of(const struct ct_fp8_scale *scale, float widest)
{
    unsigned most = 0;
    for (unsigned i = 0; i < CT_FP8_HISTORY; i++) {
        most = max(most, scale->largest[i]);
    }
    float own = __uint_as_float(most) * (MARGIN / widest);
    if (most == 0) { /* zeros alone say nothing: the scale stays */
        return scale->scale > 0.0f ? scale->scale : 1.0f;
    }
    return own < FLT_MIN ? FLT_MIN : own; /* what is divided by it must stay finite */
}

/* The number's 8 bits. */
template <typename T> __device__ unsigned narrowed(float v, float by)
{
    T made = T(__float_as_uint(fabsf(v)) < INFINITE ? v * by : NAN); /* saturates */
    return made.__x;
}

/* Returns the largest number of what this thread reads. words[k] are the QUAD numbers of column k.
 */
template <typename T>
__device__ unsigned read_rows(const struct matrix8<T> &m, size_t row, size_t col, float by,
                              unsigned words[PACK])
{
    unsigned most = 0;
    for (unsigned r = 0; r < QUAD; r++) {
        size_t at = (row + r) * m.cols + col;
        ct_pack<__nv_bfloat16, PACK> wide = ct_load<PACK>(m.from, at);
        ct_pack<uint8_t, PACK> made;
        for (unsigned k = 0; k < PACK; k++) {
            float v = ct_get(wide.v, k);
            most = max(most, size_of(v));
            unsigned bits = narrowed<T>(v, by);
            made.v[k] = (uint8_t)bits;
            words[k] = (r == 0 ? 0 : words[k]) | bits << 8 * r;
        }
        if (m.to != NULL) {
            ct_store((uint8_t *)m.to, at, made);
        }
    }
    return most;
}

/* What the tile has of the transpose, in pieces of 16 numbers. */
template <typename T>
__device__ void write_columns(const struct matrix8<T> &m, size_t row, size_t col,
                              const unsigned (*tile)[WORDS + 1])
{
    const unsigned pieces = TILE_ROWS / 16;
    for (unsigned i = threadIdx.x; i < TILE_COLS * pieces; i += THREADS) {
        unsigned c = i / pieces, piece = i % pieces;
        if (col + c < m.cols && row + piece * 16 < m.rows) {
            ct_pack<unsigned, 4> four;
            for (unsigned k = 0; k < 4; k++) {
                four.v[k] = tile[c][piece * 4 + k];
            }
            uint8_t *to = (uint8_t *)m.transposed + (col + c) * m.rows + row + piece * 16;
            ct_store((unsigned *)to, 0, four);
        }
    }
}

/* The history's oldest entry makes place for this launch's largest number. */
__device__ void end_launch(struct ct_fp8_scale *scale, float own)
{
    __threadfence();
    if (atomicAdd(&scale->done, 1u) + 1 < gridDim.x) {
        return;
    }
    __threadfence();
    unsigned next = scale->next;
    scale->scale = own;
    scale->largest[next] = atomicMax(&scale->most, 0u);
    scale->next = (next + 1) % CT_FP8_HISTORY;
    scale->most = 0;
    scale->done = 0;
}

template <typename T> __global__ void fp8_kernel(struct matrix8<T> m, struct ct_fp8_scale *scale)
{
    ct_begin();
    /* A column's words begin one bank further than those of the column before. */
    __shared__ unsigned tile[TILE_COLS][WORDS + 1];
    const unsigned across = TILE_COLS / PACK;
    float own = scale_of(scale, widest(T()));
    float inverse = 1.0f / own; /* a division for each number takes longer than reading it */
    unsigned most = 0, quad = threadIdx.x / across, pack = threadIdx.x % across;
    for (size_t t = blockIdx.x; t < m.tiles; t += gridDim.x) {
        size_t row = t / m.tiles_across * TILE_ROWS, col = t % m.tiles_across * TILE_COLS;
        if (row + quad * QUAD < m.rows && col + pack * PACK < m.cols) {
            unsigned words[PACK];
            most = max(most, read_rows(m, row + quad * QUAD, col + pack * PACK, inverse, words));
            for (unsigned k = 0; m.transposed != NULL && k < PACK; k++) {
                tile[pack * PACK + k][quad] = words[k];
            }
        }
        if (m.transposed != NULL) {
            __syncthreads();
            write_columns(m, row, col, tile);
            __syncthreads(); /* the next tile takes its place */
        }
    }
    add_largest(most, &scale->most);
    if (threadIdx.x == 0) {
        end_launch(scale, own);
    }
}

template <typename T>
static cudaError_t launch(struct ct_launch_on on, const struct ct_fp8_copy *op)
{
    size_t across = (op->cols + TILE_COLS - 1) / TILE_COLS;
    size_t tiles = (op->rows + TILE_ROWS - 1) / TILE_ROWS * across;
    struct matrix8<T> m;
    m.rows = op->rows;
    m.cols = op->cols;
    m.tiles = tiles;
    m.tiles_across = across;
    m.from = (const __nv_bfloat16 *)op->from;
    m.to = (T *)op->to;
    m.transposed = (T *)op->transposed;
    unsigned blocks = (unsigned)(tiles < MOST_BLOCKS ? tiles : MOST_BLOCKS);
    return ct_launch<fp8_kernel<T>>(on, blocks, THREADS, m, op->scale);
}

cudaError_t ct_launch_fp8(struct ct_launch_on on, const struct ct_fp8_copy *op)
{
    return op->type == CT_E5M2 ? launch<e5m2>(on, op) : launch<e4m3>(on, op);
}
