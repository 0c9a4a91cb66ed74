/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on their way to readers that are slow, stand still, leave, or were never there.
 */
#include "common/file.h"
#include "tests/lib/loop.h"
#include "tests/lib/output_fixture.h"
#include "tests/lib/tmpdir.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_lines_never_tear(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    fixture_ranks(f, 4, 500);
    f->gulp = 3001; /* a slow reader: the sink is blocked nearly always */
    fixture_read(f);
    fixture_drain(f, -1);
    fixture_finish(f);
    assert_int_equal(fixture_check_lines(&f->seen, 4), 4 * 500);
    assert_int_equal(f->logged, 0);
    fixture_free(f);
}

static void test_lines_of_many_workers_stay_whole(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    fixture_ranks(f, 256, 3);
    fixture_read(f);
    fixture_drain(f, -1);
    fixture_finish(f);
    assert_int_equal(fixture_check_lines(&f->seen, 256), 256 * 3);
    fixture_free(f);
}

static void on_alarm(uv_timer_t *timer)
{
    struct fixture *f = timer->data;
    f->alarmed = true;
}

static void test_blocked_reader_stops_the_workers(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    volatile size_t *progress =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(progress != MAP_FAILED);
    int at = fixture_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = "[0] "});
    fixture_writer(f, at, 4000, progress); /* about 5 MB */
    uv_timer_t timer;
    uv_timer_init(&f->loop, &timer);
    timer.data = f;
    uv_timer_start(&timer, on_alarm, 300, 0);
    ct_loop_run_until(&f->loop, &f->alarmed);
    uv_close((uv_handle_t *)&timer, NULL);
    assert_true(*progress < CT_OUTPUT_HIGH + 4 * 65536 + 65536 / 4);
    fixture_read(f); /* and now nothing is missing */
    fixture_drain(f, -1);
    fixture_finish(f);
    assert_int_equal(fixture_check_lines(&f->seen, 1), 4000);
    munmap((void *)(uintptr_t)progress, 4096);
    fixture_free(f);
}

/* Lines that begin with `prefix`. */
static int lines_of(struct ct_buf *text, const char *prefix)
{
    int count = 0;
    for (const char *p = ct_buf_cstr(text); *p != '\0'; p++) {
        count += strncmp(p, prefix, strlen(prefix)) == 0;
        p = strchr(p, '\n');
        assert_non_null(p);
    }
    return count;
}

/* Nobody reads, and yet the worker ends; its file is whole, its neighbour's lines are all there,
 * and what is missing is said in its place. */
static void test_lines_are_dropped_where_that_is_wanted(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "stdout.log");
    const struct ct_output_stream_options loud = {.mode = CT_LINES_PLAIN,
                                                  .prefix = "[0] ",
                                                  .log_path = path,
                                                  .rank = 70,
                                                  .slow = CT_SLOW_OUTPUT_DROP};
    const struct ct_output_stream_options quiet = {
        .mode = CT_LINES_PLAIN, .prefix = "[1] ", .rank = 71, .slow = CT_SLOW_OUTPUT_DROP};
    int at = fixture_stream(f, loud);
    fixture_writer(f, at, 8000, NULL);
    for (int status = 0; waitpid(f->writers[at], &status, WNOHANG) == 0;) {
        uv_run(&f->loop, UV_RUN_NOWAIT);
    }
    f->writers[at] = 0;
    at = fixture_stream(f, quiet);
    fixture_writer(f, at, 20, NULL);
    fixture_read(f);
    fixture_drain(f, -1);
    fixture_finish(f);

    struct ct_buf file = CT_BUF_INIT;
    assert_int_equal(ct_file_read(path, 1 << 26, &file, NULL), 0);
    const char *said = strstr(ct_buf_cstr(&f->seen), "ctrun: ");
    int shown = lines_of(&f->seen, "[0] "), dropped = 0, unit = 0;
    assert_non_null(said);
    assert_int_equal(sscanf(said, "ctrun: %d,%d lines of rank 70 were dropped", &unit, &dropped),
                     2);
    dropped += unit * 1000;
    assert_in_range(shown, 1, 7999);
    assert_int_equal(shown + dropped, 8000);
    assert_int_equal(lines_of(&f->seen, "[1] "), 20);
    assert_int_equal(lines_of(&file, ""), 8000);
    assert_null(strstr(said + 1, "ctrun: "));
    ct_buf_fini(&file);
    free(path);
    ct_tmpdir_free(dir);
    fixture_free(f);
}

