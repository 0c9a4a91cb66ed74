/* SPDX-License-Identifier: Apache-2.0
 *
 * Forked writers play the workers; a pipe, socket, file or nothing plays ctrun's stdout, read by
 * the test on the same loop.
 */
#include "launcher/output_uv.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/loop.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define STREAMS_MAX 512

struct fixture {
    uv_loop_t loop;
    struct ct_output *output;
    struct ct_log log;
    int logged;
    char log_line[CT_LOG_LINE_MAX];
    int out[2], err[2]; /* read end, write end */
    uv_poll_t reader;   /* of out[0] */
    size_t gulp;        /* bytes it takes at a time */
    struct ct_buf seen;
    struct ct_output_stream *streams[STREAMS_MAX];
    int child_fds[STREAMS_MAX];
    pid_t writers[STREAMS_MAX];
    int count;
    bool settled, closed, alarmed;
};

static void on_log(void *data, enum ct_log_level level, const char *line)
{
    struct fixture *f = data;
    (void)level;
    f->logged++;
    (void)snprintf(f->log_line, sizeof(f->log_line), "%s", line);
    /* As ctrun's own logger does. */
    ct_output_say(f->output, CT_OUTPUT_ERR, "logged\n", 7);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct fixture *f = poll->data;
    (void)status;
    (void)events;
    assert_int_equal(ct_buf_reserve(&f->seen, f->gulp), 0);
    ssize_t n = read(f->out[0], ct_buf_tail(&f->seen), f->gulp);
    if (n > 0) {
        f->seen.len += (size_t)n;
    } else {
        uv_poll_stop(poll);
    }
}

static void open_output(struct fixture *f, int out_fd, int err_fd)
{
    f->log = (struct ct_log){.emit = on_log, .data = f, .threshold = CT_LOG_DEBUG};
    f->gulp = 65536;
    ct_loop_begin(&f->loop);
    struct ct_err err;
    assert_int_equal(ct_output_open(&f->loop,
                                    &(struct ct_output_options){
                                        .out_fd = out_fd, .err_fd = err_fd, .log = &f->log},
                                    &f->output, &err),
                     0);
}

/* stdout and stderr are pipes; stderr is read at the end only. */
static struct fixture *setup(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    open_output(f, f->out[1], f->err[1]);
    return f;
}

static void start_reading(struct fixture *f)
{
    assert_int_equal(uv_poll_init(&f->loop, &f->reader, f->out[0]), 0);
    f->reader.data = f;
    assert_int_equal(uv_poll_start(&f->reader, UV_READABLE, on_readable), 0);
}

static void set_flag(void *data)
{
    *(bool *)data = true;
}

static void settle(struct fixture *f, int64_t timeout_ms)
{
    f->settled = false;
    ct_output_settle(f->output, timeout_ms, set_flag, &f->settled);
    assert_false(f->settled);
    ct_loop_run_until(&f->loop, &f->settled);
}

