/* SPDX-License-Identifier: Apache-2.0
 *
 * Membership: what those who wait are told, and when.
 */
#include "tests/lib/members_scene.h"

static void test_missing_nodes_are_named(void **state)
{
    static const char *const expected[] = {"gpu-1", "gpu-2", "gpu-3", "gpu-4"};
    struct scene s;
    (void)state;
    begin_expecting(&s, 4, 4, 0, 0, expected, 4);
    join(&s, 1);
    join(&s, 2);
    pass(&s, 4 * S);
    HEARS(&s, 1, "");
    pass(&s, S + MS);
    HEARS(&s, 1, "waiting");
    assert_string_equal(s.nodes[1].last_text,
                        "waiting for 2 of 4 nodes: node ranks 2-3 (gpu-[3-4]) never connected; "
                        "present: gpu-[1-2]");
    pass(&s, 20 * S);
    HEARS(&s, 1, "");
    gone(&s, 2);
    pass(&s, 12 * S); /* told of the change at once, then after 30 s again */
    HEARS(&s, 1, "waiting");
    assert_string_equal(
        s.nodes[1].last_text,
        "waiting for 3 of 4 nodes: node ranks 2-3 (gpu-[3-4]) never connected; node rank 1 "
        "(gpu-2) connected from 10.0.0.2 and left 0 s ago; present: gpu-1");
    pass(&s, 20 * S);
    HEARS(&s, 1, "waiting");
    assert_non_null(strstr(s.nodes[1].last_text, "and left 30 s ago"));
    end(&s);
}

static void test_many_missing_nodes_are_told_as_ranges(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1000, 1000, 0, 0);
    join_as(&s, 1, 0);
    pass(&s, 6 * S);
    HEARS(&s, 1, "waiting");
    assert_string_equal(
        s.nodes[1].last_text,
        "waiting for 999 of 1000 nodes: node ranks 1-999 never connected; present: gpu-1");
    end(&s);

    begin(&s, 3, 3, 0, 0);
    join(&s, 1); /* could be any of them */
    pass(&s, 6 * S);
    assert_string_equal(s.nodes[1].last_text, "waiting for 2 of 3 nodes; present: gpu-1");
    end(&s);
}

/* What the last line says of a job that may grow, and of a longer story than a line can hold. */
static void test_nodes_that_may_still_join_are_told(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 6, 10000, 0);
    join(&s, 1);
    pass(&s, 6 * S);
    assert_string_equal(s.nodes[1].last_text,
                        "waiting for 1 of 2 nodes; present: gpu-1; then up to 4 more may join");
    join(&s, 2);
    pass(&s, 2 * S);
    assert_string_equal(s.nodes[1].last_text,
                        "2 nodes are there: gpu-[1-2]; up to 4 more may join");
    end(&s);

    begin(&s, 12, 12, 0, 0);
    for (int i = 1; i < 12; i++) {
        join_as(&s, i, i - 1);
    }
    for (int i = 7; i < 12; i++) {
        gone(&s, i);
    }
    pass(&s, 6 * S);
    assert_string_equal(
        s.nodes[1].last_text,
        "waiting for 6 of 12 nodes: node rank 11 never connected; node rank 6 (gpu-7) "
        "connected from 10.0.0.7 and left 5 s ago; node rank 7 (gpu-8) connected from "
        "10.0.0.8 and left 5 s ago; node rank 8 (gpu-9) connected from 10.0.0.9 and "
        "left 5 s ago; and 2 more left; present: gpu-[1-6]");
    end(&s);
}

static void test_changes_are_told_once_a_second(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 16, 16, 0, 0);
    join(&s, 1);
    pass(&s, 10 * S);
    forget(&s);
    for (int i = 2; i < 10; i++) {
        join(&s, i);
        pass(&s, S / 10);
    }
    HEARS(&s, 1, "waiting");
    end(&s);
}

/* A deadline that is past when it is set would look as if the host had not run for a while. */
static void test_the_next_line_is_never_due_in_the_past(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 16, 16, 0, 0);
    join(&s, 1);
    pass(&s, 10 * S);
    join(&s, 2);
    assert_true(ct_members_next(s.members) == s.now);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_missing_nodes_are_named),
        cmocka_unit_test(test_many_missing_nodes_are_told_as_ranges),
        cmocka_unit_test(test_nodes_that_may_still_join_are_told),
        cmocka_unit_test(test_changes_are_told_once_a_second),
        cmocka_unit_test(test_the_next_line_is_never_due_in_the_past),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
