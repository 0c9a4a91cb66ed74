/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a training: all that it needs, from the data set to the communicator.
 */
#ifndef CT_TRAINER_SESSION_TRAINER_H
#define CT_TRAINER_SESSION_TRAINER_H

#include "common/buf.h"
#include "common/err.h"
#include "kernels/device/device.h"
#include "trainer/data/augment.h"
#include "trainer/data/dataset.h"
#include "trainer/data/sampler.h"
#include "trainer/model/buckets.h"
#include "trainer/model/group.h"
#include "trainer/model/model.h"
#include "trainer/model/optimizer.h"
#include "trainer/model/pipeline.h"
#include "trainer/model/pipeline_schedule.h"
#include "trainer/model/preempt.h"
#include "trainer/model/shards.h"
#include "trainer/recovery/checkpoint.h"
#include "trainer/recovery/saver.h"
#include "trainer/recovery/step_snapshot.h"
#include "trainer/session/rates.h"
#include "trainer/session/train_options.h"
#include "worker/ctworker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Steps that are replayed without the host: trainer/loop/cuda_graph.h. Zeros where they are not. */
struct ct_cuda_graph {
    bool on, warm;                   /* warm: a whole batch has been queued step by step */
    bool recording;                  /* the device is recording right now */
    size_t steps;                    /* of `many` */
    struct ct_recording *one, *many; /* NULL until they are needed */
    struct ct_step_cursor cursor;
    uint64_t *now;    /* device memory: the epoch's block begins with this number, */
    void *host[2];    /* ... and is copied from one of these, by turns */
    size_t block;     /* bytes */
    int turn;         /* which is next */
    int prepared;     /* 1 + the epoch whose block has been queued ahead; 0 = none */
    uint64_t counted; /* the value of *now after all queued work */
    int lead;         /* replays since the host last waited */
};

/* A copy that outlives a generation: trainer/session/gpu_backup.h. Zeros where there is none. */
struct ct_gpu_backup {
    float *copy;  /* device memory: parameters, then each state of the optimizer */
    int64_t step; /* the step after which the copy was made; 0 = there is none */
    int epoch;    /* this and batch: the position of that step, as in struct ct_position */
    size_t batch;
    int64_t next_ns; /* the earliest time of the next copy */
    int from;        /* 1 + the rank whose copy this generation began with; 0 = it began without */
};

/* Rows of one evaluation pass: enough for efficient products, few enough for the cache. */
#define CT_EVALUATION_ROWS 512

/* The samples, kept from one generation to the next. */
struct ct_trainer_data {
    struct ct_dataset set;
    struct ct_device_dataset train, test; /* at the addresses that the device reads */
    void *uploaded[4];                    /* device copies of images and labels; NULL on the CPU */
};

/* The memory of one generation. The group or the device owns it, except fields "of the host". */
struct ct_trainer_memory {
    struct ct_span held; /* the range of the model that has memory */
    float *params, *grads;
    uint16_t *narrow;   /* the parameters in bfloat16; NULL with --precision f32 */
    double *totals;     /* two doubles of the device: loss and hits */
    uint32_t *sequence; /* of the host: 0, 1, 2, ... for evaluation; model.max_rows of them */
    float *host_copy;   /* of the host: the model while it is filled; NULL on the CPU */
    bool scattered;     /* this machine or GPU lacks the layers of other stages */
    float *transit;     /* on GPUs: layers of other stages pass through it into a checkpoint */
};

/* The position of the training, besides optimizer.step. */
struct ct_position {
    int epoch;         /* number of epochs done */
    size_t batch;      /* number of steps done of the next epoch */
    bool after_report; /* resumed after an epoch's report; its checkpoint may still be missing */
};

/* The current epoch. */
struct ct_epoch_progress {
    size_t first_batch;     /* the first batch of this generation */
    size_t earlier_samples; /* samples of earlier generations in the totals */
    struct ct_rates rates;
};

/* On GPUs: the steps queued since ct_trainer_await_queue() waited. */
struct ct_queued {
    size_t rows; /* of the last step; 0 before the first */
    int steps;
    size_t most_rows; /* of any step so far */
    int growing;      /* number of steps that may still have to enlarge a buffer */
};

/* The state of saving checkpoints. */
struct ct_saving {
    struct ct_saver *saver; /* on rank 0, if checkpoints are asked for */
    int64_t last_ns, last_step;
};

/* All arrays as long as the model: parameters, then each optimizer state. */
struct ct_arrays {
    size_t count;
    float *at[1 + CT_OPTIMIZER_STATES_MAX];
};

struct ct_trainer {
    /* For the whole life of the trainer: */
    struct ct_train_options options; /* its texts are borrowed */
    struct ctw_job *job;             /* borrowed; its progress page is written */
    struct ct_device *dev;
    struct ct_trainer_data data;
    struct ct_layout layout;
    struct ct_gpu_backup backup;
    bool stays; /* it can continue in another generation */
    void (*all_there)(const struct ct_train_options *options); /* see ct_trainer_new() */

    /* For one generation: */
    struct ct_group group;
    int device_tries; /* how often this rank has told or heard what rank 0 computes on */
    struct ct_trainer_memory memory;
    struct ct_model model;
    struct ct_pipeline *pipe; /* replaces model and grads; NULL without --pipeline-stages */
    struct ct_optimizer optimizer;
    struct ct_sampler sampler;
    struct ct_augment augment; /* of data.train; zeros if not augmented */
    struct ct_shards shards;
    struct ct_buckets buckets; /* on GPUs; otherwise count is 0 */
    struct ct_cuda_graph graph;
    struct ct_step_snapshot step_snapshot; /* trainer/session/step_resume.h */
    struct ct_saving saving; /* for this and the next see trainer/loop/between_steps.h */
    struct ct_preempt preempt;
    bool preempted;
    struct ct_buf warnings; /* lines for the user, from before the outputs were open */

    /* For the run: */
    struct ct_position at;
    struct ct_epoch_progress in_epoch;
    struct ct_queued queued;
    int64_t comm_ns; /* spent on summing gradients and publishing the model */
};

/* Loads a checkpoint into the model: on rank 0 if the model is shared, otherwise on every rank. */
CT_MUST_CHECK int ct_trainer_restore(struct ct_trainer *trainer, const struct ct_safetensors *file,
                                     struct ct_err *err);

struct ct_arrays ct_trainer_arrays(float *params, const struct ct_optimizer *optimizer);

/* Copies the model and the optimizer's state to host memory in the layout of ct_saver_begin().
 * Collective if the model is scattered; `out` is NULL on ranks that only send their part. */
CT_MUST_CHECK int ct_trainer_copy_state(struct ct_trainer *trainer, float *out, struct ct_err *err);

/* Opens the checkpoint of --resume and sets the position. If training starts from the beginning,
 * `file` stays closed. */
CT_MUST_CHECK int ct_trainer_open_resume(struct ct_trainer *trainer, struct ct_safetensors *file,
                                         struct ct_err *err);

/* Was --resume auto given? */
bool ct_train_resumes_itself(const struct ct_train_options *options);

#endif
