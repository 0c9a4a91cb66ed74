/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocking client against the real server, which runs on a loop in a thread of its own.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"

#include "common/clock.h"
#include "rendezvous/client/client.h"
#include "rendezvous/server/server_uv.h"
#include "rendezvous/wire/limits.h"

#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
/* For waits that are meant to run out. */
#define SHORT_MS 30

struct fixture {
    uv_loop_t loop;
    uv_async_t stop;
    uv_thread_t thread;
    struct ct_server *server;
    uint16_t port;
    struct ct_client *client;
};

static void on_stop(uv_async_t *async)
{
    struct fixture *f = async->data;
    ct_server_close(f->server, NULL, NULL);
    uv_close((uv_handle_t *)async, NULL);
}

static void run_loop(void *arg)
{
    struct fixture *f = arg;
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
}

static struct ct_client *connect_to(uint16_t port)
{
    struct ct_client *client = NULL;
    struct ct_err err = {0};
    if (ct_client_open("127.0.0.1", port, LONG_MS, &client, &err) != 0) {
        fail_msg("%s", err.text);
    }
    return client;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    (void)signal(SIGPIPE, SIG_IGN);
    ct_loop_begin(&f->loop);
    const struct ct_server_options options = {0};
    struct ct_err err = {0};
    assert_int_equal(ct_server_open(&f->loop, &options, &f->server, &err), 0);
    f->port = ct_server_port(f->server);
    f->stop.data = f;
    assert_int_equal(uv_async_init(&f->loop, &f->stop, on_stop), 0);
    assert_int_equal(uv_thread_create(&f->thread, run_loop, f), 0);
    f->client = connect_to(f->port);
    *state = f;
    return 0;
}

static void stop_server(struct fixture *f)
{
    if (f->server != NULL) {
        assert_int_equal(uv_async_send(&f->stop), 0);
        assert_int_equal(uv_thread_join(&f->thread), 0);
        f->server = NULL;
    }
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    ct_client_free(f->client);
    stop_server(f);
    ct_loop_end(&f->loop);
    free(f);
    return 0;
}

static void expect_get(struct ct_client *client, const char *key, const char *value)
{
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_client_get(client, key, LONG_MS, &buf, NULL), 0);
    assert_int_equal(buf.len, strlen(value));
    assert_memory_equal(buf.len > 0 ? (const void *)ct_buf_bytes(&buf) : "", value, buf.len);
    ct_buf_fini(&buf);
}

/* Fails when a late or missing reply has put the stream out of step. */
static void expect_usable(struct ct_client *client)
{
    int64_t n = 0;
    assert_int_equal(ct_client_add(client, "usable", 1, &n, NULL), 0);
    assert_int_equal(n, 1);
}

static void set(struct ct_client *client, const char *key, const char *value)
{
    assert_int_equal(ct_client_set(client, key, value, strlen(value), NULL), 0);
}

/* ---- the operations ------------------------------------------------------------------------- */

static void test_a_value_that_was_set_is_got(void **state)
{
    struct fixture *f = *state;
    set(f->client, "k", "v");
    expect_get(f->client, "k", "v");
    set(f->client, "empty", "");
    expect_get(f->client, "empty", "");
}

static void test_get_appends_to_the_buffer(void **state)
{
    struct fixture *f = *state;
    struct ct_buf buf = CT_BUF_INIT;
    set(f->client, "k", "b");
    assert_int_equal(ct_buf_append(&buf, "a", 1), 0);
    assert_int_equal(ct_client_get(f->client, "k", LONG_MS, &buf, NULL), 0);
    assert_int_equal(buf.len, 2);
    assert_memory_equal(ct_buf_bytes(&buf), "ab", 2);
    ct_buf_fini(&buf);
}

static void test_add_returns_the_sum(void **state)
{
    struct fixture *f = *state;
    int64_t n = 0;
    assert_int_equal(ct_client_add(f->client, "n", 5, &n, NULL), 0);
    assert_int_equal(ct_client_add(f->client, "n", -7, &n, NULL), 0);
    assert_int_equal(n, -2);
}

