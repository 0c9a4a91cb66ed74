/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of agent control: every message both ways, and what must be refused.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "common/progress_page.h"
#include "rendezvous/control/control.h"
#include "rendezvous/wire/json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static int encode(const struct ct_msg *msg, struct ct_buf *out)
{
    int rc = ct_msg_encode(msg, out);
    if (rc == 0) {
        assert_int_equal(ct_buf_bytes(out)[0], CT_CONTROL_FIRST_BYTE);
    }
    return rc;
}

static struct ct_job_record *filled_record(void)
{
    struct ct_job_record *record = ct_calloc(1, sizeof(*record));
    assert_non_null(record);
    *record = (struct ct_job_record){
        .term = UINT64_C(3) << 32 | 9,
        .version = 4,
        .formed = {5, 2, {{71, "10.0.0.1", 4711}, {72, "fe80::1", 4712}}},
        .planned = {6, 1, {{73, "10.0.0.3", 4713}}},
        .restarts = 2,
        .over = true,
        .exit_code = 7,
    };
    return record;
}

static struct ct_msg *filled(enum ct_msg_type type)
{
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    assert_non_null(msg);
    *msg = (struct ct_msg){
        .type = type,
        .generation = 7,
        .clock_ms = 123456789,
        .lease_ms = 2750,
        .has_lease = true,
        .join = {"run",
                 "gpu-1",
                 "trainer",
                 3,
                 8,
                 4711,
                 true,
                 true,
                 true,
                 2,
                 4,
                 1,
                 5,
                 CT_JOIN_PREFLIGHT_EACH,
                 3000,
                 600000,
                 2500,
                 {.max_no_progress = 3, .window_restarts = 10, .window_ms = 5000},
                 {71, "", 4711},
                 UINT64_C(2) << 32 | 8,
                 6},
        .world = {1, 2, 8, 16, 4, 12, 2, true, "10.0.0.1", 29500, "10.0.0.7", "jax=20001"},
        .port = 29501,
        .text = "some \"words\"",
        .exit_code = 121,
        .signo = 15,
        .deadline_ms = -1,
        .will_restart = true,
        .failure = {.kind = CT_FAILURE_WORKER,
                    .rank = 5,
                    .host = "gpu-2",
                    .what = "exit 3",
                    .steps = {true, 3, 9}},
        .has_failure = true,
        .query = {17, 5, CT_QUERY_OUTPUT},
        .ok = true,
        .result = ct_strdup("the last line\n"),
        .has_answer = true,
        .version = CT_CONTROL_VERSION,
        .term = UINT64_C(3) << 32 | 9,
        .record_version = 4,
        .ask = {71, 11, 12, 13},
        .vote = {72, 14, 15, 16, true, 17, NULL, NULL, 18},
        .host = {73, "10.0.0.3", 4713},
        .daemon = true,
        .record = filled_record(),
        .still = {CT_HANG_VOTE_BEHIND, 7, 3, 41, true, true, 2500, true},
        .hang = {true, 7, 3, 61000, "it is stopped"},
        .warm = {4, 3, 2, 300, "an import has printed: x", .making = CT_WARM_MAKING_OFF},
    };
    memset(msg->nonce, 0x5a, sizeof(msg->nonce));
    memset(msg->answer, 0xa5, sizeof(msg->answer));
    msg->history.failures[0] = msg->failure;
    msg->history.num_failures = 1;
    return msg;
}

static void give_rows(struct ct_msg *msg, int count)
{
    msg->has_rows = true;
    msg->num_rows = count;
    msg->rows = ct_calloc((size_t)count, sizeof(msg->rows[0]));
    assert_non_null(msg->rows);
    for (int i = 0; i < count; i++) {
        msg->rows[i].rank = 8 + i;
        msg->rows[i].local_rank = i;
        msg->rows[i].rss_mib = count <= CT_ROW_MEMORY_WORKERS ? 512 + i : 0;
        memcpy(msg->rows[i].loss_text, "0", 2);
        memcpy(msg->rows[i].rate_text, "0", 2);
    }
}

