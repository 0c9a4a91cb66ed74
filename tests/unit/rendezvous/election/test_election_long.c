/* SPDX-License-Identifier: Apache-2.0
 *
 * An election that lasts for long, since the arbiter is away: terms must not run out.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/election/election.h"

#include <stdlib.h>

#define LEASE_MS 3000
#define DAY_MS (INT64_C(24) * 3600 * 1000)

static struct ct_voter voter(uint64_t id)
{
    return (struct ct_voter){.id = id, .address = "10.0.0.1", .port = (uint16_t)id};
}

/* Voters 2 and up look for a host from 0 on. Voter 1, which was theirs, has fallen silent. */
static void begin(struct ct_election *agents)
{
    struct ct_job_record record;
    const struct ct_voter host = voter(1);
    ct_job_record_init(&record);
    record.term = CT_TERM_FIRST;
    record.version = 1;
    record.formed = (struct ct_world_voters){.generation = 0, .count = CT_VOTERS_MAX};
    for (int i = 0; i < CT_VOTERS_MAX; i++) {
        record.formed.list[i] = voter((uint64_t)i + 1);
    }
    for (int i = 1; i < CT_VOTERS_MAX; i++) {
        ct_election_init(&agents[i], &record.formed.list[i], true, LEASE_MS, DAY_MS);
        assert_true(ct_election_followed(&agents[i], &host, CT_TERM_FIRST, 0));
        assert_true(ct_election_recorded(&agents[i], &record));
        ct_election_lost(&agents[i], 0);
    }
}

/* Each agent asks all others, who answer at once. Returns the highest number of a term. */
static uint64_t wait_for_a_day(struct ct_election *agents)
{
    uint64_t number = 0;
    while (number <= CT_TERM_REACH) {
        struct ct_election *next = &agents[1];
        for (int i = 2; i < CT_VOTERS_MAX; i++) {
            next = ct_election_next(&agents[i]) < ct_election_next(next) ? &agents[i] : next;
        }
        struct ct_election_todo todo, answered;
        int64_t now_ns = ct_election_next(next);
        ct_election_tick(next, now_ns, &todo);
        if (todo.give_up) {
            break;
        }
        assert_true(todo.ask);
        number = ct_term_number(todo.question.term);
        for (int i = 1; i < CT_VOTERS_MAX; i++) {
            struct ct_vote_answer answer;
            if (&agents[i] != next) {
                ct_election_asked(&agents[i], &todo.question, now_ns, &answer);
                ct_election_answered(next, &answer, now_ns, &answered);
                assert_false(answered.host); /* without the arbiter nobody wins */
            }
        }
    }
    return number;
}

static void test_the_terms_last_while_the_arbiter_is_away_for_a_day(void **state)
{
    struct ct_election *agents = calloc(CT_VOTERS_MAX, sizeof(*agents));
    (void)state;
    assert_non_null(agents);
    begin(agents);
    assert_true(wait_for_a_day(agents) < CT_TERM_REACH);
    free(agents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_terms_last_while_the_arbiter_is_away_for_a_day),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
