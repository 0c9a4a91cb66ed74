/* SPDX-License-Identifier: Apache-2.0
 *
 * The last layer in bfloat16. The instruction multiplies pairs of neighbours along the dimension of
 * the sum, so each product needs its operands in pairs along another dimension: along the inputs
 * for the logits, which is the order of x and w in memory; along the rows for dw; along the classes
 * for dx. It uses the caller's scratch memory and cannot fail.
 */
#include "kernels/cpu/cpu_head16.h"

#include <immintrin.h>

/* Rows at a time: together with the weights, their data fits in L1. */
#define ROWS ((size_t)32)
#define CLASSES ((size_t)16)
/* Every product computes TILE x TILE vectors of sums: 16 of the 32 registers, which is enough to
 * hide the instruction's latency. */
#define TILE ((size_t)4)
#define PAIRS ((size_t)16)         /* of bfloat16 numbers in a vector; also the number of float32 */
#define STEP ((size_t)(4 * PAIRS)) /* inputs of a tile in dw and dx */

struct rows {
    const struct ct_head *op;
    size_t first, count;                  /* rows of the batch; count <= ROWS */
    uint32_t by_row[ROWS / 2][CLASSES];   /* gradients of two rows for one class */
    uint32_t by_class[ROWS][CLASSES / 2]; /* gradients of one row for two classes */
};

static inline __m512 dot(__m512 sum, __m512i a, __m512i b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

static inline __m512i spread(uint32_t pair)
{
    return _mm512_set1_epi32((int)pair);
}

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t class_pairs(const struct ct_head *op)
{
    return (op->loss.classes + 1) / 2;
}

bool ct_head16_fits(const struct ct_head *op)
{
    const struct ct_linear_grad *g = &op->grad;
    return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
           g->batch > 0 && op->loss.classes > 0 && op->loss.classes <= CLASSES &&
           g->in % STEP == 0 && g->dx != NULL && g->mask == op->linear.x;
}

size_t ct_head16_scratch(const struct ct_head *op)
{
    return class_pairs(op) * op->linear.in;
}

/* Makes the pairs of two rows of 32 columns: low[i] | high[i] << 16. */
static inline void pair_up(__m512i low, __m512i high, __m512i out[2])
{
    const __m512i first =
        _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                         37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    out[0] = _mm512_permutex2var_epi16(low, first, high);
    out[1] = _mm512_permutex2var_epi16(low, _mm512_add_epi16(first, _mm512_set1_epi16(16)), high);
}

/* Returns a vector whose lane i is the sum of the lanes of v[i]. */
static inline __m512 sums_of(__m512 v[16])
{
    for (size_t i = 0; i < 8; i++) {
        v[i] = _mm512_add_ps(_mm512_unpacklo_ps(v[2 * i], v[2 * i + 1]),
                             _mm512_unpackhi_ps(v[2 * i], v[2 * i + 1]));
    }
    for (size_t i = 0; i < 4; i++) {
        __m512d a = _mm512_castps_pd(v[2 * i]), b = _mm512_castps_pd(v[2 * i + 1]);
        v[i] = _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),
                             _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
    }
    for (size_t i = 0; i < 2; i++) {
        v[i] = _mm512_add_ps(_mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0x44),
                             _mm512_shuffle_f32x4(v[2 * i], v[2 * i + 1], 0xee));
    }
    return _mm512_add_ps(_mm512_shuffle_f32x4(v[0], v[1], 0x88),
                         _mm512_shuffle_f32x4(v[0], v[1], 0xdd));
}

static const uint16_t *row_of(const void *matrix, size_t cols, size_t row)
{
    return (const uint16_t *)matrix + row * cols;
}

