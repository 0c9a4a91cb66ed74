/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves the trainer to the next generation of the job in the same process. The device with its
 * context, the data set on it and the copy of trainer/session/gpu_backup.h are kept; everything
 * that depends on ranks is freed and made again. A failure leaves the trainer ready for
 * ct_trainer_free().
 */
#include "trainer/data/dataset_cache.h"
#include "trainer/loop/train.h"
#include "trainer/session/gpu_backup.h"

/* Only where it saves time: a new process on a GPU needs seconds to get this far. */
void ct_trainer_stay(struct ct_trainer *t)
{
    enum ct_in_process choice = t->options.in_process;
    bool worth = choice == CT_IN_PROCESS_ON ||
                 (choice == CT_IN_PROCESS_AUTO && t->dev->kind == CT_DEVICE_CUDA);
    if (worth && !t->options.eval_only && ctw_job_stay(t->job, true, NULL) == 0) {
        t->stays = true;
        ct_gpu_backup_open(t);
    }
}

/* Clears everything that does not outlive a generation. */
static void forget(struct ct_trainer *t)
{
    struct ct_trainer kept = {
        .options = t->options,
        .job = t->job,
        .dev = t->dev,
        .data = t->data,
        .layout = t->layout,
        .backup = t->backup,
        .stays = t->stays,
        .optimizer = {.kind = t->optimizer.kind,
                      .momentum = t->optimizer.momentum,
                      .weight_decay = t->optimizer.weight_decay},
        .step_snapshot = CT_STEP_SNAPSHOT_INIT,
    };
    kept.data.train.augment = NULL;
    *t = kept;
}

bool ct_trainer_goes_on(const struct ct_trainer *t, int rc)
{
    /* A GPU may report a peer's end as an error of its own. A real one will show again. */
    return t->stays && (rc == CT_EPEER || rc == CT_ETIMEDOUT || rc == CT_ECLOSED ||
                        (rc == CT_EIO && ctw_job_ended(t->job)));
}

int ct_trainer_next(struct ct_trainer *t, struct ct_err *err)
{
    struct ct_err reason = {0};
    ct_trainer_abort(t);
    ct_trainer_leave(t);
    forget(t);
    int rc = ctw_job_next(t->job, 0, &reason);
    if (rc != 0) {
        t->stays = false;
        return rc == CT_EABORTED || err->code == 0 ? ct_err_set(err, rc, "%s", reason.text)
                                                   : err->code;
    }
    rc = ct_trainer_probe(&t->options, t->job, err);
    if (rc == 0) {
        rc = ct_dataset_tell(t->job, &t->data.set, err);
    }
    return rc == 0 ? ct_trainer_join(t, err) : rc;
}
