/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: a question is a descriptor to read from until it ends, either a connection to a
 * worker server or the output of a program. One poll(2) waits for all questions. When one has
 * ended, its bytes are parsed, and if they are no stack, the worker's next way is begun.
 *
 * Failure modes: a worker server that refuses, is silent or answers garbage, and a program that is
 * missing, fails or takes too long, all end the question without a stack. A program that is out of
 * time is killed through its pidfd, so no other process can be hit, and what it has stopped goes on
 * through another one.
 *
 * Who frees: end_question() closes what a question has opened. The programs become zombies, which
 * the launcher reaps as it reaps every child.
 */
#include "launcher/stacks/probe.h"

#include "common/alloc.h"
#include "common/clock.h"
#include "common/file.h"
#include "launcher/process/proctree.h"
#include "launcher/process/spawn.h"
#include "launcher/stacks/flight_parse.h"
#include "launcher/util/strlist.h"
#include "rendezvous/wire/http_client.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

/* SIGKILL takes less. */
#define KILL_MS 500

/* What a question asks for. */
enum kind { KIND_STACK, KIND_FLIGHT, KINDS };

struct question {
    bool open;
    bool ended;    /* the other side has sent all */
    int fd, pidfd; /* pidfd -1 = no program */
    int traced;    /* pidfd of the process that the program may stop for a moment; -1 = none */
    int64_t deadline_ns;
    const char *handler; /* is sent when the connection is up; NULL = nothing to send */
    struct ct_buf bytes;
};

/* One worker. */
struct asked {
    enum ct_probe_source way; /* the source that is asked now */
    bool done;                /* no source is left, or a stack has come */
    int recordings;           /* how many of RECORDINGS were asked for */
    struct question questions[KINDS];
};

struct run {
    struct ct_probe *probe;
    struct asked *asked;
    struct pollfd *polls;
    int64_t deadline_ns;
    int programs, connections; /* open ones */
};

/* Handlers of a worker server that give a recording, one for each back end. */
static const char *const recordings[] = {"fr_trace_json", "dump_nccl_trace_json"};
#define RECORDINGS ((int)(sizeof(recordings) / sizeof(recordings[0])))

const char *ct_probe_source_name(enum ct_probe_source source)
{
    static const char *const names[CT_PROBE_SOURCES] = {
        [CT_PROBE_NOTHING] = "",      [CT_PROBE_WORKER_SERVER] = "PyTorch's worker server",
        [CT_PROBE_PY_SPY] = "py-spy", [CT_PROBE_EU_STACK] = "eu-stack",
        [CT_PROBE_GDB] = "gdb",
    };
    return names[source];
}

void ct_probe_fini(struct ct_probe *probe)
{
    for (int i = 0; i < probe->count; i++) {
        ct_stack_fini(&probe->answers[i].stack);
        ct_flight_fini(&probe->flights[i]);
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

/* Ends the program. One that is killed while it traces a process may leave that process stopped. */
static void kill_program(const struct question *question)
{
    struct pollfd end = {.fd = question->pidfd, .events = POLLIN};
    if (poll(&end, 1, 0) == 0) {
        (void)syscall(SYS_pidfd_send_signal, question->pidfd, SIGKILL, NULL, 0);
        (void)poll(&end, 1, KILL_MS);
        if (question->traced >= 0) {
            (void)syscall(SYS_pidfd_send_signal, question->traced, SIGCONT, NULL, 0);
        }
    }
}

static void end_question(struct run *run, struct question *question)
{
    if (question->pidfd >= 0) {
        kill_program(question);
        (void)close(question->pidfd);
        if (question->traced >= 0) {
            (void)close(question->traced);
        }
        run->programs--;
    } else {
        run->connections--;
    }
    (void)close(question->fd);
    ct_buf_fini(&question->bytes);
    *question = (struct question){.open = false};
}

static int64_t deadline_of(const struct run *run, int64_t ms)
{
    int64_t deadline_ns = ct_deadline_in(NULL, ms);
    return deadline_ns < run->deadline_ns ? deadline_ns : run->deadline_ns;
}

/* Connects to a worker server without waiting. Returns the descriptor, or -1. */
static int connect_to(const struct sockaddr *address, socklen_t len)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, address, len) != 0 && errno != EINPROGRESS) {
        (void)close(fd);
        fd = -1;
    }
    return fd;
}

