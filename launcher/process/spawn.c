/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything between clone and exec (child_*) runs in the caller's memory, while the calling thread
 * is suspended. So it only makes async-signal-safe calls, allocates nothing, and changes nothing
 * except `struct job`.
 *
 * glibc's clone() is used because it switches stacks on every architecture. Only clone3() can start
 * a child in another cgroup. A child that moved there by itself would wait for all processors, up
 * to 15 ms, so clone3() is called where a cgroup is wanted, in the way of vfork(): on the caller's
 * stack. Without CLONE_SIGHAND the child has a copy of the signal handlers, so resetting them does
 * not change those of ctrun.
 */
#include "launcher/process/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the child needs is a few frames of libc wrappers plus, with lazy binding, the dynamic
 * linker saving all vector registers (about 3 KiB with AVX-512). A guard page lies below. */
#define STACK_SIZE (64 * 1024)

/* Without close_range() (before Linux 5.9) descriptors are closed one by one, and a limit of a
 * billion, as containers have it, would take minutes. */
#define CLOSE_MAX 65536

struct job {
    const struct ct_spawn_options *options;
    pid_t parent;
    const char *step; /* what the child was doing when it failed */
    int error;        /* errno of that; 0 = it did not fail */
};

/* Notes what failed. Returns the child's exit status. */
static int child_fail(struct job *job, const char *step)
{
    job->step = step;
    job->error = errno;
    return 127;
}

static void child_reset_signals(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    for (int sig = 1; sig < NSIG; sig++) {
        (void)sigaction(sig, &action, NULL); /* fails for KILL, STOP and libc's own two */
    }
}

static bool child_set_stdio(const int stdio[3])
{
    int from[3];
    /* Copied above 2 first, or a dup2() below would overwrite a source, or keep CLOEXEC on one that
     * is in its place already. */
    for (int i = 0; i < 3; i++) {
        int fd = stdio[i] >= 0 ? stdio[i] : open("/dev/null", O_RDWR | O_CLOEXEC);
        from[i] = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
        if (from[i] < 0) {
            return false;
        }
    }
    for (int i = 0; i < 3; i++) {
        if (dup2(from[i], i) < 0) {
            return false;
        }
    }
    return true;
}

static bool child_pass(int passed)
{
    return (passed == 3 ? fcntl(3, F_SETFD, 0) : dup2(passed, 3)) >= 0;
}

/* At idle priority the child runs only when nobody else wants the CPU or the disk. */
static bool child_set_idle(bool cpu, bool io)
{
    const struct sched_param none = {0};
    return (!cpu || sched_setscheduler(0, SCHED_IDLE, &none) == 0) &&
           (!io || syscall(SYS_ioprio_set, CT_IOPRIO_WHO_PROCESS, 0, CT_IOPRIO_IDLE) == 0);
}

static void child_close_others(int first)
{
    if (close_range((unsigned)first, ~0u, 0) == 0) {
        return;
    }
    struct rlimit limit;
    int end = CLOSE_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < CLOSE_MAX) {
        end = (int)limit.rlim_cur;
    }
    for (int fd = first; fd < end; fd++) {
        close(fd);
    }
}

/* The address sanitizer does not know this stack and would report its frames. */
__attribute__((no_sanitize("address"))) static int child_main(void *data)
{
    struct job *job = data;
    const struct ct_spawn_options *options = job->options;

    child_reset_signals();
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
        return child_fail(job, "set the parent-death signal for");
    }
    /* If our parent had died before the call above, its death signal would never come. */
    if (getppid() != job->parent) {
        errno = ESRCH;
        return child_fail(job, "find the parent of");
    }
    if (setsid() < 0) {
        return child_fail(job, "make a session for");
    }
    if (!child_set_stdio(options->stdio)) {
        return child_fail(job, "set stdin, stdout and stderr of");
    }
    if (options->nofile != NULL && setrlimit(RLIMIT_NOFILE, options->nofile) != 0) {
        return child_fail(job, "set the limit of open files of");
    }
    const struct ct_cpus *cpus = options->cpus;
    if (cpus != NULL &&
        sched_setaffinity(0, sizeof(cpus->bits), (const cpu_set_t *)cpus->bits) != 0) {
        return child_fail(job, "set the CPUs of");
    }
    if (options->passed > 0 && !child_pass(options->passed)) {
        return child_fail(job, "pass a descriptor to");
    }
    if (!child_set_idle(options->idle_cpu, options->idle_io)) {
        return child_fail(job, "set the idle priority of");
    }
    child_close_others(options->passed > 0 ? 4 : 3);

    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    execve(options->path, options->argv, options->envp);
    return child_fail(job, "execute");
}

/* Explains the errors that mislead: a script whose interpreter is missing fails with the ENOENT of
 * a missing file. */
