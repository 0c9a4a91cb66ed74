/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: ct_session_feed() finds whole requests in the bytes, apply() calls the engine, and
 * the reply goes to session.out. Bytes of a request that is not complete are kept in a struct
 * ct_partial until the rest comes.
 *
 * Other paths: a WAIT gets its reply after on_wake(), and a change of a watched key becomes a
 * notice in on_notice(). Both are called in the middle of another session's request, so the owner
 * sends later. Feeding stalls when too much is unsent, and yields before a request that copies
 * much. A request about very many keys is served in slices, one in each turn of the loop (struct
 * ct_partial says how far it came). Its answer may show what other clients do in between.
 *
 * Failure modes: a negative code ends the connection. Replies to earlier requests are still sent.
 */
#include "rendezvous/store/session.h"

#include "common/alloc.h"
#include "common/list.h"
#include "common/num.h"
#include "rendezvous/wire/limits.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Keys or pairs of a request that are served together: all, or a part if there are very many. */
struct ct_slice {
    struct ct_bytes items;
    size_t count;
    bool more; /* others follow */
};

/* ---- replies -------------------------------------------------------------------------------- */

static int reply_u8(struct ct_session *s, uint8_t v)
{
    return ct_outq_put(&s->out, &v, sizeof(v));
}

static int reply_i64(struct ct_session *s, int64_t v)
{
    return ct_outq_put(&s->out, &v, sizeof(v));
}

static int reply_bytes(struct ct_session *s, struct ct_bytes value)
{
    int rc = reply_i64(s, (int64_t)value.len);
    return rc == 0 ? ct_outq_put(&s->out, value.ptr, value.len) : rc;
}

/* NULL = no such key: an empty value. */
static int reply_blob(struct ct_session *s, struct ct_blob *value)
{
    int rc = reply_i64(s, value != NULL ? (int64_t)value->len : 0);
    return rc == 0 && value != NULL ? ct_outq_put_blob(&s->out, value) : rc;
}

static void on_wake(struct ct_waiter *waiter)
{
    struct ct_session *s = CT_CONTAINER_OF(waiter, struct ct_session, waiter);
    /* The wake is only noted, because waking thousands must not need memory for each. */
    s->woken = true;
    s->service->on_woken(s);
}

int ct_session_answer_wait(struct ct_session *session)
{
    if (session->error != 0 || !session->woken) {
        return session->error;
    }
    session->woken = false;
    return reply_u8(session, CT_WAIT_DONE);
}

/* ---- watching ------------------------------------------------------------------------------- */

/* Unsent bytes at which a session stalls. */
static size_t stall_at(const struct ct_session *s)
{
    const struct ct_budget *budget = ct_store_budget(s->service->store);
    return ct_budget_fits(budget, CT_OUT_STALL_BYTES) ? CT_OUT_STALL_BYTES : CT_GRANT_BYTES / 2;
}

/* Is so much unsent that this client must get no more notices? If no write is blocked, the client
 * had no chance to read yet. Then only the queue's own memory counts, and not the large values of a
 * burst, which are shared. */
static bool lags(const struct ct_session *s)
{
    return (s->blocked ? s->out.total : ct_outq_memory(&s->out)) >= stall_at(s);
}

/* Puts a notice into `out`, in the order of PyTorch's server: the answers of an ADD and of a WAIT
 * come before the notice. */
static int put_notice(struct ct_session *s, const struct ct_notice *notice)
{
    if (s->service->adder == s) {
        s->service->adder = NULL;
        if (reply_i64(s, s->service->sum) != 0) {
            return CT_ENOMEM;
        }
    }
    uint8_t type = notice->before == NULL  ? CT_WATCH_CREATED
                   : notice->after == NULL ? CT_WATCH_DELETED
                                           : CT_WATCH_UPDATED;
    if (ct_session_answer_wait(s) != 0 || reply_u8(s, type) != 0 ||
        reply_bytes(s, notice->key) != 0 || reply_blob(s, notice->before) != 0) {
        return CT_ENOMEM;
    }
    return reply_blob(s, notice->after);
}

static void on_notice(void *watcher, const struct ct_notice *notice)
{
    struct ct_session *s = watcher;
    if (s->error == 0) {
        s->error = (int8_t)(lags(s) ? CT_ELIMIT : put_notice(s, notice));
        s->service->on_woken(s);
    }
}

static int op_watch(struct ct_session *s, const struct ct_request *req)
{
    int rc = ct_store_watch(s->service->store, req->key, s, on_notice);
    if (rc != 0) {
        return rc;
    }
    s->watches = true;
    return reply_u8(s, CT_WATCH_REGISTERED);
}