/* Beyond the last row or class the last one is used again, here and in dx(). */
static void logits_tile(const struct rows *rows, size_t row, size_t class, float *logits)
{
    const struct ct_linear *op = &rows->op->linear;
    const uint16_t *x[TILE], *w[TILE];
    __m512 sum[TILE * TILE];
    for (size_t i = 0; i < TILE; i++) {
        x[i] = row_of(op->x, op->in, rows->first + least(row + i, rows->count - 1));
        w[i] = row_of(op->w, op->in, least(class + i, op->out - 1));
    }
    for (size_t i = 0; i < TILE * TILE; i++) {
        sum[i] = _mm512_setzero_ps();
    }
    for (size_t at = 0; at < op->in; at += 2 * PAIRS) {
        __m512i from[TILE];
        for (size_t i = 0; i < TILE; i++) {
            from[i] = _mm512_loadu_si512(x[i] + at);
        }
        for (size_t c = 0; c < TILE; c++) {
            __m512i weights = _mm512_loadu_si512(w[c] + at);
            for (size_t r = 0; r < TILE; r++) {
                sum[r * TILE + c] = dot(sum[r * TILE + c], from[r], weights);
            }
        }
    }
    float tile[TILE * TILE];
    _mm512_storeu_ps(tile, sums_of(sum));
    for (size_t r = 0; r < least(TILE, rows->count - row); r++) {
        for (size_t c = 0; c < least(TILE, op->out - class); c++) {
            logits[(row + r) * op->out + class + c] = tile[r * TILE + c] + op->b[class + c];
        }
    }
}

/* Computes the rows' logits, loss and its gradient, which it stores in both orders of pairs. */
static void forward(const struct ct_cpu_loops *loops, struct rows *rows)
{
    struct ct_loss loss = rows->op->loss;
    size_t classes = loss.classes;
    float logits[ROWS * CLASSES], gradient[ROWS * CLASSES];
    for (size_t r = 0; r < rows->count; r += TILE) {
        for (size_t c = 0; c < classes; c += TILE) {
            logits_tile(rows, r, c, logits);
        }
    }
    uint16_t *narrow = (uint16_t *)loss.dlogits + rows->first * classes;
    loss.batch = rows->count;
    loss.logits = logits;
    loss.labels += rows->first;
    loss.dlogits = gradient;
    loops->loss(&loss);
    loops->narrow(rows->count * classes, gradient, narrow);
    for (size_t r = 0; r < rows->count; r++) {
        for (size_t c = 0; c < classes; c++) {
            uint32_t number = narrow[r * classes + c];
            uint32_t *of_row = &rows->by_row[r / 2][c], *of_class = &rows->by_class[r][c / 2];
            *of_row = r % 2 == 0 ? number : *of_row | number << 16;
            *of_class = c % 2 == 0 ? number : *of_class | number << 16;
        }
    }
}

/* Adds the rows' part of dw for TILE classes and STEP inputs. */
static void dw_tile(const struct rows *rows, size_t class, size_t at)
{
    const struct ct_linear_grad *op = &rows->op->grad;
    size_t classes = least(TILE, op->out - class);
    __m512 sum[TILE][TILE];
    for (size_t c = 0; c < TILE; c++) {
        for (size_t v = 0; v < TILE; v++) {
            sum[c][v] = _mm512_setzero_ps();
        }
    }
    for (size_t r = 0; r < rows->count; r += 2) {
        const uint16_t *low = row_of(op->x, op->in, rows->first + r) + at;
        /* With an odd count the missing row has gradient zero. */
        const uint16_t *high = r + 1 < rows->count ? low + op->in : low;
        __m512i x[TILE];
        pair_up(_mm512_loadu_si512(low), _mm512_loadu_si512(high), x);
        pair_up(_mm512_loadu_si512(low + 2 * PAIRS), _mm512_loadu_si512(high + 2 * PAIRS), x + 2);
        for (size_t c = 0; c < TILE; c++) {
            __m512i gradient = spread(rows->by_row[r / 2][class + c]);
            for (size_t v = 0; v < TILE; v++) {
                sum[c][v] = dot(sum[c][v], x[v], gradient);
            }
        }
    }
    for (size_t c = 0; c < classes; c++) {
        float *dw = op->dw + (class + c) * op->in + at;
        for (size_t v = 0; v < TILE; v++) {
            __m512 before = _mm512_loadu_ps(dw + v * PAIRS);
            before = rows->first == 0 ? _mm512_setzero_ps() : before;
            _mm512_storeu_ps(dw + v * PAIRS, _mm512_add_ps(before, sum[c][v]));
        }
    }
}

