/* SPDX-License-Identifier: Apache-2.0
 *
 * Who computes what in a pipeline: which stage has which layers, and in which order a stage works
 * on the micro-batches of a step. Pure.
 *
 * The order is 1F1B (PipeDream-Flush): a stage runs ahead by as many forward passes as there are
 * stages behind it, then alternates forward and backward, then works off the rest. So at most
 * ct_pipe_depth() micro-batches wait for their backward pass on a stage, however many there are.
 *
 *     stages 3, micro-batches 4          stage 0   F0 F1 F2 B0 F3 B1 B2 B3
 *                                        stage 1   F0 F1 B0 F2 B1 F3 B2 B3
 *                                        stage 2   F0 B0 F1 B1 F2 B2 F3 B3
 *
 * Between neighbours one message has to fit into each direction, no more: the stage above has taken
 * activation k before it waits to get rid of a gradient that the stage below takes only after it
 * has sent activation k.
 */
#ifndef CT_TRAINER_MODEL_PIPELINE_SCHEDULE_H
#define CT_TRAINER_MODEL_PIPELINE_SCHEDULE_H

#include "trainer/model/model.h"

#include <stdbool.h>
#include <stddef.h>

/* Stage s gets layers [*first, *end) of the model: consecutive, each stage at least one, so that
 * the stage with the most multiplications has as few as can be. 1 <= stages <= layers, s < stages.
 */
void ct_pipe_layers(const struct ct_layout *layout, size_t stages, size_t s, size_t *first,
                    size_t *end);

/* A part of a model's flat array. */
struct ct_span {
    size_t first, count;
};

/* The floats of those layers. */
struct ct_span ct_pipe_span(const struct ct_layout *layout, size_t stages, size_t s);

struct ct_pipe_action {
    bool backward;
    size_t micro; /* number of the micro-batch */
};

/* What stage `s` does as number `i` of 2 * micros. */
struct ct_pipe_action ct_pipe_action(size_t stages, size_t s, size_t micros, size_t i);

/* Most micro-batches that stage `s` has between their two passes, that of now included. Their
 * numbers are consecutive. */
size_t ct_pipe_depth(size_t stages, size_t s, size_t micros);

#endif
