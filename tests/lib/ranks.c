/* SPDX-License-Identifier: Apache-2.0
 *
 * The store and each rank are forked processes that die with the test. A rank that fails a CHECK
 * exits with 1, which ranks_join() turns into a failure of the test; one that hangs is killed after
 * DEADLINE_MS.
 */
#include "tests/lib/ranks.h"
#include "tests/lib/ct_test.h"

#include "common/clock.h"
#include "rendezvous/server/server_uv.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

/* Meson's timeout multiplier does not reach this limit, so it is generous enough for a build
 * without optimisation on a busy machine. It stays below the 90 s after which meson ends such a
 * test. */
#define DEADLINE_MS (80 * 1000)

struct ranks ranks;

/* Of the running test; NULL: none. */
static struct ranks_shared *shared;

void ranks_check_failed(const char *file, int line, const char *what)
{
    (void)fprintf(stderr, "%s:%d: rank %s: failed: %s\n", file, line, getenv("RANK"), what);
    (void)fflush(stderr);
    _exit(1);
}

/* ---- store ----------------------------------------------------------------------------------- */

/* The whole life of the store process: tells its port through `fd`, then serves until killed. */
static void serve(int fd)
{
    uv_loop_t loop;
    struct ct_server *server = NULL;
    struct ct_server_options options = {.port = 0};
    struct ct_err err = {0};
    if (uv_loop_init(&loop) != 0 || ct_server_open(&loop, &options, &server, &err) != 0) {
        (void)fprintf(stderr, "store: %s\n", err.text);
        _exit(1);
    }
    uint16_t port = ct_server_port(server);
    if (write(fd, &port, sizeof(port)) != (ssize_t)sizeof(port)) {
        _exit(1);
    }
    (void)close(fd);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    _exit(0);
}

/* A child that cannot outlive the test. */
static pid_t fork_tied(void)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
    }
    return pid;
}

void ranks_begin(void)
{
    ranks = (struct ranks){0};
    int pipe_fds[2];
    assert_int_equal(pipe(pipe_fds), 0);
    ranks.store = fork_tied();
    assert_true(ranks.store >= 0);
    if (ranks.store == 0) {
        (void)close(pipe_fds[0]);
        serve(pipe_fds[1]);
    }
    (void)close(pipe_fds[1]);
    assert_int_equal(read(pipe_fds[0], &ranks.port, sizeof(ranks.port)), sizeof(ranks.port));
    (void)close(pipe_fds[0]);
}

static void end_process(pid_t pid)
{
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
}

void ranks_end(void)
{
    for (int i = 0; i < ranks.count; i++) {
        end_process(ranks.pids[i]);
    }
    end_process(ranks.store);
    ranks = (struct ranks){0};
}

int ranks_setup(void **state)
{
    ranks_begin();
    shared = *state;
    if (shared != NULL) {
        *shared->pointer = ranks_share(shared->bytes);
    }
    return 0;
}

int ranks_teardown(void **state)
{
    (void)state;
    ranks_end();
    if (shared != NULL) {
        ranks_unshare(*shared->pointer, shared->bytes);
        shared = NULL;
    }
    return 0;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void put_int(const char *name, int value)
{
    char text[16];
    (void)snprintf(text, sizeof(text), "%d", value);
    CHECK(setenv(name, text, 1) == 0);
}

static void put_host(int rank)
{
    int node = 0, first = 0, count = 0;
    while (ranks.hosts[count] > 0) {
        count++;
    }
    while (rank >= first + ranks.hosts[node]) {
        first += ranks.hosts[node++];
    }
    put_int("LOCAL_RANK", rank - first);
    put_int("LOCAL_WORLD_SIZE", ranks.hosts[node]);
    put_int("GROUP_RANK", node);
    put_int("GROUP_WORLD_SIZE", count);
}

static void start(int rank, int world_size, ranks_fn fn, void *data)
{
    assert_true(ranks.count < RANKS_MAX);
    pid_t pid = fork_tied();
    assert_true(pid >= 0);
    if (pid == 0) {
        put_int("RANK", rank);
        put_int("LOCAL_RANK", rank);
        put_int("WORLD_SIZE", world_size);
        put_int("LOCAL_WORLD_SIZE", world_size);
        if (ranks.hosts != NULL) {
            put_host(rank);
        }
        put_int("CTRUN_GENERATION", ranks.generation);
        put_int("MASTER_PORT", ranks.port);
        CHECK(setenv("MASTER_ADDR", "127.0.0.1", 1) == 0);
        CHECK(setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1) == 0);
        CHECK(setenv("TORCHELASTIC_RUN_ID", "test", 1) == 0);
        fn(rank, data);
        _exit(0);
    }
    ranks.pids[ranks.count++] = pid;
}

