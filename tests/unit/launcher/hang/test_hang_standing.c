/* SPDX-License-Identifier: Apache-2.0
 *
 * What a machine does when the membership gives its verdict again: a hang is told once, and acted
 * upon in any case.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/hang/hang_standing.h"

#include <stdio.h>

#define S CT_NS_PER_S
#define OURS 3 /* the rank that runs here */

struct rig {
    struct ct_hang_standing standing;
    struct ct_hang_todo todo;
    bool awaits;
    int64_t now;
};

static void begin(struct rig *rig)
{
    *rig = (struct rig){.now = 1000 * S};
}

/* The hang is told here and now: of no rank (-1), or of this one. */
static void stand(struct rig *rig, int rank, bool is_here)
{
    rig->standing = (struct ct_hang_standing){
        .report = {.stands = true, .rank = rank, .still_ms = 5000},
        .since_ns = rig->now,
        .is_here = is_here,
    };
}

static void take(struct rig *rig, int kind, int rank, int64_t still_ms, bool asks, bool stand_still)
{
    const struct ct_hang_vote verdict = {
        .kind = kind, .rank = rank, .still_ms = still_ms, .asks = asks};
    const struct ct_hang_news news = {.verdict = &verdict,
                                      .is_here = rank == OURS,
                                      .awaits = rig->awaits,
                                      .stand_still = stand_still,
                                      .now_ns = rig->now};
    ct_hang_standing_take(&rig->standing, &news, &rig->todo);
    rig->awaits = rig->todo.answers;
}

static void assert_todo(const struct rig *rig, const char *expected)
{
    const struct ct_hang_todo *todo = &rig->todo;
    char text[80];
    (void)snprintf(text, sizeof(text), "%s%s%s%s%s", todo->ends ? "ends " : "",
                   todo->tells ? "tells " : "", todo->answers ? "answers " : "",
                   todo->acts ? "acts " : "", todo->objects ? "objects " : "");
    assert_string_equal(text, expected);
}

static void a_verdict_on_a_rank_is_told_and_acted_upon(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    take(&rig, CT_HANG_VOTE_BUSY, OURS, 5000, false, true);
    assert_todo(&rig, "tells acts ");
    take(&rig, CT_HANG_VOTE_BUSY, OURS + 1, 5000, false, true);
    assert_todo(&rig, "tells ");
}

/* A debugger, a pause or want of a CPU: for a moment this machine cannot say that its workers stand
 * still. The hang is the same, so it is not told again; but it was not acted upon yet. */
static void a_last_verdict_at_a_bad_moment_is_acted_upon_when_it_comes_again(void **state)
{
    (void)state;
    struct rig rig;
    for (int named = 0; named < 2; named++) {
        int kind = named ? CT_HANG_VOTE_NAMED : CT_HANG_VOTE_ALL;
        begin(&rig);
        take(&rig, CT_HANG_VOTE_ALL, OURS, 5000, true, true);
        assert_todo(&rig, "tells answers ");
        stand(&rig, -1, true);
        rig.now += S;
        take(&rig, kind, OURS, 5000, false, false);
        assert_todo(&rig, "objects ");
        assert_true(rig.todo.is_last);
        rig.now += 10 * S;
        take(&rig, CT_HANG_VOTE_ALL, OURS, 16000, true, true);
        assert_todo(&rig, "answers ");
        rig.now += S;
        take(&rig, kind, OURS, 16000, false, true);
        assert_todo(&rig, "tells acts ");
        stand(&rig, named ? OURS : -1, true);
        rig.standing.says_nobody = rig.standing.acted = true;
        rig.awaits = true;
        take(&rig, kind, OURS, 16000, false, true);
        assert_todo(&rig, "");
    }
}

static void a_first_verdict_at_a_bad_moment_is_told_when_it_comes_again(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    take(&rig, CT_HANG_VOTE_STOPPED, OURS, 5000, false, false);
    assert_todo(&rig, "objects ");
    take(&rig, CT_HANG_VOTE_STOPPED, OURS, 9000, false, true);
    assert_todo(&rig, "tells acts ");
    /* One that was told and not acted upon, for whatever reason, does not hide the next one. */
    stand(&rig, OURS, true);
    rig.now += 30 * S;
    take(&rig, CT_HANG_VOTE_STOPPED, OURS, 40000, false, true);
    assert_todo(&rig, "acts ");
    rig.standing.acted = true;
    take(&rig, CT_HANG_VOTE_STOPPED, OURS, 40000, false, true);
    assert_todo(&rig, "");
}

