/* SPDX-License-Identifier: Apache-2.0
 *
 * What members tell of their workers: what does not fit what they have joined with is refused, and
 * all that they make us keep is counted.
 */
#include "tests/lib/members_scene.h"

#include <stdio.h>

static struct ct_msg msg;

static void test_sound_rows_are_taken(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    join(&s, 1);
    give_rows(&msg, 2, 0, -1); /* before the first generation */
    say_msg(&s, 1, &msg);
    join(&s, 2);
    forget(&s);
    say(&s, 1, CT_MSG_SERVING, 0);
    forget(&s);
    give_rows(&msg, 2, 2, 0);
    say_msg(&s, 2, &msg);
    give_rows(&msg, 1, 2, 0);
    say_msg(&s, 2, &msg);
    /* Still with the ranks of the generation before. */
    give_rows(&msg, 2, 0, -1);
    say_msg(&s, 2, &msg);
    HEARS(&s, 2, "");
    end(&s);
}

static void test_rows_beyond_the_node_are_refused(void **state)
{
    static const struct {
        int count, first_rank, generation;
        const char *why;
    } cases[] = {
        {3, 2, 0, "it reports 3 workers but joined with 2"},
        {2, 0, 0, "worker 0 is said to be rank 0 but is rank 2"},
        {2, 2, 1, "worker 0 is said to be of generation 1, which has not begun"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        char want[256];
        begin(&s, 2, 2, 0, 1);
        run(&s, 2);
        give_rows(&msg, cases[i].count, cases[i].first_rank, cases[i].generation);
        say_msg(&s, 2, &msg);
        HEARS(&s, 2, "refused=121 dropped");
        (void)snprintf(want, sizeof(want),
                       "this node was given up: it broke the protocol with "
                       "\"beat\": %s",
                       cases[i].why);
        assert_string_equal(s.nodes[2].last_text, want);
        end(&s);
    }
}

static void test_members_are_counted(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 2, 2, 0, 1);
    size_t before = s.budget.used;
    s.job.workers = 1000;
    join(&s, 1);
    size_t one = s.budget.used - before;
    assert_true(one > 1000 * sizeof(struct ct_worker_row));
    give_rows(&msg, 1000, 0, -1);
    say_msg(&s, 1, &msg);
    assert_int_equal(s.budget.used - before, one); /* had been counted */
    s.budget.max = s.budget.used + one / 2;
    assert_int_equal(try_join(&s, 2, -1), CT_ELIMIT);
    assert_string_equal(s.err.text,
                        "the store's memory is used up (--max-memory), so node gpu-2 cannot join");
    s.job.workers = 1;
    join(&s, 2);
    end(&s);
}

/* The story goes without the long texts of a failure for which there is no room. */
static void test_texts_of_failures_are_counted(void **state)
{
    (void)state;
    for (int room = 0; room < 2; room++) {
        struct scene s;
        begin(&s, 2, 2, 0, 1);
        run(&s, 2);
        size_t before = s.budget.used;
        s.budget.max = room ? SIZE_MAX : before + 4;
        memset(&msg, 0, sizeof(msg));
        msg.type = CT_MSG_FAILED;
        msg.failure = (struct ct_failure){.rank = 0, .exit_code = 3, .tail = scene_text("tail\n")};
        say_msg(&s, 1, &msg);
        assert_int_equal(s.budget.used > before, room);
        assert_string_equal(s.nodes[2].last_tail, room ? "tail\n" : "");
        end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sound_rows_are_taken),
        cmocka_unit_test(test_rows_beyond_the_node_are_refused),
        cmocka_unit_test(test_members_are_counted),
        cmocka_unit_test(test_texts_of_failures_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
