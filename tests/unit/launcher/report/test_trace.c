/* SPDX-License-Identifier: Apache-2.0
 *
 * The trace of a job: its spans, counters and marks, on virtual time.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "launcher/report/trace.h"
#include "rendezvous/wire/json.h"
#include "rendezvous/wire/json_fields.h"
#include "tests/lib/fault.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define AT_S(s) ((int64_t)((s) * (double)CT_NS_PER_S))
#define UNIX_S 1000000

struct fixture {
    struct ct_trace trace;
    struct ct_failure_history history;
    struct ct_progress pages[2];
    bool valid[2];
};

static int set_up(void **state)
{
    static struct fixture f;
    f = (struct fixture){.valid = {true, true}};
    for (int i = 0; i < 2; i++) {
        f.pages[i] = (struct ct_progress){.loss = (double)NAN, .rate = (double)NAN};
    }
    ct_json_use_our_memory();
    assert_int_equal(ct_trace_init(&f.trace, 2, AT_S(UNIX_S), "vm", 42), 0);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_trace_fini(&f->trace);
    return 0;
}

static cJSON *print(struct fixture *f, double now_s)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_trace_print(&f->trace, "vm", 3, &f->history, AT_S(now_s), &text), 0);
    cJSON *all = cJSON_Parse(ct_buf_cstr(&text));
    assert_true(cJSON_IsArray(all));
    ct_buf_fini(&text);
    return all;
}

/* Returns the event of that name on that track, or NULL. */
static const cJSON *find(const cJSON *all, const char *name, int track)
{
    const cJSON *event;
    cJSON_ArrayForEach(event, all)
    {
        if (strcmp(ct_json_text(event, "name", ""), name) == 0 &&
            (int)ct_json_number(event, "tid", -1) == track) {
            return event;
        }
    }
    return NULL;
}

static void assert_span(const cJSON *all, const char *name, int track, double begin_s, double end_s)
{
    const cJSON *event = find(all, name, track);
    assert_non_null(event);
    assert_string_equal(ct_json_text(event, "ph", ""), "X");
    assert_int_equal(llround(ct_json_number(event, "ts", 0)), llround((UNIX_S + begin_s) * 1e6));
    assert_int_equal(llround(ct_json_number(event, "dur", 0)), llround((end_s - begin_s) * 1e6));
}

static const char *argument(const cJSON *event, const char *name)
{
    return ct_json_text(cJSON_GetObjectItem(event, "args"), name, "-");
}

static void begin(struct fixture *f)
{
    ct_trace_job_begin(&f->trace, CT_TRACE_CONNECT, AT_S(1));
    ct_trace_job_end(&f->trace, CT_TRACE_CONNECT, NULL, AT_S(2));
    ct_trace_job_begin(&f->trace, CT_TRACE_RENDEZVOUS, AT_S(2));
    ct_trace_world(&f->trace, 0, 0, 4, 8, AT_S(5));
    for (int i = 0; i < 2; i++) {
        ct_trace_worker_begin(&f->trace, i, 6 + i, 100 + i, AT_S(5.5));
    }
}

static void sample(struct fixture *f, double now_s)
{
    ct_trace_sample(&f->trace, f->pages, f->valid, AT_S(now_s));
}

static void a_generation_and_its_workers_are_spans(void **state)
{
    struct fixture *f = *state;
    begin(f);
    ct_trace_worker_end(&f->trace, 0, "exited with code 3", AT_S(7));
    ct_trace_job_begin(&f->trace, CT_TRACE_STOP, AT_S(7));
    ct_trace_worker_end(&f->trace, 1, "was killed", AT_S(8));
    ct_trace_job_begin(&f->trace, CT_TRACE_STOP, AT_S(7.5)); /* goes on */
    ct_trace_job_end(&f->trace, CT_TRACE_STOP, NULL, AT_S(8));
    ct_trace_job_end(&f->trace, CT_TRACE_GENERATION, "process 100", AT_S(8));
    cJSON *all = print(f, 9);
    assert_span(all, "connect", 0, 1, 2);
    assert_span(all, "rendezvous", 0, 2, 5);
    assert_span(all, "generation 0", 0, 5, 8);
    assert_span(all, "stop workers", 0, 7, 8);
    assert_span(all, "rank 6", 1, 5.5, 7);
    assert_span(all, "rank 7", 2, 5.5, 8);
    assert_string_equal(argument(find(all, "rank 6", 1), "end"), "exited with code 3");
    assert_string_equal(argument(find(all, "generation 0", 0), "why"), "process 100");
    assert_string_equal(argument(find(all, "process_name", 0), "name"), "node 3 (vm)");
    assert_string_equal(argument(find(all, "thread_name", 2), "name"), "worker 1");
    cJSON_Delete(all);
}