/* What matters for the type comes back, nothing else does. */
static void compare(const struct ct_msg *a, const struct ct_msg *b)
{
    static const struct ct_msg none;
    enum ct_msg_type type = a->type;
    assert_int_equal(type, b->type);
    assert_int_equal(b->generation, type == CT_MSG_SERVING || type == CT_MSG_STARTED ||
                                            type == CT_MSG_FAILED || type == CT_MSG_FINISHED ||
                                            type == CT_MSG_STOPPED || type == CT_MSG_WORLD ||
                                            type == CT_MSG_STOP || type == CT_MSG_QUERY ||
                                            type == CT_MSG_STANDS
                                        ? 7
                                        : 0);
    assert_int_equal(b->has_lease, type == CT_MSG_BEAT);
    assert_int_equal(b->lease_ms, type == CT_MSG_BEAT ? 2750 : 0);
    bool timed = type == CT_MSG_FAILED || type == CT_MSG_BEAT || type == CT_MSG_PLEDGE;
    assert_int_equal(b->clock_ms, timed ? 123456789 : 0);
    bool pledge = type == CT_MSG_PLEDGE, vote = type == CT_MSG_VOTE;
    bool accepted = type == CT_MSG_ACCEPTED, ask = type == CT_MSG_ASK;
    assert_true(b->term == (pledge || accepted || ask ? a->term : 0) &&
                b->record_version == (pledge ? 4 : 0));
    assert_memory_equal(&b->ask, type == CT_MSG_ASK ? &a->ask : &none.ask, sizeof(b->ask));
    assert_memory_equal(&b->vote, vote ? &a->vote : &none.vote, sizeof(b->vote));
    const struct ct_voter named = {.id = 73}, port = {.port = 4713};
    assert_memory_equal(&b->host,
                        vote       ? &a->host
                        : accepted ? &named
                        : ask      ? &port
                                   : &none.host,
                        sizeof(b->host));
    assert_int_equal(b->daemon, accepted);
    assert_int_equal(b->record != NULL, vote || type == CT_MSG_RECORD);
    if (b->record != NULL) {
        assert_memory_equal(b->record, a->record, sizeof(*b->record));
    }
    struct ct_msg_join host_name = {.queries = false};
    struct ct_msg_join run_id = {.queries = false};
    memcpy(host_name.host, a->join.host, sizeof(host_name.host));
    memcpy(run_id.run_id, a->join.run_id, sizeof(run_id.run_id));
    assert_memory_equal(&b->join,
                        type == CT_MSG_JOIN ? &a->join
                        : accepted          ? &host_name
                        : ask               ? &run_id
                                            : &none.join,
                        sizeof(b->join));
    struct ct_msg_world world = type == CT_MSG_WORLD ? a->world : none.world;
    if (type == CT_MSG_SERVING) {
        memcpy(world.ports, a->world.ports, sizeof(world.ports));
    }
    world.restarts = type == CT_MSG_OVER ? a->world.restarts : world.restarts;
    assert_memory_equal(&b->world, &world, sizeof(world));
    assert_int_equal(b->port, type == CT_MSG_SERVING ? 29501 : 0);
    bool has_text = type == CT_MSG_REFUSED || type == CT_MSG_WAITING || type == CT_MSG_STOP ||
                    type == CT_MSG_PREEMPT || type == CT_MSG_LEAVE || type == CT_MSG_SERVING ||
                    type == CT_MSG_ACCEPTED || type == CT_MSG_OVER || type == CT_MSG_BEAT ||
                    type == CT_MSG_SPARE;
    assert_string_equal(b->text, has_text ? a->text : "");
    assert_int_equal(b->exit_code,
                     type == CT_MSG_REFUSED || type == CT_MSG_OVER || type == CT_MSG_LEAVE ? 121
                                                                                           : 0);
    assert_int_equal(b->signo, type == CT_MSG_PREEMPT ? 15 : 0);
    assert_int_equal(b->deadline_ms, type == CT_MSG_PREEMPT ? -1 : 0);
    assert_int_equal(b->will_restart, type == CT_MSG_STOP);
    assert_int_equal(b->has_failure, type == CT_MSG_FAILED || type == CT_MSG_STOPPED);
    assert_string_equal(b->failure.what, b->has_failure ? "exit 3" : "");
    assert_int_equal(b->history.num_failures, type == CT_MSG_STOP || type == CT_MSG_OVER);
    bool asks = type == CT_MSG_QUERY, tells = type == CT_MSG_RESULT;
    assert_int_equal(b->query.id, asks || tells ? 17 : 0);
    assert_int_equal(b->query.rank, asks ? 5 : 0);
    assert_string_equal(b->query.kind, asks ? CT_QUERY_OUTPUT : "");
    assert_int_equal(b->ok, tells);
    assert_string_equal(b->result != NULL ? b->result : "",
                        tells || type == CT_MSG_STANDS ? "the last line\n" : "");
    assert_int_equal(b->has_answer, type == CT_MSG_CHALLENGE || type == CT_MSG_ANSWER);
    assert_memory_equal(b->answer, b->has_answer ? a->answer : none.answer, CT_ANSWER_LEN);
    assert_memory_equal(b->nonce,
                        type == CT_MSG_OPEN || type == CT_MSG_CHALLENGE ? a->nonce : none.nonce,
                        CT_NONCE_LEN);
    assert_int_equal(b->still.kind, type == CT_MSG_BEAT ? CT_HANG_VOTE_BEHIND : CT_HANG_VOTE_NO);
    if (type == CT_MSG_BEAT) {
        assert_int_equal(b->still.generation, 7);
        assert_int_equal(b->still.rank, 3);
        assert_int_equal(b->still.step, 41);
        assert_true(b->still.alone && b->still.sure && b->still.asks);
        assert_int_equal(b->still.still_ms, 2500);
        assert_int_equal(b->warm.ready, 3);
        assert_int_equal(b->warm.workers, 2);
        assert_int_equal(b->warm.mib, 300);
        assert_string_equal(b->warm.off, a->warm.off);
        assert_int_equal(b->warm.making, CT_WARM_MAKING_OFF);
    }
    assert_int_equal(b->hang.stands, type == CT_MSG_BEAT);
    if (b->hang.stands) {
        assert_int_equal(b->hang.generation, 7);
        assert_int_equal(b->hang.rank, 3);
        assert_int_equal(b->hang.still_ms, 61000);
        assert_string_equal(b->hang.why, "it is stopped");
    }
    assert_int_equal(b->warm.wanted, type == CT_MSG_BEAT ? 4 : 0);
    assert_int_equal(b->has_rows, type == CT_MSG_BEAT || type == CT_MSG_STARTED);
    assert_int_equal(b->num_rows, b->has_rows ? a->num_rows : 0);
    if (b->has_rows) {
        assert_memory_equal(b->rows, a->rows, (size_t)a->num_rows * sizeof(a->rows[0]));
    }
}

