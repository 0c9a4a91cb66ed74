/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds a job of several machines up: the votes of the machines and the judgement.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/control/hang_vote.h"

static void judge(const struct ct_hang_vote *machines, int count, int kind, int rank)
{
    /* The order in which machines are asked makes no difference. */
    for (int first = 0; first < count; first++) {
        struct ct_hang_votes sum = {.total = 0};
        struct ct_hang_vote verdict;
        for (int i = 0; i < count; i++) {
            ct_hang_vote_add(&sum, &machines[(first + i) % count]);
        }
        ct_hang_vote_judge(&sum, &verdict);
        assert_int_equal(verdict.kind, kind);
        if (kind != CT_HANG_VOTE_NO) {
            assert_int_equal(verdict.rank, rank);
        }
    }
}

#define JUDGE(kind, rank, ...)                                      \
    do {                                                            \
        const struct ct_hang_vote of[] = {__VA_ARGS__};             \
        judge(of, (int)(sizeof(of) / sizeof(of[0])), (kind), rank); \
    } while (0)
#define IS(what, of_rank)                                            \
    {                                                                \
        .kind = CT_HANG_VOTE_##what, .rank = (of_rank), .sure = true \
    }
#define WAITS(of_rank, in_step, is_alone)                                                       \
    {                                                                                           \
        .kind = CT_HANG_VOTE_WAITING, .rank = (of_rank), .step = (in_step), .alone = (is_alone) \
    }

static void the_one_that_does_not_wait_is_named(void **state)
{
    (void)state;
    JUDGE(CT_HANG_VOTE_STOPPED, 5, IS(WAITING, 0), IS(BUSY, 2), IS(STOPPED, 5));
    JUDGE(CT_HANG_VOTE_NO, 0, IS(STOPPED, 0), IS(STOPPED, 2)); /* somebody has suspended the job */
    JUDGE(CT_HANG_VOTE_BUSY, 2, IS(WAITING, 0), IS(BUSY, 6), IS(BUSY, 2));
    JUDGE(CT_HANG_VOTE_NO, 0, IS(BUSY, 0), IS(BUSY, 2)); /* all evaluate */
    JUDGE(CT_HANG_VOTE_NO, 0, IS(BUSY, 0), IS(QUIET, 2));
    JUDGE(CT_HANG_VOTE_STUCK, 4, IS(QUIET, 0), IS(NAPPING, 2), IS(STUCK, 4));
    JUDGE(CT_HANG_VOTE_NAPPING, 2, IS(QUIET, 0), IS(NAPPING, 2), IS(QUIET, 4));
    JUDGE(CT_HANG_VOTE_ALL, 0, IS(NAPPING, 0), IS(NAPPING, 2));
    JUDGE(CT_HANG_VOTE_ALL, 0, IS(QUIET, 0), IS(QUIET, 2));
    JUDGE(CT_HANG_VOTE_NO, 0, {.kind = CT_HANG_VOTE_QUIET}, IS(QUIET, 2)); /* with `auto` */
}

static void of_those_who_wait_it_is_the_last(void **state)
{
    (void)state;
    JUDGE(CT_HANG_VOTE_BEHIND, 3, WAITS(0, 8, false), WAITS(3, 7, true), WAITS(4, 8, false));
    JUDGE(CT_HANG_VOTE_ALL, 0, WAITS(0, 8, false), WAITS(2, 7, false)); /* two of that machine */
    JUDGE(CT_HANG_VOTE_ALL, 0, WAITS(0, 7, true), WAITS(2, 7, true), WAITS(4, 8, true));
    JUDGE(CT_HANG_VOTE_ALL, 0, WAITS(0, 7, true), WAITS(2, 7, true), WAITS(4, 7, true));
    struct ct_hang_votes nobody = {.total = 0};
    struct ct_hang_vote verdict;
    ct_hang_vote_judge(&nobody, &verdict);
    assert_int_equal(verdict.kind, CT_HANG_VOTE_NO);
}

static void only_a_verdict_names_a_suspect(void **state)
{
    static const int no_verdicts[] = {CT_HANG_VOTE_NO, CT_HANG_VOTE_WAITING, CT_HANG_VOTE_QUIET};
    int verdicts = 0;
    (void)state;
    for (int kind = 0; kind < CT_HANG_VOTE_KINDS; kind++) {
        verdicts += ct_hang_vote_is_verdict(&(struct ct_hang_vote){.kind = kind});
    }
    assert_int_equal(verdicts, CT_HANG_VOTE_KINDS - 3);
    for (size_t i = 0; i < 3; i++) {
        assert_false(ct_hang_vote_is_verdict(&(struct ct_hang_vote){.kind = no_verdicts[i]}));
    }
}

static void the_verdict_has_the_shortest_time(void **state)
{
    static const struct ct_hang_vote of[] = {{.kind = CT_HANG_VOTE_BUSY, .still_ms = 9000},
                                             {.kind = CT_HANG_VOTE_WAITING, .still_ms = 7000},
                                             {.kind = CT_HANG_VOTE_WAITING, .still_ms = 8000}};
    (void)state;
    for (int first = 0; first < 3; first++) {
        struct ct_hang_votes sum = {.total = 0};
        struct ct_hang_vote verdict;
        for (int i = 0; i < 3; i++) {
            ct_hang_vote_add(&sum, &of[(first + i) % 3]);
        }
        ct_hang_vote_judge(&sum, &verdict);
        assert_true(verdict.still_ms == 7000);
    }
}

static void a_lone_machine_is_behind_nobody(void **state)
{
    (void)state;
    JUDGE(CT_HANG_VOTE_ALL, 0, WAITS(0, 7, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_a_verdict_names_a_suspect),
        cmocka_unit_test(the_one_that_does_not_wait_is_named),
        cmocka_unit_test(of_those_who_wait_it_is_the_last),
        cmocka_unit_test(the_verdict_has_the_shortest_time),
        cmocka_unit_test(a_lone_machine_is_behind_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
