/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --preflight-limits: "KEY=VALUE,KEY=VALUE".
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_LIMITS_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_LIMITS_H

#include "common/err.h"

#include <stdint.h>

struct ct_preflight_limits {
    int64_t shm;      /* least bytes that are free in /dev/shm, for each worker */
    int64_t disk;     /* least bytes that are free in each folder */
    int64_t memlock;  /* least bytes that may be locked; -1 = all, where there are RDMA devices */
    double clock_s;   /* largest difference to the clock of node rank 0 */
    int gpus;         /* least number; -1 = as many as most machines have */
    double rate;      /* least bytes per second to and from another machine; -1 = compare them */
    double latency_s; /* largest latency to another machine; -1 = compare them */
};

/* NCCL needs about 10 MB for each pair of ranks of a machine, PyTorch's data loaders more; a
 * container has 64 MB unless it is told otherwise. Checkpoints are larger than any number here, so
 * the limit of the disk only tells one that is full. */
#define CT_PREFLIGHT_LIMITS_INIT                                                              \
    {                                                                                         \
        .shm = INT64_C(32) << 20, .disk = INT64_C(256) << 20, .memlock = -1, .clock_s = 10.0, \
        .gpus = -1, .rate = -1, .latency_s = -1,                                              \
    }

/* Sets those fields of *out that the text names: shm, disk, memlock (bytes, with K, M, G or T),
 * clock, latency (seconds), gpus (a number) and bandwidth (bytes per second). CT_EFORMAT,
 * CT_EINVAL; *out is unchanged then. */
CT_MUST_CHECK int ct_preflight_limits_parse(const char *text, struct ct_preflight_limits *out,
                                            struct ct_err *err);

#endif
