/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the output of a worker goes, and how a stream ends.
 */
#include "tests/lib/loop.h"
#include "tests/lib/output_fixture.h"
#include "tests/lib/tmpdir.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_held_pipe_does_not_hang_the_end(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    int at = fixture_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = "[5] "});
    int held = fcntl(f->child_fds[at], F_DUPFD_CLOEXEC, 3); /* the grandchild's */
    fixture_write(held, "whole\nlast words");
    ct_output_stream_spawned(f->streams[at]);
    fixture_read(f);
    fixture_drain(f, -1);
    fixture_finish(f);
    close(held);
    assert_string_equal(ct_buf_cstr(&f->seen), "[5] whole\n[5] last words\n");
    fixture_free(f);
}

static void test_raw_passes_at_once(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    int at = fixture_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_RAW});
    fixture_write(f->child_fds[at], "50%\r");
    uv_run(&f->loop, UV_RUN_ONCE);
    char now[16] = {0};
    assert_int_equal(read(f->out[0], now, sizeof(now)), 4);
    assert_string_equal(now, "50%\r");
    fixture_write(f->child_fds[at], "no newline");
    uv_run(&f->loop, UV_RUN_ONCE);
    ct_output_say(f->output, CT_OUTPUT_OUT, "report\n", 7);
    ct_output_stream_spawned(f->streams[at]);
    fixture_drain(f, -1);
    struct ct_buf tail = CT_BUF_INIT;
    assert_int_equal(ct_output_stream_tail(f->streams[at], "> ", &tail), 0);
    assert_string_equal(ct_buf_cstr(&tail), "> no newline\n");
    ct_buf_fini(&tail);
    fixture_finish(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "no newline\nreport\n");
    fixture_free(f);
}

static void test_whose_lines_are_the_last(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    int a = fixture_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = "[0] "});
    int b = fixture_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_PLAIN, .prefix = "[1] "});
    int hidden = fixture_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_TAIL_ONLY});
    fixture_write(f->child_fds[a], "1\n2\n");
    ct_output_stream_catch_up(f->streams[a]);
    fixture_write(f->child_fds[a], "3\n");
    ct_output_stream_catch_up(f->streams[a]);
    ct_output_say(f->output, CT_OUTPUT_OUT, "ctrun's own\n", 12);
    fixture_write(f->child_fds[hidden], "unseen\n");
    ct_output_stream_catch_up(f->streams[hidden]);
    assert_true(ct_output_stream_is_last(f->streams[a], 3));
    assert_false(ct_output_stream_is_last(f->streams[a], 4));
    assert_false(ct_output_stream_is_last(f->streams[b], 0));
    assert_false(ct_output_stream_is_last(f->streams[hidden], 0));
    fixture_write(f->child_fds[b], "x\n");
    ct_output_stream_catch_up(f->streams[b]);
    assert_false(ct_output_stream_is_last(f->streams[a], 3));
    fixture_write(f->child_fds[a], "4\n");
    ct_output_stream_catch_up(f->streams[a]);
    assert_true(ct_output_stream_is_last(f->streams[a], 1));
    assert_false(ct_output_stream_is_last(f->streams[a], 2));
    for (int i = 0; i <= hidden; i++) {
        ct_output_stream_spawned(f->streams[i]);
    }
    fixture_drain(f, -1);
    fixture_finish(f);
    fixture_free(f);
}

/* What a progress bar has left on the terminal is erased by whoever writes next. */
static void test_a_progress_bar_is_erased_by_the_next_writer(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(openpty(&f->out[0], &f->out[1], NULL, NULL, NULL), 0);
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    fixture_open(f, f->out[1], f->err[1]);
    assert_true(ct_output_is_terminal(f->output, CT_OUTPUT_OUT));
    assert_false(ct_output_is_terminal(f->output, CT_OUTPUT_ERR));
    int at = fixture_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_TERMINAL, .prefix = "[0] "});
    fixture_write(f->child_fds[at], "50%\rx");
    uv_run(&f->loop, UV_RUN_ONCE);
    ct_output_say(f->output, CT_OUTPUT_OUT, "report\n", 7);
    assert_false(fcntl(f->out[1], F_GETFL) & O_NONBLOCK);
    ct_output_stream_spawned(f->streams[at]);
    fixture_drain(f, -1);
    fixture_finish(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "[0] 50%\x1b[K\r\x1b[Kreport\r\n[0] x\x1b[K\r\n");
    fixture_free(f);
}

