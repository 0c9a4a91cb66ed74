/* SPDX-License-Identifier: Apache-2.0
 *
 * Every operation byte for byte, in both dialects: a conversation is given once whole and once one
 * byte at a time, and the replies must be the same bytes. The state is what the lines above left.
 */
#include "tests/lib/ct_test.h"

#include "rendezvous/store/session.h"

#define Z7 "\0\0\0\0\0\0\0"
#define HELLO "\x00\xce\xf7\x85\x3c"
#define B(text)                  \
    {                            \
        (text), sizeof(text) - 1 \
    }

struct text {
    const char *bytes;
    size_t len;
};

struct line {
    const char *what;
    struct text request, reply;
};

static const struct line current[] = {
    {"VALIDATE", B(HELLO), B("")},
    {"PING", B("\x0d\x78\x56\x34\x12"), B("\x78\x56\x34\x12")},
    {"SET", B("\x01\x02" Z7 "/k\x01" Z7 "v"), B("")},
    {"GET", B("\x03\x02" Z7 "/k"), B("\x01" Z7 "v")},
    {"GET of no key", B("\x03\x02" Z7 "/?"), B("\0" Z7)},
    {"COMPARE_SET, no key, something expected", B("\x02\x02" Z7 "/c\x01" Z7 "x\x01" Z7 "1"),
     B("\x01" Z7 "x")},
    {"COMPARE_SET, no key, nothing expected", B("\x02\x02" Z7 "/c\x00" Z7 "\x01" Z7 "1"),
     B("\x01" Z7 "1")},
    {"COMPARE_SET, other value", B("\x02\x02" Z7 "/c\x01" Z7 "x\x01" Z7 "2"), B("\x01" Z7 "1")},
    {"COMPARE_SET, same value", B("\x02\x02" Z7 "/c\x01" Z7 "1\x02" Z7 "22"), B("\x02" Z7 "22")},
    {"ADD", B("\x04\x05" Z7 "init/\x01" Z7), B("\x01" Z7)},
    {"ADD of less than nothing", B("\x04\x05" Z7 "init/\xfd\xff\xff\xff\xff\xff\xff\xff"),
     B("\xfe\xff\xff\xff\xff\xff\xff\xff")},
    {"CHECK", B("\x05\x02" Z7 "\x02" Z7 "/k\x02" Z7 "/c"), B("\0")},
    {"CHECK of no key", B("\x05\x02" Z7 "\x02" Z7 "/k\x02" Z7 "/?"), B("\1")},
    {"CHECK of nothing", B("\x05\x00" Z7), B("\0")},
    {"WAIT for what is there", B("\x06\x02" Z7 "\x02" Z7 "/k\x02" Z7 "/c"), B("\0")},
    {"GETNUMKEYS", B("\x07"), B("\x03" Z7)},
    {"DELETE_KEY", B("\x08\x02" Z7 "/c"), B("\x01" Z7)},
    {"DELETE_KEY of no key", B("\x08\x02" Z7 "/c"), B("\0" Z7)},
    {"APPEND", B("\x09\x02" Z7 "/k\x02" Z7 "ww"), B("")},
    {"MULTI_SET", B("\x0b\x02" Z7 "\x01" Z7 "a\x01" Z7 "1\x01" Z7 "b\x00" Z7), B("")},
    {"MULTI_GET", B("\x0a\x03" Z7 "\x02" Z7 "/k\x01" Z7 "b\x01" Z7 "a"),
     B("\x03" Z7 "vww\0" Z7 "\x01" Z7 "1")},
    {"CANCEL_WAIT without a WAIT", B("\x0c"), B("\1")},
    {"WAIT and CANCEL_WAIT", B("\x06\x01" Z7 "\x01" Z7 "?\x0c"), B("\1")},
    {"QUEUE_POP of nothing", B("\x0f\x01" Z7 "q"), B("\0" Z7)},
    {"QUEUE_PUSH", B("\x0e\x01" Z7 "q\x03" Z7 "one\x0e\x01" Z7 "q\x00" Z7), B("")},
    {"QUEUE_LEN", B("\x10\x01" Z7 "q"), B("\x02" Z7)},
    {"CHECK of a queue", B("\x05\x01" Z7 "\x01" Z7 "q"), B("\0")},
    {"QUEUE_POP", B("\x0f\x01" Z7 "q"), B("\x02" Z7 "\x03" Z7 "one")},
    {"QUEUE_POP of an empty element", B("\x0f\x01" Z7 "q"), B("\x01" Z7 "\x00" Z7)},
    {"CHECK of a queue without elements", B("\x05\x01" Z7 "\x01" Z7 "q"), B("\1")},
    {"QUEUE_LEN of nothing", B("\x10\x01" Z7 "q"), B("\0" Z7)},
    {"BARRIER of two and CANCEL_WAIT", B("\x12\x03" Z7 "/bk\x02" Z7 "\x0c"), B("\1")},
    {"BARRIER, complete", B("\x12\x03" Z7 "/bk\x02" Z7), B("\0")},
    {"BARRIER, open", B("\x12\x03" Z7 "/bk\x02" Z7), B("\0")},
    {"the count of the BARRIER", B("\x03\x03" Z7 "/bk"), B("\x01" Z7 "3")},
    {"leave one key", B("\x08\x02" Z7 "/k\x08\x05" Z7 "init/\x08\x01" Z7 "a\x08\x01" Z7 "b"),
     B("\x01" Z7 "\x01" Z7 "\x01" Z7 "\x01" Z7)},
    {"LIST_KEYS", B("\x11"), B("\x01" Z7 "\x03" Z7 "/bk")},
    {"DELETE_KEY of the last", B("\x08\x03" Z7 "/bk"), B("\x01" Z7)},
    {"LIST_KEYS of none", B("\x11"), B("\x00" Z7)},
};

