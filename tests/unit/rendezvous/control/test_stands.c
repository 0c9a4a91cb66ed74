/* SPDX-License-Identifier: Apache-2.0
 *
 * Where ranks stand is told and read again, and judged.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/fault.h"

#include "rendezvous/control/stands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void begin(struct ct_stands *stands, int count, const char *const *at)
{
    assert_int_equal(ct_stands_init(stands, count), 0);
    for (int i = 0; i < count; i++) {
        (void)snprintf(stands->at[i], sizeof(stands->at[i]), "%s", at[i]);
    }
}

/* Gives a rank some collectives of one group; it waits in the last one unless it is in none. */
static void record(struct ct_flight *flight, const char *group, int count, bool waits)
{
    *flight = (struct ct_flight){.known = true, .group_count = 1, .op_count = count};
    flight->groups = calloc(1, sizeof(*flight->groups));
    flight->ops = calloc((size_t)count + 1, sizeof(*flight->ops));
    assert_true(flight->groups != NULL && flight->ops != NULL);
    (void)snprintf(flight->groups[0].name, sizeof(flight->groups[0].name), "%s", group);
    flight->groups[0].last = count;
    for (int i = 0; i < count; i++) {
        flight->ops[i] = (struct ct_flight_op){
            .number = i + 1, .pending = waits && i == count - 1, .name = "all_reduce"};
    }
}

static void expect(const struct ct_stands *stands, int rank, const char *reason)
{
    struct ct_buf text = CT_BUF_INIT;
    int found = 7;
    assert_int_equal(ct_stands_judge(stands, &found, &text), 0);
    assert_string_equal(ct_buf_cstr(&text) != NULL ? ct_buf_cstr(&text) : "", reason);
    assert_int_equal(found, rank);
    ct_buf_fini(&text);
}

static void test_the_only_rank_in_another_place_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *at[4];
        int count, rank;
    } cases[] = {
        {{"a", "a", "b", "a"}, 4, 2},  {{"b", "a", "a"}, 3, 0},
        {{"a", "b"}, 2, -1},           {{"a", "a", "a"}, 3, -1},
        {{"a", "a", "b", "b"}, 4, -1}, {{"a", "b", "c"}, 3, -1},
        {{"a", "a", "b", ""}, 4, -1},  {{"a"}, 1, -1},
        {{"", "", ""}, 3, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_stands stands;
        char reason[64] = "";
        begin(&stands, cases[i].count, cases[i].at);
        if (cases[i].rank >= 0) {
            (void)snprintf(reason, sizeof(reason), "rank %d is on another line than all others",
                           cases[i].rank);
        }
        expect(&stands, cases[i].rank, reason);
        ct_stands_fini(&stands);
    }
}

#define NONE CT_STAND_IN_NONE

