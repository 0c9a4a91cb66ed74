/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading a worker's environment: defaults, limits and messages.
 */
#include "tests/lib/ct_test.h"

#include "worker/job/env.h"

#include <stdlib.h>

static const char *const variables[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CTRUN_GENERATION",
    "TORCHELASTIC_RESTART_COUNT",
    "TORCHELASTIC_USE_AGENT_STORE",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_ERROR_FILE",
    "CTRUN_SNAPSHOT",
    "CTRUN_DEVICE_INDEX",
    "CTRUN_GPU_SHARE",
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(variables); i++) {
        assert_int_equal(unsetenv(variables[i]), 0);
    }
    return 0;
}

static void put(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Rank 3 of 8, second of two nodes. */
static int launched(void **state)
{
    (void)clear(state);
    put("RANK", "3");
    put("WORLD_SIZE", "8");
    put("LOCAL_RANK", "1");
    put("LOCAL_WORLD_SIZE", "4");
    put("GROUP_RANK", "1");
    put("GROUP_WORLD_SIZE", "2");
    put("MASTER_ADDR", "node-0.example");
    put("MASTER_PORT", "29500");
    put("TORCHELASTIC_RESTART_COUNT", "2");
    put("TORCHELASTIC_USE_AGENT_STORE", "True");
    put("TORCHELASTIC_RUN_ID", "job 17");
    put("TORCHELASTIC_ERROR_FILE", "/tmp/e.json");
    return 0;
}

static void reads_a_launched_worker(void **state)
{
    (void)state;
    struct ctw_env env;
    assert_int_equal(ctw_env_read(&env, NULL), 0);
    assert_true(env.launched);
    assert_int_equal(env.rank, 3);
    assert_int_equal(env.world_size, 8);
    assert_int_equal(env.local_rank, 1);
    assert_int_equal(env.local_world_size, 4);
    assert_int_equal(env.node_rank, 1);
    assert_int_equal(env.node_count, 2);
    assert_int_equal(env.generation, 2);
    assert_int_equal(env.master_port, 29500);
    assert_true(env.store_is_external);
    assert_string_equal(env.master_addr, "node-0.example");
    assert_string_equal(env.run_id, "job 17");
    assert_string_equal(env.error_file, "/tmp/e.json");
    assert_int_equal(env.device_index, 1); /* the local rank */
    assert_false(env.device_own || env.device_set);
    put("CTRUN_DEVICE_INDEX", "0");
    assert_int_equal(ctw_env_read(&env, NULL), 0);
    assert_int_equal(env.device_index, 0);
    assert_true(env.device_own && env.device_set);
    put("CTRUN_GPU_SHARE", "1/2");
    assert_int_equal(ctw_env_read(&env, NULL), 0);
    assert_false(env.device_own);
    assert_true(env.device_set);
}

static void our_generation_wins_over_torchs(void **state)
{
    (void)state;
    put("CTRUN_GENERATION", "5");
    struct ctw_env env;
    assert_int_equal(ctw_env_read(&env, NULL), 0);
    assert_int_equal(env.generation, 5);
}

static void fills_in_what_may_be_missing(void **state)
{
    (void)state;
    put("RANK", "1");
    put("WORLD_SIZE", "2");
    put("MASTER_ADDR", "::1");
    put("MASTER_PORT", "1");
    put("LOCAL_RANK", ""); /* empty counts as unset */
    put("TORCHELASTIC_USE_AGENT_STORE", "true");
    struct ctw_env env;
    assert_int_equal(ctw_env_read(&env, NULL), 0);
    assert_int_equal(env.local_rank, 0);
    assert_int_equal(env.local_world_size, 2);
    assert_int_equal(env.node_rank, 0);
    assert_int_equal(env.node_count, 1);
    assert_int_equal(env.generation, 0);
    assert_false(env.store_is_external);
    assert_string_equal(env.run_id, "none");
    assert_string_equal(env.error_file, "");
}

static void works_without_a_launcher(void **state)
{
    (void)state;
    put("LOCAL_RANK", "7"); /* another tool's, of no meaning without RANK */
    struct ctw_env env;
    assert_int_equal(ctw_env_read(&env, NULL), 0);
    assert_false(env.launched);
    assert_int_equal(env.rank, 0);
    assert_int_equal(env.world_size, 1);
    assert_int_equal(env.local_rank, 0);
    assert_int_equal(env.local_world_size, 1);
    assert_int_equal(env.node_count, 1);
}

static void a_contract_is_read_in_place_of_the_environment(void **state)
{
    (void)state;
    static const char text[] = "RANKS=7\0XRANK=7\0RANK=1\0WORLD_SIZE=2\0MASTER_ADDR=there\0"
                               "MASTER_PORT=1\0LOCAL_RANK=\0RANK=0\0CTRUN_GENERATION=6";
    const struct env_source contract = {text, sizeof(text)}, nothing = {text, 0};
    put("LOCAL_RANK", "1"); /* the process's own is of another generation */
    put("TORCHELASTIC_RUN_ID", "another");
    struct ctw_env env;
    assert_int_equal(env_read_from(&contract, &env, NULL), 0);
    assert_true(env.launched);
    assert_int_equal(env.rank, 1);
    assert_int_equal(env.world_size, 2);
    assert_int_equal(env.local_rank, 0);
    assert_int_equal(env.generation, 6);
    assert_string_equal(env.master_addr, "there");
    assert_string_equal(env.run_id, "none");
    assert_int_equal(env_read_from(&nothing, &env, NULL), 0);
    assert_false(env.launched);
}

static void refuses_hostile_values(void **state)
{
    static const struct {
        const char *name, *value; /* value NULL: unset */
        int code;
    } cases[] = {
        {"RANK", NULL, CT_ENOENT},
        {"RANK", "8", CT_ELIMIT},
        {"RANK", "-1", CT_ELIMIT},
        {"RANK", "3x", CT_EFORMAT},
        {"RANK", " 3", CT_EFORMAT},
        {"RANK", "0x3", CT_EFORMAT},
        {"RANK", "3.0", CT_EFORMAT},
        {"RANK", "99999999999999999999", CT_ELIMIT},
        {"WORLD_SIZE", NULL, CT_ENOENT},
        {"WORLD_SIZE", "", CT_ENOENT},
        {"WORLD_SIZE", "0", CT_ELIMIT},
        {"WORLD_SIZE", "1048577", CT_ELIMIT},
        {"WORLD_SIZE", "-8", CT_ELIMIT},
        {"WORLD_SIZE", "4294967304", CT_ELIMIT},
        {"LOCAL_RANK", "4", CT_ELIMIT},
        {"LOCAL_RANK", "one", CT_EFORMAT},
        {"LOCAL_WORLD_SIZE", "9", CT_ELIMIT},
        {"LOCAL_WORLD_SIZE", "0", CT_ELIMIT},
        {"GROUP_RANK", "2", CT_ELIMIT},
        {"GROUP_WORLD_SIZE", "9", CT_ELIMIT},
        {"GROUP_WORLD_SIZE", "+2", CT_EFORMAT},
        {"MASTER_ADDR", NULL, CT_ENOENT},
        {"MASTER_ADDR", "", CT_ENOENT},
        {"MASTER_ADDR", "a\nb", CT_EFORMAT},
        {"MASTER_ADDR", "\x7f", CT_EFORMAT},
        {"MASTER_PORT", NULL, CT_ENOENT},
        {"MASTER_PORT", "0", CT_ELIMIT},
        {"MASTER_PORT", "65536", CT_ELIMIT},
        {"MASTER_PORT", "29500 ", CT_EFORMAT},
        {"TORCHELASTIC_RESTART_COUNT", "-1", CT_ELIMIT},
        {"TORCHELASTIC_RESTART_COUNT", "2147483648", CT_ELIMIT},
        {"CTRUN_GENERATION", "nan", CT_EFORMAT},
        {"TORCHELASTIC_RUN_ID", "a\x1b[2J", CT_EFORMAT},
        {"TORCHELASTIC_ERROR_FILE", "a\tb", CT_EFORMAT},
        {"CTRUN_SNAPSHOT", "/proc/1\n", CT_EFORMAT},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        (void)launched(state);
        if (cases[i].value != NULL) {
            put(cases[i].name, cases[i].value);
        } else {
            assert_int_equal(unsetenv(cases[i].name), 0);
        }
        struct ctw_env env = {.rank = 77};
        struct ct_err err = {0};
        int rc = ctw_env_read(&env, &err);
        if (rc != cases[i].code || strstr(err.text, cases[i].name) == NULL || env.rank != 77) {
            fail_msg("%s=%s: %d (%s), expected %d", cases[i].name, cases[i].value, rc, err.text,
                     cases[i].code);
        }
    }
}

static void refuses_overlong_texts(void **state)
{
    static const struct {
        const char *name;
        size_t longest;
    } cases[] = {
        {"MASTER_ADDR", CTW_HOST_MAX - 1},
        {"TORCHELASTIC_RUN_ID", CTW_RUN_ID_MAX - 1},
        {"TORCHELASTIC_ERROR_FILE", CTW_PATH_MAX - 1},
        {"CTRUN_SNAPSHOT", CTW_PATH_MAX - 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        (void)launched(state);
        char text[CTW_PATH_MAX + 1];
        memset(text, 'a', sizeof(text));
        text[cases[i].longest] = '\0';
        put(cases[i].name, text);
        struct ctw_env env;
        assert_int_equal(ctw_env_read(&env, NULL), 0);
        text[cases[i].longest] = 'a';
        text[cases[i].longest + 1] = '\0';
        put(cases[i].name, text);
        struct ct_err err = {0};
        assert_int_equal(ctw_env_read(&env, &err), CT_ELIMIT);
        assert_non_null(strstr(err.text, cases[i].name));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_a_launched_worker, launched, clear),
        cmocka_unit_test_setup_teardown(our_generation_wins_over_torchs, launched, clear),
        cmocka_unit_test_setup_teardown(fills_in_what_may_be_missing, clear, clear),
        cmocka_unit_test_setup_teardown(works_without_a_launcher, clear, clear),
        cmocka_unit_test_setup_teardown(a_contract_is_read_in_place_of_the_environment, clear,
                                        clear),
        cmocka_unit_test_setup_teardown(refuses_hostile_values, clear, clear),
        cmocka_unit_test_setup_teardown(refuses_overlong_texts, clear, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
