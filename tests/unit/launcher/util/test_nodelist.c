/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks how Slurm's lists of hosts and of counts are read, and that one which is too long or makes
 * no sense is refused.
 */
#include "launcher/util/nodelist.h"
#include "rendezvous/control/control.h"
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include <stdio.h>

static void names_are_counted_up(void **state)
{
    static const struct {
        const char *text, *names; /* names with blanks between them */
    } rows[] = {
        {"node1", "node1"},
        {"a,b", "a b"},
        {"node[1-3]", "node1 node2 node3"},
        {"node[001,007-010],host2", "node001 node007 node008 node009 node010 host2"},
        {"n[8-11]", "n8 n9 n10 n11"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[000]", "n000"},
        {"r[1-2]n[0-1]", "r1n0 r1n1 r2n0 r2n1"},
        {"r[1-2]n[3,5]-ib", "r1n3-ib r1n5-ib r2n3-ib r2n5-ib"},
        {"[1-2]", "1 2"},
        {"b2,b1", "b2 b1"}, /* the order is the scheduler's */
        {"gpu-4.cluster.example,gpu-[5-6].cluster.example",
         "gpu-4.cluster.example gpu-5.cluster.example gpu-6.cluster.example"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_strlist list = {0};
        struct ct_err err = {0};
        char names[512] = "";
        size_t len = 0;
        assert_int_equal(ct_nodelist_expand(rows[i].text, &list, &err), 0);
        for (size_t k = 0; k < list.count; k++) {
            len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", k > 0 ? " " : "",
                                    list.list[k]);
        }
        assert_string_equal(names, rows[i].names);
        assert_null(list.list[list.count]);
        ct_strlist_fini(&list);
    }
}

static void nonsense_is_refused(void **state)
{
    static const char *const rows[] = {
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "n[",
        "n]",
        "n[]",
        "n[1",
        "n[1-]",
        "n[-1]",
        "n[1,]",
        "n[,1]",
        "n[2-1]",
        "n[1-2-3]",
        "n[a]",
        "n[1]]",
        "n[[1]]",
        "n[1 2]",
        "n 1",
        "a\nb",
        "n[0x1]",
        "n[+1]",
        "n[1;2]",
        "n[1234567890123456]",
        "n[1-99999999999]",
        "n[1][1][1][1][1][1][1][1][1]",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_strlist list = {0};
        struct ct_err err = {0};
        if (ct_nodelist_expand(rows[i], &list, &err) != CT_EFORMAT) {
            fail_msg("'%s' was not refused", rows[i]);
        }
        assert_non_null(strstr(err.text, "is no list of hosts"));
        assert_null(list.list);
    }
}

static void size_is_bounded(void **state)
{
    struct ct_strlist list = {0};
    struct ct_err err = {0};
    char text[CT_MAX_NODES];
    (void)state;
    assert_int_equal(ct_nodelist_expand("n[0-65535]", &list, &err), 0);
    assert_int_equal(list.count, CT_MAX_NODES);
    assert_string_equal(list.list[65535], "n65535");
    ct_strlist_fini(&list);

    assert_int_equal(ct_nodelist_expand("n[0-65535],m", &list, &err), CT_ELIMIT);
    assert_int_equal(ct_nodelist_expand("n[0-9999]m[0-9999]o[0-9999]", &list, &err), CT_ELIMIT);

    memset(text, 'x', 300);
    text[300] = '\0';
    assert_int_equal(ct_nodelist_expand(text, &list, &err), CT_ELIMIT);
    text[255] = '\0';
    assert_int_equal(ct_nodelist_expand(text, &list, &err), 0);
    ct_strlist_fini(&list);
    memcpy(text + 254, "[1-10]", sizeof("[1-10]")); /* the tenth name is too long */
    assert_int_equal(ct_nodelist_expand(text, &list, &err), CT_ELIMIT);
}

static void counts_repeat(void **state)
{
    static const int counts[] = {2, 2, 2, 1, 16};
    struct ct_err err = {0};
    int count = -1;
    (void)state;
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ct_nodelist_count("2(x3),1,16(x1)", i, &count, &err), 0);
        assert_int_equal(count, counts[i]);
    }
    assert_int_equal(ct_nodelist_count("2(x3),1,16(x1)", 5, &count, &err), CT_ENOENT);
    assert_int_equal(ct_nodelist_count("4", 0, &count, &err), 0);
    assert_int_equal(count, 4);
    /* Sums of repetitions beyond an int are no reason to wrap around. */
    assert_int_equal(ct_nodelist_count("1(x2147483647),7(x2147483647),3", 2147483647, &count, &err),
                     0);
    assert_int_equal(count, 7);
}

static void bad_counts_are_refused(void **state)
{
    static const char *const rows[] = {
        "",   ",",      "2,", "2(x3",        "2(x3)1", "2(3)", "2(x)",   "2(x0)",  "0",
        "-1", "2(x3),", "a",  "99999999999", " 2",     "2()",  "2(x3))", "2(x-1)",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_err err = {0};
        int count = -1;
        if (ct_nodelist_count(rows[i], 0, &count, &err) != CT_EFORMAT) {
            fail_msg("'%s' was not refused", rows[i]);
        }
        assert_int_equal(count, -1);
    }
}

static int expand_once(void *data)
{
    struct ct_strlist list = {0};
    (void)data;
    int rc = ct_nodelist_expand("r[1-9]n[1-9],last", &list, NULL);
    ct_strlist_fini(&list);
    return rc;
}

static void memory_may_run_out(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(expand_once, NULL, 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_counted_up),   cmocka_unit_test(nonsense_is_refused),
        cmocka_unit_test(size_is_bounded),        cmocka_unit_test(counts_repeat),
        cmocka_unit_test(bad_counts_are_refused), cmocka_unit_test(memory_may_run_out),
    };
    return cmocka_run_group_tests_name("nodelist", tests, NULL, NULL);
}
