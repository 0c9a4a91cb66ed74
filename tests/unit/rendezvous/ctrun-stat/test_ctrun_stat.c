/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of ctrun-stat and what it makes of a status document.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/ctrun-stat/stat_options.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/fault.h"

#include <stdio.h>

/* ---- options -------------------------------------------------------------------------------- */

struct parsed {
    struct ct_stat_options options;
    struct ct_endpoint where;
    bool is_default;
};

static int parse(const char *const *words, const char *addr, const char *port, struct parsed *out,
                 struct ct_err *err)
{
    char *argv[8] = {(char *)"ctrun-stat"};
    int argc = 1;
    for (; words[argc - 1] != NULL; argc++) {
        argv[argc] = (char *)words[argc - 1];
    }
    int rc = ct_stat_options_parse(argc, argv, &out->options, err);
    if (rc != 0 || out->options.action == CT_STAT_HELP || out->options.action == CT_STAT_VERSION) {
        return rc;
    }
    return ct_stat_options_where(out->options.argument, addr, port, &out->where, &out->is_default,
                                 err);
}

static void test_the_address_comes_from_argument_environment_or_default(void **state)
{
    (void)state;
    static const struct {
        const char *argument, *addr, *port;
        const char *host;
        int want; /* port */
    } cases[] = {
        {NULL, NULL, NULL, "127.0.0.1", 29500},
        {NULL, "", "", "127.0.0.1", 29500},
        {NULL, "node7", "4000", "node7", 4000},
        {NULL, "::1", "4000", "::1", 4000},
        {NULL, NULL, "4000", "127.0.0.1", 4000},
        {"a", "node7", "4000", "a", 4000},
        {"29631", NULL, NULL, "127.0.0.1", 29631},
        {"29631", "node7", "4000", "node7", 29631},
        {"a:1", "node7", "x", "a", 1},
        {"[::1]:2", NULL, NULL, "::1", 2},
        /* The address of a live page, as ctrun prints it and as a browser shows it. */
        {"http://node7:4001/", NULL, NULL, "node7", 4001},
        {"http://node7:4001", NULL, NULL, "node7", 4001},
        {"HTTP://10.0.0.1:4001/#key=Zm9v/YmFy", NULL, NULL, "10.0.0.1", 4001},
        {"http://[fe80::1]:4001/page/data?x=1", "node7", "4000", "fe80::1", 4001},
        {"node7:4001/", NULL, NULL, "node7", 4001},
        {"http://node7/", NULL, NULL, "node7", 29500},
        {"http://4001", "node7", NULL, "node7", 4001},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct parsed o;
        struct ct_err err = {0};
        const char *words[] = {cases[i].argument, NULL};
        assert_int_equal(parse(words, cases[i].addr, cases[i].port, &o, &err), 0);
        assert_string_equal(o.where.host, cases[i].host);
        assert_int_equal(o.where.port, cases[i].want);
        assert_int_equal(o.is_default, i < 2);
        assert_int_equal(o.options.action, CT_STAT_TABLE);
        assert_false(o.options.watch);
    }
}

static void test_options_choose_what_is_shown(void **state)
{
    (void)state;
    struct parsed o;
    assert_int_equal(parse((const char *const[]){"--watch", "h:1", "--json", "--timeout=9", NULL},
                           NULL, NULL, &o, NULL),
                     0);
    assert_int_equal(o.options.action, CT_STAT_JSON);
    assert_true(o.options.watch);
    assert_int_equal(o.options.timeout_s, 9);
    assert_int_equal(
        parse((const char *const[]){"--health", "--", "h", NULL}, NULL, NULL, &o, NULL), 0);
    assert_int_equal(o.options.action, CT_STAT_HEALTH);
    assert_string_equal(o.where.host, "h");
    assert_int_equal(parse((const char *const[]){"-h", "--nope", NULL}, NULL, NULL, &o, NULL), 0);
    assert_int_equal(o.options.action, CT_STAT_HELP);
    assert_int_equal(parse((const char *const[]){"--version", NULL}, NULL, "x", &o, NULL), 0);
    assert_int_equal(o.options.action, CT_STAT_VERSION);
}

