/* SPDX-License-Identifier: Apache-2.0
 *
 * The status document, its Prometheus form, and what each page answers.
 */
#include "tests/lib/ct_test.h"

#include "common/progress_page.h"
#include "rendezvous/http/http_answer.h"
#include "rendezvous/http/page_key.h"
#include "rendezvous/http/prometheus.h"
#include "rendezvous/http/status.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/fault.h"

#include <math.h>

static const struct ct_status_waited waiting[] = {
    {{(const unsigned char *)"/\x01\xff\\k", 5}, 3, "10.0.0.1:7"},
    {{(const unsigned char *)"/l", 2}, 1, "[::1]:8"},
};

static const struct ct_status_facts facts = {
    .uptime_ms = 1500,
    .keys = 1,
    .queued = 16,
    .memory = 17,
    .memory_max = 18,
    .memory_refused = 19,
    .bytes = 2,
    .connections = 3,
    .waiters = 4,
    .accepted = 5,
    .refused = 6,
    .protocol_errors = 7,
    .by_op = {[CT_OP_GET] = 8, [CT_OP_PING] = 9},
    .waiting = waiting,
    .waiting_count = 2,
    .waiting_more = true,
    .http_connections = 10,
    .http_requests = 11,
    .http_refused = 12,
    .http_timeouts = 13,
    .http_denied = 14,
    .denied = 15,
};

static const cJSON *member(const cJSON *object, const char *name)
{
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_non_null(found);
    return found;
}

static void assert_number(const cJSON *object, const char *name, double want)
{
    const cJSON *found = member(object, name);
    assert_true(cJSON_IsNumber(found));
    assert_true(found->valuedouble == want);
}

/* ---- a job beside the store ----------------------------------------------------------------- */

struct job {
    const char *state, *problem;
};

static const struct ct_worker_row two_rows[] = {
    {
        .state = CT_ROW_RUNNING,
        .phase = CT_PHASE_COMPUTE,
        .step = 12345678901,
        .age_ms = 1500,
        .loss_text = "0.25",
    },
    {.state = CT_ROW_RUNNING, .phase = CT_ROW_UNTOLD},
};

static int add_job(void *data, struct ct_status_rows *rows, cJSON *root, cJSON *problems)
{
    const struct job *job = data;
    cJSON *object = cJSON_AddObjectToObject(root, "job");
    const struct ct_row_span span = {.first_rank = 4, .count = 2, .rows = two_rows};
    struct ct_buf unused = CT_BUF_INIT;
    if (object == NULL || ct_status_rows_add(rows, &span, "", &unused) != 0 ||
        !ct_json_add_text(object, "state", job->state) ||
        !ct_json_add_text(object, "run_id", "a\"b\\c\nd") ||
        !ct_json_add_number(object, "generation", 2) ||
        !ct_json_add_number(object, "restarts", 1) || !ct_json_add_number(object, "min_nodes", 4) ||
        cJSON_AddArrayToObject(object, "nodes") == NULL ||
        !ct_json_add_number(object, "failure_count", 3) ||
        !ct_json_add_number(object, "hang_count", 20)) { /* not all of them are shown */
        return CT_ENOMEM;
    }
    cJSON *hangs = cJSON_AddArrayToObject(object, "hangs");
    for (int rank = -1; rank <= 5; rank += 6) {
        cJSON *hang = hangs != NULL ? ct_json_append_object(hangs) : NULL;
        if (hang == NULL || !ct_json_add_number(hang, "rank", rank) ||
            !ct_json_add_number(hang, "for_s", 12.5)) {
            return CT_ENOMEM;
        }
    }
    if (job->problem != NULL) {
        cJSON *text = cJSON_CreateString(job->problem);
        if (text == NULL || !cJSON_AddItemToArray(problems, text)) {
            cJSON_Delete(text);
            return CT_ENOMEM;
        }
    }
    return 0;
}

/* What the last one collected. */
static struct ct_status_rows rows;

static cJSON *make(const struct job *job)
{
    cJSON *out = NULL;
    ct_status_rows_fini(&rows);
    rows.taken = 0;
    assert_int_equal(ct_status_make(&facts, job != NULL ? add_job : NULL, (void *)job, &rows, &out),
                     0);
    return out;
}

/* ---- the document --------------------------------------------------------------------------- */

