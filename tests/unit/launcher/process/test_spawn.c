/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks what a process is started with (arguments, environment, descriptors, signals, CPUs,
 * limits), and that a failure before its program runs comes back with the name of the step.
 */
#include "launcher/process/spawn.h"

#include "tests/lib/ct_test.h"
#include "tests/lib/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *const no_env[] = {NULL};

/* Runs `sh -c script` with stdout in a file and returns what it wrote (free it); *status gets the
 * wait status. Between spawn and wait `child` is given to `during`. */
static char *run_sh(const char *script, struct ct_spawn_options options, int *status,
                    void (*during)(const struct ct_child *child))
{
    char *dir = ct_tmpdir_new();
    char *path = ct_tmpdir_path(dir, "out");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)script, NULL};
    options.path = "/bin/sh";
    options.argv = argv;
    options.envp = options.envp != NULL ? options.envp : no_env;
    options.stdio[0] = -1;
    options.stdio[1] = fd;
    options.stdio[2] = 2;

    struct ct_child child;
    struct ct_err err = {0};
    int rc = ct_spawn(&options, &child, &err);
    if (rc != 0) {
        fail_msg("%s", err.text);
    }
    if (during != NULL) {
        during(&child);
    }
    struct pollfd ended = {.fd = child.pidfd, .events = POLLIN};
    assert_int_equal(poll(&ended, 1, 20000), 1);
    assert_int_equal(waitpid(child.pid, status, 0), child.pid);
    close(child.pidfd);

    char *text = calloc(1, 65536);
    assert_non_null(text);
    assert_true(pread(fd, text, 65535, 0) >= 0);
    close(fd);
    free(path);
    ct_tmpdir_free(dir);
    return text;
}

static void test_argv_environment_and_exit_code(void **state)
{
    (void)state;
    char *envp[] = {(char *)"A=1", (char *)"B=two words", NULL};
    int status;
    char *out = run_sh("echo \"$A,$B,$PATH_NOT_THERE\"; exit 7",
                       (struct ct_spawn_options){.envp = envp}, &status, NULL);
    assert_string_equal(out, "1,two words,\n");
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    free(out);
}

static void test_signals_are_reset(void **state)
{
    (void)state;
    signal(SIGTERM, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigset_t some;
    sigset_t before;
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGINT);
    sigprocmask(SIG_BLOCK, &some, &before);
    int status;
    /* A shell that starts with a signal ignored keeps it so and shows it here. */
    char *out = run_sh("grep -E '^Sig(Blk|Ign)' /proc/self/status", (struct ct_spawn_options){0},
                       &status, NULL);
    sigset_t now;
    sigprocmask(SIG_SETMASK, &before, &now);
    struct sigaction ours;
    sigaction(SIGPIPE, NULL, &ours);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);

    assert_string_equal(out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
    assert_true(sigismember(&now, SIGUSR1) == 1 && sigismember(&now, SIGTERM) == 0);
    assert_true(ours.sa_handler == SIG_IGN); /* the child's reset is not ours */
    free(out);
}

static void test_only_stdio_is_open(void **state)
{
    (void)state;
    int extra = open("/dev/null", O_RDONLY); /* without CLOEXEC, as an inherited one */
    int high = fcntl(extra, F_DUPFD, 900);
    int status;
    char *out = run_sh("i=0; while [ $i -lt 1000 ]; do"
                       " [ -e /proc/$$/fd/$i ] && echo -n \"$i \"; i=$((i+1)); done",
                       (struct ct_spawn_options){0}, &status, NULL);
    assert_string_equal(out, "0 1 2 ");
    assert_true(fcntl(extra, F_GETFD) == 0 && fcntl(high, F_GETFD) == 0);
    close(extra);
    close(high);
    free(out);
}

static void expect_session(const struct ct_child *child)
{
    assert_int_equal(getsid(child->pid), child->pid);
    assert_int_equal(getpgid(child->pid), child->pid);
    assert_true(fcntl(child->pidfd, F_GETFD) & FD_CLOEXEC);
}

static void test_leads_its_own_session(void **state)
{
    (void)state;
    int status;
    char *out = run_sh("sleep 0.05", (struct ct_spawn_options){0}, &status, expect_session);
    free(out);
}

static void test_a_child_gets_the_limit_of_files(void **state)
{
    (void)state;
    struct rlimit low = {.rlim_cur = 77, .rlim_max = 99};
    int status;
    char *out =
        run_sh("ulimit -Sn; ulimit -Hn", (struct ct_spawn_options){.nofile = &low}, &status, NULL);
    assert_string_equal(out, "77\n99\n");
    free(out);
}

