/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path of a question: ask ct_arbiter_ask(), write the vote with a compare of the revision,
 * and answer. Of a host: the same with ct_arbiter_serve(). Both begin with the value that was read
 * or written last, since the compare shows whether it is still the same. So a vote takes one
 * request; candidates stand anew after a second, and etcd may be slow. The value is read if nothing
 * is known of it, or if nothing can be written over it.
 *
 * An etcd that was restored from a backup begins its revisions anew from there. It is known by the
 * id of its cluster, or by a revision that is lower than one before. Then nothing of the value is
 * known any more: its time of silence begins anew, so that a vote lets nobody begin a world before
 * the leases of other hosts have ended.
 *
 * Other paths: whoever finds that somebody else has written gets the new value in the same answer
 * and begins again with it. One errand is under way at a time. A question that comes meanwhile
 * waits, and so does a new version of the record.
 *
 * Failure modes: a request that fails may have been carried out. The next one finds what was
 * written, and both rules know their own writing again. A value that this program could not have
 * written is trouble like an etcd that cannot be reached. A refusal, as of a login, is told apart
 * until the value was seen once: later somebody may have changed what etcd allows, and the job must
 * not end by that.
 *
 * Who frees: the client of etcd frees itself. The arbiter is freed when its timer is closed.
 */
#include "rendezvous/etcd/arbiter_uv.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/list.h"
#include "rendezvous/etcd/arbiter_json.h"
#include "rendezvous/etcd/etcd_uv.h"

#include <stdio.h>
#include <string.h>

/* Of these a host that is served needs one in each lease. */
#define BEATS 6
/* A silent etcd is noticed so soon, at the latest. */
#define CONNECT_MS 500
#define ATTEMPT_MS 800
#define REQUEST_MS 1600
/* After trouble. */
#define PAUSE_NS (250 * CT_NS_PER_MS)

/* The lease of the value, and how often it is renewed. */
#define KEEP_S 600
#define RENEW_NS (60 * CT_NS_PER_S)

/* How often an errand begins again because somebody else has written. */
#define TURNS 8

enum doing { NOTHING, READING, WRITING };

struct ct_etcd_arbiter {
    struct ct_etcd_arbiter_options options;
    struct ct_etcd *etcd;
    uv_timer_t timer;
    char key[CT_ETCD_KEY_MAX + 1];
    struct ct_arbiter view;
    /* What the last reply said of etcd itself, by which another history is known. */
    char cluster[CT_ETCD_CLUSTER_MAX];
    int64_t revision; /* of all keys; view.revision is that of the value */

    enum doing doing;
    bool serves; /* it does so for the host, not for a question */
    int turns;
    struct ct_arbiter_state next;
    struct ct_vote_answer answer;

    bool asked;       /* there is a question */
    bool asked_again; /* it came while the one before was being answered */
    struct ct_vote_ask question;

    bool hosts, fresh; /* fresh: the record has not been written since it was given */
    struct ct_voter self;
    struct ct_job_record record;
    int64_t beat_ns; /* when it is written next */
    bool unserved;   /* it was said */
    bool unwritten;  /* this record has not been written yet; a beat may write it once more */

    int64_t lease; /* 0 = none */
    bool unused;   /* nothing was written yet with the lease that was granted last */
    bool leasing;
    int64_t renew_ns;
    int64_t pause_ns; /* until then, nothing is begun */
    bool trouble;     /* it was said */
    bool met;         /* etcd has shown the value, or that there is none */
    bool closing;
};

static void go_on(struct ct_etcd_arbiter *arbiter);

static void set_timer(struct ct_etcd_arbiter *arbiter);

/* ---- trouble -------------------------------------------------------------------------------- */

/* `rc` is that of the request that failed; 0 = one has succeeded. */
static void say_trouble(struct ct_etcd_arbiter *arbiter, int rc, const char *why)
{
    bool refused = !arbiter->met && (rc == CT_EPERM || rc == CT_EINVAL);
    if (!arbiter->closing && (refused || arbiter->trouble != (rc != 0))) {
        arbiter->trouble = rc != 0;
        arbiter->options.on_trouble(arbiter->options.data, why, refused);
    }
}

