/* SPDX-License-Identifier: Apache-2.0
 *
 * The arbiter of a job against functions that stand in for the client of etcd. They keep what is
 * called, and the test carries it out on a store of one key, or fails it. A test that must not wait
 * moves the clock.
 */
#include "tests/lib/ct_test.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/etcd/arbiter_json.h"
#include "rendezvous/etcd/arbiter_uv.h"
#include "rendezvous/etcd/etcd_uv.h"
#include "tests/lib/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LEASE_MS 600 /* a beat is a sixth of it */
#define SELF 7
#define OTHER 9
#define TERM UINT64_C(0x100000007)
#define LATER UINT64_C(0x200000009)
#define MAX_CALLS 4

enum what { READ, WRITE, GRANT, KEEP };

struct call {
    enum what what;
    int64_t revision, lease, sent_ns;
    char *value; /* of a WRITE */
    ct_etcd_done done;
    void *data;
};

struct rig {
    uv_loop_t loop;
    struct ct_etcd_arbiter *arbiter;

    /* etcd */
    char *value; /* NULL = the key does not exist */
    const char *cluster;
    int64_t revision, mod_revision, value_lease, lease, next_lease;
    struct call calls[MAX_CALLS]; /* without an answer, in order */
    int num_calls;
    bool called; /* there is one */

    /* what the arbiter has said */
    int met, answers, served, unserved, bound, troubles, ends, refusals;
    struct ct_vote_answer answer;
    struct ct_voter host; /* of the answer */
    uint64_t version;     /* the last one that was served */
    char trouble[300];
    enum { NEVER, ON_MET, ON_ANSWER, ON_TROUBLE, ON_END } closes;
    uint64_t void_id;
};

static struct rig *rig;
static int64_t moved_ns;

/* ---- in place of the clock and of the client ------------------------------------------------ */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_ct_etcd_open(uv_loop_t *loop, const struct ct_etcd_options *options,
                        struct ct_etcd **out, struct ct_err *err);
void __wrap_ct_etcd_close(struct ct_etcd *etcd);
int __wrap_ct_etcd_txn(struct ct_etcd *etcd, const struct ct_etcd_txn *txn, ct_etcd_done done,
                       void *data, struct ct_err *err);
int __wrap_ct_etcd_grant(struct ct_etcd *etcd, int64_t ttl_s, ct_etcd_done done, void *data,
                         struct ct_err *err);
int __wrap_ct_etcd_keep_alive(struct ct_etcd *etcd, int64_t lease, ct_etcd_done done, void *data,
                              struct ct_err *err);

int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int rc = __real_clock_gettime(id, out);
    int64_t ns = out->tv_nsec + moved_ns;
    out->tv_sec += ns / CT_NS_PER_S;
    out->tv_nsec = ns % CT_NS_PER_S;
    return rc;
}

int __wrap_ct_etcd_open(uv_loop_t *loop, const struct ct_etcd_options *options,
                        struct ct_etcd **out, struct ct_err *err)
{
    (void)loop;
    (void)options;
    (void)err;
    *out = (struct ct_etcd *)rig;
    return 0;
}

static void drop_call(void)
{
    free(rig->calls[0].value);
    memmove(rig->calls, rig->calls + 1, (size_t)--rig->num_calls * sizeof(rig->calls[0]));
    rig->called = rig->num_calls > 0;
}

void __wrap_ct_etcd_close(struct ct_etcd *etcd)
{
    assert_ptr_equal(etcd, rig);
    while (rig->num_calls > 0) {
        drop_call();
    }
}

static int call(struct call call)
{
    assert_true(rig->num_calls < MAX_CALLS);
    call.sent_ns = ct_clock_now(NULL);
    rig->calls[rig->num_calls++] = call;
    rig->called = true;
    return 0;
}