/* Ranks of another machine have made progress, those of this one have not. */
static void a_hang_that_ended_on_another_machine_is_over_and_a_new_one_is_told(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    stand(&rig, OURS + 1, false);
    rig.now += 10 * S;
    take(&rig, CT_HANG_VOTE_BUSY, OURS + 1, 14000, false, true);
    assert_todo(&rig, ""); /* nobody has: it is told once */
    take(&rig, CT_HANG_VOTE_BUSY, OURS + 1, 6000, false, true);
    assert_todo(&rig, "ends tells ");
    begin(&rig);
    stand(&rig, -1, true);
    rig.standing.acted = true;
    rig.now += 10 * S;
    take(&rig, CT_HANG_VOTE_ALL, OURS, 6000, true, true);
    assert_todo(&rig, "ends tells answers ");
    take(&rig, CT_HANG_VOTE_STOPPED, OURS, 6000, false, true);
    assert_todo(&rig, "ends tells acts ");
}

/* Whether it has made progress, this machine knows itself. */
static void a_suspect_of_this_machine_is_not_told_again(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    stand(&rig, OURS, true);
    rig.standing.acted = true;
    rig.now += 10 * S;
    take(&rig, CT_HANG_VOTE_BUSY, OURS, 6000, false, true);
    assert_todo(&rig, "");
    take(&rig, CT_HANG_VOTE_BUSY, OURS + 1, 6000, false, true);
    assert_todo(&rig, "");
}

static void who_is_named_where_none_was_is_told(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    stand(&rig, -1, false);
    rig.now += S;
    take(&rig, CT_HANG_VOTE_ALL, OURS + 1, 6000, true, true);
    assert_todo(&rig, "answers ");
    take(&rig, CT_HANG_VOTE_STUCK, OURS + 1, 6000, false, true);
    assert_todo(&rig, "tells ");
    take(&rig, CT_HANG_VOTE_NAMED, OURS + 1, 6000, false, true);
    assert_todo(&rig, ""); /* nobody has asked */
}

static void it_counts_from_the_last_progress(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    stand(&rig, OURS, true);
    assert_int_equal(ct_hang_standing_ms(&rig.standing, rig.now + 2 * S), 7000);
}

/* A worker whose collective has timed out prints a traceback, which looks like progress. */
static void progress_before_a_failure_does_not_end_a_hang(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    stand(&rig, OURS, true);
    assert_false(ct_hang_standing_take_sample(&rig.standing, false, rig.now + 10 * S));
    assert_false(ct_hang_standing_take_sample(&rig.standing, true, rig.now + 11 * S));
    assert_false(ct_hang_standing_take_sample(&rig.standing, false, rig.now + 12 * S));
    assert_false(ct_hang_standing_take_end(&rig.standing, false));
    assert_true(rig.standing.failed);
    assert_false(ct_hang_standing_take_sample(&rig.standing, true, rig.now + 20 * S));
    assert_int_equal(ct_hang_standing_ms(&rig.standing, rig.now + 20 * S), 16000);
}

static void progress_without_a_failure_ends_a_hang(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig);
    stand(&rig, OURS, true);
    assert_false(ct_hang_standing_take_end(&rig.standing, true)); /* no progress yet */
    assert_false(ct_hang_standing_take_sample(&rig.standing, true, rig.now + 11 * S));
    assert_true(ct_hang_standing_take_sample(&rig.standing, false, rig.now + 13 * S));
    assert_int_equal(ct_hang_standing_ms(&rig.standing, rig.now + 13 * S), 16000);
    assert_true(ct_hang_standing_take_end(&rig.standing, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_verdict_on_a_rank_is_told_and_acted_upon),
        cmocka_unit_test(a_last_verdict_at_a_bad_moment_is_acted_upon_when_it_comes_again),
        cmocka_unit_test(a_first_verdict_at_a_bad_moment_is_told_when_it_comes_again),
        cmocka_unit_test(a_hang_that_ended_on_another_machine_is_over_and_a_new_one_is_told),
        cmocka_unit_test(a_suspect_of_this_machine_is_not_told_again),
        cmocka_unit_test(who_is_named_where_none_was_is_told),
        cmocka_unit_test(it_counts_from_the_last_progress),
        cmocka_unit_test(progress_before_a_failure_does_not_end_a_hang),
        cmocka_unit_test(progress_without_a_failure_ends_a_hang),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
