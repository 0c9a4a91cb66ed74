/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds arrays in blocks that stay in the cache, with loops for 2, 4 and 8 sources at a time. They
 * give the same bits as adding one source after the other.
 */
#include "worker/shm/sum.h"

#include <string.h>

/* Floats in a cache line of 64 bytes. */
#define LINE 16

/* Floats summed at a time from many sources, so that the partial sums stay in the L1 cache. */
#define BLOCK 1024

/* dst may be one of the sources, which is harmless because element i depends only on elements i.
 * The compiler cannot know that, so this tells it. */
#if defined(__clang__)
#define ELEMENTWISE _Pragma("clang loop vectorize(assume_safety)")
#else
#define ELEMENTWISE _Pragma("GCC ivdep")
#endif

static void sum2(float *dst, const float *a, const float *b, size_t begin, size_t end)
{
    ELEMENTWISE
    for (size_t i = begin; i < end; i++) {
        dst[i] = a[i] + b[i];
    }
}

static void sum4(float *dst, const float *const *src, size_t begin, size_t end)
{
    const float *a = src[0], *b = src[1], *c = src[2], *d = src[3];
    ELEMENTWISE
    for (size_t i = begin; i < end; i++) {
        dst[i] = ((a[i] + b[i]) + c[i]) + d[i];
    }
}

static void sum8(float *dst, const float *const *src, size_t begin, size_t end)
{
    const float *a = src[0], *b = src[1], *c = src[2], *d = src[3];
    const float *e = src[4], *f = src[5], *g = src[6], *h = src[7];
    ELEMENTWISE
    for (size_t i = begin; i < end; i++) {
        dst[i] = ((((((a[i] + b[i]) + c[i]) + d[i]) + e[i]) + f[i]) + g[i]) + h[i];
    }
}

/* acc does not overlap a source. */
static void add1(float *restrict acc, const float *a, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        acc[i] += a[i];
    }
}

/* Adds four sources in one pass, because reading acc once for each would be most of the work. */
static void add4(float *restrict acc, const float *const *src, size_t at, size_t len)
{
    const float *a = src[0] + at, *b = src[1] + at, *c = src[2] + at, *d = src[3] + at;
    for (size_t i = 0; i < len; i++) {
        acc[i] = (((acc[i] + a[i]) + b[i]) + c[i]) + d[i];
    }
}

static void sum_block(float *dst, const float *const *src, int n, size_t at, size_t len)
{
    float acc[BLOCK];
    int k = 1;
    memcpy(acc, src[0] + at, len * sizeof(float));
    for (; n - k >= 4; k += 4) {
        add4(acc, src + k, at, len);
    }
    for (; k < n; k++) {
        add1(acc, src[k] + at, len);
    }
    memcpy(dst + at, acc, len * sizeof(float));
}

void sum_arrays(float *dst, const float *const *src, int n, size_t begin, size_t end)
{
    switch (n) {
    case 2:
        sum2(dst, src[0], src[1], begin, end);
        return;
    case 4:
        sum4(dst, src, begin, end);
        return;
    case 8:
        sum8(dst, src, begin, end);
        return;
    default:
        for (size_t at = begin; at < end; at += BLOCK) {
            sum_block(dst, src, n, at, end - at < BLOCK ? end - at : BLOCK);
        }
    }
}

/* ---- as a tree ------------------------------------------------------------------------------- */

/* The number of sources that one expression adds. */
#define LEAF 8

/* Floats of a block. For each level of the tree above the leaves, a block is on the stack. */
#define TREE_BLOCK 512

static void leaf4(float *dst, const float *const *src, size_t begin, size_t end)
{
    const float *a = src[0], *b = src[1], *c = src[2], *d = src[3];
    ELEMENTWISE
    for (size_t i = begin; i < end; i++) {
        dst[i] = (a[i] + b[i]) + (c[i] + d[i]);
    }
}

/* Adds `len` floats from index `at` of the sources. The first sum goes to dst[0]. */
static void leaf8(float *dst, const float *const *src, size_t at, size_t len)
{
    const float *a = src[0] + at, *b = src[1] + at, *c = src[2] + at, *d = src[3] + at;
    const float *e = src[4] + at, *f = src[5] + at, *g = src[6] + at, *h = src[7] + at;
    ELEMENTWISE
    for (size_t i = 0; i < len; i++) {
        dst[i] = ((a[i] + b[i]) + (c[i] + d[i])) + ((e[i] + f[i]) + (g[i] + h[i]));
    }
}

/* n is LEAF times a power of two. */
static void tree_block(float *acc, const float *const *src, int n, size_t at, size_t len)
{
    if (n <= LEAF) {
        leaf8(acc, src, at, len);
        return;
    }
    float right[TREE_BLOCK];
    tree_block(acc, src, n / 2, at, len);
    tree_block(right, src + n / 2, n / 2, at, len);
    for (size_t i = 0; i < len; i++) {
        acc[i] += right[i];
    }
}

void sum_tree(float *dst, const float *const *src, int n, size_t begin, size_t end)
{
    if (n <= 2) {
        sum_arrays(dst, src, n, begin, end);
    } else if (n == 4) {
        leaf4(dst, src, begin, end);
    } else if (n == LEAF) {
        leaf8(dst + begin, src, begin, end - begin);
    } else {
        float acc[TREE_BLOCK];
        for (size_t at = begin; at < end; at += TREE_BLOCK) {
            size_t len = end - at < TREE_BLOCK ? end - at : TREE_BLOCK;
            tree_block(acc, src, n, at, len);
            memcpy(dst + at, acc, len * sizeof(float));
        }
    }
}

/* ---- shares ---------------------------------------------------------------------------------- */

void sum_share(size_t count, int rank, int size, size_t *begin, size_t *end)
{
    size_t lines = count / LINE + (count % LINE != 0);
    size_t each = lines / (size_t)size, more = lines % (size_t)size;
    size_t r = (size_t)rank;
    size_t first = r * each + (r < more ? r : more);
    size_t last = first + each + (r < more ? 1 : 0);
    *begin = first * LINE < count ? first * LINE : count;
    *end = last * LINE < count ? last * LINE : count;
}