/* ---- operations ----------------------------------------------------------------------------- */

static int op_add(struct ct_session *s, const struct ct_request *req, struct ct_err *err)
{
    struct ct_service *service = s->service;
    service->adder = s->watches ? s : NULL;
    int rc = ct_store_add(service->store, req->key, req->number, &service->sum);
    bool answered = s->watches && service->adder == NULL;
    service->adder = NULL;
    if (rc == CT_EFORMAT) {
        return ct_err_set(err, rc, "ADD to a value that is not a number");
    }
    return rc == 0 && !answered ? reply_i64(s, service->sum) : rc;
}

static int op_compare_set(struct ct_session *s, const struct ct_request *req)
{
    struct ct_blob *held = NULL;
    int rc = ct_store_compare_set(s->service->store, req->key, req->value, req->second, &held);
    if (rc != 0) {
        return rc;
    }
    /* A missing key is answered with the expected value: torchrun's agents rely on it. */
    return held != NULL ? reply_blob(s, held) : reply_bytes(s, req->value);
}

static int op_append(struct ct_session *s, const struct ct_request *req, struct ct_err *err)
{
    int rc = ct_store_append(s->service->store, req->key, req->value);
    if (rc == CT_ELIMIT) {
        return ct_err_set(err, rc, "APPEND makes a value longer than %zu bytes", CT_MAX_VALUE_LEN);
    }
    return rc;
}

static int op_check(struct ct_session *s, struct ct_slice *slice)
{
    if (!ct_store_check(s->service->store, slice->items, slice->count)) {
        slice->more = false;
        return reply_u8(s, CT_CHECK_NOT_READY);
    }
    return slice->more ? 0 : reply_u8(s, CT_CHECK_READY);
}

static int op_wait(struct ct_session *s, const struct ct_slice *slice)
{
    int rc = ct_store_wait(s->service->store, &s->waiter, slice->items, slice->count, slice->more);
    if (rc == CT_STORE_E_PENDING || (rc == 0 && slice->more)) {
        return 0;
    }
    return rc == 0 ? reply_u8(s, CT_WAIT_DONE) : rc;
}

static int op_multi_get(struct ct_session *s, const struct ct_slice *slice)
{
    struct ct_bytes items = slice->items;
    int rc = 0;
    for (size_t i = 0; i < slice->count && rc == 0; i++) {
        rc = reply_blob(s, ct_store_get(s->service->store, ct_request_next(&items)));
    }
    return rc;
}

static int op_delete(struct ct_session *s, const struct ct_request *req)
{
    int rc = ct_store_delete(s->service->store, req->key);
    return rc < 0 ? rc : reply_i64(s, rc != CT_STORE_E_MISSING);
}

static int op_queue_pop(struct ct_session *s, const struct ct_request *req)
{
    size_t len = 0;
    struct ct_blob *value = NULL;
    int rc = ct_store_pop(s->service->store, &s->waiter, req->key, &len, &value);
    if (rc != 0) {
        return rc;
    }
    rc = reply_i64(s, (int64_t)len);
    if (rc == 0 && value != NULL) {
        rc = reply_blob(s, value);
    }
    ct_blob_unref(value);
    return rc;
}

static int op_barrier(struct ct_session *s, const struct ct_request *req, struct ct_err *err)
{
    int rc = ct_store_barrier(s->service->store, &s->waiter, req->key, req->number);
    if (rc == CT_EFORMAT) {
        return ct_err_set(err, rc, "BARRIER at a value that is not a number");
    }
    if (rc == CT_STORE_E_PENDING) {
        return 0;
    }
    return rc == 0 ? reply_u8(s, CT_WAIT_DONE) : rc;
}

/* op_list_keys() has made room for all keys. */
static void list_key(void *data, struct ct_bytes key)
{
    CT_ASSERT(reply_bytes(data, key) == 0);
}

/* May the replies take this much? CT_GRANT_BYTES are granted even without budget. */
static bool reply_fits(struct ct_session *s, size_t memory)
{
    struct ct_budget *budget = ct_store_budget(s->service->store);
    if (memory <= CT_GRANT_BYTES || ct_budget_fits(budget, memory)) {
        return true;
    }
    budget->refused++;
    return false;
}

static int op_list_keys(struct ct_session *s, struct ct_err *err)
{
    size_t keys = ct_store_num_keys(s->service->store), len = 0;
    if (!ct_mul_size(keys, 8, &len) || !ct_add_size(len, 8, &len) ||
        !ct_add_size(len, ct_store_key_bytes(s->service->store), &len) || len > CT_MAX_REPLY_LEN) {
        return ct_err_set(err, CT_ELIMIT, "LIST_KEYS of more than %zu bytes", CT_MAX_REPLY_LEN);
    }
    if (!reply_fits(s, len) || ct_outq_reserve(&s->out, len) != 0 ||
        reply_i64(s, (int64_t)keys) != 0) {
        return CT_ENOMEM;
    }
    ct_store_list(s->service->store, list_key, s);
    return 0;
}

