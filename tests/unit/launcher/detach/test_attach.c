/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows jobs that the test has made: a child of the test process stands for the job's ctrun.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/exit_code.h"
#include "launcher/detach/attach.h"
#include "launcher/detach/detached_list.h"
#include "launcher/detach/state_folder.h"
#include "launcher/process/proctree.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TEXT_MAX (1 << 18)
/* More than the kernel's largest number. */
#define NOBODY (1 << 22)
#define LINE "0123456789abcde\n"

struct scene {
    char *dir, *path; /* of the folder of the jobs */
    char variable[512];
    char *env[2];
    int root;
    int out, err; /* files */
    char shown[TEXT_MAX], told[TEXT_MAX];
    struct ct_detached_job via;
    pid_t pid; /* of the job that runs */
    sigset_t before;
};

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    sigset_t stop;
    assert_non_null(s);
    (void)signal(SIGPIPE, SIG_IGN); /* as in main() */
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &stop, &s->before), 0);
    s->dir = ct_tmpdir_new();
    s->path = ct_tmpdir_path(s->dir, "state/ctrun");
    s->root = ct_state_folder_open(s->path, true, NULL);
    assert_true(s->root >= 0);
    (void)snprintf(s->variable, sizeof(s->variable), "XDG_STATE_HOME=%s/state", s->dir);
    s->env[0] = s->variable;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    const struct timespec now = {0};
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    (void)sigtimedwait(&stop, NULL, &now); /* ct_attach() leaves it pending */
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &s->before, NULL), 0);
    (void)close(s->root);
    free(s->path);
    ct_tmpdir_free(s->dir);
    free(s);
    return 0;
}

/* Fills in a job of this machine. */
static struct ct_detached_job job_of(pid_t pid)
{
    struct ct_detached_here here;
    struct ct_proctree_entry process = {0};
    struct ct_detached_job job = {.pid = pid, .begun_s = 1700000000, .program = "train"};
    (void)ct_proctree_read_pid(pid, &process);
    ct_detached_list_here("here", &here);
    job.start = process.start;
    (void)snprintf(job.host, sizeof(job.host), "here");
    (void)snprintf(job.place, sizeof(job.place), "%s", here.place);
    return job;
}

static void write_end(int folder, int exit_code)
{
    char end[CT_DETACHED_EXIT_SIZE + 1];
    ct_detached_job_exit_text(exit_code, 1700000100, end);
    assert_int_equal(ct_state_folder_write(folder, CT_STATE_EXIT, end, strlen(end), NULL), 0);
}

/* Makes the folder of a job. An `exit_code` below 0 means that it has not ended. */
static void make(const struct scene *s, const char *id, const struct ct_detached_job *job,
                 const char *console, int exit_code)
{
    struct ct_buf text = CT_BUF_INIT;
    int folder = ct_state_folder_make_job(s->root, id, NULL);
    assert_true(folder >= 0);
    assert_int_equal(ct_detached_job_print(job, &text), 0);
    assert_int_equal(
        ct_state_folder_write(folder, CT_STATE_JOB, ct_buf_cstr(&text), text.len, NULL), 0);
    if (console != NULL) {
        assert_int_equal(
            ct_state_folder_write(folder, CT_STATE_CONSOLE, console, strlen(console), NULL), 0);
    }
    write_end(folder, exit_code);
    ct_buf_fini(&text);
    (void)close(folder);
}

static void make_ended(const struct scene *s, const char *id, const char *console, int exit_code)
{
    const struct ct_detached_job job = job_of(NOBODY);
    make(s, id, &job, console, exit_code);
}

