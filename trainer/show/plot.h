/* SPDX-License-Identifier: Apache-2.0
 *
 * --plot: loss, test accuracy and throughput by epoch, drawn as SVG from a file of --metrics.
 */
#ifndef CT_TRAINER_SHOW_PLOT_H
#define CT_TRAINER_SHOW_PLOT_H

#include "common/buf.h"
#include "common/err.h"

/* Appends the drawing of the metrics in `text`, which it changes. Where an epoch stands there again
 * (a restart), the later one counts; lines that are no epoch's are passed over. CT_ENOENT when
 * there is none. Pure. */
CT_MUST_CHECK int ct_plot_draw(char *text, struct ct_buf *out, struct ct_err *err);

/* Reads `metrics` and writes `svg`, whole or not at all. Text names the file. */
CT_MUST_CHECK int ct_plot_file(const char *metrics, const char *svg, struct ct_err *err);

#endif
