/* SPDX-License-Identifier: Apache-2.0
 *
 * Options that change nothing in a job are named, each with its reason; the others are not.
 */
#include "launcher/setup/no_effect.h"
#include "tests/lib/ct_test.h"

#include <string.h>

static char *const env[] = {NULL};
static const struct ct_resolved single = {.mode = CT_MODE_SINGLE, .workers = 2};

/* The lines, each with a bar behind it. */
static const char *say(const struct ct_resolved *resolved, const char *first, const char *second)
{
    static char text[CT_NO_EFFECT_LINES * (CT_NO_EFFECT_MAX + 1)];
    char lines[CT_NO_EFFECT_LINES][CT_NO_EFFECT_MAX];
    char *const argv[] = {(char *)"ctrun", (char *)first,
                          (char *)second,  (char *)"--nproc-per-node=2",
                          (char *)"true",  NULL};
    struct ct_options options;
    struct ct_err err = {0};
    assert_int_equal(ct_options_parse(argv, env, &options, &err), 0);
    int count = ct_no_effect(&options, resolved, lines);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text), len = strlen(lines[i]);
        memcpy(text + used, lines[i], len);
        memcpy(text + used + len, "|", 2);
    }
    return text;
}

static void ranks_that_do_not_exist_are_named(void **state)
{
    const struct ct_resolved one = {.mode = CT_MODE_SINGLE, .workers = 1};
    const struct ct_resolved shim = {.mode = CT_MODE_SHIM, .workers = 1};
    (void)state;
    assert_string_equal(say(&single, "--local-ranks-filter=1,7", "--tee=0:3,4:1"),
                        "--local-ranks-filter: there is no local rank 7 here (0 to 1)|"
                        "--tee: there is no local rank 4 here (0 to 1)|");
    assert_string_equal(say(&one, "--redirects=1:3", "--tee=3"),
                        "--redirects: there is no local rank 1 here (only 0)|");
    assert_string_equal(say(&single, "--local-ranks-filter=0,1", "--tee=1:3,2:0"), "");
    assert_string_equal(say(&shim, "--local-ranks-filter=1,7", "--tee=4:1"), "");
}

static void options_that_need_another_one_are_named(void **state)
{
    const struct ct_resolved shared = {.mode = CT_MODE_AGENT, .workers = 2, .shared = true};
    const struct ct_resolved agent = {.mode = CT_MODE_AGENT, .workers = 2};
    (void)state;
    assert_string_equal(say(&single, "--on-hang=report", "--spares=2"),
                        "--on-hang has no effect without --hang-timeout|"
                        "--spares has no effect without --nnodes in a job of this machine alone|");
    assert_string_equal(say(&single, "--on-hang=report", "--hang-timeout=30"), "");
    assert_string_equal(say(&single, "--hang-stacks=9", "--on-hang=report"),
                        "--on-hang has no effect without --hang-timeout|"
                        "--hang-stacks has no effect without --hang-timeout or --slow-factor, but "
                        "for the stacks that SIGQUIT asks for|");
    assert_string_equal(say(&single, "--hang-stacks=9", "--hang-timeout=30"), "");
    assert_string_equal(say(&single, "--hang-stacks=9", "--slow-factor=2"), "");
    assert_string_equal(say(&single, "--hang-stacks=off", "--warm=0"), "");
    assert_string_equal(say(&single, "--warm-import=json", "--warm-memory=5"),
                        "--warm-import has no effect without --warm|"
                        "--warm-memory has no effect without --warm|");
    assert_string_equal(say(&single, "--health-check-timeout=5", "--preflight-limits=gpus=8"),
                        "--health-check-timeout has no effect without --health-check|"
                        "--preflight-limits has no effect without --preflight|");
    assert_string_equal(say(&single, "--preflight-only", "--preflight-limits=gpus=8"), "");
    assert_string_equal(say(&single, "--warm", "--warm-import=json"),
                        "--warm has no effect without --max-restarts or --restart-budget in a job "
                        "of this machine alone|");
    assert_string_equal(say(&single, "--warm", "--max-restarts=1"), "");
    assert_string_equal(say(&shared, "--warm", "--warm-import=json"), "");
    assert_string_equal(say(&agent, "--spares=2", "--nnodes=2"), "");
}

