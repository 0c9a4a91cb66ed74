/* SPDX-License-Identifier: Apache-2.0
 *
 * The preflight's process on one machine and on several, which are processes of this machine with
 * a real store; and what an agent reads of what it has written.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/ranks.h"
#include "tests/lib/tmpdir.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/exit_code.h"
#include "launcher/preflight/preflight_net.h"
#include "launcher/preflight/preflight_outcome.h"
#include "launcher/preflight/preflight_probe.h"
#include "rendezvous/client/client.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
#define TEXT_MAX 65536
/* More than any machine has. */
#define NO_ROOM "shm=900T"

#define TABLE "{\"broken\":\"\",\"unfit\":\"no room\",\"table\":\"rows\"}\n"

static void expect(const char *text, const char *broken, const char *table)
{
    struct ct_preflight_outcome outcome;
    struct ct_err err = {0};
    assert_int_equal(ct_preflight_outcome_read(text, &outcome, &err), 0);
    assert_string_equal(outcome.broken, broken);
    assert_string_equal(outcome.table, table);
    ct_preflight_outcome_fini(&outcome);
}

static void test_the_last_whole_line_counts(void **state)
{
    (void)state;
    expect(TABLE, "", "rows");
    expect("a library complains\n" TABLE, "", "rows");
    expect(TABLE "{\"broken\":\"the store is gone\"}\n", "the store is gone", "");
    expect(TABLE "{\"broken\":\"the sto", "", "rows"); /* it was killed */
}

static void test_without_a_line_there_is_no_result(void **state)
{
    static const char *const texts[] = {"", "\n", "{\"broken\":", "{\"broken\":\"\"\n", "[]\n"};
    struct ct_preflight_outcome outcome;
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct ct_err err = {0};
        assert_int_equal(ct_preflight_outcome_read(texts[i], &outcome, &err), CT_EFORMAT);
        assert_string_equal(err.text, "it has written no result");
    }
}

/* ---- the process ----------------------------------------------------------------------------- */

struct scene {
    char *dir;
    int nodes;
    int away;           /* node rank of the machine that takes no part; -1 = all do */
    const char *limits; /* of all */
    int fake;           /* node rank that `play` stands for; -1 = none */
    void (*play)(struct ct_client *store);
};

static const struct scene plain = {.nodes = 0, .away = -1, .limits = "", .fake = -1};

static void put(struct ct_client *store, const char *name, const char *value)
{
    char key[96];
    (void)snprintf(key, sizeof(key), "ctrun/preflight/3/%s", name);
    CHECK(ct_client_set(store, key, value, strlen(value), NULL) == 0);
}

static void await(struct ct_client *store, const char *name)
{
    char key[96];
    struct ct_buf text = CT_BUF_INIT;
    (void)snprintf(key, sizeof(key), "ctrun/preflight/3/%s", name);
    CHECK(ct_client_get(store, key, LONG_MS, &text, NULL) == 0);
    ct_buf_fini(&text);
}

/* Runs the process of a machine, with its standard output in a file. Returns its exit code. */
static int probe(const struct scene *scene, int node_rank)
{
    char rank[16], nodes[16], port[16], file[512];
    (void)snprintf(rank, sizeof(rank), "%d", node_rank);
    (void)snprintf(nodes, sizeof(nodes), "%d", scene->nodes);
    (void)snprintf(port, sizeof(port), "%d", ranks.port);
    (void)snprintf(file, sizeof(file), "%s/said.%d", scene->dir, node_rank);
    char *const argv[CT_PREFLIGHT_WORDS + 1] = {
        [CT_PREFLIGHT_NAME] = (char *)CT_PREFLIGHT_PROGRAM,
        [CT_PREFLIGHT_GENERATION] = (char *)"3",
        [CT_PREFLIGHT_NODE_RANK] = rank,
        [CT_PREFLIGHT_NODES] = nodes,
        [CT_PREFLIGHT_HOST] = (char *)"gpu-1",
        [CT_PREFLIGHT_ADDRESS] = (char *)"127.0.0.1",
        [CT_PREFLIGHT_MASTER_ADDR] = (char *)"127.0.0.1",
        [CT_PREFLIGHT_MASTER_PORT] = port,
        [CT_PREFLIGHT_WORKERS] = (char *)"1",
        [CT_PREFLIGHT_TAKES_PART] = (char *)(node_rank == scene->away ? "0" : "1"),
        [CT_PREFLIGHT_LIMITS] = (char *)scene->limits,
        [CT_PREFLIGHT_FOLDER] = scene->dir,
    };
    int own = dup(STDOUT_FILENO), fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) {
        return -1;
    }
    int code = ct_preflight_probe(argv);
    (void)dup2(own, STDOUT_FILENO);
    (void)close(own);
    (void)close(fd);
    return code;
}

