/* SPDX-License-Identifier: Apache-2.0
 *
 * The story of a job: who is to blame, in words and in JSON.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "launcher/report/job_story.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/fault.h"

#include <stdio.h>

static void set(char *to, size_t size, const char *text)
{
    (void)snprintf(to, size, "%s", text);
}

static void add_failure(struct ct_failure_history *told, int node_rank, int rank, int exit_code,
                        const char *what)
{
    struct ct_failure *failure = &told->failures[told->num_failures++ % CT_FAILURE_HISTORY_KEPT];
    *failure = (struct ct_failure){.kind = rank < 0 ? CT_FAILURE_SILENT : CT_FAILURE_WORKER,
                                   .generation = 1,
                                   .node_rank = node_rank,
                                   .rank = rank,
                                   .local_rank = rank < 0 ? -1 : 0,
                                   .exit_code = exit_code};
    (void)snprintf(failure->host, sizeof(failure->host), "gpu-%d", node_rank);
    set(failure->what, sizeof(failure->what), what);
}

/* We are node 0 of three, in the second generation. */
static void set_up(struct ct_job_story *story)
{
    const struct ct_msg_world world = {.node_rank = 0, .node_count = 3, .world_size = 6};
    ct_job_story_init(story, 2, 1 * CT_NS_PER_S);
    ct_job_story_connected(story, 2 * CT_NS_PER_S);
    ct_job_story_waiting(story, "waiting for\x1b 1 of 3 nodes");
    ct_job_story_world(story, &world, 0, 5 * CT_NS_PER_S);
    ct_job_story_started(story, 6 * CT_NS_PER_S);
    ct_job_story_waiting(story, "later words");
    ct_job_story_stepped(story, 8 * CT_NS_PER_S + CT_NS_PER_S / 2);
    ct_job_story_world(story, &world, 1, 50 * CT_NS_PER_S);
    ct_job_story_started(story, 60 * CT_NS_PER_S);
    ct_job_story_stepped(story, 61 * CT_NS_PER_S);
}

static void take(struct ct_job_story *story)
{
    struct ct_failure_history told = {0};
    add_failure(&told, 3, 7, 9, "an old story, which a restart has mended");
    told.failures[0].generation = 0;
    add_failure(&told, 2, 5, 137, "process 42 was killed by signal 9 (SIGKILL)");
    set(told.failures[1].address, sizeof(told.failures[1].address), "10.0.0.2");
    told.failures[1].tail = ct_strdup("the very\x07 reason\n");
    told.failures[1].advice = ct_strdup("see dmesg");
    add_failure(&told, 1, -1, 121, "nothing was heard from it");
    told.rounds[0] = (struct ct_history_round){.generation = 1,
                                               .paused_ms = 4000,
                                               .nodes = 3,
                                               .world_size = 6,
                                               .formed_ms = 1000,
                                               .ended_ms = 3500,
                                               .why = "rank 5 was killed"};
    told.num_rounds = 1;
    ct_job_story_take_history(story, &told);
    assert_null(told.failures[1].tail);
}

static const struct ct_job_end failed = {
    .run_id = "j", .host = "gpu-0", .exit_code = 137, .max_restarts = 1};