static void close_output(struct fixture *f, int64_t timeout_ms)
{
    for (int i = 0; i < f->count; i++) {
        ct_output_stream_free(f->streams[i]);
        if (f->writers[i] > 0) {
            int status;
            assert_int_equal(waitpid(f->writers[i], &status, 0), f->writers[i]);
            assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
    }
    ct_output_close(f->output, timeout_ms, set_flag, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
}

/* Ends the fixture; what the reader has not taken is in f->seen afterwards. */
static void finish_seen(struct fixture *f)
{
    close_output(f, -1);
    if (f->reader.loop != NULL) {
        uv_close((uv_handle_t *)&f->reader, NULL);
    }
    ct_loop_end(&f->loop);
    close(f->out[1]);
    f->out[1] = -1;
    if (f->out[0] >= 0) {
        (void)fcntl(f->out[0], F_SETFL, 0);
        ssize_t n;
        do {
            assert_int_equal(ct_buf_reserve(&f->seen, 65536), 0);
            n = read(f->out[0], ct_buf_tail(&f->seen), 65536);
            f->seen.len += n > 0 ? (size_t)n : 0;
        } while (n > 0);
    }
}

static void teardown(struct fixture *f)
{
    for (int i = 0; i < 2; i++) {
        int fds[] = {f->out[i], f->err[i]};
        for (int k = 0; k < 2; k++) {
            if (fds[k] > 2) {
                close(fds[k]);
            }
        }
    }
    ct_buf_fini(&f->seen);
    free(f);
}

static int open_stream(struct fixture *f, struct ct_output_stream_options options)
{
    struct ct_err err;
    options.to = options.to != 0 ? options.to : CT_OUTPUT_OUT;
    options.prefix = options.prefix != NULL ? options.prefix : "";
    int rc = ct_output_stream_open(f->output, &options, &f->streams[f->count],
                                   &f->child_fds[f->count], &err);
    if (rc != 0) {
        fail_msg("%s", err.text);
    }
    return f->count++;
}

static void write_text(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* Forks a writer of `lines` lines "<n> xxx..." of varying length, in odd pieces. */
static void start_writer(struct fixture *f, int at, int lines, volatile size_t *progress)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(f->out[0]); /* or the reader could never leave */
        int fd = f->child_fds[at];
        char line[3000];
        size_t total = 0;
        for (int i = 0; i < lines; i++) {
            int len = snprintf(line, sizeof(line), "%d ", i);
            size_t pad = ((size_t)i * 7919 + (size_t)at * 31) % 2500;
            memset(line + len, 'a' + at % 26, pad);
            line[(size_t)len + pad] = '\n';
            size_t size = (size_t)len + pad + 1;
            size_t first = size * (size_t)(i % 3) / 3;
            if (write(fd, line, first) < 0 || write(fd, line + first, size - first) < 0) {
                _exit(1);
            }
            total += size;
            if (progress != NULL) {
                *progress = total;
            }
        }
        _exit(0);
    }
    f->writers[at] = pid;
    ct_output_stream_spawned(f->streams[at]);
}

/* Every line is whole, of one worker, and in that worker's order; returns how many there are. */
static int check_lines(const struct ct_buf *seen, int workers)
{
    int next[STREAMS_MAX] = {0};
    int lines = 0;
    const char *p = (const char *)ct_buf_bytes(seen);
    const char *end = p + seen->len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        assert_non_null(newline);
        int rank;
        int number;
        int used = 0;
        assert_int_equal(sscanf(p, "[%d] %d%n", &rank, &number, &used), 2);
        assert_true(rank >= 0 && rank < workers);
        assert_int_equal(number, next[rank]++);
        size_t pad = ((size_t)number * 7919 + (size_t)rank * 31) % 2500;
        assert_int_equal((size_t)(newline - p), (size_t)used + 1 + pad);
        for (const char *c = p + used + 1; c < newline; c++) {
            assert_int_equal(*c, 'a' + rank % 26);
        }
        lines++;
        p = newline + 1;
    }
    return lines;
}

static void open_ranks(struct fixture *f, int workers, int lines)
{
    for (int rank = 0; rank < workers; rank++) {
        char prefix[CT_LINES_PREFIX_MAX];
        ct_lines_prefix(rank, false, prefix);
        int at = open_stream(
            f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = prefix});
        start_writer(f, at, lines, NULL);
    }
}

static void test_lines_never_tear(void **state)
{
    (void)state;
    struct fixture *f = setup();
    open_ranks(f, 4, 500);
    f->gulp = 3001; /* a slow reader: the sink is blocked nearly always */
    start_reading(f);
    settle(f, -1);
    finish_seen(f);
    assert_int_equal(check_lines(&f->seen, 4), 4 * 500);
    assert_int_equal(f->logged, 0);
    teardown(f);
}

static void test_many_workers(void **state)
{
    (void)state;
    struct fixture *f = setup();
    open_ranks(f, 256, 3);
    start_reading(f);
    settle(f, -1);
    finish_seen(f);
    assert_int_equal(check_lines(&f->seen, 256), 256 * 3);
    teardown(f);
}