static void be_machine(int rank, void *data)
{
    const struct scene *scene = data;
    struct ct_client *store = NULL;
    if (rank != scene->fake) {
        CHECK(probe(scene, rank) == CT_EXIT_OK);
        return;
    }
    CHECK(ct_client_open("127.0.0.1", ranks.port, LONG_MS, &store, NULL) == 0);
    scene->play(store);
    ct_client_free(store);
}

/* Reads what a machine has written. */
static struct ct_preflight_outcome outcome_of(const struct scene *scene, int node_rank)
{
    char file[512], text[TEXT_MAX];
    struct ct_preflight_outcome outcome;
    struct ct_err err = {0};
    (void)snprintf(file, sizeof(file), "%s/said.%d", scene->dir, node_rank);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[n > 0 ? n : 0] = '\0';
    (void)close(fd);
    assert_int_equal(ct_preflight_outcome_read(text, &outcome, &err), 0);
    return outcome;
}

static void expect_broken(const struct scene *scene, int node_rank, const char *why)
{
    struct ct_preflight_outcome outcome = outcome_of(scene, node_rank);
    assert_string_equal(outcome.broken, why);
    assert_string_equal(outcome.table, "");
    ct_preflight_outcome_fini(&outcome);
}

/* Looks for a key of machine or round 0 and 1. */
static bool is_left(const char *what)
{
    struct ct_client *store = NULL;
    bool left = false;
    assert_int_equal(ct_client_open("127.0.0.1", ranks.port, LONG_MS, &store, NULL), 0);
    for (int i = 0; i < 2 && !left; i++) {
        char key[96];
        (void)snprintf(key, sizeof(key), "ctrun/preflight/3/%s/%d", what, i);
        assert_int_equal(ct_client_check(store, key, &left, NULL), 0);
    }
    ct_client_free(store);
    return left;
}

static void test_the_process_knows_its_name(void **state)
{
    char *const probe_words[] = {(char *)CT_PREFLIGHT_PROGRAM, NULL};
    char *const other[] = {(char *)"ctrun", NULL}, *const none[] = {NULL};
    (void)state;
    assert_true(ct_preflight_is_probe(probe_words));
    assert_false(ct_preflight_is_probe(other));
    assert_false(ct_preflight_is_probe(none));
}

static void test_a_machine_alone_is_looked_at(void **state)
{
    struct scene scene = plain;
    (void)state;
    scene.dir = ct_tmpdir_new();
    scene.limits = "clock=1"; /* which nobody is compared with */
    assert_int_equal(probe(&scene, 0), CT_EXIT_OK);
    struct ct_preflight_outcome outcome = outcome_of(&scene, 0);
    assert_string_equal(outcome.broken, "");
    assert_non_null(strstr(outcome.table, "gpu-1"));
    assert_non_null(outcome.report);
    assert_false(outcome.others_unfit);
    ct_preflight_outcome_fini(&outcome);
    scene.limits = NO_ROOM;
    assert_int_equal(probe(&scene, 0), CT_EXIT_OK);
    outcome = outcome_of(&scene, 0);
    assert_non_null(strstr(outcome.unfit, "/dev/shm"));
    assert_int_not_equal(strlen(outcome.advice), 0);
    assert_non_null(strstr(outcome.table, "gpu-1"));
    ct_preflight_outcome_fini(&outcome);
    ct_tmpdir_free(scene.dir);
}