static int spawn_error(const struct job *job, struct ct_err *err)
{
    const char *path = job->options->path;
    struct stat st;
    if (job->error == ENOENT && stat(path, &st) == 0) {
        return ct_err_sys(err, CT_ENOENT, ENOENT,
                          "cannot execute %s: the file is there, but the interpreter that it names "
                          "is not",
                          path);
    }
    if (job->error == ENOEXEC) {
        return ct_err_sys(err, CT_EFORMAT, ENOEXEC,
                          "cannot execute %s: not a program for this machine, nor a script that "
                          "begins with #!",
                          path);
    }
    return ct_err_sys(err, ct_code_from_errno(job->error), job->error, "cannot %s %s", job->step,
                      path);
}

static void reap(pid_t pid)
{
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
    }
}

/* Starts a child that shares our memory; returns its pid, or -1 with errno. All signals are blocked
 * meanwhile, because a handler of ours that ran in the child would change our memory. */
static pid_t clone_child(struct job *job, int *pidfd)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *stack = mmap(NULL, page + STACK_SIZE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        return -1;
    }
    (void)mprotect(stack, page, PROT_NONE);

    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t pid = clone(child_main, stack + page + STACK_SIZE,
                      CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, job, pidfd);
    int error = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);

    munmap(stack, page + STACK_SIZE);
    errno = error;
    return pid;
}

#if defined(__x86_64__) || defined(__aarch64__)

/* Makes the system call inline. The child runs on the parent's stack: if it returned from a
 * function around the call, its next calls would overwrite the return address that the parent still
 * needs. */
static inline __attribute__((always_inline)) long clone3_here(struct clone_args *args)
{
#ifdef __x86_64__
    long rc;
    __asm__ volatile("syscall"
                     : "=a"(rc)
                     : "0"(SYS_clone3), "D"(args), "S"(sizeof(*args))
                     : "rcx", "r11", "memory");
    return rc;
#else
    register long rc __asm__("x0") = (long)args;
    register long size __asm__("x1") = sizeof(*args);
    register long number __asm__("x8") = SYS_clone3;
    __asm__ volatile("svc 0" : "+r"(rc) : "r"(size), "r"(number) : "memory");
    return rc;
#endif
}

static _Noreturn __attribute__((noinline, no_sanitize("address"))) void child_run(struct job *job)
{
    _exit(child_main(job));
}

/* The child never returns from here, so the parent finds this stack frame unchanged. */
static __attribute__((noinline, no_sanitize("address"))) long vfork_into(struct clone_args *args,
                                                                         struct job *job)
{
    long pid = clone3_here(args);
    if (pid == 0) {
        child_run(job);
    }
    return pid;
}

/* As clone_child(), in the given cgroup. */
static pid_t clone_child_into(struct job *job, int cgroup, int *pidfd)
{
    struct clone_args args = {
        .flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | CLONE_INTO_CGROUP,
        .pidfd = (uint64_t)(uintptr_t)pidfd,
        .exit_signal = SIGCHLD,
        .cgroup = (uint64_t)cgroup,
    };
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    long pid = vfork_into(&args, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid > 0 ? (pid_t)pid : -1;
}

#else

static pid_t clone_child_into(struct job *job, int cgroup, int *pidfd)
{
    (void)job;
    (void)cgroup;
    (void)pidfd;
    return -1;
}

#endif

int ct_spawn(const struct ct_spawn_options *options, struct ct_child *out, struct ct_err *err)
{
    return ct_spawn_into(options, -1, out, err);
}

int ct_spawn_into(const struct ct_spawn_options *options, int cgroup, struct ct_child *out,
                  struct ct_err *err)
{
    struct job job = {.options = options, .parent = getpid()};
    int pidfd = -1;
    pid_t pid = cgroup >= 0 ? clone_child_into(&job, cgroup, &pidfd) : -1;
    if (pid < 0) {
        pid = clone_child(&job, &pidfd);
    }
    if (pid < 0) {
        /* EAGAIN here is a limit on processes, not something to try again. */
        return ct_err_sys(err, errno == EAGAIN ? CT_ELIMIT : ct_code_from_errno(errno), errno,
                          "cannot create a process for %s", options->path);
    }
    if (job.error != 0) {
        reap(pid);
        if (pidfd >= 0) {
            close(pidfd);
        }
        return spawn_error(&job, err);
    }
    if (pidfd < 0) { /* kernels before 5.2 ignore the flag */
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    }
    if (pidfd < 0) {
        int error = errno;
        kill(pid, SIGKILL);
        reap(pid);
        return ct_err_sys(err, CT_EUNSUPPORTED, error, "cannot watch %s (pid %d) by a pidfd",
                          options->path, (int)pid);
    }
    *out = (struct ct_child){.pid = pid, .pidfd = pidfd};
    return 0;
}

int ct_spawn_exit_code(int sys)
{
    return sys == ENOENT ? 127 : 126;
}