static void test_every_message_is_read_as_it_was_written(void **state)
{
    (void)state;
    ct_json_use_our_memory();
    for (int type = 0; type < CT_MSG_TYPES; type++) {
        struct ct_msg *msg = filled((enum ct_msg_type)type), *read = calloc(1, sizeof(*read));
        struct ct_buf bytes = CT_BUF_INIT;
        struct ct_err err = {0};
        size_t used = 0;
        give_rows(msg, 3);
        assert_int_equal(encode(msg, &bytes), 0);
        assert_int_equal(memmem(ct_buf_bytes(&bytes), bytes.len, "\"story\"", 7) != NULL,
                         type == CT_MSG_STOP || type == CT_MSG_OVER);
        for (size_t len = 0; len < bytes.len; len++) {
            assert_int_equal(
                ct_msg_decode(ct_buf_bytes(&bytes), len, CT_CONTROL_MAX_FRAME, read, &used, &err),
                CT_MSG_E_MORE);
        }
        size_t len = bytes.len;
        assert_int_equal(ct_buf_append(&bytes, "\x80", 1), 0); /* the next one begins */
        int rc = ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, len, read, &used, &err);
        if (rc != 0) {
            fail_msg("%s: %s", ct_msg_name(msg->type), err.text);
        }
        assert_int_equal(used, len);
        compare(msg, read);
        assert_int_equal(ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, len - 1, read, &used, &err),
                         CT_ELIMIT);
        ct_msg_fini(msg);
        ct_msg_fini(read);
        free(msg);
        free(read);
        ct_buf_fini(&bytes);
    }
}