static void test_bad_words_are_told(void **state)
{
    struct scene scene = plain;
    (void)state;
    scene.dir = ct_tmpdir_new();
    assert_int_equal(probe(&scene, -1), CT_EXIT_OK);
    expect_broken(&scene, -1, CT_PREFLIGHT_PROGRAM " is for ctrun itself");
    scene.limits = "size=1";
    assert_int_equal(probe(&scene, 0), CT_EXIT_OK);
    struct ct_preflight_outcome outcome = outcome_of(&scene, 0);
    assert_non_null(strstr(outcome.broken, "'size'"));
    ct_preflight_outcome_fini(&outcome);
    ct_tmpdir_free(scene.dir);
}

static void test_a_result_that_cannot_be_written_is_an_error(void **state)
{
    struct scene scene = plain;
    char file[512];
    (void)state;
    scene.dir = ct_tmpdir_new();
    (void)snprintf(file, sizeof(file), "%s/said.0", scene.dir);
    assert_int_equal(symlink("/dev/full", file), 0);
    assert_int_equal(probe(&scene, 0), CT_EXIT_SETUP);
    ct_tmpdir_free(scene.dir);
}

static void test_machines_measure_the_way_between_them(void **state)
{
    static const char *const keys[] = {"row",  "found",   "links", "plan",
                                       "left", "verdict", "round", "go"};
    struct scene scene = plain;
    (void)state;
    scene.dir = ct_tmpdir_new();
    scene.nodes = 2;
    ranks_start(2, be_machine, &scene);
    ranks_join();
    struct ct_preflight_outcome first = outcome_of(&scene, 0), second = outcome_of(&scene, 1);
    assert_string_equal(first.broken, "");
    assert_string_equal(second.broken, "");
    assert_non_null(strstr(first.table, "gpu-1 (node 0)"));
    assert_non_null(strstr(first.table, "gpu-1 (node 1)"));
    assert_non_null(strstr(first.summary, "1 pair"));
    assert_string_equal(second.table, ""); /* one machine tells it */
    assert_null(second.report);
    assert_false(first.others_unfit || second.others_unfit);
    ct_preflight_outcome_fini(&first);
    ct_preflight_outcome_fini(&second);
    /* The workers find an empty store. */
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        assert_false(is_left(keys[i]));
    }
    ct_tmpdir_free(scene.dir);
}

static void test_each_machine_hears_what_is_wrong_with_it(void **state)
{
    struct scene scene = plain;
    (void)state;
    scene.dir = ct_tmpdir_new();
    scene.nodes = 3;
    scene.away = 1; /* another ctrun of the same machine takes part */
    scene.limits = NO_ROOM;
    ranks_start(3, be_machine, &scene);
    ranks_join();
    for (int i = 0; i < 3; i++) {
        struct ct_preflight_outcome outcome = outcome_of(&scene, i);
        assert_string_equal(outcome.broken, "");
        assert_true(outcome.others_unfit);
        assert_int_equal(strstr(outcome.unfit, "/dev/shm") != NULL, i != 1);
        ct_preflight_outcome_fini(&outcome);
    }
    ct_tmpdir_free(scene.dir);
}

/* ---- what another machine may send ----------------------------------------------------------- */

#define SECRET "\"secret\":\"000102030405060708090a0b0c0d0e0f\""

static void send_bad_row(struct ct_client *store)
{
    put(store, "row/1", "{}");
    await(store, "plan/0");
}

static void test_a_row_that_makes_no_sense_names_its_machine(void **state)
{
    struct scene scene = plain;
    (void)state;
    scene.dir = ct_tmpdir_new();
    scene.nodes = 2;
    scene.fake = 1;
    scene.play = send_bad_row;
    ranks_start(2, be_machine, &scene);
    ranks_join();
    struct ct_preflight_outcome outcome = outcome_of(&scene, 0);
    assert_memory_equal(outcome.broken, "node rank 1: ", 13);
    assert_string_equal(outcome.table, "");
    ct_preflight_outcome_fini(&outcome);
    ct_tmpdir_free(scene.dir);
}

static const char *plan, *verdict; /* that node rank 0 sends */

static void send_plan(struct ct_client *store)
{
    await(store, "row/1");
    put(store, "plan/0", plan);
    put(store, "verdict/0", verdict);
}