static void test_a_key_is_deleted(void **state)
{
    struct fixture *f = *state;
    bool there = true;
    assert_int_equal(ct_client_delete(f->client, "k", &there, NULL), 0);
    assert_false(there);
    set(f->client, "k", "v");
    assert_int_equal(ct_client_delete(f->client, "k", &there, NULL), 0);
    assert_true(there);
    assert_int_equal(ct_client_check(f->client, "k", &there, NULL), 0);
    assert_false(there);
    expect_usable(f->client);
}

static void test_check_tells_whether_a_key_is_there(void **state)
{
    struct fixture *f = *state;
    bool there = true;
    assert_int_equal(ct_client_check(f->client, "k", &there, NULL), 0);
    assert_false(there);
    set(f->client, "k", "");
    assert_int_equal(ct_client_check(f->client, "k", &there, NULL), 0);
    assert_true(there);
    expect_usable(f->client);
}

static void test_largest_value_travels_both_ways(void **state)
{
    struct fixture *f = *state;
    unsigned char *big = malloc(CT_MAX_VALUE_LEN);
    assert_non_null(big);
    for (size_t i = 0; i < CT_MAX_VALUE_LEN; i++) {
        big[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    assert_int_equal(ct_client_set(f->client, "big", big, CT_MAX_VALUE_LEN, NULL), 0);
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_client_get(f->client, "big", LONG_MS, &buf, NULL), 0);
    assert_int_equal(buf.len, CT_MAX_VALUE_LEN);
    assert_int_equal(memcmp(ct_buf_bytes(&buf), big, CT_MAX_VALUE_LEN), 0);
    ct_buf_fini(&buf);
    free(big);
}

/* ---- waiting -------------------------------------------------------------------------------- */

struct late_set {
    uint16_t port;
    const char *key;
    int rc;
};

static void set_from_thread(void *arg)
{
    struct late_set *late = arg;
    struct ct_client *client = NULL;
    late->rc = ct_client_open("127.0.0.1", late->port, LONG_MS, &client, NULL);
    if (late->rc == 0) {
        late->rc = ct_client_set(client, late->key, "late", 4, NULL);
    }
    ct_client_free(client);
}

static void test_get_waits_for_another_client(void **state)
{
    struct fixture *f = *state;
    struct late_set late = {f->port, "late", -1};
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, set_from_thread, &late), 0);
    expect_get(f->client, "late", "late");
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_int_equal(late.rc, 0);
}

static void test_wait_that_times_out_leaves_the_connection_usable(void **state)
{
    struct fixture *f = *state;
    struct ct_buf buf = CT_BUF_INIT;
    struct ct_err err = {0};
    assert_int_equal(ct_client_get(f->client, "never", SHORT_MS, &buf, &err), CT_ETIMEDOUT);
    assert_non_null(strstr(err.text, "'never'"));
    assert_int_equal(ct_client_get(f->client, "never", 0, &buf, NULL), CT_ETIMEDOUT);
    assert_int_equal(buf.len, 0);
    /* A late reply to the wait would be read as the addition's. */
    set(f->client, "never", "now");
    expect_usable(f->client);
    expect_get(f->client, "never", "now");
}

/* ---- refused before anything is sent -------------------------------------------------------- */

static void test_limits_are_told_and_harmless(void **state)
{
    struct fixture *f = *state;
    static char key[CT_MAX_KEY_LEN + 1];
    memset(key, 'k', CT_MAX_KEY_LEN);
    struct ct_err err = {0};
    assert_int_equal(ct_client_set(f->client, key, "", 0, &err), CT_ELIMIT);
    key[CT_MAX_KEY_LEN - 1] = '\0'; /* with the '/' in front exactly the limit */
    set(f->client, key, "v");
    expect_get(f->client, key, "v");
    assert_int_equal(ct_client_set(f->client, "k", "", CT_MAX_VALUE_LEN + 1, &err), CT_ELIMIT);
    assert_non_null(strstr(err.text, "'k'"));
    expect_usable(f->client);
}

/* ---- trouble -------------------------------------------------------------------------------- */