static void test_who_did_not_come_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *at[4], *in[4];
        int count, rank;
        const char *reason;
    } cases[] = {
        {{"a", "b"},
         {"barrier", NONE},
         2,
         1,
         "rank 1 did not come to barrier, in which rank 0 waits"},
        {{"a", "b"},
         {NONE, "barrier"},
         2,
         0,
         "rank 0 did not come to barrier, in which rank 1 waits"},
        {{"a", "a", "b", "a"},
         {"all_reduce", "all_reduce", NONE, "all_reduce"},
         4,
         2,
         "rank 2 did not come to all_reduce, in which 3 ranks wait"},
        {{"a", "b", "c"},
         {"all_reduce", NONE, "barrier"},
         3,
         1,
         "rank 1 is in no collective, and each of the 2 others waits in one"},
        /* The odd one has come, and the others hold it up. */
        {{"a", "b", "a"}, {NONE, "barrier", NONE}, 3, -1, ""},
        {{"a", "b", "a"}, {"", "barrier", NONE}, 3, -1, ""},
        /* All wait, but not for each other. */
        {{"a", "b"},
         {"all_reduce", "broadcast"},
         2,
         -1,
         "rank 0 waits in all_reduce, rank 1 in broadcast: they wait for different operations"},
        {{"a", "b", "b", "a"},
         {"all_reduce", "broadcast", "broadcast", "all_reduce"},
         4,
         -1,
         "ranks 0, 3 wait in all_reduce, ranks 1-2 in broadcast: they wait for different "
         "operations"},
        {{"a", "a"}, {"barrier", "barrier"}, 2, -1, ""},
        {{"a", "b"}, {"send", "recv"}, 2, -1, ""},
        {{"a", "b"}, {"MPI_Allreduce", "MPI_Waitall"}, 2, -1, ""},
        /* It is not known whether one waits, or none does. */
        {{"a", "b"}, {"barrier", ""}, 2, -1, ""},
        {{"a", "b"}, {NONE, NONE}, 2, -1, ""},
        {{"a", "b", "c"}, {"barrier", NONE, ""}, 3, -1, ""},
        {{"a"}, {NONE}, 1, -1, ""},
        /* What is not known of the stacks leaves the lines. */
        {{"a", "b", "a"}, {"", "", ""}, 3, 1, "rank 1 is on another line than all others"},
        {{"a", "b", "a"}, {"", NONE, ""}, 3, 1, "rank 1 is on another line than all others"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_stands stands, told;
        struct ct_buf text = CT_BUF_INIT;
        begin(&stands, cases[i].count, cases[i].at);
        for (int k = 0; k < cases[i].count; k++) {
            (void)snprintf(stands.in[k], sizeof(stands.in[k]), "%s", cases[i].in[k]);
        }
        expect(&stands, cases[i].rank, cases[i].reason);
        /* The same when a machine has told it. */
        assert_int_equal(ct_stands_init(&told, cases[i].count), 0);
        assert_int_equal(ct_stands_encode(&stands, &text), 0);
        assert_int_equal(ct_stands_decode(ct_buf_cstr(&text), 0, cases[i].count, &told), 0);
        expect(&told, cases[i].rank, cases[i].reason);
        ct_buf_fini(&text);
        ct_stands_fini(&told);
        ct_stands_fini(&stands);
    }
}

/* It has begun a collective without waiting for its end, and may wait for it now in its own way. */
static void test_who_has_begun_a_collective_is_not_absent(void **state)
{
    (void)state;
    static const char *const at[] = {"a", "b"};
    struct ct_stands stands;
    begin(&stands, 2, at);
    (void)snprintf(stands.in[0], sizeof(stands.in[0]), "barrier");
    (void)snprintf(stands.in[1], sizeof(stands.in[1]), NONE);
    record(&stands.flights[1], "gloo:0", 3, true);
    expect(&stands, -1, "");
    ct_stands_fini(&stands);
}

/* Two machines with two ranks each tell a third one. */
static void test_what_machines_tell_is_judged_together(void **state)
{
    (void)state;
    static const char *const at[] = {"a", "a"};
    struct ct_stands all;
    assert_int_equal(ct_stands_init(&all, 4), 0);
    for (int machine = 0; machine < 2; machine++) {
        struct ct_stands own;
        struct ct_buf text = CT_BUF_INIT;
        begin(&own, 2, at);
        record(&own.flights[0], "gloo:0", 9, true);
        record(&own.flights[1], "gloo:0", machine == 1 ? 8 : 9, machine == 0);
        assert_int_equal(ct_stands_encode(&own, &text), 0);
        assert_int_equal(ct_stands_decode(ct_buf_cstr(&text), machine * 2, 2, &all), 0);
        ct_buf_fini(&text);
        ct_stands_fini(&own);
    }
    assert_string_equal(all.at[3], "a");
    assert_int_equal(all.flights[3].op_count, 3); /* the last ones are enough */
    assert_int_equal(all.flights[3].groups[0].last, 8);
    expect(&all, 3, "rank 3 did not come to all_reduce 9 of group 0; 3 ranks wait there");
    ct_stands_fini(&all);
}

