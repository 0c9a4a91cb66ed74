/* SPDX-License-Identifier: Apache-2.0
 *
 * A test process detaches a job for real: the job is a child that runs a function of the test.
 * Nothing that the job had open is left, so it is led by signals, and it answers by its exit code
 * and its files. cmocka's assertions must not be used in it.
 */
#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include "common/alloc.h"
#include "common/exit_code.h"
#include "launcher/detach/detach.h"
#include "launcher/detach/detached_list.h"
#include "launcher/detach/state_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDRESS "127.0.0.1:29500"
/* What a job ends with if it could not begin. */
#define NOT_BEGUN 99
#define TEXT_MAX 8192

struct scene {
    char *dir;
    char variable[512];
    char *env[2];
    char *command[3];
    struct ct_options options;
    struct ct_detach_spec spec;
    struct ct_detach detach;
    int root;     /* the folder of the jobs; -1 before the first one */
    int out, err; /* files */
    int exit_code;
    sigset_t awaited, before;
    int (*job)(struct scene *scene); /* runs in the job; returns its exit code */
    int spare_fd;                    /* something else that is open */
};

static int open_in(const char *dir, const char *name)
{
    char *path = ct_tmpdir_path(dir, name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    free(path);
    return fd;
}

static int setup(void **state)
{
    struct scene *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->dir = ct_tmpdir_new();
    (void)snprintf(s->variable, sizeof(s->variable), "XDG_STATE_HOME=%s/state", s->dir);
    s->env[0] = s->variable;
    s->command[0] = (char *)"train";
    s->command[1] = (char *)"--fast";
    s->options = (struct ct_options){.detach = true, .command = s->command};
    s->spec = (struct ct_detach_spec){
        .options = &s->options, .env = s->env, .host = "here", .run_id = "exp/1"};
    s->root = s->spare_fd = -1;
    s->out = open_in(s->dir, "out");
    s->err = open_in(s->dir, "err");
    /* A job awaits them with sigwait(), so they may come before it does. */
    sigemptyset(&s->awaited);
    sigaddset(&s->awaited, SIGHUP);
    sigaddset(&s->awaited, SIGINT);
    sigaddset(&s->awaited, SIGTERM);
    sigaddset(&s->awaited, SIGUSR1);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &s->awaited, &s->before), 0);
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &s->before, NULL), 0);
    (void)close(s->out);
    (void)close(s->err);
    if (s->root >= 0) {
        (void)close(s->root);
    }
    ct_tmpdir_free(s->dir);
    free(s);
    return 0;
}

/* In the job: returns the signal that comes. */
static int await_signal(const struct scene *s)
{
    int signo = 0;
    (void)sigwait(&s->awaited, &signo);
    return signo;
}

/* Detaches. Returns what ct_detach_begin() does; the job never returns. */
static int begin(struct scene *s, int (*job)(struct scene *scene), struct ct_err *err)
{
    const pid_t self = getpid();
    s->job = job;
    s->exit_code = -1;
    int rc = ct_detach_begin(&s->detach, &s->spec, s->out, s->err, &s->exit_code, err);
    if (getpid() != self) {
        _exit(rc == 0 ? s->job(s) : NOT_BEGUN);
    }
    if (s->root < 0) {
        char *path = ct_tmpdir_path(s->dir, "state/ctrun");
        s->root = ct_state_folder_open(path, false, NULL);
        free(path);
    }
    return rc;
}

/* Detaches a job that ends before its workers run. Returns the exit code. */
static int begin_and_end(struct scene *s, int (*job)(struct scene *scene))
{
    struct ct_err err = {0};
    assert_int_equal(begin(s, job, &err), CT_DETACH_LEFT);
    return s->exit_code;
}

