/* SPDX-License-Identifier: Apache-2.0
 *
 * What the live page is told of the workers, whole and as changes; its curves; and which requests
 * of a browser are refused.
 */
#include "tests/lib/ct_test.h"

#include "common/progress_page.h"
#include "rendezvous/http/page_feed.h"
#include "rendezvous/http/page_guard.h"
#include "rendezvous/wire/json.h"
#include "tests/lib/fault.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define RANKS 10000
#define NODES 1250

static struct ct_worker_row all_rows[RANKS];
static struct ct_row_span spans[NODES];

static struct ct_status_rows rows_of(int ranks)
{
    int count = ranks / 8;
    for (int i = 0; i < count; i++) {
        spans[i] = (struct ct_row_span){.first_rank = 8 * i, .count = 8, .rows = all_rows + 8 * i};
    }
    return (struct ct_status_rows){
        .spans = spans, .count = (size_t)count, .room = (size_t)count, .taken = ranks};
}

static void all_run_in(int64_t step)
{
    for (int i = 0; i < RANKS; i++) {
        all_rows[i] = (struct ct_worker_row){
            .rank = i, .state = CT_ROW_RUNNING, .phase = CT_PHASE_COMPUTE, .step = step};
    }
}

static cJSON *status_of(int world)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "{\"version\":\"1\",\"health\":\"healthy\",\"problems\":[],\"job\":{\"run_id\":"
                   "\"j\",\"generation\":0,\"world_size\":%d,\"nodes\":[{\"index\":0,\"host\":"
                   "\"<b>\",\"address\":\"\",\"state\":\"running\",\"workers\":8,"
                   "\"last_seen_s\":1}],\"workers\":[]}}",
                   world);
    return cJSON_Parse(text);
}

static int take(struct ct_page_feed *feed, int world, int ranks, double now_s)
{
    struct ct_status_rows rows = rows_of(ranks);
    cJSON *status = status_of(world);
    int rc = status != NULL ? ct_page_feed_take(feed, status, &rows, now_s) : CT_ENOMEM;
    cJSON_Delete(status);
    return rc;
}

static cJSON *print(const struct ct_page_feed *feed, bool whole, size_t *bytes)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_page_feed_print(feed, whole, &text), 0);
    cJSON *json = cJSON_Parse(ct_buf_cstr(&text));
    assert_non_null(json);
    assert_null(memchr(ct_buf_bytes(&text), '\n', text.len));
    if (bytes != NULL) {
        *bytes = text.len;
    }
    ct_buf_fini(&text);
    return json;
}

static void assert_cells(const cJSON *frame, const char *want)
{
    char *text = cJSON_PrintUnformatted(cJSON_GetObjectItem(frame, "cells"));
    assert_string_equal(text, want);
    cJSON_free(text);
}

static void test_a_healthy_job_is_one_run(void **state)
{
    (void)state;
    struct ct_page_feed feed;
    size_t bytes;
    ct_page_feed_init(&feed, NULL, 100);
    all_run_in(1204);
    assert_int_equal(take(&feed, RANKS, RANKS, 1), 0);
    cJSON *frame = print(&feed, true, &bytes);
    assert_cells(frame, "[[0,10000,2,0,0]]");
    assert_true(bytes < 1024);
    const cJSON *job = cJSON_GetArrayItem(cJSON_GetObjectItem(frame, "jobs"), 0);
    assert_true(ct_json_number(job, "median_step", 0) == 1204);
    assert_null(cJSON_GetObjectItem(job, "nodes"));
    assert_null(cJSON_GetObjectItem(job, "workers"));
    assert_true(ct_json_number(frame, "opened", 0) == 100);
    assert_non_null(cJSON_GetObjectItem(frame, "nodes"));
    cJSON_Delete(frame);
    /* All go on together: nothing has changed but the median. */
    all_run_in(1210);
    assert_int_equal(take(&feed, RANKS, RANKS, 2), 0);
    frame = print(&feed, false, NULL);
    assert_cells(frame, "[]");
    assert_null(cJSON_GetObjectItem(frame, "nodes"));
    assert_true(ct_json_number(frame, "seq", 0) == 2);
    cJSON_Delete(frame);
    ct_page_feed_fini(&feed);
}