int __wrap_ct_etcd_txn(struct ct_etcd *etcd, const struct ct_etcd_txn *txn, ct_etcd_done done,
                       void *data, struct ct_err *err)
{
    const struct ct_etcd_op *op = &txn->then[0];
    (void)etcd;
    (void)err;
    assert_string_equal(op->key, "/ctrun/job/arbiter");
    if (op->what == CT_ETCD_GET) {
        assert_int_equal(txn->num_compares, 0);
        return call((struct call){.what = READ, .done = done, .data = data});
    }
    assert_int_equal(op->what, CT_ETCD_PUT);
    assert_int_equal(txn->num_compares, 1);
    assert_int_equal(txn->otherwise[0].what, CT_ETCD_GET);
    assert_true(op->lease != 0); /* the value would stay for ever */
    char *value = calloc(1, op->len + 1);
    assert_non_null(value);
    memcpy(value, op->value, op->len); /* it is no text that ends */
    return call((struct call){.what = WRITE,
                              .revision = txn->compares[0].value,
                              .lease = op->lease,
                              .value = value,
                              .done = done,
                              .data = data});
}

int __wrap_ct_etcd_grant(struct ct_etcd *etcd, int64_t ttl_s, ct_etcd_done done, void *data,
                         struct ct_err *err)
{
    (void)etcd;
    (void)err;
    assert_int_equal(ttl_s, 600);
    return call((struct call){.what = GRANT, .done = done, .data = data});
}

int __wrap_ct_etcd_keep_alive(struct ct_etcd *etcd, int64_t lease, ct_etcd_done done, void *data,
                              struct ct_err *err)
{
    (void)etcd;
    (void)err;
    return call((struct call){.what = KEEP, .lease = lease, .done = done, .data = data});
}

/* ---- etcd ----------------------------------------------------------------------------------- */

/* Somebody writes; NULL deletes the key. */
static void put(const char *value)
{
    free(rig->value);
    rig->value = value != NULL ? strdup(value) : NULL;
    rig->mod_revision = value != NULL ? ++rig->revision : 0;
}

static void put_state(const struct ct_arbiter_state *state)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_arbiter_json_write(state, &text), 0);
    put(ct_buf_cstr(&text));
    ct_buf_fini(&text);
}

static void await_call(enum what what)
{
    ct_loop_run_until(&rig->loop, &rig->called);
    assert_int_equal(rig->calls[0].what, what);
}

static void reply_with(struct ct_etcd_reply *reply)
{
    struct call c = rig->calls[0];
    rig->calls[0].value = NULL;
    drop_call();
    reply->sent_ns = reply->rc == 0 ? c.sent_ns : 0;
    (void)snprintf(reply->own_address, sizeof(reply->own_address), "10.0.0.7");
    c.done(c.data, reply);
    free(c.value);
}

static void lose(int rc, const char *why)
{
    struct ct_etcd_reply reply = {.rc = rc};
    (void)ct_err_set(&reply.err, rc, "%s", why);
    reply_with(&reply);
}

/* Does the first call, which is of this kind. */
static void carry_out(enum what what)
{
    await_call(what);
    const struct call *c = &rig->calls[0];
    struct ct_etcd_reply reply = {.rc = 0};
    bool put_it = what == WRITE && c->revision == rig->mod_revision;
    if (what == GRANT) {
        rig->lease = reply.lease = ++rig->next_lease;
        reply.ttl_s = 600;
    } else if (what == KEEP) {
        reply.lease = c->lease;
        reply.ttl_s = c->lease == rig->lease ? 600 : 0;
    } else if (put_it && c->lease != rig->lease) {
        lose(CT_ENOENT, "the lease has ended");
        return;
    } else if (put_it) {
        put(c->value);
        rig->value_lease = c->lease;
        reply.succeeded = true;
    } else {
        reply.succeeded = what == READ;
        reply.num_values = 1;
        reply.values[0] = (struct ct_etcd_value){.found = rig->value != NULL,
                                                 .bytes = rig->value != NULL ? rig->value : "",
                                                 .len = rig->value != NULL ? strlen(rig->value) : 0,
                                                 .mod_revision = rig->mod_revision};
    }
    reply.revision = rig->revision;
    (void)snprintf(reply.cluster, sizeof(reply.cluster), "%s", rig->cluster);
    reply_with(&reply);
}