/* stdout and stderr exchanged, both coming from the numbers of the other. */
static void test_stdio_may_cross(void **state)
{
    (void)state;
    int a[2];
    int b[2];
    assert_int_equal(pipe2(a, O_CLOEXEC), 0);
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    int saved_out = fcntl(1, F_DUPFD_CLOEXEC, 10);
    int saved_err = fcntl(2, F_DUPFD_CLOEXEC, 10);
    dup2(a[1], 1);
    dup2(b[1], 2);
    char *argv[] = {(char *)"sh", (char *)"-c", (char *)"echo out; echo err >&2", NULL};
    struct ct_child child;
    int rc = ct_spawn(
        &(struct ct_spawn_options){
            .path = "/bin/sh", .argv = argv, .envp = no_env, .stdio = {-1, 2, 1}},
        &child, NULL);
    dup2(saved_out, 1);
    dup2(saved_err, 2);
    close(saved_out);
    close(saved_err);
    assert_int_equal(rc, 0);
    char text[16] = {0};
    assert_int_equal(read(a[0], text, sizeof(text)), 4);
    assert_string_equal(text, "err\n");
    assert_int_equal(read(b[0], text, sizeof(text)), 4);
    assert_string_equal(text, "out\n");
    waitpid(child.pid, NULL, 0);
    close(child.pidfd);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
    }
}

static void expect_failure(const char *path, int code, int sys, const char *part)
{
    char *argv[] = {(char *)path, NULL};
    struct ct_spawn_options options = {
        .path = path, .argv = argv, .envp = no_env, .stdio = {-1, -1, -1}};
    struct ct_child child = {.pid = 42, .pidfd = 43};
    struct ct_err err = {0};
    assert_int_equal(ct_spawn(&options, &child, &err), code);
    assert_int_equal(err.sys, sys);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, part));
    assert_true(child.pid == 42 && child.pidfd == 43);
    assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD); /* no zombie stays */
}

static void test_exec_errors_come_back(void **state)
{
    (void)state;
    char *dir = ct_tmpdir_new();
    char *missing = ct_tmpdir_path(dir, "missing");
    char *plain = ct_tmpdir_write(dir, "plain", "text\n", 5);
    char *script = ct_tmpdir_write(dir, "script", "#!/no/such/interpreter\n", 23);
    char *data = ct_tmpdir_write(dir, "data", "\1\2\3\4", 4);
    chmod(plain, 0644);
    chmod(script, 0755);
    chmod(data, 0755);

    expect_failure(missing, CT_ENOENT, ENOENT, "No such file");
    expect_failure(plain, CT_EPERM, EACCES, "Permission denied");
    expect_failure(dir, CT_EPERM, EACCES, "cannot execute");
    expect_failure(script, CT_ENOENT, ENOENT, "interpreter");
    expect_failure(data, CT_EFORMAT, ENOEXEC, "#!");
    assert_int_equal(ct_spawn_exit_code(ENOENT), 127);
    assert_int_equal(ct_spawn_exit_code(EACCES), 126);
    assert_int_equal(ct_spawn_exit_code(ENOEXEC), 126);

    free(missing);
    free(plain);
    free(script);
    free(data);
    ct_tmpdir_free(dir);
}

static void test_the_child_runs_on_the_cpus_that_are_meant(void **state)
{
    struct ct_cpus allowed, one = {{0}};
    char want[32];
    int status;
    (void)state;
    ct_cpus_allowed(&allowed);
    int cpu = ct_cpus_next(&allowed, 0);
    if (cpu < 0) {
        skip();
    }
    ct_cpus_add(&one, cpu);
    char *out = run_sh("grep Cpus_allowed_list /proc/self/status",
                       (struct ct_spawn_options){.cpus = &one}, &status, NULL);
    (void)snprintf(want, sizeof(want), "Cpus_allowed_list:\t%d\n", cpu);
    assert_string_equal(out, want);
    free(out);
    struct ct_cpus after; /* ours are as they were */
    ct_cpus_allowed(&after);
    assert_memory_equal(&after, &allowed, sizeof(after));
}

