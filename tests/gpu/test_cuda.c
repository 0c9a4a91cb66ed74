/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA table on device 0 against the float64 reference. Where there is none it checks that the
 * plug-in says why, and skips (exit code 77). With a driver on the machine a build that has CUDA
 * must find its device: a plug-in that does not load is a failure then, not a skip.
 */
#include "tests/gpu/device_checks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_SKIP 77

static int skip(void)
{
    struct ct_err err = {0};
    struct ct_device *dev = NULL;
    int rc = ct_device_open(CT_DEVICE_CUDA, 0, &dev, &err);
    if (rc == 0) {
        printf("Bail out! no device is counted, and yet device 0 opens\n");
        return 1;
    }
    if (rc != CT_EUNSUPPORTED || err.code != rc || err.text[0] == '\0') {
        printf("Bail out! the reason has code %d: \"%s\"\n", rc, err.text);
        return 1;
    }
    if (access("/dev/nvidiactl", F_OK) == 0 && strstr(err.text, "this build has no CUDA") == NULL) {
        printf("Bail out! there is a driver, yet: %s\n", err.text);
        return 1;
    }
    printf("1..0 # SKIP %s\n", err.text);
    return EXIT_SKIP;
}

int main(void)
{
    const struct ct_check *const lists[] = {ct_checks_layers,    ct_checks_training,
                                            ct_checks_precision, ct_checks_cut,
                                            ct_checks_head,      NULL};
    struct ct_err err = {0};
    struct ct_device *dev;
    if (ct_device_cuda_count() == 0) {
        return skip();
    }
    if (ct_device_open(CT_DEVICE_CUDA, 0, &dev, &err) != 0) {
        printf("Bail out! %s\n", err.text);
        return 1;
    }
    printf("# %s\n", dev->name);
    int failed = ct_check_run(lists, dev);
    dev->ops->close(dev);
    return failed > 0;
}
