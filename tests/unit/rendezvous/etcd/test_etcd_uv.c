/* SPDX-License-Identifier: Apache-2.0
 *
 * The client of etcd against a thread that plays etcd: it answers as it was told, request by
 * request, and keeps what it was sent. http_proxy leads nowhere, since no proxy may be used.
 */
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/etcd/etcd_uv.h"
#include "tests/lib/etcd_member.h"
#include "tests/lib/loop.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000
/* For waits that are meant to run out. */
#define SHORT_MS 50

#define HEADER "\"header\":{\"revision\":\"7\"}"
#define FOUND                                                                                     \
    "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"aw==" \
    "\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"value\":\"djE=\"}]}}]}"
#define BAD_TOKEN "{\"message\":\"etcdserver: invalid auth token\",\"code\":16}"
#define NO_LEADER "{\"message\":\"etcdserver: no leader\",\"code\":14}"

/* ---- the client ----------------------------------------------------------------------------- */

struct rig {
    uv_loop_t loop;
    struct ct_etcd_settings settings;
    struct ct_etcd_options options;
    struct ct_etcd *etcd;
    struct ct_err err;
    int num_replies;
    bool done; /* as many have come as were awaited */
    int awaited;
    bool close_in_callback;
    struct ct_etcd_reply reply; /* the last one, without its values */
    char value[64];
};

static const struct ct_etcd_txn get_k = {
    .then = {{.what = CT_ETCD_GET, .key = "k"}},
    .num_then = 1,
};

static void rig_begin(struct rig *r, const char **env, int num, const uint16_t *ports)
{
    char list[256] = "";
    for (int i = 0; i < num; i++) {
        size_t len = strlen(list);
        (void)snprintf(list + len, sizeof(list) - len, "%s127.0.0.1:%d", i > 0 ? "," : "",
                       ports[i]);
    }
    memset(r, 0, sizeof(*r));
    ct_loop_begin(&r->loop);
    assert_int_equal(
        ct_etcd_settings_read(list, (char *const *)(uintptr_t)env, &r->settings, &r->err), 0);
    r->options = (struct ct_etcd_options){.settings = &r->settings,
                                          .connect_ms = LONG_MS,
                                          .attempt_ms = LONG_MS,
                                          .request_ms = LONG_MS};
}

static void rig_open(struct rig *r)
{
    assert_int_equal(ct_etcd_open(&r->loop, &r->options, &r->etcd, &r->err), 0);
}

static void rig_end(struct rig *r)
{
    ct_etcd_close(r->etcd);
    ct_loop_end(&r->loop);
}

static void on_reply(void *data, const struct ct_etcd_reply *reply)
{
    struct rig *r = data;
    r->reply = *reply;
    if (reply->num_values > 0) {
        (void)snprintf(r->value, sizeof(r->value), "%s", reply->values[0].bytes);
    }
    r->num_replies++;
    r->done = r->num_replies >= r->awaited;
    if (r->close_in_callback) {
        ct_etcd_close(r->etcd);
        r->etcd = NULL;
    }
}

static void wait_for(struct rig *r, int num)
{
    r->awaited = num;
    r->done = r->num_replies >= num;
    ct_loop_run_until(&r->loop, &r->done);
}

/* One GET, from the call to its reply. */
static void get(struct rig *r)
{
    assert_int_equal(ct_etcd_txn(r->etcd, &get_k, on_reply, r, &r->err), 0);
    wait_for(r, r->num_replies + 1);
}

static const char *no_env[] = {NULL};
static const char *with_user[] = {"ETCDCTL_USER=joe", "ETCDCTL_PASSWORD=secret", NULL};

static const struct etcd_step found = {.status = 200, .body = FOUND};
static const struct etcd_step silent = {.manner = ETCD_SILENT, .body = ""};

