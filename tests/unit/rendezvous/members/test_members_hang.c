/* SPDX-License-Identifier: Apache-2.0
 *
 * The membership adds up what the machines say of their workers, and tells the verdict once.
 */
#include "tests/lib/members_scene.h"

static void beat(struct scene *s, int node, int kind, int rank, int generation)
{
    static struct ct_msg msg;
    msg = (struct ct_msg){
        .type = CT_MSG_BEAT,
        .still = {.kind = kind, .rank = rank, .generation = generation, .still_ms = 4000},
    };
    say_msg(s, node, &msg);
}

/* All say it again and again, a second apart. */
static void all_stand_still(struct scene *s, int seconds, int generation)
{
    for (int i = 0; i < seconds; i++) {
        s->now += S;
        beat(s, 1, CT_HANG_VOTE_WAITING, 0, generation);
        beat(s, 2, CT_HANG_VOTE_BUSY, 3, generation);
        beat(s, 3, CT_HANG_VOTE_WAITING, 4, generation);
    }
}

static void all_are_told_once(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 1);
    run(&s, 3);
    s.now += S;
    beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
    beat(&s, 2, CT_HANG_VOTE_BUSY, 3, 0);
    HEARS(&s, 1, ""); /* node 3 moves */
    all_stand_still(&s, 3, 0);
    for (int node = 1; node <= 3; node++) {
        HEARS(&s, node, "beat");
        assert_string_equal(s.nodes[node].last_text, "gpu-2");
    }
    beat(&s, 2, CT_HANG_VOTE_NO, 0, 0); /* it moves, and stops again */
    all_stand_still(&s, 3, 0);
    HEARS(&s, 1, "beat");
    end(&s);
}

static void who_has_finished_is_not_waited_for(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 1);
    run(&s, 3);
    say(&s, 3, CT_MSG_FINISHED, 0);
    for (int i = 0; i < 3; i++) {
        s.now += S;
        beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
        beat(&s, 2, CT_HANG_VOTE_BUSY, 3, 0);
    }
    HEARS(&s, 1, "beat");
    end(&s);
}

/* Ranks of others, other generations and verdicts are no news of a machine. */
static void nonsense_counts_as_moving(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    run(&s, 2);
    static const struct ct_hang_vote odd[] = {
        {CT_HANG_VOTE_BUSY, 0, 1, 0, false, false, 0},
        {CT_HANG_VOTE_BUSY, 0, 4, 0, false, false, 0},
        {CT_HANG_VOTE_BUSY, 1, 2, 0, false, false, 0},
        {CT_HANG_VOTE_ALL, 0, 2, 0, false, false, 0},
        {CT_HANG_VOTE_BEHIND, 0, 2, 0, false, false, 0},
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        s.now += 2 * S;
        beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
        beat(&s, 2, odd[i].kind, odd[i].rank, odd[i].generation);
        s.now += 2 * S;
        beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
        HEARS(&s, 1, "");
    }
    end(&s);
}

/* What is said before the world runs, or of a world of one machine, is for that machine alone. */
static void a_world_of_one_machine_judges_itself(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 1, 1, 0, 1);
    run(&s, 1);
    for (int i = 0; i < 3; i++) {
        s.now += S;
        beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
    }
    HEARS(&s, 1, "");
    end(&s);
}

static void a_world_that_does_not_run_is_not_judged(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    run(&s, 2);
    fails(&s, 2, 0, 3, 7);
    forget(&s);
    for (int i = 0; i < 3; i++) {
        s.now += S;
        beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
        beat(&s, 2, CT_HANG_VOTE_BUSY, 3, 0);
    }
    HEARS(&s, 1, "");
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_are_told_once),
        cmocka_unit_test(who_has_finished_is_not_waited_for),
        cmocka_unit_test(nonsense_counts_as_moving),
        cmocka_unit_test(a_world_of_one_machine_judges_itself),
        cmocka_unit_test(a_world_that_does_not_run_is_not_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