/* Bytes that the operation copies in addition to those of the request. */
static size_t copies(const struct ct_session *s, const struct ct_request *req)
{
    struct ct_store *store = s->service->store;
    if (req->op == CT_OP_LIST_KEYS) {
        return ct_store_num_keys(store) * 8 + ct_store_key_bytes(store);
    }
    return req->op == CT_OP_APPEND ? ct_store_append_copies(store, req->key) : 0;
}

/* Is the request served in slices? A MULTI_GET of a client that watches keys is not, because a
 * notice must not come in the middle of its answer. */
static bool is_sliced(const struct ct_session *s, const struct ct_request *req)
{
    return (req->count > CT_SLICE_KEYS || req->items.len > CT_SLICE_BYTES) &&
           (req->op != CT_OP_MULTI_GET || !s->watches);
}

/* Does the request, or a slice of it, fit into what is left of this turn of the loop? A request
 * that is larger than a turn fits at the beginning of one. */
static bool fits_turn(struct ct_session *s, const struct ct_request *req)
{
    size_t bytes = is_sliced(s, req) ? CT_TURN_BYTES : copies(s, req);
    size_t *turn = &s->service->turn_bytes;
    if (bytes < CT_HEAVY_BYTES) {
        return true;
    }
    if (*turn > 0 && (*turn >= CT_TURN_BYTES || bytes > CT_TURN_BYTES - *turn)) {
        return false;
    }
    *turn += bytes;
    return true;
}

/* Returns the keys or pairs that come next, after `done` bytes of them have been served. */
static struct ct_slice next_slice(const struct ct_session *s, const struct ct_request *req,
                                  size_t done)
{
    struct ct_slice slice = {.items = req->items, .count = req->count};
    if (!is_sliced(s, req)) {
        return slice;
    }
    slice.items.ptr += done;
    slice.items.len -= done;
    slice.count = 0;
    struct ct_bytes rest = slice.items;
    while (rest.len > 0 && slice.count < CT_SLICE_KEYS &&
           slice.items.len - rest.len < CT_SLICE_BYTES) {
        (void)ct_request_next(&rest);
        if (req->op == CT_OP_MULTI_SET) {
            (void)ct_request_next(&rest);
        }
        slice.count++;
    }
    slice.items.len -= rest.len;
    slice.more = rest.len > 0;
    return slice;
}

/* Applies the request or its slice. Sets slice->more to false when the answer is complete. */
static int apply(struct ct_session *s, const struct ct_request *req, struct ct_slice *slice,
                 struct ct_err *err)
{
    switch (req->op) {
    case CT_OP_VALIDATE:
        return 0;
    case CT_OP_SET:
        return ct_store_set(s->service->store, req->key, req->value);
    case CT_OP_COMPARE_SET:
        return op_compare_set(s, req);
    case CT_OP_GET:
        return reply_blob(s, ct_store_get(s->service->store, req->key));
    case CT_OP_ADD:
        return op_add(s, req, err);
    case CT_OP_CHECK:
        return op_check(s, slice);
    case CT_OP_WAIT:
        return op_wait(s, slice);
    case CT_OP_GETNUMKEYS:
        return reply_i64(s, (int64_t)ct_store_num_keys(s->service->store));
    case CT_OP_DELETE_KEY:
        return op_delete(s, req);
    case CT_OP_APPEND:
        return op_append(s, req, err);
    case CT_OP_MULTI_GET:
        return op_multi_get(s, slice);
    case CT_OP_MULTI_SET:
        return ct_store_multi_set(s->service->store, slice->items, slice->count);
    case CT_OP_CANCEL_WAIT:
        /* The client expects one reply, even if the wait was over before. */
        ct_store_cancel(s->service->store, &s->waiter);
        return reply_u8(s, CT_WAIT_CANCELED);
    case CT_OP_PING:
        return ct_outq_put(&s->out, &req->nonce, sizeof(req->nonce));
    case CT_OP_QUEUE_PUSH:
        return ct_store_push(s->service->store, req->key, req->value);
    case CT_OP_QUEUE_POP:
        return op_queue_pop(s, req);
    case CT_OP_QUEUE_LEN:
        return reply_i64(s, (int64_t)ct_store_queue_len(s->service->store, req->key));
    case CT_OP_LIST_KEYS:
        return op_list_keys(s, err);
    case CT_OP_BARRIER:
        return op_barrier(s, req, err);
    case CT_OP_WATCH_KEY:
        return op_watch(s, req);
    }
    return ct_err_set(err, CT_EPROTO, "unknown operation %u", (unsigned)req->op);
}

