/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of several losses has ended a generation.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/election/host_loss.h"

static const struct ct_voter daemon_host = {.id = 9}, agent = {.id = 2};

static void test_the_first_loss_of_a_generation_counts(void **state)
{
    struct ct_host_loss loss = {0};
    (void)state;
    assert_false(ct_host_loss_ended(&loss, 0));
    assert_true(ct_host_loss_note(&loss, 0, &daemon_host, true));
    /* Those that were elected after it formed no world. */
    assert_false(ct_host_loss_note(&loss, 0, &agent, false));
    assert_false(ct_host_loss_note(&loss, 0, NULL, false));
    assert_true(ct_host_loss_ended(&loss, 0));
    assert_int_equal(loss.host.id, 9);
    assert_true(loss.daemon);
}

static void test_the_next_generation_has_a_loss_of_its_own(void **state)
{
    struct ct_host_loss loss = {0};
    (void)state;
    assert_true(ct_host_loss_note(&loss, 0, &daemon_host, true));
    assert_false(ct_host_loss_ended(&loss, 1)); /* others have lost its host */
    assert_true(ct_host_loss_note(&loss, 1, NULL, false));
    assert_true(ct_host_loss_ended(&loss, 1));
    assert_int_equal(loss.host.id, 0);
    assert_false(loss.daemon);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_loss_of_a_generation_counts),
        cmocka_unit_test(test_the_next_generation_has_a_loss_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
