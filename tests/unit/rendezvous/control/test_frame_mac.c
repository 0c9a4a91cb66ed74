/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames after the proof: what a relay does to them is noticed.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/control/control.h"
#include "rendezvous/control/frame_mac.h"

#include <stdlib.h>
#include <string.h>

static const struct ct_token token = {.len = 16, .text = "0123456789abcdef"};
static const struct ct_token other = {.len = 16, .text = "0123456789abcdeX"};
static const unsigned char server_nonce[CT_NONCE_LEN] = {1}, agent_nonce[CT_NONCE_LEN] = {2};

#define FRAMES 3

struct scene {
    struct ct_frame_mac from, to;
    struct ct_buf frames[FRAMES]; /* as they were sent */
    size_t plain;                 /* bytes of each without number and MAC */
};

static void start(struct ct_frame_mac *mac, const struct ct_token *with, enum ct_token_role role)
{
    ct_frame_mac_start(mac, with, role, server_nonce, agent_nonce);
}

static void begin(struct scene *s)
{
    memset(s, 0, sizeof(*s));
    start(&s->from, &token, CT_ROLE_AGENT);
    start(&s->to, &token, CT_ROLE_AGENT);
    const struct ct_msg msg = {.type = CT_MSG_GUEST};
    for (int i = 0; i < FRAMES; i++) {
        s->frames[i] = (struct ct_buf)CT_BUF_INIT;
        assert_int_equal(ct_msg_encode(&msg, &s->frames[i]), 0);
        s->plain = s->frames[i].len;
        assert_int_equal(ct_frame_mac_add(&s->from, &s->frames[i], 0), 0);
        assert_int_equal(s->frames[i].len, s->plain + CT_FRAME_MAC_LEN);
        /* Whoever reads the header waits for all of it. */
        size_t whole = 0;
        assert_int_equal(
            ct_msg_length(ct_buf_bytes(&s->frames[i]), s->frames[i].len, 1024, &whole, NULL), 0);
        assert_int_equal(whole, s->frames[i].len);
    }
}

static void end(struct scene *s)
{
    for (int i = 0; i < FRAMES; i++) {
        ct_buf_fini(&s->frames[i]);
    }
    ct_frame_mac_fini(&s->from);
    ct_frame_mac_fini(&s->to);
}

/* A copy of frame i arrives, with one bit of byte `flip` the other way (-1 = none). */
static int arrives(struct scene *s, int i, int flip, struct ct_err *err)
{
    unsigned char frame[256];
    size_t len = s->frames[i].len;
    assert_true(len <= sizeof(frame));
    memcpy(frame, ct_buf_bytes(&s->frames[i]), len);
    if (flip >= 0) {
        frame[flip] ^= 1;
    }
    int rc = ct_frame_mac_take(&s->to, frame, &len, err);
    if (rc == 0) {
        struct ct_msg *msg = calloc(1, sizeof(*msg));
        size_t used = 0;
        assert_non_null(msg);
        assert_int_equal(len, s->plain);
        assert_int_equal(ct_msg_decode(frame, len, 1024, msg, &used, err), 0);
        assert_int_equal(msg->type, CT_MSG_GUEST);
        assert_int_equal(used, len);
        free(msg);
    }
    return rc;
}

static void test_frames_arrive_as_they_were_sent(void **state)
{
    struct scene s;
    struct ct_err err = {0};
    (void)state;
    begin(&s);
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(arrives(&s, i, -1, &err), 0);
    }
    end(&s);
}

static void test_an_altered_bit_is_noticed(void **state)
{
    struct scene s;
    (void)state;
    begin(&s);
    for (int at = 0; at < (int)s.frames[0].len; at++) {
        struct ct_err err = {0};
        assert_int_equal(arrives(&s, 0, at, &err), CT_EPERM);
        assert_non_null(strstr(err.text, "altered on its way"));
    }
    assert_int_equal(arrives(&s, 0, -1, NULL), 0); /* what is refused moves nothing */
    end(&s);
}

static void test_a_moved_frame_is_noticed(void **state)
{
    struct scene s;
    struct ct_err err = {0};
    (void)state;
    begin(&s);
    assert_int_equal(arrives(&s, 1, -1, &err), CT_EPERM); /* left out, or overtaken */
    assert_string_equal(err.text, "message 1 came where 0 was due: something on the way repeats "
                                  "messages or leaves them out");
    assert_int_equal(arrives(&s, 0, -1, &err), 0);
    assert_int_equal(arrives(&s, 0, -1, &err), CT_EPERM); /* repeated */
    end(&s);
}

static void test_a_frame_of_somebody_else(void **state)
{
    struct scene s;
    struct ct_err err = {0};
    (void)state;
    begin(&s);
    start(&s.to, &token, CT_ROLE_SERVER); /* it comes back to who sent it */
    assert_int_equal(arrives(&s, 0, -1, &err), CT_EPERM);
    start(&s.to, &other, CT_ROLE_AGENT);
    assert_int_equal(arrives(&s, 0, -1, &err), CT_EPERM);
    /* Of another connection with the same token. */
    ct_frame_mac_start(&s.to, &token, CT_ROLE_AGENT, agent_nonce, agent_nonce);
    assert_int_equal(arrives(&s, 0, -1, &err), CT_EPERM);
    start(&s.to, &token, CT_ROLE_AGENT);
    assert_int_equal(arrives(&s, 0, -1, &err), 0);
    end(&s);
}

static void test_a_frame_without_a_mac(void **state)
{
    struct scene s;
    (void)state;
    begin(&s);
    unsigned char frame[CT_CONTROL_HEADER + CT_FRAME_MAC_LEN] = {CT_CONTROL_FIRST_BYTE};
    for (size_t len = CT_CONTROL_HEADER; len <= sizeof(frame); len++) {
        struct ct_err err = {0};
        size_t left = len;
        assert_int_equal(ct_frame_mac_take(&s.to, frame, &left, &err), CT_EPERM);
        assert_int_equal(left, len);
    }
    end(&s);
}

static void a_frame_may_stand_behind_others(void **state)
{
    struct scene s;
    struct ct_frame_mac again;
    struct ct_buf all = CT_BUF_INIT;
    const struct ct_msg msg = {.type = CT_MSG_GUEST};
    size_t at = 0;
    (void)state;
    begin(&s);
    start(&again, &token, CT_ROLE_AGENT);
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(ct_msg_encode(&msg, &all), 0);
        assert_int_equal(ct_frame_mac_add(&again, &all, at), 0);
        assert_int_equal(all.len - at, s.frames[i].len);
        assert_memory_equal(ct_buf_bytes(&all) + at, ct_buf_bytes(&s.frames[i]), s.frames[i].len);
        at = all.len;
    }
    ct_buf_fini(&all);
    ct_frame_mac_fini(&again);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_may_stand_behind_others),
        cmocka_unit_test(test_frames_arrive_as_they_were_sent),
        cmocka_unit_test(test_an_altered_bit_is_noticed),
        cmocka_unit_test(test_a_moved_frame_is_noticed),
        cmocka_unit_test(test_a_frame_of_somebody_else),
        cmocka_unit_test(test_a_frame_without_a_mac),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
