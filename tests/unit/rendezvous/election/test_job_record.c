/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of records, their voters, and how many of them are enough.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/election/job_record.h"

static struct ct_world_voters world(int generation, int count)
{
    struct ct_world_voters out = {.generation = generation, .count = count};
    for (int i = 0; i < count; i++) {
        out.list[i].id = (uint64_t)i + 1;
    }
    return out;
}

static void test_term_counts_before_version(void **state)
{
    struct ct_job_record a = {.term = 1, .version = 9}, b = {.term = 2, .version = 1};
    (void)state;
    assert_true(ct_job_record_compare(&a, &b) < 0 && ct_job_record_compare(&b, &a) > 0);
    a.term = 2;
    assert_true(ct_job_record_compare(&a, &b) > 0);
    b.version = 9;
    assert_int_equal(ct_job_record_compare(&a, &b), 0);
}

static void test_the_newest_generation_may_be_planned(void **state)
{
    struct ct_job_record record;
    (void)state;
    ct_job_record_init(&record);
    assert_int_equal(ct_job_record_generation(&record), -1);
    record.formed = world(3, 2);
    assert_int_equal(ct_job_record_generation(&record), 3);
    record.planned = world(4, 2);
    assert_int_equal(ct_job_record_generation(&record), 4);
}

static void test_a_voter_of_both_worlds_is_listed_once(void **state)
{
    struct ct_job_record record;
    uint64_t ids[CT_VOTERS_BOTH];
    (void)state;
    ct_job_record_init(&record);
    record.formed = world(0, 3);
    record.planned = world(1, 3);
    record.planned.list[0].id = 7;
    assert_int_equal(ct_job_record_voters(&record, ids), 4);
    assert_true(ids[0] == 1 && ids[1] == 2 && ids[2] == 3 && ids[3] == 7);
    assert_non_null(ct_job_record_find(&record, 7));
    assert_non_null(ct_job_record_find(&record, 1));
    record.planned.list[0].id = record.formed.list[0].id;
    assert_ptr_equal(ct_job_record_find(&record, record.formed.list[0].id),
                     &record.planned.list[0]);
    assert_null(ct_job_record_find(&record, 8));
}

static void test_half_of_a_world_is_enough_only_if_it_may_be(void **state)
{
    const uint64_t ids[] = {1, 2, 99, 3};
    struct ct_world_voters four = world(0, 4), five = world(0, 5), none = world(-1, 0);
    (void)state;
    assert_false(ct_world_voters_enough(&four, ids, 3, false));
    assert_true(ct_world_voters_enough(&four, ids, 3, true));
    assert_false(ct_world_voters_enough(&five, ids, 3, true));
    assert_true(ct_world_voters_enough(&five, ids, 4, false));
    assert_true(ct_world_voters_enough(&none, ids, 0, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_term_counts_before_version),
        cmocka_unit_test(test_the_newest_generation_may_be_planned),
        cmocka_unit_test(test_a_voter_of_both_worlds_is_listed_once),
        cmocka_unit_test(test_half_of_a_world_is_enough_only_if_it_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
