/* SPDX-License-Identifier: Apache-2.0
 *
 * --tensorboard DIR: scalars in an event file that TensorBoard reads. The file is a row of records
 * (length, its checksum, data, its checksum; TFRecord, checksums CRC-32C masked), each an Event of
 * protocol buffers (tensorflow/core/util/event.proto), of which the few fields needed here are
 * written by hand.
 */
#ifndef CT_TRAINER_SHOW_TENSORBOARD_H
#define CT_TRAINER_SHOW_TENSORBOARD_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct ct_scalar {
    const char *tag; /* "loss/train" */
    double value;
};

/* Appends a record that holds `scalars` of a step; with count 0 the record that starts a file.
 * `wall_s` is the time of day. Pure. CT_ENOMEM. */
CT_MUST_CHECK int ct_tensorboard_encode(double wall_s, int64_t step,
                                        const struct ct_scalar *scalars, size_t count,
                                        struct ct_buf *out);

/* CRC-32C (Castagnoli). */
uint32_t ct_crc32c(const void *bytes, size_t len);

struct ct_tensorboard {
    int fd; /* -1: not asked for, or writing failed */
    struct ct_buf scratch;
};

#define CT_TENSORBOARD_INIT              \
    {                                    \
        .fd = -1, .scratch = CT_BUF_INIT \
    }

/* Makes the folder if need be, and a new file in it. Text names what could not be made. */
CT_MUST_CHECK int ct_tensorboard_open(struct ct_tensorboard *board, const char *dir,
                                      struct ct_err *err);
void ct_tensorboard_close(struct ct_tensorboard *board);

/* Nothing when no file is open. After a failure the file is closed: the caller warns once. */
CT_MUST_CHECK int ct_tensorboard_add(struct ct_tensorboard *board, int64_t step,
                                     const struct ct_scalar *scalars, size_t count,
                                     struct ct_err *err);

#endif