static void what_is_open_ends_with_the_job(void **state)
{
    struct fixture *f = *state;
    begin(f);
    cJSON *all = print(f, 9);
    assert_span(all, "rank 6", 1, 5.5, 9);
    assert_span(all, "generation 0", 0, 5, 9);
    cJSON_Delete(all);
}

static void a_phase_that_was_seen_twice_is_a_span(void **state)
{
    struct fixture *f = *state;
    begin(f);
    struct ct_progress *page = &f->pages[1];
    page->phase = CT_PHASE_STARTING;
    page->stamp_ns = AT_S(5.6);
    sample(f, 6);
    sample(f, 6.1);
    *page = (struct ct_progress){.phase = CT_PHASE_COLLECTIVE,
                                 .step = 3,
                                 .turns = 1,
                                 .stamp_ns = AT_S(6.15),
                                 .first_ns = AT_S(6.12),
                                 .loss = (double)NAN,
                                 .rate = (double)NAN};
    sample(f, 6.2);
    sample(f, 6.3);
    sample(f, 6.4);
    page->phase = CT_PHASE_DATA; /* once only */
    page->stamp_ns = AT_S(6.45);
    sample(f, 6.5);
    page->phase = CT_PHASE_COMPUTE;
    page->stamp_ns = AT_S(6.55);
    sample(f, 6.6);
    cJSON *all = print(f, 9);
    assert_span(all, "start-up", 2, 5.5, 6.12);
    assert_span(all, "collective", 2, 6.15, 6.4);
    assert_null(find(all, "starting", 2));
    assert_null(find(all, "data", 2));
    assert_null(find(all, "compute", 2));
    assert_null(find(all, "start-up", 1));
    cJSON_Delete(all);
}

static void a_checkpoint_is_a_span_once(void **state)
{
    struct fixture *f = *state;
    begin(f);
    f->pages[0].phase = CT_PHASE_COMPUTE;
    f->pages[0].stamp_ns = AT_S(7);
    f->pages[0].checkpoint_begin_ns = AT_S(6.5);
    f->pages[0].checkpoint_end_ns = AT_S(6.6);
    sample(f, 7);
    sample(f, 7.1);
    /* What a process of an earlier generation has left does not count. */
    f->pages[1].stamp_ns = AT_S(7);
    f->pages[1].checkpoint_begin_ns = AT_S(5.1);
    f->pages[1].checkpoint_end_ns = AT_S(5.2);
    sample(f, 7.2);
    cJSON *all = print(f, 9);
    assert_span(all, "checkpoint", 1, 6.5, 6.6);
    assert_null(find(all, "checkpoint", 2));
    int count = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, all)
    {
        count += strcmp(ct_json_text(event, "name", ""), "checkpoint") == 0;
    }
    assert_int_equal(count, 1);
    cJSON_Delete(all);
}

static void counters_have_a_number_for_each_rank_that_told_one(void **state)
{
    struct fixture *f = *state;
    begin(f);
    f->pages[0] =
        (struct ct_progress){.step = 40, .stamp_ns = AT_S(6), .loss = 0.5, .rate = (double)NAN};
    f->pages[1] = (struct ct_progress){
        .step = 41, .stamp_ns = AT_S(6), .loss = (double)NAN, .rate = (double)NAN};
    sample(f, 6);
    sample(f, 6.9); /* too soon for another */
    f->pages[0].step = 50;
    sample(f, 7);
    cJSON *all = print(f, 9);
    const cJSON *steps = cJSON_GetObjectItem(find(all, "step", 0), "args");
    assert_int_equal(llround(ct_json_number(steps, "rank 6", 0)), llround(40));
    assert_int_equal(llround(ct_json_number(steps, "rank 7", 0)), llround(41));
    const cJSON *losses = cJSON_GetObjectItem(find(all, "loss", 0), "args");
    assert_true(ct_json_number(losses, "rank 6", 0) == 0.5);
    assert_null(cJSON_GetObjectItem(losses, "rank 7"));
    assert_null(find(all, "samples/s", 0));
    int count = 0;
    const cJSON *event;
    cJSON_ArrayForEach(event, all)
    {
        count += strcmp(ct_json_text(event, "name", ""), "step") == 0;
    }
    assert_int_equal(count, 2);
    cJSON_Delete(all);
}

static void a_long_job_has_fewer_counters(void **state)
{
    struct fixture *f = *state;
    begin(f);
    for (int i = 0; i < 4000; i++) {
        f->pages[0].stamp_ns = AT_S(6 + i);
        sample(f, 6 + i);
    }
    assert_int_equal(f->trace.counts,
                     1000 + 1000 + 250); /* each second, then each other, then each fourth */
    cJSON_Delete(print(f, 5000));
}

