/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings are written as "GROUP NUMBER NAME SIZE STATE" lines here, and become JSON of the form
 * that PyTorch 2.15's fr_trace_json gives; one was recorded by it.
 */
#include "tests/lib/ct_test.h"

#include "launcher/stacks/flight_parse.h"

#include <stdio.h>

/* By PyTorch 2.15 with gloo, shortened to its first and its last entry. */
static const char recorded[] =
    "{\"comm_lib_version\":\"\",\"entries\":[{\"collective_seq_id\":1,\"input_dtypes\":[\"Float\"],"
    "\"input_sizes\":[[5]],\"is_p2p\":false,\"op_id\":1,\"output_dtypes\":[\"Float\"],"
    "\"output_sizes\":[[5]],\"p2p_seq_id\":0,\"pg_id\":0,\"process_group\":[\"0\",\"default_pg\"],"
    "\"profiling_name\":\"gloo:all_reduce\",\"record_id\":0,\"retired\":true,\"state\":"
    "\"scheduled\",\"thread_id\":\"139874188140608\",\"thread_name\":\"python\","
    "\"time_created_ns\":1795448978908543933,\"time_discovered_completed_ns\":0,"
    "\"time_discovered_started_ns\":0,\"timeout_ms\":60000},{\"collective_seq_id\":4,"
    "\"input_dtypes\":[\"Float\"],\"input_sizes\":[[5]],\"is_p2p\":false,\"op_id\":4,"
    "\"output_dtypes\":[\"Float\"],\"output_sizes\":[[5]],\"p2p_seq_id\":0,\"pg_id\":0,"
    "\"process_group\":[\"0\",\"default_pg\"],\"profiling_name\":\"gloo:all_reduce\","
    "\"record_id\":6,\"retired\":false,\"state\":\"scheduled\",\"timeout_ms\":60000}],"
    "\"nccl_comm_state\":{},\"pg_config\":{\"\":{\"desc\":\"\",\"name\":\"\",\"ranks\":\"[0, "
    "1]\"}},\"pg_status\":{\"0\":{\"last_completed_collective\":\"3\","
    "\"last_enqueued_collective\":\"4\",\"last_started_collective\":\"-1\"}},\"version\":\"2.10\"}";

static void parse(const char *json, struct ct_flight *out)
{
    assert_int_equal(ct_flight_parse(json, strlen(json), out), 0);
    assert_true(out->known);
}

/* Makes a recording of lines. A state of "done" is a collective that has ended. */
static void record(const char *lines, struct ct_flight *out)
{
    struct ct_buf json = CT_BUF_INIT;
    ct_buf_addf(&json, "{\"version\":\"2.10\",\"entries\":[");
    const char *comma = "";
    while (*lines != '\0') {
        char group[16], name[32], sizes[32], state[16];
        int number, used = 0;
        assert_int_equal(
            sscanf(lines, "%15s %d %31s %31s %15s\n%n", group, &number, name, sizes, state, &used),
            5);
        ct_buf_addf(&json,
                    "%s{\"collective_seq_id\":%d,\"input_dtypes\":[\"Float\"],\"input_sizes\":%s,"
                    "\"is_p2p\":false,\"process_group\":[\"%s\",\"%s\"],\"profiling_name\":"
                    "\"gloo:%s\",\"retired\":%s,\"state\":\"scheduled\"}",
                    comma, number, sizes, group, group[0] == '0' ? "default_pg" : "undefined", name,
                    strcmp(state, "done") == 0 ? "true" : "false");
        comma = ",";
        lines += used;
    }
    ct_buf_addf(&json, "]}");
    parse(ct_buf_cstr(&json), out);
    ct_buf_fini(&json);
}

