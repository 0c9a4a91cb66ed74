/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that the names in a template are replaced, and that lack of memory is survived.
 */
#include "tests/lib/ct_test.h"

#include "launcher/util/template.h"

static const struct ct_template_var vars[] = {
    {"role", "r", false}, {"rank", "12", false}, {"_9", "n", false}, {"x:y", "z", true}};

static int expand(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_template_expand("$role-${rank}-$_9-$$-${x:y}-$x:y-$", vars, 4, &out);
    (void)data;
    if (rc == 0) {
        assert_string_equal(ct_buf_cstr(&out), "r-12-n-$-z-$x:y-$");
    }
    ct_buf_fini(&out);
    return rc;
}

/* The finer rules are tested with the arguments of workers, in test_arguments.c. */
static void several_names_are_replaced(void **state)
{
    (void)state;
    assert_int_equal(expand(NULL), 0);
    assert_true(ct_fault_sweep(expand, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_names_are_replaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