static void on_alarm(uv_timer_t *timer)
{
    struct fixture *f = timer->data;
    f->alarmed = true;
}

static void test_blocked_reader_stops_the_workers(void **state)
{
    (void)state;
    struct fixture *f = setup();
    volatile size_t *progress =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(progress != MAP_FAILED);
    int at =
        open_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = "[0] "});
    start_writer(f, at, 4000, progress); /* about 5 MB */
    uv_timer_t timer;
    uv_timer_init(&f->loop, &timer);
    timer.data = f;
    uv_timer_start(&timer, on_alarm, 300, 0);
    ct_loop_run_until(&f->loop, &f->alarmed);
    uv_close((uv_handle_t *)&timer, NULL);
    assert_true(*progress < CT_OUTPUT_HIGH + 4 * 65536 + 65536 / 4);
    start_reading(f); /* and now nothing is missing */
    settle(f, -1);
    finish_seen(f);
    assert_int_equal(check_lines(&f->seen, 1), 4000);
    munmap((void *)(uintptr_t)progress, 4096);
    teardown(f);
}

static void test_socket_takes_all_as_well(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->out), 0);
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    open_output(f, f->out[1], f->err[1]);
    open_ranks(f, 2, 300);
    f->gulp = 20000;
    start_reading(f);
    settle(f, -1);
    assert_false(fcntl(f->out[1], F_GETFL) & O_NONBLOCK);
    finish_seen(f);
    assert_int_equal(check_lines(&f->seen, 2), 600);
    teardown(f);
}

static void test_shared_descriptors_stay_blocking(void **state)
{
    (void)state;
    struct fixture *f = setup();
    ct_output_say(f->output, CT_OUTPUT_OUT, "text\n", 5);
    assert_false(fcntl(f->out[1], F_GETFL) & O_NONBLOCK);
    assert_false(fcntl(f->err[1], F_GETFL) & O_NONBLOCK);
    finish_seen(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "text\n");
    teardown(f);
}

static void test_reader_that_leaves_harms_nobody(void **state)
{
    (void)state;
    struct fixture *f = setup();
    open_ranks(f, 2, 500);
    start_reading(f);
    f->gulp = 100;
    uv_run(&f->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&f->reader, NULL);
    f->reader.loop = NULL;
    uv_run(&f->loop, UV_RUN_NOWAIT);
    close(f->out[0]);
    f->out[0] = -1;
    settle(f, -1); /* the writers come to their end */
    finish_seen(f);
    assert_int_equal(f->logged, 1);
    assert_non_null(strstr(f->log_line, "stdout: Broken pipe"));
    char said[16] = {0};
    assert_int_equal(read(f->err[0], said, sizeof(said)), 7);
    assert_string_equal(said, "logged\n");
    teardown(f);
}

static void test_held_pipe_does_not_hang_the_end(void **state)
{
    (void)state;
    struct fixture *f = setup();
    int at =
        open_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = "[5] "});
    int held = fcntl(f->child_fds[at], F_DUPFD_CLOEXEC, 3); /* the grandchild's */
    write_text(held, "whole\nlast words");
    ct_output_stream_spawned(f->streams[at]);
    start_reading(f);
    settle(f, -1);
    finish_seen(f);
    close(held);
    assert_string_equal(ct_buf_cstr(&f->seen), "[5] whole\n[5] last words\n");
    teardown(f);
}

