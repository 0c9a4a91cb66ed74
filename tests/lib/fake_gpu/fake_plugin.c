/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices of the CUDA plug-in on the stand-in for a GPU.
 */
#include "tests/lib/fake_gpu/fake_plugin.h"

#include "tests/lib/ct_test.h"

#include "kernels/device/device.h"

struct ct_device *fake_plugin_open(const struct fake_gpu *script)
{
    struct ct_device *dev = NULL;
    struct ct_err err = {0};
    fake_gpu_begin(script);
    if (ct_cuda_plugin.open(3, &dev, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return dev;
}

void fake_plugin_expect_clean(void)
{
    if (fake.violations > 0) {
        fail_msg("broken rule: %s", fake.first_violation);
    }
    assert_int_equal(fake.memory, 0);
    assert_int_equal(fake.streams + fake.events + fake.graphs + fake.execs, 0);
    assert_int_equal(fake.descriptors, 0);
}

void fake_plugin_close(struct ct_device *dev)
{
    dev->ops->close(dev);
    fake_plugin_expect_clean();
}