static void a_budget_that_bounds_nothing_is_named(void **state)
{
    (void)state;
    assert_string_equal(say(&single, "--restart-budget=2/1s", "--on-hang=report"),
                        "--on-hang has no effect without --hang-timeout|"
                        "--restart-budget 2/1s may bound nothing: ctrun itself pauses up to 30 s "
                        "before a restart, so take a longer time|");
    assert_string_equal(say(&single, "--restart-budget=2/1m", "--warm=0"),
                        "--restart-budget 2/1m may bound nothing: ctrun itself pauses up to 30 s "
                        "before a restart, so take a longer time|");
    assert_string_equal(say(&single, "--restart-budget=2/61s", "--warm"), "");
}

static void restarts_that_cannot_be_are_named(void **state)
{
    const struct ct_resolved fixed = {
        .mode = CT_MODE_AGENT, .workers = 2, .shared = true, .min_nodes = 2, .max_nodes = 2};
    const struct ct_resolved elastic = {
        .mode = CT_MODE_AGENT, .workers = 2, .shared = true, .min_nodes = 1, .max_nodes = 2};
    static const char code_only[] =
        "--no-restart-on only sets the exit code to 119 here: there are no restarts without "
        "--max-restarts or --restart-budget|";
    (void)state;
    assert_string_equal(say(&single, "--ban-after=2", "--max-restarts=3"),
                        "--ban-after has no effect in a job of this machine alone|");
    assert_string_equal(say(&fixed, "--ban-after=2", "--max-restarts=3"),
                        "--ban-after can leave out no machine without --spares or --nnodes "
                        "MIN:MAX|");
    assert_string_equal(say(&fixed, "--ban-after=2", "--spares=1"), "");
    assert_string_equal(say(&elastic, "--ban-after=2", "--max-restarts=3"), "");
    assert_string_equal(say(&single, "--ban-after=0", "--max-restarts=0"), "");
    assert_string_equal(say(&single, "--no-restart-on=3", "--max-restarts=0"), code_only);
    assert_string_equal(say(&elastic, "--no-restart-on=3", "--warm=0"), code_only);
    assert_string_equal(say(&single, "--no-restart-on=3", "--restart-budget=3/1h"), "");
    assert_string_equal(say(&single, "--max-no-progress=3", "--max-restarts=0"),
                        "--max-no-progress has no effect without --max-restarts or "
                        "--restart-budget|");
    assert_string_equal(say(&elastic, "--max-no-progress=3", "--max-restarts=0"), "");
    assert_string_equal(say(&single, "--max-no-progress=3", "--max-restarts=1"), "");
}

static void where_the_store_is_has_no_effect_with_etcd(void **state)
{
    const struct ct_resolved etcd = {
        .mode = CT_MODE_AGENT, .workers = 2, .shared = true, .etcd = "h"};
    (void)state;
    assert_string_equal(say(&etcd, "--master-addr=h", "--rdzv-conf=is_host=0"),
                        "--master-addr has no effect with --rdzv-backend etcd|"
                        "is_host of --rdzv-conf has no effect with --rdzv-backend etcd|");
    assert_string_equal(say(&etcd, "--master-port=5", "--rdzv-conf=join_timeout=5"), "");
    assert_string_equal(say(&single, "--master-addr=h", "--rdzv-conf=is_host=0"), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_do_not_exist_are_named),
        cmocka_unit_test(options_that_need_another_one_are_named),
        cmocka_unit_test(restarts_that_cannot_be_are_named),
        cmocka_unit_test(a_budget_that_bounds_nothing_is_named),
        cmocka_unit_test(where_the_store_is_has_no_effect_with_etcd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