static const char *read_all(int fd, char text[TEXT_MAX])
{
    ssize_t n = pread(fd, text, TEXT_MAX - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    return text;
}

/* Reads the record of the only job. */
static struct ct_detached_entry find_job(const struct scene *s)
{
    struct ct_detached_entry *list = NULL;
    assert_int_equal(ct_detached_list_read(s->root, NULL, "here", &list, NULL), 1);
    const struct ct_detached_entry entry = list[0];
    ct_free(list);
    return entry;
}

/* Counts the folders of jobs, also those without a record. */
static int count_folders(const struct scene *s)
{
    int count = 0;
    DIR *dir = fdopendir(openat(s->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(dir);
    return count;
}

static int count_open_files(void)
{
    int count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* Sends a signal to a job that runs, and waits for its end. Returns its exit code. */
static int end_job(pid_t pid, int signo)
{
    int status = 0;
    assert_int_equal(kill(pid, signo), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* ---- a job that runs ------------------------------------------------------------------------- */

static int run_until_signal(struct scene *s)
{
    ct_detach_started(&s->detach, ADDRESS, "");
    int signo = await_signal(s);
    ct_detach_end(&s->detach, 7);
    ct_detach_end(&s->detach, 8); /* too late */
    return signo;
}

static void without_the_option_nothing_happens(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    s->options.detach = false;
    assert_int_equal(begin(s, NULL, &err), 0);
    ct_detach_started(&s->detach, ADDRESS, "");
    ct_detach_started(NULL, ADDRESS, "");
    ct_detach_end(&s->detach, 0);
    assert_int_equal(s->root, CT_ENOENT);
    assert_int_equal(s->exit_code, -1);
}

static void the_user_is_told_where_the_job_is(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    char said[TEXT_MAX], want[TEXT_MAX];
    sigset_t mask;
    assert_int_equal(begin(s, run_until_signal, &err), CT_DETACH_LEFT);
    assert_int_equal(s->exit_code, 0);
    struct ct_detached_entry entry = find_job(s);
    const long pid = (long)entry.job.pid;
    (void)snprintf(want, sizeof(want),
                   "ctrun: job %s runs on here without this terminal, as process %ld\n"
                   "ctrun: its output: ctrun --attach %s, or %s/state/ctrun/%s/console.log\n"
                   "ctrun: its status: ctrun-stat " ADDRESS "\n"
                   "ctrun: to end it: kill %ld\n",
                   entry.job.id, pid, entry.job.id, s->dir, entry.job.id, pid);
    assert_string_equal(read_all(s->out, said), want);
    assert_string_equal(read_all(s->err, said), "");
    /* A signal is for this process again. */
    assert_int_equal(pthread_sigmask(SIG_SETMASK, NULL, &mask), 0);
    assert_false(sigismember(&mask, SIGQUIT));
    assert_int_equal(end_job(entry.job.pid, SIGTERM), SIGTERM);
}

static void its_folder_says_what_becomes_of_it(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    assert_int_equal(begin(s, run_until_signal, &err), CT_DETACH_LEFT);
    struct ct_detached_entry entry = find_job(s);
    assert_int_equal(entry.state, CT_DETACHED_RUNS);
    assert_string_equal(entry.job.run_id, "exp/1");
    assert_string_equal(entry.job.host, "here");
    assert_string_equal(entry.job.address, ADDRESS);
    assert_string_equal(entry.job.program, "train --fast");
    assert_int_equal(strlen(entry.job.id), 8); /* the run id was not given */
    (void)end_job(entry.job.pid, SIGUSR1);
    entry = find_job(s);
    assert_int_equal(entry.state, CT_DETACHED_ENDED);
    assert_int_equal(entry.exit_code, 7);
}

static int move_store(struct scene *s)
{
    ct_detach_started(&s->detach, ADDRESS, "");
    (void)await_signal(s);
    ct_detach_started(&s->detach, "[::1]:29501", "");
    (void)kill(getppid(), SIGUSR1);
    (void)await_signal(s);
    return 0;
}

static void the_record_follows_the_store(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    sigset_t moved;
    assert_int_equal(begin(s, move_store, &err), CT_DETACH_LEFT);
    const pid_t pid = find_job(s).job.pid;
    assert_string_equal(find_job(s).job.address, ADDRESS);
    assert_int_equal(kill(pid, SIGTERM), 0);
    sigemptyset(&moved);
    sigaddset(&moved, SIGUSR1);
    assert_int_equal(sigwaitinfo(&moved, NULL), SIGUSR1);
    assert_string_equal(find_job(s).job.address, "[::1]:29501");
    assert_int_equal(end_job(pid, SIGTERM), 0);
}

static int look_around(struct scene *s)
{
    struct stat in, null, out, err, console;
    char path[1024];
    (void)snprintf(path, sizeof(path), "%s/state/ctrun/%s/console.log", s->dir, s->detach.job.id);
    /* Three are its own: its folder, its file `exit`, and a pipe to its parent. */
    bool stands_alone = getsid(0) == getpid() && count_open_files() == STDERR_FILENO + 1 + 3 &&
                        fcntl(s->spare_fd, F_GETFD) < 0;
    bool is_quiet = fstat(STDIN_FILENO, &in) == 0 && stat("/dev/null", &null) == 0 &&
                    in.st_rdev == null.st_rdev && fstat(STDOUT_FILENO, &out) == 0 &&
                    fstat(STDERR_FILENO, &err) == 0 && stat(path, &console) == 0 &&
                    out.st_ino == console.st_ino && err.st_ino == console.st_ino;
    sigset_t mask; /* what its parent passes on, it must hear */
    bool hears = pthread_sigmask(SIG_SETMASK, NULL, &mask) == 0 && !sigismember(&mask, SIGQUIT);
    return stands_alone && is_quiet && hears ? 0 : 1;
}

static void the_job_has_nothing_of_the_terminal(void **state)
{
    struct scene *s = *state;
    s->spare_fd = fcntl(s->err, F_DUPFD, 200);
    assert_true(s->spare_fd >= 200);
    assert_int_equal(begin_and_end(s, look_around), 0);
    (void)close(s->spare_fd);
}

static void its_id_is_told_even_if_its_lines_cannot_be_written(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    char said[TEXT_MAX], want[TEXT_MAX];
    const int out = s->out;
    s->out = -1;
    assert_int_equal(begin(s, run_until_signal, &err), CT_DETACH_LEFT);
    s->out = out;
    assert_int_equal(s->exit_code, 0);
    struct ct_detached_entry entry = find_job(s);
    (void)snprintf(want, sizeof(want),
                   "ctrun: cannot write to standard output: Bad file descriptor; job %s runs all "
                   "the same, as process %ld: ctrun --attach %s shows it\n",
                   entry.job.id, (long)entry.job.pid, entry.job.id);
    assert_string_equal(read_all(s->err, said), want);
    (void)end_job(entry.job.pid, SIGTERM);
}

static int write_much(struct scene *s)
{
    static char lines[1 << 18]; /* more than a pipe holds */
    memset(lines, '\n', sizeof(lines));
    if (write(STDERR_FILENO, lines, sizeof(lines)) != (ssize_t)sizeof(lines)) {
        return 1;
    }
    ct_detach_started(&s->detach, ADDRESS, "");
    return await_signal(s);
}

/* In a process of its own: for each piece that is shown, the job writes two. Ends with 0 when
 * nothing is shown any more, and with 1 if that does not come. */
static void write_faster_than_is_shown(const struct scene *s, int shown)
{
    char path[1024], bytes[4096] = {0};
    (void)snprintf(path, sizeof(path), "%s/state/ctrun/much/console.log", s->dir);
    for (int i = 0; i < 10000; i++) {
        ssize_t n = read(shown, bytes, sizeof(bytes));
        if (n <= 0) {
            _exit(0);
        }
        int console = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        if (console < 0 || write(console, bytes, (size_t)n) != n ||
            write(console, bytes, (size_t)n) != n) {
            _exit(2);
        }
        (void)close(console);
    }
    _exit(1);
}

static void a_job_that_writes_faster_than_is_shown_is_left(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    const int file = s->err;
    int shown[2], status = -1;
    assert_int_equal(pipe2(shown, O_CLOEXEC), 0);
    pid_t writer = fork();
    if (writer == 0) {
        (void)close(shown[1]);
        write_faster_than_is_shown(s, shown[0]);
    }
    (void)close(shown[0]);
    (void)signal(SIGPIPE, SIG_IGN);
    s->options.agent_job = "much";
    s->err = shown[1];
    assert_int_equal(begin(s, write_much, &err), CT_DETACH_LEFT);
    s->err = file;
    (void)close(shown[1]);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_int_equal(end_job(find_job(s).job.pid, SIGTERM), SIGTERM);
}

/* ---- a job that does not run ----------------------------------------------------------------- */

static int say_why_not(struct scene *s)
{
    (void)dprintf(STDERR_FILENO, "ctrun: no such program\n");
    ct_detach_end(&s->detach, 3);
    return 3;
}

static int end_silently(struct scene *s)
{
    (void)s;
    return 4;
}

static int end_well(struct scene *s)
{
    (void)s;
    return 0;
}

static int be_killed(struct scene *s)
{
    (void)s;
    (void)raise(SIGKILL);
    return 0;
}

static void a_job_that_does_not_start_leaves_its_reason_and_no_folder(void **state)
{
    struct scene *s = *state;
    char said[TEXT_MAX];
    assert_int_equal(begin_and_end(s, say_why_not), 3);
    assert_string_equal(read_all(s->err, said), "ctrun: no such program\n");
    assert_string_equal(read_all(s->out, said), "");
    assert_int_equal(count_folders(s), 0);
}

static void an_end_without_a_word_is_told(void **state)
{
    struct scene *s = *state;
    char said[TEXT_MAX], want[TEXT_MAX];
    assert_int_equal(begin_and_end(s, end_well), 0);
    assert_string_equal(read_all(s->err, said), "");
    assert_int_equal(begin_and_end(s, end_silently), 4);
    (void)snprintf(want, sizeof(want),
                   "ctrun: the job ended with code 4 before the workers ran, and could not write "
                   "why: is the disk of %s/state/ctrun full?\n",
                   s->dir);
    assert_string_equal(read_all(s->err, said), want);
    assert_int_equal(count_folders(s), 0);
}

static void a_job_that_is_killed_is_told(void **state)
{
    struct scene *s = *state;
    char said[TEXT_MAX];
    assert_int_equal(begin_and_end(s, be_killed), 128 + SIGKILL);
    (void)read_all(s->err, said);
    assert_memory_equal(said, "ctrun: the job's ctrun (process ", 32);
    assert_non_null(strstr(said, ") was killed by SIGKILL before the workers ran\n"));
    assert_int_equal(count_folders(s), 0);
}

/* ---- what is passed on ----------------------------------------------------------------------- */

static int get_back_what_the_parent_gets(struct scene *s)
{
    (void)kill(getppid(), SIGINT);
    return await_signal(s);
}

static void signals_are_passed_on_until_the_job_runs(void **state)
{
    struct scene *s = *state;
    assert_int_equal(begin_and_end(s, get_back_what_the_parent_gets), SIGINT);
}

static int return_signal(struct scene *s)
{
    int died_with = 0;
    (void)prctl(PR_GET_PDEATHSIG, &died_with);
    int signo = await_signal(s);
    return died_with == SIGHUP ? signo : 1;
}

/* Detaches as a ctrun does which another one has started and tells these words. */
static void begin_with_input(struct scene *s, const char *words, bool ends,
                             int (*job)(struct scene *scene))
{
    int ends_of[2];
    int own = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends_of), 0);
    assert_int_equal(write(ends_of[1], words, strlen(words)), strlen(words));
    assert_int_equal(dup2(ends_of[0], STDIN_FILENO), STDIN_FILENO);
    (void)close(ends_of[0]);
    if (ends) {
        (void)close(ends_of[1]);
    }
    s->options.agent_stdin = true;
    struct ct_err err = {0};
    assert_int_equal(begin(s, job, &err), CT_DETACH_LEFT);
    if (!ends) {
        (void)close(ends_of[1]);
    }
    if (own >= 0) {
        assert_int_equal(dup2(own, STDIN_FILENO), STDIN_FILENO);
        (void)close(own);
    }
}

static void words_of_another_ctrun_are_signals(void **state)
{
    static const struct {
        const char *words;
        bool ends;
        int signo;
    } rows[] = {
        {"signal 15\n", false, SIGTERM},
        {"signal 10\n", false, SIGUSR1},
        {"signal 0\nsignal 99\nsignal\nSIGNAL 15\nsignal 15 \n\nsignal 10\n", false, SIGUSR1},
        {"signal 15signal 15signal 15signal 15signal 15signal 15signal 15\nsignal 10\n", false,
         SIGUSR1},
        {"", true, SIGHUP},
        {"signal 15", true, SIGHUP}, /* it may be cut off */
    };
    struct scene *s = *state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        begin_with_input(s, rows[i].words, rows[i].ends, return_signal);
        assert_int_equal(s->exit_code, rows[i].signo);
    }
}

static int die_of_the_end(struct scene *s)
{
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    (void)signal(SIGHUP, SIG_DFL);
    (void)sigprocmask(SIG_UNBLOCK, &hangup, NULL);
    (void)await_signal(s);
    return 1;
}

static void an_end_that_another_ctrun_wants_is_not_told(void **state)
{
    struct scene *s = *state;
    char said[TEXT_MAX];
    begin_with_input(s, "", true, die_of_the_end);
    assert_int_equal(s->exit_code, 128 + SIGHUP);
    assert_string_equal(read_all(s->err, said), "");
    assert_int_equal(count_folders(s), 0);
    begin_with_input(s, "", true, return_signal);
    assert_string_equal(read_all(s->err, said), "");
    begin_with_input(s, "", true, be_killed);
    assert_non_null(strstr(read_all(s->err, said), " was killed by SIGKILL before"));
}

static int outlive_parent(struct scene *s)
{
    int died_with = -1;
    ct_detach_started(&s->detach, ADDRESS, "");
    (void)prctl(PR_GET_PDEATHSIG, &died_with);
    (void)await_signal(s);
    return died_with;
}

static void another_ctrun_is_told_in_one_line(void **state)
{
    struct scene *s = *state;
    char said[TEXT_MAX], want[TEXT_MAX];
    s->options.agent_job = "exp-1-0a";
    begin_with_input(s, "", false, outlive_parent);
    struct ct_detached_entry entry = find_job(s);
    assert_string_equal(entry.job.id, "exp-1-0a");
    (void)snprintf(want, sizeof(want),
                   "ctrun: here: process %ld" CT_DETACH_OUTPUT_IN
                   "%s/state/ctrun/exp-1-0a/console.log there\n",
                   (long)entry.job.pid, s->dir);
    assert_string_equal(read_all(s->out, said), want);
    assert_int_equal(end_job(entry.job.pid, SIGTERM), 0); /* it runs, and needs no parent */
}

/* ---- names and folders ----------------------------------------------------------------------- */

static int return_if_named(struct scene *s)
{
    const char *id = s->detach.job.id;
    return strlen(id) == 14 && strncmp(id, "exp_1-", 6) == 0        ? 11
           : strcmp(id, "12345678") == 0                            ? 12
           : strlen(id) == 8 && strspn(id, "0123456789abcdef") == 8 ? 13
                                                                    : 1;
}

static void the_run_id_is_found_in_the_id(void **state)
{
    struct scene *s = *state;
    s->spec.run_id_given = true;
    assert_int_equal(begin_and_end(s, return_if_named), 11);
    s->spec = (struct ct_detach_spec){.options = &s->options,
                                      .env = s->env,
                                      .host = "here",
                                      .run_id = "12345678-1234",
                                      .run_id_random = true};
    assert_int_equal(begin_and_end(s, return_if_named), 12);
    /* Another job has that name. */
    (void)close(ct_state_folder_make_job(s->root, "12345678", NULL));
    assert_int_equal(begin_and_end(s, return_if_named), 13);
    assert_int_equal(count_folders(s), 1);
}

static void an_id_of_another_ctrun_is_checked(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    s->options.agent_job = "../up";
    assert_int_equal(begin(s, NULL, &err), CT_EINVAL);
    assert_string_equal(err.text, "--agent-job: '../up' is no id of a job");
    (void)close(ct_state_folder_make_job(s->root, "taken", NULL));
    s->options.agent_job = "taken";
    assert_int_equal(begin(s, NULL, &err), CT_EBUSY);
    assert_int_equal(count_folders(s), 1);
    assert_false(s->detach.begun);
}

static void a_folder_that_cannot_be_used_is_named(void **state)
{
    struct scene *s = *state;
    struct ct_err err = {0};
    char want[TEXT_MAX];
    free(ct_tmpdir_write(s->dir, "state", "x", 1));
    assert_true(begin(s, NULL, &err) < 0);
    (void)snprintf(want, sizeof(want), "%s/state/ctrun", s->dir);
    assert_non_null(strstr(err.text, want));
    assert_non_null(strstr(err.text, "set XDG_STATE_HOME to a folder where you may write"));
    s->env[0] = (char *)"HOME=";
    assert_int_equal(begin(s, NULL, &err), CT_ENOENT);
    struct ct_detached_job note = {.id = "a", .via = "gpu-1"};
    assert_int_equal(ct_detach_note(s->env, "here", &note, &err), CT_ENOENT);
}

/* Fewer descriptors than the job needs, then one more, and so on. */
static void descriptors_may_run_out(void **state)
{
    struct scene *s = *state;
    struct rlimit limit, low;
    int failed = 0, code = -1;
    assert_int_equal(begin_and_end(s, end_well), 0); /* makes the folder of the jobs */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const int open_before = count_open_files();
    for (int fds = 3; fds < 100 && code != 0; fds++) {
        struct ct_err err = {0};
        low = (struct rlimit){(rlim_t)fds, limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        int rc = begin(s, end_well, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        code = rc == CT_DETACH_LEFT ? s->exit_code : -1;
        failed += code != 0;
        assert_true(rc == CT_DETACH_LEFT ? code == 0 || code == NOT_BEGUN : err.text[0] != '\0');
        assert_int_equal(count_open_files(), open_before);
        assert_int_equal(count_folders(s), 0);
    }
    assert_int_equal(code, 0);
    assert_true(failed > 5);
}

static int note(void *data)
{
    struct scene *s = data;
    struct ct_detached_job job = {.id = "noted", .via = "gpu-1"};
    struct ct_err err = {0};
    int rc = ct_detach_note(s->env, "here", &job, &err);
    char *path = ct_tmpdir_path(s->dir, "state/ctrun");
    int root = ct_state_folder_open(path, false, NULL);
    int folder = ct_state_folder_open_job(root, "noted", NULL);
    assert_true((rc == 0) == (folder >= 0)); /* a folder without a record would stay for days */
    if (folder >= 0) {
        (void)close(folder);
        ct_state_folder_remove_job(root, "noted");
    }
    (void)close(root);
    free(path);
    return rc;
}

static void a_job_that_cannot_be_noted_leaves_no_folder(void **state)
{
    struct rlimit limit, low;
    assert_true(ct_fault_sweep(note, *state, 0) > 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    low = (struct rlimit){0, limit.rlim_max};
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    int rc = note(*state);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(rc, CT_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_the_option_nothing_happens, setup, teardown),
        cmocka_unit_test_setup_teardown(the_user_is_told_where_the_job_is, setup, teardown),
        cmocka_unit_test_setup_teardown(its_folder_says_what_becomes_of_it, setup, teardown),
        cmocka_unit_test_setup_teardown(the_record_follows_the_store, setup, teardown),
        cmocka_unit_test_setup_teardown(the_job_has_nothing_of_the_terminal, setup, teardown),
        cmocka_unit_test_setup_teardown(its_id_is_told_even_if_its_lines_cannot_be_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_that_writes_faster_than_is_shown_is_left, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_job_that_does_not_start_leaves_its_reason_and_no_folder,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(an_end_without_a_word_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_is_killed_is_told, setup, teardown),
        cmocka_unit_test_setup_teardown(signals_are_passed_on_until_the_job_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(an_end_that_another_ctrun_wants_is_not_told, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(words_of_another_ctrun_are_signals, setup, teardown),
        cmocka_unit_test_setup_teardown(another_ctrun_is_told_in_one_line, setup, teardown),
        cmocka_unit_test_setup_teardown(the_run_id_is_found_in_the_id, setup, teardown),
        cmocka_unit_test_setup_teardown(an_id_of_another_ctrun_is_checked, setup, teardown),
        cmocka_unit_test_setup_teardown(a_folder_that_cannot_be_used_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(a_job_that_cannot_be_noted_leaves_no_folder, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(descriptors_may_run_out, setup, teardown),
    };
    return cmocka_run_group_tests_name("detach", tests, NULL, NULL);
}