/* That it is bound is said at each beat, because the host then asks who was elected, for a while.
 */
static void say_unserved(struct ct_etcd_arbiter *arbiter, bool bound)
{
    if (!arbiter->closing && arbiter->hosts && (bound || !arbiter->unserved)) {
        arbiter->unserved = true;
        arbiter->options.on_unserved(arbiter->options.data, bound);
    }
}

/* The errand is begun again after a pause. */
static void put_off(struct ct_etcd_arbiter *arbiter)
{
    arbiter->doing = NOTHING;
    arbiter->pause_ns = ct_clock_now(NULL) + PAUSE_NS;
    arbiter->fresh = arbiter->hosts && (arbiter->fresh || arbiter->serves);
    set_timer(arbiter);
}

/* The errand has failed. */
static void fail(struct ct_etcd_arbiter *arbiter, int rc, const char *why)
{
    bool serves = arbiter->serves;
    put_off(arbiter);
    say_trouble(arbiter, rc, why);
    if (serves) {
        say_unserved(arbiter, false);
    }
}

/* ---- requests ------------------------------------------------------------------------------- */

static void on_value(void *data, const struct ct_etcd_reply *reply);

static void request(struct ct_etcd_arbiter *arbiter, enum doing doing)
{
    struct ct_buf text = CT_BUF_INIT;
    struct ct_err err = {0};
    const struct ct_etcd_op get = {.what = CT_ETCD_GET, .key = arbiter->key};
    struct ct_etcd_txn txn = {.otherwise = {get}, .num_otherwise = 1};
    int rc = 0;
    if (doing == WRITING && arbiter->lease == 0) {
        put_off(arbiter); /* it has ended meanwhile; a value without one would stay for ever */
        return;
    }
    if (doing == WRITING) {
        rc = ct_arbiter_json_write(&arbiter->next, &text);
        txn.then[0] = (struct ct_etcd_op){.what = CT_ETCD_PUT,
                                          .key = arbiter->key,
                                          .value = ct_buf_bytes(&text),
                                          .len = text.len,
                                          .lease = arbiter->lease};
        txn.num_then = 1;
    } else {
        txn.then[0] = get;
        txn.num_then = 1;
    }
    txn.compares[0] =
        (struct ct_etcd_compare){.key = arbiter->key, .mod_revision = arbiter->view.revision};
    txn.num_compares = doing == WRITING ? 1 : 0;
    arbiter->doing = doing;
    if (rc == 0) {
        rc = ct_etcd_txn(arbiter->etcd, &txn, on_value, arbiter, &err);
    }
    ct_buf_fini(&text);
    if (rc != 0) {
        fail(arbiter, rc, err.text[0] != '\0' ? err.text : ct_code_text(rc));
    }
}

/* Takes the value that a reply shows. Returns false if it is none of ours. */
static bool learn(struct ct_etcd_arbiter *arbiter, const struct ct_etcd_reply *reply)
{
    const struct ct_etcd_value *value = &reply->values[0];
    int64_t now_ns = ct_clock_now(NULL);
    struct ct_arbiter_state state;
    struct ct_err err = {0};
    if (reply->num_values < 1 || !value->found) {
        ct_arbiter_learned(&arbiter->view, NULL, 0, now_ns);
        return true;
    }
    if (value->mod_revision == arbiter->view.revision) {
        return true;
    }
    if (ct_arbiter_json_read(value->bytes, value->len, &state, &err) != 0) {
        (void)ct_err_wrap(&err, "the key %s has a value that is not ctrun's, so delete it",
                          arbiter->key);
        fail(arbiter, CT_EFORMAT, err.text);
        return false;
    }
    ct_arbiter_learned(&arbiter->view, &state, value->mod_revision, now_ns);
    return true;
}

/* Trouble ends only with an errand: that etcd answers is not enough if nothing comes of it. */
static void end_errand(struct ct_etcd_arbiter *arbiter)
{
    arbiter->doing = NOTHING;
    say_trouble(arbiter, 0, NULL);
    set_timer(arbiter);
}