/* A frame with this text; the outcome and the words. */
static int decode_text(const char *text, struct ct_err *err)
{
    struct ct_buf bytes = CT_BUF_INIT;
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    static const struct ct_msg none;
    size_t len = strlen(text), used = 0;
    const unsigned char header[] = {0x80, (unsigned char)(len >> 16), (unsigned char)(len >> 8),
                                    (unsigned char)len};
    assert_int_equal(ct_buf_append(&bytes, header, sizeof(header)), 0);
    assert_int_equal(ct_buf_append(&bytes, text, len), 0);
    err->text[0] = '\0';
    int rc = ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, CT_CONTROL_MAX_FRAME, msg, &used, err);
    if (rc != 0) {
        assert_memory_equal(msg, &none, sizeof(none));
    }
    ct_msg_fini(msg);
    free(msg);
    ct_buf_fini(&bytes);
    return rc;
}

static void take(const char *text)
{
    struct ct_err err = {0};
    if (decode_text(text, &err) != 0) {
        fail_msg("%s: %s", text, err.text);
    }
}

static void refuse(const char *text, const char *words)
{
    struct ct_err err = {0};
    if (decode_text(text, &err) != CT_EFORMAT) {
        fail_msg("accepted: %s", text);
    }
    assert_string_equal(err.text, words);
}

#define HEX31 "00112233445566778899aabbccddeeff00112233445566778899aabbccddee"
#define ONE_OBJECT "a frame must hold one JSON object and nothing else"

static void test_malformed_messages_are_refused_by_field(void **state)
{
    (void)state;
    take("{\"type\":\"spare\"}");
    take("{\"more\":{\"type\":1},\"type\":\"spare\"}");
    refuse("", ONE_OBJECT);
    refuse("[]", ONE_OBJECT);
    refuse("{\"type\":\"spare\"} ", ONE_OBJECT);
    refuse("{\"type\":\"spare\"}{}", ONE_OBJECT);
    refuse("{\"type\":\"spare\"", ONE_OBJECT);
    refuse("{}", "field \"type\" is missing");
    refuse("{\"type\":\"hello\"}", "field \"type\" has an unknown value");
    refuse("{\"type\":3}", "field \"type\" has an unknown value");
    take("{\"type\":\"open\",\"version\":1,\"nonce\":\"" HEX31 "ff\"}");
    refuse("{\"type\":\"open\",\"version\":1,\"nonce\":\"" HEX31 "\"}",
           "message \"open\": field \"nonce\" must have the right number of hexadecimal digits");
    refuse("{\"type\":\"open\",\"version\":1,\"nonce\":\"" HEX31 "fg\"}",
           "message \"open\": field \"nonce\" must have the right number of hexadecimal digits");
    refuse("{\"type\":\"open\",\"version\":1,\"nonce\":7}",
           "message \"open\": field \"nonce\" must have the right number of hexadecimal digits");
    take("{\"type\":\"challenge\",\"nonce\":\"" HEX31 "ff\"}");
    take("{\"type\":\"answer\"}");
    refuse("{\"type\":\"answer\",\"answer\":\"\"}",
           "message \"answer\": field \"answer\" must have the right number of hexadecimal digits");
    refuse("{\"type\":\"serving\",\"generation\":0,\"port\":65536,\"address\":\"\"}",
           "message \"serving\": field \"port\" is out of range");
    refuse("{\"type\":\"finished\",\"generation\":2147483648}",
           "message \"finished\": field \"generation\" is out of range");
    refuse("{\"type\":\"beat\",\"clock_ms\":1,\"workers\":{}}",
           "message \"beat\": field \"workers\" must be an array");
    take("{\"type\":\"stopped\",\"generation\":1}");
    refuse("{\"type\":\"failed\",\"generation\":1,\"clock_ms\":1}",
           "message \"failed\": a failure must be an object");
    refuse("{\"type\":\"over\",\"text\":\"\",\"exit_code\":1}",
           "message \"over\": a story must be an object");
}

static void test_texts_have_a_length(void **state)
{
    char text[CT_FAILURE_WHAT_MAX + 100], words[CT_FAILURE_WHAT_MAX];
    (void)state;
    memset(words, 'x', sizeof(words));
    (void)snprintf(text, sizeof(text), "{\"type\":\"waiting\",\"text\":\"%.*s\"}",
                   CT_FAILURE_WHAT_MAX - 1, words);
    take(text);
    (void)snprintf(text, sizeof(text), "{\"type\":\"waiting\",\"text\":\"%.*s\"}",
                   CT_FAILURE_WHAT_MAX, words);
    refuse(text, "message \"waiting\": field \"text\" is too long");
}