static void test_changes_name_what_stands_out(void **state)
{
    (void)state;
    struct ct_page_feed feed;
    ct_page_feed_init(&feed, NULL, 0);
    all_run_in(50);
    assert_int_equal(take(&feed, 32, 24, 1), 0);
    cJSON *frame = print(&feed, true, NULL);
    assert_cells(frame, "[[0,24,2,0,0],[24,8,7,0,0]]"); /* the last machine has told nothing */
    cJSON_Delete(frame);
    all_rows[3].step = 40;
    all_rows[4].age_ms = 45000;
    all_rows[5].step = 1000000;
    all_rows[6].state = CT_ROW_FAILED;
    all_rows[7].step = 55;
    assert_int_equal(take(&feed, 32, 32, 2), 0);
    frame = print(&feed, false, NULL);
    assert_cells(frame, "[[3,1,2,10,0],[4,1,2,0,4],[5,1,2,-9999,0],[6,1,6,0,0],[7,1,2,-5,0],"
                        "[24,8,2,0,0]]");
    cJSON_Delete(frame);
    ct_page_feed_fini(&feed);
}

static void test_the_world_may_shrink_and_end(void **state)
{
    (void)state;
    struct ct_page_feed feed;
    ct_page_feed_init(&feed, NULL, 0);
    all_run_in(5);
    assert_int_equal(take(&feed, 32, 32, 1), 0);
    assert_int_equal(take(&feed, 16, 16, 2), 0);
    cJSON *frame = print(&feed, false, NULL);
    assert_true(ct_json_number(frame, "total", 0) == 16);
    assert_cells(frame, "[]");
    cJSON_Delete(frame);
    /* The job is gone: its last sample stays. */
    struct ct_status_rows none = {.taken = 0};
    cJSON *status = cJSON_Parse("{\"problems\":[]}");
    assert_int_equal(ct_page_feed_take(&feed, status, &none, 3), 0);
    cJSON_Delete(status);
    frame = print(&feed, true, NULL);
    assert_true(ct_json_number(frame, "seq", 0) == 3);
    assert_cells(frame, "[[0,16,2,0,0]]");
    cJSON_Delete(frame);
    frame = print(&feed, false, NULL);
    assert_cells(frame, "[]");
    cJSON_Delete(frame);
    ct_page_feed_fini(&feed);
}

/* Takes a sample of a job of 16 workers that has ended, of which its nodes tell `told`. */
static cJSON *take_end(struct ct_page_feed *feed, int told, const char *problems,
                       const char *failures, double now_s)
{
    char text[512];
    (void)snprintf(text, sizeof(text),
                   "{\"problems\":[%s],\"job\":{\"state\":\"done\",\"generation\":1,\"world_size\":"
                   "16,\"failures\":[%s]}}",
                   problems, failures);
    cJSON *status = cJSON_Parse(text);
    struct ct_status_rows rows = rows_of(told);
    assert_int_equal(ct_page_feed_take(feed, status, &rows, now_s), 0);
    cJSON_Delete(status);
    return print(feed, true, NULL);
}

static void test_the_end_is_kept(void **state)
{
    (void)state;
    struct ct_page_feed feed;
    ct_page_feed_init(&feed, NULL, 0);
    all_run_in(5);
    all_rows[2].age_ms = 60000;
    all_rows[15].state = CT_ROW_STOPPED;
    cJSON *frame = take_end(&feed, 16, "", "", 1);
    assert_cells(frame, "[[0,15,4,0,0],[15,1,5,0,0]]");
    cJSON_Delete(frame);
    frame = take_end(&feed, 0, "", "", 2); /* the nodes have left */
    assert_cells(frame, "[[0,15,4,0,0],[15,1,5,0,0]]");
    assert_true(ct_json_number(frame, "seq", 0) == 2);
    cJSON_Delete(frame);
    ct_page_feed_fini(&feed);

    ct_page_feed_init(&feed, NULL, 0);
    frame = take_end(&feed, 8, "\"rank 3\"",
                     "{\"rank\":9,\"generation\":0},{\"rank\":3,\"generation\":1},"
                     "{\"rank\":16,\"generation\":1},{\"rank\":-1,\"generation\":1}",
                     1);
    assert_cells(frame, "[[0,3,5,0,0],[3,1,6,0,0],[4,12,5,0,0]]");
    cJSON_Delete(frame);
    ct_page_feed_fini(&feed);
}

static void test_ranks_outside_of_the_world_are_left_out(void **state)
{
    (void)state;
    struct ct_page_feed feed;
    struct ct_row_span far[] = {
        {.first_rank = CT_PAGE_CELLS_MAX - 4, .count = 8, .rows = all_rows},
        {.first_rank = -1, .count = 8, .rows = all_rows},
        {.first_rank = 0, .job = 99, .count = 8, .rows = all_rows},
        {.first_rank = 8, .count = 8, .rows = all_rows},
    };
    struct ct_status_rows rows = {.spans = far, .count = 4, .taken = 32};
    cJSON *status = status_of(1 << 20);
    ct_page_feed_init(&feed, NULL, 0);
    all_run_in(7);
    assert_int_equal(ct_page_feed_take(&feed, status, &rows, 1), 0);
    cJSON_Delete(status);
    cJSON *frame = print(&feed, true, NULL);
    assert_cells(frame, "[[0,8,7,0,0],[8,8,2,0,0]]");
    cJSON_Delete(frame);
    ct_page_feed_fini(&feed);
}

