/* SPDX-License-Identifier: Apache-2.0
 *
 * The failure history: the ring, copies, and JSON both ways.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "rendezvous/control/failure_history.h"
#include "rendezvous/wire/json.h"

#include <stdio.h>
#include <stdlib.h>

static struct ct_failure a_failure(int generation)
{
    return (struct ct_failure){
        .kind = CT_FAILURE_SILENT,
        .generation = generation,
        .node_rank = 2,
        .host = "gpu-3",
        .rank = 17,
        .local_rank = 1,
        .pid = 4711,
        .exit_code = 137,
        .permanent = true,
        .early = true,
        .time_ms = INT64_C(1790000000123),
        .what = "process 4711 was killed by signal 9 (SIGKILL)",
    };
}

/* Blocks to be freed by ct_free() come from the table that is installed. */
static int give_texts(struct ct_failure *failure, const char *text)
{
    failure->tail = ct_strdup(text);
    failure->message = ct_strdup("message");
    failure->traceback = ct_strdup("traceback");
    failure->advice = ct_strdup("advice");
    if (failure->tail == NULL || failure->message == NULL || failure->traceback == NULL ||
        failure->advice == NULL) {
        ct_failure_fini(failure);
        return CT_ENOMEM;
    }
    return 0;
}

static void assert_same(const struct ct_failure *a, const struct ct_failure *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->node_rank, b->node_rank);
    assert_string_equal(a->host, b->host);
    assert_int_equal(a->rank, b->rank);
    assert_int_equal(a->local_rank, b->local_rank);
    assert_int_equal(a->pid, b->pid);
    assert_int_equal(a->exit_code, b->exit_code);
    assert_int_equal(a->permanent, b->permanent);
    assert_int_equal(a->early, b->early);
    assert_int_equal(a->time_ms, b->time_ms);
    assert_string_equal(a->what, b->what);
    assert_string_equal(a->tail, b->tail);
    assert_string_equal(a->message, b->message);
    assert_string_equal(a->traceback, b->traceback);
    assert_string_equal(a->advice, b->advice);
}

static int round_trip(void *data)
{
    struct ct_failure failure = a_failure(3), copy = {0}, read = {0};
    struct cJSON *json = NULL;
    int rc = give_texts(&failure, "one\ntwo\n");
    if (rc == 0) {
        rc = ct_failure_copy(&failure, &copy);
    }
    if (rc == 0) {
        rc = ct_failure_to_json(&copy, &json);
    }
    if (rc == 0) {
        rc = ct_failure_from_json(json, &read, NULL);
    }
    if (rc == 0) {
        assert_same(&failure, &read);
        *(int *)data += 1;
    }
    cJSON_Delete(json);
    ct_failure_fini(&failure);
    ct_failure_fini(&copy);
    ct_failure_fini(&read);
    return rc;
}

static void test_a_failure_is_read_as_it_was_written(void **state)
{
    int done = 0;
    (void)state;
    assert_true(ct_fault_sweep(round_trip, &done, 0) > 20);
    assert_int_equal(done, 1);
}

/* Twenty failures and rounds, of which the last 16 are kept. */
static struct ct_failure_history *a_story(const char *tail)
{
    struct ct_failure_history *story = calloc(1, sizeof(*story));
    assert_non_null(story);
    for (int i = 0; i < 20; i++) {
        struct ct_failure *failure =
            &story->failures[story->num_failures++ % CT_FAILURE_HISTORY_KEPT];
        ct_failure_fini(failure);
        *failure = a_failure(i / 2);
        failure->rank = i;
        assert_int_equal(give_texts(failure, tail), 0);
        struct ct_history_round *round =
            &story->rounds[story->num_rounds++ % CT_FAILURE_HISTORY_KEPT];
        *round = (struct ct_history_round){i, 2, 16, 1000 + i, 2000 + i, 30 + i, i % 3, "rank 3"};
    }
    return story;
}

static void free_story(struct ct_failure_history *story)
{
    ct_failure_history_fini(story);
    free(story);
}