static void test_a_header_that_is_no_frame_is_refused(void **state)
{
    struct ct_msg *msg = calloc(1, sizeof(*msg));
    struct ct_err err = {0};
    size_t used = 0;
    (void)state;
    assert_int_equal(ct_msg_decode("G", 1, 1024, msg, &used, &err), CT_EPROTO);
    assert_int_equal(ct_msg_decode("\x81", 1, 1024, msg, &used, &err), CT_ELIMIT);
    assert_int_equal(ct_msg_decode("\x80\0\4\0", 4, 1024, msg, &used, &err), CT_ELIMIT);
    /* The shortest body that is too long: the header counts, too. */
    assert_int_equal(ct_msg_decode("\x80\0\3\xfd", 4, 1024, msg, &used, &err), CT_ELIMIT);
    assert_string_equal(err.text, "a frame of 1025 bytes is longer than the limit of 1024");
    assert_int_equal(ct_msg_decode("\x80\0\3\xfc", 4, 1024, msg, &used, &err), CT_MSG_E_MORE);
    assert_int_equal(ct_msg_decode("\x80\0\3\xfc", 4, 1024, msg, &used, &err), CT_MSG_E_MORE);
    assert_int_equal(ct_msg_decode("\x80\0\0\0", 4, 1024, msg, &used, &err), CT_EFORMAT);
    assert_int_equal(ct_msg_decode("\x80\0\0\0", 4, 3, msg, &used, &err), CT_ELIMIT);
    free(msg);
}

/* Every number at its longest: a frame has room for all that one node may have. */
static void test_rows_of_the_largest_node(void **state)
{
    struct ct_msg *msg = filled(CT_MSG_BEAT), *read = calloc(1, sizeof(*read));
    struct ct_buf bytes = CT_BUF_INIT;
    size_t used = 0;
    (void)state;
    give_rows(msg, CT_MAX_NODE_WORKERS);
    for (int i = 0; i < CT_MAX_NODE_WORKERS; i++) {
        msg->rows[i] = (struct ct_worker_row){
            .rank = CT_MAX_WORLD - CT_MAX_NODE_WORKERS + i,
            .local_rank = i,
            .generation = INT_MAX,
            .state = CT_ROW_SUCCEEDED,
            .phase = CT_PHASE_COLLECTIVE,
            .ended = false,
            .exit_code = 255,
            .pid = INT32_MAX,
            .step = 999999999999999,
            .age_ms = CT_CONTROL_MAX_MS,
            .loss = -1.23456789012345e-300,
            .rate = -1.23456789012345e-300,
            .loss_text = "-1.23456789e-300",
            .rate_text = "-1.23456789e-300",
        };
    }
    assert_int_equal(encode(msg, &bytes), 0);
    assert_true(bytes.len <= CT_CONTROL_MAX_OF_NODE(CT_MAX_NODE_WORKERS));
    assert_int_equal(
        ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, CT_CONTROL_MAX_FRAME, read, &used, NULL), 0);
    assert_int_equal(read->num_rows, CT_MAX_NODE_WORKERS);
    assert_memory_equal(read->rows, msg->rows, CT_MAX_NODE_WORKERS * sizeof(msg->rows[0]));
    ct_msg_fini(read);
    ct_msg_fini(msg);
    ct_buf_fini(&bytes);
    free(read);
    free(msg);
}