/* Each step of the child before it executes the program. */
static void test_a_step_that_fails_before_exec_is_named(void **state)
{
    const struct rlimit upside_down = {.rlim_cur = 9, .rlim_max = 8};
    const struct ct_cpus no_cpu = {{0}};
    static const struct ct_spawn_options base = {.path = "/bin/true", .stdio = {-1, -1, -1}};
    struct ct_spawn_options cases[3] = {base, base, base};
    static const char *const says[3] = {
        "cannot set the limit of open files of /bin/true: ", "cannot set the CPUs of /bin/true: ",
        "cannot set stdin, stdout and stderr of /bin/true: "};
    char *argv[] = {(char *)"true", NULL};
    (void)state;
    cases[0].nofile = &upside_down;
    cases[1].cpus = &no_cpu;
    cases[2].stdio[1] = 99999; /* not open */
    for (int i = 0; i < 3; i++) {
        struct ct_child child = {.pid = 42, .pidfd = 43};
        struct ct_err err = {0};
        cases[i].argv = argv;
        cases[i].envp = no_env;
        assert_true(ct_spawn(&cases[i], &child, &err) < 0);
        assert_memory_equal(err.text, says[i], strlen(says[i]));
        assert_true(child.pid == 42 && child.pidfd == 43);
        assert_true(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    }
}

static void test_a_cgroup_that_cannot_be_used_is_left_out(void **state)
{
    char *argv[] = {(char *)"true", NULL};
    struct ct_child child;
    int status;
    (void)state;
    int no_cgroup = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const struct ct_spawn_options options = {
        .path = "/bin/true", .argv = argv, .envp = no_env, .stdio = {-1, -1, -1}};
    assert_int_equal(ct_spawn_into(&options, no_cgroup, &child, NULL), 0);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_int_equal(status, 0);
    close(child.pidfd);
    close(no_cgroup);
}

/* A parent that is killed takes its child with it. */
static void test_dies_with_its_parent(void **state)
{
    (void)state;
    int told[2];
    int life[2]; /* held open by the grandchild alone */
    assert_int_equal(pipe2(told, O_CLOEXEC), 0);
    assert_int_equal(pipe2(life, O_CLOEXEC), 0);
    pid_t parent = fork();
    if (parent == 0) {
        char *argv[] = {(char *)"sleep", (char *)"60", NULL};
        struct ct_child child;
        int rc = ct_spawn(
            &(struct ct_spawn_options){
                .path = "/bin/sleep", .argv = argv, .envp = no_env, .stdio = {-1, life[1], -1}},
            &child, NULL);
        close(life[1]);
        (void)!write(told[1], &rc, sizeof(rc));
        pause();
    }
    close(life[1]);
    int rc = -1;
    assert_int_equal(read(told[0], &rc, sizeof(rc)), sizeof(rc));
    assert_int_equal(rc, 0);
    kill(parent, SIGKILL);
    waitpid(parent, NULL, 0);
    struct pollfd end = {.fd = life[0], .events = POLLIN};
    assert_int_equal(poll(&end, 1, 20000), 1);
    assert_true(end.revents & POLLHUP);
    close(life[0]);
    close(told[0]);
    close(told[1]);
}

static void check_passed(int reader, int passed)
{
    char text[64] = "";
    int status;
    char *out = run_sh("echo from the child >&3; ls /proc/self/fd | wc -l",
                       (struct ct_spawn_options){.passed = passed}, &status, NULL);
    assert_int_equal(status, 0);
    assert_string_equal(out, "5\n"); /* 0 to 3, and the folder */
    assert_int_equal(read(reader, text, sizeof(text)), 15);
    assert_memory_equal(text, "from the child\n", 15);
    free(out);
}

static void test_one_more_descriptor_becomes_3(void **state)
{
    (void)state;
    int ends[2];
    int kept = fcntl(3, F_DUPFD_CLOEXEC, 50); /* -1 = it is free */
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    int reader = fcntl(ends[0], F_DUPFD_CLOEXEC, 50);
    int writer = fcntl(ends[1], F_DUPFD_CLOEXEC, 50);
    close(ends[0]);
    close(ends[1]);
    check_passed(reader, writer);
    assert_int_equal(dup3(writer, 3, O_CLOEXEC), 3); /* it may have this number already */
    check_passed(reader, 3);
    close(3);
    if (kept >= 0) {
        assert_int_equal(dup2(kept, 3), 3);
        close(kept);
    }
    close(reader);
    close(writer);
}

static void test_a_child_can_have_idle_priority(void **state)
{
    (void)state;
    int status;
    char *out = run_sh("chrt -p $$; ionice -p $$",
                       (struct ct_spawn_options){.idle_cpu = true, .idle_io = true}, &status, NULL);
    assert_non_null(strstr(out, "SCHED_IDLE"));
    assert_non_null(strstr(out, "idle\n"));
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_argv_environment_and_exit_code),
        cmocka_unit_test(test_signals_are_reset),
        cmocka_unit_test(test_only_stdio_is_open),
        cmocka_unit_test(test_leads_its_own_session),
        cmocka_unit_test(test_a_child_gets_the_limit_of_files),
        cmocka_unit_test(test_stdio_may_cross),
        cmocka_unit_test(test_exec_errors_come_back),
        cmocka_unit_test(test_the_child_runs_on_the_cpus_that_are_meant),
        cmocka_unit_test(test_a_step_that_fails_before_exec_is_named),
        cmocka_unit_test(test_a_cgroup_that_cannot_be_used_is_left_out),
        cmocka_unit_test(test_dies_with_its_parent),
        cmocka_unit_test(test_one_more_descriptor_becomes_3),
        cmocka_unit_test(test_a_child_can_have_idle_priority),
    };
    return cmocka_run_group_tests_name("spawn", tests, NULL, NULL);
}
