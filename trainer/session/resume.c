/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds where the training continues: at the file that --resume names, at the newest complete
 * checkpoint of the folder, or at the start if there is none. The caller closes the file; a
 * checkpoint that does not fit is CT_EINVAL.
 */
#include "trainer/recovery/checkpoint_dir.h"
#include "trainer/session/trainer.h"

#include <string.h>

bool ct_train_resumes_itself(const struct ct_train_options *options)
{
    return options->resume != NULL && strcmp(options->resume, CT_RESUME_AUTO) == 0;
}

/* A position within an epoch is a number of batches, so it is valid only for the same batches. */
static int check_point(const struct ct_train_options *options, size_t count,
                       const struct ct_progress_point *point, const char *where, struct ct_err *err)
{
    if (point->seed != options->seed) {
        return ct_err_set(err, CT_EINVAL, "%s was trained with --seed %llu, not %llu", where,
                          (unsigned long long)point->seed, (unsigned long long)options->seed);
    }
    size_t batch = options->batch_size < count ? options->batch_size : count;
    if (point->batch > 0 && point->batch_size != batch) {
        return ct_err_set(err, CT_EINVAL,
                          "%s was taken within an epoch, after %zu batches of %zu samples: go on "
                          "with --batch-size %zu, not %zu",
                          where, point->batch, point->batch_size, point->batch_size, batch);
    }
    if (point->batch > 0 && point->batch >= (count - 1) / batch + 1) {
        return ct_err_set(err, CT_EINVAL,
                          "%s was taken after %zu batches of an epoch, but this data set has no "
                          "more than %zu",
                          where, point->batch, (count - 1) / batch + 1);
    }
    return 0;
}

int ct_trainer_open_resume(struct ct_trainer *t, struct ct_safetensors *file, struct ct_err *err)
{
    struct ct_progress_point point;
    const char *where = t->options.resume;
    if (where == NULL) {
        return 0;
    }
    int rc;
    if (ct_train_resumes_itself(&t->options)) {
        where = t->options.checkpoint_dir;
        rc = ct_checkpoint_dir_newest(where, &t->layout, t->options.optimizer, file, &point,
                                      &t->warnings, err);
        if (rc == CT_CHECKPOINT_DIR_E_NONE && t->options.eval_only) {
            return ct_err_set(err, CT_ENOENT,
                              "%s holds no whole checkpoint that --eval-only could test", where);
        }
        if (rc == CT_CHECKPOINT_DIR_E_NONE) {
            return 0;
        }
    } else {
        rc = ct_checkpoint_open(where, &t->layout, t->options.optimizer, file, &point, err);
    }
    if (rc != 0) {
        return rc;
    }
    rc = check_point(&t->options, t->data.set.train.count, &point, where, err);
    if (rc != 0) {
        ct_safetensors_fini(file);
        return rc;
    }
    t->at.epoch = point.epoch;
    t->at.batch = point.batch;
    t->optimizer.step = point.step;
    return 0;
}
