/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands between the trainer and the device: counts the operations and passes them on until the one
 * that fails. One device at a time can be open.
 */
#include "tests/lib/device_faults.h"

#include "kernels/device/device.h"

static const struct ct_device_ops *real;
static struct ct_device_ops failing;
static int left = -1; /* operations before the failing one; negative: none fails any more */
static bool hit;

int __real_ct_device_open(enum ct_device_kind kind, int index, struct ct_device **out,
                          struct ct_err *err);
int __wrap_ct_device_open(enum ct_device_kind kind, int index, struct ct_device **out,
                          struct ct_err *err);

void device_faults_begin(int fail_at)
{
    left = fail_at;
    hit = false;
}

bool device_faults_hit(void)
{
    return hit;
}

static int fault(struct ct_err *err)
{
    if (left < 0 || left-- > 0) {
        return 0;
    }
    hit = true; /* and `left` is negative now */
    return ct_err_set(err, DEVICE_FAULT_CODE, DEVICE_FAULT_TEXT);
}

#define PASS_ON(op, params, args)            \
    static int op##_or_fail params           \
    {                                        \
        int rc = fault(err);                 \
        return rc == 0 ? real->op args : rc; \
    }

PASS_ON(alloc, (struct ct_device * dev, size_t bytes, void **out, struct ct_err *err),
        (dev, bytes, out, err))
PASS_ON(upload,
        (struct ct_device * dev, void *dst, const void *src, size_t bytes, struct ct_err *err),
        (dev, dst, src, bytes, err))
PASS_ON(download,
        (struct ct_device * dev, void *dst, const void *src, size_t bytes, struct ct_err *err),
        (dev, dst, src, bytes, err))
PASS_ON(clear, (struct ct_device * dev, void *dst, size_t bytes, struct ct_err *err),
        (dev, dst, bytes, err))
PASS_ON(sync, (struct ct_device * dev, struct ct_err *err), (dev, err))
PASS_ON(gather, (struct ct_device * dev, const struct ct_gather *op, struct ct_err *err),
        (dev, op, err))
PASS_ON(linear, (struct ct_device * dev, const struct ct_linear *op, struct ct_err *err),
        (dev, op, err))
PASS_ON(linear_grad, (struct ct_device * dev, const struct ct_linear_grad *op, struct ct_err *err),
        (dev, op, err))
PASS_ON(loss, (struct ct_device * dev, const struct ct_loss *op, struct ct_err *err),
        (dev, op, err))
PASS_ON(head, (struct ct_device * dev, const struct ct_head *op, struct ct_err *err),
        (dev, op, err))
PASS_ON(sgd, (struct ct_device * dev, const struct ct_sgd *op, struct ct_err *err), (dev, op, err))
PASS_ON(adamw, (struct ct_device * dev, const struct ct_adamw *op, struct ct_err *err),
        (dev, op, err))
PASS_ON(narrow,
        (struct ct_device * dev, size_t count, const float *from, uint16_t *to, struct ct_err *err),
        (dev, count, from, to, err))

int __wrap_ct_device_open(enum ct_device_kind kind, int index, struct ct_device **out,
                          struct ct_err *err)
{
    int rc = fault(err);
    rc = rc == 0 ? __real_ct_device_open(kind, index, out, err) : rc;
    if (rc != 0) {
        return rc;
    }
    real = (*out)->ops;
    failing = *real;
    failing.alloc = alloc_or_fail;
    failing.upload = upload_or_fail;
    failing.download = download_or_fail;
    failing.clear = clear_or_fail;
    failing.sync = sync_or_fail;
    failing.gather = gather_or_fail;
    failing.linear = linear_or_fail;
    failing.linear_grad = linear_grad_or_fail;
    failing.loss = loss_or_fail;
    failing.head = head_or_fail;
    failing.sgd = sgd_or_fail;
    failing.adamw = adamw_or_fail;
    failing.narrow = narrow_or_fail;
    (*out)->ops = &failing;
    return 0;
}
