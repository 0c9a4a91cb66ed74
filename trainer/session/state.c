/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves the model between device memory and checkpoint files. On the CPU a file is read directly
 * into the model; on a GPU through a copy in host memory, which belongs to the trainer's memory.
 */
#include "trainer/session/stages.h"

#include <string.h>

/* The memory into which a checkpoint is read. */
static struct ct_state_view host_view(const struct ct_trainer *t)
{
    struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
    for (size_t i = 0; t->memory.host_copy != NULL && i < arrays.count; i++) {
        arrays.at[i] = t->memory.host_copy + i * t->layout.count;
    }
    struct ct_state_view view = {
        .layout = &t->layout, .optimizer = t->optimizer.kind, .params = arrays.at[0]};
    memcpy(view.state, arrays.at + 1, (arrays.count - 1) * sizeof *view.state);
    return view;
}

int ct_trainer_restore(struct ct_trainer *t, const struct ct_safetensors *file, struct ct_err *err)
{
    struct ct_state_view view = host_view(t);
    int rc = ct_checkpoint_load(file, &view, err);
    if (rc != 0) {
        (void)ct_err_wrap(err, "%s", t->options.resume);
        return rc;
    }
    if (t->memory.host_copy == NULL) {
        return 0;
    }
    const struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
    const struct ct_span *held = &t->memory.held;
    for (size_t i = 0; rc == 0 && i < arrays.count; i++) {
        const float *host = t->memory.host_copy + i * t->layout.count + held->first;
        rc = t->dev->ops->upload(t->dev, arrays.at[i], host, held->count * sizeof(float), err);
    }
    return rc;
}

int ct_trainer_copy_state(struct ct_trainer *t, float *out, struct ct_err *err)
{
    ctw_progress(t->job, CTW_PHASE_CHECKPOINT, t->optimizer.step);
    if (t->memory.scattered) {
        return ct_stages_copy_state(t, out, err);
    }
    const struct ct_arrays arrays = ct_trainer_arrays(t->memory.params, &t->optimizer);
    size_t count = t->layout.count;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < arrays.count; i++) {
        rc =
            ct_group_download(&t->group, out + i * count, arrays.at[i], count * sizeof(float), err);
    }
    return rc;
}