/* The live line gives way to all else, and never stands in a worker's line. */
static void test_the_live_line_gives_way(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(openpty(&f->out[0], &f->out[1], NULL, NULL, NULL), 0);
    f->err[0] = f->err[1] = -1;
    int both = fcntl(f->out[1], F_DUPFD_CLOEXEC, 3);
    fixture_open(f, f->out[1], both);
    assert_true(ct_output_can_live(f->output));
    int at = fixture_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_RAW});

    ct_output_live(f->output, "live 1");
    ct_output_live(f->output, "live 2");
    ct_output_say(f->output, CT_OUTPUT_OUT, "said\n", 5);
    ct_output_live(f->output, "it scrolls");
    fixture_write(f->child_fds[at], "no newline");
    uv_run(&f->loop, UV_RUN_ONCE);
    ct_output_live(f->output, "it scrolls");
    ct_output_live(f->output, "within a line");
    fixture_write(f->child_fds[at], "!\n");
    uv_run(&f->loop, UV_RUN_ONCE);
    ct_output_live(f->output, "it scrolls");
    ct_output_live(f->output, "live 3");
    ct_output_stream_spawned(f->streams[at]);
    fixture_drain(f, -1);
    close(both); /* the output has its own */
    fixture_finish(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "live 1\r\x1b[Jlive 2\r\x1b[Jsaid\r\n"
                                               "no newline!\r\nlive 3\r\x1b[J");
    fixture_free(f);
}

static void test_no_live_line_where_others_write_to_the_terminal(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(openpty(&f->out[0], &f->out[1], NULL, NULL, NULL), 0);
    assert_int_equal(pipe2(f->err, O_CLOEXEC), 0);
    fixture_open(f, f->out[1], f->err[1]); /* stderr is a pipe */
    assert_false(ct_output_can_live(f->output));
    ct_output_live(f->output, "live");
    fixture_close(f, -1);
    ct_loop_end(&f->loop);
    fixture_free(f);

    f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(openpty(&f->out[0], &f->out[1], NULL, NULL, NULL), 0);
    f->err[0] = f->err[1] = -1;
    int both = fcntl(f->out[1], F_DUPFD_CLOEXEC, 3);
    fixture_open(f, f->out[1], both);
    (void)fixture_stream(f,
                         (struct ct_output_stream_options){.mode = CT_LINES_RAW, .inherit = true});
    assert_false(ct_output_can_live(f->output)); /* a worker has the terminal itself */
    ct_output_live(f->output, "live");
    close(both); /* the output has its own */
    fixture_finish(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "");
    fixture_free(f);
}

static void test_one_file_is_one_sink(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    f->err[0] = f->err[1] = -1;
    int both = fcntl(f->out[1], F_DUPFD_CLOEXEC, 3);
    fixture_open(f, f->out[1], both);
    ct_output_say(f->output, CT_OUTPUT_OUT, "1", 1);
    ct_output_say(f->output, CT_OUTPUT_ERR, "2\n", 2); /* knows where the other left off */
    ct_output_say(f->output, CT_OUTPUT_OUT, "3\n", 2);
    fixture_close(f, -1);
    ct_loop_end(&f->loop);
    close(both);
    char seen[16] = {0};
    assert_int_equal(read(f->out[0], seen, sizeof(seen)), 6);
    assert_string_equal(seen, "1\n2\n3\n");
    fixture_free(f);
}

static void test_log_file_gets_every_byte(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_write(dir, "old", "before\n", 7);
    char *fresh = ct_tmpdir_path(dir, "fresh");
    mode_t mask = umask(022);
    int a = fixture_stream(
        f, (struct ct_output_stream_options){.mode = CT_LINES_TAIL_ONLY, .log_path = path});
    int b = fixture_stream(f, (struct ct_output_stream_options){
                                  .mode = CT_LINES_PLAIN, .prefix = "[1] ", .log_path = fresh});
    umask(mask);
    static const char bytes[] = "a\rb\0c\n\xff tail";
    for (int i = a; i <= b; i++) {
        assert_int_equal(write(f->child_fds[i], bytes, sizeof(bytes) - 1), sizeof(bytes) - 1);
        ct_output_stream_spawned(f->streams[i]);
    }
    fixture_drain(f, -1);
    fixture_finish(f);
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
    fixture_free(f);
}

