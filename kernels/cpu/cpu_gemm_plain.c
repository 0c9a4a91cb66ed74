/* SPDX-License-Identifier: Apache-2.0
 *
 * A matrix product in plain C with the compiler's vector types. A panel of b is packed, so that
 * widths of a power of two do not compete for one cache set and a transposed b costs nothing more.
 * Then tiles of c, ROWS x (1 to WIDTH vectors), stay in registers and get rank-1 updates. It uses
 * the caller's scratch memory and cannot fail.
 */
#include "kernels/cpu/cpu_isa.h"

#include <string.h>

/* A tile's accumulators and operands must fit in 32 (AVX-512) or 16 vector registers. */
#if defined(__AVX512F__)
#define VEC_BYTES 64
#define WIDTH 4
#elif defined(__AVX__)
#define VEC_BYTES 32
#define WIDTH 2
#else
#define VEC_BYTES 16
#define WIDTH 2
#endif
#define ROWS 6

#define LANES (VEC_BYTES / sizeof(float))
#define PANEL (WIDTH * LANES) /* columns of c per packed panel of b */
#define DEPTH 256             /* rows of b per packed panel: 64 KB at most, a part of L2 */

_Static_assert(DEPTH *PANEL <= CT_PRODUCT_SCRATCH, "the panel must fit the scratch memory");

typedef float vec __attribute__((vector_size(VEC_BYTES)));
/* A vector at an address that is only aligned to a float. */
typedef float loose_vec __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

/* The place of a tile: `cols` columns of c and `depth` steps of k, the first or later ones. */
struct block {
    const float *panel;
    size_t cols, depth;
    bool accumulate;
};

/* Computes a tile. Always inlined with constant rows and width, so that `acc` is in registers. */
static inline __attribute__((always_inline)) void tile(const struct block *at,
                                                       const struct ct_operand *a, float *c,
                                                       size_t c_step, const size_t rows,
                                                       const size_t width)
{
    vec acc[ROWS][WIDTH];
    for (size_t r = 0; r < rows; r++) {
        for (size_t j = 0; j < width; j++) {
            acc[r][j] = (vec){0};
        }
    }
    for (size_t k = 0; k < at->depth; k++) {
        const float *b = at->panel + k * PANEL;
        for (size_t r = 0; r < rows; r++) {
            float scalar = a->data[r * a->row_step + k * a->col_step];
            for (size_t j = 0; j < width; j++) {
                acc[r][j] += scalar * *(const loose_vec *)(b + j * LANES);
            }
        }
    }
    for (size_t r = 0; r < rows; r++) {
        float sums[PANEL] = {0};
        memcpy(sums, acc[r], width * VEC_BYTES);
        float *to = c + r * c_step;
        for (size_t j = 0; j < at->cols; j++) {
            to[j] = at->accumulate ? to[j] + sums[j] : sums[j];
        }
    }
}

/* Computes all rows of c in the block's columns. */
static inline __attribute__((always_inline)) void stripe(const struct ct_product *op,
                                                         const struct block *at,
                                                         struct ct_operand a, float *c,
                                                         const size_t width)
{
    size_t row = 0;
    for (; row + ROWS <= op->m; row += ROWS) {
        tile(at, &a, c + row * op->n, op->n, ROWS, width);
        a.data += ROWS * a.row_step;
    }
    for (; row < op->m; row++) {
        tile(at, &a, c + row * op->n, op->n, 1, width);
        a.data += a.row_step;
    }
}

/* Copies b[0..depth, 0..cols] to the panel, with zeros beyond cols. */
static void pack(const struct ct_operand *b, size_t depth, size_t cols, float *restrict panel)
{
    for (size_t k = 0; k < depth; k++) {
        const float *from = b->data + k * b->row_step;
        float *to = panel + k * PANEL;
        for (size_t j = 0; j < cols; j++) {
            to[j] = from[j * b->col_step];
        }
        memset(to + cols, 0, (PANEL - cols) * sizeof(*to));
    }
}

void CT_ISA_NAME(ct_gemm_product)(const struct ct_product *op)
{
    if (op->k == 0) {
        memset(op->c, 0, op->m * op->n * sizeof(*op->c));
        return;
    }
    for (size_t col = 0; col < op->n; col += PANEL) {
        size_t cols = op->n - col < PANEL ? op->n - col : PANEL;
        for (size_t k = 0; k < op->k; k += DEPTH) {
            size_t depth = op->k - k < DEPTH ? op->k - k : DEPTH;
            struct ct_operand a = op->a, b = op->b;
            a.data += k * a.col_step;
            b.data += k * b.row_step + col * b.col_step;
            pack(&b, depth, cols, op->scratch);
            struct block at = {op->scratch, cols, depth, k > 0};
            if (cols <= LANES) { /* for example a last layer of ten classes */
                stripe(op, &at, a, op->c + col, 1);
            } else {
                stripe(op, &at, a, op->c + col, WIDTH);
            }
        }
    }
}
