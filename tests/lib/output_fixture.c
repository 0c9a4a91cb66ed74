/* SPDX-License-Identifier: Apache-2.0
 *
 * Each writer is a forked process that writes to the child's end of a stream. The test reads
 * ctrun's stdout by a poll handle, so it decides how fast the reader is.
 */
#include "tests/lib/output_fixture.h"

#include "tests/lib/loop.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

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

void fixture_open(struct fixture *f, int out_fd, int err_fd)
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

struct fixture *fixture_new(void)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    fixture_open(f, f->out[1], f->err[1]);
    return f;
}

void fixture_read(struct fixture *f)
{
    assert_int_equal(uv_poll_init(&f->loop, &f->reader, f->out[0]), 0);
    f->reader.data = f;
    assert_int_equal(uv_poll_start(&f->reader, UV_READABLE, on_readable), 0);
}

void fixture_set_flag(void *data)
{
    *(bool *)data = true;
}

/* A writer whose end was awaited has the number 0. */
static void check_writer(struct fixture *f, int at, int status)
{
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    f->writers[at] = 0;
}

static void on_writers_timer(uv_timer_t *timer)
{
    struct fixture *f = timer->data;
    bool all = true;
    for (int i = 0; i < f->count; i++) {
        int status;
        if (f->writers[i] > 0 && waitpid(f->writers[i], &status, WNOHANG) > 0) {
            check_writer(f, i, status);
        }
        all = all && f->writers[i] == 0;
    }
    f->resolved = all;
}

void fixture_drain(struct fixture *f, int64_t timeout_ms)
{
    f->resolved = false;
    assert_int_equal(uv_timer_init(&f->loop, &f->timer), 0);
    f->timer.data = f;
    assert_int_equal(uv_timer_start(&f->timer, on_writers_timer, 0, 1), 0);
    ct_loop_run_until(&f->loop, &f->resolved);
    uv_close((uv_handle_t *)&f->timer, NULL);
    f->resolved = false;
    ct_output_drain(f->output, timeout_ms, fixture_set_flag, &f->resolved);
    assert_false(f->resolved);
    ct_loop_run_until(&f->loop, &f->resolved);
}

void fixture_close(struct fixture *f, int64_t timeout_ms)
{
    for (int i = 0; i < f->count; i++) {
        ct_output_stream_free(f->streams[i]);
        if (f->writers[i] > 0) {
            int status;
            assert_int_equal(waitpid(f->writers[i], &status, 0), f->writers[i]);
            check_writer(f, i, status);
        }
    }
    ct_output_close(f->output, timeout_ms, fixture_set_flag, &f->closed);
    ct_loop_run_until(&f->loop, &f->closed);
}

void fixture_finish(struct fixture *f)
{
    fixture_close(f, -1);
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

void fixture_free(struct fixture *f)
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

int fixture_stream(struct fixture *f, struct ct_output_stream_options options)
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

void fixture_write(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

void fixture_writer(struct fixture *f, int at, int lines, volatile size_t *progress)
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

int fixture_check_lines(const struct ct_buf *seen, int workers)
{
    int next[STREAMS_MAX] = {0};
    int lines = 0;
    const char *p = (const char *)ct_buf_bytes(seen);
    const char *end = p + seen->len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        assert_non_null(newline);
        /* Not by sscanf(), which looks for the end of the whole text each time. */
        char *rest;
        assert_int_equal(*p, '[');
        long rank = strtol(p + 1, &rest, 10);
        assert_memory_equal(rest, "] ", 2);
        long number = strtol(rest + 2, &rest, 10);
        assert_in_range(rank, 0, workers - 1);
        assert_int_equal(number, next[rank]++);
        size_t pad = ((size_t)number * 7919 + (size_t)rank * 31) % 2500;
        assert_int_equal(*rest, ' ');
        assert_int_equal((size_t)(newline - rest), 1 + pad);
        for (const char *c = rest + 1; c < newline; c++) {
            assert_int_equal(*c, 'a' + rank % 26);
        }
        lines++;
        p = newline + 1;
    }
    return lines;
}

void fixture_ranks(struct fixture *f, int workers, int lines)
{
    for (int rank = 0; rank < workers; rank++) {
        char prefix[CT_LINES_PREFIX_MAX];
        ct_lines_prefix(NULL, rank, false, prefix);
        int at = fixture_stream(
            f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = prefix});
        fixture_writer(f, at, lines, NULL);
    }
}