static void move_clock(int64_t ms)
{
    moved_ns += ms * CT_NS_PER_MS;
}

/* ---- the arbiter ---------------------------------------------------------------------------- */

static void close_at(int when)
{
    if ((int)rig->closes == when) {
        ct_etcd_arbiter_close(rig->arbiter);
    }
}

static void on_met(void *data, const char *own_address)
{
    struct rig *r = data;
    assert_string_equal(own_address, "10.0.0.7");
    assert_int_equal(r->answers + r->served + r->bound, 0);
    r->met++;
    close_at(ON_MET);
}

static void on_answer(void *data, const struct ct_vote_answer *answer)
{
    struct rig *r = data;
    assert_int_equal(r->met, 1);
    r->answers++;
    r->answer = *answer;
    r->host = answer->host != NULL ? *answer->host : (struct ct_voter){0};
    close_at(ON_ANSWER);
}

static void on_served(void *data, uint64_t term, uint64_t version, int64_t sent_ns)
{
    struct rig *r = data;
    assert_int_equal(term, TERM);
    assert_true(sent_ns > 0);
    r->served++;
    r->version = version;
}

static void on_unserved(void *data, bool bound)
{
    struct rig *r = data;
    r->unserved += bound ? 0 : 1;
    r->bound += bound ? 1 : 0;
}

static bool is_void(void *data, uint64_t id)
{
    const struct rig *r = data;
    return id == r->void_id;
}

static void on_trouble(void *data, const char *why, bool refused)
{
    struct rig *r = data;
    r->refusals += refused ? 1 : 0;
    r->troubles += why != NULL ? 1 : 0;
    r->ends += why == NULL ? 1 : 0;
    (void)snprintf(r->trouble, sizeof(r->trouble), "%s", why != NULL ? why : "");
    close_at(why != NULL ? ON_TROUBLE : ON_END);
}

static int begin(void **state)
{
    struct ct_err err = {0};
    const struct ct_etcd_arbiter_options options = {
        .run_id = "job",
        .lease_ms = LEASE_MS,
        .on_met = on_met,
        .on_answer = on_answer,
        .on_served = on_served,
        .on_unserved = on_unserved,
        .is_void = is_void,
        .on_trouble = on_trouble,
        .data = rig = ct_calloc(1, sizeof(*rig)),
    };
    *state = rig;
    rig->cluster = "14841639068965178418";
    moved_ns = 0;
    ct_loop_begin(&rig->loop);
    return ct_etcd_arbiter_open(&rig->loop, &options, &rig->arbiter, &err);
}

static int end(void **state)
{
    (void)state;
    if (rig->closes == NEVER) {
        ct_etcd_arbiter_close(rig->arbiter);
    }
    ct_loop_end(&rig->loop);
    free(rig->value);
    ct_free(rig);
    return 0;
}

static void ask(uint64_t term)
{
    const struct ct_vote_ask question = {.id = SELF, .term = term};
    ct_etcd_arbiter_ask(rig->arbiter, &question, 0);
}

static void host(uint64_t version)
{
    const struct ct_voter self = {.id = SELF, .address = "10.0.0.7", .port = 7};
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = TERM;
    record.version = version;
    ct_etcd_arbiter_serve(rig->arbiter, &self, &record);
}

/* Another host, or another candidate, in a later term. */
static struct ct_arbiter_state other(bool hosts)
{
    struct ct_arbiter_state state = {.promised = LATER, .promised_to = OTHER};
    ct_job_record_init(&state.record);
    if (hosts) {
        state.host = (struct ct_voter){.id = OTHER, .address = "10.0.0.9", .port = 9};
        state.host_term = LATER;
    }
    return state;
}

