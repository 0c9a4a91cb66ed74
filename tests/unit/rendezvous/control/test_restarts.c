/* SPDX-License-Identifier: Apache-2.0
 *
 * Which generations count as progress, which restarts fit into a window, and the limits in a JOIN.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/control/restarts.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>

#define NONE -1

struct generation {
    int64_t first, last; /* NONE = no step */
    int want;            /* generations in a row without progress, with this one */
};

static void play(const struct generation *list, size_t count)
{
    struct ct_restarts restarts = {0};
    for (size_t i = 0; i < count; i++) {
        const struct ct_steps steps = {list[i].first != NONE, list[i].first, list[i].last};
        assert_int_equal(ct_restarts_judge(&restarts, &steps), list[i].want);
    }
}
#define PLAY(...)                                              \
    do {                                                       \
        static const struct generation list[] = {__VA_ARGS__}; \
        play(list, sizeof(list) / sizeof(list[0]));            \
    } while (0)

static void test_a_program_without_steps_is_not_judged(void **state)
{
    (void)state;
    PLAY({NONE, NONE, 0}, {NONE, NONE, 0}, {NONE, NONE, 0}, {NONE, NONE, 0});
    PLAY({NONE, NONE, 0}, {0, 3, 0}, {NONE, NONE, 1}, {NONE, NONE, 2}, {3, 4, 0});
}

static void test_a_step_that_is_new_is_progress(void **state)
{
    (void)state;
    /* From the same checkpoint each time, and one step further. */
    PLAY({0, 10, 0}, {0, 11, 0}, {0, 12, 0}, {0, 12, 1}, {0, 12, 2}, {0, 13, 0});
    /* One batch is poison: the first generation comes to it, and the others again and again. */
    PLAY({0, 150, 0}, {100, 150, 0}, {100, 150, 1}, {100, 149, 2}, {100, 150, 3});
}

static void test_a_checkpoint_that_moves_on_is_progress(void **state)
{
    (void)state;
    PLAY({0, 1000, 0}, {500, 700, 0}, {600, 800, 0}, {700, 900, 0}, {700, 950, 1}, {800, 900, 0});
}

static void test_going_back_on_purpose_is_no_standstill(void **state)
{
    (void)state;
    /* The program goes back before all that it has begun with, and repeats steps for a while. */
    PLAY({1000, 2000, 0}, {1500, 2000, 0}, {400, 900, 0}, {400, 950, 0}, {400, 960, 0});
    /* What it had reached before no longer counts, but what it has reached since does. */
    PLAY({1000, 2000, 0}, {400, 900, 0}, {400, 900, 1}, {400, 880, 2}, {NONE, NONE, 3});
}

static void test_only_so_many_restarts_fit_into_any_window(void **state)
{
    static const struct ct_restart_limits three = {.window_restarts = 3, .window_ms = 1000};
    static const struct ct_restart_limits none = {0};
    struct ct_restarts restarts = {0};
    static const int64_t taken[] = {0, 400, 900};
    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(ct_restarts_allowed(&restarts, &three, taken[i]));
        ct_restarts_take(&restarts, taken[i]);
    }
    assert_false(ct_restarts_allowed(&restarts, &three, 999));
    assert_true(ct_restarts_allowed(&restarts, &none, 999));
    assert_true(ct_restarts_allowed(&restarts, &three, 1000));
    ct_restarts_take(&restarts, 1000);
    assert_false(ct_restarts_allowed(&restarts, &three, 1399));
    assert_true(ct_restarts_allowed(&restarts, &three, 1400));
}

static void test_the_largest_window_remembers_all(void **state)
{
    static const struct ct_restart_limits limits = {.window_restarts = CT_RESTARTS_WINDOW_MAX,
                                                    .window_ms = 1000000};
    struct ct_restarts restarts = {0};
    (void)state;
    for (int i = 0; i < CT_RESTARTS_WINDOW_MAX; i++) {
        assert_true(ct_restarts_allowed(&restarts, &limits, 7 + i));
        ct_restarts_take(&restarts, 7 + i);
    }
    assert_false(ct_restarts_allowed(&restarts, &limits, 1000006));
    assert_true(ct_restarts_allowed(&restarts, &limits, 1000007));
}

