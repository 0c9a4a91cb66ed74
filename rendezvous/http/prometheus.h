/* SPDX-License-Identifier: Apache-2.0
 *
 * The status document as Prometheus text (exposition format 0.0.4). Pure.
 */
#ifndef CT_RENDEZVOUS_HTTP_PROMETHEUS_H
#define CT_RENDEZVOUS_HTTP_PROMETHEUS_H

#include "common/buf.h"
#include "common/err.h"

struct cJSON;
struct ct_status_rows;

#define CT_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends the metrics of the fields that are there, and of the workers in `rows`. CT_ENOMEM. */
CT_MUST_CHECK int ct_prometheus_print(const struct cJSON *status, const struct ct_status_rows *rows,
                                      struct ct_buf *out);

#endif
