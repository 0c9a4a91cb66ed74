/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the arrays of a training. It is a separate file because the GPU backup needs it in the
 * programs of tools/gpu-check, which are linked without JSON and so without checkpoints. It cannot
 * fail.
 */
#include "trainer/session/trainer.h"

struct ct_arrays ct_trainer_arrays(float *params, const struct ct_optimizer *optimizer)
{
    struct ct_arrays arrays = {.count = 1, .at[0] = params};
    for (size_t i = 0; ct_optimizer_state_name(optimizer->kind, i) != NULL; i++) {
        arrays.at[arrays.count++] = optimizer->state[i];
    }
    return arrays;
}
