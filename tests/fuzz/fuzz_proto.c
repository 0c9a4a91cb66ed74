/* SPDX-License-Identifier: Apache-2.0
 *
 * Hostile bytes for the store: codec, session and engine together, without a socket.
 *
 * Input: one byte of shape (bit 7: a good greeting goes first; the other bits: size of the pieces,
 * 0 = 128), then the bytes of a connection. They are served twice, in one piece and in small ones.
 * The oracle, besides the sanitizers: both ways give the same replies, the same verdict and the
 * same store, since the protocol has no frames and TCP may cut anywhere.
 */
#include "rendezvous/store/session.h"

#include "common/err.h"
#include "tests/fuzz/fuzz.h"

#include <string.h>

struct run {
    struct ct_store *store;
    struct ct_service service;
    struct ct_session session;
    struct ct_buf replies;
    int rc;
};

static void on_woken(struct ct_session *session)
{
    CT_ASSERT(session->watches); /* the only client cannot wake itself */
}

static void take_replies(struct run *run)
{
    while (run->session.out.total > 0) {
        struct iovec iov[4];
        size_t n = ct_outq_iov(&run->session.out, iov, 4), len = 0;
        CT_ASSERT(n > 0);
        for (size_t i = 0; i < n; i++) {
            CT_ASSERT(ct_buf_append(&run->replies, iov[i].iov_base, iov[i].iov_len) == 0);
            len += iov[i].iov_len;
        }
        ct_outq_consume(&run->session.out, len);
    }
}

static void feed(struct run *run, const unsigned char *bytes, size_t len)
{
    struct ct_err err = {0};
    run->rc = ct_session_feed(&run->session, bytes, len, &err);
    while (run->rc > 0) {
        take_replies(run);
        run->service.turn_bytes = 0;
        run->rc = ct_session_feed(&run->session, NULL, 0, &err);
    }
    take_replies(run);
    CT_ASSERT(run->rc <= 0);
    CT_ASSERT((run->rc < 0) == (err.text[0] != '\0'));
}

static void start(struct run *run, int greet)
{
    static const unsigned char hello[] = {0x00, 0xce, 0xf7, 0x85, 0x3c};
    memset(run, 0, sizeof(*run));
    CT_ASSERT(ct_store_new(&run->store) == 0);
    run->service = (struct ct_service){.store = run->store, .on_woken = on_woken};
    ct_session_init(&run->session, &run->service);
    if (greet) {
        feed(run, hello, sizeof(hello));
        CT_ASSERT(run->rc == 0);
    }
}

static void finish(struct run *run)
{
    ct_session_fini(&run->session);
    ct_buf_fini(&run->replies);
    CT_ASSERT(ct_store_num_waiters(run->store) == 0);
    ct_store_free(run->store);
}

/* LIST_KEYS answers in the order of a hash that each store draws for itself; then it is the same
 * bytes in another order. */
static bool same_replies(const struct run *a, const struct run *b)
{
    if (a->replies.len != b->replies.len || a->replies.len == 0) {
        return a->replies.len == b->replies.len;
    }
    const unsigned char *x = ct_buf_bytes(&a->replies), *y = ct_buf_bytes(&b->replies);
    if (a->service.by_op[CT_OP_LIST_KEYS] == 0) {
        return memcmp(x, y, a->replies.len) == 0;
    }
    size_t counts[256] = {0};
    for (size_t i = 0; i < a->replies.len; i++) {
        counts[x[i]]++;
        counts[y[i]]--;
    }
    static const size_t none[256];
    return memcmp(counts, none, sizeof(counts)) == 0;
}

static void compare(const struct run *whole, const struct run *cut)
{
    CT_ASSERT(whole->rc == cut->rc);
    CT_ASSERT(whole->service.requests == cut->service.requests);
    CT_ASSERT(same_replies(whole, cut));
    CT_ASSERT(ct_store_num_keys(whole->store) == ct_store_num_keys(cut->store));
    CT_ASSERT(ct_store_num_bytes(whole->store) == ct_store_num_bytes(cut->store));
    CT_ASSERT(ct_store_num_waiters(whole->store) == ct_store_num_waiters(cut->store));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    int greet = data[0] & 0x80;
    size_t piece = (data[0] & 0x7f) != 0 ? data[0] & 0x7f : 128;
    data++;
    size--;
    struct run whole, cut;
    start(&whole, greet);
    start(&cut, greet);
    feed(&whole, data, size);
    for (size_t at = 0; at < size && cut.rc == 0; at += piece) {
        feed(&cut, data + at, size - at < piece ? size - at : piece);
    }
    /* How far one lags that watches keys depends on when it reads. */
    if (whole.session.error == 0 && cut.session.error == 0) {
        compare(&whole, &cut);
    }
    finish(&whole);
    finish(&cut);
    return 0;
}