static const struct line legacy[] = {
    {"SET", B("\x00\x02" Z7 "/k\x01" Z7 "v"), B("")},
    {"COMPARE_SET", B("\x01\x02" Z7 "/k\x01" Z7 "v\x02" Z7 "vv"), B("\x02" Z7 "vv")},
    {"COMPARE_SET, no key, something expected", B("\x01\x02" Z7 "/?\x01" Z7 "x\x01" Z7 "1"),
     B("\x01" Z7 "x")},
    {"GET", B("\x02\x02" Z7 "/k"), B("\x02" Z7 "vv")},
    {"GET of no key", B("\x02\x02" Z7 "/?"), B("\0" Z7)},
    {"ADD", B("\x03\x05" Z7 "init/\x07" Z7), B("\x07" Z7)},
    {"CHECK", B("\x04\x01" Z7 "\x02" Z7 "/k"), B("\0")},
    {"CHECK of no key", B("\x04\x01" Z7 "\x02" Z7 "/?"), B("\1")},
    {"WAIT for what is there", B("\x05\x01" Z7 "\x02" Z7 "/k"), B("\0")},
    {"WAIT given up for GETNUMKEYS", B("\x05\x01" Z7 "\x02" Z7 "/?\x06"), B("\x02" Z7)},
    {"DELETE_KEY", B("\x08\x02" Z7 "/k"), B("\x01" Z7)},
    {"APPEND", B("\x09\x02" Z7 "/k\x01" Z7 "1"), B("")},
    {"MULTI_GET", B("\x0a\x02" Z7 "\x02" Z7 "/k\x01" Z7 "?"), B("\x01" Z7 "1\0" Z7)},
    {"MULTI_SET", B("\x0b\x01" Z7 "\x01" Z7 "m\x01" Z7 "2"), B("")},
    {"GET of what MULTI_SET set", B("\x02\x01" Z7 "m"), B("\x01" Z7 "2")},
    {"WAIT and CANCEL_WAIT", B("\x05\x01" Z7 "\x01" Z7 "?\x0c"), B("\1")},
    {"WATCH_KEY", B("\x07\x01" Z7 "w"), B("\3")},
    {"SET of a new key, watched", B("\x00\x01" Z7 "w\x01" Z7 "1"),
     B("\1\x01" Z7 "w\x00" Z7 "\x01" Z7 "1")},
    {"SET of the same value, watched", B("\x00\x01" Z7 "w\x01" Z7 "1"),
     B("\0\x01" Z7 "w\x01" Z7 "1\x01" Z7 "1")},
    {"ADD, watched: the answer goes first", B("\x03\x01" Z7 "w\x01" Z7),
     B("\x02" Z7 "\0\x01" Z7 "w\x01" Z7 "1\x01" Z7 "2")},
    {"COMPARE_SET, watched: the answer goes last", B("\x01\x01" Z7 "w\x01" Z7 "2\x02" Z7 "33"),
     B("\0\x01" Z7 "w\x01" Z7 "2\x02" Z7 "33\x02" Z7 "33")},
    {"COMPARE_SET, other value, watched", B("\x01\x01" Z7 "w\x01" Z7 "2\x01" Z7 "4"),
     B("\x02" Z7 "33")},
    {"APPEND, watched", B("\x09\x01" Z7 "w\x01" Z7 "4"),
     B("\0\x01" Z7 "w\x02" Z7 "33\x03" Z7 "334")},
    {"DELETE_KEY, watched: the answer goes last", B("\x08\x01" Z7 "w"),
     B("\2\x01" Z7 "w\x03" Z7 "334\x00" Z7 "\x01" Z7)},
    {"DELETE_KEY of no key, watched", B("\x08\x01" Z7 "w"), B("\0" Z7)},
    {"COMPARE_SET, no key, watched", B("\x01\x01" Z7 "w\x00" Z7 "\x00" Z7),
     B("\1\x01" Z7 "w\x00" Z7 "\x00" Z7 "\x00" Z7)},
    {"WATCH_KEY a second time", B("\x07\x01" Z7 "w"), B("\3")},
    {"MULTI_SET, watched twice", B("\x0b\x01" Z7 "\x01" Z7 "w\x01" Z7 "m"),
     B("\0\x01" Z7 "w\x00" Z7 "\x01" Z7 "m\0\x01" Z7 "w\x00" Z7 "\x01" Z7 "m")},
    {"ADD, watched twice: one answer", B("\x08\x01" Z7 "w\x03\x01" Z7 "w\x05" Z7),
     B("\2\x01" Z7 "w\x01" Z7 "m\x00" Z7 "\2\x01" Z7 "w\x01" Z7 "m\x00" Z7 "\x01" Z7 "\x05" Z7
       "\1\x01" Z7 "w\x00" Z7 "\x01" Z7 "5\1\x01" Z7 "w\x00" Z7 "\x01" Z7 "5")},
};

