/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a training: everything it holds, from the data set to the communicator, and the whole
 * run over it. Nothing here prints: what happens goes out through struct ct_train_events.
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
#include "trainer/model/model.h"
#include "trainer/model/optimizer.h"
#include "trainer/model/pipeline.h"
#include "trainer/model/pipeline_plan.h"
#include "trainer/model/preempt.h"
#include "trainer/model/shards.h"
#include "trainer/model/team.h"
#include "trainer/recovery/checkpoint.h"
#include "trainer/recovery/saver.h"
#include "trainer/recovery/step_snapshot.h"
#include "trainer/session/rates.h"
#include "trainer/session/train_options.h"
#include "worker/ctworker.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Steps without the host: trainer/loop/cuda_graph.h. Zeros where there are none. */
struct ct_cuda_graph {
    bool on, warm;                   /* warm: a whole batch has been queued as ever */
    bool recording;                  /* right now */
    size_t steps;                    /* of `many` */
    struct ct_recording *one, *many; /* NULL until they are needed */
    struct ct_course course;
    uint64_t *now; /* this and the next two: device memory */
    uint32_t *order;
    struct ct_pace *paces;
    struct ct_pace *host_paces;
    uint64_t counted; /* what *now will be when all that is queued is done */
    int lead;         /* replays since the host has waited */
};

/* A copy that outlives a generation: trainer/session/gpu_backup.h. Zeros where there is none. */
struct ct_gpu_backup {
    float *copy;  /* device memory: parameters, then each state of the optimizer */
    int64_t step; /* whose state that is; 0 = none */
    int epoch;    /* and where that stands, as in struct ct_position */
    size_t batch;
    int64_t next_ns; /* no copy before */
    int from;        /* 1 + the rank whose copy this generation began with; 0 = with none */
};

/* Rows of one evaluation pass: large enough for the GEMMs, small enough for the cache. */
#define CT_EVALUATION_ROWS 512

/* The samples. They stay from one generation to the next. */
struct ct_trainer_data {
    struct ct_dataset set;
    struct ct_resident train, test; /* where the device reads them */
    void *uploaded[4];              /* device copies of images and labels; NULL on the CPU */
};

/* The memory of one generation, of the team or the device unless it says otherwise. */
struct ct_trainer_memory {
    struct ct_span held; /* what of the model params and the optimizer have room for */
    float *params, *grads;
    uint16_t *narrow;   /* the parameters in bfloat16; NULL with --precision f32 */
    double *totals;     /* two doubles of the device: loss and hits */
    uint32_t *sequence; /* of the host: 0, 1, 2, ... for evaluation; model.max_rows of them */
    float *host_copy;   /* of the host: the model while it is filled; NULL on the CPU */
    bool scattered;     /* some rank has only some stages' layers, */
    float *transit;     /* ... and on GPUs the others' pass through this */
};

/* How far training is, besides optimizer.step. */
struct ct_position {
    int epoch;         /* epochs done */
    size_t batch;      /* steps done of the epoch after those */
    bool after_report; /* resumed behind an epoch whose report is out, perhaps not its checkpoint */
};

/* The epoch that runs. */
struct ct_epoch_progress {
    size_t first_batch;     /* with which this generation began in it */
    size_t earlier_samples; /* that earlier generations put into its totals */
    struct ct_rates rates;
};

/* GPUs: what has been queued since ct_trainer_await_queue() waited. */
struct ct_queued {
    size_t rows; /* of the last step; 0 before the first */
    int steps;
    size_t most_rows; /* of any step so far */
    int growing;      /* steps that may still have to make room for as many */
};

/* Checkpoints. */
struct ct_saving {
    struct ct_saver *saver; /* on rank 0 when they are asked for */
    int64_t last_ns, last_step;
};

/* Arrays of as many floats as the model has: parameters, then each state of the optimizer. */
struct ct_arrays {
    size_t count;
    float *at[1 + CT_OPTIMIZER_STATES_MAX];
};

struct ct_trainer {
    /* From beginning to end. */
    struct ct_train_options options; /* its texts are borrowed */
    struct ctw_job *job;             /* borrowed; gets the stamps of progress */
    struct ct_device *dev;
    struct ct_trainer_data data;
    struct ct_layout layout;
    struct ct_gpu_backup backup;
    bool stays; /* ready to go on in another generation */

    /* Of one generation. */
    struct ct_team team;
    struct ct_trainer_memory memory;
    struct ct_model model;
    struct ct_pipeline *pipe; /* in place of model and grads; NULL unless --pipeline-stages */
    struct ct_optimizer optimizer;
    struct ct_sampler sampler;
    struct ct_augment augment; /* of data.train; zeros when there is none */
    struct ct_shards shards;
    struct ct_buckets buckets; /* of GPUs with peers; count 0 elsewhere */
    struct ct_cuda_graph graph;
    struct ct_step_snapshot step_snapshot; /* trainer/session/step_resume.h */
    struct ct_saving saving;               /* this and the next: trainer/loop/between_steps.h */
    struct ct_preempt preempt;
    bool preempted;
    struct ct_buf warnings; /* lines for a person, from before there is anybody to tell them to */

    /* Of the run. */
    struct ct_position at;
    struct ct_epoch_progress in_epoch;
    struct ct_queued queued;
    int64_t comm_ns; /* spent on summing gradients and publishing the model */
};