static int open_new(const struct scene *s, const char *name)
{
    char *path = ct_tmpdir_path(s->dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    free(path);
    return fd;
}

static void read_back(int fd, char text[TEXT_MAX])
{
    ssize_t n = pread(fd, text, TEXT_MAX - 1, 0);
    text[n > 0 ? n : 0] = '\0';
    (void)close(fd);
}

static int count_open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Shows a job on `out`, or on a file of its own if that is -1. Returns the exit code. */
static int attach_on(struct scene *s, const char *word, int out)
{
    int file = open_new(s, "out"), err = open_new(s, "err");
    const int open_before = count_open_files();
    int code = ct_attach(word, s->env, "here", out >= 0 ? out : file, err, &s->via);
    assert_int_equal(count_open_files(), open_before);
    read_back(file, s->shown);
    read_back(err, s->told);
    return code;
}

static int attach(struct scene *s, const char *word)
{
    return attach_on(s, word, -1);
}

/* ---- after the end --------------------------------------------------------------------------- */

static void what_a_job_has_written_and_its_code_are_shown(void **state)
{
    struct scene *s = *state;
    char want[4096];
    make_ended(s, "a1", "first\nlast", 7);
    assert_int_equal(setenv("TZ", "UTC", 1), 0);
    assert_int_equal(attach(s, "a1"), 7);
    assert_string_equal(s->shown, "first\nlast");
    (void)snprintf(want, sizeof(want),
                   "ctrun: job a1 ran on here as process %d\n"
                   "ctrun: the last lines of %s/a1/console.log:\n"
                   "ctrun: job a1 has ended with code 7 at 2023-11-14 22:15:00\n",
                   NOBODY, s->path);
    assert_string_equal(s->told, want);
}

static void a_job_that_has_written_nothing_is_said_to(void **state)
{
    struct scene *s = *state;
    char want[4096];
    make_ended(s, "a1", "", 0);
    assert_int_equal(attach(s, "a1"), 0);
    (void)snprintf(want, sizeof(want), "ctrun: nothing has been written to %s/a1/console.log\n",
                   s->path);
    assert_non_null(strstr(s->told, want));
    assert_null(strstr(s->told, "the last lines"));
}

static void of_a_long_console_whole_lines_of_the_end_are_shown(void **state)
{
    struct scene *s = *state;
    static char text[70001];
    for (size_t i = 0; i + sizeof(LINE) - 1 < sizeof(text); i += sizeof(LINE) - 1) {
        memcpy(text + i, LINE, sizeof(LINE) - 1);
    }
    make_ended(s, "lines", text, 0);
    assert_int_equal(attach(s, "lines"), 0);
    assert_int_equal(strlen(s->shown), 50 * (sizeof(LINE) - 1));
    /* The first line that is read is cut, and is left out. */
    memset(text, 'x', sizeof(text) - 1);
    text[4464 + 100] = '\n';
    make_ended(s, "cut", text, 0);
    assert_int_equal(attach(s, "cut"), 0);
    assert_int_equal(strspn(s->shown, "x"), 70000 - 4565);
    text[4464 + 100] = 'x';
    make_ended(s, "one", text, 0);
    assert_int_equal(attach(s, "one"), 0);
    assert_int_equal(strlen(s->shown), 65536);
}

static void a_job_that_was_killed_has_no_code(void **state)
{
    struct scene *s = *state;
    make_ended(s, "a1", "last\n", -1);
    assert_int_equal(attach(s, "a1"), CT_EXIT_NODE_LOST);
    assert_string_equal(s->shown, "last\n");
    assert_non_null(strstr(s->told, "ctrun: job a1 has ended without an exit code: its ctrun on "
                                    "here was killed, or the machine was restarted\n"));
}

static void a_job_that_others_may_go_on_with_has_not_ended(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job job = job_of(NOBODY);
    (void)snprintf(job.others, sizeof(job.others), "10.9.1.[2-3]");
    (void)snprintf(job.word, sizeof(job.word), "a1");
    make(s, "a1-0", &job, "last\n", -1);
    assert_int_equal(attach(s, "a1"), CT_EXIT_SETUP);
    assert_null(strstr(s->told, "has ended"));
    assert_non_null(strstr(s->told, "may go on with it: ctrun --attach a1 on one of 10.9.1.[2-3] "
                                    "shows it"));
    (void)snprintf(job.word, sizeof(job.word), "a 1; ls");
    make(s, "a2", &job, "last\n", -1);
    assert_int_equal(attach(s, "a2"), CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, "ctrun --attach on one of"));
}

