/* SPDX-License-Identifier: Apache-2.0
 *
 * A variable that is nearly one of ctrun's is named with the right one; all others are left alone.
 */
#include "launcher/setup/misspelt_env.h"
#include "tests/lib/ct_test.h"

#include <string.h>

/* The line about one variable; "" = there is none. */
static const char *say(const char *variable)
{
    static char lines[CT_MISSPELT_ENV_LINES][CT_MISSPELT_ENV_MAX];
    char *const env[] = {(char *)"HOME=/", (char *)variable, NULL};
    int count = ct_misspelt_env(env, lines);
    assert_in_range(count, 0, 1);
    return count == 1 ? lines[0] : "";
}

static void a_misspelt_variable_gets_the_right_name(void **state)
{
    static const char *const rows[][2] = {
        {"PET_MAX_RESTART=3", "PET_MAX_RESTART has no effect; did you mean PET_MAX_RESTARTS?"},
        {"PET_NPROC_PER_NODES=2", "did you mean PET_NPROC_PER_NODE?"},
        {"PET_nnodes=2", "PET_nnodes has no effect; did you mean PET_NNODES?"},
        {"CTRUN_TOKN=secret", "CTRUN_TOKN has no effect; did you mean CTRUN_TOKEN?"},
        {"PET_TOKEN=secret", "did you mean CTRUN_TOKEN?"},
        {"CTRUN_PLUGINDIR=/", "did you mean CTRUN_PLUGIN_DIR?"},
        {"CTRUN_MAX_RESTARTS=3", "did you mean PET_MAX_RESTARTS?"},
        {"CTRUN_TOKEN_FILE=/x", "did you mean PET_TOKEN_FILE?"},
        {"PET_MAX_RESTART\x1b=3", "PET_MAX_RESTART? has no effect"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *line = say(rows[i][0]);
        if (strstr(line, rows[i][1]) == NULL) {
            fail_msg("%s: '%s'", rows[i][0], line);
        }
        assert_null(strstr(line, "secret"));
    }
}

static void right_and_foreign_variables_are_left_alone(void **state)
{
    static const char *const rows[] = {
        "PET_MAX_RESTARTS=3",
        "PET_NNODES=2",
        "PET_PRINT_CONFIG=1",
        "PET_RUN_PATH=1",
        "PET_MAX_RESTART=",
        "PET_MAX_RESTART",
        "PET_=1",
        "PET=1",
        "CTRUN_=1",
        "PETS_MAX_RESTART=3",
        "PET_FEED=1",
        "PET_NAME=1",
        "CTRUN_TOKEN=x",
        "CTRUN_PLUGIN_DIR=/",
        "CTRUN_PORT_HTTP=1",
        "CTRUN_GENERATION=1",
        "CTRUN_JOB_COOKIE=1",
        "CTRUN_PROGRESS=/x",
        "CTRUN_WARM=/x",
        "CTRUN_HANDOVER=1",
        "CTRUN_PREEMPT_FILE=/",
        "CTRUN_GPU_SHARE=1/2",
        "CTRUN_SNAPSHOT=/x",
        "CTRUN_DEVICE_INDEX=1",
        "MAX_RESTART=3",
        "pet_max_restart=3",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_string_equal(say(rows[i]), "");
    }
}

static void there_are_not_more_lines_than_fit(void **state)
{
    char lines[CT_MISSPELT_ENV_LINES][CT_MISSPELT_ENV_MAX];
    char name[2000] = "PET_MAX_RESTART=3";
    char *env[2 * CT_MISSPELT_ENV_LINES + 1] = {NULL};
    (void)state;
    for (size_t i = 0; i < 2 * CT_MISSPELT_ENV_LINES; i++) {
        env[i] = name;
    }
    assert_int_equal(ct_misspelt_env(env, lines), CT_MISSPELT_ENV_LINES);
    memset(name + strlen("PET_"), 'A', sizeof(name) - 10);
    name[sizeof(name) - 5] = '=';
    assert_int_equal(ct_misspelt_env(env, lines), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misspelt_variable_gets_the_right_name),
        cmocka_unit_test(right_and_foreign_variables_are_left_alone),
        cmocka_unit_test(there_are_not_more_lines_than_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
