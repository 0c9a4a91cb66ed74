/* SPDX-License-Identifier: Apache-2.0
 *
 * The screen of ctrun-stat --watch: it fits any window, failures come first, equal workers are one
 * row, and keys sort and scroll.
 */
#include "tests/lib/ct_test.h"

#include "common/text.h"
#include "rendezvous/ctrun-stat/stat_screen.h"
#include "rendezvous/ctrun-stat/stat_table.h"
#include "rendezvous/http/page_history.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>

#define WHERE "127.0.0.1:29500"

static void add_worker(cJSON *workers, int rank, const char *state, const char *phase, double step,
                       double age_s)
{
    cJSON *worker = cJSON_CreateObject(), *progress = cJSON_CreateObject();
    char host[32];
    (void)snprintf(host, sizeof(host), "gpu-%d", rank / 8);
    cJSON_AddNumberToObject(worker, "rank", rank);
    cJSON_AddStringToObject(worker, "state", state);
    cJSON_AddStringToObject(worker, "host", host);
    cJSON_AddNumberToObject(worker, "restarts", 0);
    cJSON_AddStringToObject(progress, "phase", phase);
    cJSON_AddNumberToObject(progress, "step", step);
    cJSON_AddNumberToObject(progress, "age_s", age_s);
    cJSON_AddItemToObject(worker, "progress", progress);
    cJSON_AddItemToArray(workers, worker);
}

/* A job of `count` workers in step 10, of which rank 5 has failed. The caller deletes it. */
static cJSON *job_of(int count)
{
    cJSON *status = cJSON_Parse(
        "{\"health\":\"degraded\",\"uptime_s\":30,\"problems\":[\"rank 5 failed\"],\"job\":{"
        "\"run_id\":\"j1\",\"state\":\"running\",\"generation\":1,\"restarts\":1,"
        "\"max_restarts\":3,\"failure_count\":1,\"failures\":[{\"generation\":0,\"rank\":5,"
        "\"host\":\"gpu-0\",\"reason\":\"exit \\u001b[2Jcode 3\"}],\"workers\":[]}}");
    assert_non_null(status);
    cJSON *job = cJSON_GetObjectItemCaseSensitive(status, "job");
    cJSON *workers = cJSON_GetObjectItemCaseSensitive(job, "workers");
    cJSON_AddNumberToObject(job, "world_size", count);
    for (int rank = 0; rank < count; rank++) {
        bool failed = rank == 5;
        add_worker(workers, rank, failed ? "failed" : "running", failed ? "data" : "compute",
                   failed ? 9 : 10, 1);
    }
    if (count > 5) {
        cJSON_AddNumberToObject(cJSON_GetArrayItem(workers, 5), "exit", 3);
    }
    return status;
}

static const char *screen(const cJSON *status, struct ct_stat_view *view, struct ct_buf *out)
{
    ct_buf_reset(out);
    assert_int_equal(ct_stat_screen(status, WHERE, "", view, out), 0);
    return ct_buf_cstr(out);
}

static void assert_fits(const char *text, const struct ct_stat_view *view)
{
    size_t lines = *text != '\0';
    char line[1024], clean[1024];
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        (void)snprintf(line, sizeof(line), "%.*s", (int)len, text);
        assert_true(ct_text_fit(line, sizeof(line), clean, sizeof(clean)) <= view->columns);
        assert_string_equal(line, clean); /* no control character */
        lines += text[len] == '\n';
        text += len + (text[len] == '\n');
    }
    assert_true(lines <= view->rows);
}