/* ---- while it runs --------------------------------------------------------------------------- */

/* In the job: waits until this much was shown. */
static void await_shown(const struct scene *s, off_t size)
{
    struct stat st;
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/out", s->dir);
    for (int i = 0; i < 2000 && (stat(path, &st) != 0 || st.st_size < size); i++) {
        (void)poll(NULL, 0, 10);
    }
}

static void append(const struct scene *s, int flags, const char *text)
{
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/run-1/console.log", s->path);
    int fd = open(path, O_WRONLY | O_CLOEXEC | flags);
    if (write(fd, text, strlen(text)) != (ssize_t)strlen(text)) {
        _exit(1);
    }
    (void)close(fd);
}

/* Starts a job that runs `play` once it can be shown. */
static void begin_job(struct scene *s, const char *console, void (*play)(const struct scene *s))
{
    int ready[2];
    char go;
    (void)close(open_new(s, "out")); /* nothing is shown yet */
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    s->pid = fork();
    if (s->pid == 0) {
        (void)close(ready[1]);
        if (read(ready[0], &go, 1) == 0) { /* its end */
            play(s);
        }
        _exit(0);
    }
    struct ct_detached_job job = job_of(s->pid);
    (void)snprintf(job.address, sizeof(job.address), "127.0.0.1:29500");
    make(s, "run-1", &job, console, -1);
    (void)close(ready[0]);
    (void)close(ready[1]);
}

static void end_job(struct scene *s)
{
    int status = -1;
    assert_int_equal(waitpid(s->pid, &status, 0), s->pid);
    assert_true(status == 0 || WIFSIGNALED(status));
}

static void write_and_end(const struct scene *s)
{
    await_shown(s, 4);
    append(s, O_APPEND, "new\n");
    await_shown(s, 8);
    append(s, O_TRUNC, "re\n"); /* somebody has emptied it */
    await_shown(s, 11);
    append(s, O_APPEND, "end\n");
    char end[CT_DETACHED_EXIT_SIZE + 1], path[1024];
    ct_detached_job_exit_text(5, 1700000100, end);
    (void)snprintf(path, sizeof(path), "%s/run-1/exit", s->path);
    int fd = open(path, O_WRONLY | O_CLOEXEC); /* it stays the same file */
    if (write(fd, end, CT_DETACHED_EXIT_SIZE) != CT_DETACHED_EXIT_SIZE) {
        _exit(1);
    }
    (void)close(fd);
}

static void a_job_is_followed_to_its_end(void **state)
{
    struct scene *s = *state;
    char want[1024];
    begin_job(s, "old\n", write_and_end);
    assert_int_equal(attach(s, NULL), 5);
    end_job(s);
    assert_string_equal(s->shown, "old\nnew\nre\nend\n");
    (void)snprintf(want, sizeof(want),
                   "ctrun: job run-1 runs on here; Ctrl-C leaves it alone, kill %d ends it, and "
                   "its status is ctrun-stat 127.0.0.1:29500\n",
                   (int)s->pid);
    assert_memory_equal(s->told, want, strlen(want));
    assert_non_null(strstr(s->told, "ctrun: job run-1 has ended with code 5 at "));
}

static void interrupt(const struct scene *s)
{
    await_shown(s, 4);
    (void)kill(getppid(), SIGINT);
    (void)pause();
}

static void ctrl_c_leaves_the_job_alone(void **state)
{
    struct scene *s = *state;
    begin_job(s, "old\n", interrupt);
    assert_int_equal(attach(s, "run"), 128 + SIGINT);
    assert_string_equal(s->shown, "old\n");
    assert_non_null(
        strstr(s->told, "ctrun: the job goes on; ctrun --attach run-1 shows it again\n"));
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    end_job(s);
}

