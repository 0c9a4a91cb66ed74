/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a trainer and joins a generation, in a fixed order. First come all checks that need no
 * peer. Then device and communicator are opened, ranks check that they train the same, and memory
 * is allocated. The model is filled from the newest of: what the last generation left, a
 * checkpoint, random numbers. A failure frees everything and aborts the communicator, so that peers
 * do not wait.
 */
#include "trainer/loop/train.h"

#include "common/alloc.h"
#include "common/file.h"
#include "trainer/data/dataset_cache.h"
#include "trainer/loop/between_steps.h"
#include "trainer/loop/cuda_graph.h"
#include "trainer/recovery/checkpoint_dir.h"
#include "trainer/session/config_check.h"
#include "trainer/session/gpu_backup.h"
#include "trainer/session/stages.h"
#include "trainer/session/step_resume.h"
#include "worker/comm/comm.h"
#include "worker/job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int out_of_memory(struct ct_err *err)
{
    return ct_err_set(err, CT_ENOMEM, "out of memory");
}

/* ---- device and peers ------------------------------------------------------------------------ */

static enum ct_precision precision_of(enum ct_precision_choice choice)
{
    static const enum ct_precision precisions[] = {
        [CT_PRECISION_AUTO] = CT_PRECISION_F32,
        [CT_PRECISION_CHOOSE_F32] = CT_PRECISION_F32,
        [CT_PRECISION_CHOOSE_TF32] = CT_PRECISION_TF32,
        [CT_PRECISION_CHOOSE_BF16] = CT_PRECISION_BF16,
        [CT_PRECISION_CHOOSE_FP8] = CT_PRECISION_FP8,
    };
    return precisions[choice];
}

/* Rank 0 tells what it computes on, and the others compare. With --device auto a rank may have
 * chosen otherwise, as when it has lost its GPU: then all would wait for each other in vain. They
 * wait for rank 0 as long as they would for the communicator that comes next. */
static int agree_on_device(struct ct_trainer *t, struct ct_err *err)
{
    static const char *const names[] = {[CT_DEVICE_CPU] = "a CPU", [CT_DEVICE_CUDA] = "a GPU"};
    const struct ctw_env *env = ctw_job_env(t->job);
    const char own = (char)('0' + (int)t->dev->kind);
    char key[32];
    struct ct_buf told = CT_BUF_INIT;
    if (t->options.device != CT_CHOOSE_AUTO || !env->launched || env->world_size == 1) {
        return 0;
    }
    (void)snprintf(key, sizeof(key), "device/%d", t->device_tries++);
    if (env->rank == 0) {
        return ctw_job_set(t->job, key, &own, 1, err);
    }
    int rc = ctw_job_get_within(t->job, key, COMM_TIMEOUT_MS, &told, err);
    bool same = rc == 0 && told.len == 1 && *(const char *)ct_buf_bytes(&told) == own;
    ct_buf_fini(&told);
    if (rc != 0) {
        (void)ct_err_wrap(err, "cannot learn what rank 0 computes on");
        return rc;
    }
    return same ? 0
                : ct_err_set(err, CT_EIO,
                             "rank %d has chosen %s, but rank 0 has not: is a GPU lost, or its "
                             "driver? --device cuda or --device cpu chooses for all",
                             env->rank, names[t->dev->kind]);
}

static int open_group(struct ct_trainer *t, struct ct_err *err)
{
    int agreed = agree_on_device(t, err);
    if (agreed != 0) {
        return agreed;
    }
    enum ctw_order order = t->options.shards > 0 ? CTW_ORDER_TREE : CTW_ORDER_RANK;
    if (t->dev->kind == CT_DEVICE_CPU) {
        int rc = ct_shards_check_machines(t->options.shards, ctw_job_env(t->job), err);
        if (rc != 0) {
            return rc;
        }
    }
    return ct_group_open(t->job, t->dev, order, &t->group, err);
}

static int open_on(struct ct_trainer *t, struct ctw_job *job, enum ct_device_kind kind,
                   struct ct_err *err)
{
    int index = kind == CT_DEVICE_CUDA ? ctw_job_env(job)->device_index : 0;
    int rc = ct_device_open(kind, index, &t->dev, err);
    if (rc != 0) {
        return rc;
    }
    enum ct_precision precision = precision_of(t->options.precision);
    rc = ct_device_set_precision(t->dev, precision, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "--precision %s", ct_precision_name(precision));
        goto fail;
    }
    rc = open_group(t, err);
    if (rc != 0) {
        goto fail;
    }
    return 0;