static void test_the_first_failure_of_a_generation_is_found(void **state)
{
    struct ct_failure_history *story = a_story("t");
    (void)state;
    assert_int_equal(ct_failure_history_first(story, 9)->rank, 18);
    assert_int_equal(ct_failure_history_first(story, 2)->rank, 4);
    assert_null(ct_failure_history_first(story, 1)); /* forgotten */
    assert_null(ct_failure_history_first(story, 10));
    free_story(story);
}

static void test_a_history_is_read_as_it_was_written(void **state)
{
    struct ct_failure_history *story = a_story("t"), *read = calloc(1, sizeof(*read));
    struct cJSON *json = NULL;
    (void)state;
    assert_int_equal(ct_failure_history_to_json(story, &json), 0);
    assert_int_equal(ct_failure_history_from_json(json, read, NULL), 0);
    assert_int_equal(read->num_failures, 20);
    assert_int_equal(read->num_rounds, 20);
    for (int i = 0; i < CT_FAILURE_HISTORY_KEPT; i++) {
        assert_same(&story->failures[i], &read->failures[i]);
        assert_memory_equal(&story->rounds[i], &read->rounds[i], sizeof(read->rounds[i]));
    }
    cJSON_Delete(json);
    free_story(story);
    free_story(read);
}

/* The one to blame for the end keeps its texts, old ones lose them. */
static void test_long_texts_have_a_limit(void **state)
{
    char *tail = malloc(CT_FAILURE_TEXT_MAX);
    memset(tail, '\x1b', CT_FAILURE_TEXT_MAX - 1);
    tail[CT_FAILURE_TEXT_MAX - 1] = '\0';
    struct ct_failure_history *story = a_story(tail), *read = calloc(1, sizeof(*read));
    struct cJSON *json = NULL;
    (void)state;
    assert_int_equal(ct_failure_history_to_json(story, &json), 0);
    char *text = cJSON_PrintUnformatted(json);
    assert_true(strlen(text) < ((size_t)1 << 20) - 100);
    cJSON_free(text);
    assert_int_equal(ct_failure_history_from_json(json, read, NULL), 0);
    assert_string_equal(read->failures[18 % CT_FAILURE_HISTORY_KEPT].tail, tail);
    assert_string_equal(read->failures[19 % CT_FAILURE_HISTORY_KEPT].tail, tail);
    assert_null(read->failures[4].tail);
    cJSON_Delete(json);
    free_story(story);
    free_story(read);
    free(tail);
}

/* One text may have more bytes than all of a history may. */
static void test_the_one_to_blame_keeps_its_texts_however_long(void **state)
{
    enum { LONG = 200 << 10 };
    struct ct_failure_history *story = a_story("t");
    struct ct_failure *first = &story->failures[18 % CT_FAILURE_HISTORY_KEPT];
    struct cJSON *json = NULL;
    (void)state;
    ct_free(first->tail);
    first->tail = ct_malloc(LONG);
    memset(first->tail, 'x', LONG - 1);
    first->tail[LONG - 1] = '\0';
    assert_int_equal(ct_failure_history_to_json(story, &json), 0);
    const cJSON *failures = cJSON_GetObjectItem(json, "failures");
    int last = CT_FAILURE_HISTORY_KEPT - 1;
    assert_string_equal(ct_json_text(cJSON_GetArrayItem(failures, last - 1), "tail", ""),
                        first->tail);
    assert_string_equal(ct_json_text(cJSON_GetArrayItem(failures, last), "tail", ""), "");
    cJSON_Delete(json);
    free_story(story);
}

