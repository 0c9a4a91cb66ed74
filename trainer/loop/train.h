/* SPDX-License-Identifier: Apache-2.0
 *
 * The run of one rank. Nothing here prints: the caller learns what happens through struct
 * ct_train_events.
 */
#ifndef CT_TRAINER_LOOP_TRAIN_H
#define CT_TRAINER_LOOP_TRAIN_H

#include "common/err.h"
#include "trainer/recovery/saver.h"
#include "trainer/session/rates.h"
#include "trainer/session/trainer.h"
#include "trainer/session/warm_parts.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ct_epoch_report {
    int epoch, epochs, world_size;
    int64_t step; /* steps of the training so far */
    double loss;  /* mean over the epoch's samples, each measured before its step */
    double test_loss, test_accuracy;
    double samples_per_s; /* while training, without evaluation */
    double us_per_step;
    uint64_t param_hash; /* of the parameters after the epoch */
};

struct ct_train_result {
    double test_accuracy;
    double seconds; /* of the whole run, with evaluation and checkpoints */
    double samples_per_s;
    uint64_t param_hash; /* of the final parameters */
    bool preempted; /* stopped early, after a step on which all agreed and whose state is saved */
    int64_t step;
    struct ct_saver_counts checkpoints;
};

/* Callbacks of the run, called on rank 0's calling thread. Each may be NULL. */
struct ct_train_events {
    void (*tick)(void *data, const struct ct_step_report *report); /* a few times a second */
    void (*step)(void *data, const struct ct_step_report *report); /* every metrics_every steps */
    void (*epoch)(void *data, const struct ct_epoch_report *report);
    void (*warn)(void *data, struct ct_err *warning); /* something failed, but training continues */
    const atomic_int *stop_asked; /* nonzero: stop at the next step all agree on */
    void *data;
};

/* Checks and loads everything that training needs, so that errors show before it starts. Collective
 * at its end. Borrows the job and the options' texts. `parts` is what a spare has made ready, NULL
 * = nothing; the trainer takes it over, also if it fails. `all_there` is called when all ranks are
 * there, before the state is taken from memory or a file; NULL = it is not. Gives *out. */
CT_MUST_CHECK int ct_trainer_new(const struct ct_train_options *options, struct ctw_job *job,
                                 struct ct_warm_parts *parts,
                                 void (*all_there)(const struct ct_train_options *options),
                                 struct ct_trainer **out, struct ct_err *err);
void ct_trainer_free(struct ct_trainer *trainer); /* NULL is allowed */

/* ---- parts of these, for trainer/loop/trainer_next.c ----------------------------------------- */

/* Checks that this rank can write the files of the options. *err names a file that it cannot. */
CT_MUST_CHECK int ct_trainer_probe(const struct ct_train_options *options, struct ctw_job *job,
                                   struct ct_err *err);

/* Collective. Opens everything of one generation, from the checkpoint on, but not the data set. */
CT_MUST_CHECK int ct_trainer_join(struct ct_trainer *trainer, struct ct_err *err);

/* Frees everything of this generation. The freed fields keep their values. */
void ct_trainer_leave(struct ct_trainer *trainer);

/* Tells the launcher, if that saves time, that this process can stay when others fail. */
void ct_trainer_stay(struct ct_trainer *trainer);

/* ---- a run ----------------------------------------------------------------------------------- */

/* Can this process continue in the next generation after a failure with this code? It can if the
 * failure came from outside and launcher and options allow it. */
bool ct_trainer_goes_on(const struct ct_trainer *trainer, int rc);

/* Call it after such a failure of ct_trainer_run() or of this function. It waits for the next
 * generation and joins it with the newest state of any rank; the rank of this process may change.
 * If there is no next generation, *err does not change and its code is returned. CT_EABORTED: the
 * job has ended. */
CT_MUST_CHECK int ct_trainer_next(struct ct_trainer *trainer, struct ct_err *err);

/* Collective. Trains until options.epochs or a notice of preemption, with an evaluation after each
 * epoch and the checkpoints as asked for. A trainer that resumed at the end only evaluates. */
CT_MUST_CHECK int ct_trainer_run(struct ct_trainer *trainer, const struct ct_train_events *events,
                                 struct ct_train_result *result, struct ct_err *err);

/* Tells the peers that this rank gives up, so that their collectives fail at once. */
void ct_trainer_abort(struct ct_trainer *trainer);

/* Collective. Makes one step on global batch `t` of the current epoch. */
CT_MUST_CHECK int ct_trainer_step(struct ct_trainer *trainer, size_t t, struct ct_err *err);

/* Call it before a step of `rows` samples is queued on a GPU. It waits for the device if queueing
 * would. This wait ends if a peer dies; that of queueing does not. */
CT_MUST_CHECK int ct_trainer_await_queue(struct ct_trainer *trainer, size_t rows,
                                         struct ct_err *err);

/* Queues the device's part of a step, for `rows` of the `global_rows` samples. */
CT_MUST_CHECK int ct_trainer_queue(struct ct_trainer *trainer, const uint32_t *index, size_t rows,
                                   size_t global_rows, struct ct_err *err);

/* The learning rate on global batch `t` (from 0) of the current epoch, or of epoch `epoch`. */
double ct_trainer_rate(const struct ct_trainer *trainer, size_t t);
double ct_trainer_rate_of(const struct ct_trainer *trainer, int epoch, size_t t);

/* Collective. Gives mean loss and accuracy over the test set; each rank computes its share. */
CT_MUST_CHECK int ct_trainer_evaluate(struct ct_trainer *trainer, double *loss, double *accuracy,
                                      struct ct_err *err);

#endif