static void test_many_ranks_tell_less_of_each(void **state)
{
    (void)state;
    enum { RANKS = 1000 };
    struct ct_stands own, read;
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_stands_init(&own, RANKS), 0);
    assert_int_equal(ct_stands_init(&read, RANKS), 0);
    for (int i = 0; i < RANKS; i++) {
        record(&own.flights[i], i % 2 == 0 ? "nccl:0" : "a name that leaves no room for it", 3,
               true);
    }
    assert_int_equal(ct_stands_encode(&own, &text), 0);
    assert_true(text.len < CT_STANDS_TEXT_MAX);
    assert_int_equal(ct_stands_decode(ct_buf_cstr(&text), 0, RANKS, &read), 0);
    ct_buf_fini(&text);
    ct_stands_fini(&own);
    ct_stands_fini(&read);
}

static void test_of_many_groups_the_last_ones_are_told(void **state)
{
    (void)state;
    enum { GROUPS = 40 };
    struct ct_stands own, read;
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_stands_init(&own, 1), 0);
    assert_int_equal(ct_stands_init(&read, 1), 0);
    struct ct_flight *flight = &own.flights[0];
    *flight = (struct ct_flight){.known = true, .group_count = GROUPS, .op_count = GROUPS};
    flight->groups = calloc(GROUPS, sizeof(*flight->groups));
    flight->ops = calloc(GROUPS, sizeof(*flight->ops));
    assert_true(flight->groups != NULL && flight->ops != NULL);
    for (int i = 0; i < GROUPS; i++) {
        (void)snprintf(flight->groups[i].name, sizeof(flight->groups[i].name), "gloo:%d", i);
        flight->groups[i].last = 1;
        flight->ops[i] = (struct ct_flight_op){.group = i, .number = 1, .name = "barrier"};
    }
    assert_int_equal(ct_stands_encode(&own, &text), 0);
    assert_int_equal(ct_stands_decode(ct_buf_cstr(&text), 0, 1, &read), 0);
    assert_int_equal(read.flights[0].group_count, 16);
    assert_int_equal(read.flights[0].op_count, 16);
    const struct ct_flight_op *last = &read.flights[0].ops[15];
    assert_string_equal(read.flights[0].groups[last->group].name, "gloo:39");
    ct_buf_fini(&text);
    ct_stands_fini(&own);
    ct_stands_fini(&read);
}

static void test_garbage_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{}",
        "[{\"groups\":1}]",
        "[{\"groups\":[[]],\"ops\":[]}]",
        "[{\"groups\":[[\"g\",\"\",0]],\"ops\":[]}]",
        "[{\"groups\":[[\"g\",\"\",1]]}]",
        "[{\"groups\":[[\"g\",\"\",1]],\"ops\":[[1,1,true,\"\",\"\"]]}]",
        "[{\"groups\":[[\"g\",\"\",1]],\"ops\":[[0,0,true,\"\",\"\"]]}]",
        "[{\"groups\":[[\"g\",\"\",1]],\"ops\":[[0,1e300,true,\"\",\"\"]]}]",
        "[{\"groups\":[[\"g\",\"\",1]],\"ops\":[[\"0\",1,true,\"\",\"\"]]}]",
        "[{\"groups\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],\"ops\":[]}]",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct ct_stands stands;
        assert_int_equal(ct_stands_init(&stands, 2), 0);
        if (ct_stands_decode(texts[i], 0, 1, &stands) != CT_EFORMAT) {
            fail_msg("case %zu", i);
        }
        assert_false(stands.flights[0].known);
        ct_stands_fini(&stands);
    }
}

static void test_a_machine_speaks_for_its_own_ranks_alone(void **state)
{
    (void)state;
    struct ct_stands stands;
    assert_int_equal(ct_stands_init(&stands, 3), 0);
    assert_int_equal(
        ct_stands_decode("[{\"at\":\"a\\u001b[2J\"},{\"at\":\"b\"},{\"at\":\"c\"}]", 1, 1, &stands),
        0);
    assert_string_equal(stands.at[0], "");
    assert_string_equal(stands.at[1], "a?[2J");
    assert_string_equal(stands.at[2], "");
    assert_int_equal(ct_stands_decode("[{},{},{},{}]", 2, 9, &stands), 0);
    ct_stands_fini(&stands);
}