static void give_answer(struct ct_etcd_arbiter *arbiter)
{
    bool wanted = arbiter->asked;
    arbiter->asked = arbiter->asked && arbiter->asked_again;
    end_errand(arbiter);
    if (wanted && !arbiter->closing) {
        arbiter->options.on_answer(arbiter->options.data, &arbiter->answer);
    }
}

/* The host may not write over this value. */
static void be_bound(struct ct_etcd_arbiter *arbiter)
{
    if (arbiter->turns == 0) {
        request(arbiter, READING); /* that value may be long gone */
        return;
    }
    arbiter->fresh = arbiter->unwritten = false; /* it looks again at the next beat */
    end_errand(arbiter);
    say_unserved(arbiter, true);
}

/* The value is known: the errand goes on. */
static void decide(struct ct_etcd_arbiter *arbiter)
{
    const struct ct_etcd_arbiter_options *options = &arbiter->options;
    uint64_t promised_to = arbiter->view.state.promised_to;
    arbiter->doing = NOTHING;
    if (arbiter->serves && arbiter->hosts) {
        uint64_t void_id =
            promised_to != 0 && options->is_void(options->data, promised_to) ? promised_to : 0;
        if (ct_arbiter_serve(&arbiter->view, &arbiter->self, &arbiter->record, void_id,
                             &arbiter->next)) {
            arbiter->fresh = false;
            request(arbiter, WRITING);
            return;
        }
        be_bound(arbiter);
    } else if (!arbiter->serves && arbiter->asked) {
        uint64_t host_id = arbiter->view.state.host.id;
        uint64_t dead_id = host_id != 0 && options->is_dead(options->data, host_id) ? host_id : 0;
        arbiter->asked_again = false;
        if (ct_arbiter_ask(&arbiter->view, &arbiter->question, dead_id, options->lease_ms,
                           ct_clock_now(NULL), &arbiter->answer, &arbiter->next)) {
            request(arbiter, WRITING);
        } else if (arbiter->turns == 0) {
            request(arbiter, READING); /* there may be another value by now */
        } else {
            give_answer(arbiter);
        }
    } else {
        end_errand(arbiter);
    }
}

static void on_written(struct ct_etcd_arbiter *arbiter, const struct ct_etcd_reply *reply)
{
    const struct ct_job_record *record = &arbiter->next.record;
    ct_arbiter_learned(&arbiter->view, &arbiter->next, reply->revision, ct_clock_now(NULL));
    arbiter->unused = false;
    if (!arbiter->serves) {
        give_answer(arbiter);
        return;
    }
    end_errand(arbiter);
    if (arbiter->hosts && !arbiter->closing) {
        arbiter->unserved = false;
        arbiter->unwritten = arbiter->fresh; /* a newer one has come meanwhile */
        arbiter->options.on_served(arbiter->options.data, record->term, record->version,
                                   reply->sent_ns);
    }
}

/* Is the revision of the value that this agent knows one of another history? */
static bool is_restored(struct ct_etcd_arbiter *arbiter, const struct ct_etcd_reply *reply)
{
    bool known = arbiter->cluster[0] != '\0' && reply->cluster[0] != '\0';
    bool restored = (known && strcmp(arbiter->cluster, reply->cluster) != 0) ||
                    (reply->revision != 0 && reply->revision < arbiter->revision);
    memcpy(arbiter->cluster, reply->cluster, sizeof(arbiter->cluster));
    arbiter->revision = reply->revision;
    return restored;
}

