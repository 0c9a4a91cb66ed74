/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of `train`. One table is used for parsing and --help, and a test compares the
 * manual page with it.
 */
#ifndef CT_TRAINER_SESSION_TRAIN_OPTIONS_H
#define CT_TRAINER_SESSION_TRAIN_OPTIONS_H

#include "common/buf.h"
#include "common/err.h"
#include "trainer/data/augment.h"
#include "trainer/model/lr_schedule.h"
#include "trainer/model/model.h"
#include "trainer/model/optimizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ct_precision_choice {
    CT_PRECISION_AUTO,
    CT_PRECISION_CHOOSE_F32,
    CT_PRECISION_CHOOSE_TF32,
    CT_PRECISION_CHOOSE_BF16,
    CT_PRECISION_CHOOSE_FP8,
};

enum ct_cuda_graph_choice { CT_CUDA_GRAPH_AUTO, CT_CUDA_GRAPH_OFF };

enum ct_snapshot_choice { CT_SNAPSHOT_OFF, CT_SNAPSHOT_STEP };
/* auto: on for GPUs, off for CPUs. */
enum ct_in_process { CT_IN_PROCESS_AUTO, CT_IN_PROCESS_ON, CT_IN_PROCESS_OFF };

enum ct_device_choice { CT_CHOOSE_AUTO, CT_CHOOSE_CPU, CT_CHOOSE_CUDA };

/* The value of --resume that finds the newest checkpoint. */
#define CT_RESUME_AUTO "auto"

/* At most one of them is not 0. */
struct ct_interval {
    int64_t steps, seconds;
};

/* Texts are borrowed from argv. */
struct ct_train_options {
    const char *data; /* folder, "synthetic", or NULL = the default folder */
    const char *checkpoint, *resume, *metrics; /* NULL when not given */
    const char *checkpoint_dir;                /* NULL when not given */
    struct ct_interval checkpoint_every;       /* zeros: after each epoch */
    int keep_checkpoints;
    bool eval_only;      /* needs resume */
    const char *predict; /* NULL when not given */
    struct ct_augment_choice augment;
    int metrics_every;                       /* steps; 0 = only epochs */
    const char *tensorboard, *plot, *output; /* NULL when not given */
    struct ct_hidden hidden;
    int epochs;
    size_t batch_size; /* of all ranks together */
    size_t shards;     /* number of shards (--consistent), a power of two; 0 = not given */
    double lr, momentum, weight_decay;
    enum ct_optimizer_kind optimizer;
    enum ct_schedule schedule;
    enum ct_rate_scale scale_lr;
    size_t base_batch;    /* the batch size that `lr` is for, if scale_lr is on */
    double warmup_epochs; /* below epochs */
    uint64_t seed;
    enum ct_device_choice device;
    int gpus; /* number of GPUs driven by this process; 0 = not given */
    enum ct_snapshot_choice snapshot;
    enum ct_in_process in_process;
    enum ct_precision_choice precision;
    enum ct_cuda_graph_choice cuda_graph;
    size_t bucket_mb;       /* MiB of gradients that GPUs sum at a time */
    size_t pipeline_stages; /* 0 or 1 = every rank has the whole model */
    size_t micro_batches;   /* 0 = four per stage */
    bool help, version;
};

/* Reads argv[1..]. CT_EINVAL with one line that names the option. Parsing stops at --help and
 * --version, so that they work whatever follows. */
CT_MUST_CHECK int ct_train_options_parse(int argc, char *const argv[], struct ct_train_options *out,
                                         struct ct_err *err);

/* Appends the text of --help. */
CT_MUST_CHECK int ct_train_options_help(struct ct_buf *out);

const char *ct_train_version(void);

#endif