static void test_raw_passes_at_once(void **state)
{
    (void)state;
    struct fixture *f = setup();
    int at = open_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_RAW});
    write_text(f->child_fds[at], "50%\r");
    uv_run(&f->loop, UV_RUN_ONCE);
    char now[16] = {0};
    assert_int_equal(read(f->out[0], now, sizeof(now)), 4);
    assert_string_equal(now, "50%\r");
    write_text(f->child_fds[at], "no newline");
    uv_run(&f->loop, UV_RUN_ONCE);
    ct_output_say(f->output, CT_OUTPUT_OUT, "report\n", 7);
    ct_output_stream_spawned(f->streams[at]);
    settle(f, -1);
    struct ct_buf tail = CT_BUF_INIT;
    assert_int_equal(ct_output_stream_tail(f->streams[at], "> ", &tail), 0);
    assert_string_equal(ct_buf_cstr(&tail), "> no newline\n");
    ct_buf_fini(&tail);
    finish_seen(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "no newline\nreport\n");
    teardown(f);
}

static void test_one_file_is_one_sink(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    f->err[0] = f->err[1] = -1;
    int both = fcntl(f->out[1], F_DUPFD_CLOEXEC, 3);
    open_output(f, f->out[1], both);
    ct_output_say(f->output, CT_OUTPUT_OUT, "1", 1);
    ct_output_say(f->output, CT_OUTPUT_ERR, "2\n", 2); /* knows where the other left off */
    ct_output_say(f->output, CT_OUTPUT_OUT, "3\n", 2);
    close_output(f, -1);
    ct_loop_end(&f->loop);
    close(both);
    char seen[16] = {0};
    assert_int_equal(read(f->out[0], seen, sizeof(seen)), 6);
    assert_string_equal(seen, "1\n2\n3\n");
    teardown(f);
}

static void test_log_file_gets_every_byte(void **state)
{
    (void)state;
    struct fixture *f = setup();
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "old", "before\n", 7);
    char *fresh = ct_tmpdir_path(dir, "fresh");
    mode_t mask = umask(022);
    int a = open_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_TAIL_ONLY, .log_path = path});
    int b = open_stream(f, (struct ct_output_stream_options){
                               .mode = CT_LINES_PLAIN, .prefix = "[1] ", .log_path = fresh});
    umask(mask);
    static const char bytes[] = "a\rb\0c\n\xff tail";
    for (int i = a; i <= b; i++) {
        assert_int_equal(write(f->child_fds[i], bytes, sizeof(bytes) - 1), sizeof(bytes) - 1);
        ct_output_stream_spawned(f->streams[i]);
    }
    settle(f, -1);
    finish_seen(f);
    static const char shown[] = "[1] a\rb\0c\n[1] \xff tail\n";
    assert_int_equal(f->seen.len, sizeof(shown) - 1);
    assert_memory_equal(ct_buf_bytes(&f->seen), shown, sizeof(shown) - 1);
    char text[64];
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 7 + sizeof(bytes) - 1);
    assert_memory_equal(text, "before\na\rb\0c\n\xff tail", 7 + sizeof(bytes) - 1);
    close(fd);
    struct stat st;
    assert_int_equal(stat(fresh, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
    free(path);
    free(fresh);
    ct_tmpdir_free(dir);
    teardown(f);
}

static void test_full_disk_is_said_once(void **state)
{
    (void)state;
    struct fixture *f = setup();
    int at = open_stream(f, (struct ct_output_stream_options){
                                .mode = CT_LINES_PLAIN, .prefix = "[0] ", .log_path = "/dev/full"});
    for (int i = 0; i < 3; i++) {
        write_text(f->child_fds[at], "line\n");
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    ct_output_stream_spawned(f->streams[at]);
    settle(f, -1);
    finish_seen(f);
    assert_int_equal(f->logged, 1);
    assert_non_null(strstr(f->log_line, "/dev/full"));
    assert_non_null(strstr(f->log_line, "No space left"));
    assert_string_equal(ct_buf_cstr(&f->seen), "[0] line\n[0] line\n[0] line\n");
    teardown(f);
}

static void test_unusable_log_path_is_named(void **state)
{
    (void)state;
    struct fixture *f = setup();
    struct ct_output_stream *stream = NULL;
    struct ct_err err = {0};
    int fd = -7;
    assert_int_equal(ct_output_stream_open(
                         f->output,
                         &(struct ct_output_stream_options){.to = CT_OUTPUT_OUT,
                                                            .mode = CT_LINES_PLAIN,
                                                            .prefix = "",
                                                            .log_path = "/no/such/dir/stdout.log"},
                         &stream, &fd, &err),
                     CT_ENOENT);
    assert_non_null(strstr(err.text, "/no/such/dir/stdout.log"));
    assert_true(stream == NULL && fd == -7);
    finish_seen(f);
    teardown(f);
}

static void test_inherited_sink_needs_no_pipe(void **state)
{
    (void)state;
    struct fixture *f = setup();
    int at =
        open_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_RAW, .inherit = true});
    assert_int_equal(f->child_fds[at], f->out[1]);
    ct_output_stream_spawned(f->streams[at]); /* must not close what is not ours */
    write_text(f->child_fds[at], "direct");
    settle(f, -1);
    finish_seen(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "direct");
    teardown(f);
}