static void begin_hosting(void)
{
    host(1);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
}

/* ---- questions ------------------------------------------------------------------------------ */

static void test_an_empty_store_votes(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->answer.id, CT_ARBITER_ID);
    assert_true(rig->answer.granted);
    assert_int_equal(rig->answer.asked_term, TERM);
    assert_non_null(strstr(rig->value, "\"promised_to\":7"));
    assert_int_equal(rig->value_lease, 1);
    assert_int_equal(rig->troubles + rig->ends, 0);
}

static void test_a_conflict_begins_again(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    put_state(&theirs);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_false(rig->answer.granted);
    assert_int_equal(rig->host.id, OTHER);
}

static void test_a_vote_whose_answer_was_lost_is_known_again(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    put(rig->calls[0].value);
    lose(CT_ETIMEDOUT, "no answer");
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    assert_true(rig->answer.granted);
}

static void test_a_question_that_comes_meanwhile_is_answered_too(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    ask(LATER);
    carry_out(WRITE);
    assert_int_equal(rig->answer.asked_term, TERM);
    carry_out(WRITE); /* the value is known */
    assert_int_equal(rig->answers, 2);
    assert_int_equal(rig->answer.asked_term, LATER);
}

static void test_a_question_that_was_taken_back_has_no_answer(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    await_call(WRITE);
    ct_etcd_arbiter_ask(rig->arbiter, NULL, 0);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 0);
    host(1); /* the next errand */
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
}

/* An answer that grants nothing is made from what is there now. */
static void test_a_refusal_is_read_first(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    ask(LATER);
    carry_out(GRANT);
    carry_out(READ);
    assert_int_equal(rig->host.id, OTHER);
    put(NULL);
    ask(LATER);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 2);
    assert_true(rig->answer.granted);
}

/* The read that was sent long ago shows a value that may be new. */
static void test_silence_counts_from_the_answer(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    await_call(READ);
    move_clock(2 * LEASE_MS);
    put_state(&theirs);
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->host.id, OTHER);
    move_clock(2 * LEASE_MS);
    ask(LATER + CT_TERM_FIRST);
    carry_out(WRITE);
    assert_true(rig->answer.granted);
}

/* A host that was silent for long may have gone on in an etcd from a backup, up to that revision.
 */
static void test_a_restored_value_is_not_silent_yet(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    carry_out(READ);
    move_clock(2 * LEASE_MS);
    rig->cluster = "5";
    ask(TERM); /* it gets no vote in this one, so the value is read */
    carry_out(READ);
    assert_int_equal(rig->answers, 2);
    assert_int_equal(rig->host.id, OTHER);
    move_clock(2 * LEASE_MS);
    ask(TERM);
    carry_out(READ);
    assert_int_equal(rig->host.id, 0);
}

/* The compare has passed by chance. The vote counts, but others may have a lease until now. */
static void test_a_vote_over_a_restored_value_waits_for_all_leases(void **state)
{
    const struct ct_arbiter_state theirs = other(true);
    (void)state;
    put_state(&theirs);
    rig->revision = 10; /* by other keys */
    ask(LATER + CT_TERM_FIRST);
    carry_out(GRANT);
    carry_out(READ);
    move_clock(2 * LEASE_MS);
    ask(LATER + CT_TERM_FIRST);
    await_call(WRITE);
    rig->revision = 5;
    carry_out(WRITE);
    assert_int_equal(rig->answers, 1);
    carry_out(READ);
    assert_int_equal(rig->answers, 2);
    assert_true(rig->answer.granted);
    assert_true(rig->answer.alone_ms < LEASE_MS);
}

/* ---- a host --------------------------------------------------------------------------------- */