static void test_plans_and_verdicts_that_make_no_sense_are_told(void **state)
{
    static const struct {
        const char *plan, *verdict, *why;
    } rows[] = {
        {"{\"broken\":\"node rank 2 is missing\"}", "[]", "node rank 2 is missing"},
        {"", "[]", "node rank 0 has sent no plan"},
        {"{\"parts\":[]," SECRET "}", "[]", "node rank 0 has sent no plan"},
        {"{\"parts\":[0,0,0]," SECRET "}", "[]", "node rank 0 has sent no plan"},
        {"{\"parts\":[0]}", "[]", "node rank 0 has sent no plan"},
        {"{\"parts\":[0],\"secret\":\"000102030405060708090a0b0c0d0eXX\"}", "[]",
         "node rank 0 has sent no plan"},
        {"{\"parts\":[2]," SECRET "}", "[]", "node rank 0 has planned with node 2"},
        {"{\"parts\":[-1]," SECRET "}", "[]", "node rank 0 has planned with node -1"},
        {"{\"parts\":[\"0\"]," SECRET "}", "[]", "node rank 0 has planned with node -1"},
        {"{\"parts\":[0]," SECRET "}", "{}", "node rank 0 has sent no verdict"},
        {"{\"parts\":[0]," SECRET "}", "", "node rank 0 has sent no verdict"},
        {"{\"parts\":[0]," SECRET "}", "[]", ""},
    };
    struct scene scene = plain;
    (void)state;
    scene.dir = ct_tmpdir_new();
    scene.nodes = 2;
    scene.fake = 0;
    scene.play = send_plan;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        plan = rows[i].plan;
        verdict = rows[i].verdict;
        ranks_end();
        ranks_begin();
        ranks_start(2, be_machine, &scene);
        ranks_join();
        expect_broken(&scene, 1, rows[i].why);
    }
    ct_tmpdir_free(scene.dir);
}

/* A machine whose packets are dropped makes every round as long as can be. */
static void test_the_verdict_is_awaited_through_all_rounds(void **state)
{
    (void)state;
    for (int machines = 1; machines <= 100; machines++) {
        int64_t rounds_ms = (int64_t)ct_preflight_rounds(machines) * CT_PREFLIGHT_PAIR_MS;
        assert_true(ct_preflight_verdict_ms(machines) > rounds_ms + 20000);
        assert_true(ct_preflight_verdict_ms(machines) < CT_PREFLIGHT_TIMEOUT_MS);
    }
}

/* ---- resources that run out ------------------------------------------------------------------ */

static void test_memory_may_run_out(void **state)
{
    struct scene scene = plain;
    int failed = 0;
    bool hit = true;
    (void)state;
    scene.dir = ct_tmpdir_new();
    scene.limits = NO_ROOM;
    for (int i = 0; i < 2000 && hit; i++) {
        ct_fault_begin(i);
        int code = probe(&scene, 0);
        hit = ct_fault_hit() != 0;
        assert_int_equal(ct_fault_end(), 0);
        if (code == CT_EXIT_OK) {
            struct ct_preflight_outcome outcome = outcome_of(&scene, 0);
            failed += outcome.broken[0] != '\0';
            ct_preflight_outcome_fini(&outcome);
        } else {
            assert_int_equal(code, CT_EXIT_SETUP);
            failed++;
        }
    }
    assert_false(hit);
    assert_true(failed > 10);
    ct_tmpdir_free(scene.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_whole_line_counts),
        cmocka_unit_test(test_without_a_line_there_is_no_result),
        cmocka_unit_test(test_the_process_knows_its_name),
        cmocka_unit_test(test_a_machine_alone_is_looked_at),
        cmocka_unit_test(test_bad_words_are_told),
        cmocka_unit_test(test_a_result_that_cannot_be_written_is_an_error),
        RANKS_TEST(test_machines_measure_the_way_between_them),
        RANKS_TEST(test_each_machine_hears_what_is_wrong_with_it),
        RANKS_TEST(test_a_row_that_makes_no_sense_names_its_machine),
        RANKS_TEST(test_plans_and_verdicts_that_make_no_sense_are_told),
        cmocka_unit_test(test_the_verdict_is_awaited_through_all_rounds),
        cmocka_unit_test(test_memory_may_run_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
