/* SPDX-License-Identifier: Apache-2.0
 *
 * The tournament: who meets whom.
 */
#include "tests/lib/ct_test.h"

#include "launcher/preflight/preflight_pairs.h"

#include <string.h>

#define MOST 80

/* Partners are partners of each other, and nobody meets anybody twice. Returns how many met. */
static int play(int machines)
{
    static bool met[MOST][MOST];
    int pairs = 0;
    memset(met, 0, sizeof(met));
    for (int round = 0; round < ct_preflight_rounds(machines); round++) {
        int pausing = 0;
        for (int i = 0; i < machines; i++) {
            int partner = ct_preflight_partner(machines, round, i);
            if (partner < 0) {
                pausing++;
                continue;
            }
            assert_in_range(partner, 0, machines - 1);
            assert_int_not_equal(partner, i);
            assert_int_equal(ct_preflight_partner(machines, round, partner), i);
            assert_false(met[i][partner]);
            met[i][partner] = true;
            pairs++;
        }
        assert_int_equal(pausing, machines % 2);
    }
    return pairs / 2;
}

static void test_every_pair_meets_once(void **state)
{
    (void)state;
    for (int machines = 0; machines <= CT_PREFLIGHT_ROUNDS_MAX; machines++) {
        assert_true(ct_preflight_all_meet(machines));
        assert_int_equal(play(machines), machines < 2 ? 0 : machines * (machines - 1) / 2);
    }
}

static void test_many_machines_meet_some(void **state)
{
    (void)state;
    for (int machines = CT_PREFLIGHT_ROUNDS_MAX + 2; machines <= MOST; machines++) {
        assert_false(ct_preflight_all_meet(machines));
        assert_int_equal(ct_preflight_rounds(machines), CT_PREFLIGHT_ROUNDS_MAX);
        assert_int_equal(play(machines), machines / 2 * CT_PREFLIGHT_ROUNDS_MAX);
    }
    assert_int_equal(ct_preflight_rounds(1 << 20), CT_PREFLIGHT_ROUNDS_MAX);
    int partner = ct_preflight_partner(1 << 20, 15, (1 << 20) - 1);
    assert_int_equal(ct_preflight_partner(1 << 20, 15, partner), (1 << 20) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_pair_meets_once),
        cmocka_unit_test(test_many_machines_meet_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
