/* SPDX-License-Identifier: Apache-2.0
 *
 * What is remembered of failures and of nodes that left, and the budget of memory. end() wants all
 * of the budget back.
 */
#include "tests/lib/members_scene.h"

#include "rendezvous/members/members_core.h"

#include <stdlib.h>
#include <string.h>

#define TEXT_SIZE 1000

/* A host is elected with this history, and sees as many failures as a history keeps. Returns how
 * much memory is taken then; *at_first gets how much was taken before. */
static size_t used_after_other_failures(const struct ct_failure_history *history, size_t *at_first)
{
    struct scene s;
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 8;
    record.formed = (struct ct_world_voters){
        .generation = 4, .count = 3, .list = {{9, "10.0.0.9", 9}, {1, "", 1}, {2, "", 2}}};
    const struct ct_members_failover elected = {.self = {.id = 1},
                                                .term = UINT64_C(1) << 32 | 1,
                                                .record = &record,
                                                .fence_ns = INT64_MIN,
                                                .lost = {.id = 9},
                                                .lost_is_dead = true,
                                                .history = history,
                                                .round = {.generation = 4}};
    begin_failover(&s, 2, 2, 0, 5, &elected);
    *at_first = s.budget.used;
    join(&s, 1);
    join(&s, 2);
    for (int generation = 5; generation < 7; generation++) {
        pledge(&s, 1);
        pledge(&s, 2);
        say(&s, 1, CT_MSG_SERVING, generation);
        for (int i = 0; i < CT_FAILURE_HISTORY_KEPT / 2; i++) {
            fails(&s, 1, generation, 0, 1);
        }
        say(&s, 1, CT_MSG_STOPPED, generation);
        say(&s, 2, CT_MSG_STOPPED, generation);
    }
    size_t used = s.budget.used;
    assert_int_equal(s.members->history.failures[0].generation, 5);
    end(&s);
    return used;
}

static void test_what_a_former_host_has_recorded_is_counted(void **state)
{
    struct ct_failure_history *history = calloc(1, sizeof(*history));
    char text[TEXT_SIZE + 1] = "";
    size_t without_first, with_first;
    (void)state;
    assert_non_null(history);
    memset(text, 'x', TEXT_SIZE);
    history->num_failures = CT_FAILURE_HISTORY_KEPT;
    for (int i = 0; i < CT_FAILURE_HISTORY_KEPT; i++) {
        history->failures[i].generation = 4;
        history->failures[i].tail = scene_text(text);
    }
    size_t without = used_after_other_failures(NULL, &without_first);
    size_t with = used_after_other_failures(history, &with_first);
    assert_true(with_first >= without_first + (size_t)CT_FAILURE_HISTORY_KEPT * TEXT_SIZE);
    assert_int_equal(with, without);
    ct_failure_history_fini(history);
    free(history);
}

/* One agent could come and go at each place. */
static void test_nodes_that_left_are_counted(void **state)
{
    struct scene s;
    (void)state;
    begin(&s, 4, 4, 0, 0);
    join_as(&s, 1, 0);
    size_t before = s.budget.used;
    join_as(&s, 2, 1);
    gone(&s, 2);
    size_t one = s.budget.used;
    assert_true(one > before + sizeof(struct members_gone));
    join_as(&s, 2, 1); /* nobody is missing there any more */
    gone(&s, 2);
    assert_int_equal(s.budget.used, one);
    join_as(&s, 3, 2);
    s.budget.max = s.budget.used;
    gone(&s, 3);
    assert_int_equal(s.budget.used, one); /* there was no room to remember it */
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_that_left_are_counted),
        cmocka_unit_test(test_what_a_former_host_has_recorded_is_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