struct ct_epoch_report {
    int epoch, epochs, world_size;
    double loss; /* mean over the epoch's samples, each before its step */
    double test_loss, test_accuracy;
    double samples_per_s; /* of training, without evaluation */
    double us_per_step;
    uint64_t param_hash; /* of the parameters after it */
};

struct ct_train_result {
    double test_accuracy;
    double seconds; /* of the whole run: training, evaluation, checkpoints */
    double samples_per_s;
    uint64_t param_hash; /* of the final parameters */
    bool preempted;      /* stopped early, at an agreed step whose state is saved */
    int64_t step;
    struct ct_saver_counts checkpoints;
};

/* What the run tells on rank 0, on the calling thread. Each may be NULL. */
struct ct_train_events {
    void (*tick)(void *data, const struct ct_step_report *report); /* some times a second */
    void (*step)(void *data, const struct ct_step_report *report); /* every metrics_every steps */
    void (*epoch)(void *data, const struct ct_epoch_report *report);
    void (*warn)(void *data, struct ct_err *warning); /* something failed, training goes on */
    const volatile sig_atomic_t *stop_asked; /* nonzero: stop at the next step all agree on */
    void *data;
};

/* Checks and loads everything that training needs, so that what is wrong is found before it starts.
 * Collective at its end. Borrows the job and the options' texts. Gives *out. */
CT_MUST_CHECK int ct_trainer_new(const struct ct_train_options *options, struct ctw_job *job,
                                 struct ct_trainer **out, struct ct_err *err);
void ct_trainer_free(struct ct_trainer *trainer); /* NULL is allowed */

/* ---- parts of these, for trainer/loop/trainer_next.c ----------------------------------------- */

/* Can be written where this rank will have to? Named when not. */
CT_MUST_CHECK int ct_trainer_probe(const struct ct_trainer *trainer, struct ct_err *err);

/* Collective. Everything from the checkpoint on that is of one generation; the data set is there.
 */
CT_MUST_CHECK int ct_trainer_join(struct ct_trainer *trainer, struct ct_err *err);

/* Ends what is of this generation; the freed fields keep their values. */
void ct_trainer_leave(struct ct_trainer *trainer);

/* Tells the launcher that this process need not be ended with others, where that is worth it. */
void ct_trainer_stay(struct ct_trainer *trainer);

/* ---- a run ----------------------------------------------------------------------------------- */

/* Has a failure with this code a reason that another generation would not have? Only where the
 * launcher can give one, and options.in_process let us. */
bool ct_trainer_goes_on(const struct ct_trainer *trainer, int rc);

/* After such a failure, of ct_trainer_run() or of this: waits for the next generation and joins it,
 * with the newest state that any rank has. The rank may be another one then. When no generation
 * comes, *err stays as it was and its code is returned; CT_EABORTED: the job has ended. */
CT_MUST_CHECK int ct_trainer_next(struct ct_trainer *trainer, struct ct_err *err);

/* Collective. Trains until options.epochs, with evaluation after each and checkpoints as
 * asked for, or until a notice of preemption. A trainer that resumed at the end only evaluates. */
CT_MUST_CHECK int ct_trainer_run(struct ct_trainer *trainer, const struct ct_train_events *events,
                                 struct ct_train_result *result, struct ct_err *err);

/* Tells the peers that this rank gives up: their collectives fail at once. */
void ct_trainer_abort(struct ct_trainer *trainer);

/* One step on global batch `t` of the current epoch. Collective. */
CT_MUST_CHECK int ct_trainer_step(struct ct_trainer *trainer, size_t t, struct ct_err *err);

/* Before a step of `rows` samples is queued on a GPU: waits, where the queueing itself would have
 * to wait for the device, which does not notice that a peer is gone as this does. */
CT_MUST_CHECK int ct_trainer_await_queue(struct ct_trainer *trainer, size_t rows,
                                         struct ct_err *err);

/* The device's part of it, for `rows` samples of this rank out of `global_rows`. */
CT_MUST_CHECK int ct_trainer_queue(struct ct_trainer *trainer, const uint32_t *index, size_t rows,
                                   size_t global_rows, struct ct_err *err);

/* The learning rate on global batch `t` of the current epoch. */
double ct_trainer_rate(const struct ct_trainer *trainer, size_t t);

/* Mean loss and accuracy over the test set, each rank doing its share. Collective. */
CT_MUST_CHECK int ct_trainer_evaluate(struct ct_trainer *trainer, double *loss, double *accuracy,
                                      struct ct_err *err);

/* Loads a checkpoint into the model: on rank 0 of a shared model, and on every rank where each has
 * its own. */
CT_MUST_CHECK int ct_trainer_restore(struct ct_trainer *trainer, const struct ct_safetensors *file,
                                     struct ct_err *err);

struct ct_arrays ct_trainer_arrays(const struct ct_trainer *trainer);

/* Copies the model and the optimizer's state to host memory, laid out as ct_saver_begin() has it.
 * Collective where the model is scattered; `out` is NULL for who only helps. */
CT_MUST_CHECK int ct_trainer_copy_state(struct ct_trainer *trainer, float *out, struct ct_err *err);

/* Opens what --resume asks for and sets the position; `file` stays closed when that is the start.
 */
CT_MUST_CHECK int ct_trainer_open_resume(struct ct_trainer *trainer, struct ct_safetensors *file,
                                         struct ct_err *err);

/* --resume auto? */
bool ct_train_resumes_itself(const struct ct_train_options *options);

#endif
