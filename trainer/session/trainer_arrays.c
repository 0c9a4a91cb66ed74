/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of its own, because the GPU backup needs it where no checkpoint is read or written: the
 * programs of tools/gpu-check are linked without JSON.
 */
#include "trainer/session/trainer.h"

struct ct_arrays ct_trainer_arrays(const struct ct_trainer *t)
{
    struct ct_arrays arrays = {.count = 1, .at[0] = t->memory.params};
    for (size_t i = 0; ct_optimizer_state_name(t->optimizer.kind, i) != NULL; i++) {
        arrays.at[arrays.count++] = t->optimizer.state[i];
    }
    return arrays;
}