/* Checks that this operation may come now. */
static int admit(struct ct_session *s, enum ct_op op, struct ct_err *err)
{
    if (op == CT_OP_VALIDATE && s->greeted) {
        return ct_err_set(err, CT_EPROTO, "VALIDATE a second time");
    }
    s->greeted = true;
    if (s->waiter.missing > 0 && op != CT_OP_CANCEL_WAIT) {
        if (s->dialect != CT_DIALECT_LEGACY) {
            /* The client reads one byte next; any other reply would be taken for the wait's. */
            return ct_err_set(err, CT_EPROTO, "%s while a WAIT is pending", ct_op_name(op));
        }
        /* The client has given up waiting. It would take a late answer for that of this request. */
        ct_store_cancel(s->service->store, &s->waiter);
    }
    return 0;
}

/* Finds out the dialect. Returns 0 when it is known. */
static int greet(struct ct_session *s, const unsigned char *bytes, size_t len)
{
    if (s->greeted) {
        return 0;
    }
    int rc = len > 0 ? ct_dialect_detect(bytes, len, &s->dialect) : CT_SCAN_E_MORE;
    /* In the current dialect VALIDATE itself is the greeting, and comes once. */
    s->greeted = rc == 0 && s->dialect == CT_DIALECT_LEGACY;
    return rc;
}

/* ---- the stream of requests ----------------------------------------------------------------- */

/* Bytes that are kept: a part of a request, or whole requests that a stall delays. */
struct ct_partial {
    struct ct_scan scan;
    size_t done;         /* bytes of the first request's keys or pairs that were served */
    struct ct_buf bytes; /* never empty */
};

/* Applies the request or its next slice, and checks how much memory the reply takes. *done is as in
 * struct ct_partial; it becomes 0 when the whole request is served. */
static int answer(struct ct_session *s, const struct ct_request *req, size_t *done,
                  struct ct_err *err)
{
    struct ct_slice slice = next_slice(s, req, *done);
    int rc = apply(s, req, &slice, err);
    *done = slice.more ? *done + slice.items.len : 0;
    if (rc == 0 && s->out.total > CT_GRANT_BYTES && !reply_fits(s, ct_outq_memory(&s->out))) {
        return CT_ENOMEM;
    }
    return rc == 0 ? s->error : rc;
}

/* Serves requests from the front of `bytes`. *used gets the bytes of those that were served.
 * Returns 0 when the rest is an incomplete request, CT_SESSION_E_STALLED, CT_SESSION_E_YIELDED, or
 * a negative code. */
static int serve(struct ct_session *s, struct ct_scan *scan, size_t *done,
                 const unsigned char *bytes, size_t len, size_t *used, struct ct_err *err)
{
    *used = 0;
    for (;;) {
        if (s->out.total > 0 && s->out.total >= stall_at(s)) {
            return CT_SESSION_E_STALLED;
        }
        int rc = greet(s, bytes + *used, len - *used);
        bool first_look = scan->field == NULL;
        if (rc == 0) {
            scan->dialect = s->dialect;
            rc = ct_scan(scan, bytes + *used, len - *used, err);
        }
        /* The operation is checked before its fields. So a port scanner is refused at its first
         * byte, and the error does not depend on how many bytes came with that byte. */
        if (first_look && scan->field != NULL) {
            int verdict = admit(s, scan->op, err);
            rc = verdict != 0 ? verdict : rc;
        }
        if (rc == CT_SCAN_E_MORE) {
            return 0;
        }
        if (rc != 0) {
            return rc;
        }
        struct ct_request req;
        ct_request_decode(scan, bytes + *used, &req);
        if (!fits_turn(s, &req)) {
            return CT_SESSION_E_YIELDED;
        }
        rc = answer(s, &req, done, err);
        if (rc != 0) {
            return rc;
        }
        if (*done > 0) {
            continue;
        }
        *used += scan->at;
        s->service->requests++;
        s->service->by_op[req.op]++;
        ct_scan_next(scan);
    }
}

static size_t partial_cost(const struct ct_partial *partial)
{
    return sizeof(*partial) + partial->bytes.cap + 2 * CT_BLOCK_COST;
}

