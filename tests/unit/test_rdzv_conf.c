/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ct_test.h"

#include "launcher/rdzv_conf.h"

static void grammar_is_torchruns(void **state)
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
        {"is_host=0", CT_EUNSUPPORTED, "is_host=0"},
        {"is_host=maybe", CT_EINVAL, "'maybe'"},
        {"store_type=file", CT_EUNSUPPORTED, "'file'"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_err err = {0};
        int rc = ct_rdzv_conf_check(rows[i].text, &err);
        if (rc != rows[i].rc || (rc != 0 && strstr(err.text, rows[i].says) == NULL)) {
            fail_msg("'%s' gives %d, '%s'", rows[i].text, rc, err.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar_is_torchruns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