static void test_a_wrong_command_line_is_refused_with_its_reason(void **state)
{
    (void)state;
    static const struct {
        const char *words[4], *addr, *port, *text;
    } cases[] = {
        {{"--json", "--health"}, NULL, NULL, "exclude each other"},
        {{"--token-file"}, NULL, NULL, "'--token-file' needs a value"},
        {{"--read-key", "--json"}, NULL, NULL, "exclude each other"},
        {{"--read-key", "h:1"}, NULL, NULL, "--read-key asks no store: leave out h:1"},
        {{"--read-key", "--watch"}, NULL, NULL, "leave out --watch"},
        {{"--nope"}, NULL, NULL, "'--nope'"},
        {{"my", "job"}, NULL, NULL, "'job' is one too many: name one job or address, and quote an"},
        {{"h:0"}, NULL, NULL, "address 'h:0': port '0' is not a number"},
        {{"--timeout"}, NULL, NULL, "'--timeout' needs a value"},
        {{"--timeout", "0"}, NULL, NULL, "--timeout '0'"},
        {{"--timeout", "3601"}, NULL, NULL, "--timeout '3601'"},
        {{"h:0x1"}, NULL, NULL, "h:0x1"},
        {{"99999"}, NULL, NULL, "'99999' is neither the process id"}, /* not the host 0.1.134.159 */
        {{"0"}, NULL, NULL, "'0' is neither"},
        {{""}, NULL, NULL, ""},
        {{"https://node7:4001/#key=x"}, NULL, NULL, "no HTTPS: write http://node7:4001/#key=x"},
        {{"http://"}, NULL, NULL, "has no host"},
        {{"http:///"}, NULL, NULL, "has no host"},
        {{"ftp://node7:1/"}, NULL, NULL, "speaks HTTP: write http://node7:1/"},
        {{NULL}, "a b", NULL, "MASTER_ADDR"},
        {{NULL}, "a:0", NULL, "MASTER_ADDR: address 'a:0': port '0' is not"},
        {{NULL}, NULL, "0", "MASTER_PORT '0'"},
        {{NULL}, NULL, "65536", "MASTER_PORT '65536'"},
    };
    char long_name[600];
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    struct parsed unused;
    assert_int_equal(parse((const char *const[]){long_name, NULL}, NULL, NULL, &unused, NULL),
                     CT_ELIMIT);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct parsed o;
        struct ct_err err = {0};
        assert_true(parse(cases[i].words, cases[i].addr, cases[i].port, &o, &err) < 0);
        if (strstr(err.text, cases[i].text) == NULL || err.text[0] == '\0') {
            fail_msg("case %zu: '%s'", i, err.text);
        }
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

static cJSON *document(const char *text)
{
    ct_json_use_our_memory();
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    return json;
}

static const char whole[] =
    "{\"version\":\"1\",\"uptime_s\":7300,\"health\":\"degraded\",\"problems\":[\"a\",\"b\"],"
    "\"store\":{\"keys\":1,\"bytes\":20480,\"connections\":2,\"waiters\":3,"
    "\"operations\":{\"get\":4,\"set\":5},\"waiting_more\":true,"
    "\"waiting\":[{\"key\":\"/k\",\"clients\":3,\"peer\":\"[::1]:5\"}]},"
    "\"job\":{\"run_id\":\"job-7\",\"state\":\"stopping\",\"generation\":1,\"max_restarts\":2,"
    "\"restarts\":1,"
    "\"world_size\":2,\"workers\":["
    "{\"rank\":1,\"local_rank\":1,\"pid\":12,\"host\":\"n\",\"state\":\"failed\",\"exit\":-11,"
    "\"restarts\":1},"
    "{\"rank\":0,\"local_rank\":0,\"pid\":11,\"host\":\"n\",\"state\":\"running\",\"exit\":null,"
    "\"restarts\":1,\"progress\":{\"step\":345,\"phase\":\"collective\",\"age_s\":2,\"loss\":0.25,"
    "\"samples_per_s\":null}}],"
    "\"failure_count\":4,\"failures\":[{\"generation\":1,\"rank\":1,\"pid\":12,\"host\":\"n\","
    "\"reason\":\"process 12 was killed by signal 11 (SIGSEGV)\"},{\"generation\":1,\"rank\":-1,"
    "\"host\":\"m\",\"reason\":\"the connection was lost\"}]}}";

#define LONG_ID "0123456789abcdef0123456789abcdef0123456789abcdef"

static const char several[] =
    "{\"version\":\"1\",\"uptime_s\":1,\"health\":\"degraded\",\"problems\":[],\"store\":{},"
    "\"jobs\":["
    "{\"run_id\":\"" LONG_ID "\",\"state\":\"running\",\"generation\":1000,\"max_restarts\":1000,"
    "\"restarts\":1000,\"world_size\":65536,\"nodes\":[{\"index\":-1,\"host\":\"gpu-2\","
    "\"address\":"
    "\"10.0.0.2\",\"state\":\"spare\",\"workers\":8,\"last_seen_s\":1},{\"index\":0,\"host\":"
    "\"gpu-1\",\"address\":\"10.0.0.1\",\"state\":\"running\",\"workers\":8,\"last_seen_s\":0.4}]},"
    "{\"run_id\":\"b\",\"state\":\"waiting\",\"min_nodes\":2,\"nodes\":[{\"index\":-1,\"host\":"
    "\"gpu-3\","
    "\"address\":\"10.0.0.3\",\"state\":\"waiting\",\"workers\":1,\"last_seen_s\":0}],"
    "\"missing_nodes\":[\"node rank 1 (gpu-4) never connected\"]}]}";

/* Each with its nodes, in the order of their ranks; a long id gives way to the numbers. */
static void test_each_of_several_jobs_has_its_nodes(void **state)
{
    (void)state;
    static const char want[] =
        "h:1: degraded, up 1 s, version 1\n"
        "job 01234567...: running, 65536 workers, generation 1000, restarts 1000 of 1000\n"
        "job b: waiting, 1 of 2 nodes are there\n"
        "store: 0 keys, 0 B, 0 connections, 0 waiters, 0 requests\n"
        "\n"
        "job " LONG_ID "\n"
        "\n"
        " NODE STATE    WORKERS SEEN     ADDRESS         HOST\n"
        "    0 running        8 0 s      10.0.0.1        gpu-1\n"
        "    - spare          8 1 s      10.0.0.2        gpu-2\n"
        "\n"
        "job b\n"
        "\n"
        " NODE STATE    WORKERS SEEN     ADDRESS         HOST\n"
        "    - waiting        1 0 s      10.0.0.3        gpu-3\n"
        "missing: node rank 1 (gpu-4) never connected\n";
    cJSON *json = document(several);
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), want);
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

