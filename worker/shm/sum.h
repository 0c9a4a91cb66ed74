/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of float arrays and how an array is shared out among ranks.
 */
#ifndef CT_WORKER_SHM_SUM_H
#define CT_WORKER_SHM_SUM_H

#include <stddef.h>

/* dst[i] = ((src[0][i] + src[1][i]) + src[2][i]) + ... for i in [begin, end): added one after the
 * other, so that the bits do not depend on who adds. dst may be one of the sources, else it does
 * not overlap them. n >= 1. */
void sum_arrays(float *dst, const float *const *src, int n, size_t begin, size_t end);

/* The same as a balanced binary tree: (src[0] + src[1]) + (src[2] + src[3]) for n = 4. n is a power
 * of two. */
void sum_tree(float *dst, const float *const *src, int n, size_t begin, size_t end);

/* Either of them. */
typedef void (*sum_fn)(float *dst, const float *const *src, int n, size_t begin, size_t end);

/* Rank's share [*begin, *end) of `count` floats: whole cache lines, so that no two ranks write one
 * line (given an aligned array), as even as that allows. */
void sum_share(size_t count, int rank, int size, size_t *begin, size_t *end);

#endif