static void test_requests_are_sent_and_answered(void **state)
{
    struct etcd_member m;
    struct rig r;
    const struct etcd_step steps[] = {
        found,
        {.status = 200, .body = "{" HEADER ",\"ID\":\"5\",\"TTL\":\"9\"}"},
        {.status = 200, .body = "{\"result\":{" HEADER ",\"ID\":\"5\"}}"},
        {.status = 404,
         .body = "{\"message\":\"etcdserver: requested lease not found\",\"code\":5}"},
    };
    (void)state;
    etcd_member_start(&m, steps, 4);
    rig_begin(&r, no_env, 1, &m.port);
    rig_open(&r);
    int64_t before = ct_clock_now(NULL);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    assert_true(r.reply.succeeded);
    assert_string_equal(r.value, "v1");
    assert_string_equal(r.reply.own_address, "127.0.0.1");
    assert_int_equal(r.reply.values[0].mod_revision, 3);
    assert_int_equal(r.reply.attempts, 1);
    assert_true(r.reply.sent_ns >= before && r.reply.sent_ns <= ct_clock_now(NULL));
    assert_int_equal(ct_etcd_grant(r.etcd, 9, on_reply, &r, &r.err), 0);
    wait_for(&r, 2);
    assert_int_equal(r.reply.lease, 5);
    assert_int_equal(r.reply.ttl_s, 9);
    assert_int_equal(ct_etcd_keep_alive(r.etcd, 5, on_reply, &r, &r.err), 0);
    wait_for(&r, 3);
    assert_int_equal(r.reply.rc, 0);
    assert_int_equal(r.reply.ttl_s, 0);
    assert_int_equal(ct_etcd_keep_alive(r.etcd, 5, on_reply, &r, &r.err), 0);
    wait_for(&r, 4);
    assert_int_equal(r.reply.rc, CT_ENOENT);
    assert_int_equal(r.reply.sent_ns, 0);
    char text[128];
    (void)snprintf(text, sizeof(text), "etcd at http://127.0.0.1:%d: the lease has ended", m.port);
    assert_string_equal(r.reply.err.text, text);
    rig_end(&r);
    etcd_member_stop(&m);
    assert_non_null(strstr(m.requests[0], "POST /v3/kv/txn HTTP/1.1\r\n"));
    assert_non_null(strstr(m.requests[0], "Content-Type: application/json\r\n"));
    assert_null(strstr(m.requests[0], "Expect"));
    assert_null(strstr(m.requests[0], "Authorization"));
    assert_non_null(strstr(m.requests[0], "\r\n\r\n{\"compare\":[]"));
    assert_non_null(strstr(m.requests[1], "POST /v3/lease/grant "));
    assert_non_null(strstr(m.requests[2], "POST /v3/lease/keepalive "));
    assert_non_null(strstr(m.requests[2], "{\"ID\":\"5\"}"));
}

static void test_the_endpoint_that_answers_is_kept(void **state)
{
    struct etcd_member m;
    struct rig r;
    uint16_t ports[2];
    (void)state;
    int refused = etcd_member_bind(&ports[0]);
    etcd_member_start(&m, &found, 1);
    ports[1] = m.port;
    rig_begin(&r, no_env, 2, ports);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    assert_int_equal(r.reply.attempts, 2);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    assert_int_equal(r.reply.attempts, 1);
    rig_end(&r);
    etcd_member_stop(&m);
    (void)close(refused);
}

static void test_a_member_that_cannot_answer_is_followed_by_the_next(void **state)
{
    static const struct etcd_step bad[] = {
        {.status = 503, .body = NO_LEADER},   {.status = 200, .body = "<html>"},
        {.status = 200, .body = "{}"},        {.status = 302, .body = ""},
        {.status = 404, .body = "Not Found"}, {.manner = ETCD_ENDLESS, .status = 200, .body = "{"},
        {.manner = ETCD_LONG_LINE},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct etcd_member first, second;
        struct rig r;
        etcd_member_start(&first, &bad[i], 1);
        etcd_member_start(&second, &found, 1);
        const uint16_t ports[] = {first.port, second.port};
        rig_begin(&r, no_env, 2, ports);
        rig_open(&r);
        get(&r);
        assert_int_equal(r.reply.rc, 0);
        assert_int_equal(r.reply.attempts, 2);
        rig_end(&r);
        etcd_member_stop(&first);
        etcd_member_stop(&second);
        assert_int_equal(first.num_requests, 1); /* no redirect was followed */
    }
}