static void test_a_record_is_pledged_and_beats_follow(void **state)
{
    (void)state;
    begin_hosting();
    assert_int_equal(rig->version, 1);
    host(2);
    await_call(WRITE);
    host(3); /* while the second one is being written */
    carry_out(WRITE);
    assert_int_equal(rig->version, 2);
    carry_out(WRITE);
    assert_int_equal(rig->version, 3);
    for (int i = 4; i < 8; i++) { /* beats */
        carry_out(WRITE);
        assert_int_equal(rig->served, i);
        assert_int_equal(rig->version, 3);
    }
    assert_int_equal(rig->unserved + rig->bound + rig->troubles, 0);
}

/* A beat that is under way tells nothing new. */
static void test_who_ends_knows_when_its_record_is_written(void **state)
{
    (void)state;
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter));
    begin_hosting();
    await_call(WRITE);
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter));
    host(2);
    carry_out(WRITE); /* the beat */
    assert_false(ct_etcd_arbiter_is_settled(rig->arbiter));
    await_call(WRITE);
    assert_false(ct_etcd_arbiter_is_settled(rig->arbiter));
    rig->lease = 0;
    carry_out(WRITE);
    assert_false(ct_etcd_arbiter_is_settled(rig->arbiter));
    carry_out(GRANT);
    carry_out(WRITE);
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter));
    host(3);
    await_call(WRITE);
    lose(CT_EIO, "nobody");
    assert_true(ct_etcd_arbiter_is_settled(rig->arbiter)); /* it is not waited for */
}

static void test_who_hosts_no_more_is_not_served(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    ct_etcd_arbiter_serve(rig->arbiter, NULL, NULL);
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
    assert_false(uv_loop_alive(&rig->loop)); /* nothing is awaited */
}

static void test_a_silent_store_is_told_once(void **state)
{
    (void)state;
    begin_hosting();
    for (int i = 0; i < 3; i++) {
        await_call(WRITE);
        lose(CT_ETIMEDOUT, "no answer");
        assert_int_equal(rig->unserved, 1);
        assert_int_equal(rig->troubles, 1);
    }
    assert_string_equal(rig->trouble, "no answer");
    carry_out(WRITE);
    assert_int_equal(rig->ends, 1);
    assert_int_equal(rig->served, 2);
    await_call(WRITE);
    lose(CT_ETIMEDOUT, "no answer");
    assert_int_equal(rig->unserved, 2);
    assert_int_equal(rig->troubles, 2);
    assert_int_equal(rig->bound, 0);
}

/* Waiting does not help then, also if etcd was away at first. */
static void test_a_refusal_is_told_apart_until_the_value_was_seen(void **state)
{
    (void)state;
    ask(TERM);
    await_call(GRANT);
    lose(CT_EIO, "nobody listens");
    assert_int_equal(rig->refusals, 0);
    await_call(GRANT);
    lose(CT_EPERM, "wrong password");
    assert_int_equal(rig->refusals, 1);
    assert_string_equal(rig->trouble, "wrong password");
    carry_out(GRANT); /* a lease needs no permission, a key does */
    await_call(READ);
    lose(CT_EPERM, "permission denied");
    assert_int_equal(rig->refusals, 2);
    carry_out(READ);
    await_call(WRITE);
    lose(CT_EPERM, "wrong password");
    assert_int_equal(rig->refusals, 2);
    assert_int_equal(rig->troubles, 4);
    assert_int_equal(rig->ends, 1);
}

static void test_a_host_without_any_lease_is_unserved(void **state)
{
    (void)state;
    host(1);
    for (int i = 0; i < 2; i++) {
        await_call(GRANT);
        lose(CT_EIO, "nobody");
        assert_int_equal(rig->unserved, 1);
        assert_int_equal(rig->troubles, 1);
    }
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
    assert_int_equal(rig->ends, 1);
}

static void test_a_key_that_was_deleted_is_written_again(void **state)
{
    (void)state;
    begin_hosting();
    put(NULL);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_non_null(rig->value);
    assert_int_equal(rig->unserved + rig->bound + rig->troubles, 0);
}