static int connect_to_server(const struct ct_probe_target *target)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in port = {.sin_family = AF_INET,
                               .sin_port = htons(target->port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = -1;
    _Static_assert(sizeof(path.sun_path) >= CT_PROBE_SOCKET_MAX, "a path has room");
    if (target->socket[0] != '\0') {
        memcpy(path.sun_path, target->socket, strlen(target->socket) + 1);
        fd = connect_to((const struct sockaddr *)&path, sizeof(path));
    }
    if (fd < 0 && target->port > 0) {
        fd = connect_to((const struct sockaddr *)&port, sizeof(port));
    }
    return fd;
}

/* Begins a request to a worker server. Returns false if there is none. */
static bool ask_server(struct run *run, const struct ct_probe_target *target, const char *handler,
                       struct question *question)
{
    int fd = connect_to_server(target);
    if (fd < 0) {
        return false;
    }
    run->connections++;
    *question = (struct question){
        .open = true,
        .fd = fd,
        .pidfd = -1,
        .deadline_ns = deadline_of(run, CT_PROBE_SERVER_MS),
        .handler = handler,
    };
    return true;
}

/* Sends the request of a connection that is up. Returns false if it is not up. */
static bool send_request(struct question *question)
{
    char request[160];
    int len = snprintf(request, sizeof(request),
                       "POST /handler/%s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                       "Connection: close\r\n\r\n",
                       question->handler);
    question->handler = NULL;
    return send(question->fd, request, (size_t)len, MSG_NOSIGNAL) == len;
}

/* Starts a program whose output is the answer. Returns false if it cannot be started. */
static bool ask_program(struct run *run, const struct ct_strlist *args, struct question *question)
{
    char path[] = "PATH=/usr/bin:/bin", locale[] = "LC_ALL=C", downloads[] = "DEBUGINFOD_URLS=";
    char *const env[] = {path, locale, downloads, NULL};
    int ends[2];
    struct ct_child child;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return false;
    }
    const struct ct_spawn_options options = {
        .path = args->list[0], .argv = args->list, .envp = env, .stdio = {-1, ends[1], -1}};
    int rc = ct_spawn(&options, &child, NULL);
    (void)close(ends[1]);
    if (rc != 0) {
        (void)close(ends[0]);
        return false;
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
    run->programs++;
    *question = (struct question){
        .open = true,
        .fd = ends[0],
        .pidfd = child.pidfd,
        .traced = -1,
        .deadline_ns = deadline_of(run, CT_PROBE_PROGRAM_MS),
    };
    return true;
}

/* ---- the ways of one worker ------------------------------------------------------------------ */

static bool runs_python(pid_t pid)
{
    char link[64], path[512];
    (void)snprintf(link, sizeof(link), "/proc/%ld/exe", (long)pid);
    ssize_t len = readlink(link, path, sizeof(path) - 1);
    if (len <= 0) {
        return false;
    }
    path[len] = '\0';
    const char *slash = strrchr(path, '/');
    return strstr(slash != NULL ? slash : path, "python") != NULL;
}

/* What each program is called with, PID in place of the number of the process. */
#define PID ""
static const char *const arguments[CT_PROBE_SOURCES][8] = {
    [CT_PROBE_PY_SPY] = {"dump", "--json", "--nonblocking", "--pid", PID},
    [CT_PROBE_EU_STACK] = {"-s", "-p", PID},
    [CT_PROBE_GDB] = {"-p", PID, "-nx", "-batch", "-ex", "thread apply all bt"},
};

/* Starts the program of the worker's way. Returns false if the way is closed. */
static bool start_program(struct run *run, const struct asked *asked, pid_t pid, bool python,
                          struct question *question)
{
    const char *tool = run->probe->tools[asked->way];
    const char *const *words = arguments[asked->way];
    char number[24];
    struct ct_strlist args = {0};
    if (tool == NULL || python != (asked->way == CT_PROBE_PY_SPY)) {
        return false;
    }
    struct ct_proctree_entry process;
    /* The descriptor is opened first, so that the state is that of the process which it names. */
    int pidfd = python ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
    bool runs = ct_proctree_read_pid(pid, &process) && process.state != 'T';
    (void)snprintf(number, sizeof(number), "%ld", (long)pid);
    bool ok = ct_strlist_borrow(&args, tool) == 0;
    for (int i = 0; ok && words[i] != NULL; i++) {
        ok = ct_strlist_borrow(&args, words[i][0] != '\0' ? words[i] : number) == 0;
    }
    ok = ok && ct_strlist_close(&args) == 0 && ask_program(run, &args, question);
    ct_strlist_fini(&args);
    if (ok && runs) {
        question->traced = pidfd;
    } else if (pidfd >= 0) {
        (void)close(pidfd);
    }
    return ok;
}

/* Begins the first open way from asked->way on. Sets asked->done when none is left. */
static void begin_way(struct run *run, int index)
{
    struct asked *asked = &run->asked[index];
    const struct ct_probe_target *target = &run->probe->targets[index];
    struct question *question = &asked->questions[KIND_STACK];
    for (; asked->way < CT_PROBE_SOURCES; asked->way++) {
        bool server = asked->way == CT_PROBE_WORKER_SERVER;
        bool full =
            server ? run->connections == CT_PROBE_CONNECTIONS : run->programs == CT_PROBE_PROGRAMS;
        /* A way that is full begins when another question has ended. */
        if (full || (server ? ask_server(run, target, "dump_traceback", question)
                            : start_program(run, asked, target->pid,
                                            run->probe->answers[index].python, question))) {
            return;
        }
    }
    asked->done = true;
}

/* Asks for the next recording, as far as the connections allow. */
static void begin_recording(struct run *run, int index)
{
    struct asked *asked = &run->asked[index];
    struct question *question = &asked->questions[KIND_FLIGHT];
    while (asked->recordings < RECORDINGS && !question->open &&
           run->connections < CT_PROBE_CONNECTIONS) {
        (void)ask_server(run, &run->probe->targets[index], recordings[asked->recordings++],
                         question);
    }
}

static int take_stack(struct asked *asked, const char *text, size_t len,
                      struct ct_probe_answer *answer)
{
    int rc = asked->way == CT_PROBE_WORKER_SERVER
                 ? ct_stack_parse_faulthandler(text, len, &answer->stack)
             : asked->way == CT_PROBE_PY_SPY ? ct_stack_parse_py_spy(text, len, &answer->stack)
                                             : ct_stack_parse_native(text, len, &answer->stack);
    if (rc == 0) {
        answer->source = asked->way;
        asked->done = true;
        return 0;
    }
    ct_stack_fini(&answer->stack);
    asked->way++;
    return rc == CT_ENOMEM ? rc : 0;
}

/* Parses what has come and ends the question. CT_ENOMEM. */
static int take_answer(struct run *run, int index, enum kind kind)
{
    struct asked *asked = &run->asked[index];
    struct question *question = &asked->questions[kind];
    const char *text = (const char *)ct_buf_bytes(&question->bytes);
    size_t len = question->bytes.len;
    int rc = 0;
    if (question->pidfd < 0) { /* HTTP */
        struct ct_http_reply reply = {0};
        if (len == 0 || ct_http_reply_parse(text, len, question->ended, &reply, NULL) != 0 ||
            reply.code != 200) {
            reply.len = 0;
        }
        text = len > 0 ? text + reply.body : "";
        len = reply.len;
    }
    if (kind == KIND_STACK) {
        rc = take_stack(asked, len > 0 ? text : "", len, &run->probe->answers[index]);
    } else if (len > 0) {
        rc = ct_flight_parse(text, len, &run->probe->flights[index]);
        rc = rc == CT_ENOMEM ? rc : 0;
    }
    end_question(run, question);
    return rc;
}

/* ---- all workers ----------------------------------------------------------------------------- */

/* Reads what is there. Returns true when the answer is complete, or too long. */
static bool read_more(struct question *question)
{
    struct ct_http_reply reply;
    for (;;) {
        if (question->bytes.len > CT_PROBE_ANSWER_MAX ||
            ct_buf_reserve(&question->bytes, 65536) != 0) {
            ct_buf_reset(&question->bytes);
            return true;
        }
        ssize_t n = read(question->fd, ct_buf_tail(&question->bytes), 65536);
        if (n > 0) {
            question->bytes.len += (size_t)n;
            continue;
        }
        bool waits = n < 0 && (errno == EAGAIN || errno == EINTR);
        question->ended = !waits;
        /* A worker server may leave the connection open after its answer. */
        return !waits ||
               (question->pidfd < 0 && question->bytes.len > 0 &&
                ct_http_reply_parse((const char *)ct_buf_bytes(&question->bytes),
                                    question->bytes.len, false, &reply, NULL) != CT_HTTP_E_MORE);
    }
}

/* Begins what can be begun. Returns true while something is asked or is to be asked. */
static bool begin_questions(struct run *run)
{
    bool open = false;
    for (int i = 0; i < run->probe->count; i++) {
        int index = (run->probe->first + i) % run->probe->count;
        struct asked *asked = &run->asked[index];
        if (!asked->done && !asked->questions[KIND_STACK].open) {
            begin_way(run, index);
        }
        begin_recording(run, index);
        open = open || !asked->done || asked->recordings < RECORDINGS ||
               asked->questions[KIND_FLIGHT].open;
    }
    return open;
}

/* Waits until a question can be read, is out of time, or the caller gives up. Returns false then,
 * and when the time of all is over. */
static bool wait_for_answers(struct run *run)
{
    int64_t until_ns = run->deadline_ns;
    int count = run->probe->count * KINDS;
    for (int i = 0; i < count; i++) {
        const struct question *question = &run->asked[i / KINDS].questions[i % KINDS];
        run->polls[i] = (struct pollfd){.fd = question->open ? question->fd : -1,
                                        .events = question->handler != NULL ? POLLOUT : POLLIN};
        if (question->open && question->deadline_ns < until_ns) {
            until_ns = question->deadline_ns;
        }
    }
    run->polls[count] = (struct pollfd){.fd = run->probe->stop_fd, .events = POLLIN};
    int n = poll(run->polls, (nfds_t)count + 1, ct_deadline_left_ms(NULL, until_ns));
    bool stopped = n > 0 && run->polls[count].revents != 0;
    return !stopped && ct_clock_now(NULL) < run->deadline_ns;
}

/* Takes every answer, even after one has failed. Returns the first failure. */
static int take_answers(struct run *run)
{
    int rc = 0;
    for (int i = 0; i < run->probe->count * KINDS; i++) {
        struct question *question = &run->asked[i / KINDS].questions[i % KINDS];
        if (!question->open) {
            continue;
        }
        bool ready = run->polls[i].revents != 0;
        bool complete =
            ready && (question->handler != NULL ? !send_request(question) : read_more(question));
        if (complete || ct_clock_now(NULL) >= question->deadline_ns) {
            int failed = take_answer(run, i / KINDS, (enum kind)(i % KINDS));
            if (rc == 0) {
                rc = failed;
            }
        }
    }
    return rc;
}

/* CAP_SYS_PTRACE is bit 19: the highest one of the fifth hexadecimal digit, counted from the end.
 */
static bool has_capability(const char *mask)
{
    size_t len = strspn(mask, "0123456789abcdef");
    return len >= 5 && strchr("89abcdef", mask[len - 5]) != NULL;
}

bool ct_probe_is_barred(const char *yama, const char *status)
{
    static const char field[] = "\nCapEff:\t";
    const char *mask = strstr(status, field);
    if (yama[0] < '1' || yama[0] > '3') {
        return false;
    }
    return yama[0] == '3' || mask == NULL || !has_capability(mask + sizeof(field) - 1);
}

static bool is_barred(void)
{
    struct ct_buf yama = CT_BUF_INIT, status = CT_BUF_INIT;
    bool known = ct_file_read("/proc/sys/kernel/yama/ptrace_scope", 64, &yama, NULL) == 0 &&
                 ct_file_read("/proc/self/status", 65536, &status, NULL) == 0 &&
                 ct_buf_cstr(&yama) != NULL && ct_buf_cstr(&status) != NULL;
    bool barred = known && ct_probe_is_barred(ct_buf_cstr(&yama), ct_buf_cstr(&status));
    ct_buf_fini(&yama);
    ct_buf_fini(&status);
    return barred;
}

static void begin(struct run *run)
{
    for (int i = 0; i < run->probe->count; i++) {
        struct asked *asked = &run->asked[i];
        const struct ct_probe_target *target = &run->probe->targets[i];
        asked->way = CT_PROBE_WORKER_SERVER;
        asked->done = target->pid <= 0;
        asked->recordings = asked->done ? RECORDINGS : 0;
        run->probe->answers[i].asked = !asked->done;
        run->probe->answers[i].python = !asked->done && runs_python(target->pid);
    }
}

int ct_probe_run(struct ct_probe *probe)
{
    struct run run = {.probe = probe, .deadline_ns = ct_deadline_in(NULL, probe->budget_ms)};
    size_t count = (size_t)probe->count;
    run.asked = ct_calloc(count, sizeof(*run.asked));
    run.polls = ct_calloc(count * KINDS + 1, sizeof(*run.polls));
    int rc = run.asked != NULL && run.polls != NULL ? 0 : CT_ENOMEM;
    if (rc == 0) {
        probe->is_barred = is_barred();
        begin(&run);
    }
    while (rc == 0 && begin_questions(&run) && wait_for_answers(&run)) {
        rc = take_answers(&run);
    }
    for (size_t i = 0; run.asked != NULL && i < count * KINDS; i++) {
        struct question *question = &run.asked[i / KINDS].questions[i % KINDS];
        if (question->open) {
            end_question(&run, question);
        }
    }
    ct_free(run.asked);
    ct_free(run.polls);
    return rc;
}
