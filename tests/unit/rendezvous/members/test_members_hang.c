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

/* ---- where the workers stand ----------------------------------------------------------------- */

/* Begins a world of three machines whose workers all wait in one step. */
static void begin_waiting(struct scene *s)
{
    begin(s, 3, 3, 0, 1);
    s->job.stands = true;
    run(s, 3);
}

static void all_wait(struct scene *s, int seconds)
{
    for (int i = 0; i < seconds; i++) {
        s->now += S;
        for (int node = 1; node <= 3; node++) {
            beat(s, node, CT_HANG_VOTE_WAITING, 2 * node - 2, 0);
        }
        ct_members_tick(s->members, s->now);
    }
}

static void tell_stands(struct scene *s, int node, int generation, const char *text)
{
    static struct ct_msg msg;
    msg = (struct ct_msg){
        .type = CT_MSG_STANDS, .generation = generation, .result = scene_text(text)};
    say_msg(s, node, &msg);
}

static void expect_verdict(struct scene *s, int kind, int rank, bool asks, const char *text)
{
    for (int node = 1; node <= 3; node++) {
        HEARS(s, node, "beat");
        assert_int_equal(s->nodes[node].last_still.kind, kind);
        assert_int_equal(s->nodes[node].last_still.rank, rank);
        assert_int_equal(s->nodes[node].last_still.asks, asks);
        assert_string_equal(s->nodes[node].last_text, text);
    }
}

#define AT(place) "{\"at\":\"" place "\"}"

static void answers_of_the_workers_may_name_a_rank(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    all_wait(&s, 3);
    expect_verdict(&s, CT_HANG_VOTE_ALL, 0, true, "gpu-1");
    tell_stands(&s, 2, 0, "[" AT("a") "," AT("a") "]");
    tell_stands(&s, 3, 0, "[" AT("a") "," AT("b") "]");
    tell_stands(&s, 3, 0, "[" AT("a") "," AT("a") "]"); /* only the first one counts */
    HEARS(&s, 1, "");
    tell_stands(&s, 1, 0, "[" AT("a") "," AT("a") "]");
    expect_verdict(&s, CT_HANG_VOTE_NAMED, 5, false,
                   "rank 5 is on another line than all others; it runs on gpu-3, at b");
    tell_stands(&s, 1, 0, "[" AT("b") "," AT("a") "]"); /* too late */
    all_wait(&s, 12);
    HEARS(&s, 1, "");
    end(&s);
}

static void a_machine_that_does_not_answer_is_waited_for_in_vain(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    all_wait(&s, 3);
    forget(&s);
    tell_stands(&s, 1, 0, "[" AT("a") "," AT("b") "]");
    tell_stands(&s, 2, 0, "no JSON");
    tell_stands(&s, 3, 1, "[" AT("a") "," AT("a") "]"); /* of a generation that has not begun */
    all_wait(&s, 6);
    HEARS(&s, 1, "");
    assert_true(ct_members_next(s.members) <= s.now + 2 * S);
    all_wait(&s, 3);
    expect_verdict(&s, CT_HANG_VOTE_ALL, 0, false, "gpu-1");
    end(&s);
}

static void who_has_finished_is_not_asked_where_it_stands(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    say(&s, 3, CT_MSG_FINISHED, 0);
    for (int i = 0; i < 3; i++) {
        s.now += S;
        beat(&s, 1, CT_HANG_VOTE_WAITING, 0, 0);
        beat(&s, 2, CT_HANG_VOTE_WAITING, 2, 0);
    }
    forget(&s);
    tell_stands(&s, 1, 0, "");
    tell_stands(&s, 2, 0, "");
    expect_verdict(&s, CT_HANG_VOTE_ALL, 0, false, "gpu-1");
    end(&s);
}

/* Its workers have ended, so they can be neither asked nor killed. */
static void a_machine_that_has_finished_is_not_named(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    say(&s, 1, CT_MSG_FINISHED, 0);
    for (int i = 0; i < 3; i++) {
        s.now += S;
        beat(&s, 2, CT_HANG_VOTE_WAITING, 2, 0);
        beat(&s, 3, CT_HANG_VOTE_WAITING, 4, 0);
    }
    expect_verdict(&s, CT_HANG_VOTE_ALL, 2, true, "gpu-2");
    tell_stands(&s, 1, 0, "[" AT("b") "," AT("a") "]");
    tell_stands(&s, 2, 0, "[" AT("a") "," AT("a") "]");
    tell_stands(&s, 3, 0, "[" AT("a") "," AT("a") "]");
    expect_verdict(&s, CT_HANG_VOTE_ALL, 2, false, "gpu-2");
    end(&s);
}