static void test_a_value_of_somebody_else_is_told_with_its_key(void **state)
{
    (void)state;
    begin_hosting();
    put("{\"a\":1}garbage");
    carry_out(WRITE);
    assert_int_equal(rig->troubles, 1);
    assert_int_equal(rig->unserved, 1);
    assert_non_null(strstr(rig->trouble, "/ctrun/job/arbiter has a value that is not ctrun's"));
    put(NULL);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_int_equal(rig->ends, 1);
}

static void test_a_value_that_is_too_long_is_told_with_its_key(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    lose(CT_ELIMIT, "etcd at h: the value has more bytes");
    assert_string_equal(rig->trouble,
                        "the key /ctrun/job/arbiter: etcd at h: the value has more bytes");
}

static void test_a_bound_host_can_ask_and_looks_again(void **state)
{
    const struct ct_arbiter_state theirs = other(false);
    (void)state;
    begin_hosting();
    put_state(&theirs);
    host(2);
    carry_out(WRITE);
    assert_int_equal(rig->bound, 1);
    ask(0); /* who was elected? */
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->answer.seen, LATER);
    host(3);
    carry_out(READ);
    assert_int_equal(rig->bound, 2);
    for (int i = 0; i < 3; i++) {
        (void)uv_run(&rig->loop, UV_RUN_NOWAIT);
    }
    assert_int_equal(rig->bound, 2); /* not before the next beat */
    carry_out(READ);
    assert_int_equal(rig->bound, 3);
    put(NULL);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->version, 3);
    assert_int_equal(rig->unserved + rig->troubles, 0);
}

static void test_a_candidate_that_is_void_does_not_bind(void **state)
{
    const struct ct_arbiter_state theirs = other(false);
    (void)state;
    begin_hosting();
    rig->void_id = OTHER;
    put_state(&theirs);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_int_equal(rig->bound, 0);
}

/* Each beat is late, so the next one is due at once. */
static void test_a_slow_store_answers_questions_of_a_host(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    move_clock(LEASE_MS);
    ask(0);
    carry_out(WRITE);
    await_call(READ);
    move_clock(LEASE_MS);
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    carry_out(WRITE);
    assert_int_equal(rig->served, 3);
}

/* ---- the lease ------------------------------------------------------------------------------ */

static void test_the_lease_is_kept_alive(void **state)
{
    (void)state;
    begin_hosting();
    move_clock(61000);
    carry_out(KEEP);
    carry_out(WRITE);
    carry_out(WRITE);
    assert_int_equal(rig->served, 3);
    assert_int_equal(rig->value_lease, 1);
    move_clock(61000);
    await_call(KEEP);
    lose(CT_ETIMEDOUT, "no answer");
    await_call(WRITE);
    lose(CT_ETIMEDOUT, "no answer");
    assert_int_equal(rig->troubles, 1);
    assert_int_equal(rig->unserved, 1);
    carry_out(KEEP); /* the lease may well be there */
    carry_out(WRITE);
    assert_int_equal(rig->served, 4);
    assert_int_equal(rig->value_lease, 1);
}

static void test_a_lease_that_has_ended_is_made_anew(void **state)
{
    (void)state;
    begin_hosting();
    rig->lease = 0; /* etcd has deleted the key as well */
    put(NULL);
    carry_out(WRITE); /* the key is not what it was, ... */
    carry_out(WRITE); /* ... and the lease has ended */
    carry_out(GRANT);
    carry_out(WRITE);
    assert_int_equal(rig->served, 2);
    assert_int_equal(rig->value_lease, 2);
    assert_int_equal(rig->troubles + rig->unserved + rig->bound, 0);
}

static void test_nothing_is_written_without_a_lease(void **state)
{
    (void)state;
    ask(TERM);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    rig->lease = 0;
    put(NULL);
    move_clock(601000);
    ask(LATER);
    carry_out(KEEP);
    carry_out(WRITE); /* it conflicts, and the lease has ended meanwhile */
    carry_out(GRANT);
    carry_out(WRITE);
    assert_int_equal(rig->answers, 2);
    assert_int_equal(rig->value_lease, 2);
    assert_int_equal(rig->troubles, 0);
}