static void test_blocked_sink_does_not_hang_a_bounded_end(void **state)
{
    (void)state;
    struct fixture *f = setup();
    static char much[CT_OUTPUT_HIGH];
    memset(much, 'm', sizeof(much));
    ct_output_say(f->output, CT_OUTPUT_OUT, much, sizeof(much));
    int at = open_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_TAIL_ONLY});
    ct_output_stream_spawned(f->streams[at]);
    settle(f, 20);
    close_output(f, 20);
    ct_loop_end(&f->loop);
    teardown(f);
}

static void test_closed_stdout(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    f->out[0] = f->out[1] = -1;
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    open_output(f, -1, f->err[1]);
    assert_false(ct_output_is_terminal(f->output, CT_OUTPUT_OUT));
    ct_output_say(f->output, CT_OUTPUT_OUT, "x\n", 2);
    close_output(f, -1);
    ct_loop_end(&f->loop);
    assert_int_equal(f->logged, 0);
    teardown(f);
}

static int open_and_close(void *data)
{
    struct fixture *f = data;
    ct_loop_begin(&f->loop);
    struct ct_output *output = NULL;
    struct ct_output_stream *stream = NULL;
    int fd;
    f->closed = false;
    int rc = ct_output_open(&f->loop, &(struct ct_output_options){.out_fd = f->out[1], .err_fd = 2},
                            &output, NULL);
    if (rc == 0) {
        rc = ct_output_stream_open(output,
                                   &(struct ct_output_stream_options){
                                       .to = CT_OUTPUT_OUT, .prefix = "", .log_path = "/dev/null"},
                                   &stream, &fd, NULL);
        ct_output_stream_free(stream);
        ct_output_close(output, -1, set_flag, &f->closed);
        ct_loop_run_until(&f->loop, &f->closed);
    }
    ct_loop_end(&f->loop);
    return rc;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    assert_true(ct_fault_sweep(open_and_close, f, 0) >= 3);
    teardown(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_never_tear),
        cmocka_unit_test(test_many_workers),
        cmocka_unit_test(test_blocked_reader_stops_the_workers),
        cmocka_unit_test(test_socket_takes_all_as_well),
        cmocka_unit_test(test_shared_descriptors_stay_blocking),
        cmocka_unit_test(test_reader_that_leaves_harms_nobody),
        cmocka_unit_test(test_held_pipe_does_not_hang_the_end),
        cmocka_unit_test(test_raw_passes_at_once),
        cmocka_unit_test(test_one_file_is_one_sink),
        cmocka_unit_test(test_log_file_gets_every_byte),
        cmocka_unit_test(test_full_disk_is_said_once),
        cmocka_unit_test(test_unusable_log_path_is_named),
        cmocka_unit_test(test_inherited_sink_needs_no_pipe),
        cmocka_unit_test(test_blocked_sink_does_not_hang_a_bounded_end),
        cmocka_unit_test(test_closed_stdout),
        cmocka_unit_test(test_out_of_memory),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("output_uv", tests, NULL, NULL);
}