struct peer {
    struct ct_store *store;
    struct ct_service service;
    struct ct_session session;
};

static void on_woken(struct ct_session *session)
{
    /* Nobody else is there: only what it watches itself. */
    assert_true(session->watches);
}

static void begin(struct peer *peer)
{
    assert_int_equal(ct_store_new(&peer->store), 0);
    peer->service = (struct ct_service){.store = peer->store, .on_woken = on_woken};
    ct_session_init(&peer->session, &peer->service);
}

static void end(struct peer *peer)
{
    ct_session_fini(&peer->session);
    ct_store_free(peer->store);
}

static void send(struct peer *peer, const char *bytes, size_t len, size_t piece)
{
    struct ct_err err = {0};
    for (size_t at = 0; at < len; at += piece) {
        size_t n = len - at < piece ? len - at : piece;
        if (ct_session_feed(&peer->session, bytes + at, n, &err) != 0) {
            fail_msg("%s", err.text);
        }
    }
}

static void expect(struct peer *peer, const struct line *line)
{
    struct ct_outq *out = &peer->session.out;
    struct iovec iov = {NULL, 0};
    size_t pieces = ct_outq_iov(out, &iov, 1);
    if (out->total != line->reply.len || pieces != (line->reply.len > 0) ||
        iov.iov_len != line->reply.len ||
        (iov.iov_len > 0 && memcmp(iov.iov_base, line->reply.bytes, iov.iov_len) != 0)) {
        fail_msg("%s: other bytes than expected, %zu of them", line->what, out->total);
    }
    ct_outq_consume(out, out->total);
}

static void converse(const struct line *lines, size_t count, size_t piece)
{
    struct peer peer;
    begin(&peer);
    for (size_t i = 0; i < count; i++) {
        send(&peer, lines[i].request.bytes, lines[i].request.len, piece);
        expect(&peer, &lines[i]);
        assert_false(ct_session_mid_request(&peer.session));
    }
    end(&peer);
}

/* All lines at once, cut where TCP may cut. */
static void stream(const struct line *lines, size_t count, size_t piece)
{
    struct ct_buf requests = CT_BUF_INIT, replies = CT_BUF_INIT;
    for (size_t i = 0; i < count; i++) {
        const struct line *line = &lines[i];
        assert_int_equal(ct_buf_append(&requests, line->request.bytes, line->request.len), 0);
        assert_int_equal(ct_buf_append(&replies, line->reply.bytes, line->reply.len), 0);
    }
    struct peer peer;
    begin(&peer);
    send(&peer, (const char *)ct_buf_bytes(&requests), requests.len, piece);
    const struct line whole = {
        "all", {NULL, 0}, {(const char *)ct_buf_bytes(&replies), replies.len}};
    expect(&peer, &whole);
    end(&peer);
    ct_buf_fini(&requests);
    ct_buf_fini(&replies);
}

#define COUNT(lines) (sizeof(lines) / sizeof((lines)[0]))

static void test_every_line_of_the_vectors_is_answered(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 64; piece += 63) {
        converse(current, COUNT(current), piece);
        converse(legacy, COUNT(legacy), piece);
    }
}

static void test_all_at_once_in_any_pieces(void **state)
{
    (void)state;
    static const size_t pieces[] = {1, 2, 3, 5, 7, 8, 9, 64, 1440, 65536};
    for (size_t i = 0; i < COUNT(pieces); i++) {
        stream(current, COUNT(current), pieces[i]);
        stream(legacy, COUNT(legacy), pieces[i]);
    }
}

/* A table that skips an operation would prove less than it seems to. */
static void test_every_operation_is_in_the_table(void **state)
{
    (void)state;
    for (unsigned op = CT_OP_VALIDATE; op <= CT_OP_BARRIER; op++) {
        bool seen = false;
        for (size_t i = 0; i < COUNT(current); i++) {
            seen |= (unsigned char)current[i].request.bytes[0] == op;
        }
        if (!seen) {
            fail_msg("operation %u has no line", op);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_line_of_the_vectors_is_answered),
        cmocka_unit_test(test_all_at_once_in_any_pieces),
        cmocka_unit_test(test_every_operation_is_in_the_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
