/* SPDX-License-Identifier: Apache-2.0
 *
 * Most of the time from the start of `train` to its first step passes in reading and summing the
 * data set, and in oneDNN, which generates the code of a matrix product at its first use. So a
 * spare does both ahead: it reads, and rehearses one step of the size that its rank will have. If
 * that is another one in the next generation, only time is lost.
 *
 * Failure modes: what fails here fails in a cold start, too, and shows there.
 */
#include "trainer/session/warm_parts.h"

#include "common/alloc.h"
#include "trainer/data/sampler.h"
#include "trainer/model/model.h"

/* The memory of a rehearsed step. */
struct rehearsal {
    struct ct_layout layout;
    struct ct_model model;
    void *params, *grads, *totals;
    uint32_t *index;
};

static int rehearse_in(struct rehearsal *r, struct ct_device *dev, const struct ct_dataset *set,
                       size_t rows, struct ct_err *err)
{
    const struct ct_device_dataset data = {.images = set->train.images,
                                           .labels = set->train.labels,
                                           .mean = set->mean,
                                           .stddev = set->stddev};
    size_t bytes = r->layout.count * sizeof(float);
    int rc = ct_model_init(&r->model, &r->layout, dev, rows, err);
    if (rc == 0) {
        rc = dev->ops->alloc(dev, bytes, &r->params, err);
    }
    if (rc == 0) {
        rc = dev->ops->alloc(dev, bytes, &r->grads, err);
    }
    if (rc == 0) {
        rc = dev->ops->alloc(dev, 2 * sizeof(double), &r->totals, err);
    }
    r->index = ct_calloc(rows, sizeof *r->index);
    if (rc == 0 && r->index == NULL) {
        rc = ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    for (size_t i = 0; rc == 0 && i < rows; i++) {
        r->index[i] = (uint32_t)i;
    }
    return rc != 0 ? rc
                   : ct_model_run(&r->model, r->params, &data, r->index, rows, 1.0f, r->grads,
                                  r->totals, err);
}

static int rehearse(struct ct_device *dev, const struct ct_dataset *set,
                    const struct ct_hidden *hidden, size_t rows, struct ct_err *err)
{
    struct rehearsal r = {0};
    int rc = ct_layout_init(&r.layout, set->features, hidden, set->classes, err);
    if (rc == 0) {
        rc = rehearse_in(&r, dev, set, rows, err);
    }
    ct_model_fini(&r.model);
    dev->ops->release(dev, r.params);
    dev->ops->release(dev, r.grads);
    dev->ops->release(dev, r.totals);
    ct_free(r.index);
    return rc;
}

/* Will training be on the CPU, in the usual number format, with a whole model on each rank? */
static bool is_plain(const struct ct_train_options *options)
{
    bool cpu = options->device == CT_CHOOSE_CPU ||
               (options->device == CT_CHOOSE_AUTO && !ct_device_cuda_possible());
    bool f32 =
        options->precision == CT_PRECISION_AUTO || options->precision == CT_PRECISION_CHOOSE_F32;
    return cpu && f32 && options->gpus == 0 && options->shards == 0 &&
           options->pipeline_stages <= 1;
}

int ct_warm_parts_make(struct ct_warm_parts *parts, const struct ct_train_options *options,
                       int rank, int world, struct ct_err *err)
{
    *parts = (struct ct_warm_parts){.source = options->data};
    int rc = ct_dataset_stamp(options->data, &parts->stamp, err);
    if (rc == 0) {
        rc = ct_dataset_load(options->data, &parts->set, err);
        parts->loaded = rc == 0;
    }
    if (rc != 0) {
        return rc;
    }
    const struct ct_split *train = &parts->set.train;
    ct_mapping_use_large_pages(train->images, train->count * parts->set.features);
    if (is_plain(options)) {
        size_t begin, end;
        size_t batch = options->batch_size < train->count ? options->batch_size : train->count;
        ct_sampler_share(batch, rank, world, &begin, &end);
        rc = ct_device_open(CT_DEVICE_CPU, 0, &parts->dev, err);
        if (rc == 0 && end > begin) {
            rc = rehearse(parts->dev, &parts->set, &options->hidden, end - begin, err);
        }
    }
    if (rc != 0) {
        ct_warm_parts_fini(parts);
    }
    return rc;
}

const char *ct_warm_parts_check(void *data)
{
    const struct ct_warm_parts *parts = data;
    uint64_t now;
    bool same = ct_dataset_stamp(parts->source, &now, NULL) == 0 && now == parts->stamp;
    return same ? NULL : "the data set has changed";
}

void ct_warm_parts_fini(struct ct_warm_parts *parts)
{
    if (parts->loaded) {
        ct_dataset_fini(&parts->set);
    }
    if (parts->dev != NULL) {
        parts->dev->ops->close(parts->dev);
    }
    *parts = (struct ct_warm_parts){0};
}
