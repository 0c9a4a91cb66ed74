/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels over the rows of a matrix: gathering samples, sums of columns (the gradient of the bias),
 * adding the bias, and the mask of a ReLU.
 */
#include "kernels/cuda/number.cuh"

#define WARP 32u
#define ALL_LANES 0xffffffffu
#define THREADS 256u

/* ---- gather: one block per sample ----------------------------------------------------------- */

#define PIXELS 4u /* that a thread converts at a time: the floats of the widest access */

struct gather {
    struct ct_gather op;
    struct ct_step_cursor cursor;
    const uint32_t *index;
    float scale, shift;
    bool packed;
};

template <unsigned N, typename T>
__device__ void pixels(const struct gather &g, const uint8_t *from, T *to, size_t i)
{
    ct_pack<uint8_t, N> image = ct_load<N>(from, i);
    ct_pack<T, N> x;
    for (unsigned k = 0; k < N; k++) {
        ct_put(x.v, k, (float)image.v[k] * g.scale + g.shift);
    }
    ct_store(to, i, x);
}

template <typename T> __global__ void gather_kernel(struct gather g)
{
    ct_begin();
    const uint32_t *index = g.index;
    size_t b = blockIdx.x, features = g.op.features;
    if (index == NULL) {
        const struct ct_step_cursor &cursor = g.cursor;
        index = cursor.order + (*cursor.now + cursor.ahead) * cursor.batch + cursor.begin;
    }
    const uint8_t *from = g.op.images + (size_t)index[b] * features;
    T *to = (T *)g.op.x + b * features;
    size_t packs = g.packed ? features / PIXELS : 0;
    for (size_t i = threadIdx.x; i < packs; i += blockDim.x) {
        pixels<PIXELS>(g, from, to, i * PIXELS);
    }
    for (size_t i = packs * PIXELS + threadIdx.x; i < features; i += blockDim.x) {
        pixels<1>(g, from, to, i);
    }
    if (threadIdx.x == 0) {
        g.op.y[b] = g.op.labels[index[b]];
    }
}

cudaError_t ct_launch_gather(struct ct_launch_on on, enum ct_precision p,
                             const struct ct_gather *op, const uint32_t *index)
{
    struct gather g = {
        .op = *op,
        .cursor = op->cursor != NULL ? *op->cursor : ct_step_cursor{},
        .index = index,
        .scale = (float)(1.0 / (255.0 * (double)op->stddev)),
        .shift = (float)(-(double)op->mean / (double)op->stddev),
        /* Then each row begins at an address where a pack may begin. */
        .packed = op->features % PIXELS == 0 && ct_packs<PIXELS>(op->images),
    };
    if (ct_precision_narrow(p)) {
        g.packed = g.packed && ct_packs<PIXELS>((__nv_bfloat16 *)op->x);
        return ct_launch<gather_kernel<__nv_bfloat16>>(on, (unsigned)op->batch, THREADS, g);
    }
    g.packed = g.packed && ct_packs<PIXELS>((float *)op->x);
    return ct_launch<gather_kernel<float>>(on, (unsigned)op->batch, THREADS, g);
}

/* ---- column sums: one block for 64 columns of a part, whose threads divide the rows -----------
 */

#define SUM_WARPS 16u
#define SUM_COLUMNS 64u /* 128 bytes of a row in bfloat16: whole sectors of memory */
#define SUM_ROWS 8u     /* that a thread loads before it adds them, to hide the latency of memory */

/* Returns N numbers of a row from `col` on, and zeros beyond the end of the row. */
template <unsigned N, typename T>
__device__ ct_pack<T, N> load_columns(const T *row, size_t col, size_t cols, bool packed)
{
    if (packed) {
        return ct_load<N>(row, col);
    }
    ct_pack<T, N> some;
    for (unsigned k = 0; k < N; k++) {
        ct_put(some.v, k, col + k < cols ? ct_get(row, col + k) : 0.0f);
    }
    return some;
}

