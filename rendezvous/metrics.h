/* SPDX-License-Identifier: Apache-2.0
 *
 * The status document as Prometheus text (exposition format 0.0.4). Pure.
 */
#ifndef CT_RENDEZVOUS_METRICS_H
#define CT_RENDEZVOUS_METRICS_H

#include "common/buf.h"
#include "common/err.h"

struct cJSON;

#define CT_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Appends every metric whose field is there. CT_ENOMEM. */
CT_MUST_CHECK int ct_metrics_print(const struct cJSON *status, struct ct_buf *out);

#endif