static void test_connection_is_dead_after_the_server_went(void **state)
{
    struct fixture *f = *state;
    stop_server(f);
    struct ct_err err = {0};
    int64_t n = 77;
    assert_int_equal(ct_client_add(f->client, "n", 1, &n, &err), CT_ECLOSED);
    assert_int_equal(n, 77);
    assert_int_equal(ct_client_add(f->client, "n", 1, &n, &err), CT_ECLOSED);
    assert_non_null(strstr(err.text, "ended earlier"));
}

/* A listening socket; nobody accepts. */
static int listener(uint16_t *port, int backlog)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    if (backlog >= 0) {
        assert_int_equal(listen(fd, backlog), 0);
    }
    *port = ntohs(addr.sin_port);
    return fd;
}

static void test_refused_connection_is_tried_until_the_deadline(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listener(&port, -1); /* bound, so nobody else listens there */
    struct ct_client *client = NULL;
    struct ct_err err = {0};
    int64_t start = ct_clock_now(NULL);
    assert_int_equal(ct_client_open("127.0.0.1", port, 100, &client, &err), CT_ECLOSED);
    assert_true(ct_clock_now(NULL) - start >= 50 * CT_NS_PER_MS);
    assert_null(client);
    assert_non_null(strstr(err.text, "127.0.0.1"));
    assert_non_null(strstr(err.text, "refused"));
    (void)close(fd);
}

static void listen_from_thread(void *arg)
{
    int fd = *(int *)arg;
    (void)usleep(SHORT_MS * 1000);
    (void)listen(fd, 4);
    int peer = accept(fd, NULL, NULL);
    unsigned char hello[10];
    if (recv(peer, hello, sizeof(hello), MSG_WAITALL) == (ssize_t)sizeof(hello)) {
        (void)send(peer, hello + 6, 4, MSG_NOSIGNAL);
    }
    (void)close(peer);
}

static void test_store_that_comes_late_is_found(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listener(&port, -1);
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, listen_from_thread, &fd), 0);
    struct ct_client *client = connect_to(port);
    assert_int_equal(uv_thread_join(&thread), 0);
    ct_client_free(client);
    (void)close(fd);
}

static void test_silent_listener_times_out(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listener(&port, 4);
    struct ct_client *client = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_client_open("127.0.0.1", port, SHORT_MS, &client, &err), CT_ETIMEDOUT);
    assert_null(client);
    (void)close(fd);
}

static void answer_nonsense(void *arg)
{
    int peer = accept(*(int *)arg, NULL, NULL);
    (void)send(peer, "SSH-2.0-x\r\n", 11, MSG_NOSIGNAL);
    unsigned char byte;
    while (recv(peer, &byte, 1, 0) > 0) {
    }
    (void)close(peer);
}

static void test_another_service_is_recognised(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listener(&port, 4);
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, answer_nonsense, &fd), 0);
    struct ct_client *client = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_client_open("127.0.0.1", port, LONG_MS, &client, &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "not a store"));
    assert_int_equal(uv_thread_join(&thread), 0);
    (void)close(fd);
}

/* A store whose answer to WAIT crosses the cancellation. */
static void answer_late(void *arg)
{
    int peer = accept(*(int *)arg, NULL, NULL);
    unsigned char b[64];
    if (recv(peer, b, 10, MSG_WAITALL) == 10 && send(peer, b + 6, 4, MSG_NOSIGNAL) == 4 &&
        recv(peer, b, 19 + 1, MSG_WAITALL) == 19 + 1) {
        (void)send(peer, "\0\1", 2, MSG_NOSIGNAL);
        if (recv(peer, b, 11, MSG_WAITALL) == 11) { /* GET /k */
            (void)send(peer, "\1\0\0\0\0\0\0\0v", 9, MSG_NOSIGNAL);
        }
    }
    (void)close(peer);
}

