/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ct_test.h"

#include "launcher/gpus.h"
#include "tests/lib/tmpdir.h"

#include <stdlib.h>

static void add(const char *dir, const char *name)
{
    free(ct_tmpdir_write(dir, name, "", 0));
}

static void counts_what_the_driver_shows(void **state)
{
    char *proc = ct_tmpdir_new(), *dev = ct_tmpdir_new();
    (void)state;
    assert_int_equal(ct_gpus_count("/nonexistent", "/nonexistent", NULL), 0);
    add(dev, "nvidiactl");
    add(dev, "nvidia-uvm");
    add(dev, "nvidia");
    assert_int_equal(ct_gpus_count(proc, dev, NULL), 0);
    add(proc, "0000:01:00.0");
    add(proc, "0000:02:00.0");
    assert_int_equal(ct_gpus_count(proc, dev, NULL), 2); /* no device node yet */
    add(dev, "nvidia0");
    assert_int_equal(ct_gpus_count(proc, dev, NULL), 1); /* a container with one of them */
    add(dev, "nvidia1");
    add(dev, "nvidia10");
    assert_int_equal(ct_gpus_count(proc, dev, NULL), 2);
    assert_int_equal(ct_gpus_count("/nonexistent", dev, NULL), 3);
    ct_tmpdir_free(proc);
    ct_tmpdir_free(dev);
}

static void honours_visible_devices(void **state)
{
    static const struct {
        const char *visible;
        int count;
    } rows[] = {
        {"", 0},        {"0", 1},        {"1,0", 2},        {"0,1,2", 2},
        {"-1", 0},      {"0,-1,1", 1},   {"NoDevFiles", 0}, {"GPU-8932f937,GPU-1", 2},
        {"MIG-x/1", 1}, {" 0 , 1", 2},   {"0,,1", 1},       {"0 1", 1},
        {"0,1,", 2},    {"99999999", 0}, {"1x", 0},
    };
    char *proc = ct_tmpdir_new();
    (void)state;
    add(proc, "a");
    add(proc, "b");
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int count = ct_gpus_count(proc, "/nonexistent", rows[i].visible);
        if (count != rows[i].count) {
            fail_msg("'%s' gives %d", rows[i].visible, count);
        }
    }
    assert_int_equal(ct_gpus_count("/nonexistent", "/nonexistent", "0"), 0);
    ct_tmpdir_free(proc);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_what_the_driver_shows),
        cmocka_unit_test(honours_visible_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
