/* SPDX-License-Identifier: Apache-2.0
 *
 * --plot: loss, test accuracy and throughput by step, drawn as SVG from files of --metrics.
 */
#ifndef CT_TRAINER_SHOW_PLOT_H
#define CT_TRAINER_SHOW_PLOT_H

#include "common/buf.h"
#include "common/err.h"

#include <stddef.h>

/* Runs in one drawing. */
#define CT_PLOT_RUNS_MAX 8

/* Borrowed; `text` is changed. */
struct ct_plot_source {
    const char *name; /* shown if there are several */
    char *text;       /* lines that --metrics has written */
};

/* Appends the drawing of these runs. Where an epoch or a step stands there again (a restart), the
 * later one counts; other lines are passed over. CT_ENOENT when a run has no line of an epoch,
 * CT_ELIMIT for too many runs. Pure. */
CT_MUST_CHECK int ct_plot_draw(const struct ct_plot_source *sources, size_t count,
                               struct ct_buf *out, struct ct_err *err);

/* Reads the files named in `metrics`, with commas between them, and writes `svg`, whole or not at
 * all. The text of an error names the file. */
CT_MUST_CHECK int ct_plot_file(const char *metrics, const char *svg, struct ct_err *err);

#endif