/* `lines` has the recordings of `count` ranks; NULL = that rank gives none. */
static void assert_verdict(const char *const *lines, int count, enum ct_flight_kind kind, int rank,
                           const char *expected)
{
    struct ct_flight flights[8] = {0};
    struct ct_flight_verdict verdict;
    struct ct_buf text = CT_BUF_INIT;
    assert_in_range(count, 1, 8);
    for (int i = 0; i < count; i++) {
        if (lines[i] != NULL) {
            record(lines[i], &flights[i]);
        }
    }
    assert_int_equal(ct_flight_judge(flights, count, &verdict, &text), 0);
    assert_string_equal(ct_buf_cstr(&text), expected);
    assert_int_equal(verdict.kind, kind);
    if (kind != CT_FLIGHT_NONE) {
        assert_int_equal(verdict.rank, rank);
    }
    for (int i = 0; i < count; i++) {
        ct_flight_fini(&flights[i]);
    }
    ct_buf_fini(&text);
}

static void test_what_pytorch_records_is_understood(void **state)
{
    (void)state;
    struct ct_flight flight = {0};
    parse(recorded, &flight);
    assert_int_equal(flight.group_count, 1);
    assert_string_equal(flight.groups[0].name, "gloo:0");
    assert_string_equal(flight.groups[0].description, "default_pg");
    assert_int_equal(flight.groups[0].last, 4);
    assert_int_equal(flight.op_count, 2);
    assert_false(flight.ops[0].pending);
    assert_true(flight.ops[1].pending);
    assert_int_equal(flight.ops[1].number, 4);
    assert_string_equal(flight.ops[1].name, "all_reduce");
    assert_string_equal(flight.ops[1].shape, "Float [5]");
    /* The other back end counts for itself. */
    parse("{\"version\":\"2.10\",\"entries\":[{\"collective_seq_id\":9,\"process_group\":"
          "[\"0\",\"default_pg\"],\"profiling_name\":\"nccl:all_gather\",\"state\":\"started\"}]}",
          &flight);
    assert_int_equal(flight.group_count, 2);
    assert_string_equal(flight.groups[1].name, "nccl:0");
    assert_int_equal(flight.groups[0].last, 4);
    assert_int_equal(flight.groups[1].last, 9);
    assert_int_equal(flight.op_count, 3);
    ct_flight_fini(&flight);
}

static void test_a_rank_that_does_not_come_is_named(void **state)
{
    (void)state;
    static const char came[] = "0 1 all_reduce [[5]] done\n0 2 all_reduce [[5]] waits\n";
    static const char *const lines[] = {came, "0 1 all_reduce [[5]] done\n", came, came};
    assert_verdict(lines, 4, CT_FLIGHT_ABSENT, 1,
                   "rank 1 did not come to all_reduce 2 of group default_pg (Float [5]); 3 ranks "
                   "wait there");
    static const char *const first[] = {"0 1 barrier [] waits\n", ""};
    assert_verdict(first, 2, CT_FLIGHT_ABSENT, 1,
                   "rank 1 did not come to barrier 1 of group default_pg; 1 rank waits there");
}

static void test_a_rank_that_is_no_member_is_not_named(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "0 1 barrier [] done\n7 1 all_reduce [[2]] done\n7 2 all_reduce [[2,3]] waits\n",
        "0 1 barrier [] done\n7 1 all_reduce [[2]] done\n",
        "0 1 barrier [] done\n",
    };
    assert_verdict(lines, 3, CT_FLIGHT_ABSENT, 1,
                   "rank 1 did not come to all_reduce 2 of group 7 (Float [2, 3]); 1 rank waits "
                   "there");
}

static void test_a_rank_that_waits_elsewhere_is_not_the_one(void **state)
{
    (void)state;
    /* Rank 0 waits for rank 1 in the default group, rank 1 for rank 2 in group 1. */
    static const char *const lines[] = {
        "0 1 all_reduce [[5]] waits\n",
        "1 1 all_reduce [[2]] done\n1 2 all_reduce [[2]] waits\n",
        "1 1 all_reduce [[2]] done\n",
    };
    assert_verdict(lines, 3, CT_FLIGHT_ABSENT, 2,
                   "rank 2 did not come to all_reduce 1 of group default_pg (Float [5]); 1 rank "
                   "waits there");
}

