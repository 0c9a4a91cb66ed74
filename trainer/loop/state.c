/* SPDX-License-Identifier: Apache-2.0
 *
 * The model between device memory and checkpoint files. Where the device is the CPU the file is
 * read into the model itself, else through a copy on the host.
 */
#include "trainer/loop/stages.h"

static struct ct_state_view view(struct ct_trainer *t)
{
    struct ct_state_view v = {
        .layout = &t->layout,
        .optimizer = t->optimizer.kind,
        .params = t->staging != NULL ? t->staging : t->params,
    };
    for (size_t i = 0; ct_optimizer_state_name(v.optimizer, i) != NULL; i++) {
        v.state[i] =
            t->staging != NULL ? t->staging + (i + 1) * t->layout.count : t->optimizer.state[i];
    }
    return v;
}

/* The device's counterpart of array `i` of the staging copy: parameters, then states. */
static float *device_array(struct ct_trainer *t, size_t i)
{
    return i == 0 ? t->params : t->optimizer.state[i - 1];
}

static size_t array_count(const struct ct_trainer *t)
{
    size_t count = 1;
    while (ct_optimizer_state_name(t->optimizer.kind, count - 1) != NULL) {
        count++;
    }
    return count;
}

int ct_trainer_restore(struct ct_trainer *t, const struct ct_safetensors *file, struct ct_err *err)
{
    struct ct_state_view v = view(t);
    int rc = ct_checkpoint_load(file, &v, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s", t->options.resume);
        return rc;
    }
    size_t count = t->layout.count;
    for (size_t i = 0; rc == 0 && t->staging != NULL && i < array_count(t); i++) {
        rc = t->dev->ops->upload(t->dev, device_array(t, i), t->staging + i * count + t->held.first,
                                 t->held.count * sizeof(float), err);
    }
    return rc;
}

int ct_trainer_snapshot(struct ct_trainer *t, float *out, struct ct_err *err)
{
    size_t count = t->layout.count;
    int rc = 0;
    ctw_progress(t->job, CTW_PHASE_CHECKPOINT, t->optimizer.step);
    if (t->scattered) {
        return ct_stages_snapshot(t, out, err);
    }
    for (size_t i = 0; rc == 0 && i < array_count(t); i++) {
        rc = ct_team_download(&t->team, out + i * count, device_array(t, i), count * sizeof(float),
                              err);
    }
    return rc;
}