static void test_no_size_is_beyond_the_largest_unit(void **state)
{
    (void)state;
    cJSON *json = document("{\"health\":\"serving\",\"store\":{\"bytes\":1e20}}");
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_non_null(strstr(ct_buf_cstr(&out), ", 90949470 TiB, "));
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

static void test_one_earlier_failure_is_counted(void **state)
{
    (void)state;
    cJSON *json = document("{\"health\":\"healthy\",\"job\":{\"state\":\"running\","
                           "\"failure_count\":2,\"failures\":[{\"rank\":-1}]}}");
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_non_null(strstr(ct_buf_cstr(&out), "\n1 earlier failure\n"));
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

/* Two nodes with two spares each, whose states are `state` and "ready". */
static void assert_spares(const char *state, const char *off, const char *want)
{
    char text[640];
    struct ct_buf out = CT_BUF_INIT;
    (void)snprintf(text, sizeof(text),
                   "{\"health\":\"healthy\",\"job\":{\"state\":\"running\",\"warm_wanted\":4,"
                   "\"warm_ready\":3,\"warm_workers\":0,\"warm_spare_mib\":300,\"nodes\":["
                   "{\"host\":\"n\",\"warm\":{\"state\":\"%s\",\"off\":\"%s\"}},"
                   "{\"host\":\"m\",\"warm\":{\"state\":\"ready\"}}]}}",
                   state, off);
    cJSON *json = document(text);
    assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_non_null(strstr(ct_buf_cstr(&out), want));
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

static void test_the_table_says_what_becomes_of_spares(void **state)
{
    (void)state;
    assert_spares("ready", "", "\nwarm: 3 of 4 spares ready (300 MiB each), 0 of the workers");
    assert_spares("making", "", "\nwarm: 3 of 4 spares ready, being made, 0 of the workers");
    assert_spares("waiting", "", "\nwarm: 3 of 4 spares ready, not yet made, 0 of the workers");
    assert_spares("memory", "", "\nfewer spares on n: there is too little memory\n");
    assert_spares("memory", "there is too little memory",
                  "\nno spares on n: there is too little memory\n");
    assert_spares("off", "it hangs", "\nno spares on n: it hangs\n");
}

static void test_the_table_shows_problems_job_store_and_workers(void **state)
{
    (void)state;
    static const char want[] =
        "h:1: degraded, up 2.0 h, version 1\n"
        "problem: a\n"
        "problem: b\n"
        "job job-7: stopping, 2 workers, generation 1, restarts 1 of 2\n"
        "store: 1 key, 20 KiB, 2 connections, 3 waiters, 9 requests\n"
        "\n"
        "WAITING ONE OF THEM           FOR KEY\n"
        "      3 [::1]:5               /k\n"
        "    ... and further keys\n"
        "\n"
        " RANK LOCAL     PID STATE     EXIT RESTARTS HOST\n"
        "    0     0      11 running      -        1 n\n"
        "    1     1      12 failed     -11        1 n\n"
        "\n"
        " RANK         STEP PHASE      FOR          LOSS    SAMPLES/S\n"
        "    0          345 collective 2 s          0.25            -\n"
        "\n"
        "2 earlier failures\n"
        "generation 1: rank 1 on n: process 12 was killed by signal 11 (SIGSEGV)\n"
        "generation 1: node m: the connection was lost\n";
    cJSON *json = document(whole);
    struct ct_buf out = CT_BUF_INIT;
    bool healthy = true;
    assert_int_equal(ct_stat_verdict(json, &healthy), 0);
    assert_false(healthy);
    assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), want);
    ct_buf_reset(&out);
    assert_int_equal(ct_stat_health(json, 80, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "degraded: a (and 1 more)\n");
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

static void test_a_document_that_is_no_status_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}", "[]", "3", "\"healthy\"", "{\"health\":3}", "{\"health\":\"?\"}"};
    bool healthy = true;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cJSON *json = document(texts[i]);
        assert_int_equal(ct_stat_verdict(json, &healthy), CT_EFORMAT);
        cJSON_Delete(json);
    }
    assert_int_equal(ct_stat_verdict(NULL, &healthy), CT_EFORMAT);
}

