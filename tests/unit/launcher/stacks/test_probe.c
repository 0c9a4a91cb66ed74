/* SPDX-License-Identifier: Apache-2.0
 *
 * Worker servers are threads of this test, tools are shell scripts. The process that is asked is a
 * copy of sleep(1), whose name says whether it runs Python.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/clock.h"
#include "launcher/stacks/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* Far beyond what anything here takes; a hang must fail, a slow machine must not. */
#define LONG_MS 20000

#define FAULTHANDLER "Thread 0x1 (most recent call first):\n  File \"/srv/t.py\", line 3 in f\n"
#define PY_SPY "[{\"frames\":[{\"name\":\"g\",\"filename\":\"/srv/t.py\",\"line\":4}]}]"
#define NATIVE "TID 1:\n#0  0x1 work\n    /srv/w.c:5:1\n"
#define RECORDING                                                                                 \
    "{\"version\":\"2.10\",\"entries\":[{\"collective_seq_id\":1,\"process_group\":[\"0\",\"\"]," \
    "\"profiling_name\":\"gloo:barrier\"}]}"

static const char nowhere[] = "/nonexistent/server.sock";

/* A probe opens three to each worker. */
#define CONNECTIONS 8

enum server_mode { ANSWERS, IS_SILENT, ANSWERS_GARBAGE, NEVER_ENDS, SAYS_404, STAYS_OPEN };

struct rig {
    char *dir, *socket;
    pid_t pid;
    int listener;
    enum server_mode mode;
    pthread_t server;
    bool serves;
    struct ct_probe probe;
    struct ct_probe_target targets[2];
    struct ct_probe_answer answers[2];
    struct ct_flight flights[2];
};

/* ---- a worker server ------------------------------------------------------------------------- */

static void send_text(int fd, const char *text)
{
    (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
}

static void answer(const struct rig *rig, int peer, const char *request)
{
    char head[128], byte;
    const char *body = strstr(request, "/dump_traceback ") != NULL  ? FAULTHANDLER
                       : strstr(request, "/fr_trace_json ") != NULL ? RECORDING
                                                                    : "{}";
    switch (rig->mode) {
    case ANSWERS:
    case STAYS_OPEN:
        (void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
                       strlen(body));
        send_text(peer, head);
        send_text(peer, body);
        break;
    case ANSWERS_GARBAGE:
        send_text(peer, "\x01\x02 no HTTP");
        break;
    case SAYS_404:
        send_text(peer, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        break;
    case NEVER_ENDS:
        send_text(peer, "HTTP/1.1 200 OK\r\n\r\n");
        while (send(peer, FAULTHANDLER, sizeof(FAULTHANDLER) - 1, MSG_NOSIGNAL) > 0) {
        }
        break;
    case IS_SILENT:
        break;
    }
    while ((rig->mode == STAYS_OPEN || rig->mode == IS_SILENT) && recv(peer, &byte, 1, 0) > 0) {
    }
}

struct connection {
    const struct rig *rig;
    int peer;
};

static void *serve_one(void *data)
{
    struct connection *connection = data;
    int peer = connection->peer;
    char request[512] = "";
    size_t len = 0;
    while (len < sizeof(request) - 1 && strstr(request, "\r\n\r\n") == NULL) {
        ssize_t n = recv(peer, request + len, sizeof(request) - 1 - len, 0);
        if (n <= 0) {
            break;
        }
        len += (size_t)n;
        request[len] = '\0';
    }
    answer(connection->rig, peer, request);
    (void)close(peer);
    return NULL;
}

/* Each connection has a thread, because a silent one must not keep the others waiting. */
static void *serve(void *data)
{
    struct rig *rig = data;
    pthread_t threads[CONNECTIONS];
    struct connection connections[CONNECTIONS];
    int count = 0, peer;
    while (count < CONNECTIONS && (peer = accept(rig->listener, NULL, NULL)) >= 0) {
        connections[count] = (struct connection){rig, peer};
        if (pthread_create(&threads[count], NULL, serve_one, &connections[count]) == 0) {
            count++;
        }
    }
    for (int i = 0; i < count; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return NULL;
}

static void begin_serving(struct rig *rig, enum server_mode mode)
{
    rig->mode = mode;
    assert_int_equal(listen(rig->listener, 16), 0);
    assert_int_equal(pthread_create(&rig->server, NULL, serve, rig), 0);
    rig->serves = true;
}

static void begin_server(struct rig *rig, enum server_mode mode)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    rig->socket = ct_tmpdir_path(rig->dir, "server.sock");
    assert_true(strlen(rig->socket) < sizeof(rig->targets[0].socket));
    memcpy(rig->targets[0].socket, rig->socket, strlen(rig->socket) + 1);
    memcpy(address.sun_path, rig->socket, strlen(rig->socket) + 1);
    rig->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(rig->listener, (struct sockaddr *)&address, sizeof(address)), 0);
    begin_serving(rig, mode);
}

static void begin_tcp_server(struct rig *rig, enum server_mode mode)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    rig->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(rig->listener, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(rig->listener, (struct sockaddr *)&address, &len), 0);
    rig->targets[0].port = ntohs(address.sin_port);
    begin_serving(rig, mode);
}