static void test_failures_name_each_endpoint(void **state)
{
    struct etcd_member m;
    struct rig r;
    uint16_t ports[2];
    char text[128];
    const struct etcd_step step = {.status = 503, .body = NO_LEADER};
    (void)state;
    int refused = etcd_member_bind(&ports[0]);
    etcd_member_start(&m, &step, 1);
    ports[1] = m.port;
    rig_begin(&r, no_env, 2, ports);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, CT_EIO);
    (void)snprintf(text, sizeof(text),
                   "etcd: no endpoint has answered: http://127.0.0.1:%d: ", ports[0]);
    assert_memory_equal(r.reply.err.text, text, strlen(text));
    (void)snprintf(text, sizeof(text),
                   "; http://127.0.0.1:%d: it cannot answer now: etcdserver: no leader", ports[1]);
    assert_non_null(strstr(r.reply.err.text, text));
    rig_end(&r);
    etcd_member_stop(&m);
    (void)close(refused);
}

/* Only what all endpoints say alike is told by the code. */
static void test_failures_that_differ_have_a_code_of_their_own(void **state)
{
    struct etcd_member m;
    uint16_t nobody;
    const struct etcd_step step = {.status = 404, .body = "Not Found"};
    (void)state;
    int refused = etcd_member_bind(&nobody);
    etcd_member_start(&m, &step, 1);
    for (int alike = 0; alike < 2; alike++) {
        struct rig r;
        const uint16_t ports[] = {alike ? m.port : nobody, m.port};
        rig_begin(&r, no_env, 2, ports);
        rig_open(&r);
        get(&r);
        assert_int_equal(r.reply.rc, alike ? CT_EPROTO : CT_EIO);
        rig_end(&r);
    }
    etcd_member_stop(&m);
    (void)close(refused);
}

static void test_a_silent_member_is_left_after_its_time(void **state)
{
    struct etcd_member first, second;
    struct rig r;
    (void)state;
    etcd_member_start(&first, &silent, 1);
    etcd_member_start(&second, &found, 1);
    const uint16_t ports[] = {first.port, second.port};
    rig_begin(&r, no_env, 2, ports);
    r.options.attempt_ms = 1000; /* the second one must answer within it */
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    assert_int_equal(r.reply.attempts, 2);
    rig_end(&r);
    etcd_member_stop(&first);
    etcd_member_stop(&second);
}

static void test_a_request_has_a_deadline(void **state)
{
    struct etcd_member m;
    struct rig r;
    (void)state;
    etcd_member_start(&m, &silent, 1);
    rig_begin(&r, no_env, 1, &m.port);
    r.options.request_ms = SHORT_MS;
    rig_open(&r);
    /* The second one waits until its own time is over. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err), 0);
    }
    wait_for(&r, 1);
    assert_int_equal(r.reply.rc, CT_ETIMEDOUT);
    assert_int_equal(r.reply.sent_ns, 0);
    wait_for(&r, 2);
    assert_int_equal(r.reply.rc, CT_ETIMEDOUT);
    rig_end(&r);
    etcd_member_stop(&m);
}

static void test_an_endless_answer_is_cut_off(void **state)
{
    struct etcd_member m;
    struct rig r;
    const struct etcd_step step = {.manner = ETCD_ENDLESS, .status = 200, .body = "{\"a\":\""};
    (void)state;
    etcd_member_start(&m, &step, 1);
    rig_begin(&r, no_env, 1, &m.port);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, CT_ELIMIT);
    assert_non_null(strstr(r.reply.err.text, "the reply is longer than 262144 bytes"));
    rig_end(&r);
    etcd_member_stop(&m);
    assert_true(m.hung_up);
}

/* The descriptor of the connection to this port. */
static int connection_to(uint16_t port)
{
    for (int fd = 3; fd < 256; fd++) {
        struct sockaddr_in peer = {.sin_family = AF_UNSPEC};
        socklen_t len = sizeof(peer);
        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 && peer.sin_family == AF_INET &&
            ntohs(peer.sin_port) == port) {
            return fd;
        }
    }
    return -1;
}

