/* SPDX-License-Identifier: Apache-2.0
 *
 * Both sessions use one store. What a session wants to send stays in its queue until the test takes
 * it.
 */
#include "tests/lib/session_pair.h"

#include "common/list.h"

#include <stdlib.h>

static void on_woken(struct ct_session *session)
{
    CT_CONTAINER_OF(session, struct peer, session)->woken++;
}

int pair_open(struct session_pair *pair)
{
    *pair = (struct session_pair){.service = {.on_woken = on_woken}};
    int rc = ct_store_new(&pair->store);
    if (rc != 0) {
        return rc;
    }
    pair->service.store = pair->store;
    ct_session_init(&pair->a.session, &pair->service);
    ct_session_init(&pair->b.session, &pair->service);
    return 0;
}

void pair_close(struct session_pair *pair)
{
    ct_session_fini(&pair->a.session);
    ct_session_fini(&pair->b.session);
    ct_store_free(pair->store);
}

int pair_set_up(void **state)
{
    struct session_pair *pair = malloc(sizeof(*pair));
    assert_non_null(pair);
    assert_int_equal(pair_open(pair), 0);
    *state = pair;
    return 0;
}

int pair_tear_down(void **state)
{
    pair_close(*state);
    free(*state);
    return 0;
}

void feed(struct peer *peer, const char *bytes, size_t len)
{
    struct ct_err err = {0};
    if (ct_session_feed(&peer->session, bytes, len, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

void take(struct peer *peer, struct ct_buf *out)
{
    struct ct_outq *replies = &peer->session.out;
    while (replies->total > 0) {
        struct iovec iov[3];
        size_t n = ct_outq_iov(replies, iov, 3), len = 0;
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(ct_buf_append(out, iov[i].iov_base, iov[i].iov_len), 0);
            len += iov[i].iov_len;
        }
        ct_outq_consume(replies, len);
    }
}

void expect(struct peer *peer, const char *want, size_t len)
{
    assert_int_equal(ct_session_answer_wait(&peer->session), 0);
    struct ct_buf got = CT_BUF_INIT;
    take(peer, &got);
    assert_int_equal(got.len, len);
    assert_true(len == 0 || memcmp(ct_buf_bytes(&got), want, len) == 0);
    ct_buf_fini(&got);
}