static void test_a_store_without_a_job_is_healthy(void **state)
{
    (void)state;
    cJSON *root = make(NULL);
    assert_string_equal(ct_json_text(root, "version", ""), CT_VERSION);
    assert_string_equal(ct_json_text(root, "health", ""), "healthy");
    assert_true(ct_status_is_ready(root));
    assert_null(cJSON_GetObjectItemCaseSensitive(root, "job"));
    assert_number(root, "uptime_s", 1.5);
    const cJSON *store = member(root, "store");
    assert_number(store, "keys", 1);
    assert_number(store, "bytes", 2);
    assert_number(store, "queued", 16);
    assert_number(store, "memory", 17);
    assert_number(store, "memory_max", 18);
    assert_number(store, "memory_refused", 19);
    assert_number(store, "connections", 3);
    assert_number(store, "waiters", 4);
    assert_number(store, "accepted", 5);
    assert_number(store, "refused", 6);
    assert_number(store, "protocol_errors", 7);
    assert_number(member(store, "operations"), "get", 8);
    assert_number(member(store, "operations"), "ping", 9);
    assert_number(member(store, "operations"), "set", 0);
    assert_number(member(store, "operations"), "validate", 0);
    assert_true(cJSON_IsTrue(member(store, "waiting_more")));
    const cJSON *first = cJSON_GetArrayItem(member(store, "waiting"), 0);
    assert_string_equal(ct_json_text(first, "key", ""), "/\\x01\\xff\\\\k");
    assert_string_equal(ct_json_text(first, "peer", ""), "10.0.0.1:7");
    assert_number(first, "clients", 3);
    assert_int_equal(cJSON_GetArraySize(member(store, "waiting")), 2);
    const cJSON *http = member(root, "http");
    assert_number(http, "connections", 10);
    assert_number(http, "requests", 11);
    assert_number(http, "refused", 12);
    assert_number(http, "timeouts", 13);
    assert_number(http, "denied", 14);
    assert_number(store, "denied", 15);
    cJSON_Delete(root);
}

static void test_no_cap_on_memory_is_null(void **state)
{
    (void)state;
    struct ct_status_facts uncapped = facts;
    cJSON *root = NULL;
    uncapped.memory_max = SIZE_MAX;
    assert_int_equal(ct_status_make(&uncapped, NULL, NULL, &rows, &root), 0);
    assert_true(cJSON_IsNull(member(member(root, "store"), "memory_max")));
    cJSON_Delete(root);
}

static void test_verdict_follows_the_job(void **state)
{
    (void)state;
    static const struct {
        struct job job;
        bool ready;
        const char *health;
    } cases[] = {
        {{"running", NULL}, true, "healthy"},
        {{"starting", NULL}, false, "healthy"},
        {{"stopping", "rank 1 failed"}, false, "degraded"},
        {{"running", "a node is missing"}, false, "degraded"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cJSON *root = make(&cases[i].job);
        assert_int_equal(ct_status_is_ready(root), cases[i].ready);
        assert_string_equal(ct_json_text(root, "health", ""), cases[i].health);
        cJSON_Delete(root);
    }
}

static int add_two_jobs(void *data, struct ct_status_rows *unused, cJSON *root, cJSON *problems)
{
    (void)unused;
    static const char *const states[] = {"running", "waiting"};
    cJSON *jobs = cJSON_AddArrayToObject(root, "jobs");
    (void)data;
    (void)problems;
    for (size_t i = 0; jobs != NULL && i < 2; i++) {
        cJSON *job = ct_json_append_object(jobs);
        if (job == NULL || !ct_json_add_text(job, "state", states[i]) ||
            !ct_json_add_text(job, "run_id", states[i]) ||
            !ct_json_add_number(job, "generation", (double)i)) {
            return CT_ENOMEM;
        }
    }
    return jobs != NULL ? 0 : CT_ENOMEM;
}

static void test_metrics_of_several_jobs_stand_together(void **state)
{
    (void)state;
    cJSON *root = NULL;
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_status_make(&facts, add_two_jobs, NULL, &rows, &root), 0);
    assert_false(ct_status_is_ready(root));
    assert_int_equal(ct_prometheus_print(root, &rows, &text), 0);
    /* The format wants all series of a name together. */
    assert_non_null(strstr(ct_buf_cstr(&text), "gauge\nctrun_job_generation{run_id=\"running\"} 0\n"
                                               "ctrun_job_generation{run_id=\"waiting\"} 1\n#"));
    ct_buf_fini(&text);
    cJSON_Delete(root);
}