static void test_wait_that_ends_while_it_is_cancelled(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listener(&port, 4);
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, answer_late, &fd), 0);
    struct ct_client *client = connect_to(port);
    struct ct_buf buf = CT_BUF_INIT;
    assert_int_equal(ct_client_get(client, "k", SHORT_MS, &buf, NULL), 0);
    assert_int_equal(buf.len, 1);
    ct_buf_fini(&buf);
    assert_int_equal(uv_thread_join(&thread), 0);
    ct_client_free(client);
    (void)close(fd);
}

/* ---- a peer that breaks the protocol --------------------------------------------------------- */

/* What a false store hears and says after the greeting: `hears` bytes, then the answer. */
struct false_store {
    int fd;
    size_t hears;
    const char *answer;
    size_t len;
};

static void be_false(void *arg)
{
    const struct false_store *s = arg;
    int peer = accept(s->fd, NULL, NULL);
    unsigned char b[256];
    if (recv(peer, b, 10, MSG_WAITALL) == 10 && send(peer, b + 6, 4, MSG_NOSIGNAL) == 4 &&
        recv(peer, b, s->hears, MSG_WAITALL) == (ssize_t)s->hears) {
        (void)send(peer, s->answer, s->len, MSG_NOSIGNAL);
    }
    (void)shutdown(peer, SHUT_WR);
    while (recv(peer, b, sizeof(b), 0) > 0) {
    }
    (void)close(peer);
}

#define WAIT_LEN 19 /* of key k */

static void test_a_reply_that_breaks_the_protocol_ends_the_connection(void **state)
{
    static const struct {
        size_t hears;
        const char *answer;
        size_t len;
        int timeout_ms, code;
        const char *text;
    } cases[] = {
        {WAIT_LEN, "\7", 1, LONG_MS, CT_EPROTO, "wrong reply to a wait"},
        {WAIT_LEN, "", 0, LONG_MS, CT_ECLOSED, "closed by the store"},
        /* WAIT and CANCEL_WAIT */
        {WAIT_LEN + 1, "\7", 1, SHORT_MS, CT_EPROTO, "wrong reply to a cancelled wait"},
        {WAIT_LEN + 1, "\0", 1, SHORT_MS, CT_ECLOSED, "closed by the store"},
        {WAIT_LEN + 1, "", 0, SHORT_MS, CT_ECLOSED, "closed by the store"},
        /* The answer to the WAIT, then that to the GET. */
        {WAIT_LEN, "\0\1\0\200\0\0\0\0\0", 9, LONG_MS, CT_EPROTO, "a value of 8388609 bytes"},
        {WAIT_LEN, "\0\2\0\0\0\0\0\0\0v", 10, LONG_MS, CT_ECLOSED, "closed by the store"},
        {WAIT_LEN, "\0\2\0", 3, LONG_MS, CT_ECLOSED, "closed by the store"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint16_t port;
        struct false_store store = {listener(&port, 4), cases[i].hears, cases[i].answer,
                                    cases[i].len};
        uv_thread_t thread;
        assert_int_equal(uv_thread_create(&thread, be_false, &store), 0);
        struct ct_client *client = connect_to(port);
        struct ct_buf buf = CT_BUF_INIT;
        struct ct_err err = {0};
        assert_int_equal(ct_client_get(client, "k", cases[i].timeout_ms, &buf, &err),
                         cases[i].code);
        if (strstr(err.text, cases[i].text) == NULL ||
            strncmp(err.text, "store at 127.0.0.1:", 19) != 0) {
            fail_msg("case %zu: %s", i, err.text);
        }
        assert_int_equal(buf.len, 0);
        assert_int_equal(ct_client_set(client, "k", "", 0, &err), CT_ECLOSED);
        assert_non_null(strstr(err.text, "ended earlier"));
        assert_int_equal(ct_client_get(client, "k", 0, &buf, &err), CT_ECLOSED);
        ct_buf_fini(&buf);
        ct_client_free(client);
        assert_int_equal(uv_thread_join(&thread), 0);
        (void)close(store.fd);
    }
}

static void test_a_wrong_reply_to_a_check_ends_the_connection(void **state)
{
    (void)state;
    uint16_t port;
    struct false_store store = {listener(&port, 4), WAIT_LEN, "\7", 1}; /* CHECK is as long */
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, be_false, &store), 0);
    struct ct_client *client = connect_to(port);
    struct ct_err err = {0};
    bool there = true;
    assert_int_equal(ct_client_check(client, "k", &there, &err), CT_EPROTO);
    assert_non_null(strstr(err.text, "wrong reply to a check"));
    assert_int_equal(ct_client_check(client, "k", &there, &err), CT_ECLOSED);
    ct_client_free(client);
    assert_int_equal(uv_thread_join(&thread), 0);
    (void)close(store.fd);
}

