/* SPDX-License-Identifier: Apache-2.0
 *
 * How many voters of a world are enough together with an arbiter.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/election/world_voters.h"

#define COUNT(ids) ((int)(sizeof(ids) / sizeof((ids)[0])))
#define ENOUGH(world, ids) ct_world_voters_enough_with_arbiter(&(world), (ids), COUNT(ids))

static struct ct_world_voters world(int generation, int count)
{
    struct ct_world_voters out = {.generation = generation, .count = count};
    for (int i = 0; i < count; i++) {
        out.list[i].id = (uint64_t)i + 1;
    }
    return out;
}

static void test_the_arbiter_and_any_one_agent_are_enough(void **state)
{
    const uint64_t one[] = {CT_ARBITER_ID, 3}, stranger[] = {CT_ARBITER_ID, 99};
    const uint64_t alone[] = {CT_ARBITER_ID}, last[] = {CT_VOTERS_MAX, CT_ARBITER_ID};
    struct ct_world_voters four = world(0, 4), largest = world(0, CT_VOTERS_MAX);
    (void)state;
    assert_true(ENOUGH(four, one));
    assert_false(ENOUGH(four, stranger));
    assert_false(ENOUGH(four, alone));
    assert_true(ENOUGH(largest, last));
    assert_false(ENOUGH(largest, alone));
}

static void test_all_agents_are_enough_without_the_arbiter(void **state)
{
    const uint64_t all[] = {4, 2, 3, 1}, all_but_one[] = {4, 2, 3, 99};
    struct ct_world_voters four = world(0, 4);
    (void)state;
    assert_true(ENOUGH(four, all));
    assert_false(ENOUGH(four, all_but_one));
}

/* It would be without an arbiter. Here the other half may have the arbiter. */
static void test_half_of_the_agents_is_not_enough_where_there_is_an_arbiter(void **state)
{
    const uint64_t half[] = {1, 2};
    struct ct_world_voters four = world(0, 4);
    (void)state;
    assert_true(ct_world_voters_enough(&four, half, 2, true));
    assert_false(ENOUGH(four, half));
}

static void test_in_a_world_of_one_the_arbiter_has_no_weight(void **state)
{
    const uint64_t agent[] = {1}, arbiter[] = {CT_ARBITER_ID};
    struct ct_world_voters one = world(0, 1);
    (void)state;
    assert_true(ENOUGH(one, agent));
    assert_false(ENOUGH(one, arbiter));
}

static void test_a_world_without_voters_needs_the_arbiter(void **state)
{
    const uint64_t agents[] = {1, 2}, arbiter[] = {CT_ARBITER_ID};
    struct ct_world_voters none = world(-1, 0);
    (void)state;
    assert_false(ENOUGH(none, agents));
    assert_true(ENOUGH(none, arbiter));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_arbiter_and_any_one_agent_are_enough),
        cmocka_unit_test(test_all_agents_are_enough_without_the_arbiter),
        cmocka_unit_test(test_half_of_the_agents_is_not_enough_where_there_is_an_arbiter),
        cmocka_unit_test(test_in_a_world_of_one_the_arbiter_has_no_weight),
        cmocka_unit_test(test_a_world_without_voters_needs_the_arbiter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