static void the_first_failure_comes_first(void **state)
{
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    set_up(&story);
    assert_null(ct_job_story_failure_elsewhere(&story));
    take(&story);
    assert_int_equal(ct_job_story_failure_elsewhere(&story)->rank, 5);
    assert_int_equal(ct_job_story_text(&story, &failed, &text), 0);
    assert_string_equal(
        ct_buf_cstr(&text),
        "ctrun: the job failed in generation 1: rank 5 failed on gpu-2 at 10.0.0.2: process 42 was "
        "killed by "
        "signal 9 (SIGKILL)\n"
        "ctrun: rank 5 wrote last on stderr:\n"
        "    the very? reason\n"
        "ctrun: what to do: see dmesg\n"
        "ctrun: also, node 1 (gpu-1) is lost: nothing was heard from it\n"
        "ctrun: generation 1: 3 nodes, 6 ranks, formed in 0.0 s after a pause of 4 s, ran 2.5 s\n"
        "ctrun: start-up here: connected in 1.000 s, waited 3.000 s for the other nodes, spawned "
        "in 1.000 s, first step after another 2.500 s\n"
        "ctrun:   the last word then: waiting for? 1 of 3 nodes\n");
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

static void advice_on_a_lost_machine(void **state)
{
    const char advice[] =
        "ctrun: what to do: --nnodes MIN:MAX or --spares lets the job outlive a machine\n";
    struct ct_job_end end = {.run_id = "j", .host = "gpu-0", .exit_code = 121, .fixed_nodes = true};
    struct ct_failure_history told = {0};
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    set_up(&story);
    add_failure(&told, 1, -1, 121, "nothing was heard from it");
    ct_job_story_take_history(&story, &told);
    assert_int_equal(ct_job_story_text(&story, &end, &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), advice));
    ct_buf_reset(&text);
    end.fixed_nodes = false;
    assert_int_equal(ct_job_story_text(&story, &end, &text), 0);
    assert_null(strstr(ct_buf_cstr(&text), advice));
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

static void advice_on_a_lost_store(void **state)
{
    const char advice[] = "ctrun: what to do: --rdzv-conf failover=1 and a token, on every "
                          "machine, let the job outlive the machine of its store\n";
    struct ct_job_end end = {.run_id = "j", .host = "gpu-0", .exit_code = 121, .store_lost = true};
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    ct_job_story_init(&story, 2, 0);
    assert_int_equal(ct_job_story_text(&story, &end, &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), advice));
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

/* The story named the worker of a failure that a restart had mended as the reason of the end. */
static void a_mended_failure_is_not_why_a_job_ends_with_its_store(void **state)
{
    struct ct_job_end end = {.run_id = "j", .host = "gpu-0", .exit_code = 121, .store_lost = true};
    struct ct_failure_history told = {0};
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT, json = CT_BUF_INIT;
    (void)state;
    set_up(&story);
    add_failure(&told, 0, 1, 3, "process 42 exited with code 3");
    ct_job_story_take_history(&story, &told);
    for (int mended = 0; mended < 2; mended++) {
        end.since = 1 + mended; /* the failure is of generation 1 */
        ct_buf_reset(&text);
        ct_buf_reset(&json);
        assert_int_equal(ct_job_story_text(&story, &end, &text), 0);
        assert_int_equal(strstr(ct_buf_cstr(&text), "rank 1 failed") == NULL, mended);
        assert_int_equal(strstr(ct_buf_cstr(&text), "failover=1") != NULL, mended);
        assert_int_equal(ct_job_story_json(&story, &end, &json), 0);
        assert_int_equal(strstr(ct_buf_cstr(&json), "\"first_failure\":null") != NULL, mended);
    }
    ct_buf_fini(&json);
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

static void what_is_told_here_is_not_repeated(void **state)
{
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    set_up(&story);
    take(&story);
    story.node_rank = 2;
    assert_null(ct_job_story_failure_elsewhere(&story));
    assert_int_equal(ct_job_story_text(&story, &failed, &text), 0);
    assert_null(strstr(ct_buf_cstr(&text), "the very"));
    assert_non_null(strstr(ct_buf_cstr(&text), "rank 5 failed on gpu-2 at 10.0.0.2"));
    ct_buf_reset(&text);
    const struct ct_job_end asked = {.run_id = "j", .host = "h", .exit_code = 143, .signo = 15};
    assert_int_equal(ct_job_story_text(&story, &asked, &text), 0);
    assert_int_equal(text.len, 0);
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

static void one_node_tells_it_and_another_where_that_one_is_lost(void **state)
{
    struct ct_job_story story;
    struct ct_failure_history told = {0};
    (void)state;
    set_up(&story);
    story.node_rank = 2;
    assert_int_equal(ct_job_story_reporting_node(&story, false), 0);
    assert_int_equal(ct_job_story_reporting_node(&story, true), 1);
    add_failure(&told, 1, 3, 1, "a worker of node 1");
    add_failure(&told, 0, -1, 121, "nothing was heard from it");
    ct_job_story_take_history(&story, &told);
    assert_int_equal(ct_job_story_reporting_node(&story, false), 1);
    add_failure(&told, 0, -1, 121, "nothing was heard from it");
    add_failure(&told, 1, -1, 121, "nothing was heard from it");
    ct_job_story_take_history(&story, &told);
    assert_int_equal(ct_job_story_reporting_node(&story, false), 2);
    ct_job_story_fini(&story);
}

static void a_hang_of_all_has_no_culprit(void **state)
{
    struct ct_failure_history told = {0};
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    add_failure(&told, 0, -1, 122, "no rank has moved for 5 s and none stands out");
    told.failures[0].kind = CT_FAILURE_WORKER;
    assert_int_equal(ct_job_story_headline(&told.failures[0], &text), 0);
    assert_string_equal(ct_buf_cstr(&text),
                        "the job hung: no rank has moved for 5 s and none stands out");
    ct_buf_fini(&text);
}

static int json_body(void *data)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_job_story_json(data, &failed, &text);
    rc = rc != 0 ? rc : ct_job_story_text(data, &failed, &text);
    ct_buf_fini(&text);
    return rc;
}

static void the_report_is_json(void **state)
{
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    ct_json_use_our_memory();
    set_up(&story);
    take(&story);
    assert_int_equal(ct_job_story_json(&story, &failed, &text), 0);
    cJSON *root = cJSON_Parse(ct_buf_cstr(&text));
    assert_non_null(root);
    const cJSON *first = cJSON_GetObjectItemCaseSensitive(root, "first_failure");
    assert_true(ct_json_number(first, "rank", -1) == 5);
    assert_true(ct_json_number(root, "exit_code", -1) == 137);
    assert_true(ct_json_number(root, "node_rank", -1) == 0);
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(root, "start_up");
    assert_true(ct_json_number(times, "wait_s", -1) == 3);
    assert_true(ct_json_number(times, "first_step_s", -1) == 2.5);
    cJSON_Delete(root);
    assert_true(ct_fault_sweep(json_body, &story, 0) >= 1);
    ct_buf_reset(&text);
    story.first_step_ns = 0;
    assert_int_equal(ct_job_story_json(&story, &failed, &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "\"first_step_s\":null"));
    ct_buf_reset(&text);
    assert_int_equal(ct_job_story_text(&story, &failed, &text), 0);
    assert_null(strstr(ct_buf_cstr(&text), "first step"));
    ct_buf_reset(&text);
    /* A failure that a restart has mended did not end the job. */
    struct ct_job_end mended = failed;
    mended.exit_code = 0;
    assert_int_equal(ct_job_story_json(&story, &mended, &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "\"first_failure\":null"));
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

static void the_report_has_the_warm_starts(void **state)
{
    struct ct_job_story story;
    struct ct_buf text = CT_BUF_INIT;
    struct ct_job_end end = failed;
    (void)state;
    ct_json_use_our_memory();
    set_up(&story);
    assert_int_equal(ct_job_story_json(&story, &end, &text), 0);
    assert_null(strstr(ct_buf_cstr(&text), "\"workers_in_all\""));
    ct_buf_reset(&text);
    story.first_warm = 1;
    end.warm = (struct ct_warm_facts){
        .wanted = 2, .workers = 1, .mib = 7, .cold = "a file\x1b", .making = CT_WARM_MAKING_NOW};
    end.warm_in_all = 3;
    assert_int_equal(ct_job_story_json(&story, &end, &text), 0);
    cJSON *root = cJSON_Parse(ct_buf_cstr(&text));
    const cJSON *warm = cJSON_GetObjectItemCaseSensitive(root, "warm");
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(root, "start_up");
    assert_true(ct_json_number(warm, "wanted", -1) == 2);
    assert_string_equal(ct_json_text(warm, "state", "?"), "making");
    assert_true(ct_json_number(warm, "workers", -1) == 1);
    assert_true(ct_json_number(warm, "workers_in_all", -1) == 3);
    assert_true(ct_json_number(warm, "mib", -1) == 7);
    assert_string_equal(ct_json_text(warm, "off", "?"), "");
    assert_string_equal(ct_json_text(warm, "cold", ""), "a file\\x1b");
    assert_true(ct_json_number(times, "warm", -1) == 1);
    cJSON_Delete(root);
    take(&story);
    ct_buf_reset(&text);
    assert_int_equal(ct_job_story_text(&story, &end, &text), 0);
    assert_non_null(strstr(ct_buf_cstr(&text), "spawned in 1.000 s (1 of 2 warm), first step"));
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

/* A worker's output may hold characters that turn the direction of writing. */
static void the_report_shows_no_character_that_misleads(void **state)
{
    struct ct_job_story story;
    struct ct_failure_history told = {0};
    struct ct_buf text = CT_BUF_INIT;
    (void)state;
    ct_json_use_our_memory();
    set_up(&story);
    add_failure(&told, 2, 5, 3, "caf\xc3\xa9 \xe2\x80\xaetxt.exe");
    told.failures[0].tail = ct_strdup("a\\b\n\xe2\x81\xa6\xc2\x9b\x7f\n");
    told.rounds[0] = (struct ct_history_round){.generation = 1};
    set(told.rounds[0].why, sizeof(told.rounds[0].why), "\xd8\x9c");
    told.num_rounds = 1;
    ct_job_story_take_history(&story, &told);
    assert_int_equal(ct_job_story_json(&story, &failed, &text), 0);
    cJSON *root = cJSON_Parse(ct_buf_cstr(&text));
    const cJSON *first = cJSON_GetObjectItemCaseSensitive(root, "first_failure");
    assert_string_equal(ct_json_text(first, "what", ""), "caf\xc3\xa9 \\xe2\\x80\\xaetxt.exe");
    assert_string_equal(ct_json_text(first, "tail", ""), "a\\b\n\\xe2\\x81\\xa6\\xc2\\x9b\\x7f\n");
    assert_null(strstr(ct_buf_cstr(&text), "\xe2"));
    assert_null(strstr(ct_buf_cstr(&text), "\xd8"));
    cJSON_Delete(root);
    assert_true(ct_fault_sweep(json_body, &story, 0) >= 1);
    ct_buf_fini(&text);
    ct_job_story_fini(&story);
}

static int verdict_body(void *data)
{
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_job_story_verdict(data, &failed, NULL, &text);
    ct_buf_fini(&text);
    return rc;
}

static void assert_verdict(const struct ct_job_story *story, const struct ct_job_end *end,
                           const struct ct_failure *here, const char *outcome, const char *words)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_string_equal(ct_job_story_outcome(end), outcome);
    assert_int_equal(ct_job_story_verdict(story, end, here, &text), 0);
    assert_string_equal(ct_buf_cstr(&text), words);
    ct_buf_fini(&text);
}

static void the_verdict_is_one_line(void **state)
{
    struct ct_job_story story;
    struct ct_failure here = {.rank = 1, .host = "gpu-0", .what = "process 9 exited with code 3"};
    const struct ct_job_end good = {.exit_code = 0}, asked = {.exit_code = 143, .signo = 15};
    (void)state;
    set_up(&story);
    assert_verdict(&story, &good, NULL, "succeeded", "succeeded");
    story.restarts = 1;
    assert_verdict(&story, &good, NULL, "succeeded", "succeeded after 1 restart");
    story.restarts = 2;
    assert_verdict(&story, &good, NULL, "succeeded", "succeeded after 2 restarts");
    assert_verdict(&story, &asked, &here, "stopped", "was ended by SIGTERM, exit code 143");
    assert_verdict(&story, &failed, NULL, "failed", "failed with exit code 137");
    set(story.why, sizeof(story.why), "too few\x1b nodes");
    assert_verdict(&story, &failed, NULL, "failed", "failed: too few? nodes");
    assert_verdict(&story, &failed, &here, "failed",
                   "failed: rank 1 on gpu-0: process 9 exited with code 3");
    take(&story); /* another node's rank was the first */
    assert_verdict(&story, &failed, &here, "failed",
                   "failed: rank 5 on gpu-2 at 10.0.0.2: process 42 was killed by signal 9 "
                   "(SIGKILL)");
    assert_true(ct_fault_sweep(verdict_body, &story, 0) >= 1);
    ct_job_story_fini(&story);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_comes_first),
        cmocka_unit_test(advice_on_a_lost_machine),
        cmocka_unit_test(advice_on_a_lost_store),
        cmocka_unit_test(a_mended_failure_is_not_why_a_job_ends_with_its_store),
        cmocka_unit_test(what_is_told_here_is_not_repeated),
        cmocka_unit_test(one_node_tells_it_and_another_where_that_one_is_lost),
        cmocka_unit_test(a_hang_of_all_has_no_culprit),
        cmocka_unit_test(the_verdict_is_one_line),
        cmocka_unit_test(the_report_is_json),
        cmocka_unit_test(the_report_has_the_warm_starts),
        cmocka_unit_test(the_report_shows_no_character_that_misleads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