static void test_long_keys_are_cut(void **state)
{
    (void)state;
    unsigned char key[CT_JSON_KEY_MAX + 1];
    char want[4 * CT_JSON_KEY_MAX + 4] = "";
    memset(key, 0x80, sizeof(key));
    for (size_t i = 0; i < CT_JSON_KEY_MAX; i++) {
        memcpy(want + 4 * i, "\\x80", 5);
    }
    cJSON *object = cJSON_CreateObject();
    assert_true(ct_json_add_bytes(object, "fits", (struct ct_bytes){key, CT_JSON_KEY_MAX}));
    assert_string_equal(ct_json_text(object, "fits", ""), want);
    memcpy(want + 4 * (size_t)CT_JSON_KEY_MAX, "...", 4);
    assert_true(ct_json_add_bytes(object, "cut", (struct ct_bytes){key, sizeof(key)}));
    assert_string_equal(ct_json_text(object, "cut", ""), want);
    assert_true(ct_json_add_bytes(object, "none", (struct ct_bytes){NULL, 0}));
    assert_string_equal(ct_json_text(object, "none", "?"), "");
    cJSON_Delete(object);
}

/* ---- metrics -------------------------------------------------------------------------------- */

/* The run id of add_job(), as Prometheus writes it. */
#define JOB "{run_id=\"a\\\"b\\\\c\\nd\""

static void test_metrics_have_a_line_for_each_value(void **state)
{
    (void)state;
    cJSON *root = make(&(struct job){"running", NULL});
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_prometheus_print(root, &rows, &text), 0);
    static const char *const lines[] = {
        "\nctrun_build_info{version=\"" CT_VERSION "\"} 1\n",
        "\nctrun_job_info" JOB "} 1\n",
        "\n# TYPE ctrun_uptime_seconds gauge\nctrun_uptime_seconds 1.5\n",
        "\nctrun_ready 1\n",
        "\nctrun_store_keys 1\n",
        "\nctrun_store_connections_accepted_total 5\n",
        "\nctrun_store_requests_total{operation=\"get\"} 8\n",
        "\nctrun_job_generation" JOB "} 2\n",
        "\nctrun_job_restarts_total" JOB "} 1\n",
        "\nctrun_job_nodes_expected" JOB "} 4\n",
        "\nctrun_job_nodes_present" JOB "} 0\n",
        "\nctrun_job_workers" JOB ",state=\"running\"} 2\n",
        "\nctrun_job_workers" JOB ",state=\"failed\"} 0\n",
        "gauge\nctrun_worker_step" JOB ",rank=\"4\"} 12345678901\n# HELP",
        "gauge\nctrun_worker_progress_age_seconds" JOB ",rank=\"4\"} 1.500\n# HELP",
        "gauge\nctrun_worker_loss" JOB ",rank=\"4\"} 0.25\n",
        "\n# TYPE ctrun_job_failures_total counter\nctrun_job_failures_total" JOB "} 3\n",
        "\nctrun_job_hangs" JOB "} 20\n",
        "gauge\nctrun_job_hang_seconds" JOB ",rank=\"\"} 12.5\nctrun_job_hang_seconds" JOB
        ",rank=\"5\"} 12.5\n#",
        "\nctrun_http_timeouts_total 13\n",
    };
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (strstr(ct_buf_cstr(&text), lines[i]) == NULL) {
            fail_msg("missing: %s", lines[i]);
        }
    }
    assert_true(ct_status_hangs(ct_status_next_job(root, NULL), 5));
    assert_false(ct_status_hangs(ct_status_next_job(root, NULL), 4));
    assert_false(ct_status_hangs(ct_status_next_job(root, NULL), -1)); /* it is nobody's number */
    /* What a document lacks has no value. */
    assert_null(strstr(ct_buf_cstr(&text), "\nctrun_job_world_size"));
    assert_null(strstr(ct_buf_cstr(&text), "\nctrun_worker_samples"));
    ct_buf_fini(&text);
    cJSON_Delete(root);
}

/* ---- pages ---------------------------------------------------------------------------------- */

static bool wants_rows_printed; /* in what is given */

static int give_status(void *data, struct ct_status_rows *wanted, cJSON **out)
{
    wants_rows_printed = wanted->print;
    wanted->print = false;
    return ct_status_make(&facts, add_job, data, wanted, out);
}

static int give_keys(void *data, cJSON **out)
{
    (void)data;
    *out = cJSON_CreateObject();
    return *out != NULL ? 0 : CT_ENOMEM;
}