/* Rounds STEP numbers and stores those whose x is positive, and zeros for the others. */
static inline void write_masked(const __m512 sum[TILE], const uint16_t *x, uint16_t *dx)
{
    for (size_t v = 0; v < TILE; v += 2) {
        __m512i both = (__m512i)_mm512_cvtne2ps_pbh(sum[v + 1], sum[v]);
        __mmask32 above =
            _mm512_cmpgt_epi16_mask(_mm512_loadu_si512(x + v * PAIRS), _mm512_setzero_si512());
        _mm512_storeu_si512(dx + v * PAIRS, _mm512_maskz_mov_epi16(above, both));
    }
}

static void dx_tile(const struct rows *rows, const uint32_t *weights, size_t row, size_t at)
{
    const struct ct_linear_grad *op = &rows->op->grad;
    size_t place[TILE];
    __m512 sum[TILE][TILE];
    for (size_t r = 0; r < TILE; r++) {
        place[r] = least(row + r, rows->count - 1);
        for (size_t v = 0; v < TILE; v++) {
            sum[r][v] = _mm512_setzero_ps();
        }
    }
    for (size_t c = 0; c < class_pairs(rows->op); c++) {
        __m512i w[TILE];
        for (size_t v = 0; v < TILE; v++) {
            w[v] = _mm512_loadu_si512(weights + c * op->in + at + v * PAIRS);
        }
        for (size_t r = 0; r < TILE; r++) {
            __m512i gradient = spread(rows->by_class[place[r]][c]);
            for (size_t v = 0; v < TILE; v++) {
                sum[r][v] = dot(sum[r][v], w[v], gradient);
            }
        }
    }
    for (size_t r = 0; r < TILE; r++) {
        size_t from = (rows->first + place[r]) * op->in + at;
        write_masked(sum[r], (const uint16_t *)op->x + from, (uint16_t *)op->dx + from);
    }
}

/* Puts the weights of two classes side by side. If a class is missing, its weights are zero. */
static void pair_weights(const struct ct_linear *op, uint32_t *to)
{
    for (size_t c = 0; c < op->out; c += 2) {
        const uint16_t *low = row_of(op->w, op->in, c);
        for (size_t at = 0; at < op->in; at += 2 * PAIRS) {
            __m512i high =
                c + 1 < op->out ? _mm512_loadu_si512(low + op->in + at) : _mm512_setzero_si512();
            __m512i pairs[2];
            pair_up(_mm512_loadu_si512(low + at), high, pairs);
            _mm512_storeu_si512(to + at, pairs[0]);
            _mm512_storeu_si512(to + at + PAIRS, pairs[1]);
        }
        to += op->in;
    }
}

void ct_head16_run(const struct ct_cpu_loops *loops, const struct ct_head *op, uint32_t *scratch)
{
    size_t in = op->grad.in, batch = op->grad.batch;
    pair_weights(&op->linear, scratch);
    for (size_t first = 0; first < batch; first += ROWS) {
        struct rows rows = {.op = op, .first = first, .count = least(batch - first, ROWS)};
        forward(loops, &rows);
        for (size_t at = 0; at < in; at += STEP) {
            for (size_t c = 0; c < op->grad.out; c += TILE) {
                dw_tile(&rows, c, at);
            }
            for (size_t r = 0; r < rows.count; r += TILE) {
                dx_tile(&rows, scratch, r, at);
            }
        }
    }
    loops->column_sum16(batch, op->grad.out, op->grad.dy, op->grad.db);
}
