/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of hangs in the report of a job, and its lines on the screen.
 */
#include "tests/lib/ct_test.h"

#include "launcher/report/hang_log.h"
#include "rendezvous/wire/json.h"

static const struct ct_hang_record example = {
    .generation = 2,
    .rank = 3,
    .host = "gpu-1",
    .time_ms = 1700000000000,
    .for_ms = 12500,
    .why = "it is stopped",
    .at = "train.py:7 in step",
    .operation = "all_reduce",
};

static void assert_text(const struct ct_hang_log *log, const char *expected)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_hang_log_text(log, "> ", &text), 0);
    assert_string_equal(text.len > 0 ? ct_buf_cstr(&text) : "", expected);
    ct_buf_fini(&text);
}

static void test_each_hang_has_a_line(void **state)
{
    (void)state;
    struct ct_hang_log log = {.count = 0};
    struct ct_hang_record record = example;
    ct_hang_log_last(&log)->killed = true; /* of a hang that was not told here */
    assert_text(&log, "");
    ct_hang_log_add(&log, &record);
    assert_text(&log,
                "> hang in generation 2: rank 3 stood still for 12.5 s at train.py:7 in step; "
                "ranks here waited in all_reduce\n");
    ct_hang_log_last(&log)->killed = true;
    record = (struct ct_hang_record){.generation = 3, .rank = -1, .for_ms = 60000, .over = true};
    ct_hang_log_add(&log, &record);
    assert_text(&log,
                "> hang in generation 2: rank 3 stood still for 12.5 s at train.py:7 in step; "
                "ranks here waited in all_reduce; it was killed\n"
                "> hang in generation 3: the job stood still for 60.0 s; then it went on\n");
    ct_hang_log_last(&log)->failed = true;
    assert_text(&log,
                "> hang in generation 2: rank 3 stood still for 12.5 s at train.py:7 in step; "
                "ranks here waited in all_reduce; it was killed\n"
                "> hang in generation 3: the job stood still for 60.0 s; then a worker failed\n");
}

static void test_the_last_ones_are_in_the_report(void **state)
{
    (void)state;
    struct ct_hang_log log = {.count = 0};
    struct ct_hang_record record = example;
    for (int i = 0; i < CT_HANG_LOG_KEPT + 4; i++) {
        record.generation = i;
        record.over = i % 2 == 0;
        ct_hang_log_add(&log, &record);
    }
    cJSON *root = cJSON_CreateObject();
    assert_int_equal(ct_hang_log_to_json(&log, root), 0);
    const cJSON *hangs = cJSON_GetObjectItemCaseSensitive(root, "hangs");
    assert_int_equal(cJSON_GetArraySize(hangs), CT_HANG_LOG_KEPT);
    assert_int_equal(ct_json_number(root, "hang_count", 0), CT_HANG_LOG_KEPT + 4);
    cJSON *first = cJSON_GetArrayItem(hangs, 0);
    char *text = cJSON_PrintUnformatted(first);
    assert_string_equal(text, "{\"generation\":4,\"rank\":3,\"host\":\"gpu-1\","
                              "\"time_ms\":1700000000000,\"for_s\":12.5,\"outcome\":\"over\","
                              "\"why\":\"it is stopped\",\"at\":\"train.py:7 in step\","
                              "\"operation\":\"all_reduce\"}");
    cJSON_free(text);
    cJSON_Delete(root);
}

/* Names of functions and files are a worker's. */
static void test_what_a_worker_says_is_cleaned(void **state)
{
    (void)state;
    struct ct_hang_log log = {.count = 0};
    const struct ct_hang_record record = {.rank = 0, .at = "a\033[2J:1 in b\n", .operation = "c\r"};
    ct_hang_log_add(&log, &record);
    assert_text(&log,
                "> hang in generation 0: rank 0 stood still for 0.0 s at a?[2J:1 in b?; ranks "
                "here waited in c?\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_hang_has_a_line),
        cmocka_unit_test(test_the_last_ones_are_in_the_report),
        cmocka_unit_test(test_what_a_worker_says_is_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