/* Agents and servers of ctruns without CT_MSG_QUERY, CT_MSG_STANDS and memory of workers. */
static void test_older_peers_are_understood(void **state)
{
    struct ct_msg *msg = filled(CT_MSG_JOIN), *read = calloc(1, sizeof(*read));
    struct ct_buf bytes = CT_BUF_INIT;
    size_t used = 0;
    (void)state;
    msg->join.queries = msg->join.stands = false;
    msg->join.preflight = CT_JOIN_PREFLIGHT_NONE;
    msg->join.voter = (struct ct_voter){0};
    msg->join.record_term = msg->join.record_version = 0;
    assert_int_equal(encode(msg, &bytes), 0);
    assert_null(memmem(ct_buf_bytes(&bytes), bytes.len, "\"id\"", 4));
    assert_null(memmem(ct_buf_bytes(&bytes), bytes.len, "queries", 7));
    assert_null(memmem(ct_buf_bytes(&bytes), bytes.len, "stands", 6));
    assert_null(memmem(ct_buf_bytes(&bytes), bytes.len, "preflight", 9));
    assert_int_equal(
        ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, CT_CONTROL_MAX_JOIN, read, &used, NULL), 0);
    assert_false(read->join.queries || read->join.stands);
    ct_msg_fini(msg);
    ct_buf_fini(&bytes);
    free(read);
    free(msg);
    take("{\"type\":\"beat\",\"clock_ms\":1,\"workers\":[{\"rank\":0,\"local_rank\":0,"
         "\"generation\":0,\"state\":\"running\",\"pid\":7,\"ended\":false,\"exit\":0,\"phase\":"
         "\"compute\",\"step\":1,\"age_ms\":1,\"loss\":1,\"rate\":null}]}");
    take(
        "{\"type\":\"beat\",\"clock_ms\":1,\"still\":{\"kind\":\"all\",\"generation\":0,\"rank\":0,"
        "\"step\":0,\"alone\":false,\"sure\":false,\"still_ms\":1,\"host\":\"\"}}");
}

/* An answer may be of any length, and no agent makes us keep more than the limit. */
static void test_a_long_answer_is_cut(void **state)
{
    struct ct_msg *msg = filled(CT_MSG_RESULT), *read = calloc(1, sizeof(*read));
    struct ct_buf bytes = CT_BUF_INIT;
    size_t used = 0;
    (void)state;
    ct_free(msg->result);
    msg->result = ct_calloc(1, 2 * CT_QUERY_TEXT_MAX);
    memset(msg->result, 'x', 2 * CT_QUERY_TEXT_MAX - 1);
    assert_int_equal(encode(msg, &bytes), 0);
    assert_int_equal(
        ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, CT_CONTROL_MAX_FRAME, read, &used, NULL), 0);
    assert_true(strlen(read->result) <= CT_QUERY_TEXT_MAX);
    ct_msg_fini(read);
    ct_msg_fini(msg);
    ct_buf_fini(&bytes);
    free(read);
    free(msg);
}

/* One row with one field replaced. */
#define BEAT_OF(rows) "{\"type\":\"beat\",\"clock_ms\":1,\"workers\":[" rows "]}"
#define ROW_OF(rank, local_rank, step, loss)                                                     \
    "{\"rank\":" rank ",\"local_rank\":" local_rank ",\"generation\":0,\"state\":\"running\","   \
    "\"pid\":7,\"ended\":false,\"exit\":0,\"phase\":\"compute\",\"step\":" step ",\"age_ms\":1," \
    "\"loss\":" loss ",\"rate\":null}"
#define BEAT "message \"beat\": "

static void test_absurd_rows_are_refused(void **state)
{
    (void)state;
    take(BEAT_OF(""));
    take(BEAT_OF(ROW_OF("4", "0", "1", "1e300") "," ROW_OF("5", "1", "1", "null")));
    refuse(BEAT_OF("7"), BEAT "row 0 of \"workers\": a row must be an object");
    refuse(BEAT_OF("{}"), BEAT "row 0 of \"workers\": field \"rank\" is missing");
    refuse(BEAT_OF(ROW_OF("\"inf\"", "0", "1", "1")),
           BEAT "row 0 of \"workers\": field \"rank\" must be a number");
    refuse(BEAT_OF(ROW_OF("1e999", "0", "1", "1")),
           BEAT "row 0 of \"workers\": field \"rank\" is out of range");
    refuse(BEAT_OF(ROW_OF("-1", "0", "1", "1")),
           BEAT "row 0 of \"workers\": field \"rank\" is out of range");
    refuse(BEAT_OF(ROW_OF("0", "0", "1e308", "1")),
           BEAT "row 0 of \"workers\": field \"step\" is out of range");
    refuse(BEAT_OF(ROW_OF("0", "0", "1.5", "1")),
           BEAT "row 0 of \"workers\": field \"step\" must be a whole number");
    refuse(BEAT_OF(ROW_OF("0", "0", "1", "1e999")),
           BEAT "row 0 of \"workers\": field \"loss\" must be a finite number or null");
    refuse(BEAT_OF(ROW_OF("0", "0", "1", "\"\u202eNaN\"")),
           BEAT "row 0 of \"workers\": field \"loss\" must be a finite number or null");
    refuse(BEAT_OF(ROW_OF("0", "1", "1", "1")),
           BEAT "row 0 of \"workers\": local rank 1 stands in the place of 0");
    refuse(BEAT_OF(ROW_OF("4", "0", "1", "1") "," ROW_OF("4", "1", "1", "1")),
           BEAT "row 1 of \"workers\": rank 4 stands in the place of 5");
    refuse(BEAT_OF(ROW_OF("4", "0", "1", "1") "," ROW_OF("4", "0", "1", "1")),
           BEAT "row 1 of \"workers\": local rank 0 stands in the place of 1");
}