static void test_closing_ends_a_running_request(void **state)
{
    struct etcd_member m;
    struct rig r;
    (void)state;
    etcd_member_start(&m, &silent, 1);
    rig_begin(&r, no_env, 1, &m.port);
    rig_open(&r);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err), 0);
    }
    while (m.num_requests == 0) { /* it is being answered */
        (void)usleep(1000);
    }
    /* Programs that are started meanwhile do not get the connection. */
    assert_int_equal(fcntl(connection_to(m.port), F_GETFD), FD_CLOEXEC);
    ct_etcd_close(r.etcd);
    ct_etcd_close(r.etcd); /* a second time is nothing */
    assert_int_equal(ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err), CT_ECLOSED);
    ct_loop_end(&r.loop); /* well before LONG_MS */
    assert_int_equal(r.num_replies, 0);
    etcd_member_stop(&m);
    assert_true(m.hung_up);
}

static void test_a_callback_may_close(void **state)
{
    struct etcd_member m;
    struct rig r;
    (void)state;
    etcd_member_start(&m, &found, 1);
    rig_begin(&r, no_env, 1, &m.port);
    rig_open(&r);
    r.close_in_callback = true;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err), 0);
    }
    wait_for(&r, 1);
    rig_end(&r);
    assert_int_equal(r.num_replies, 1);
    etcd_member_stop(&m);
}

static void test_the_queue_is_bounded(void **state)
{
    struct etcd_member m;
    struct rig r;
    (void)state;
    etcd_member_start(&m, &silent, 1);
    rig_begin(&r, no_env, 1, &m.port);
    rig_open(&r);
    for (int i = 0; i < CT_ETCD_QUEUE_MAX; i++) {
        assert_int_equal(ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err), 0);
    }
    assert_int_equal(ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err), CT_EBUSY);
    assert_int_equal(ct_etcd_grant(r.etcd, 0, on_reply, &r, &r.err), CT_EBUSY);
    rig_end(&r);
    etcd_member_stop(&m);
}

/* The linker puts this in place of dlopen(). */
static bool no_library;
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);

void *__wrap_dlopen(const char *name, int flags)
{
    return no_library ? NULL : __real_dlopen(name, flags);
}

static void test_a_missing_libcurl_is_told(void **state)
{
    struct rig r;
    uint16_t port;
    (void)state;
    int refused = etcd_member_bind(&port);
    rig_begin(&r, no_env, 1, &port);
    no_library = true;
    assert_int_equal(ct_etcd_open(&r.loop, &r.options, &r.etcd, &r.err), CT_EUNSUPPORTED);
    no_library = false;
    assert_non_null(strstr(r.err.text, "etcd needs libcurl.so.4, which is not here: install the "
                                       "package libcurl4"));
    rig_end(&r);
    (void)close(refused);
}

static void test_wrong_arguments_are_refused(void **state)
{
    struct rig r;
    uint16_t port;
    (void)state;
    int refused = etcd_member_bind(&port);
    rig_begin(&r, no_env, 1, &port);
    r.options.attempt_ms = 0;
    assert_int_equal(ct_etcd_open(&r.loop, &r.options, &r.etcd, &r.err), CT_EINVAL);
    r.options.attempt_ms = 1;
    r.settings.num_urls = 0;
    assert_int_equal(ct_etcd_open(&r.loop, &r.options, &r.etcd, &r.err), CT_EINVAL);
    r.settings.num_urls = 1;
    rig_open(&r);
    assert_int_equal(ct_etcd_grant(r.etcd, 0, on_reply, &r, &r.err), CT_EINVAL);
    assert_int_equal(ct_etcd_keep_alive(r.etcd, 0, on_reply, &r, &r.err), CT_EINVAL);
    rig_end(&r);
    (void)close(refused);
}

#define TOKEN(text)                                                  \
    {                                                                \
        .status = 200, .body = "{" HEADER ",\"token\":\"" text "\"}" \
    }