static void test_memory_is_charged_and_given_back(void **state)
{
    (void)state;
    struct ct_budget budget = {.max = SIZE_MAX};
    struct ct_page_feed feed;
    ct_page_feed_init(&feed, &budget, 0);
    assert_int_equal(take(&feed, RANKS, RANKS, 1), 0);
    assert_true(budget.used > RANKS * sizeof(struct ct_page_cell));
    ct_page_feed_fini(&feed);
    assert_int_equal(budget.used, 0);
}

static int take_and_print(void *data)
{
    struct ct_page_feed feed;
    struct ct_buf text = CT_BUF_INIT;
    (void)data;
    ct_page_feed_init(&feed, NULL, 0);
    int rc = take(&feed, 16, 16, 1);
    rc = rc == 0 ? take(&feed, 16, 8, 2) : rc;
    rc = rc == 0 ? ct_page_feed_print(&feed, false, &text) : rc;
    ct_buf_fini(&text);
    ct_page_feed_fini(&feed);
    return rc;
}

static void test_memory_that_runs_out_leaves_nothing(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    assert_true(ct_fault_sweep(take_and_print, NULL, 0) > 10);
}

/* ---- curves --------------------------------------------------------------------------------- */

static void test_a_point_of_the_curves_is_of_the_workers_that_run(void **state)
{
    (void)state;
    struct ct_page_feed feed;
    ct_page_feed_init(&feed, NULL, 0);
    all_run_in(50);
    all_rows[0].loss = 0.5;
    (void)snprintf(all_rows[0].loss_text, sizeof(all_rows[0].loss_text), "0.5");
    all_rows[1].rate = 1000;
    (void)snprintf(all_rows[1].rate_text, sizeof(all_rows[1].rate_text), "1000");
    all_rows[1].phase = CT_PHASE_COLLECTIVE;
    all_rows[3].rate = 2000;
    (void)snprintf(all_rows[3].rate_text, sizeof(all_rows[3].rate_text), "2000");
    all_rows[1].rss_mib = 100;
    all_rows[2].rss_mib = 300;
    all_rows[3].state = CT_ROW_FAILED;
    assert_int_equal(take(&feed, 9, 8, 3), 0);
    assert_int_equal(feed.history.count, 1);
    const struct ct_page_point *point = &feed.history.points[0];
    assert_true(point->t_s == 3 && point->step == 50);
    assert_true(point->loss == 0.5 && point->rate == 1000 && point->collective == 1.0 / 7);
    assert_true(point->memory == 200 && point->most_memory == 300);
    assert_int_equal(point->running, 7);
    assert_int_equal(point->missing, 2);
    ct_page_feed_fini(&feed);
}

static void test_curves_keep_the_whole_job(void **state)
{
    (void)state;
    static struct ct_page_history history;
    for (int i = 0; i < 10 * CT_PAGE_POINTS; i++) {
        const struct ct_page_point point = {
            .t_s = i,
            .generation = i / 1000,
            .step = i,
            .loss = i % 2 == 0 ? 2 : NAN,
            .rate = i,
            .collective = NAN,
            .memory = i,
            .most_memory = i % 16 == 3 ? 1000 + i : NAN,
        };
        ct_page_history_add(&history, &point);
    }
    assert_true(history.count <= CT_PAGE_POINTS && history.count > CT_PAGE_POINTS / 2);
    assert_int_equal(history.each, 16);
    assert_int_equal(history.merges, 4);
    assert_true(history.points[0].loss == 2);
    assert_true(history.points[0].rate == 7.5); /* the mean of 0 to 15 */
    assert_true(history.points[history.count - 1].t_s == 10 * CT_PAGE_POINTS - 1);
    assert_int_equal(history.points[history.count - 1].generation, 5);
    struct ct_buf text = CT_BUF_INIT;
    ct_page_history_print(&history, history.count - 1, &text);
    assert_string_equal(ct_buf_cstr(&text), "[[5119.000,5,5119,2,5111.5,null,0,0,5111.5,6107]]");
    ct_buf_fini(&text);
}

/* ---- requests of a browser ------------------------------------------------------------------ */