/* A frame of a mebibyte may be a third of a million values, which take 80 times their bytes. */
static void test_values_of_a_frame_are_counted(void **state)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_err err = {0};
    (void)state;
    size_t most = CT_CONTROL_MAX_VALUES - 3; /* a brace, a bracket and a comma */
    for (int more = 0; more < 2; more++) {
        ct_buf_reset(&text);
        assert_int_equal(ct_buf_printf(&text, "{\"type\":\"spare\",\"x\":["), 0);
        for (size_t i = 0; i < most + (size_t)more; i++) {
            assert_int_equal(ct_buf_append(&text, "1,", 2), 0);
        }
        /* What is quoted does not count. */
        assert_int_equal(ct_buf_printf(&text, "\",[[[,,,{{{\\\"\"]}"), 0);
        assert_int_equal(decode_text(ct_buf_cstr(&text), &err), more == 0 ? 0 : CT_ELIMIT);
    }
    assert_string_equal(err.text, "a frame of more than 65536 values is not accepted");
    ct_buf_fini(&text);
}

static int through(void *data)
{
    struct ct_msg *msg = data, *read = ct_calloc(1, sizeof(*read));
    struct ct_buf bytes = CT_BUF_INIT;
    size_t used = 0;
    int rc = read != NULL ? encode(msg, &bytes) : CT_ENOMEM;
    if (rc == 0) {
        rc =
            ct_msg_decode(ct_buf_bytes(&bytes), bytes.len, CT_CONTROL_MAX_FRAME, read, &used, NULL);
        rc = rc == CT_EFORMAT ? CT_ENOMEM : rc; /* see control.h */
        ct_msg_fini(read);
    }
    ct_free(read);
    ct_buf_fini(&bytes);
    return rc;
}

static void test_messages_survive_lack_of_memory(void **state)
{
    static char tail[] = "tail\n";
    (void)state;
    for (int type = 0; type < CT_MSG_TYPES; type++) {
        struct ct_msg *msg = filled((enum ct_msg_type)type);
        msg->history.failures[0].tail = msg->failure.tail = tail;
        assert_true(ct_fault_sweep(through, msg, 0) > 5);
        ct_free(msg->result);
        ct_free(msg->record);
        free(msg);
    }
}

#define VOTER(id, address, port) "{\"id\":" #id ",\"address\":\"" address "\",\"port\":" #port "}"
#define RECORD(formed, voters, planned, more)                                                  \
    "{\"type\":\"record\",\"record\":{\"term\":1,\"version\":1,\"restarts\":0,"                \
    "\"over\":false,\"exit_code\":0,\"formed\":{\"generation\":" formed ",\"voters\":[" voters \
    "]},\"planned\":{\"generation\":" planned ",\"voters\":[" more "]}}}"