static void equal_workers_are_one_row_and_failures_come_first(void **state)
{
    static const char expected[] =
        "127.0.0.1:29500: degraded, up 30 s\n"
        "FAILED generation 0: rank 5 on gpu-0: exit ?[2Jcode 3\n"
        "problem: rank 5 failed\n"
        "job j1: running, 512 workers, generation 1, restarts 1 of 3\n"
        "RANKS            COUNT STATE      PHASE          STEP FOR       LOSS SAMPLES/S HOST\n"
        "5                    1 failed 3   data              9 1 s          -         - gpu-0\n"
        "0-4,6-511          511 running    compute          10 1 s          -         - gpu-0 and "
        "others\n"
        "rows 1-2 of 2, 512 workers; q quits, s sorts (rank), g ungroups, arrows scroll";
    struct ct_stat_view view = {.rows = 24, .columns = 100};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = job_of(512);
    (void)state;
    assert_string_equal(screen(status, &view, &out), expected);
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void the_curve_stands_below_the_job(void **state)
{
    static struct ct_page_history losses = {.points = {{.loss = 2}, {.loss = 1}}, .count = 2};
    struct ct_stat_view view = {.rows = 24, .columns = 80, .losses = &losses};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = job_of(8);
    (void)state;
    assert_non_null(strstr(screen(status, &view, &out), " 1 of 3\nloss 2 █▁ 1\nRANKS "));
    assert_fits(ct_buf_cstr(&out), &view);
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void who_hangs_comes_next(void **state)
{
    struct ct_stat_view view = {.rows = 24, .columns = 100};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = job_of(8);
    cJSON *hangs = cJSON_Parse("[7,{\"rank\":-1,\"for_s\":7},"
                               "{\"rank\":6,\"for_s\":40.2,\"why\":\"it is stopped\"}]");
    cJSON_AddItemToObject(cJSON_GetObjectItemCaseSensitive(status, "job"), "hangs", hangs);
    (void)state;
    const char *table = strstr(screen(status, &view, &out), "\n5 ");
    assert_non_null(table);
    assert_non_null(strstr(table, "\n6                    1 hangs      compute "));
    assert_non_null(strstr(table, "\n0-4,7                6 running    compute "));
    assert_true(strstr(table, "\n6 ") < strstr(table, "\n0-4"));
    assert_non_null(strstr(ct_buf_cstr(&out), "generation 1, hangs for 40 s, restarts 1 of 3\n"));
    ct_buf_reset(&out);
    assert_int_equal(ct_stat_table(status, "h:1", CT_STAT_COLUMNS, &out), 0);
    assert_non_null(
        strstr(ct_buf_cstr(&out), "\n    6     0       0 hangs        -        0 gpu-0"));
    assert_non_null(strstr(ct_buf_cstr(&out), "generation 1, hangs for 40 s, restarts 1 of 3\n"));
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void it_fits_every_window(void **state)
{
    static const int counts[] = {0, 2, 48, 512};
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        cJSON *status = job_of(counts[i]);
        for (size_t rows = 0; rows < 40; rows++) {
            struct ct_stat_view view = {.rows = rows, .columns = rows * 3, .apart = true};
            view.top = 1000;
            assert_fits(screen(status, &view, &out), &view);
            assert_true(view.top >= 0 && view.top <= counts[i]);
        }
        cJSON_Delete(status);
    }
    ct_buf_fini(&out);
}

/* What was cut could not be seen, and a long name of a host left no room for the reason. */
static void what_is_cut_has_a_mark(void **state)
{
    struct ct_stat_view view = {.rows = 24, .columns = 80};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = cJSON_Parse(
        "{\"health\":\"degraded\",\"problems\":[\"rank 5 on gpu-0123456789-cluster-example-com: "
        "process 42 exited with code 3\"],\"job\":{\"run_id\":\"0123456789012345678901234567890\","
        "\"state\":\"running\",\"generation\":1,\"restarts\":1,\"max_restarts\":3,\"world_size\":2,"
        "\"failures\":[{\"rank\":5,\"host\":\"gpu-0123456789-cluster-example-com\",\"reason\":"
        "\"process 42 exited with code 3\"},{\"rank\":6,\"host\":\"a\",\"reason\":\"process 42 was "
        "ended by SIGKILL, as the kernel does when memory is out\"}],\"workers\":[{\"rank\":0,"
        "\"host\":\"gpu-0123456789-cluster-example-com\",\"state\":\"running\",\"progress\":{"
        "\"phase\":\"data\",\"step\":1,\"samples_per_s\":12345}}]}}");
    (void)state;
    assert_non_null(status);
    const char *text = screen(status, &view, &out);
    assert_non_null(strstr(text, "\nFAILED generation 0: rank 5 on gpu-0123456789-...: process 42 "
                                 "exited with code 3\n"));
    assert_non_null(strstr(text, "\nFAILED generation 0: rank 6 on a: process 42 was ended by "
                                 "SIGKILL, as the ker...\n"));
    assert_non_null(strstr(text, "\nproblem: rank 5 on gpu-0123456789-cluster-example-com: process "
                                 "42 exited with\n         code 3\n"));
    assert_non_null(strstr(text, "\njob 0123456789012345678901...: running, 2 workers, generation "
                                 "1, restarts 1 of 3\n"));
    /* No mark takes the place of a number. */
    assert_non_null(strstr(text, "    12345\n"));
    view.columns = 90;
    text = screen(status, &view, &out);
    assert_non_null(strstr(text, " SAMPLES/S HOST\n"));
    assert_non_null(strstr(text, "    12345 gpu-0123...\n"));
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void restarts_are_shown_if_the_job_may_have_some(void **state)
{
    struct ct_buf out = CT_BUF_INIT;
    struct ct_stat_view view = {.rows = 40, .columns = 120};
    cJSON *status = job_of(2);
    (void)state;
    assert_non_null(strstr(screen(status, &view, &out), "generation 1, restarts 1 of 3\n"));
    cJSON *job = cJSON_GetObjectItemCaseSensitive(status, "job");
    cJSON_SetNumberValue(cJSON_GetObjectItemCaseSensitive(job, "max_restarts"), 0);
    assert_non_null(strstr(screen(status, &view, &out), "generation 1\n"));
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void type(struct ct_stat_view *view, const char *keys)
{
    for (; *keys != '\0'; keys++) {
        assert_false(ct_stat_screen_key(view, *keys));
    }
}

static void keys_scroll_within_the_table(void **state)
{
    struct ct_stat_view view = {.rows = 16, .columns = 80, .apart = true};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = job_of(48);
    (void)state;
    (void)screen(status, &view, &out);
    assert_int_equal(view.page, 10);
    type(&view, "jj\x1b[B"); /* down three */
    assert_non_null(strstr(screen(status, &view, &out), "rows 4-13 of 48"));
    type(&view, "k\x1bOA");
    assert_non_null(strstr(screen(status, &view, &out), "rows 2-11 of 48"));
    type(&view, " \x1b[6~");
    assert_non_null(strstr(screen(status, &view, &out), "rows 22-31 of 48"));
    type(&view, "\x1b[F");
    assert_non_null(strstr(screen(status, &view, &out), "rows 39-48 of 48"));
    type(&view, "\x1b[5~");
    assert_non_null(strstr(screen(status, &view, &out), "rows 29-38 of 48"));
    type(&view, "\x1b[H\x1b[A");
    assert_non_null(strstr(screen(status, &view, &out), "rows 1-10 of 48"));
    type(&view, "\x1b[1;5Zx"); /* an unknown key */
    assert_non_null(strstr(screen(status, &view, &out), "rows 1-10 of 48"));
    assert_true(ct_stat_screen_key(&view, 'q'));
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void keys_sort_and_group(void **state)
{
    struct ct_stat_view view = {.rows = 24, .columns = 80, .apart = true};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = cJSON_Parse("{\"health\":\"healthy\",\"job\":{\"workers\":[]}}");
    cJSON *workers = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(status, "job"), "workers");
    (void)state;
    add_worker(workers, 2, "stopped", "data", 7, 1);
    add_worker(workers, 0, "starting", "data", 9, 2);
    add_worker(workers, 1, "running", "data", 8, 3);
    static const char *const orders[CT_STAT_SORTS][3] = {
        {"\n0 ", "\n1 ", "\n2 "}, /* rank */
        {"\n2 ", "\n1 ", "\n0 "}, /* step */
        {"\n1 ", "\n0 ", "\n2 "}, /* silence */
        {"\n1 ", "\n0 ", "\n2 "}, /* state */
    };
    for (int sort = 0; sort < CT_STAT_SORTS; sort++) {
        const char *at = screen(status, &view, &out);
        for (int i = 0; i < 3; i++) {
            at = strstr(at, orders[sort][i]);
            assert_non_null(at);
        }
        type(&view, "s");
    }
    assert_int_equal(view.sort, CT_STAT_BY_RANK);
    type(&view, "g");
    assert_false(view.apart);
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void many_ranges_are_cut(void **state)
{
    struct ct_stat_view view = {.rows = 24, .columns = 80};
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = cJSON_Parse("{\"health\":\"healthy\",\"job\":{\"workers\":[]}}");
    cJSON *workers = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(status, "job"), "workers");
    (void)state;
    for (int rank = 0; rank < 60; rank++) {
        add_worker(workers, rank, "running", rank % 2 == 0 ? "data" : "compute", 1, 1);
    }
    const char *text = screen(status, &view, &out);
    assert_non_null(strstr(text, "\n0,2,4,6,8,10..      30 running"));
    assert_non_null(strstr(text, "\n1,3,5,7,9,11..      30 running"));
    cJSON_Delete(status);
    ct_buf_fini(&out);
}

static void the_last_words_say_how_the_job_stood(void **state)
{
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = job_of(8), *empty = cJSON_Parse("{\"health\":\"healthy\"}");
    (void)state;
    assert_int_equal(ct_stat_screen_end(status, NULL, WHERE, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "job j1 has ended; last seen running at step 10\n"
                                           "FAILED generation 0: rank 5 on gpu-0: exit ?[2Jcode 3\n"
                                           "problem: rank 5 failed\n");
    /* Another machine may host the store of a job of several. */
    cJSON *nodes = cJSON_AddArrayToObject(cJSON_GetObjectItemCaseSensitive(status, "job"), "nodes");
    for (int i = 0; i < 2; i++) {
        assert_null(strstr(ct_buf_cstr(&out), "where the store is now"));
        cJSON_AddItemToArray(nodes, cJSON_CreateObject());
        ct_buf_reset(&out);
        assert_int_equal(ct_stat_screen_end(status, NULL, WHERE, &out), 0);
    }
    assert_non_null(strstr(ct_buf_cstr(&out), "at step 10\nunless it goes on without"));
    assert_non_null(strstr(ct_buf_cstr(&out), "where the store is now\nFAILED"));
    ct_buf_reset(&out);
    assert_int_equal(ct_stat_screen_end(empty, NULL, WHERE, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), WHERE ": the store has ended\n");
    cJSON_Delete(status);
    cJSON_Delete(empty);
    ct_buf_fini(&out);
}

static void the_last_words_say_how_the_job_ended(void **state)
{
    struct ct_buf out = CT_BUF_INIT;
    cJSON *status = job_of(8), *empty = cJSON_Parse("{\"health\":\"healthy\"}");
    cJSON *verdict = cJSON_Parse("{\"ended\":true,\"run_id\":\"j1\",\"text\":\"failed: rank 5 on "
                                 "gpu-0: \\u001b[2Jprocess 7 exited with code 3\"}");
    cJSON *strange = cJSON_Parse("{\"ended\":true,\"run_id\":7,\"text\":[]}");
    cJSON *wordy = cJSON_Parse("{\"run_id\":\"0123456789012345678901234567890123456789\","
                               "\"text\":\"succeeded\"}");
    (void)state;
    assert_int_equal(ct_stat_screen_end(status, verdict, WHERE, &out), 0);
    assert_string_equal(ct_buf_cstr(&out),
                        "job j1 failed: rank 5 on gpu-0: ?[2Jprocess 7 exited with code 3\n"
                        "last seen at step 10\n");
    ct_buf_reset(&out);
    assert_int_equal(ct_stat_screen_end(empty, strange, WHERE, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "job ? has ended\n");
    ct_buf_reset(&out);
    assert_int_equal(ct_stat_screen_end(empty, wordy, WHERE, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), "job 012345678901234567890123456789012... succeeded\n");
    cJSON_Delete(status);
    cJSON_Delete(empty);
    cJSON_Delete(verdict);
    cJSON_Delete(strange);
    cJSON_Delete(wordy);
    ct_buf_fini(&out);
}

/* What pretends to be a store may send anything. */
static void strange_documents_do_no_harm(void **state)
{
    static const char *const documents[] = {
        "1",
        "[]",
        "{\"job\":1}",
        "{\"job\":{\"workers\":{\"a\":1},\"failures\":3}}",
        ("{\"jobs\":[{},{\"workers\":[1,null,{\"rank\":1e300,\"state\":4,\"progress\":[]},"
         "{\"rank\":-1e300,\"exit\":\"x\"}]},7]}"),
    };
    struct ct_buf out = CT_BUF_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        struct ct_stat_view view = {.rows = 24, .columns = 80};
        cJSON *status = cJSON_Parse(documents[i]);
        assert_fits(screen(status, &view, &out), &view);
        ct_buf_reset(&out);
        assert_int_equal(ct_stat_screen_end(status, NULL, WHERE, &out), 0);
        cJSON_Delete(status);
    }
    ct_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_workers_are_one_row_and_failures_come_first),
        cmocka_unit_test(the_curve_stands_below_the_job),
        cmocka_unit_test(who_hangs_comes_next),
        cmocka_unit_test(it_fits_every_window),
        cmocka_unit_test(what_is_cut_has_a_mark),
        cmocka_unit_test(restarts_are_shown_if_the_job_may_have_some),
        cmocka_unit_test(keys_scroll_within_the_table),
        cmocka_unit_test(keys_sort_and_group),
        cmocka_unit_test(many_ranges_are_cut),
        cmocka_unit_test(the_last_words_say_how_the_job_stood),
        cmocka_unit_test(the_last_words_say_how_the_job_ended),
        cmocka_unit_test(strange_documents_do_no_harm),
    };
    return cmocka_run_group_tests_name("stat_screen", tests, NULL, NULL);
}