static void on_value(void *data, const struct ct_etcd_reply *reply)
{
    struct ct_etcd_arbiter *arbiter = data;
    bool wrote = arbiter->doing == WRITING && reply->rc == 0 && reply->succeeded;
    if (reply->rc == CT_ENOENT) {
        arbiter->lease = 0; /* it has ended, so the errand needs another one */
        if (arbiter->unused) {
            fail(arbiter, CT_EIO, "etcd drops each lease as soon as it has granted it");
        } else {
            put_off(arbiter);
        }
        return;
    }
    if (reply->rc != 0) {
        struct ct_err err = reply->err;
        if (reply->rc == CT_ELIMIT) { /* then this key matters more than the endpoint */
            (void)ct_err_wrap(&err, "the key %s", arbiter->key);
        }
        fail(arbiter, reply->rc, err.text);
        return;
    }
    bool first = !arbiter->met;
    arbiter->met = true;
    if (is_restored(arbiter, reply)) {
        ct_arbiter_init(&arbiter->view);
        if (wrote) { /* over a value that it has not seen */
            arbiter->turns++;
            request(arbiter, READING);
            return;
        }
    }
    if (!wrote && !learn(arbiter, reply)) {
        return;
    }
    if (first) {
        say_trouble(arbiter, 0, NULL); /* a refusal counts for less from now on */
    }
    if (first && !arbiter->closing) {
        arbiter->options.on_met(arbiter->options.data, reply->own_address);
    }
    if (arbiter->closing) {
        return;
    }
    if (wrote) {
        on_written(arbiter, reply);
    } else if (++arbiter->turns > TURNS) {
        struct ct_err err;
        (void)ct_err_set(&err, CT_EBUSY, "others write the key %s all the time", arbiter->key);
        fail(arbiter, CT_EBUSY, err.text);
    } else {
        decide(arbiter);
    }
}

/* ---- the lease ------------------------------------------------------------------------------ */

static void on_lease(void *data, const struct ct_etcd_reply *reply)
{
    struct ct_etcd_arbiter *arbiter = data;
    arbiter->leasing = false;
    if (reply->rc == CT_ENOENT || (reply->rc == 0 && reply->ttl_s == 0)) {
        arbiter->lease = 0; /* it has ended; another one is made */
    } else if (reply->rc == 0) {
        arbiter->unused = arbiter->unused || arbiter->lease == 0;
        arbiter->lease = reply->lease;
        arbiter->renew_ns = reply->sent_ns + RENEW_NS;
    } else {
        arbiter->pause_ns = ct_clock_now(NULL) + PAUSE_NS;
        say_trouble(arbiter, reply->rc, reply->err.text);
        if (arbiter->lease == 0) {
            say_unserved(arbiter, false); /* nothing can be written */
        }
    }
    go_on(arbiter);
}

/* Returns false if it has to be waited for. */
static bool has_lease(struct ct_etcd_arbiter *arbiter, int64_t now_ns)
{
    struct ct_err err = {0};
    if (now_ns >= arbiter->renew_ns - RENEW_NS + KEEP_S * CT_NS_PER_S) {
        arbiter->lease = 0; /* it is over: this agent has asked nothing for so long */
    }
    if (arbiter->leasing || (arbiter->lease != 0 && now_ns < arbiter->renew_ns)) {
        return arbiter->lease != 0;
    }
    int rc = arbiter->lease == 0
                 ? ct_etcd_grant(arbiter->etcd, KEEP_S, on_lease, arbiter, &err)
                 : ct_etcd_keep_alive(arbiter->etcd, arbiter->lease, on_lease, arbiter, &err);
    arbiter->leasing = rc == 0;
    if (rc != 0) {
        fail(arbiter, rc, err.text);
    }
    return arbiter->lease != 0 && rc == 0;
}

/* ---- what is next --------------------------------------------------------------------------- */

static bool host_is_due(const struct ct_etcd_arbiter *arbiter, int64_t now_ns)
{
    return arbiter->hosts && (arbiter->fresh || now_ns >= arbiter->beat_ns);
}

static void go_on(struct ct_etcd_arbiter *arbiter)
{
    int64_t now_ns = ct_clock_now(NULL);
    bool due = host_is_due(arbiter, now_ns);
    if (arbiter->closing || arbiter->doing != NOTHING || (!due && !arbiter->asked) ||
        now_ns < arbiter->pause_ns || !has_lease(arbiter, now_ns)) {
        set_timer(arbiter);
        return;
    }
    arbiter->turns = 0;
    /* When etcd is slow, a beat is always due: a question has every second turn at least. */
    arbiter->serves = due && !(arbiter->serves && arbiter->asked);
    if (arbiter->serves) {
        arbiter->beat_ns = now_ns + arbiter->options.lease_ms * CT_NS_PER_MS / BEATS;
    }
    if (arbiter->view.revision < 0) {
        request(arbiter, READING);
    } else {
        decide(arbiter);
    }
}