/* A store of the given age with the given jobs, as ct_stat_is_replaced() reads it. */
static cJSON *store_of(double uptime_s, const char *jobs)
{
    char text[256];
    (void)snprintf(text, sizeof(text), "{\"health\":\"healthy\",\"uptime_s\":%g%s}", uptime_s,
                   jobs);
    return document(text);
}

#define JOB(id) ",\"job\":{\"run_id\":\"" id "\"}"
#define JOBS(a, b) ",\"jobs\":[{\"run_id\":\"" a "\"},{\"run_id\":\"" b "\"}]"

static void test_the_store_of_another_job_is_known_from_one_that_lives_on(void **state)
{
    (void)state;
    static const struct {
        double before_s;
        const char *before;
        double now_s;
        const char *now;
        double passed_s;
        bool is_replaced;
    } cases[] = {
        {100, JOB("j"), 101, JOB("j"), 1, false},
        {100, JOB("j"), 0.5, JOB("k"), 1, true},
        {3, JOB("j"), 8, JOB("k"), 10, true}, /* it is older than the first one was */
        {100, JOB("j"), 0.5, "", 1, true},
        {100, JOB("j"), 0.5, JOBS("k", "j"), 1, false}, /* the job has another store */
        {100, JOB("j"), 101, JOB("k"), 1, false},       /* ctrdzvd has another job */
        {100, JOBS("a", "b"), 101, "", 1, false},
        {100, "", 0.5, JOB("k"), 1, false}, /* there was nothing to lose */
        {100, JOB("j"), 0.5, ",\"job\":7", 1, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *before = store_of(cases[i].before_s, cases[i].before);
        cJSON *now = store_of(cases[i].now_s, cases[i].now);
        if (ct_stat_is_replaced(before, now, cases[i].passed_s) != cases[i].is_replaced) {
            fail_msg("case %zu", i);
        }
        cJSON_Delete(before);
        cJSON_Delete(now);
    }
}

static void assert_health(const char *text, size_t columns, const char *want)
{
    struct ct_buf out = CT_BUF_INIT;
    cJSON *json = document(text);
    assert_int_equal(ct_stat_health(json, columns, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), want);
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

#define X10 "xxxxxxxxxx"

static void test_health_is_cut_to_a_terminal_only(void **state)
{
    static const char one[] =
        "{\"health\":\"degraded\",\"problems\":[\"" X10 X10 X10 X10 X10 X10 X10 "\"]}";
    static const char two[] =
        "{\"health\":\"degraded\",\"problems\":[\"" X10 X10 X10 X10 X10 X10 X10 "\",\"b\"]}";
    (void)state;
    assert_health(one, SIZE_MAX, "degraded: " X10 X10 X10 X10 X10 X10 X10 "\n");
    assert_health(two, SIZE_MAX, "degraded: " X10 X10 X10 X10 X10 X10 X10 " (and 1 more)\n");
    assert_health(one, 80, "degraded: " X10 X10 X10 X10 X10 X10 X10 "\n");
    assert_health(two, 80, "degraded: " X10 X10 X10 X10 X10 "xxxx... (and 1 more)\n");
    assert_health(one, 33, "degraded: " X10 X10 "...\n");
    assert_health(two, 1, "degraded: xxxxxxx... (and 1 more)\n");
}

#define HANGS "\"jobs\":[{\"hangs\":[{\"rank\":1},{\"for_s\":3.4}]},{\"hangs\":[{\"for_s\":40}]}]"

static void test_health_says_how_long_a_job_has_hung(void **state)
{
    (void)state;
    assert_health("{\"health\":\"degraded\",\"problems\":[\"rank 1 hangs\"]," HANGS "}", SIZE_MAX,
                  "degraded: rank 1 hangs (hangs for 40 s)\n");
    assert_health("{\"health\":\"degraded\",\"problems\":[\"a\",\"b\"]," HANGS "}", SIZE_MAX,
                  "degraded: a (and 1 more, hangs for 40 s)\n");
    assert_health("{\"health\":\"degraded\",\"problems\":[\"a\"],\"job\":{\"hangs\":[{}]}}",
                  SIZE_MAX, "degraded: a\n");
}

static int health_body(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_stat_health(data, SIZE_MAX, &out);
    ct_buf_fini(&out);
    return rc;
}

/* Nothing that a document holds makes a line too long or reaches the terminal. */
static void test_a_hostile_document_is_cut_and_made_harmless(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"health\":\"healthy\",\"version\":\"\\u001b["
        "2Jxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\",\"uptime_s\":1e308}",
        "{\"health\":\"healthy\",\"problems\":[3,{},\"a\\nb\"],\"job\":{\"workers\":[1,{\"exit\":-"
        "1e300,\"progress\":{\"step\":1e300,\"phase\":7,\"age_s\":1e300,\"loss\":1e300},"
        "\"pid\":1e300},[]],\"failures\":[7],\"failure_count\":1e300},\"store\":{\"bytes\":1e300,"
        "\"waiting\":[0,{\"key\":\"\\t\"}],\"operations\":{\"a\":1e308,\"b\":\"x\"}}}",
        "{\"health\":\"healthy\",\"job\":3,\"store\":[],\"problems\":{\"x\":1}}",
    };
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        cJSON *json = document(texts[i]);
        struct ct_buf out = CT_BUF_INIT;
        assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
        assert_int_equal(ct_stat_health(json, 80, &out), 0);
        const char *line = ct_buf_cstr(&out);
        assert_null(strchr(line, '\x1b'));
        while (*line != '\0') {
            size_t len = strcspn(line, "\n");
            assert_in_range(len, 0, CT_STAT_COLUMNS);
            line += len + 1;
        }
        ct_buf_fini(&out);
        cJSON_Delete(json);
    }
}

