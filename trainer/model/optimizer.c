/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the device's operation for each kind of optimizer. With a cursor (CUDA graphs) the
 * learning rate and step come from device memory instead of the arguments. It allocates nothing.
 */
#include "trainer/model/optimizer.h"

#include "kernels/device/update_scalars.h"

/* The defaults of torch.optim.AdamW. */
#define ADAMW_BETA1 0.9f
#define ADAMW_BETA2 0.999f
#define ADAMW_EPS 1e-8f

const char *ct_optimizer_name(enum ct_optimizer_kind kind)
{
    switch (kind) {
    case CT_OPTIMIZER_SGD:
        return "sgd";
    case CT_OPTIMIZER_ADAMW:
        return "adamw";
    }
    return "unknown";
}

const char *ct_optimizer_state_name(enum ct_optimizer_kind kind, size_t i)
{
    static const char *const names[][CT_OPTIMIZER_STATES_MAX] = {
        [CT_OPTIMIZER_SGD] = {"momentum", NULL},
        [CT_OPTIMIZER_ADAMW] = {"exp_avg", "exp_avg_sq"},
    };
    return i < CT_OPTIMIZER_STATES_MAX ? names[kind][i] : NULL;
}

struct ct_update_scalars ct_optimizer_scalars(const struct ct_optimizer *opt, float lr,
                                              int64_t step)
{
    if (opt->kind == CT_OPTIMIZER_SGD) {
        return (struct ct_update_scalars){.lr = lr};
    }
    return ct_update_scalars_adamw(lr, ADAMW_BETA1, ADAMW_BETA2, opt->weight_decay, step);
}

int ct_optimizer_apply(const struct ct_optimizer *opt, struct ct_device *dev, float *params,
                       const float *grads, size_t begin, size_t end, struct ct_err *err)
{
    if (begin >= end) {
        return 0;
    }
    uint16_t *narrow = opt->narrow != NULL ? opt->narrow + begin : NULL;
    if (opt->kind == CT_OPTIMIZER_SGD) {
        return dev->ops->sgd(dev,
                             &(struct ct_sgd){
                                 .count = end - begin,
                                 .param = params + begin,
                                 .momentum_buf = opt->state[0] + begin,
                                 .grad = grads + begin,
                                 .lr = opt->lr,
                                 .momentum = opt->momentum,
                                 .weight_decay = opt->weight_decay,
                                 .beside = opt->beside,
                                 .narrow = narrow,
                                 .cursor = opt->cursor,
                             },
                             err);
    }
    return dev->ops->adamw(dev,
                           &(struct ct_adamw){
                               .count = end - begin,
                               .param = params + begin,
                               .m = opt->state[0] + begin,
                               .v = opt->state[1] + begin,
                               .grad = grads + begin,
                               .lr = opt->lr,
                               .beta1 = ADAMW_BETA1,
                               .beta2 = ADAMW_BETA2,
                               .eps = ADAMW_EPS,
                               .weight_decay = opt->weight_decay,
                               .step = opt->step + 1,
                               .beside = opt->beside,
                               .narrow = narrow,
                               .cursor = opt->cursor,
                           },
                           err);
}