void ranks_start(int count, ranks_fn fn, void *data)
{
    for (int rank = 0; rank < count; rank++) {
        start(rank, ranks.world_size > 0 ? ranks.world_size : count, fn, data);
    }
}

static void begin_anew(void)
{
    ranks.generation++;
    if (shared != NULL) {
        memset(*shared->pointer, 0, shared->bytes);
    }
}

void ranks_start_hosts(const int *hosts, ranks_fn fn, void *data)
{
    int count = 0;
    for (int n = 0; hosts[n] > 0; n++) {
        count += hosts[n];
    }
    ranks.hosts = hosts;
    begin_anew();
    ranks_start(count, fn, data);
}

void ranks_run(int count, ranks_fn fn, void *data)
{
    begin_anew();
    ranks_start(count, fn, data);
    ranks_join();
}

void ranks_run_hosts(const int *hosts, ranks_fn fn, void *data)
{
    ranks_start_hosts(hosts, fn, data);
    ranks_join();
}

void ranks_start_one(int rank, ranks_fn fn, void *data)
{
    assert_true(ranks.world_size > 0);
    start(rank, ranks.world_size, fn, data);
}

/* Reaps one process within the deadline. */
static int reap(pid_t pid, int64_t deadline)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(fd >= 0);
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    int n;
    do {
        n = poll(&waiting, 1, ct_deadline_left_ms(NULL, deadline));
    } while (n < 0 && errno == EINTR);
    (void)close(fd);
    if (n != 1) {
        (void)kill(pid, SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (n != 1) {
        fail_msg("rank process %ld did not end within the deadline", (long)pid);
    }
    return status;
}

void ranks_join_killed(pid_t killed, int signal)
{
    int64_t deadline = ct_deadline_in(NULL, DEADLINE_MS);
    int bad = 0;
    for (int i = 0; i < ranks.count; i++) {
        pid_t pid = ranks.pids[i];
        ranks.pids[i] = 0;
        int status = reap(pid, deadline);
        bool good = pid == killed ? WIFSIGNALED(status) && WTERMSIG(status) == signal
                                  : WIFEXITED(status) && WEXITSTATUS(status) == 0;
        bad += !good;
        if (!good) {
            (void)fprintf(stderr, "process %d of %d: wait status %#x\n", i, ranks.count, status);
        }
    }
    ranks.count = 0;
    assert_int_equal(bad, 0);
}

void ranks_join(void)
{
    ranks_join_killed(0, 0);
}

/* ---- shared ---------------------------------------------------------------------------------- */

void *ranks_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

void ranks_unshare(void *memory, size_t bytes)
{
    (void)munmap(memory, bytes);
}

void ranks_await(const _Atomic int *counter, int value)
{
    int64_t deadline = ct_deadline_in(NULL, DEADLINE_MS);
    while (atomic_load(counter) < value) {
        if (ct_clock_now(NULL) > deadline) {
            (void)fprintf(stderr, "waited in vain for %d\n", value);
            abort();
        }
        const struct timespec pause = {.tv_nsec = 200 * 1000};
        (void)nanosleep(&pause, NULL);
    }
}