/* The line was cut in the middle of a character. */
static void test_a_long_name_is_cut_between_two_characters(void **state)
{
#define TEN "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc"
    static const char text[] =
        "{\"health\":\"healthy\",\"job\":{\"workers\":[{\"rank\":0,\"host\":\"" TEN TEN TEN TEN
        "\"}],\"failures\":[{\"rank\":-1,\"host\":\"x" TEN TEN TEN
        "\",\"reason\":\"process 42 exited with code 3, and so on\"}]}}";
    cJSON *json = document(text);
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_stat_table(json, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_non_null(
        strstr(ct_buf_cstr(&out), "        0 " TEN TEN TEN "\xc3\xbc\xc3\xbc\xc3\xbc...\n"));
    assert_non_null(strstr(ct_buf_cstr(&out),
                           ": node x" TEN
                           "\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc...: process 42 exited "
                           "with code 3, and so on\n"));
    ct_buf_fini(&out);
    cJSON_Delete(json);
}

static bool table_has(const cJSON *status, size_t columns, const char *line)
{
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_stat_table(status, "h:1", columns, &out), 0);
    bool has = strstr(ct_buf_cstr(&out), line) != NULL;
    ct_buf_fini(&out);
    return has;
}

/* Reasons of failures were cut to 80 columns in files, too. */
static void test_lines_are_whole_where_no_terminal_cuts_them(void **state)
{
    char text[4096], endless[2048], line[CT_STAT_LINE_MAX + 2] = "problem: ";
    (void)state;
    memset(endless, 'y', sizeof(endless));
    endless[sizeof(endless) - 1] = '\0';
    (void)snprintf(
        text, sizeof(text),
        "{\"health\":\"degraded\",\"problems\":[\"%s\"],\"job\":{\"run_id\":\"" X10 X10 X10 X10
        "\",\"state\":\"running\",\"failures\":[{\"rank\":5,\"host\":\"" X10 X10 X10
        "\",\"reason\":\"" X10 X10 X10 X10 X10 "\"}]}}",
        endless);
    cJSON *json = document(text);
    assert_true(table_has(json, SIZE_MAX,
                          "\ngeneration 0: rank 5 on " X10 X10 X10 ": " X10 X10 X10 X10 X10 "\n"));
    assert_true(table_has(json, SIZE_MAX, "\njob " X10 X10 X10 X10 ": running, "));
    assert_true(table_has(json, 80,
                          "\ngeneration 0: rank 5 on xxxxxxxxxxxxx...: " X10 X10 X10 "xxxxx...\n"));
    assert_true(table_has(
        json, 90, "\ngeneration 0: rank 5 on xxxxxxxxxxxxx...: " X10 X10 X10 X10 "xxxxx...\n"));
    memset(line + strlen(line), 'y', sizeof(line) - strlen(line) - 1);
    (void)snprintf(line + CT_STAT_LINE_MAX - 4, sizeof("...\n"), "...\n");
    assert_true(table_has(json, SIZE_MAX, line));
    cJSON_Delete(json);
}