static void test_blame_goes_to_one_machine_at_a_time(void **state)
{
    struct ct_restarts restarts = {0};
    (void)state;
    assert_int_equal(ct_restarts_blame(&restarts, "a", "10.0.0.1"), 1);
    assert_int_equal(ct_restarts_blame(&restarts, "a", "10.0.0.1"), 2);
    assert_int_equal(ct_restarts_blame(&restarts, "a", "10.0.0.2"), 1);
    assert_int_equal(ct_restarts_blame(&restarts, "a", "10.0.0.1"), 1);
    assert_false(ct_restarts_is_left_out(&restarts, "", ""));
    ct_restarts_leave_out(&restarts, "a", "10.0.0.1");
    assert_true(ct_restarts_is_left_out(&restarts, "a", "10.0.0.1"));
    assert_false(ct_restarts_is_left_out(&restarts, "a", "10.0.0.2"));
    assert_false(ct_restarts_is_left_out(&restarts, "b", "10.0.0.1"));
    for (int i = 0; i < CT_RESTARTS_LEFT_OUT_MAX; i++) {
        char host[16];
        (void)snprintf(host, sizeof(host), "n%d", i);
        ct_restarts_leave_out(&restarts, host, "");
        ct_restarts_leave_out(&restarts, host, ""); /* takes no second place */
        assert_true(ct_restarts_is_left_out(&restarts, host, ""));
    }
    assert_false(ct_restarts_is_left_out(&restarts, "a", "10.0.0.1"));
    assert_true(ct_restarts_is_left_out(&restarts, "n0", ""));
}

static void test_a_window_is_told_in_its_largest_unit(void **state)
{
    static const struct {
        struct ct_restart_limits limits;
        const char *want;
    } rows[] = {
        {{.window_restarts = 10, .window_ms = 86400000}, "10/24h"},
        {{.window_restarts = 3, .window_ms = 1800000}, "3/30m"},
        {{.window_restarts = 1, .window_ms = 90000}, "1/90s"},
        {{.window_restarts = 1, .window_ms = 1500}, "1/1500ms"},
        {{0}, "off"},
    };
    char text[CT_RESTARTS_WINDOW_TEXT];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(ct_restart_limits_window(&rows[i].limits, text), rows[i].want);
    }
}

static void test_limits_come_back_from_a_join(void **state)
{
    static const char *const bad[] = {
        "{\"limits\":3}",
        "{\"limits\":{}}",
        "{\"limits\":{\"max_no_progress\":-1,\"window_restarts\":0,\"window_ms\":0,\"ban_after\":0}"
        "}",
        "{\"limits\":{\"max_no_progress\":1,\"window_restarts\":257,\"window_ms\":5,\"ban_after\":"
        "0}}",
        "{\"limits\":{\"max_no_progress\":1,\"window_restarts\":2,\"window_ms\":5,\"ban_after\":"
        "\"x\"}}",
    };
    const struct ct_restart_limits limits = {
        .max_no_progress = 3, .window_restarts = 10, .window_ms = 5000, .ban_after = 2};
    const struct ct_restart_limits none = {0};
    struct ct_restart_limits back;
    struct ct_err err = {0};
    (void)state;
    cJSON *join = cJSON_CreateObject();
    assert_int_equal(ct_restart_limits_to_json(&none, join), 0);
    assert_null(cJSON_GetObjectItem(join, "limits"));
    assert_int_equal(ct_restart_limits_from_json(join, &back, &err), 0);
    assert_null(ct_restart_limits_differ(&none, &back));
    assert_int_equal(ct_restart_limits_to_json(&limits, join), 0);
    assert_int_equal(ct_restart_limits_from_json(join, &back, &err), 0);
    assert_null(ct_restart_limits_differ(&limits, &back));
    assert_non_null(ct_restart_limits_differ(&limits, &none));
    cJSON_Delete(join);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        join = cJSON_Parse(bad[i]);
        assert_non_null(join);
        assert_int_equal(ct_restart_limits_from_json(join, &back, &err), CT_EFORMAT);
        cJSON_Delete(join);
    }
    back = (struct ct_restart_limits){.window_ms = 7};
    assert_false(ct_restart_limits_are_sound(&back)); /* a window without restarts */
    back = (struct ct_restart_limits){.window_restarts = 7};
    assert_false(ct_restart_limits_are_sound(&back));
    assert_true(ct_restart_limits_are_sound(&limits) && ct_restart_limits_are_sound(&none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_program_without_steps_is_not_judged),
        cmocka_unit_test(test_a_step_that_is_new_is_progress),
        cmocka_unit_test(test_a_checkpoint_that_moves_on_is_progress),
        cmocka_unit_test(test_going_back_on_purpose_is_no_standstill),
        cmocka_unit_test(test_only_so_many_restarts_fit_into_any_window),
        cmocka_unit_test(test_the_largest_window_remembers_all),
        cmocka_unit_test(test_blame_goes_to_one_machine_at_a_time),
        cmocka_unit_test(test_a_window_is_told_in_its_largest_unit),
        cmocka_unit_test(test_limits_come_back_from_a_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
