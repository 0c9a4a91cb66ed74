/* SPDX-License-Identifier: Apache-2.0
 *
 * --metrics FILE: one JSON object per line, appended as it happens.
 *
 *     {"event":"epoch","epoch":1,"loss":0.5,"test_loss":0.4,"test_accuracy":0.85,
 *      "samples_per_s":200000,"world_size":2,"param_hash":"0123456789abcdef"}    (in one line)
 *     {"event":"step","step":100,"epoch":1,"loss":0.6,"accuracy":0.8,"samples_per_s":200000,
 *      "comm_share":0.05,"lr":0.001}
 *     {"event":"done","test_accuracy":0.89,"seconds":6.1,"samples_per_s":210000,
 *      "param_hash":"0123456789abcdef"}                                          (in one line)
 */
#ifndef CT_TRAINER_SHOW_METRICS_H
#define CT_TRAINER_SHOW_METRICS_H

#include "common/buf.h"
#include "common/err.h"
#include "trainer/loop/train.h"

struct ct_metrics {
    int fd;                /* -1: no file was asked for, or a write has failed */
    const char *path;      /* borrowed, for messages */
    struct ct_buf scratch; /* the line that is being formatted */
};

#define CT_METRICS_INIT                  \
    {                                    \
        .fd = -1, .scratch = CT_BUF_INIT \
    }

/* Opens the file for appending, or creates it. `path` must stay valid until ct_metrics_close(),
 * because messages name it. */
CT_MUST_CHECK int ct_metrics_open(struct ct_metrics *metrics, const char *path, struct ct_err *err);
void ct_metrics_close(struct ct_metrics *metrics);

/* Each appends one line; without an open file it does nothing. After a failure, such as a full
 * disk, the file is closed: the caller warns once and training continues. */
CT_MUST_CHECK int ct_metrics_epoch(struct ct_metrics *metrics, const struct ct_epoch_report *report,
                                   struct ct_err *err);
CT_MUST_CHECK int ct_metrics_step(struct ct_metrics *metrics, const struct ct_step_report *report,
                                  struct ct_err *err);
CT_MUST_CHECK int ct_metrics_done(struct ct_metrics *metrics, const struct ct_train_result *result,
                                  struct ct_err *err);

#endif