static void test_full_disk_is_said_once(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    int at =
        fixture_stream(f, (struct ct_output_stream_options){
                              .mode = CT_LINES_PLAIN, .prefix = "[0] ", .log_path = "/dev/full"});
    for (int i = 0; i < 3; i++) {
        fixture_write(f->child_fds[at], "line\n");
        uv_run(&f->loop, UV_RUN_ONCE);
    }
    ct_output_stream_spawned(f->streams[at]);
    fixture_drain(f, -1);
    fixture_finish(f);
    assert_int_equal(f->logged, 1);
    assert_non_null(strstr(f->log_line, "/dev/full"));
    assert_non_null(strstr(f->log_line, "No space left"));
    assert_string_equal(ct_buf_cstr(&f->seen), "[0] line\n[0] line\n[0] line\n");
    fixture_free(f);
}

/* The limit of a file's size stands in for a full disk. */
static void limit_files(size_t size)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = size > 0 ? size : limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_a_file_goes_on_when_its_disk_has_room_again(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    char *dir = ct_tmpdir_new(), text[256] = "";
    char *path = ct_tmpdir_write(dir, "console", "", 0);
    int fd = open(path, O_RDWR | O_APPEND | O_CLOEXEC);
    assert_true(fd >= 0);
    f->out[0] = f->out[1] = f->err[0] = f->err[1] = -1;
    (void)signal(SIGXFSZ, SIG_IGN);
    fixture_open(f, fd, fd);
    limit_files(12);
    ct_output_say(f->output, CT_OUTPUT_OUT, "first\n", 6);
    ct_output_say(f->output, CT_OUTPUT_OUT, "second, torn\n", 13);
    ct_output_say(f->output, CT_OUTPUT_OUT, "lost\n", 5);
    limit_files(0);
    ct_output_say(f->output, CT_OUTPUT_OUT, "fourth\n", 7);
    ct_output_say(f->output, CT_OUTPUT_OUT, "fifth\n", 6);
    assert_int_equal(f->logged, 1);
    assert_non_null(strstr(f->log_line, "lost until there is room again"));
    fixture_finish(f);
    assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
    assert_string_equal(text, "first\nsecond\nctrun: output is missing here, because the disk was "
                              "full\nfourth\nfifth\n");
    close(fd);
    free(path);
    ct_tmpdir_free(dir);
    fixture_free(f);
}

static void test_unusable_log_path_is_named(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
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
    fixture_finish(f);
    fixture_free(f);
}

static void test_inherited_sink_needs_no_pipe(void **state)
{
    (void)state;
    struct fixture *f = fixture_new();
    int at =
        fixture_stream(f, (struct ct_output_stream_options){.mode = CT_LINES_RAW, .inherit = true});
    assert_int_equal(f->child_fds[at], f->out[1]);
    ct_output_stream_spawned(f->streams[at]); /* must not close what is not ours */
    fixture_write(f->child_fds[at], "direct");
    fixture_drain(f, -1);
    fixture_finish(f);
    assert_string_equal(ct_buf_cstr(&f->seen), "direct");
    fixture_free(f);
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
        ct_output_close(output, -1, fixture_set_flag, &f->closed);
        ct_loop_run_until(&f->loop, &f->closed);
    }
    ct_loop_end(&f->loop);
    return rc;
}

static void test_opening_survives_lack_of_memory(void **state)
{
    (void)state;
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(pipe2(f->out, O_CLOEXEC), 0);
    assert_true(ct_fault_sweep(open_and_close, f, 0) >= 3);
    fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_held_pipe_does_not_hang_the_end),
        cmocka_unit_test(test_raw_passes_at_once),
        cmocka_unit_test(test_whose_lines_are_the_last),
        cmocka_unit_test(test_a_progress_bar_is_erased_by_the_next_writer),
        cmocka_unit_test(test_the_live_line_gives_way),
        cmocka_unit_test(test_no_live_line_where_others_write_to_the_terminal),
        cmocka_unit_test(test_one_file_is_one_sink),
        cmocka_unit_test(test_log_file_gets_every_byte),
        cmocka_unit_test(test_full_disk_is_said_once),
        cmocka_unit_test(test_a_file_goes_on_when_its_disk_has_room_again),
        cmocka_unit_test(test_unusable_log_path_is_named),
        cmocka_unit_test(test_inherited_sink_needs_no_pipe),
        cmocka_unit_test(test_opening_survives_lack_of_memory),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("output_uv", tests, NULL, NULL);
}