static void test_each_page_has_its_code_and_body(void **state)
{
    (void)state;
    static const struct {
        const char *method, *path;
        unsigned code;
        const char *body;
    } cases[] = {
        {"GET", "/healthz", 200, "{\"health\":\"serving\"}\n"},
        {"HEAD", "/healthz", 200, "{\"health\":\"serving\"}\n"},
        {"GET", "/readyz", 503, "{\"ready\":false,\"problems\":[\"rank 1 failed\"]}\n"},
        {"GET", "/status", 200, "\"health\":\"degraded\""},
        {"GET", "/metrics", 200, "ctrun_ready 0\n"},
        {"GET", "/keys", 404, "--http-keys"},
        {"GET", "/", 200, "\n  \"/status\": \"the job"},
        {"GET", "", 404, "/status"},
        {"GET", "/end", 404, "/status"}, /* made elsewhere, with HTTP only */
        {"POST", "/nothing", 405, "GET"},
        {"get", "/status", 405, "GET"},
    };
    struct job job = {"stopping", "rank 1 failed"};
    struct ct_http_source source = {.status = give_status, .data = &job};
    struct ct_http_answer answer;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        wants_rows_printed = false;
        ct_http_answer_make(&source, true, cases[i].method, cases[i].path, &answer);
        assert_int_equal(answer.code, cases[i].code);
        assert_int_equal(wants_rows_printed,
                         answer.code == 200 && strcmp(cases[i].path, "/status") == 0);
        assert_non_null(strstr(ct_buf_cstr(&answer.body), cases[i].body));
        assert_int_equal(answer.allow != NULL, answer.code == 405);
        ct_buf_fini(&answer.body);
    }
    ct_http_answer_make(&source, true, "GET", "/", &answer);
    assert_null(strstr(ct_buf_cstr(&answer.body), "/keys"));
    ct_buf_fini(&answer.body);
    source.keys = give_keys;
    ct_http_answer_make(&source, true, "GET", "/", &answer);
    assert_non_null(strstr(ct_buf_cstr(&answer.body), "/keys"));
    ct_buf_fini(&answer.body);
    ct_http_answer_make(&source, true, "GET", "/keys", &answer);
    assert_int_equal(answer.code, 200);
    assert_string_equal(ct_buf_cstr(&answer.body), "{}\n");
    ct_buf_fini(&answer.body);
}

static void test_strangers_hear_the_health_alone(void **state)
{
    (void)state;
    struct job job = {"running", NULL};
    const struct ct_http_source source = {give_status, give_keys, &job, NULL};
    static const char *const paths[] = {"/readyz", "/status", "/metrics", "/keys", "/", "/x"};
    struct ct_http_answer answer;
    ct_http_answer_make(&source, false, "GET", "/healthz", &answer);
    assert_int_equal(answer.code, 200);
    ct_buf_fini(&answer.body);
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        ct_http_answer_make(&source, false, "GET", paths[i], &answer);
        assert_int_equal(answer.code, 403);
        assert_non_null(strstr(ct_buf_cstr(&answer.body), "not admitted; it may"));
        ct_buf_fini(&answer.body);
    }
    static const struct ct_token token = {.text = "0123456789abcdef", .len = 16};
    struct ct_page_key key = {.token = &token};
    const struct ct_http_source with_token = {.status = give_status, .data = &job, .key = &key};
    ct_http_answer_make(&with_token, false, "GET", "/metrics", &answer);
    assert_int_equal(answer.code, 403);
    assert_non_null(strstr(ct_buf_cstr(&answer.body), "without the job's read key"));
    ct_buf_fini(&answer.body);
}

static int sweep_page(void *data)
{
    struct job job = {"running", "something"};
    struct ct_http_source source = {give_status, give_keys, &job, NULL};
    struct ct_http_answer answer;
    ct_http_answer_make(&source, true, "GET", data, &answer);
    int rc = answer.code == 500 ? CT_ENOMEM : 0;
    assert_int_equal(answer.body.len == 0, rc != 0);
    ct_buf_fini(&answer.body);
    return rc;
}

static void test_each_failed_allocation_is_told(void **state)
{
    (void)state;
    static const char *const pages[] = {"/healthz", "/readyz", "/status", "/metrics",
                                        "/keys",    "/",       "/x"};
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        assert_true(ct_fault_sweep(sweep_page, (void *)pages[i], 0) >= 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_store_without_a_job_is_healthy),
        cmocka_unit_test(test_no_cap_on_memory_is_null),
        cmocka_unit_test(test_verdict_follows_the_job),
        cmocka_unit_test(test_metrics_of_several_jobs_stand_together),
        cmocka_unit_test(test_long_keys_are_cut),
        cmocka_unit_test(test_metrics_have_a_line_for_each_value),
        cmocka_unit_test(test_each_page_has_its_code_and_body),
        cmocka_unit_test(test_strangers_hear_the_health_alone),
        cmocka_unit_test(test_each_failed_allocation_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