static void run_on(const struct scene *s)
{
    (void)s;
    (void)pause();
}

static void a_reader_that_leaves_needs_no_word(void **state)
{
    struct scene *s = *state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    (void)close(ends[0]);
    make_ended(s, "a1", "last\n", 7);
    assert_int_equal(attach_on(s, "a1", ends[1]), 128 + SIGPIPE);
    begin_job(s, "", run_on); /* there is nothing to write, and yet it leaves */
    assert_int_equal(attach_on(s, "run-1", ends[1]), 128 + SIGPIPE);
    assert_null(strstr(s->told, "cannot write"));
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    end_job(s);
    (void)close(ends[1]);
}

static void write_more(const struct scene *s)
{
    append(s, O_APPEND, "new\n");
    (void)pause();
}

static void output_that_cannot_be_written_is_told(void **state)
{
    struct scene *s = *state;
    static const char why[] = "ctrun: cannot write to standard output: No space left on device; "
                              "ctrun --attach run-1 shows the job again\n";
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    assert_true(full >= 0);
    begin_job(s, "", write_more);
    assert_int_equal(attach_on(s, "run-1", full), CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, why));
    assert_int_equal(kill(s->pid, SIGKILL), 0);
    end_job(s);
    assert_int_equal(attach_on(s, "run-1", full), CT_EXIT_SETUP); /* what it has written before */
    assert_non_null(strstr(s->told, why));
    (void)close(full);
}

/* ---- which job ------------------------------------------------------------------------------- */

static void without_a_job_a_list_tells_which_there_are(void **state)
{
    struct scene *s = *state;
    assert_int_equal(attach(s, NULL), CT_EXIT_USAGE);
    assert_string_equal(s->told,
                        "ctrun: --attach: no detached job of yours runs on here (start one "
                        "with ctrun --detach)\n");
    make_ended(s, "a1", "", 7);
    assert_int_equal(attach(s, "b"), CT_EXIT_USAGE);
    assert_string_equal(s->told, "ctrun: --attach b: no detached job of yours on here has this id "
                                 "or address; there are\n  a1  ended with 7  train\n");
    assert_string_equal(s->shown, "");
}

static void without_a_folder_there_is_no_job(void **state)
{
    struct scene *s = *state;
    char want[2048];
    (void)snprintf(s->variable, sizeof(s->variable), "XDG_STATE_HOME=%s/none", s->dir);
    assert_int_equal(attach(s, "b\n"), CT_EXIT_USAGE);
    (void)snprintf(want, sizeof(want),
                   "ctrun: --attach b?: no detached job of yours is known on here, and there is no "
                   "folder %s/none/ctrun (XDG_STATE_HOME): start one with ctrun --detach\n",
                   s->dir);
    assert_string_equal(s->told, want);
    assert_int_equal(attach(s, NULL), CT_EXIT_USAGE);
    assert_memory_equal(s->told, "ctrun: --attach: no detached job", 32);
}

static void a_job_of_another_place_is_refused_with_the_way_there(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job job = job_of(NOBODY);
    (void)snprintf(job.host, sizeof(job.host), "gpu-1");
    (void)snprintf(job.place, sizeof(job.place), "boot/pid:[1]");
    make(s, "other", &job, NULL, -1);
    assert_int_equal(attach(s, "other"), CT_EXIT_SETUP);
    assert_string_equal(s->told, "ctrun: job other runs on gpu-1 and not on here: ssh gpu-1 ctrun "
                                 "--attach other\n");
    job = job_of(NOBODY);
    (void)snprintf(strchr(job.place, '/'), 16, "/pid:[1]");
    make(s, "boxed", &job, NULL, -1);
    assert_int_equal(attach(s, "boxed"), CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, "but in another container (PID namespace), with the host name "
                                    "here: run ctrun --attach boxed there\n"));
    struct ct_detached_here here;
    ct_detached_list_here("here", &here);
    if (here.machine[0] != '\0') {
        (void)snprintf(job.place, sizeof(job.place), "boot/pid:[1]");
        (void)snprintf(job.machine, sizeof(job.machine), "ffffffffffffffff");
        make(s, "namesake", &job, NULL, -1);
        assert_int_equal(attach(s, "namesake"), CT_EXIT_SETUP);
        assert_non_null(strstr(s->told, "on another machine that is called here, too: run"));
    }
}