fail:
    t->dev->ops->close(t->dev);
    t->dev = NULL;
    return rc;
}

/* A device that was there in an earlier generation is lost. That is no error of the options, which
 * no restart could mend: another machine may take its place. */
static int call_it_lost(const struct ctw_env *env, int rc, struct ct_err *err)
{
    if (rc != CT_EUNSUPPORTED || env->generation == 0) {
        return rc;
    }
    if (err != NULL) {
        err->code = CT_EIO;
    }
    return CT_EIO;
}

/* All ranks must choose alike, so the choice depends only on what all ranks of a host share. */
static int open_device(struct ct_trainer *t, struct ctw_job *job, struct ct_err *err)
{
    if (t->options.device == CT_CHOOSE_CPU) {
        return open_on(t, job, CT_DEVICE_CPU, err);
    }
    const struct ctw_env *env = ctw_job_env(job);
    int workers = env->local_world_size;
    int count = ct_device_cuda_count();
    /* If the launcher has masked the other GPUs, the worker's own is the only one. */
    bool enough = env->device_own ? env->device_index < count : count >= workers;
    if (t->options.device == CT_CHOOSE_CUDA) {
        /* With --share-gpu the launcher gives several workers one GPU, which NCCL takes from 2.30
         * on. If there is no device at all, opening one gives the better message. */
        bool shares = env->device_set && env->device_index < count;
        int rc =
            count > 0 && !enough && !shares
                ? ct_err_set(err, CT_EUNSUPPORTED,
                             "--device cuda: %d workers on this host but only %d CUDA device%s",
                             workers, count, count == 1 ? "" : "s")
                : open_on(t, job, CT_DEVICE_CUDA, err);
        return call_it_lost(env, rc, err);
    }
    int rc = CT_EUNSUPPORTED;
    if (enough) {
        rc = open_on(t, job, CT_DEVICE_CUDA, err);
    }
    return rc == CT_EUNSUPPORTED ? open_on(t, job, CT_DEVICE_CPU, err) : rc;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int upload_bytes(struct ct_device *dev, void **copy, const uint8_t *bytes, size_t len,
                        const uint8_t **out, struct ct_err *err)
{
    if (dev->kind == CT_DEVICE_CPU) {
        *out = bytes;
        return 0;
    }
    int rc = dev->ops->alloc(dev, len, copy, err);
    if (rc != 0) {
        return rc;
    }
    rc = dev->ops->upload(dev, *copy, bytes, len, err);
    if (rc != 0) {
        return rc;
    }
    *out = *copy;
    return 0;
}

/* Puts images and labels where the device reads them. `copies` gets the device memory for that. */
static int make_resident(struct ct_device *dev, const struct ct_dataset *set, void **copies,
                         const struct ct_split *split, struct ct_device_dataset *out,
                         struct ct_err *err)
{
    out->mean = set->mean;
    out->stddev = set->stddev;
    int rc = upload_bytes(dev, &copies[0], split->images, split->count * set->features,
                          &out->images, err);
    if (rc != 0) {
        return rc;
    }
    return upload_bytes(dev, &copies[1], split->labels, split->count, &out->labels, err);
}

/* Gradients, parameters and the optimizer's state, of the part of the model that this rank holds. A
 * pipeline has gradients of its own. */
static int alloc_held(struct ct_trainer *t, struct ct_err *err)
{
    size_t count = t->memory.held.count;
    if (t->options.pipeline_stages <= 1) {
        int rc = ct_group_alloc_gradients(&t->group, count, &t->memory.grads, err);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = ct_group_alloc_model(&t->group, count, &t->memory.params, err);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; ct_optimizer_state_name(t->optimizer.kind, i) != NULL; i++) {
        rc = ct_group_alloc_model(&t->group, count, &t->optimizer.state[i], err);
        if (rc != 0) {
            return rc;
        }
    }
    if (!ct_precision_narrow(t->dev->precision)) {
        return 0;
    }
    float *narrow;
    rc = ct_group_alloc_model(&t->group, count / 2 + 1, &narrow, err);
    if (rc != 0) {
        return rc;
    }
    t->memory.narrow = (uint16_t *)narrow;
    t->optimizer.narrow = t->memory.narrow;
    return 0;
}

/* Opens what computes gradients: a pipeline for `share` samples of a step, or the whole model for
 * `rows` at a time. */
static int open_model(struct ct_trainer *t, size_t share, size_t rows, struct ct_err *err)
{
    if (t->options.pipeline_stages > 1) {
        return ct_stages_open(t, share, err);
    }
    int rc = ct_model_init(&t->model, &t->layout, t->dev, rows, err);
    if (rc != 0) {
        return rc;
    }
    t->model.narrow = t->memory.narrow;
    if (t->dev->kind == CT_DEVICE_CUDA) {
        size_t bytes = t->group.comm != NULL ? t->options.bucket_mb << 20 : CT_BUCKET_UPDATE_BYTES;
        ct_buckets_init(&t->buckets, &t->layout, bytes, &t->group, t->memory.grads);
        ct_buckets_update(&t->buckets, &t->optimizer, t->memory.params);
        t->model.layer_done = ct_buckets_layer_done;
        t->model.layer_done_data = &t->buckets;
    }
    return 0;
}

static int alloc_all(struct ct_trainer *t, struct ct_err *err)
{
    size_t share = (t->sampler.batch - 1) / (size_t)t->sampler.world + 1;
    if (t->options.shards > 0) {
        ct_shards_init(&t->shards, t->options.shards, t->group.rank, t->group.world);
        share = ct_shards_rows(&t->shards, t->sampler.batch);
    }
    size_t rows = share > CT_EVALUATION_ROWS ? share : CT_EVALUATION_ROWS;
    void *totals;
    t->memory.held = ct_stages_held(t);
    int rc = alloc_held(t, err);
    if (rc != 0) {
        return rc;
    }
    rc = open_model(t, share, rows, err);
    if (rc != 0) {
        return rc;
    }
    rc = t->dev->ops->alloc(t->dev, 2 * sizeof *t->memory.totals, &totals, err);
    if (rc != 0) {
        return rc;
    }
    t->memory.totals = totals;
    t->memory.sequence = ct_calloc(rows, sizeof *t->memory.sequence);
    if (t->dev->kind != CT_DEVICE_CPU) {
        t->memory.host_copy =
            ct_calloc(t->layout.count * (1 + CT_OPTIMIZER_STATES_MAX), sizeof *t->memory.host_copy);
    }
    if (t->memory.sequence == NULL ||
        (t->dev->kind != CT_DEVICE_CPU && t->memory.host_copy == NULL)) {
        return out_of_memory(err);
    }
    for (size_t i = 0; i < rows; i++) {
        t->memory.sequence[i] = (uint32_t)i;
    }
    return 0;
}

/* ---- initial values -------------------------------------------------------------------------- */

static int draw_params(struct ct_trainer *t, struct ct_err *err)
{
    float *host = t->memory.host_copy != NULL ? t->memory.host_copy : t->memory.params;
    ct_layout_draw(&t->layout, t->options.seed, host);
    if (host == t->memory.params) {
        return 0;
    }
    return t->dev->ops->upload(t->dev, t->memory.params, host + t->memory.held.first,
                               t->memory.held.count * sizeof(float), err);
}

/* Gives this rank's copy of the model its values, from the newest there are. */
static int fill_own(struct ct_trainer *t, const struct ct_safetensors *file, struct ct_err *err)
{
    int rc = 0;
    if (t->backup.from > 0) {
        rc = ct_gpu_backup_fill(t, err);
    } else if (!ct_step_resume_fill(t)) {
        rc = file != NULL ? ct_trainer_restore(t, file, err) : draw_params(t, err);
    }
    if (rc != 0) {
        return rc;
    }
    if (t->memory.narrow == NULL) {
        return 0;
    }
    return t->dev->ops->narrow(t->dev, t->memory.held.count, t->memory.params, t->memory.narrow,
                               err);
}

static int broadcast_model(struct ct_trainer *t, struct ct_err *err)
{
    size_t bytes = t->layout.count * sizeof(float);
    int rc = ct_group_broadcast(&t->group, t->memory.params, bytes, err);
    if (rc != 0) {
        return rc;
    }
    if (t->memory.narrow != NULL) {
        rc = ct_group_broadcast(&t->group, t->memory.narrow,
                                t->layout.count * sizeof *t->memory.narrow, err);
        if (rc != 0) {
            return rc;
        }
    }
    for (size_t i = 0; ct_optimizer_state_name(t->optimizer.kind, i) != NULL; i++) {
        rc = ct_group_broadcast(&t->group, t->optimizer.state[i], bytes, err);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int fill_model(struct ct_trainer *t, const struct ct_safetensors *file, struct ct_err *err)
{
    if (!t->group.shares_model || t->group.rank == 0) {
        int rc = fill_own(t, file, err);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = broadcast_model(t, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_group_barrier(&t->group, err);
    if (rc != 0) {
        return rc;
    }
    ct_step_resume_start(&t->step_snapshot, &t->warnings);
    return 0;
}

/* ---- making and joining ---------------------------------------------------------------------- */

int ct_trainer_probe(const struct ct_train_options *options, struct ctw_job *job,
                     struct ct_err *err)
{
    bool leads = ctw_job_env(job)->rank == 0;
    bool saves = leads && !options->eval_only;
    if (saves && options->checkpoint != NULL) {
        int rc = ct_checkpoint_probe(options->checkpoint, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (saves && options->checkpoint_dir != NULL) {
        int rc = ct_checkpoint_dir_probe(options->checkpoint_dir, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (leads && options->predict != NULL) {
        int rc = ct_file_replace_check(options->predict, err);
        if (rc != 0) {
            (void)ct_err_wrap(err, "--predict");
            return rc;
        }
    }
    return 0;
}

/* Does what needs no peer, the cheapest first, so that errors show early. */
static int load_local(struct ct_trainer *t, bool warm, struct ct_err *err)
{
    int rc = ct_trainer_probe(&t->options, t->job, err);
    if (rc != 0) {
        return rc;
    }
    rc = warm ? ct_dataset_tell(t->job, &t->data.set, err)
              : ct_dataset_load_shared(t->options.data, t->job, &t->data.set, err);
    if (rc != 0) {
        return rc;
    }
    return ct_layout_init(&t->layout, t->data.set.features, &t->options.hidden, t->data.set.classes,
                          err);
}

static int start_augmenting(struct ct_trainer *t, struct ct_err *err)
{
    const struct ct_augment_choice *choice = &t->options.augment;
    if (!choice->flip && !choice->shift) {
        return 0;
    }
    /* Shards and micro-batches are not larger than this share. */
    size_t share = (t->sampler.batch - 1) / (size_t)t->sampler.world + 1;
    int rc =
        ct_augment_init(&t->augment, choice, &t->data.set, t->dev, share, t->options.seed, err);
    if (rc != 0) {
        return rc;
    }
    t->data.train.augment = &t->augment;
    return 0;
}

/* Opens the communicator, and checks that the ranks train the same. */
static int join_group(struct ct_trainer *t, struct ctw_job *job, struct ct_err *err)
{
    int rc = ct_shards_check(t->options.shards, ctw_job_env(job)->world_size, err);
    if (rc != 0) {
        return rc;
    }
    /* The device is kept from one generation to the next. */
    rc = t->dev == NULL ? open_device(t, job, err) : open_group(t, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_stages_check(t, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_gpu_backup_agree(t, err);
    if (rc != 0) {
        return rc;
    }
    ct_step_resume_open(t, ctw_job_env(job), ct_config_check_fingerprint(t));
    return ct_config_check(t, err);
}

/* Puts the data set where the device reads it, if it is not there from an earlier generation. */
static int prepare_data(struct ct_trainer *t, struct ct_err *err)
{
    if (t->data.train.images == NULL) {
        int rc = make_resident(t->dev, &t->data.set, &t->data.uploaded[0], &t->data.set.train,
                               &t->data.train, err);
        if (rc != 0) {
            return rc;
        }
    }
    if (t->data.test.images == NULL) {
        int rc = make_resident(t->dev, &t->data.set, &t->data.uploaded[2], &t->data.set.test,
                               &t->data.test, err);
        if (rc != 0) {
            return rc;
        }
    }
    return start_augmenting(t, err);
}

static int join_and_fill(struct ct_trainer *t, struct ctw_job *job,
                         const struct ct_safetensors *file, struct ct_err *err)
{
    int rc = join_group(t, job, err);
    if (rc != 0) {
        return rc;
    }
    /* With shards each rank gets the whole batch; all stages of a pipeline get the same samples. */
    int stages = (int)t->options.pipeline_stages;
    int part = t->options.shards > 0 ? 0 : t->group.rank / stages;
    int parts = t->options.shards > 0 ? 1 : t->group.world / stages;
    if (ct_sampler_init(&t->sampler, t->data.set.train.count, t->options.batch_size, part, parts,
                        t->options.seed) != 0) {
        return out_of_memory(err);
    }
    rc = alloc_all(t, err);
    if (rc != 0) {
        return rc;
    }
    rc = prepare_data(t, err);
    if (rc != 0) {
        return rc;
    }
    rc = ct_cuda_graph_open(t, err);
    if (rc != 0) {
        return rc;
    }
    if (t->all_there != NULL) {
        t->all_there(&t->options);
    }
    rc = fill_model(t, file, err);
    if (rc != 0) {
        return rc;
    }
    return ct_between_steps_open(t, err);
}

int ct_trainer_join(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_safetensors file = {.fd = -1};
    int rc = ct_trainer_open_resume(t, &file, err);
    if (rc == 0) {
        rc = join_and_fill(t, t->job, file.fd >= 0 ? &file : NULL, err);
    }
    ct_safetensors_fini(&file);
    return rc;
}

int ct_trainer_new(const struct ct_train_options *options, struct ctw_job *job,
                   struct ct_warm_parts *parts,
                   void (*all_there)(const struct ct_train_options *options),
                   struct ct_trainer **out, struct ct_err *err)
{
    struct ct_warm_parts none = {0};
    struct ct_warm_parts *ready = parts != NULL ? parts : &none;
    struct ct_trainer *t = ct_calloc(1, sizeof *t);
    if (t == NULL) {
        ct_warm_parts_fini(ready);
        return out_of_memory(err);
    }
    bool warm = ready->loaded;
    t->data.set = ready->set;
    t->dev = ready->dev;
    *ready = (struct ct_warm_parts){0};
    t->options = *options;
    t->options.pipeline_stages += options->pipeline_stages == 0;
    t->job = job;
    t->all_there = all_there;
    t->step_snapshot = (struct ct_step_snapshot)CT_STEP_SNAPSHOT_INIT;
    t->optimizer = (struct ct_optimizer){
        .kind = options->optimizer,
        .momentum = (float)options->momentum,
        .weight_decay = (float)options->weight_decay,
    };
    int rc = load_local(t, warm, err);
    if (rc != 0) {
        goto fail;
    }
    rc = ct_trainer_join(t, err);
    if (rc != 0) {
        goto fail;
    }
    ct_trainer_stay(t);
    *out = t;
    return 0;
fail:
    ct_trainer_abort(t);
    ct_trainer_free(t);
    return rc;
}

void ct_trainer_leave(struct ct_trainer *t)
{
    ct_between_steps_close(&t->saving);
    ct_cuda_graph_close(t);
    ct_step_snapshot_fini(&t->step_snapshot);
    ct_buf_fini(&t->warnings);
    ct_sampler_fini(&t->sampler);
    ct_augment_fini(&t->augment);
    ct_model_fini(&t->model);
    if (t->dev != NULL) {
        t->dev->ops->release(t->dev, t->memory.totals);
    }
    ct_pipeline_free(t->pipe);
    ct_group_close(&t->group);
    ct_free(t->memory.sequence);
    ct_free(t->memory.host_copy);
}

void ct_trainer_abort(struct ct_trainer *t)
{
    ct_pipeline_abort(t->pipe);
    if (t->group.comm != NULL) {
        ctw_comm_abort(t->group.comm);
    }
}

void ct_trainer_free(struct ct_trainer *t)
{
    if (t == NULL) {
        return;
    }
    ct_trainer_leave(t);
    ct_gpu_backup_close(&t->backup, t->dev);
    if (t->dev != NULL) {
        for (size_t i = 0; i < sizeof t->data.uploaded / sizeof t->data.uploaded[0]; i++) {
            t->dev->ops->release(t->dev, t->data.uploaded[i]);
        }
        t->dev->ops->close(t->dev);
    }
    ct_dataset_fini(&t->data.set);
    ct_free(t);
}