static void test_a_token_is_renewed_once(void **state)
{
    struct etcd_member m;
    struct rig r;
    const struct etcd_step steps[] = {
        TOKEN("first"),
        found,
        {.status = 401, .body = BAD_TOKEN},
        TOKEN("second"),
        found,
        {.status = 401, .body = BAD_TOKEN},
        TOKEN("third"),
        {.status = 401, .body = BAD_TOKEN},
    };
    (void)state;
    etcd_member_start(&m, steps, 8);
    rig_begin(&r, with_user, 1, &m.port);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    assert_int_equal(r.reply.attempts, 2);
    get(&r);
    assert_int_equal(r.reply.rc, CT_EIO);
    assert_int_equal(r.reply.attempts, 2);
    assert_non_null(strstr(r.reply.err.text, "it does not accept the login"));
    rig_end(&r);
    etcd_member_stop(&m);
    assert_int_equal(m.num_requests, 8);
    assert_non_null(strstr(m.requests[0], "POST /v3/auth/authenticate "));
    assert_non_null(strstr(m.requests[0], "{\"name\":\"joe\",\"password\":\"secret\"}"));
    assert_non_null(strstr(m.requests[1], "Authorization: first\r\n"));
    assert_non_null(strstr(m.requests[2], "Authorization: first\r\n"));
    assert_null(strstr(m.requests[3], "Authorization"));
    assert_non_null(strstr(m.requests[4], "Authorization: second\r\n"));
}

static void test_a_user_where_none_is_wanted(void **state)
{
    struct etcd_member m;
    struct rig r;
    const struct etcd_step steps[] = {
        {.status = 412,
         .body = "{\"message\":\"etcdserver: authentication is not enabled\",\"code\":9}"},
        found,
        /* It is enabled later. */
        {.status = 400, .body = "{\"message\":\"etcdserver: user name is empty\",\"code\":3}"},
        TOKEN("first"),
        found,
    };
    (void)state;
    etcd_member_start(&m, steps, 5);
    rig_begin(&r, with_user, 1, &m.port);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    get(&r);
    assert_int_equal(r.reply.rc, 0);
    rig_end(&r);
    etcd_member_stop(&m);
    assert_null(strstr(m.requests[1], "Authorization"));
    assert_non_null(strstr(m.requests[4], "Authorization: first\r\n"));
}

static void test_refused_users_are_told_without_their_password(void **state)
{
    struct etcd_member m;
    struct rig r;
    const struct etcd_step steps[] = {
        {.status = 400,
         .body = "{\"message\":\"etcdserver: authentication failed, invalid user ID or "
                 "password\",\"code\":3}"},
        {.status = 400, .body = "{\"message\":\"secret\",\"code\":3}"},
    };
    (void)state;
    etcd_member_start(&m, steps, 2);
    rig_begin(&r, with_user, 1, &m.port);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, CT_EPERM);
    assert_int_equal(r.reply.attempts, 0);
    assert_non_null(
        strstr(r.reply.err.text,
               ": authentication failed: wrong user name or password, see ETCDCTL_USER"));
    get(&r);
    assert_int_equal(r.reply.rc, CT_EIO);
    assert_null(strstr(r.reply.err.text, "secret"));
    rig_end(&r);
    etcd_member_stop(&m);
}

static void test_a_missing_user_is_told(void **state)
{
    struct etcd_member m;
    struct rig r;
    const struct etcd_step step = {
        .status = 400, .body = "{\"message\":\"etcdserver: user name is empty\",\"code\":3}"};
    (void)state;
    etcd_member_start(&m, &step, 1);
    rig_begin(&r, no_env, 1, &m.port);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, CT_EPERM);
    assert_non_null(strstr(r.reply.err.text, "set ETCDCTL_USER and ETCDCTL_PASSWORD"));
    rig_end(&r);
    etcd_member_stop(&m);
    assert_int_equal(m.num_requests, 1);
}

