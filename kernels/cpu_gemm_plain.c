/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products in plain C with the compiler's vector types.
 *
 * `dot` serves y = x * w^T, where both operands have k running along memory: tiles of ROWS x COLS
 * dot products are kept in registers, so no operand is copied or transposed first, which is what
 * makes it beat a packing GEMM at small batches. `outer` serves the other two products: a panel of
 * b is packed so that power-of-two widths do not fall into one cache set, then tiles of
 * ROWS x (WIDTH vectors) of c take rank-1 updates.
 */
#include "kernels/cpu_isa.h"

#include <string.h>

/* Register tiles: accumulators + operands must fit into 32 (AVX-512) or 16 vector registers. */
#if defined(__AVX512F__)
#define VEC_BYTES 64
#define DOT_ROWS 4
#define DOT_COLS 6
#define OUTER_ROWS 6
#define OUTER_WIDTH 4
#elif defined(__AVX__)
#define VEC_BYTES 32
#define DOT_ROWS 3
#define DOT_COLS 4
#define OUTER_ROWS 6
#define OUTER_WIDTH 2
#else
#define VEC_BYTES 16
#define DOT_ROWS 3
#define DOT_COLS 4
#define OUTER_ROWS 6
#define OUTER_WIDTH 2
#endif

#define LANES (VEC_BYTES / sizeof(float))
#define PANEL (OUTER_WIDTH * LANES) /* columns of c per packed panel of b */
#define K_BLOCK 256                 /* rows of b per packed panel: 64 KB at most, half of L2 */

_Static_assert(K_BLOCK *PANEL <= CT_OUTER_SCRATCH, "the panel must fit the scratch memory");

typedef float vec __attribute__((vector_size(VEC_BYTES)));
/* The same for addresses that are only aligned to a float. */
typedef float loose_vec __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

static inline vec load(const float *p)
{
    return *(const loose_vec *)p;
}

static inline float lane_sum(vec v)
{
    float half[LANES];
    memcpy(half, &v, sizeof(half));
    for (size_t n = LANES / 2; n > 0; n /= 2) {
        for (size_t i = 0; i < n; i++) {
            half[i] += half[i + n];
        }
    }
    return half[0];
}

/* y[r, c] for rows x cols dot products; always inlined with constant sizes, so that `acc` lives in
 * registers. */
static inline __attribute__((always_inline)) void
dot_tile(const struct ct_linear *op, size_t row, size_t col, const size_t rows, const size_t cols)
{
    const float *x = op->x + row * op->in;
    const float *w = op->w + col * op->in;
    vec acc[DOT_ROWS][DOT_COLS];
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            acc[r][c] = (vec){0};
        }
    }
    size_t k = 0;
    for (; k + LANES <= op->in; k += LANES) {
        vec b[DOT_COLS];
        for (size_t c = 0; c < cols; c++) {
            b[c] = load(w + c * op->in + k);
        }
        for (size_t r = 0; r < rows; r++) {
            vec a = load(x + r * op->in + k);
            for (size_t c = 0; c < cols; c++) {
                acc[r][c] += a * b[c];
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++) {
            float sum = lane_sum(acc[r][c]);
            for (size_t i = k; i < op->in; i++) {
                sum += x[r * op->in + i] * w[c * op->in + i];
            }
            sum += op->b[col + c];
            op->y[(row + r) * op->out + col + c] = op->relu && sum < 0.0f ? 0.0f : sum;
        }
    }
}

/* One stripe of `cols` columns over all rows: the stripe of w stays in L1 while x streams by. */
static inline __attribute__((always_inline)) void dot_stripe(const struct ct_linear *op, size_t col,
                                                             const size_t cols)
{
    size_t row = 0;
    for (; row + DOT_ROWS <= op->batch; row += DOT_ROWS) {
        dot_tile(op, row, col, DOT_ROWS, cols);
    }
    for (; row < op->batch; row++) {
        dot_tile(op, row, col, 1, cols);
    }
}

void CT_ISA_NAME(ct_gemm_dot)(const struct ct_linear *op)
{
    size_t col = 0;
    for (; col + DOT_COLS <= op->out; col += DOT_COLS) {
        dot_stripe(op, col, DOT_COLS);
    }
    for (; col < op->out; col++) {
        dot_stripe(op, col, 1);
    }
}

/* c[0..rows, 0..cols] (+)= a * panel over `depth` steps of k. */
static inline __attribute__((always_inline)) void outer_tile(const struct ct_outer_operand *a,
                                                             const float *panel, size_t depth,
                                                             float *c, size_t ldc, size_t cols,
                                                             bool accumulate, const size_t rows)
{
    vec acc[OUTER_ROWS][OUTER_WIDTH];
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < OUTER_WIDTH; j++) {
            acc[r][j] = (vec){0};
        }
    }
    for (size_t k = 0; k < depth; k++) {
        vec b[OUTER_WIDTH];
        for (size_t j = 0; j < OUTER_WIDTH; j++) {
            b[j] = load(panel + k * PANEL + j * LANES);
        }
        for (size_t r = 0; r < rows; r++) {
            float scalar = a->data[r * a->row_step + k * a->k_step];
            for (size_t j = 0; j < OUTER_WIDTH; j++) {
                acc[r][j] += scalar * b[j];
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        float tile[PANEL];
        memcpy(tile, acc[r], sizeof(tile));
        float *to = c + r * ldc;
        for (size_t j = 0; j < cols; j++) {
            to[j] = accumulate ? to[j] + tile[j] : tile[j];
        }
    }
}

/* Copies b[0..depth, 0..cols] into the panel, zero beyond cols. */
static void pack(const float *b, size_t ldb, size_t depth, size_t cols, float *panel)
{
    for (size_t k = 0; k < depth; k++) {
        memcpy(panel + k * PANEL, b + k * ldb, cols * sizeof(float));
        memset(panel + k * PANEL + cols, 0, (PANEL - cols) * sizeof(float));
    }
}

void CT_ISA_NAME(ct_gemm_outer)(size_t m, size_t n, size_t k, const struct ct_outer_operand *a,
                                const float *b, float *c, float *scratch)
{
    if (k == 0) {
        memset(c, 0, m * n * sizeof(*c));
        return;
    }
    for (size_t col = 0; col < n; col += PANEL) {
        size_t cols = n - col < PANEL ? n - col : PANEL;
        for (size_t k0 = 0; k0 < k; k0 += K_BLOCK) {
            size_t depth = k - k0 < K_BLOCK ? k - k0 : K_BLOCK;
            pack(b + k0 * n + col, n, depth, cols, scratch);
            struct ct_outer_operand at = *a;
            at.data += k0 * a->k_step;
            size_t row = 0;
            for (; row + OUTER_ROWS <= m; row += OUTER_ROWS) {
                outer_tile(&at, scratch, depth, c + row * n + col, n, cols, k0 > 0, OUTER_ROWS);
                at.data += OUTER_ROWS * a->row_step;
            }
            for (; row < m; row++) {
                outer_tile(&at, scratch, depth, c + row * n + col, n, cols, k0 > 0, 1);
                at.data += a->row_step;
            }
        }
    }
}