template <unsigned N, typename T>
__device__ void add_columns(float sum[N], const ct_pack<T, N> &some)
{
#pragma unroll
    for (unsigned k = 0; k < N; k++) {
        sum[k] += ct_get(some.v, k);
    }
}

/* Adds up the rows first, first + step, ... in this order, whether packed or not. */
template <unsigned N, typename T>
__device__ void sum_rows(float sum[N], const T *m, size_t first, size_t step, size_t rows,
                         size_t col, size_t cols, bool packed)
{
    size_t r = first;
    for (; r + (SUM_ROWS - 1) * step < rows; r += SUM_ROWS * step) {
        ct_pack<T, N> some[SUM_ROWS];
#pragma unroll
        for (unsigned i = 0; i < SUM_ROWS; i++) {
            some[i] = load_columns<N>(m + (r + i * step) * cols, col, cols, packed);
        }
#pragma unroll
        for (unsigned i = 0; i < SUM_ROWS; i++) {
            add_columns<N>(sum, some[i]);
        }
    }
    for (; r < rows; r += step) {
        add_columns<N>(sum, load_columns<N>(m + r * cols, col, cols, packed));
    }
}

/* Without atomics the order of the additions depends only on the number of rows and the type, so a
 * repeated run has the same bits. A group of SUM_COLUMNS / N lanes reads one row, N columns each,
 * and the groups of a warp read different rows. */
template <unsigned N, typename T>
__global__ void __launch_bounds__(WARP *SUM_WARPS, 1)
    column_sums_kernel(size_t rows, size_t cols, const T *m, size_t step, float *sums, bool packed)
{
    ct_begin();
    const unsigned lanes = SUM_COLUMNS / N, rows_of_warp = WARP / lanes;
    __shared__ float shares[SUM_WARPS][SUM_COLUMNS];
    unsigned lane = threadIdx.x % lanes;
    size_t part = blockIdx.y, first_col = (size_t)blockIdx.x * SUM_COLUMNS;
    size_t col = first_col + lane * N;
    float sum[N] = {};
    if (col < cols) {
        sum_rows<N>(sum, m + part * rows * cols, threadIdx.y * rows_of_warp + threadIdx.x / lanes,
                    SUM_WARPS * rows_of_warp, rows, col, cols, packed);
    }
#pragma unroll
    for (unsigned k = 0; k < N; k++) {
        for (unsigned by = lanes; by < WARP; by *= 2) {
            sum[k] += __shfl_xor_sync(ALL_LANES, sum[k], by);
        }
        if (threadIdx.x < lanes) {
            shares[threadIdx.y][lane * N + k] = sum[k];
        }
    }
    __syncthreads();
    unsigned mine = threadIdx.y * WARP + threadIdx.x;
    if (mine < SUM_COLUMNS && first_col + mine < cols) {
        float total = 0.0f;
        for (unsigned w = 0; w < SUM_WARPS; w++) {
            total += shares[w][mine];
        }
        sums[part * step + first_col + mine] = total;
    }
}

template <typename T>
static cudaError_t launch_column_sums(struct ct_launch_on on, size_t parts, size_t rows,
                                      size_t cols, const T *m, size_t step, float *sums)
{
    const unsigned n = CT_WIDEST / sizeof(T);
    bool packed = cols % n == 0 && ct_packs<n>(m);
    dim3 blocks((unsigned)((cols + SUM_COLUMNS - 1) / SUM_COLUMNS), (unsigned)parts);
    dim3 threads(WARP, SUM_WARPS);
    return ct_launch<column_sums_kernel<n, T>>(on, blocks, threads, rows, cols, m, step, sums,
                                               packed);
}

cudaError_t ct_launch_column_sums(struct ct_launch_on on, enum ct_precision p, size_t parts,
                                  size_t rows, size_t cols, const void *m, size_t step, float *sums)
{
    return ct_precision_narrow(p)
               ? launch_column_sums(on, parts, rows, cols, (const __nv_bfloat16 *)m, step, sums)
               : launch_column_sums(on, parts, rows, cols, (const float *)m, step, sums);
}