static void on_timer(uv_timer_t *timer)
{
    go_on(CT_CONTAINER_OF(timer, struct ct_etcd_arbiter, timer));
}

static void set_timer(struct ct_etcd_arbiter *arbiter)
{
    int64_t now_ns = ct_clock_now(NULL), at_ns = INT64_MAX;
    if (arbiter->closing) {
        return;
    }
    if (arbiter->doing == NOTHING && !arbiter->leasing) {
        at_ns = arbiter->hosts ? arbiter->beat_ns : INT64_MAX;
        at_ns = arbiter->asked || (arbiter->hosts && arbiter->fresh) ? now_ns : at_ns;
        at_ns = at_ns < arbiter->pause_ns ? arbiter->pause_ns : at_ns;
    }
    if (at_ns == INT64_MAX) {
        (void)uv_timer_stop(&arbiter->timer);
    } else {
        uv_update_time(arbiter->timer.loop);
        (void)uv_timer_start(&arbiter->timer, on_timer, (uint64_t)ct_deadline_left_ms(NULL, at_ns),
                             0);
    }
}

void ct_etcd_arbiter_ask(struct ct_etcd_arbiter *arbiter, const struct ct_vote_ask *ask)
{
    arbiter->asked = ask != NULL;
    arbiter->asked_again = ask != NULL;
    if (ask != NULL) {
        arbiter->question = *ask;
    }
    set_timer(arbiter);
}

void ct_etcd_arbiter_serve(struct ct_etcd_arbiter *arbiter, const struct ct_voter *self,
                           const struct ct_job_record *record)
{
    arbiter->hosts = record != NULL;
    arbiter->fresh = arbiter->unwritten = record != NULL;
    if (record == NULL) {
        arbiter->unserved = false;
    } else {
        arbiter->self = *self;
        arbiter->record = *record;
    }
    set_timer(arbiter);
}

bool ct_etcd_arbiter_is_settled(const struct ct_etcd_arbiter *arbiter)
{
    return !arbiter->hosts || arbiter->trouble || !arbiter->unwritten;
}

/* ---- opening and closing -------------------------------------------------------------------- */

int ct_etcd_arbiter_open(uv_loop_t *loop, const struct ct_etcd_arbiter_options *options,
                         struct ct_etcd_arbiter **out, struct ct_err *err)
{
    const struct ct_etcd_options client = {.settings = options->settings,
                                           .connect_ms = CONNECT_MS,
                                           .attempt_ms = ATTEMPT_MS,
                                           .request_ms = REQUEST_MS};
    struct ct_etcd_arbiter *arbiter = ct_calloc(1, sizeof(*arbiter));
    if (arbiter == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory for the arbiter of the job");
    }
    int len = snprintf(arbiter->key, sizeof(arbiter->key), "/ctrun/%s/arbiter", options->run_id);
    if (len < 0 || (size_t)len >= sizeof(arbiter->key)) {
        ct_free(arbiter);
        return ct_err_set(err, CT_EINVAL, "the job's id is too long for a key in etcd");
    }
    arbiter->options = *options;
    arbiter->options.settings = NULL;
    arbiter->options.run_id = NULL;
    ct_arbiter_init(&arbiter->view);
    int rc = ct_etcd_open(loop, &client, &arbiter->etcd, err);
    if (rc != 0) {
        ct_free(arbiter);
        return rc;
    }
    CT_ASSERT(uv_timer_init(loop, &arbiter->timer) == 0); /* cannot fail */
    *out = arbiter;
    return 0;
}

static void on_closed(uv_handle_t *handle)
{
    ct_free(CT_CONTAINER_OF(handle, struct ct_etcd_arbiter, timer));
}

void ct_etcd_arbiter_close(struct ct_etcd_arbiter *arbiter)
{
    if (arbiter == NULL || arbiter->closing) {
        return;
    }
    arbiter->closing = true;
    ct_etcd_close(arbiter->etcd);
    uv_close((uv_handle_t *)&arbiter->timer, on_closed);
}