/* ---- the rest of a scene --------------------------------------------------------------------- */

extern char **environ;

static void begin(struct rig *rig, const char *name)
{
    *rig = (struct rig){.dir = ct_tmpdir_new(), .listener = -1};
    char *program = ct_tmpdir_path(rig->dir, name);
    char seconds[] = "1000", *const argv[] = {program, seconds, NULL};
    char copy[] = "cp", sleep_path[] = "/bin/sleep";
    char *const copy_argv[] = {copy, sleep_path, program, NULL};
    pid_t copier;
    assert_int_equal(posix_spawnp(&copier, copy, NULL, NULL, copy_argv, environ), 0);
    assert_int_equal(waitpid(copier, NULL, 0), copier);
    assert_int_equal(posix_spawn(&rig->pid, program, NULL, NULL, argv, environ), 0);
    free(program);
    rig->targets[0].pid = rig->pid;
    rig->probe = (struct ct_probe){
        .budget_ms = LONG_MS,
        .stop_fd = -1,
        .count = 1,
        .targets = rig->targets,
        .answers = rig->answers,
        .flights = rig->flights,
    };
}

/* Installs a tool that does `script`. */
static void install(struct rig *rig, enum ct_probe_source source, const char *script)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "#!/bin/sh\n%s\n", script);
    char *path = ct_tmpdir_write(rig->dir, ct_probe_source_name(source), text, strlen(text));
    assert_int_equal(chmod(path, 0700), 0);
    rig->probe.tools[source] = path;
}

static void run(struct rig *rig)
{
    assert_int_equal(ct_probe_run(&rig->probe), 0);
}

static void end(struct rig *rig)
{
    for (int i = 0; i < CT_PROBE_SOURCES; i++) {
        free((char *)rig->probe.tools[i]);
    }
    if (rig->serves) {
        (void)shutdown(rig->listener, SHUT_RDWR);
        (void)pthread_join(rig->server, NULL);
        (void)close(rig->listener);
    }
    ct_probe_fini(&rig->probe);
    assert_int_equal(kill(rig->pid, SIGKILL), 0);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) { /* also the tools */
    }
    free(rig->socket);
    ct_tmpdir_free(rig->dir);
}

static void assert_source(const struct rig *rig, enum ct_probe_source source, const char *where)
{
    struct ct_buf out = CT_BUF_INIT;
    assert_int_equal(ct_stack_print_where(&rig->answers[0].stack, &out), 0);
    assert_string_equal(ct_buf_cstr(&out), where);
    assert_int_equal(rig->answers[0].source, source);
    ct_buf_fini(&out);
}

/* ---- worker servers -------------------------------------------------------------------------- */

static void test_a_worker_server_gives_stack_and_recording(void **state)
{
    (void)state;
    static const enum server_mode modes[] = {ANSWERS, STAYS_OPEN};
    for (size_t i = 0; i < 2; i++) {
        struct rig rig;
        begin(&rig, "python3");
        begin_server(&rig, modes[i]);
        install(&rig, CT_PROBE_PY_SPY, "echo '" PY_SPY "'");
        run(&rig);
        assert_source(&rig, CT_PROBE_WORKER_SERVER, "t.py:3 in f");
        assert_true(rig.flights[0].known);
        assert_int_equal(rig.flights[0].op_count, 1);
        assert_true(rig.answers[0].asked);
        assert_true(rig.answers[0].python);
        end(&rig);
    }
}

