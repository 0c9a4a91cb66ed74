/* SPDX-License-Identifier: Apache-2.0
 *
 * The linker puts the functions __wrap_*() in the place of the client of etcd. There is one rig at
 * a time.
 */
#include "tests/lib/arbiter_rig.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "rendezvous/etcd/arbiter_json.h"
#include "tests/lib/loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct arbiter_rig *rig;
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

static int call(struct rig_call call)
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
        return call((struct rig_call){.what = READ, .done = done, .data = data});
    }
    assert_int_equal(op->what, CT_ETCD_PUT);
    assert_int_equal(txn->num_compares, 1);
    assert_int_equal(txn->otherwise[0].what, CT_ETCD_GET);
    assert_true(op->lease != 0); /* the value would stay for ever */
    char *value = calloc(1, op->len + 1);
    assert_non_null(value);
    memcpy(value, op->value, op->len); /* it is no text that ends */
    return call((struct rig_call){.what = WRITE,
                                  .revision = txn->compares[0].mod_revision,
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
    return call((struct rig_call){.what = GRANT, .done = done, .data = data});
}

int __wrap_ct_etcd_keep_alive(struct ct_etcd *etcd, int64_t lease, ct_etcd_done done, void *data,
                              struct ct_err *err)
{
    (void)etcd;
    (void)err;
    return call((struct rig_call){.what = KEEP, .lease = lease, .done = done, .data = data});
}

/* ---- etcd ----------------------------------------------------------------------------------- */

/* Somebody writes; NULL deletes the key. */
void put(const char *value)
{
    free(rig->value);
    rig->value = value != NULL ? strdup(value) : NULL;
    rig->mod_revision = value != NULL ? ++rig->revision : 0;
}

void put_state(const struct ct_arbiter_state *state)
{
    struct ct_buf text = CT_BUF_INIT;
    assert_int_equal(ct_arbiter_json_write(state, &text), 0);
    put(ct_buf_cstr(&text));
    ct_buf_fini(&text);
}

void await_call(enum rig_call_kind what)
{
    ct_loop_run_until(&rig->loop, &rig->called);
    assert_int_equal(rig->calls[0].what, what);
}

static void reply_with(struct ct_etcd_reply *reply)
{
    struct rig_call c = rig->calls[0];
    rig->calls[0].value = NULL;
    drop_call();
    reply->sent_ns = reply->rc == 0 ? c.sent_ns : 0;
    (void)snprintf(reply->own_address, sizeof(reply->own_address), "10.0.0.7");
    c.done(c.data, reply);
    free(c.value);
}

void lose(int rc, const char *why)
{
    struct ct_etcd_reply reply = {.rc = rc};
    (void)ct_err_set(&reply.err, rc, "%s", why);
    reply_with(&reply);
}

/* Does the first call, which is of this kind. */
void carry_out(enum rig_call_kind what)
{
    await_call(what);
    const struct rig_call *c = &rig->calls[0];
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

void move_clock(int64_t ms)
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
    struct arbiter_rig *r = data;
    assert_string_equal(own_address, "10.0.0.7");
    assert_int_equal(r->answers + r->served + r->bound, 0);
    r->met++;
    close_at(ON_MET);
}

static void on_answer(void *data, const struct ct_vote_answer *answer)
{
    struct arbiter_rig *r = data;
    assert_int_equal(r->met, 1);
    r->answers++;
    r->answer = *answer;
    r->host = answer->host != NULL ? *answer->host : (struct ct_voter){0};
    close_at(ON_ANSWER);
}

static void on_served(void *data, uint64_t term, uint64_t version, int64_t sent_ns)
{
    struct arbiter_rig *r = data;
    assert_int_equal(term, TERM);
    assert_true(sent_ns > 0);
    r->served++;
    r->version = version;
}

static void on_unserved(void *data, bool bound)
{
    struct arbiter_rig *r = data;
    r->unserved += bound ? 0 : 1;
    r->bound += bound ? 1 : 0;
}

static bool is_void(void *data, uint64_t id)
{
    const struct arbiter_rig *r = data;
    return id == r->void_id;
}

static bool is_dead(void *data, uint64_t id)
{
    const struct arbiter_rig *r = data;
    return id == r->dead_id;
}

static void on_trouble(void *data, const char *why, bool refused)
{
    struct arbiter_rig *r = data;
    r->refusals += refused ? 1 : 0;
    r->troubles += why != NULL ? 1 : 0;
    r->ends += why == NULL ? 1 : 0;
    (void)snprintf(r->trouble, sizeof(r->trouble), "%s", why != NULL ? why : "");
    close_at(why != NULL ? ON_TROUBLE : ON_END);
}

int begin(void **state)
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
        .is_dead = is_dead,
        .on_trouble = on_trouble,
        .data = rig = ct_calloc(1, sizeof(*rig)),
    };
    *state = rig;
    rig->cluster = "14841639068965178418";
    moved_ns = 0;
    ct_loop_begin(&rig->loop);
    return ct_etcd_arbiter_open(&rig->loop, &options, &rig->arbiter, &err);
}

int end(void **state)
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

void ask(uint64_t term)
{
    const struct ct_vote_ask question = {.id = SELF, .term = term};
    ct_etcd_arbiter_ask(rig->arbiter, &question);
}

void host(uint64_t version)
{
    const struct ct_voter self = {.id = SELF, .address = "10.0.0.7", .port = 7};
    struct ct_job_record record;
    ct_job_record_init(&record);
    record.term = TERM;
    record.version = version;
    ct_etcd_arbiter_serve(rig->arbiter, &self, &record);
}

/* Another host, or another candidate, in a later term. */
struct ct_arbiter_state other(bool hosts)
{
    struct ct_arbiter_state state = {.promised = LATER, .promised_to = OTHER};
    ct_job_record_init(&state.record);
    if (hosts) {
        state.host = (struct ct_voter){.id = OTHER, .address = "10.0.0.9", .port = 9};
        state.host_term = LATER;
    }
    return state;
}

void begin_hosting(void)
{
    host(1);
    carry_out(GRANT);
    carry_out(READ);
    carry_out(WRITE);
    assert_int_equal(rig->served, 1);
}