static void test_an_unknown_host_is_named(void **state)
{
    (void)state;
    struct ct_client *client = NULL;
    struct ct_err err = {0};
    assert_int_equal(ct_client_open("no-such-host.invalid", 1, 0, &client, &err), CT_ENOENT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
}

static void test_freeing_nothing_is_allowed(void **state)
{
    (void)state;
    ct_client_free(NULL);
}

/* ---- memory --------------------------------------------------------------------------------- */

static int use_client(void *data)
{
    uint16_t port = *(uint16_t *)data;
    struct ct_client *client = NULL;
    int rc = ct_client_open("127.0.0.1", port, LONG_MS, &client, NULL);
    struct ct_buf buf = CT_BUF_INIT;
    if (rc == 0) {
        rc = ct_client_set(client, "k", "v", 1, NULL);
    }
    if (rc == 0) {
        rc = ct_client_get(client, "k", LONG_MS, &buf, NULL);
    }
    ct_buf_fini(&buf);
    ct_client_free(client);
    return rc;
}

/* The stub server allocates nothing, so every fault hits the client. */
static void serve_stub(void *arg)
{
    int fd = *(int *)arg;
    for (;;) {
        int peer = accept(fd, NULL, NULL);
        if (peer < 0) {
            return;
        }
        unsigned char b[256];
        /* VALIDATE + PING; SET /k v; WAIT /k; GET /k, each answered as the store would. */
        if (recv(peer, b, 10, MSG_WAITALL) == 10 && send(peer, b + 6, 4, MSG_NOSIGNAL) == 4 &&
            recv(peer, b, 20, MSG_WAITALL) == 20 && recv(peer, b, 19, MSG_WAITALL) == 19 &&
            send(peer, "", 1, MSG_NOSIGNAL) == 1 && recv(peer, b, 11, MSG_WAITALL) == 11) {
            (void)send(peer, "\1\0\0\0\0\0\0\0v", 9, MSG_NOSIGNAL);
        }
        (void)close(peer);
    }
}

static void test_a_client_survives_lack_of_memory(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listener(&port, 64);
    uv_thread_t thread;
    assert_int_equal(uv_thread_create(&thread, serve_stub, &fd), 0);
    int faults = ct_fault_sweep(use_client, &port, 0);
    assert_true(faults >= 3);
    (void)shutdown(fd, SHUT_RDWR);
    assert_int_equal(uv_thread_join(&thread), 0);
    (void)close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_value_that_was_set_is_got, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_get_appends_to_the_buffer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_add_returns_the_sum, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_key_is_deleted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_check_tells_whether_a_key_is_there, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_largest_value_travels_both_ways, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_get_waits_for_another_client, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_wait_that_times_out_leaves_the_connection_usable,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_limits_are_told_and_harmless, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_connection_is_dead_after_the_server_went, set_up,
                                        tear_down),
        cmocka_unit_test(test_refused_connection_is_tried_until_the_deadline),
        cmocka_unit_test(test_store_that_comes_late_is_found),
        cmocka_unit_test(test_silent_listener_times_out),
        cmocka_unit_test(test_another_service_is_recognised),
        cmocka_unit_test(test_wait_that_ends_while_it_is_cancelled),
        cmocka_unit_test(test_a_reply_that_breaks_the_protocol_ends_the_connection),
        cmocka_unit_test(test_a_wrong_reply_to_a_check_ends_the_connection),
        cmocka_unit_test(test_an_unknown_host_is_named),
        cmocka_unit_test(test_freeing_nothing_is_allowed),
        cmocka_unit_test(test_a_client_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