static void test_a_worker_server_that_is_of_no_use_is_passed_over(void **state)
{
    (void)state;
    static const enum server_mode modes[] = {IS_SILENT, ANSWERS_GARBAGE, SAYS_404, NEVER_ENDS};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct rig rig;
        begin(&rig, "python3");
        begin_server(&rig, modes[i]);
        install(&rig, CT_PROBE_PY_SPY, "echo '" PY_SPY "'");
        int64_t begun_ns = ct_clock_now(NULL);
        run(&rig);
        assert_true(ct_clock_now(NULL) - begun_ns < LONG_MS * CT_NS_PER_MS / 2);
        assert_source(&rig, CT_PROBE_PY_SPY, "t.py:4 in g");
        assert_false(rig.flights[0].known);
        end(&rig);
    }
}

static void test_a_socket_that_nobody_listens_at_is_passed_over(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "python3");
    memcpy(rig.targets[0].socket, nowhere, sizeof(nowhere));
    install(&rig, CT_PROBE_PY_SPY, "echo '" PY_SPY "'");
    run(&rig);
    assert_source(&rig, CT_PROBE_PY_SPY, "t.py:4 in g");
    end(&rig);
}

static void test_a_worker_server_at_a_port_is_asked(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "python3");
    memcpy(rig.targets[0].socket, nowhere, sizeof(nowhere));
    begin_tcp_server(&rig, ANSWERS);
    run(&rig);
    assert_source(&rig, CT_PROBE_WORKER_SERVER, "t.py:3 in f");
    assert_true(rig.flights[0].known);
    end(&rig);
}

static void test_a_port_that_nobody_listens_at_is_passed_over(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "python3");
    rig.targets[0].port = 1;
    install(&rig, CT_PROBE_PY_SPY, "echo '" PY_SPY "'");
    run(&rig);
    assert_source(&rig, CT_PROBE_PY_SPY, "t.py:4 in g");
    end(&rig);
}

/* ---- tools ----------------------------------------------------------------------------------- */

static void test_each_kind_of_program_has_its_tools(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "python3.11");
    install(&rig, CT_PROBE_EU_STACK, "echo '" NATIVE "'");
    run(&rig);
    assert_source(&rig, CT_PROBE_NOTHING, "");
    end(&rig);

    begin(&rig, "train");
    install(&rig, CT_PROBE_PY_SPY, "echo '" PY_SPY "'");
    install(&rig, CT_PROBE_EU_STACK, "exit 1");
    install(&rig, CT_PROBE_GDB, "echo '" NATIVE "'");
    run(&rig);
    assert_source(&rig, CT_PROBE_GDB, "w.c:5 in work");
    assert_false(rig.answers[0].python);
    end(&rig);
}

static void test_a_tool_is_told_the_process(void **state)
{
    (void)state;
    struct rig rig;
    char pid[24];
    begin(&rig, "train");
    /* As a function's name, so that the test sees it. */
    install(&rig, CT_PROBE_EU_STACK, "[ \"$1 $2\" = '-s -p' ] && echo \"#0  0x1 at_$3\"");
    run(&rig);
    (void)snprintf(pid, sizeof(pid), "at_%d", (int)rig.pid);
    assert_source(&rig, CT_PROBE_EU_STACK, pid);
    end(&rig);
}

static char state_of(pid_t pid)
{
    char path[64], text[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0) {
        (void)close(fd);
    }
    const char *end = n > 0 ? strrchr(text, ')') : NULL;
    return end != NULL ? end[2] : '?';
}

static void wait_for_state(pid_t pid, bool stopped)
{
    int64_t until_ns = ct_deadline_in(NULL, LONG_MS);
    while ((state_of(pid) == 'T') != stopped) {
        assert_true(ct_clock_now(NULL) < until_ns);
        (void)poll(NULL, 0, 1);
    }
}

static void test_a_tool_that_hangs_is_killed_and_leaves_the_worker_running(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "train");
    rig.probe.budget_ms = 300;
    install(&rig, CT_PROBE_EU_STACK, "kill -STOP $3; exec sleep 1000");
    run(&rig);
    assert_source(&rig, CT_PROBE_NOTHING, "");
    wait_for_state(rig.pid, false);
    end(&rig); /* waits for the tool, so it was killed */
}

static void test_a_worker_that_was_stopped_stays_stopped(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "train");
    assert_int_equal(kill(rig.pid, SIGSTOP), 0);
    wait_for_state(rig.pid, true);
    rig.probe.budget_ms = 200;
    install(&rig, CT_PROBE_EU_STACK, "exec sleep 1000");
    run(&rig);
    assert_int_equal(state_of(rig.pid), 'T');
    end(&rig);
}