static void test_another_operation_or_size_is_named(void **state)
{
    (void)state;
    static const char came[] = "0 1 all_reduce [[5]] done\n0 2 all_reduce [[5]] waits\n";
    static const char *const operation[] = {
        came, came, "0 1 all_reduce [[5]] done\n0 2 all_gather [[5]] waits\n"};
    assert_verdict(operation, 3, CT_FLIGHT_DIFFERS, 2,
                   "rank 2 came to number 2 of group default_pg with all_gather of Float [5], the "
                   "others with all_reduce of Float [5]");
    static const char *const size[] = {"0 1 all_reduce [[5]] done\n0 2 all_reduce [[7,2]] waits\n",
                                       came, came};
    assert_verdict(size, 3, CT_FLIGHT_DIFFERS, 0,
                   "rank 0 came to number 2 of group default_pg with all_reduce of Float [7, 2], "
                   "the others with all_reduce of Float [5]");
    /* The first difference is the cause, also of those that follow. */
    static const char *const early[] = {
        "0 1 broadcast [[5]] done\n0 2 all_reduce [[5]] waits\n",
        "0 1 all_reduce [[5]] waits\n",
        "0 1 all_reduce [[5]] waits\n",
    };
    assert_verdict(early, 3, CT_FLIGHT_DIFFERS, 0,
                   "rank 0 came to number 1 of group default_pg with broadcast of Float [5], the "
                   "others with all_reduce of Float [5]");
}

static void test_sizes_may_differ_where_they_may(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "0 1 all_to_all [[5]] waits\n",
        "0 1 all_to_all [[6]] waits\n",
        "0 1 all_to_all [[5]] waits\n",
    };
    assert_verdict(lines, 3, CT_FLIGHT_NONE, 0, "");
}

static void test_the_only_rank_without_a_recording_is_named(void **state)
{
    (void)state;
    static const char waits[] = "0 1 all_reduce [[5]] waits\n";
    static const char *const one[] = {waits, waits, NULL};
    assert_verdict(one, 3, CT_FLIGHT_SILENT, 2,
                   "rank 2 gave no recording, and all others wait in a collective (all_reduce)");
    static const char *const two[] = {waits, NULL, NULL, waits};
    assert_verdict(two, 4, CT_FLIGHT_NONE, 0, "");
    static const char *const busy[] = {waits, "", NULL, waits};
    assert_verdict(busy, 4, CT_FLIGHT_ABSENT, 1,
                   "rank 1 did not come to all_reduce 1 of group default_pg (Float [5]); 2 ranks "
                   "wait there");
    static const char *const pair[] = {waits, NULL};
    assert_verdict(pair, 2, CT_FLIGHT_NONE, 0, "");
}

static void test_nobody_is_named_where_nobody_stands_out(void **state)
{
    (void)state;
    static const char waits[] = "0 1 all_reduce [[5]] waits\n";
    static const char *const all_wait[] = {waits, waits, waits};
    assert_verdict(all_wait, 3, CT_FLIGHT_NONE, 0, "");
    static const char *const nobody_waits[] = {"0 1 all_reduce [[5]] done\n", "", ""};
    assert_verdict(nobody_waits, 3, CT_FLIGHT_NONE, 0, "");
    static const char *const two_missing[] = {waits, "", "", waits};
    assert_verdict(two_missing, 4, CT_FLIGHT_NONE, 0, "");
    static const char *const half_and_half[] = {waits, "0 1 broadcast [[5]] waits\n", waits,
                                                "0 1 broadcast [[5]] waits\n"};
    assert_verdict(half_and_half, 4, CT_FLIGHT_NONE, 0, "");
    static const char *const pair[] = {waits, "0 1 broadcast [[5]] waits\n"};
    assert_verdict(pair, 2, CT_FLIGHT_NONE, 0, "");
    static const char *const three_kinds[] = {waits, "0 1 broadcast [[5]] waits\n",
                                              "0 1 barrier [] waits\n", waits};
    assert_verdict(three_kinds, 4, CT_FLIGHT_NONE, 0, "");
}

static void test_sends_and_receives_do_not_count(void **state)
{
    (void)state;
    struct ct_flight flight = {0};
    parse("{\"version\":\"2.10\",\"entries\":[{\"collective_seq_id\":1,\"is_p2p\":true,"
          "\"process_group\":[\"0\",\"\"],\"profiling_name\":\"nccl:send 0->1\"}]}",
          &flight);
    assert_int_equal(flight.op_count, 0);
    ct_flight_fini(&flight);
}