static void marks_are_escaped(void **state)
{
    struct fixture *f = *state;
    begin(f);
    ct_trace_instant(&f->trace, 1, "exited\x1b \xff\"", AT_S(6));
    cJSON *all = print(f, 9);
    const cJSON *mark = find(all, "exited\\x1b \\xff\"", 2);
    assert_non_null(mark);
    assert_string_equal(ct_json_text(mark, "ph", ""), "i");
    assert_string_equal(ct_json_text(mark, "s", ""), "t");
    cJSON_Delete(all);
}

static void failures_of_other_machines_are_marked(void **state)
{
    struct fixture *f = *state;
    begin(f);
    f->history.num_failures = 2;
    f->history.failures[0] = (struct ct_failure){.node_rank = 3, .time_ms = 1, .what = "here"};
    f->history.failures[1] = (struct ct_failure){
        .node_rank = 1, .time_ms = (UNIX_S + 8) * 1000, .host = "gpu-1", .what = "silent"};
    cJSON *all = print(f, 9);
    const cJSON *mark = find(all, "node 1 (gpu-1): silent", 0);
    assert_non_null(mark);
    assert_int_equal(llround(ct_json_number(mark, "ts", 0)), llround((UNIX_S + 8.0) * 1e6));
    assert_null(find(all, "node 3 (): here", 0));
    cJSON_Delete(all);
}

/* The wire allows any whole number that JSON holds exactly. */
static void a_failure_at_an_impossible_time_is_left_out(void **state)
{
    struct fixture *f = *state;
    begin(f);
    f->history.num_failures = 2;
    f->history.failures[0] = (struct ct_failure){
        .node_rank = 1, .time_ms = CT_JSON_INT_MAX, .host = "gpu-1", .what = "silent"};
    f->history.failures[1] = (struct ct_failure){
        .node_rank = 2, .time_ms = (UNIX_S + 8) * 1000, .host = "gpu-2", .what = "silent"};
    cJSON *all = print(f, 9);
    assert_null(find(all, "node 1 (gpu-1): silent", 0));
    assert_non_null(find(all, "node 2 (gpu-2): silent", 0));
    cJSON_Delete(all);
}

static void what_does_not_fit_is_counted(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(ct_buf_reserve(&f->trace.events, CT_TRACE_MAX), 0);
    memset(ct_buf_tail(&f->trace.events), ' ', CT_TRACE_MAX);
    f->trace.events.len = CT_TRACE_MAX - 250;
    ct_trace_instant(&f->trace, 0, "fits", AT_S(6));
    assert_int_equal(f->trace.dropped, 0);
    for (int i = 0; i < 10; i++) {
        ct_trace_instant(&f->trace, 0, "does not", AT_S(6));
    }
    assert_int_equal(f->trace.dropped, 9);
    assert_true(f->trace.events.len <= CT_TRACE_MAX + 2);
}

static void without_trace_nothing_is_recorded(void **state)
{
    (void)state;
    struct ct_trace none = {0};
    struct ct_progress page = {0};
    bool valid = true;
    ct_trace_job_begin(&none, CT_TRACE_STOP, 1);
    ct_trace_job_end(&none, CT_TRACE_STOP, NULL, 2);
    ct_trace_world(&none, 0, 0, 1, 1, 3);
    ct_trace_worker_begin(&none, 0, 0, 1, 4);
    ct_trace_worker_end(&none, 0, "", 5);
    ct_trace_sample(&none, &page, &valid, 6);
    ct_trace_instant(&none, -1, "", 7);
    assert_int_equal(none.events.len, 0);
    ct_trace_fini(&none);
}

static int whole_trace(void *data)
{
    struct fixture *f = data;
    struct ct_buf text = CT_BUF_INIT;
    int rc = ct_trace_init(&f->trace, 2, AT_S(UNIX_S), "vm", 42);
    if (rc == 0) {
        begin(f);
        ct_trace_instant(&f->trace, 0, "mark", AT_S(6));
        sample(f, 6);
        rc = ct_trace_print(&f->trace, "vm", 3, &f->history, AT_S(9), &text);
    }
    ct_buf_fini(&text);
    ct_trace_fini(&f->trace);
    return rc;
}

static void without_memory_events_are_left_out(void **state)
{
    struct fixture *f = *state;
    ct_trace_fini(&f->trace);
    assert_true(ct_fault_sweep(whole_trace, f, 1) >= 10);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_generation_and_its_workers_are_spans),
        TEST(what_is_open_ends_with_the_job),
        TEST(a_phase_that_was_seen_twice_is_a_span),
        TEST(a_checkpoint_is_a_span_once),
        TEST(counters_have_a_number_for_each_rank_that_told_one),
        TEST(a_long_job_has_fewer_counters),
        TEST(marks_are_escaped),
        TEST(failures_of_other_machines_are_marked),
        TEST(a_failure_at_an_impossible_time_is_left_out),
        TEST(what_does_not_fit_is_counted),
        TEST(without_trace_nothing_is_recorded),
        TEST(without_memory_events_are_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
