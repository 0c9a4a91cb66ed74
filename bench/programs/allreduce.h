/* SPDX-License-Identifier: Apache-2.0
 *
 * What bench/programs/allreduce.c and bench/programs/allreduce_mpi.c measure alike, and how they
 * print it: one line
 * "<bytes> <how> <microseconds>" per size, the median of several blocks of calls, by rank 0.
 */
#ifndef CT_BENCH_PROGRAMS_ALLREDUCE_H
#define CT_BENCH_PROGRAMS_ALLREDUCE_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BLOCKS 5

struct size_case {
    size_t count; /* floats */
    int calls;    /* per block */
};

/* One number; 64 KB; the gradients of 784-512-10 (1.63 MB); 26 MB. */
static const struct size_case cases[] = {{1, 5000}, {16384, 1000}, {407050, 100}, {6500000, 6}};

#define CASES (sizeof(cases) / sizeof(cases[0]))
#define COUNT_MAX 6500000

static inline double now_us(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

static inline int compare_double(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline void report(size_t count, const char *how, double times[BLOCKS])
{
    qsort(times, BLOCKS, sizeof(times[0]), compare_double);
    printf("%zu %s %.3f\n", count * sizeof(float), how, times[BLOCKS / 2]);
}

#endif