/* A record comes from another machine. */
static void test_records_that_no_host_writes_are_refused(void **state)
{
    (void)state;
    take(RECORD("-1", "", "-1", ""));
    take(RECORD("0", VOTER(1, "10.0.0.1", 2), "1", VOTER(1, "10.0.0.1", 2)));
    refuse("{\"type\":\"record\"}", "message \"record\": field \"record\" must be an object");
    refuse(RECORD("0", VOTER(0, "10.0.0.1", 2), "-1", ""),
           "message \"record\": field \"id\" is out of range");
    refuse(RECORD("0", VOTER(1, "host", 2), "-1", ""),
           "message \"record\": a voter's address must be a numeric one with a port");
    refuse(RECORD("0", VOTER(1, "10.0.0.1", 0), "-1", ""),
           "message \"record\": a voter's address must be a numeric one with a port");
    refuse(RECORD("0", VOTER(1, "10.0.0.1", 2) "," VOTER(1, "10.0.0.2", 2), "-1", ""),
           "message \"record\": a voter is listed twice");
    refuse(RECORD("0", "7", "-1", ""), "message \"record\": a voter must be an object");
    refuse(RECORD("0", "", "-1", ""), "message \"record\": a world must have voters");
    refuse(RECORD("-1", VOTER(1, "10.0.0.1", 2), "-1", ""),
           "message \"record\": a world must have voters");
    refuse(RECORD("1", VOTER(1, "10.0.0.1", 2), "1", VOTER(1, "10.0.0.1", 2)),
           "message \"record\": the planned generation must follow the last one");
    refuse(
        RECORD("2147483647", VOTER(1, "10.0.0.1", 1), "-1", ""),
        "message \"record\": field \"generation\" is out of range"); /* the next one is counted */
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_buf_printf(&text, "%s",
                                   "{\"type\":\"record\",\"record\":{\"term\":1,\"version\":1,"
                                   "\"restarts\":0,\"over\":false,"
                                   "\"exit_code\":0,\"formed\":{\"generation\":0,\"voters\":["),
                     0);
    for (int i = 0; i <= CT_VOTERS_MAX; i++) {
        assert_int_equal(ct_buf_printf(&text, "%s{\"id\":%d,\"address\":\"::1\",\"port\":1}",
                                       i > 0 ? "," : "", i + 1),
                         0);
    }
    assert_int_equal(ct_buf_printf(&text, "]},\"planned\":{\"generation\":-1,\"voters\":[]}}}"), 0);
    refuse(ct_buf_cstr(&text), "message \"record\": a world has more than 31 voters");
    ct_buf_fini(&text);
    take("{\"type\":\"vote\",\"id\":1,\"seen\":1,\"candidacy\":0,\"asked_term\":1,\"granted\":"
         "true,\"alone_ms\":1,\"host_term\":0}");
    refuse("{\"type\":\"vote\",\"id\":1,\"seen\":1,\"candidacy\":0,\"asked_term\":1,\"granted\":"
           "true,\"alone_ms\":1,\"host_term\":0,\"record\":3}",
           "message \"vote\": field \"record\" must be an object");
}

static void test_what_was_encoded_before_is_taken_as_it_is(void **state)
{
    static struct ct_msg msg = {.type = CT_MSG_OVER, .exit_code = 7};
    struct ct_buf once = CT_BUF_INIT, again = CT_BUF_INIT;
    (void)state;
    assert_int_equal(ct_msg_encode(&msg, &once), 0);
    msg.frame = &once;
    msg.exit_code = 8; /* would be encoded otherwise */
    assert_int_equal(ct_buf_append(&again, "before", 6), 0);
    assert_int_equal(ct_msg_encode(&msg, &again), 0);
    assert_int_equal(again.len, 6 + once.len);
    assert_memory_equal(ct_buf_bytes(&again) + 6, ct_buf_bytes(&once), once.len);
    ct_buf_fini(&again);
    ct_buf_fini(&once);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_message_is_read_as_it_was_written),
        cmocka_unit_test(test_malformed_messages_are_refused_by_field),
        cmocka_unit_test(test_what_was_encoded_before_is_taken_as_it_is),
        cmocka_unit_test(test_texts_have_a_length),
        cmocka_unit_test(test_a_header_that_is_no_frame_is_refused),
        cmocka_unit_test(test_rows_of_the_largest_node),
        cmocka_unit_test(test_older_peers_are_understood),
        cmocka_unit_test(test_a_long_answer_is_cut),
        cmocka_unit_test(test_absurd_rows_are_refused),
        cmocka_unit_test(test_values_of_a_frame_are_counted),
        cmocka_unit_test(test_messages_survive_lack_of_memory),
        cmocka_unit_test(test_records_that_no_host_writes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