/* The reason stands at the end, behind the name of a host. With a long one it was cut off. */
static void test_a_long_problem_takes_several_lines(void **state)
{
    cJSON *json =
        document("{\"health\":\"degraded\",\"problems\":[\"job j: rank 5 on " X10 X10 X10
                 ": process 42 exited with code 3 after it had written no progress\",\"b\","
                 "\"" X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10
                     X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 X10 "\"]}");
    (void)state;
    assert_true(table_has(json, 80,
                          "\nproblem: job j: rank 5 on " X10 X10 X10 ": process 42 exited with\n"
                          "         code 3 after it had written no progress\nproblem: b\n"));
    assert_true(table_has(json, SIZE_MAX,
                          "\nproblem: job j: rank 5 on " X10 X10 X10
                          ": process 42 exited with code 3 after it had written no progress\n"));
    /* One without blanks, and without end. */
    assert_true(table_has(json, 80,
                          "\n         " X10 X10 X10 X10 X10 X10 X10 "x\n"
                          "         " X10 X10 X10 X10 X10 X10 "xxxxxxxx...\n"));
    cJSON_Delete(json);
}

/* A job of this name was shown as \xc3\xbc. */
static void test_names_are_shown_as_they_are(void **state)
{
    cJSON *json =
        document("{\"health\":\"healthy\",\"job\":{\"run_id\":\"\\\\xc3\\\\xbc \\\\\\\\x41 "
                 "\\\\x1b[2J\\\\x00 \\\\x4 \\\\xg0 "
                 "\\\\xc3\\\\\",\"state\":\"running\",\"failures\":[{\"rank\":1,"
                 "\"host\":\"h\\\\xc3\\\\xbc\",\"reason\":\"r\\\\xc3\\\\xbc\\\\x0a\"},{}]}}");
    (void)state;
    assert_true(table_has(json, SIZE_MAX, "\njob \xc3\xbc \\x41 ?[2J? \\x4 \\xg0 ?\\: running, "));
    assert_true(table_has(json, SIZE_MAX,
                          "\ngeneration 0: rank 1 on h\xc3\xbc: r\xc3\xbc?\n"
                          "generation 0: node ?: failed\n"));
    cJSON_Delete(json);
}

