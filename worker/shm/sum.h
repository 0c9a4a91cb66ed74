/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums of float arrays, and the partition of an array among ranks.
 */
#ifndef CT_WORKER_SHM_SUM_H
#define CT_WORKER_SHM_SUM_H

#include <stddef.h>

/* dst[i] = ((src[0][i] + src[1][i]) + src[2][i]) + ... for i in [begin, end): added one after the
 * other, so that the bits do not depend on which rank adds. dst may be one of the sources;
 * otherwise it must not overlap them. n >= 1. */
void sum_arrays(float *dst, const float *const *src, int n, size_t begin, size_t end);

/* The same, added as a balanced binary tree: (src[0] + src[1]) + (src[2] + src[3]) for n = 4. n is
 * a power of two. */
void sum_tree(float *dst, const float *const *src, int n, size_t begin, size_t end);

/* sum_arrays() or sum_tree(). */
typedef void (*sum_fn)(float *dst, const float *const *src, int n, size_t begin, size_t end);

/* Gives the rank's share [*begin, *end) of `count` floats. The shares are whole cache lines, so
 * that no two ranks write to one line of an aligned array, and otherwise equal. */
void sum_share(size_t count, int rank, int size, size_t *begin, size_t *end);

#endif
