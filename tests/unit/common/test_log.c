/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks which lines a logger drops, that a line is clean and of limited length, and which names
 * levels have.
 */
#include "common/log.h"
#include "tests/lib/ct_test.h"

struct seen {
    int lines;
    enum ct_log_level level;
    char last[CT_LOG_LINE_MAX];
};

static void keep(void *data, enum ct_log_level level, const char *line)
{
    struct seen *seen = data;
    seen->lines++;
    seen->level = level;
    assert_true(strlen(line) < sizeof(seen->last));
    memcpy(seen->last, line, strlen(line) + 1);
}

static void test_lines_below_the_threshold_are_dropped(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct ct_log log = {keep, &seen, CT_LOG_WARNING};
    ct_log(&log, CT_LOG_DEBUG, "no");
    ct_log(&log, CT_LOG_INFO, "no");
    assert_int_equal(seen.lines, 0);
    ct_log(&log, CT_LOG_WARNING, "rank %d is late", 3);
    assert_int_equal(seen.lines, 1);
    assert_int_equal(seen.level, CT_LOG_WARNING);
    assert_string_equal(seen.last, "rank 3 is late");
    ct_log(&log, CT_LOG_ERROR, "down");
    assert_int_equal(seen.lines, 2);
    assert_int_equal(seen.level, CT_LOG_ERROR);
}

static void test_null_logger_is_silent(void **state)
{
    (void)state;
    ct_log(NULL, CT_LOG_ERROR, "nobody hears %s", "this");
}

static void test_line_is_cut_and_clean(void **state)
{
    (void)state;
    struct seen seen = {0};
    struct ct_log log = {keep, &seen, CT_LOG_DEBUG};
    static char big[2 * CT_LOG_LINE_MAX];
    memset(big, 'a', sizeof(big) - 1);
    ct_log(&log, CT_LOG_INFO, "%s", big);
    assert_int_equal(strlen(seen.last), CT_LOG_LINE_MAX - 1);
    ct_log(&log, CT_LOG_INFO, "two\nlines");
    assert_string_equal(seen.last, "two?lines");
}

static void test_level_names_round_trip(void **state)
{
    (void)state;
    for (int i = CT_LOG_ERROR; i <= CT_LOG_DEBUG; i++) {
        enum ct_log_level level = (enum ct_log_level) - 1;
        assert_int_equal(ct_log_level_parse(ct_log_level_name((enum ct_log_level)i), &level), 0);
        assert_int_equal(level, i);
    }
    assert_string_equal(ct_log_level_name((enum ct_log_level)9), "unknown");
}

static void test_level_names_of_python_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum ct_log_level level;
    } good[] = {
        {"CRITICAL", CT_LOG_ERROR},  {"ERROR", CT_LOG_ERROR}, {"WARN", CT_LOG_WARNING},
        {"WARNING", CT_LOG_WARNING}, {"Info", CT_LOG_INFO},   {"DEBUG", CT_LOG_DEBUG},
    };
    static const char *const bad[] = {"", "verbose", "info ", "10", "debugg"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        enum ct_log_level level = (enum ct_log_level) - 1;
        assert_int_equal(ct_log_level_parse(good[i].name, &level), 0);
        assert_int_equal(level, good[i].level);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        enum ct_log_level level = CT_LOG_INFO;
        assert_int_equal(ct_log_level_parse(bad[i], &level), CT_EFORMAT);
        assert_int_equal(level, CT_LOG_INFO);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_below_the_threshold_are_dropped),
        cmocka_unit_test(test_null_logger_is_silent),
        cmocka_unit_test(test_line_is_cut_and_clean),
        cmocka_unit_test(test_level_names_round_trip),
        cmocka_unit_test(test_level_names_of_python_are_read),
    };
    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
