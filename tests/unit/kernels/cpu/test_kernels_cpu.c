/* SPDX-License-Identifier: Apache-2.0
 *
 * The CPU's operations against the float64 reference.
 */
#include "tests/gpu/device_checks.h"

#include <stdio.h>

int main(void)
{
    const struct ct_check *const lists[] = {ct_checks_layers,    ct_checks_training,
                                            ct_checks_precision, ct_checks_cut,
                                            ct_checks_head,      NULL};
    struct ct_err err = {0};
    struct ct_device *dev;
    if (ct_device_open(CT_DEVICE_CPU, 0, &dev, &err) != 0) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    int failed = ct_check_run(lists, dev);
    dev->ops->close(dev);
    return failed > 0;
}
