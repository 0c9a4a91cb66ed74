/* SPDX-License-Identifier: Apache-2.0
 *
 * Each line is formatted in memory and written in one call, so that readers see whole lines only.
 * After a failed write the file is closed and the error returned; training continues without it.
 */
#include "trainer/show/metrics.h"

#include "common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

int ct_metrics_open(struct ct_metrics *metrics, const char *path, struct ct_err *err)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        int saved = errno;
        return ct_err_sys(err, ct_code_from_errno(saved), saved, "cannot write metrics to %s",
                          path);
    }
    metrics->fd = fd;
    metrics->path = path;
    return 0;
}

void ct_metrics_close(struct ct_metrics *metrics)
{
    if (metrics->fd >= 0) {
        (void)close(metrics->fd);
    }
    metrics->fd = -1;
    ct_buf_fini(&metrics->scratch);
}

/* `rc` is the result of formatting the line. */
static int write_line(struct ct_metrics *metrics, int rc, struct ct_err *err)
{
    if (rc == 0) {
        rc = ct_fd_write_all(metrics->fd, ct_buf_bytes(&metrics->scratch), metrics->scratch.len);
    }
    if (rc != 0) {
        int saved = rc == CT_ENOMEM ? ENOMEM : errno;
        ct_metrics_close(metrics);
        return ct_err_sys(err, rc, saved, "cannot write metrics to %s, going on without",
                          metrics->path);
    }
    return 0;
}

/* Formats a loss. JSON has neither NaN nor infinity, so those become null. */
static const char *json_loss(double loss, char out[32])
{
    if (!isfinite(loss)) {
        return "null";
    }
    (void)snprintf(out, 32, "%.9g", loss);
    return out;
}

int ct_metrics_epoch(struct ct_metrics *metrics, const struct ct_epoch_report *report,
                     struct ct_err *err)
{
    if (metrics->fd < 0) {
        return 0;
    }
    char loss[32], test_loss[32];
    ct_buf_reset(&metrics->scratch);
    int rc = ct_buf_printf(
        &metrics->scratch,
        "{\"event\":\"epoch\",\"epoch\":%d,\"step\":%lld,\"loss\":%s,\"test_loss\":%s,"
        "\"test_accuracy\":%.9g,\"samples_per_s\":%.6g,\"world_size\":%d,"
        "\"param_hash\":\"%016llx\"}\n",
        report->epoch, (long long)report->step, json_loss(report->loss, loss),
        json_loss(report->test_loss, test_loss), report->test_accuracy, report->samples_per_s,
        report->world_size, (unsigned long long)report->param_hash);
    return write_line(metrics, rc, err);
}

int ct_metrics_step(struct ct_metrics *metrics, const struct ct_step_report *report,
                    struct ct_err *err)
{
    if (metrics->fd < 0) {
        return 0;
    }
    char loss[32];
    ct_buf_reset(&metrics->scratch);
    int rc = ct_buf_printf(&metrics->scratch,
                           "{\"event\":\"step\",\"step\":%lld,\"epoch\":%d,\"loss\":%s,"
                           "\"accuracy\":%.9g,\"samples_per_s\":%.6g,\"comm_share\":%.4g,"
                           "\"lr\":%.9g}\n",
                           (long long)report->step, report->epoch, json_loss(report->loss, loss),
                           report->accuracy, report->samples_per_s, report->comm_share, report->lr);
    return write_line(metrics, rc, err);
}

int ct_metrics_done(struct ct_metrics *metrics, const struct ct_train_result *result,
                    struct ct_err *err)
{
    if (metrics->fd < 0) {
        return 0;
    }
    ct_buf_reset(&metrics->scratch);
    int rc = ct_buf_printf(&metrics->scratch,
                           "{\"event\":\"done\",\"test_accuracy\":%.9g,\"seconds\":%.6g,"
                           "\"samples_per_s\":%.6g,\"param_hash\":\"%016llx\"}\n",
                           result->test_accuracy, result->seconds, result->samples_per_s,
                           (unsigned long long)result->param_hash);
    return write_line(metrics, rc, err);
}