static int tell_and_judge(void *data)
{
    const struct ct_stands *own = data;
    struct ct_stands read;
    struct ct_buf text = CT_BUF_INIT, reason = CT_BUF_INIT;
    int rank, rc = ct_stands_init(&read, own->count);
    if (rc == 0) {
        rc = ct_stands_encode(own, &text);
        /* cJSON does not say why it stopped. */
        rc = rc == 0 && ct_stands_decode(ct_buf_cstr(&text), 0, own->count, &read) != 0 ? CT_ENOMEM
                                                                                        : rc;
        rc = rc == 0 ? ct_stands_judge(&read, &rank, &reason) : rc;
        ct_stands_fini(&read);
    }
    ct_buf_fini(&text);
    ct_buf_fini(&reason);
    return rc;
}

/* Two ranks disagree, and none can be named. One that told its collective twice counted as two, and
 * the honest one was named. */
static void test_a_rank_that_tells_something_twice_counts_once(void **state)
{
    (void)state;
    static const char *const lies[] = {
        "[{\"groups\":[[\"gloo:0\",\"\",2],[\"gloo:0\",\"\",2]],"
        "\"ops\":[[0,2,true,\"broadcast\",\"\"],[1,2,true,\"broadcast\",\"\"]]}]",
        "[{\"groups\":[[\"gloo:0\",\"\",2]],"
        "\"ops\":[[0,2,true,\"broadcast\",\"\"],[0,2,true,\"broadcast\",\"\"]]}]",
    };
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        static const char *const at[] = {"a", "b"};
        struct ct_stands stands;
        begin(&stands, 2, at);
        record(&stands.flights[0], "gloo:0", 2, true);
        assert_int_equal(ct_stands_decode(lies[i], 1, 1, &stands), 0);
        assert_true(stands.flights[1].known);
        expect(&stands, -1,
               "rank 0 waits in all_reduce, rank 1 in broadcast: they wait for different "
               "operations");
        ct_stands_fini(&stands);
    }
}

/* As many as a job may have. Each was compared with all before it. */
static void test_of_many_operations_a_few_are_told(void **state)
{
    (void)state;
    enum { RANKS = 16384 };
    struct ct_stands stands;
    assert_int_equal(ct_stands_init(&stands, RANKS), 0);
    for (int i = 0; i < RANKS; i++) {
        (void)snprintf(stands.in[i], sizeof(stands.in[i]), "operation_%d", i == RANKS - 1 ? 1 : i);
    }
    expect(&stands, -1,
           "rank 0 waits in operation_0, ranks 1, 16383 in operation_1, rank 2 in operation_2, "
           "rank 3 in operation_3, and 16379 more ranks in others: they wait for different "
           "operations");
    ct_stands_fini(&stands);
}

static void test_memory_that_runs_out_leaves_nothing(void **state)
{
    (void)state;
    static const char *const at[] = {"a", "b"};
    struct ct_stands own;
    begin(&own, 2, at);
    record(&own.flights[0], "gloo:0", 2, true);
    record(&own.flights[1], "gloo:0", 1, false);
    assert_true(ct_fault_sweep(tell_and_judge, &own, 0) >= 10);
    ct_stands_fini(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_only_rank_in_another_place_is_named),
        cmocka_unit_test(test_who_did_not_come_is_named),
        cmocka_unit_test(test_who_has_begun_a_collective_is_not_absent),
        cmocka_unit_test(test_what_machines_tell_is_judged_together),
        cmocka_unit_test(test_many_ranks_tell_less_of_each),
        cmocka_unit_test(test_of_many_groups_the_last_ones_are_told),
        cmocka_unit_test(test_garbage_is_refused),
        cmocka_unit_test(test_a_machine_speaks_for_its_own_ranks_alone),
        cmocka_unit_test(test_a_rank_that_tells_something_twice_counts_once),
        cmocka_unit_test(test_of_many_operations_a_few_are_told),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
