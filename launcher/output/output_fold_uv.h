/* SPDX-License-Identifier: Apache-2.0
 *
 * Equal lines of several streams on their way to a terminal (fold.h).
 */
#ifndef CT_LAUNCHER_OUTPUT_OUTPUT_FOLD_UV_H
#define CT_LAUNCHER_OUTPUT_OUTPUT_FOLD_UV_H

#include "launcher/output/output_uv.h"
#include "launcher/output/sink_uv.h"

/* Takes lines of a stream that folds, on their way to its sink. */
void ct_output_fold_pass(struct ct_output_stream *stream, const struct ct_buf *batch);

/* Sends what waits in the fold of this sink on its way. */
void ct_output_fold_flush(struct ct_output *output, struct ct_sink *sink);

#endif
