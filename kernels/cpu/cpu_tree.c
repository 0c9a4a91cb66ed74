/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient of weights as a balanced tree over parts of the batch (struct ct_partition). Adding
 * whole matrices would cost more memory traffic than the products. Here a tile of the result stays
 * in registers and L1 while the parts are multiplied and added one after the other, and is written
 * once.
 *
 * Both operands are packed and padded with zeros to whole tiles, so every number is computed by the
 * same instructions, whatever its index. bfloat16 is widened while packing. It uses the caller's
 * scratch memory and cannot fail.
 */
#include "kernels/cpu/cpu_isa.h"

#include <string.h>

/* A tile's accumulators and operands must fit in 32 (AVX-512) or 16 vector registers. */
#if defined(__AVX512F__)
#define VEC_BYTES 64
#define ROWS 12
#define WIDTH 2
#elif defined(__AVX__)
#define VEC_BYTES 32
#define ROWS 4
#define WIDTH 3
#else
#define VEC_BYTES 16
#define ROWS 4
#define WIDTH 3
#endif

#define LANES (VEC_BYTES / sizeof(float))
#define PANEL (WIDTH * LANES)

_Static_assert(ROWS <= CT_TREE_ROWS && PANEL <= CT_TREE_PANEL, "the scratch memory must suffice");

typedef float vec __attribute__((vector_size(VEC_BYTES)));
/* A vector at an address that is only aligned to a float. */
typedef float loose_vec __attribute__((vector_size(VEC_BYTES), aligned(4), may_alias));

/* Copies m[0 .. rows, col .. col + width) to packed rows of `step`, with zeros beyond `cols`. */
static void pack(const struct ct_tree *op, const void *m, size_t cols, size_t col, size_t step,
                 float *restrict to)
{
    size_t width = cols - col < step ? cols - col : step;
    for (size_t r = 0; r < op->batch; r++, to += step) {
        if (op->bf16) {
            const uint16_t *from = (const uint16_t *)m + r * cols + col;
            for (size_t j = 0; j < width; j++) {
                uint32_t bits = (uint32_t)from[j] << 16;
                memcpy(to + j, &bits, sizeof bits);
            }
        } else {
            memcpy(to, (const float *)m + r * cols + col, width * sizeof *to);
        }
        memset(to + width, 0, (step - width) * sizeof *to);
    }
}

/* Computes one node of the tree: dy^T * x of one part, to which it adds the `lefts` left subtrees
 * that this part completes, the nearest first. They are stored before `to`; the sum replaces the
 * last one added. */
static inline __attribute__((always_inline)) void node(const float *restrict dy,
                                                       const float *restrict x, size_t rows,
                                                       vec (*to)[ROWS][WIDTH], size_t lefts)
{
    vec sum[ROWS][WIDTH];
    for (size_t o = 0; o < ROWS; o++) {
        for (size_t j = 0; j < WIDTH; j++) {
            sum[o][j] = (vec){0};
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t o = 0; o < ROWS; o++) {
            for (size_t j = 0; j < WIDTH; j++) {
                sum[o][j] += dy[r * ROWS + o] * *(const loose_vec *)(x + r * PANEL + j * LANES);
            }
        }
    }
    for (; lefts > 0; lefts--) {
        to--;
        for (size_t o = 0; o < ROWS; o++) {
            for (size_t j = 0; j < WIDTH; j++) {
                sum[o][j] = (*to)[o][j] + sum[o][j];
            }
        }
    }
    memcpy(*to, sum, sizeof sum);
}

/* Computes a tile over all parts. A left subtree waits on the stack until its right one is
 * computed: part p completes as many subtrees as p + 1 has trailing zero bits. */
static void tile(const struct ct_tree *op, const float *dy, const float *x, float *to, size_t rows,
                 size_t cols)
{
    vec stack[CT_TREE_LEVELS][ROWS][WIDTH];
    size_t depth = 0;
    for (size_t p = 0; p < op->partition.parts; p++) {
        size_t first = p * op->partition.rows < op->batch ? p * op->partition.rows : op->batch;
        size_t left = op->batch - first;
        size_t completes = (size_t)__builtin_ctzll(p + 1);
        node(dy + first * ROWS, x + first * PANEL,
             left < op->partition.rows ? left : op->partition.rows, &stack[depth], completes);
        depth += 1 - completes;
    }
    float sums[ROWS][PANEL];
    memcpy(sums, stack[0], sizeof sums);
    for (size_t o = 0; o < rows; o++) {
        memcpy(to + o * op->in, sums[o], cols * sizeof *to);
    }
}

/* Computes the gradient of the bias, which is a weight whose input is always 1. */
static void bias(const struct ct_tree *op, const float *dy, float *ones, size_t rows, float *to)
{
    float sums[ROWS * PANEL];
    struct ct_tree one = *op;
    one.in = PANEL;
    tile(&one, dy, ones, sums, rows, PANEL);
    for (size_t o = 0; o < rows; o++) {
        to[o] = sums[o * PANEL];
    }
}

void CT_ISA_NAME(ct_tree_gradient)(const struct ct_tree *op)
{
    float *x = op->scratch, *dy = x + op->batch * PANEL;
    for (size_t i = 0; i < op->batch * PANEL; i++) {
        x[i] = 1.0f;
    }
    for (size_t o = 0; o < op->out; o += ROWS) {
        float *packed = dy + o * op->batch;
        size_t rows = op->out - o < ROWS ? op->out - o : ROWS;
        pack(op, op->dy, op->out, o, ROWS, packed);
        bias(op, packed, x, rows, op->db + o);
    }
    for (size_t col = 0; col < op->in; col += PANEL) {
        size_t cols = op->in - col < PANEL ? op->in - col : PANEL;
        pack(op, op->x, op->in, col, PANEL, x);
        for (size_t o = 0; o < op->out; o += ROWS) {
            size_t rows = op->out - o < ROWS ? op->out - o : ROWS;
            tile(op, dy + o * op->batch, x, op->dw + o * op->in + col, rows, cols);
        }
    }
}