/* ---- bias ----------------------------------------------------------------------------------- */

template <unsigned N, typename T>
__device__ void add_bias(T *y, const float *b, size_t i, size_t column, bool relu)
{
    ct_pack<T, N> row = ct_load<N>(y, i);
    ct_pack<float, N> bias = ct_load<N>(b, column);
    for (unsigned k = 0; k < N; k++) {
        float v = ct_get(row.v, k) + bias.v[k];
        ct_put(row.v, k, relu && v < 0.0f ? 0.0f : v);
    }
    ct_store(y, i, row);
}

/* Divides in 32 bits if the numbers fit, because a division in 64 bits takes longer than the rest
 * of the kernel. */
__device__ inline size_t column_of(size_t i, size_t count, size_t out)
{
    return count <= UINT32_MAX ? (uint32_t)i % (uint32_t)out : i % out;
}

template <typename T>
__global__ void add_bias_kernel(size_t count, size_t out, T *y, const float *b, bool relu,
                                bool packed)
{
    ct_begin();
    const unsigned n = CT_WIDEST / sizeof(T);
    ct_each<n>(
        count, packed, [=](size_t i) { add_bias<n>(y, b, i, column_of(i, count, out), relu); },
        [=](size_t i) { add_bias<1>(y, b, i, column_of(i, count, out), relu); });
}

template <typename T>
static cudaError_t launch_add_bias(struct ct_launch_on on, const struct ct_linear *op, T *y)
{
    const unsigned n = CT_WIDEST / sizeof(T);
    size_t count = op->batch * op->out;
    /* A pack must not extend into the next row. */
    bool packed = ct_packs<n>(y) && ct_packs<n>(op->b) && op->out % n == 0;
    unsigned blocks = ct_blocks(packed ? count / n : count, THREADS);
    return ct_launch<add_bias_kernel<T>>(on, blocks, THREADS, count, op->out, y, op->b, op->relu,
                                         packed);
}

cudaError_t ct_launch_add_bias(struct ct_launch_on on, enum ct_precision p,
                               const struct ct_linear *op)
{
    return ct_precision_narrow(p) && !op->wide ? launch_add_bias(on, op, (__nv_bfloat16 *)op->y)
                                               : launch_add_bias(on, op, (float *)op->y);
}

/* ---- mask ----------------------------------------------------------------------------------- */

template <unsigned N, typename T> __device__ void mask(T *x, const T *by, size_t i)
{
    ct_pack<T, N> row = ct_load<N>(x, i), keep = ct_load<N>(by, i);
    for (unsigned k = 0; k < N; k++) {
        if (!(ct_get(keep.v, k) > 0.0f)) {
            ct_put(row.v, k, 0.0f);
        }
    }
    ct_store(x, i, row);
}

template <typename T> __global__ void mask_kernel(size_t count, T *x, const T *by, bool packed)
{
    ct_begin();
    const unsigned n = CT_WIDEST / sizeof(T);
    ct_each<n>(
        count, packed, [=](size_t i) { mask<n>(x, by, i); }, [=](size_t i) { mask<1>(x, by, i); });
}

template <typename T>
static cudaError_t launch_mask(struct ct_launch_on on, size_t count, T *x, const T *by)
{
    const unsigned n = CT_WIDEST / sizeof(T);
    bool packed = ct_packs<n>(x) && ct_packs<n>(by);
    unsigned blocks = ct_blocks(packed ? count / n + n : count, THREADS);
    return ct_launch<mask_kernel<T>>(on, blocks, THREADS, count, x, by, packed);
}

cudaError_t ct_launch_mask(struct ct_launch_on on, enum ct_precision p, size_t count, void *x,
                           const void *mask)
{
    return ct_precision_narrow(p)
               ? launch_mask(on, count, (__nv_bfloat16 *)x, (const __nv_bfloat16 *)mask)
               : launch_mask(on, count, (float *)x, (const float *)mask);
}