static void test_files_of_tls_that_are_missing_are_told(void **state)
{
    struct rig r;
    struct etcd_member m;
    const char *env[] = {"ETCDCTL_CACERT=/nonexistent/ca.pem", NULL};
    (void)state;
    etcd_member_start(&m, &found, 1);
    rig_begin(&r, env, 1, &m.port);
    rig_open(&r);
    get(&r);
    assert_int_equal(r.reply.rc, CT_EINVAL);
    assert_non_null(strstr(r.reply.err.text, "cannot use the files of ETCDCTL_CACERT: "));
    assert_non_null(strstr(r.reply.err.text, "/nonexistent/ca.pem"));
    rig_end(&r);
    etcd_member_stop(&m);
}

/* Does every thread but this one block SIGTERM? */
static bool others_block_sigterm(void)
{
    bool all = true;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[300], line[128];
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", task->d_name);
        FILE *status = task->d_name[0] != '.' && strtol(task->d_name, NULL, 10) != getpid()
                           ? fopen(path, "r")
                           : NULL;
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            if (strncmp(line, "SigBlk:", 7) == 0) {
                all = all && (strtoull(line + 7, NULL, 16) & 1ULL << (SIGTERM - 1)) != 0;
            }
        }
        if (status != NULL) {
            (void)fclose(status);
        }
    }
    (void)closedir(tasks);
    return all;
}

static void test_the_loop_keeps_the_signals(void **state)
{
    struct rig r;
    uint16_t port;
    sigset_t before, after;
    (void)state;
    int refused = etcd_member_bind(&port);
    rig_begin(&r, no_env, 1, &port);
    memset(&before, 0, sizeof(before));
    memset(&after, 0, sizeof(after));
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    rig_open(&r);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &after), 0);
    assert_memory_equal(&before, &after, sizeof(before));
    assert_true(others_block_sigterm());
    rig_end(&r);
    (void)close(refused);
}

/* Opens, asks once and closes. */
static int ask_once(void *data)
{
    struct etcd_member *m = data;
    static struct rig r;
    rig_begin(&r, no_env, 1, &m->port);
    int rc = ct_etcd_open(&r.loop, &r.options, &r.etcd, &r.err);
    if (rc == 0) {
        rc = ct_etcd_txn(r.etcd, &get_k, on_reply, &r, &r.err);
    }
    if (rc == 0) {
        wait_for(&r, 1);
        rc = r.reply.rc == CT_EPROTO ? CT_ENOMEM : r.reply.rc; /* cJSON does not say why it fails */
    }
    rig_end(&r);
    return rc;
}

static void test_memory_may_run_out(void **state)
{
    struct etcd_member m;
    (void)state;
    etcd_member_start(&m, &found, 1);
    assert_true(ct_fault_sweep(ask_once, &m, 0) > 10);
    etcd_member_stop(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_are_sent_and_answered),
        cmocka_unit_test(test_the_endpoint_that_answers_is_kept),
        cmocka_unit_test(test_a_member_that_cannot_answer_is_followed_by_the_next),
        cmocka_unit_test(test_failures_name_each_endpoint),
        cmocka_unit_test(test_failures_that_differ_have_a_code_of_their_own),
        cmocka_unit_test(test_a_silent_member_is_left_after_its_time),
        cmocka_unit_test(test_a_request_has_a_deadline),
        cmocka_unit_test(test_an_endless_answer_is_cut_off),
        cmocka_unit_test(test_closing_ends_a_running_request),
        cmocka_unit_test(test_a_callback_may_close),
        cmocka_unit_test(test_the_queue_is_bounded),
        cmocka_unit_test(test_a_missing_libcurl_is_told),
        cmocka_unit_test(test_wrong_arguments_are_refused),
        cmocka_unit_test(test_a_token_is_renewed_once),
        cmocka_unit_test(test_a_user_where_none_is_wanted),
        cmocka_unit_test(test_refused_users_are_told_without_their_password),
        cmocka_unit_test(test_a_missing_user_is_told),
        cmocka_unit_test(test_files_of_tls_that_are_missing_are_told),
        cmocka_unit_test(test_the_loop_keeps_the_signals),
        cmocka_unit_test(test_memory_may_run_out),
    };
    if (setenv("http_proxy", "http://127.0.0.1:1", 1) != 0 ||
        setenv("all_proxy", "http://127.0.0.1:1", 1) != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
