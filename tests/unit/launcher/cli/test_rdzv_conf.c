/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that --rdzv-conf is read by torchrun's grammar, and that mistyped keys are refused.
 */
#include "tests/lib/ct_test.h"

#include "launcher/cli/rdzv_conf.h"

static void grammar_is_that_of_torchrun(void **state)
{
    static const struct {
        const char *text;
        int rc;
        const char *says;
    } rows[] = {
        {"", 0, NULL},
        {"  ", 0, NULL},
        {"''", 0, NULL},
        {"a=1", 0, NULL},
        {" a = 1 , b=c=d ", 0, NULL},
        {"'last_call_timeout=5,timeout=25'", 0, NULL},
        {"\"timeout=25\"", 0, NULL},
        {"store_type=tcp,is_host=TRUE,read_timeout=60", 0, NULL},
        {"a", CT_EFORMAT, "'a'"},
        {"a=", CT_EFORMAT, "'a='"},
        {"=1", CT_EFORMAT, "'=1'"},
        {"a=1,", CT_EFORMAT, "''"},
        {",a=1", CT_EFORMAT, "''"},
        {"a=1,, b=2", CT_EFORMAT, "''"},
        {"a= ", CT_EFORMAT, "'a='"},
        {"'", CT_EFORMAT, "'''"},
        {"join_timeout=soon", CT_EINVAL,
         "join_timeout: 'soon' is not a number of seconds from 0.1 to 2592000"},
        {"heartbeat_timeout=0", CT_EINVAL, "heartbeat_timeout: '0'"},
        {"timeout=-1", CT_EINVAL, "timeout: '-1'"},
        {"timeout=1000000000000000000000000000000000", CT_EINVAL, "timeout: '1000"},
        {"is_host=maybe", CT_EINVAL, "'maybe'"},
        {"failover=maybe", CT_EINVAL,
         "failover: 'maybe' is neither 1 (true, yes) nor 0 (false, no)"},
        {"failvoer=1", CT_EINVAL, "did you mean failover?"},
        {"store_type=file", CT_EUNSUPPORTED, "'file'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_err err = {0};
        struct ct_rdzv_conf conf = CT_RDZV_CONF_INIT;
        int rc = ct_rdzv_conf_parse(rows[i].text, &conf, &err);
        if (rc != rows[i].rc || (rc != 0 && strstr(err.text, rows[i].says) == NULL)) {
            fail_msg("'%s' gives %d, '%s'", rows[i].text, rc, err.text);
        }
    }
}

static void values_are_read(void **state)
{
    struct ct_rdzv_conf conf = CT_RDZV_CONF_INIT;
    (void)state;
    assert_int_equal(ct_rdzv_conf_parse("timeout=900", &conf, NULL), 0);
    assert_int_equal(conf.join_ms, 900000);
    assert_int_equal(conf.is_host, -1);
    assert_int_equal(conf.failover, -1);
    assert_int_equal(conf.settle_ms, 3000);
    assert_int_equal(conf.heartbeat_ms, 3000);
    assert_int_equal(ct_rdzv_conf_parse("join_timeout=1.5,timeout=900,is_host=No,failover=yes,"
                                        "last_call_timeout=0,heartbeat_timeout=0.5",
                                        &conf, NULL),
                     0);
    assert_int_equal(conf.join_ms, 1500);
    assert_int_equal(conf.is_host, 0);
    assert_int_equal(conf.failover, 1);
    assert_int_equal(conf.settle_ms, 0);
    assert_int_equal(conf.heartbeat_ms, 500);
    assert_int_equal(ct_rdzv_conf_parse("is_host=1,join_timeout=x", &conf, NULL), CT_EINVAL);
    assert_int_equal(conf.is_host, 0); /* all or nothing */
}

static void mistyped_keys_are_refused(void **state)
{
    (void)state;
    struct ct_rdzv_conf conf = CT_RDZV_CONF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_rdzv_conf_parse("jion_timeout=3", &conf, &err), CT_EINVAL);
    assert_string_equal(err.text, "unknown key 'jion_timeout'; did you mean join_timeout?");
    assert_int_equal(
        ct_rdzv_conf_parse("close_timeout=3,read_timeout=3,use_libuv=1,foo=bar", &conf, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar_is_that_of_torchrun),
        cmocka_unit_test(values_are_read),
        cmocka_unit_test(mistyped_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