static void a_job_that_was_started_from_here_is_given(void **state)
{
    struct scene *s = *state;
    struct ct_detached_job job = job_of(NOBODY);
    (void)snprintf(job.via, sizeof(job.via), "gpu-1");
    (void)snprintf(job.agent, sizeof(job.agent), "ssh -p 22");
    make(s, "a1", &job, NULL, -1);
    assert_int_equal(attach(s, NULL), CT_ATTACH_VIA);
    assert_string_equal(s->via.id, "a1");
    assert_string_equal(s->via.agent, "ssh -p 22");
    assert_string_equal(s->told, "");
}

/* ---- failures -------------------------------------------------------------------------------- */

static void what_cannot_be_opened_is_named(void **state)
{
    struct scene *s = *state;
    make_ended(s, "a1", NULL, 7);
    assert_int_equal(attach(s, "a1"), CT_EXIT_SETUP);
    assert_string_equal(s->told,
                        "ctrun: job a1: cannot open its console.log: No such file or directory\n");
    int folder = ct_state_folder_open_job(s->root, "a1", NULL);
    assert_int_equal(symlinkat(CT_STATE_JOB, folder, CT_STATE_CONSOLE), 0);
    (void)close(folder);
    assert_int_equal(attach(s, "a1"), CT_EXIT_SETUP);
    assert_memory_equal(s->told, "ctrun: job a1: cannot open its console.log: ", 44);
    assert_int_equal(chmod(s->path, 0755), 0);
    assert_int_equal(attach(s, "a1"), CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, "is open to other users: chmod 700 it"));
    s->env[0] = (char *)"HOME=";
    assert_int_equal(attach(s, "a1"), CT_EXIT_SETUP);
    assert_non_null(strstr(s->told, "there is no folder for detached jobs: set HOME"));
}

static void memory_may_run_out(void **state)
{
    struct scene *s = *state;
    int code = -1, failed = 0;
    make_ended(s, "a1", "last\n", 7);
    for (int i = 0; i < 100 && code != 7; i++) {
        ct_fault_begin(i);
        code = attach(s, "a1");
        bool hit = ct_fault_hit() != 0;
        assert_int_equal(ct_fault_end(), 0);
        assert_true(code == 7 || code == CT_EXIT_SETUP);
        failed += hit;
        if (code == 7) { /* without memory for the past, all of it is new */
            assert_string_equal(s->shown, "last\n");
        }
    }
    assert_int_equal(code, 7);
    assert_true(failed > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_a_job_has_written_and_its_code_are_shown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_that_has_written_nothing_is_said_to, setup, teardown),
        cmocka_unit_test_setup_teardown(of_a_long_console_whole_lines_of_the_end_are_shown, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_that_was_killed_has_no_code, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_others_may_go_on_with_has_not_ended, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_is_followed_to_its_end, setup, teardown),
        cmocka_unit_test_setup_teardown(ctrl_c_leaves_the_job_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reader_that_leaves_needs_no_word, setup, teardown),
        cmocka_unit_test_setup_teardown(output_that_cannot_be_written_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_job_a_list_tells_which_there_are, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(without_a_folder_there_is_no_job, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_of_another_place_is_refused_with_the_way_there, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_that_was_started_from_here_is_given, setup, teardown),
        cmocka_unit_test_setup_teardown(what_cannot_be_opened_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(memory_may_run_out, setup, teardown),
    };
    return cmocka_run_group_tests_name("attach", tests, NULL, NULL);
}
