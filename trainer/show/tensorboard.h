/* SPDX-License-Identifier: Apache-2.0
 *
 * --tensorboard DIR: scalars in an event file for TensorBoard. The file is a sequence of records
 * (TFRecord: length, its checksum, data, its checksum; masked CRC-32C). Each contains an Event, a
 * protocol buffer (tensorflow/core/util/event.proto), of which only the needed fields are written.
 */
#ifndef CT_TRAINER_SHOW_TENSORBOARD_H
#define CT_TRAINER_SHOW_TENSORBOARD_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>
#include <stdint.h>

struct ct_scalar {
    const char *tag; /* for example "loss/train" */
    double value;
};

/* Appends a record with the `scalars` of a step; with count 0, the record that starts a file.
 * `wall_s` is the time of day. Pure. CT_ENOMEM. */
CT_MUST_CHECK int ct_tensorboard_encode(double wall_s, int64_t step,
                                        const struct ct_scalar *scalars, size_t count,
                                        struct ct_buf *out);

/* CRC-32C (Castagnoli). */
uint32_t ct_tensorboard_crc32c(const void *bytes, size_t len);

struct ct_tensorboard {
    int fd; /* -1: not asked for, or a write has failed */
    struct ct_buf scratch;
};

#define CT_TENSORBOARD_INIT              \
    {                                    \
        .fd = -1, .scratch = CT_BUF_INIT \
    }

/* Creates the folder if needed, and a new file in it. Messages name what cannot be created. */
CT_MUST_CHECK int ct_tensorboard_open(struct ct_tensorboard *board, const char *dir,
                                      struct ct_err *err);
void ct_tensorboard_close(struct ct_tensorboard *board);

/* Does nothing without an open file. After a failure the file is closed: the caller warns once. */
CT_MUST_CHECK int ct_tensorboard_add(struct ct_tensorboard *board, int64_t step,
                                     const struct ct_scalar *scalars, size_t count,
                                     struct ct_err *err);

#endif
