/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the estimate of what one writer has in a shared queue with the exact number.
 */
#include "tests/lib/ct_test.h"

#include "launcher/output/backlog.h"

#define LIMIT 16000
#define COARSE (LIMIT / CT_BACKLOG_MARKS)

static void the_backlog_of_a_lone_writer_is_exact(void **state)
{
    struct ct_backlog b = {0};
    (void)state;
    assert_int_equal(ct_backlog_left(&b, 0), 0);
    ct_backlog_put(&b, 100, 100, LIMIT);
    assert_int_equal(ct_backlog_left(&b, 0), 100);
    assert_int_equal(ct_backlog_left(&b, 99), 100);
    assert_int_equal(ct_backlog_left(&b, 100), 0);
    ct_backlog_put(&b, 7, 107, LIMIT);
    assert_int_equal(ct_backlog_left(&b, 106), 7);
    assert_int_equal(ct_backlog_left(&b, 107), 0);
}

/* What others put between ours counts for nobody but the position. */
static void the_others_do_not_count(void **state)
{
    struct ct_backlog b = {0};
    (void)state;
    ct_backlog_put(&b, 10, 5010, LIMIT);
    assert_int_equal(ct_backlog_left(&b, 5000), 10);
    assert_int_equal(ct_backlog_left(&b, 5010), 0);
}

/* A queue that is never empty: against the exact number, of two writers that take turns. */
static void the_backlog_of_two_writers_is_close(void **state)
{
    enum { STEPS = 4000 };
    static uint64_t ends[STEPS], puts[STEPS];
    struct ct_backlog b = {0};
    uint64_t end = 0, begin = 0, mine = 0;
    int oldest = 0;
    unsigned random = 12345;
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        random = random * 1103515245 + 12345;
        size_t len = 1 + (random >> 16) % 300;
        end += len; /* the other's */
        end += len;
        mine += len;
        ends[i] = end;
        puts[i] = mine;
        ct_backlog_put(&b, len, end, LIMIT);
        if (end - begin > LIMIT) {
            begin = end - LIMIT + (random >> 16) % 3000;
        }
        uint64_t exact = mine;
        while (ends[oldest] <= begin) {
            oldest++;
        }
        exact -= oldest > 0 ? puts[oldest - 1] : 0;
        uint64_t left = ct_backlog_left(&b, begin);
        assert_in_range(left, exact, exact + COARSE + 300);
    }
}

/* More than the limit: the ring is full, and still nothing is forgotten. */
static void a_full_ring_still_counts_all_bytes(void **state)
{
    struct ct_backlog b = {0};
    (void)state;
    for (int i = 1; i <= 1000; i++) {
        ct_backlog_put(&b, 1000, (uint64_t)i * 1000, LIMIT);
    }
    assert_int_equal(ct_backlog_left(&b, 0), 1000000);
    assert_int_equal(ct_backlog_left(&b, 1000), 999000);
    assert_int_equal(ct_backlog_left(&b, 999999), 1000000 - (CT_BACKLOG_MARKS - 1) * 1000);
    assert_int_equal(ct_backlog_left(&b, 1000000), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_backlog_of_a_lone_writer_is_exact),
        cmocka_unit_test(the_others_do_not_count),
        cmocka_unit_test(the_backlog_of_two_writers_is_close),
        cmocka_unit_test(a_full_ring_still_counts_all_bytes),
    };
    return cmocka_run_group_tests_name("backlog", tests, NULL, NULL);
}
