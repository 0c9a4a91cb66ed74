/* SPDX-License-Identifier: Apache-2.0
 *
 * The CUDA table on device 0 against the float64 reference. Where there is none it checks that the
 * plug-in says why, and skips (exit code 77). With a driver on the machine a build that has CUDA
 * must find its device: a plug-in that does not load is a failure then, not a skip.
 *
 *     test_cuda [--repeat N] [--list | --probe | --only NAME]
 *
 * --repeat says how often what must give the same bits each time is done. --list prints the names
 * of the checks, --probe only says which device there is, and --only runs one check.
 * tools/gpu-check starts a process for each, because an error in one can leave a CUDA context in
 * which all later ones fail.
 */
#include "tests/gpu/device_checks.h"

#include "common/num.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_USAGE 2
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

static const struct ct_check *const lists[] = {
    ct_checks_layers, ct_checks_training, ct_checks_precision, ct_checks_cut, ct_checks_head, NULL,
};

static int list(void)
{
    for (const struct ct_check *const *l = lists; *l != NULL; l++) {
        for (const struct ct_check *check = *l; check->name != NULL; check++) {
            printf("%s\n", check->name);
        }
    }
    return 0;
}

static const struct ct_check *find(const char *name)
{
    for (const struct ct_check *const *l = lists; *l != NULL; l++) {
        for (const struct ct_check *check = *l; check->name != NULL; check++) {
            if (strcmp(check->name, name) == 0) {
                return check;
            }
        }
    }
    return NULL;
}

/* All checks, or `only` this one, or none but the device's name if `probe`. */
static int run(const struct ct_check *only, bool probe)
{
    const struct ct_check one[] = {only != NULL ? *only : (struct ct_check){0}, {0}};
    const struct ct_check *const list_of_one[] = {one, NULL};
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
    int failed = probe ? 0 : ct_check_run(only != NULL ? list_of_one : lists, dev);
    dev->ops->close(dev);
    return failed > 0;
}

int main(int argc, char *argv[])
{
    int64_t repeats;
    if (argc > 2 && strcmp(argv[1], "--repeat") == 0 &&
        ct_parse_i64(argv[2], 2, 1000000, &repeats) == 0) {
        ct_check_repeats = (int)repeats;
        argc -= 2;
        argv += 2;
    }
    if (argc == 1) {
        return run(NULL, false);
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        return list();
    }
    if (argc == 2 && strcmp(argv[1], "--probe") == 0) {
        return run(NULL, true);
    }
    const struct ct_check *only =
        argc == 3 && strcmp(argv[1], "--only") == 0 ? find(argv[2]) : NULL;
    if (only == NULL) {
        (void)fprintf(stderr, "usage: test_cuda [--repeat N] [--list | --probe | --only NAME]\n");
        return EXIT_USAGE;
    }
    return run(only, false);
}
