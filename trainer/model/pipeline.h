/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's part in a pipeline: its stage's layers of the model, links to the stages below and
 * above, and the communicator of the ranks that have the same stage of other pipelines
 * ("replicas"), with which it sums gradients.
 *
 *     rank = replica * stages + stage
 *     world 4, 2 stages:   replica 0: ranks 0, 1   replica 1: ranks 2, 3
 *
 * Neighbours in a pipeline are neighbours in rank and so mostly on one host. They exchange
 * activations for every micro-batch; replicas sum their gradients once per step. stages.h says
 * which rank has whose parameters.
 */
#ifndef CT_TRAINER_MODEL_PIPELINE_H
#define CT_TRAINER_MODEL_PIPELINE_H

#include "common/err.h"
#include "trainer/model/group.h"
#include "trainer/model/model.h"
#include "worker/ctworker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_pipeline {
    struct ct_device *dev;  /* borrowed */
    struct ct_group *group; /* likewise: all ranks */
    size_t stages, stage;
    size_t micros; /* micro-batches of a full step */
    size_t rows;   /* of one, at most */
    size_t place;  /* of this stage's first layer in the whole model's flat array, */
    size_t base;   /* ... and in the arrays that hold this rank's part of it */
    struct ct_layout layout;
    struct ctw_comm *replicas;      /* the ranks with this stage of the other pipelines */
    struct ctw_link *below, *above; /* NULL at the ends */
    struct ct_model *slots;         /* of micro-batches between their two passes */
    size_t slot_count;
    float *grads, *part; /* of this stage's layers: the step's, and one micro-batch's */

    /* GPUs: what says which samples while steps are recorded, in place of an index; else NULL. */
    const struct ct_step_cursor *cursor;

    /* GPUs: what the host knows of the device. */
    size_t queued;                    /* passes since it has waited */
    size_t seen_rows, seen_test_rows; /* of the last step and piece of an evaluation */
    bool fresh;                       /* products may have shapes that it has to time first */
};

struct ct_pipeline_options {
    size_t stages, micros; /* micros 0: four for each stage */
    size_t rows;           /* of a step, at most */
    size_t test_rows;      /* of one piece of an evaluation, at most */
    size_t layers;         /* of the model */
    bool apart;            /* parameters are of this stage's layers only, not the whole model's */
    int world;
    int rank;
};

/* CT_EINVAL with one line for the user when workers or layers do not suit the stages. */
CT_MUST_CHECK int ct_pipeline_check(const struct ct_pipeline_options *options, struct ct_err *err);

/* Collective over the group, which it borrows. Of what ct_pipeline_check() allows. `narrow` is the
 * parameters' copy in bfloat16, or NULL. Gives *out. */
CT_MUST_CHECK int ct_pipeline_open(const struct ct_pipeline_options *options,
                                   struct ct_group *group, struct ct_device *dev,
                                   const struct ct_layout *whole, const uint16_t *narrow,
                                   struct ct_pipeline **out, struct ct_err *err);
void ct_pipeline_free(struct ct_pipeline *pipe); /* NULL is allowed */

/* Tells the neighbours and the replicas that this rank gives up. */
void ct_pipeline_abort(struct ct_pipeline *pipe);

/* Passes `rows` samples of this replica forward and backward through all stages: pipe->grads get
 * the gradients of (loss sum * scale) by this stage's layers, and on the last stage the totals what
 * ct_model_run() adds. Collective over the replica. `params` are the whole model's, or with `apart`
 * the stage's. */
CT_MUST_CHECK int ct_pipeline_run(struct ct_pipeline *pipe, const float *params,
                                  const struct ct_device_dataset *data, const uint32_t *index,
                                  size_t rows, float scale, double *totals, struct ct_err *err);

/* The totals alone, of at most test_rows samples. Collective over the replica. */
CT_MUST_CHECK int ct_pipeline_evaluate(struct ct_pipeline *pipe, const float *params,
                                       const struct ct_device_dataset *data, const uint32_t *index,
                                       size_t rows, double *totals, struct ct_err *err);

/* Sums pipe->grads over the replicas; [*begin, *end) of them is for this rank to update: its share
 * among the replicas that see the same parameters. */
CT_MUST_CHECK int ct_pipeline_reduce(struct ct_pipeline *pipe, size_t *begin, size_t *end,
                                     struct ct_err *err);

#endif