static void nobody_is_named_when_a_worker_moves_meanwhile(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    all_wait(&s, 3);
    forget(&s);
    beat(&s, 2, CT_HANG_VOTE_NO, 0, 0);
    for (int node = 1; node <= 3; node++) {
        tell_stands(&s, node, 0,
                    node == 1 ? "[" AT("a") "," AT("b") "]" : "[" AT("a") "," AT("a") "]");
    }
    HEARS(&s, 1, "");
    end(&s);
}

/* Else all machines would take stacks without an end. */
static void one_machine_cannot_have_the_others_asked_all_the_time(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    all_wait(&s, 3);
    expect_verdict(&s, CT_HANG_VOTE_ALL, 0, true, "gpu-1");
    beat(&s, 2, CT_HANG_VOTE_NO, 0, 0);
    all_wait(&s, 2); /* the question is open */
    HEARS(&s, 1, "");
    for (int pause = 5; pause <= 10; pause *= 2) {
        for (int node = 1; node <= 3; node++) {
            tell_stands(&s, node, 0, "[" AT("a") "," AT("a") "]");
        }
        forget(&s);
        for (int i = 1; i < pause; i++) {
            beat(&s, 2, CT_HANG_VOTE_NO, 0, 0);
            all_wait(&s, 1);
        }
        HEARS(&s, 1, "");
        all_wait(&s, 2); /* the job does hang */
        expect_verdict(&s, CT_HANG_VOTE_ALL, 0, true, "gpu-1");
    }
    /* The last verdict on it is given as ever. */
    for (int node = 1; node <= 3; node++) {
        tell_stands(&s, node, 0,
                    node == 1 ? "[" AT("a") "," AT("b") "]" : "[" AT("a") "," AT("a") "]");
    }
    expect_verdict(&s, CT_HANG_VOTE_NAMED, 1, false,
                   "rank 1 is on another line than all others; it runs on gpu-1, at b");
    end(&s);
}

static void answers_of_a_world_that_is_over_are_dropped(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    all_wait(&s, 3);
    tell_stands(&s, 1, 0, "[" AT("a") "," AT("b") "]");
    fails(&s, 2, 0, 3, 7);
    forget(&s);
    s.now += 9 * S;
    ct_members_tick(s.members, s.now);
    assert_null(strstr(s.nodes[1].log, "beat"));
    end(&s);
}

static void who_waits_in_which_collective_is_told(void **state)
{
    struct scene s;
    (void)state;
    begin_waiting(&s);
    all_wait(&s, 3);
    forget(&s);
    for (int node = 1; node <= 3; node++) {
        tell_stands(&s, node, 0,
                    node == 1 ? "[{\"in\":\"all_reduce\"},{\"in\":\"all_reduce\"}]"
                              : "[{\"in\":\"broadcast\"},{\"in\":\"broadcast\"}]");
    }
    expect_verdict(&s, CT_HANG_VOTE_ALL, 0, false,
                   "ranks 0-1 wait in all_reduce, ranks 2-5 in broadcast: they wait for different "
                   "operations");
    end(&s);
}

static void an_older_ctrun_makes_the_first_verdict_the_last(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 3, 3, 0, 1);
    s.job.stands = true;
    join(&s, 1);
    join(&s, 2);
    s.job.stands = false;
    join(&s, 3);
    say(&s, 1, CT_MSG_SERVING, 0);
    for (int node = 1; node <= 3; node++) {
        say(&s, node, CT_MSG_STARTED, 0);
    }
    forget(&s);
    all_wait(&s, 3);
    expect_verdict(&s, CT_HANG_VOTE_ALL, 0, false, "gpu-1");
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
        cmocka_unit_test(answers_of_the_workers_may_name_a_rank),
        cmocka_unit_test(a_machine_that_does_not_answer_is_waited_for_in_vain),
        cmocka_unit_test(who_has_finished_is_not_asked_where_it_stands),
        cmocka_unit_test(a_machine_that_has_finished_is_not_named),
        cmocka_unit_test(nobody_is_named_when_a_worker_moves_meanwhile),
        cmocka_unit_test(one_machine_cannot_have_the_others_asked_all_the_time),
        cmocka_unit_test(answers_of_a_world_that_is_over_are_dropped),
        cmocka_unit_test(who_waits_in_which_collective_is_told),
        cmocka_unit_test(an_older_ctrun_makes_the_first_verdict_the_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
