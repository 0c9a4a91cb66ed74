/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of workers in a status: their text, and how many one document shows.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/control/worker_rows.h"

#include <math.h>
#include <stdlib.h>

static const struct ct_worker_row plain = {
    .local_rank = 1, .generation = 2, .state = CT_ROW_FAILED, .phase = CT_ROW_UNTOLD};

static void expect_row(const struct ct_worker_row *row, const char *want)
{
    struct ct_status_rows rows = {.print = true};
    struct ct_buf out = CT_BUF_INIT;
    const struct ct_row_span span = {.first_rank = 10, .count = 1, .rows = row};
    assert_int_equal(ct_buf_append(&out, "[", 1), 0);
    assert_int_equal(ct_status_rows_add(&rows, &span, "\"h\"", &out), 0);
    assert_string_equal(ct_buf_cstr(&out), want);
    ct_buf_fini(&out);
    ct_status_rows_fini(&rows);
}

static void test_a_row_is_printed_with_all_its_numbers(void **state)
{
    struct ct_worker_row row = plain;
    (void)state;
    expect_row(&row, "[{\"rank\":10,\"local_rank\":1,\"pid\":0,\"host\":\"h\",\"state\":\"failed\","
                     "\"exit\":null,\"restarts\":2,\"progress\":null}");
    row.rss_mib = INT32_MAX;
    expect_row(&row,
               "[{\"rank\":10,\"local_rank\":1,\"pid\":0,\"host\":\"h\",\"state\":\"failed\","
               "\"exit\":null,\"restarts\":2,\"rss_bytes\":2251799812636672,\"progress\":null}");
    row.rss_mib = 0;
    row.ended = true;
    row.exit_code = -9;
    row.pid = INT64_MAX;
    row.phase = 2;
    row.step = INT64_MIN;
    row.age_ms = 1007;
    memcpy(row.loss_text, "0.5", 4);
    expect_row(&row, "[{\"rank\":10,\"local_rank\":1,\"pid\":9223372036854775807,\"host\":\"h\","
                     "\"state\":\"failed\",\"exit\":-9,\"restarts\":2,\"progress\":{\"phase\":"
                     "\"compute\",\"step\":-9223372036854775808,\"age_s\":1.007,\"loss\":0.5,"
                     "\"samples_per_s\":null}}");
}

static void test_rows_are_separated_by_commas(void **state)
{
    const struct ct_worker_row two[2] = {plain, plain};
    struct ct_status_rows rows = {.print = true};
    struct ct_buf out = CT_BUF_INIT;
    const struct ct_row_span span = {.first_rank = 0, .count = 2, .rows = two};
    (void)state;
    assert_int_equal(ct_buf_append(&out, "[", 1), 0);
    assert_int_equal(ct_status_rows_add(&rows, &span, "\"h\"", &out), 0);
    const char *text = ct_buf_cstr(&out);
    assert_memory_equal(text, "[{\"rank\":0,", 11);
    assert_non_null(strstr(text, "null},{\"rank\":1,"));
    assert_int_equal(rows.taken, 2);
    ct_buf_fini(&out);
}

/* Nodes of 4096 workers: the document shows those of four, and of no other. */
static void test_rows_beyond_the_limit_are_left_out_and_noted(void **state)
{
    struct ct_status_rows rows = {.print = false, .job = 3};
    struct ct_worker_row *many = calloc(CT_MAX_NODE_WORKERS, sizeof(*many));
    struct ct_row_span span = {.count = CT_MAX_NODE_WORKERS - 1, .rows = many};
    (void)state;
    for (int node = 0; node < 4; node++) {
        assert_int_equal(ct_status_rows_add(&rows, &span, "\"h\"", NULL), 0);
        assert_false(rows.more);
        span.first_rank += span.count;
    }
    assert_int_equal(rows.taken, 4 * span.count);
    assert_int_equal(ct_status_rows_add(&rows, &span, "\"h\"", NULL), 0);
    assert_true(rows.more);
    assert_int_equal(rows.taken, CT_STATUS_ROWS_MAX);
    assert_int_equal(rows.count, 5);
    assert_int_equal(rows.spans[4].count, 4);
    assert_int_equal(rows.spans[4].job, 3);
    assert_int_equal(ct_status_rows_add(&rows, &span, "\"h\"", NULL), 0);
    assert_int_equal(rows.count, 5);
    ct_status_rows_fini(&rows);
    free(many);
}

static int collect_many(void *data)
{
    struct ct_status_rows rows = {.print = false};
    const struct ct_row_span span = {.count = 1, .rows = &plain};
    int rc = 0;
    (void)data;
    for (int i = 0; i < 100 && rc == 0; i++) {
        rc = ct_status_rows_add(&rows, &span, "\"h\"", NULL);
    }
    assert_true(rc != 0 || rows.count == 100);
    ct_status_rows_fini(&rows);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    assert_true(ct_fault_sweep(collect_many, NULL, 0) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_row_is_printed_with_all_its_numbers),
        cmocka_unit_test(test_rows_are_separated_by_commas),
        cmocka_unit_test(test_rows_beyond_the_limit_are_left_out_and_noted),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