static void test_socket_takes_all_as_well(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, f->out), 0);
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    fixture_open(f, f->out[1], f->err[1]);
    fixture_ranks(f, 2, 300);
    f->gulp = 20000;
    fixture_read(f);
    fixture_drain(f, -1);
    assert_false(fcntl(f->out[1], F_GETFL) & O_NONBLOCK);
    fixture_finish(f);
    assert_int_equal(fixture_check_lines(&f->seen, 2), 600);
    fixture_free(f);
}

static void test_shared_descriptors_stay_blocking(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    ct_output_say(f->output, CT_OUTPUT_OUT, "text\n", 5);
    assert_false(fcntl(f->out[1], F_GETFL) & O_NONBLOCK);
    assert_false(fcntl(f->err[1], F_GETFL) & O_NONBLOCK);
    fixture_finish(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "text\n");
    fixture_free(f);
}

static void test_reader_that_leaves_harms_nobody(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    fixture_ranks(f, 2, 500);
    fixture_read(f);
    f->gulp = 100;
    uv_run(&f->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&f->reader, NULL);
    f->reader.loop = NULL;
    uv_run(&f->loop, UV_RUN_NOWAIT);
    close(f->out[0]);
    f->out[0] = -1;
    fixture_drain(f, -1); /* the writers come to their end */
    fixture_finish(f);
    assert_int_equal(f->logged, 1);
    assert_non_null(strstr(f->log_line, "stdout: Broken pipe"));
    char said[16] = {0};
    assert_int_equal(read(f->err[0], said, sizeof(said)), 7);
    assert_string_equal(said, "logged\n");
    fixture_free(f);
}

static void test_blocked_sink_does_not_hang_a_bounded_end(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    static char much[CT_OUTPUT_HIGH];
    memset(much, 'm', sizeof(much));
    ct_output_say(f->output, CT_OUTPUT_OUT, much, sizeof(much));
    int at = fixture_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_TAIL_ONLY});
    ct_output_stream_spawned(f->streams[at]);
    fixture_drain(f, 20);
    fixture_close(f, 20);
    ct_loop_end(&f->loop);
    fixture_free(f);
}

static void test_a_closed_stdout_harms_nothing(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    f->out[0] = f->out[1] = -1;
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    fixture_open(f, -1, f->err[1]);
    assert_false(ct_output_is_terminal(f->output, CT_OUTPUT_OUT));
    ct_output_say(f->output, CT_OUTPUT_OUT, "x\n", 2);
    fixture_close(f, -1);
    ct_loop_end(&f->loop);
    assert_int_equal(f->logged, 0);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_never_tear),
        cmocka_unit_test(test_lines_of_many_workers_stay_whole),
        cmocka_unit_test(test_blocked_reader_stops_the_workers),
        cmocka_unit_test(test_lines_are_dropped_where_that_is_wanted),
        cmocka_unit_test(test_socket_takes_all_as_well),
        cmocka_unit_test(test_shared_descriptors_stay_blocking),
        cmocka_unit_test(test_reader_that_leaves_harms_nobody),
        cmocka_unit_test(test_blocked_sink_does_not_hang_a_bounded_end),
        cmocka_unit_test(test_a_closed_stdout_harms_nothing),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("output_flow_uv", tests, NULL, NULL);
}