/* ---- closing -------------------------------------------------------------------------------- */

static void test_nothing_is_said_after_close(void **state)
{
    (void)state;
    begin_hosting();
    rig->closes = ON_TROUBLE;
    await_call(WRITE);
    lose(CT_EIO, "nobody");
    assert_int_equal(rig->troubles, 1);
    assert_int_equal(rig->unserved, 0);
}

static void test_the_end_of_trouble_may_close(void **state)
{
    (void)state;
    begin_hosting();
    await_call(WRITE);
    lose(CT_EIO, "nobody");
    rig->closes = ON_END;
    carry_out(WRITE);
    assert_int_equal(rig->ends, 1);
    assert_int_equal(rig->served, 1);
    assert_int_equal(rig->num_calls, 0);
}

static void test_the_first_contact_may_close(void **state)
{
    (void)state;
    rig->closes = ON_MET;
    ask(0);
    carry_out(GRANT);
    carry_out(READ);
    assert_int_equal(rig->met, 1);
    assert_int_equal(rig->answers, 0);
    assert_int_equal(rig->num_calls, 0);
}

static void test_an_answer_may_close(void **state)
{
    (void)state;
    rig->closes = ON_ANSWER;
    ask(0);
    carry_out(GRANT);
    carry_out(READ);
    assert_int_equal(rig->answers, 1);
    assert_int_equal(rig->num_calls, 0);
}

static void test_a_run_id_that_is_too_long(void **state)
{
    char id[CT_ETCD_KEY_MAX + 1];
    struct ct_err err = {0};
    struct ct_etcd_arbiter *arbiter = NULL;
    const struct ct_etcd_arbiter_options options = {.run_id = id};
    (void)state;
    memset(id, 'x', sizeof(id) - 1);
    id[sizeof(id) - 1] = '\0';
    assert_int_equal(ct_etcd_arbiter_open(&rig->loop, &options, &arbiter, &err), CT_EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_an_empty_store_votes),
        TEST(test_a_conflict_begins_again),
        TEST(test_a_vote_whose_answer_was_lost_is_known_again),
        TEST(test_a_question_that_comes_meanwhile_is_answered_too),
        TEST(test_a_question_that_was_taken_back_has_no_answer),
        TEST(test_a_refusal_is_read_first),
        TEST(test_silence_counts_from_the_answer),
        TEST(test_a_restored_value_is_not_silent_yet),
        TEST(test_a_vote_over_a_restored_value_waits_for_all_leases),
        TEST(test_a_record_is_pledged_and_beats_follow),
        TEST(test_who_ends_knows_when_its_record_is_written),
        TEST(test_who_hosts_no_more_is_not_served),
        TEST(test_a_silent_store_is_told_once),
        TEST(test_a_refusal_is_told_apart_until_the_value_was_seen),
        TEST(test_a_host_without_any_lease_is_unserved),
        TEST(test_a_key_that_was_deleted_is_written_again),
        TEST(test_a_value_of_somebody_else_is_told_with_its_key),
        TEST(test_a_value_that_is_too_long_is_told_with_its_key),
        TEST(test_a_bound_host_can_ask_and_looks_again),
        TEST(test_a_candidate_that_is_void_does_not_bind),
        TEST(test_a_slow_store_answers_questions_of_a_host),
        TEST(test_the_lease_is_kept_alive),
        TEST(test_a_lease_that_has_ended_is_made_anew),
        TEST(test_nothing_is_written_without_a_lease),
        TEST(test_nothing_is_said_after_close),
        TEST(test_the_end_of_trouble_may_close),
        TEST(test_the_first_contact_may_close),
        TEST(test_an_answer_may_close),
        TEST(test_a_run_id_that_is_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