static void test_requests_of_other_pages_and_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *host, *origin;
        bool good;
    } cases[] = {
        {"127.0.0.1:29500", NULL, true},
        {"127.0.0.1:29500", "http://127.0.0.1:29500", true},
        {"[::1]:29500", "http://[::1]:29500", true},
        {"localhost:29500", NULL, true},
        {"gpu-1", NULL, true},
        {"GPU-7.cluster.example:1", NULL, true},
        {"a.told.name:29500", "http://a.told.name:29500", true},
        {"a.told.name.evil.example", NULL, false},
        {"evil.example:29500", NULL, false},
        {"127.0.0.1.evil.example", NULL, false},
        {"gpu-7.cluster.example.evil.example", NULL, false},
        {"127.0.0.1:29500", "http://evil.example", false},
        {"127.0.0.1:29500", "http://127.0.0.1:8000", false},
        {"127.0.0.1:29500", "https://127.0.0.1:29500", false},
        {"127.0.0.1:29500", "null", false},
        {"127.0.0.1:29500x", NULL, false},
        {"[::1", NULL, false},
        {"[::1]x", NULL, false},
        {"", NULL, false},
        {":29500", NULL, false},
        {NULL, NULL, false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct ct_page_request request = {.host = cases[i].host, .origin = cases[i].origin};
        const char *wrong = ct_page_guard_judge(&request, "gpu-7.cluster.example", "a.told.name");
        assert_int_equal(wrong == NULL, cases[i].good);
    }
    char long_name[400];
    memset(long_name, 'a', sizeof(long_name) - 1);
    long_name[sizeof(long_name) - 1] = '\0';
    const struct ct_page_request too_long = {.host = long_name}, not_told = {.host = "a.told.name"};
    assert_non_null(ct_page_guard_judge(&too_long, "x", NULL));
    assert_non_null(ct_page_guard_judge(&not_told, "x", NULL));
}

static void test_a_page_of_another_origin_is_refused_also_without_the_origin_header(void **state)
{
    (void)state;
    static const struct {
        const char *site, *mode, *dest;
        bool good;
    } cases[] = {
        {"same-origin", "cors", "empty", true},
        {"none", "navigate", "document", true},
        {"cross-site", NULL, NULL, false},
        {"cross-site", "no-cors", "image", false},
        {"cross-site", "cors", "empty", false},
        {"same-site", "no-cors", "empty", false},
        {"same-site", NULL, NULL, false},
        {"strange", NULL, NULL, false},
        {"", NULL, NULL, false},
        /* A link in a chat opens a tab; a frame in a page is part of that page. */
        {"cross-site", "navigate", "document", true},
        {"same-site", "navigate", "document", true},
        {"cross-site", "navigate", "iframe", false},
        {"cross-site", "navigate", NULL, false},
        {"cross-site", "no-cors", "document", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct ct_page_request request = {.host = "127.0.0.1:29500",
                                          .fetch_site = cases[i].site,
                                          .fetch_mode = cases[i].mode,
                                          .fetch_dest = cases[i].dest};
        assert_int_equal(ct_page_guard_judge(&request, "x", NULL) == NULL, cases[i].good);
        request.origin = "http://evil.example";
        assert_non_null(ct_page_guard_judge(&request, "x", NULL));
    }
}

static void test_a_browser_tells_its_languages_or_its_page(void **state)
{
    (void)state;
    static const struct ct_page_request browsers[] = {{.accept_language = ""},
                                                      {.accept_language = "en"},
                                                      {.origin = "null"},
                                                      {.fetch_site = "cross-site"},
                                                      {.fetch_mode = "navigate"}};
    for (size_t i = 0; i < sizeof(browsers) / sizeof(browsers[0]); i++) {
        assert_true(ct_page_guard_is_browser(&browsers[i]));
    }
    assert_false(ct_page_guard_is_browser(&(struct ct_page_request){.host = "127.0.0.1"}));
}

static void test_only_browsers_want_html(void **state)
{
    (void)state;
    assert_true(ct_page_guard_wants_html("text/html,application/xhtml+xml,*/*;q=0.8"));
    assert_false(ct_page_guard_wants_html("*/*"));
    assert_false(ct_page_guard_wants_html("application/json"));
    assert_false(ct_page_guard_wants_html(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_healthy_job_is_one_run),
        cmocka_unit_test(test_changes_name_what_stands_out),
        cmocka_unit_test(test_the_world_may_shrink_and_end),
        cmocka_unit_test(test_the_end_is_kept),
        cmocka_unit_test(test_ranks_outside_of_the_world_are_left_out),
        cmocka_unit_test(test_memory_is_charged_and_given_back),
        cmocka_unit_test(test_memory_that_runs_out_leaves_nothing),
        cmocka_unit_test(test_a_point_of_the_curves_is_of_the_workers_that_run),
        cmocka_unit_test(test_curves_keep_the_whole_job),
        cmocka_unit_test(test_requests_of_other_pages_and_names_are_refused),
        cmocka_unit_test(test_a_page_of_another_origin_is_refused_also_without_the_origin_header),
        cmocka_unit_test(test_only_browsers_want_html),
        cmocka_unit_test(test_a_browser_tells_its_languages_or_its_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