static int sweep_body(void *data)
{
    struct ct_buf out = CT_BUF_INIT;
    int rc = ct_stat_table(data, "h:1", CT_STAT_COLUMNS, &out);
    ct_buf_fini(&out);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    cJSON *json = document(whole);
    assert_true(ct_fault_sweep(sweep_body, json, 0) >= 1);
    assert_true(ct_fault_sweep(health_body, json, 0) >= 1);
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_address_comes_from_argument_environment_or_default),
        cmocka_unit_test(test_options_choose_what_is_shown),
        cmocka_unit_test(test_a_wrong_command_line_is_refused_with_its_reason),
        cmocka_unit_test(test_no_size_is_beyond_the_largest_unit),
        cmocka_unit_test(test_one_earlier_failure_is_counted),
        cmocka_unit_test(test_the_table_says_what_becomes_of_spares),
        cmocka_unit_test(test_the_table_shows_problems_job_store_and_workers),
        cmocka_unit_test(test_a_document_that_is_no_status_is_refused),
        cmocka_unit_test(test_a_hostile_document_is_cut_and_made_harmless),
        cmocka_unit_test(test_health_is_cut_to_a_terminal_only),
        cmocka_unit_test(test_health_says_how_long_a_job_has_hung),
        cmocka_unit_test(test_a_long_name_is_cut_between_two_characters),
        cmocka_unit_test(test_lines_are_whole_where_no_terminal_cuts_them),
        cmocka_unit_test(test_a_long_problem_takes_several_lines),
        cmocka_unit_test(test_names_are_shown_as_they_are),
        cmocka_unit_test(test_each_failed_allocation_is_told),
        cmocka_unit_test(test_each_of_several_jobs_has_its_nodes),
        cmocka_unit_test(test_the_store_of_another_job_is_known_from_one_that_lives_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