static void test_too_long_an_output_is_no_answer(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "train");
    install(&rig, CT_PROBE_EU_STACK, "echo '" NATIVE "'; exec cat /dev/zero");
    run(&rig);
    assert_source(&rig, CT_PROBE_NOTHING, "");
    end(&rig);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void test_a_worker_that_does_not_live_is_not_asked(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "train");
    rig.probe.count = 2;
    install(&rig, CT_PROBE_EU_STACK, "echo '" NATIVE "'");
    run(&rig);
    assert_source(&rig, CT_PROBE_EU_STACK, "w.c:5 in work");
    assert_false(rig.answers[1].asked);
    assert_int_equal(rig.answers[1].source, CT_PROBE_NOTHING);
    end(&rig);
}

static void test_one_that_hangs_delays_no_other(void **state)
{
    (void)state;
    struct rig rig;
    begin(&rig, "train");
    rig.probe.count = 2;
    rig.targets[1].pid = rig.pid;
    begin_server(&rig, IS_SILENT);
    rig.probe.budget_ms = 700;
    install(&rig, CT_PROBE_EU_STACK, "echo '" NATIVE "'");
    run(&rig);
    assert_int_equal(rig.answers[0].source, CT_PROBE_NOTHING);
    assert_int_equal(rig.answers[1].source, CT_PROBE_EU_STACK);
    end(&rig);
}

static void test_the_caller_can_give_up(void **state)
{
    (void)state;
    struct rig rig;
    int ends[2];
    begin(&rig, "train");
    assert_int_equal(pipe(ends), 0);
    (void)close(ends[1]);
    rig.probe.stop_fd = ends[0];
    install(&rig, CT_PROBE_EU_STACK, "exec sleep 1000");
    run(&rig);
    assert_source(&rig, CT_PROBE_NOTHING, "");
    (void)close(ends[0]);
    end(&rig);
}

static void test_the_right_to_look_at_others_is_known(void **state)
{
    static const char none[] =
        "Name:\tctrun\nCapPrm:\t0000003fffffffff\nCapEff:\t0000000000000000\n"
        "CapBnd:\t0000003fffffffff\n";
    static const char all[] = "Name:\tctrun\nCapEff:\t000001ffffffffff\n";
    static const char only[] = "Name:\tctrun\nCapEff:\t0000000000080000\n";
    static const char docker[] = "Name:\tctrun\nCapEff:\t00000000a80425fb\n"; /* root there */
    (void)state;
    assert_false(ct_probe_is_barred("0\n", none));
    assert_false(ct_probe_is_barred("", none));
    assert_true(ct_probe_is_barred("1\n", none));
    assert_true(ct_probe_is_barred("2\n", docker));
    assert_false(ct_probe_is_barred("1\n", all));
    assert_false(ct_probe_is_barred("2\n", only));
    assert_true(ct_probe_is_barred("3\n", all)); /* nobody may, until the next boot */
    assert_true(ct_probe_is_barred("1\n", "Name:\tx\n"));
    assert_true(ct_probe_is_barred("1\n", "\nCapEff:\tf\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_server_gives_stack_and_recording),
        cmocka_unit_test(test_a_worker_server_that_is_of_no_use_is_passed_over),
        cmocka_unit_test(test_a_socket_that_nobody_listens_at_is_passed_over),
        cmocka_unit_test(test_a_worker_server_at_a_port_is_asked),
        cmocka_unit_test(test_a_port_that_nobody_listens_at_is_passed_over),
        cmocka_unit_test(test_each_kind_of_program_has_its_tools),
        cmocka_unit_test(test_a_tool_is_told_the_process),
        cmocka_unit_test(test_a_tool_that_hangs_is_killed_and_leaves_the_worker_running),
        cmocka_unit_test(test_a_worker_that_was_stopped_stays_stopped),
        cmocka_unit_test(test_too_long_an_output_is_no_answer),
        cmocka_unit_test(test_a_worker_that_does_not_live_is_not_asked),
        cmocka_unit_test(test_one_that_hangs_delays_no_other),
        cmocka_unit_test(test_the_caller_can_give_up),
        cmocka_unit_test(test_the_right_to_look_at_others_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