static void partial_free(struct ct_session *s)
{
    if (s->partial != NULL) {
        ct_budget_give(ct_store_budget(s->service->store), partial_cost(s->partial));
        ct_buf_fini(&s->partial->bytes);
        ct_free(s->partial);
        s->partial = NULL;
    }
}

static int partial_append(struct ct_session *s, const void *bytes, size_t len)
{
    struct ct_partial *partial = s->partial;
    struct ct_buf *buf = &partial->bytes;
    struct ct_budget *budget = ct_store_budget(s->service->store);
    size_t before = partial_cost(partial), need = buf->len + len;
    bool grows = len > buf->cap - buf->off - buf->len;
    /* A buffer that grows doubles. */
    if (grows && need > CT_GRANT_BYTES && !ct_budget_fits(budget, 2 * need)) {
        budget->refused++;
        return CT_ENOMEM;
    }
    int rc = ct_buf_append(buf, bytes, len);
    ct_budget_force(budget, partial_cost(partial) - before);
    return rc;
}

/* Gives the memory of keys or pairs that were served, up to `done` bytes of them, back to the
 * kernel. Freeing a GiB at the end would take 30 ms. */
static void give_pages(const struct ct_buf *buf, size_t before, size_t done)
{
    const uintptr_t mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
    /* The opcode and the count in front of the items are still needed. */
    const uintptr_t items = (uintptr_t)ct_buf_bytes(buf) + 1 + 8;
    const uintptr_t from = (items + before + mask) & ~mask, to = (items + done) & ~mask;
    if (from < to) {
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
}

static int feed_partial(struct ct_session *s, const void *bytes, size_t len, struct ct_err *err)
{
    int rc = partial_append(s, bytes, len);
    if (rc != 0) {
        return rc;
    }
    struct ct_partial *partial = s->partial;
    size_t used = 0, before = partial->done;
    rc = serve(s, &partial->scan, &partial->done, ct_buf_bytes(&partial->bytes), partial->bytes.len,
               &used, err);
    ct_buf_consume(&partial->bytes, used);
    give_pages(&partial->bytes, used > 0 ? 0 : before, partial->done);
    if (partial->bytes.len == 0) {
        partial_free(s);
    }
    return rc;
}

static int keep(struct ct_session *s, const struct ct_scan *scan, size_t done,
                const unsigned char *bytes, size_t len)
{
    s->partial = ct_calloc(1, sizeof(*s->partial));
    if (s->partial == NULL) {
        return CT_ENOMEM;
    }
    ct_budget_force(ct_store_budget(s->service->store), partial_cost(s->partial));
    s->partial->scan = *scan;
    s->partial->done = done;
    return partial_append(s, bytes, len);
}

/* The usual case: whole requests, which are served without being copied. */
static int feed_whole(struct ct_session *s, const unsigned char *bytes, size_t len,
                      struct ct_err *err)
{
    struct ct_scan scan = {0};
    size_t done = 0, used = 0;
    int rc = serve(s, &scan, &done, bytes, len, &used, err);
    if (rc >= 0 && used < len && keep(s, &scan, done, bytes + used, len - used) != 0) {
        return CT_ENOMEM;
    }
    return rc;
}

int ct_session_feed(struct ct_session *session, const void *bytes, size_t len, struct ct_err *err)
{
    const struct ct_budget *budget = ct_store_budget(session->service->store);
    uint64_t refused = budget->refused;
    int rc = ct_session_answer_wait(session);
    if (rc == 0 && session->partial != NULL) {
        rc = feed_partial(session, bytes, len, err);
    } else if (rc == 0 && len > 0) {
        rc = feed_whole(session, bytes, len, err);
    }
    if (rc == CT_ENOMEM) {
        return ct_err_set(err, rc,
                          budget->refused != refused
                              ? "the store's memory is used up (--max-memory)"
                              : "out of memory");
    }
    if (session->error == CT_ELIMIT) {
        return ct_err_set(err, CT_ELIMIT, "%s", CT_SESSION_LAGS);
    }
    if (rc == CT_EIO) {
        return ct_err_set(err, rc, "a change could not be written to the journal");
    }
    return rc;
}

bool ct_session_mid_request(const struct ct_session *session)
{
    return session->partial != NULL;
}

void ct_session_init(struct ct_session *session, struct ct_service *service)
{
    memset(session, 0, sizeof(*session));
    session->service = service;
    session->waiter.wake = on_wake;
}

void ct_session_fini(struct ct_session *session)
{
    if (session->service != NULL) {
        ct_store_cancel(session->service->store, &session->waiter);
        if (session->watches) {
            ct_store_unwatch(session->service->store, session);
        }
    }
    session->watches = false;
    ct_outq_fini(&session->out);
    partial_free(session);
    session->woken = false;
}
