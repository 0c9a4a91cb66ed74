/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of --preflight-limits.
 */
#include "tests/lib/ct_test.h"

#include "launcher/preflight/preflight_limits.h"

#include <string.h>

static void test_every_key_is_read(void **state)
{
    struct ct_preflight_limits limits = CT_PREFLIGHT_LIMITS_INIT;
    (void)state;
    assert_int_equal(ct_preflight_limits_parse(
                         "shm=64M,disk=1.5G,memlock=1T,clock=0.5,gpus=8,bandwidth=2K,latency=1e-3",
                         &limits, NULL),
                     0);
    assert_int_equal(limits.shm, INT64_C(64) << 20);
    assert_int_equal(limits.disk, INT64_C(3) << 29);
    assert_int_equal(limits.memlock, INT64_C(1) << 40);
    assert_float_equal(limits.clock_s, 0.5, 1e-9);
    assert_int_equal(limits.gpus, 8);
    assert_float_equal(limits.rate, 2048, 1e-9);
    assert_float_equal(limits.latency_s, 1e-3, 1e-9);
}

static void test_what_is_not_named_stays(void **state)
{
    struct ct_preflight_limits limits = CT_PREFLIGHT_LIMITS_INIT;
    (void)state;
    assert_int_equal(ct_preflight_limits_parse("disk=1024T", &limits, NULL), 0);
    assert_int_equal(limits.disk, INT64_C(1) << 50);
    assert_int_equal(ct_preflight_limits_parse("disk=0", &limits, NULL), 0);
    assert_int_equal(limits.disk, 0);
    assert_int_equal(limits.shm, INT64_C(32) << 20);
    assert_int_equal(limits.memlock, -1);
}

static void refused(const char *text, const char *why)
{
    struct ct_preflight_limits limits = CT_PREFLIGHT_LIMITS_INIT;
    struct ct_err err = {0};
    assert_int_not_equal(ct_preflight_limits_parse(text, &limits, &err), 0);
    assert_string_equal(err.text, why);
    assert_int_equal(limits.disk, INT64_C(256) << 20);
}

static void test_garbage_is_refused_with_a_reason(void **state)
{
    (void)state;
    refused("", "'' is not KEY=VALUE");
    refused("disk=1,", "'' is not KEY=VALUE");
    refused("disk", "'disk' is not KEY=VALUE");
    refused("=1", "'=1' is not KEY=VALUE");
    refused("disk=", "'disk=' is not KEY=VALUE");
    refused("disc=1", "unknown key 'disc'; did you mean disk?");
    refused("colour=1", "unknown key 'colour': there are shm, disk, memlock, clock, gpus, "
                        "bandwidth and latency");
    refused("disk=1,shm=G", "shm: 'G' is not a number of bytes from 0 to 1024T, such as 64M");
    refused("shm=-1", "shm: '-1' is not a number of bytes from 0 to 1024T, such as 64M");
    refused("shm=9999999T",
            "shm: '9999999T' is not a number of bytes from 0 to 1024T, such as 64M");
    refused("disk=1025T", "disk: '1025T' is not a number of bytes from 0 to 1024T, such as 64M");
    refused("clock=1s", "clock: '1s' is not a number of seconds from 0 to 1000000");
    refused("gpus=1.5", "gpus: '1.5' is not a number from 0 to 1024");
    refused("bandwidth=fast",
            "bandwidth: 'fast' is not a number of bytes per second from 0 to 1024T, such as 1G");
    char lengthy[1000];
    memset(lengthy, 'x', sizeof(lengthy) - 1);
    lengthy[sizeof(lengthy) - 1] = '\0';
    refused(lengthy, "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...' is not KEY=VALUE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_read),
        cmocka_unit_test(test_what_is_not_named_stays),
        cmocka_unit_test(test_garbage_is_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