static void test_bytes_that_are_no_unicode_are_replaced(void **state)
{
    static const struct {
        const char *in, *out;
    } rows[] = {
        {"plain", "plain"},
        {"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80", "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"\xff\x80", "??"},
        {"\xc3", "?"},
        {"\xe2\x82", "??"},
        {"\xc0\xaf", "??"},           /* overlong */
        {"\xe0\x9f\xbf", "???"},      /* the same */
        {"\xf0\x8f\xbf\xbf", "????"}, /* the same */
        {"\xed\xa0\x80", "???"},      /* a surrogate */
        {"\xf4\x90\x80\x80", "????"}, /* beyond Unicode */
        {"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
        {"\xc3(", "?("},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct ct_failure failure = a_failure(0);
        struct cJSON *json = NULL;
        failure.tail = ct_strdup(rows[i].in);
        assert_int_equal(ct_failure_to_json(&failure, &json), 0);
        assert_string_equal(ct_json_text(json, "tail", ""), rows[i].out);
        cJSON_Delete(json);
        ct_failure_fini(&failure);
    }
}

/* ---- hostile documents ---------------------------------------------------------------------- */

static void refuse(const char *from, const char *to, const char *words)
{
    static const char good[] =
        "{\"kind\":\"worker\",\"generation\":1,\"node_rank\":0,\"host\":\"h\",\"address\":\"\","
        "\"rank\":3,"
        "\"local_rank\":1,\"pid\":42,\"exit_code\":1,\"permanent\":false,\"early\":false,\"time_"
        "ms\":5,"
        "\"what\":\"w\",\"tail\":\"t\"}";
    char text[1024];
    const char *at = strstr(good, from);
    struct ct_failure failure = {0};
    struct ct_err err = {0};
    assert_non_null(at);
    (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, to, at + strlen(from));
    struct cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    int rc = ct_failure_from_json(json, &failure, &err);
    cJSON_Delete(json);
    if (words == NULL) {
        assert_int_equal(rc, 0);
        ct_failure_fini(&failure);
        return;
    }
    assert_int_equal(rc, CT_EFORMAT);
    assert_string_equal(err.text, words);
}

static void test_a_malformed_failure_is_refused_by_field(void **state)
{
    (void)state;
    refuse("\"rank\":3", "\"rank\":3,\"more\":[]", NULL);
    refuse("\"rank\":3", "\"rank\":-1", NULL);
    refuse("\"rank\":3", "\"rank\":-2", "field \"rank\" is out of range");
    refuse("\"rank\":3", "\"rank\":1e99", "field \"rank\" is out of range");
    refuse("\"rank\":3", "\"rank\":1.5", "field \"rank\" must be a whole number");
    refuse("\"rank\":3", "\"rank\":\"3\"", "field \"rank\" must be a number");
    refuse("\"rank\":3", "\"Rank\":3", "field \"rank\" is missing");
    refuse("\"worker\"", "\"workers\"", "field \"kind\" has an unknown value");
    refuse("\"worker\"", "0", "field \"kind\" has an unknown value");
    refuse("false", "0", "field \"permanent\" must be true or false");
    refuse("\"t\"", "null", "field \"tail\" must be a text");
    refuse("\"exit_code\":1", "\"exit_code\":256", "field \"exit_code\" is out of range");
}

static void refuse_story(const char *text, const char *words)
{
    struct ct_failure_history *story = calloc(1, sizeof(*story));
    struct ct_err err = {0};
    struct cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    assert_int_equal(ct_failure_history_from_json(json, story, &err), CT_EFORMAT);
    assert_string_equal(err.text, words);
    cJSON_Delete(json);
    free_story(story);
}

static void test_a_malformed_history_is_refused_by_field(void **state)
{
    (void)state;
    refuse_story("[]", "a story must be an object");
    refuse_story("{}", "field \"failures\" must be an array of at most 16");
    refuse_story("{\"failures\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],\"failure_count\":17}",
                 "field \"failures\" must be an array of at most 16");
    refuse_story("{\"failures\":[]}", "field \"failure_count\" is missing");
    refuse_story("{\"failures\":[],\"failure_count\":1}",
                 "field \"failure_count\" does not fit \"failures\"");
    refuse_story("{\"failures\":[3],\"failure_count\":1}", "a failure must be an object");
    refuse_story("{\"failures\":[],\"failure_count\":0,\"rounds\":[1],\"round_count\":1}",
                 "a round must be an object");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failure_is_read_as_it_was_written),
        cmocka_unit_test(test_the_first_failure_of_a_generation_is_found),
        cmocka_unit_test(test_a_history_is_read_as_it_was_written),
        cmocka_unit_test(test_long_texts_have_a_limit),
        cmocka_unit_test(test_the_one_to_blame_keeps_its_texts_however_long),
        cmocka_unit_test(test_bytes_that_are_no_unicode_are_replaced),
        cmocka_unit_test(test_a_malformed_failure_is_refused_by_field),
        cmocka_unit_test(test_a_malformed_history_is_refused_by_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