static void test_hostile_recordings_are_bounded(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      "{}",
                                      "[]",
                                      "{\"version\":1}",
                                      "{\"version\":\"3.0\"}",
                                      "{,",
                                      "\"",
                                      "{\"version\":\"2.1\",\"entries\":["};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct ct_flight flight = {0};
        assert_int_equal(ct_flight_parse(bad[i], strlen(bad[i]), &flight), CT_EFORMAT);
        assert_false(flight.known);
        ct_flight_fini(&flight);
    }

    struct ct_flight flight = {0};
    parse("{\"version\":\"2.1\",\"entries\":[1,null,{},{\"process_group\":[]},{\"process_group\":"
          "[\"a\"],\"collective_seq_id\":-1},{\"process_group\":[\"a\\u001b[2J\",\"undefined\"],"
          "\"collective_seq_id\":1e300},{\"process_group\":[\"a\\u001b[2J\",\"undefined\"],"
          "\"collective_seq_id\":7,\"profiling_name\":\":\\n\",\"input_sizes\":[[1e99,-1,\"x\"],"
          "[1]],\"input_dtypes\":[7]}]}",
          &flight);
    assert_int_equal(flight.op_count, 1);
    assert_string_equal(flight.groups[0].name, ":a?[2J");
    assert_string_equal(flight.groups[0].description, "");
    assert_string_equal(flight.ops[0].name, "?");
    assert_string_equal(flight.ops[0].shape, "[0, 0, 0] and 1 more");
    ct_flight_fini(&flight);

    struct ct_buf json = CT_BUF_INIT;
    ct_buf_addf(&json, "{\"version\":\"2.1\",\"entries\":[0");
    for (int i = 0; i < CT_FLIGHT_OPS_MAX * 2; i++) {
        ct_buf_addf(&json,
                    ",{\"process_group\":[\"%d\"],\"collective_seq_id\":1,\"input_sizes\":[["
                    "%0*d,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]]}",
                    i, 9, 111111111);
    }
    ct_buf_addf(&json, "]}");
    parse(ct_buf_cstr(&json), &flight);
    assert_int_equal(flight.group_count, CT_FLIGHT_GROUPS_MAX);
    assert_int_equal(flight.op_count, CT_FLIGHT_GROUPS_MAX);
    assert_true(strlen(flight.ops[0].shape) < CT_FLIGHT_SHAPE_MAX);
    ct_flight_fini(&flight);
    ct_buf_fini(&json);
}

static int parse_and_judge(void *data)
{
    (void)data;
    struct ct_flight flights[2] = {0};
    struct ct_flight_verdict verdict;
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_flight_parse(recorded, sizeof(recorded) - 1, &flights[0]);
    /* cJSON does not say whether memory or the text is at fault. */
    rc = rc == CT_EFORMAT ? CT_ENOMEM : rc;
    flights[1].known = true;
    rc = rc == 0 ? ct_flight_judge(flights, 2, &verdict, &text) : rc;
    ct_flight_fini(&flights[0]);
    ct_buf_fini(&text);
    return rc;
}

static void test_memory_that_runs_out_leaves_nothing(void **state)
{
    (void)state;
    assert_in_range(ct_fault_sweep(parse_and_judge, NULL, 0), 3, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_pytorch_records_is_understood),
        cmocka_unit_test(test_a_rank_that_does_not_come_is_named),
        cmocka_unit_test(test_a_rank_that_is_no_member_is_not_named),
        cmocka_unit_test(test_a_rank_that_waits_elsewhere_is_not_the_one),
        cmocka_unit_test(test_another_operation_or_size_is_named),
        cmocka_unit_test(test_sizes_may_differ_where_they_may),
        cmocka_unit_test(test_the_only_rank_without_a_recording_is_named),
        cmocka_unit_test(test_nobody_is_named_where_nobody_stands_out),
        cmocka_unit_test(test_sends_and_receives_do_not_count),
        cmocka_unit_test(test_hostile_recordings_are_bounded),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
