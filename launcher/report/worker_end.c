/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables without state: each kind of end has its words, its exit code and its advice.
 */
#include "launcher/report/worker_end.h"

#include "launcher/process/spawn.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

bool ct_worker_end_is_success(const struct ct_worker_end *end)
{
    return end->kind == CT_END_EXITED && end->value == 0;
}

bool ct_worker_end_may_restart(const struct ct_worker_end *end)
{
    return end->kind != CT_END_NOT_STARTED && !end->final;
}

bool ct_worker_end_is_barred(const struct ct_worker_end *end, const struct ct_code_set *barred)
{
    return !ct_worker_end_is_success(end) && ct_code_set_has(barred, ct_worker_end_exit_code(end));
}

bool ct_worker_end_by_another(const struct ct_worker_end *end)
{
    static const int sent[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    for (size_t i = 0; end->kind == CT_END_SIGNALED && i < sizeof(sent) / sizeof(sent[0]); i++) {
        if (end->value == sent[i]) {
            return true;
        }
    }
    return false;
}

/* Adds the signal's number, and its name as in kill -l. */
static void add_signal(int signo, struct ct_buf *out)
{
    const char *name = sigabbrev_np(signo);
    ct_buf_addf(out, "signal %d (%s%s)", signo, name != NULL ? "SIG" : "",
                name != NULL ? name : "a real-time signal");
}

int ct_worker_end_describe(const struct ct_worker_end *end, struct ct_buf *out)
{
    switch (end->kind) {
    case CT_END_EXITED:
        ct_buf_addf(out, "exited with code %d", end->value);
        break;
    case CT_END_SIGNALED:
        ct_buf_addf(out, "was killed by ");
        add_signal(end->value, out);
        ct_buf_addf(out, "%s", end->core_dumped ? " and dumped its core" : "");
        break;
    case CT_END_HUNG:
        ct_buf_addf(out, "hung: it %s for %d s%s%s",
                    end->stopped ? "was stopped (SIGSTOP) and stood still" : "stood still",
                    end->value, end->detail[0] != '\0' ? " at " : "", end->detail);
        break;
    case CT_END_ALL_HUNG:
        ct_buf_addf(out, "no rank has moved for %d s and none stands out", end->value);
        break;
    case CT_END_EXPIRED:
        ct_buf_addf(out, "was ended with ");
        add_signal(end->value, out);
        ct_buf_addf(out, ": its timer '%s' had expired", end->detail);
        break;
    case CT_END_UNINTERRUPTIBLE:
        ct_buf_addf(out, "is stuck in the kernel: it has been in uninterruptible sleep for %d s",
                    end->value);
        break;
    case CT_END_UNFIT:
        ct_buf_addf(out, "was not started: its machine is not fit");
        break;
    case CT_END_NOT_STARTED:
        ct_buf_addf(out, "could not be started: %s",
                    end->value > 0 ? strerror(end->value) : "its set-up failed");
        break;
    }
    return ct_buf_status(out);
}

/* Did the machine lack something? That says nothing about the program. */
static bool out_of_resources(int errnum)
{
    return errnum == 0 || errnum == EAGAIN || errnum == ENOMEM || errnum == EMFILE ||
           errnum == ENFILE;
}

int ct_worker_end_exit_code(const struct ct_worker_end *end)
{
    switch (end->kind) {
    case CT_END_EXITED:
        return end->value;
    case CT_END_SIGNALED:
    case CT_END_EXPIRED:
        return CT_EXIT_SIGNAL_BASE + end->value;
    case CT_END_HUNG:
    case CT_END_ALL_HUNG:
    case CT_END_UNINTERRUPTIBLE:
        return CT_EXIT_HUNG;
    case CT_END_UNFIT:
        return end->value != 0 ? end->value : CT_EXIT_UNFIT;
    case CT_END_NOT_STARTED:
        return end->value == CT_END_NO_LACK || out_of_resources(end->value)
                   ? CT_EXIT_SETUP
                   : ct_spawn_exit_code(end->value);
    }
    return CT_EXIT_SETUP;
}

int ct_worker_end_python_code(const struct ct_worker_end *end)
{
    bool by_signal = end->kind == CT_END_SIGNALED || end->kind == CT_END_EXPIRED;
    return by_signal ? -end->value : ct_worker_end_exit_code(end);
}

int ct_worker_end_of_command(int code)
{
    switch (code) {
    case CT_ENOENT:
        return CT_EXIT_NOT_FOUND;
    case CT_EPERM:
        return CT_EXIT_NOT_EXECUTABLE;
    case CT_EINVAL:
    case CT_ELIMIT:
        return CT_EXIT_USAGE;
    default:
        return CT_EXIT_SETUP;
    }
}

static const char *signal_advice(int signo)
{
    switch (signo) {
    case SIGKILL:
        return "ctrun did not send it; if nobody else did, the kernel ran out of memory: see dmesg";
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGABRT:
        return "a crash in native code: run it under a debugger, or a Python program with "
               "PYTHONFAULTHANDLER=1";
    default:
        return "ctrun did not send it: look for who did";
    }
}

static const char *spawn_advice(int errnum)
{
    if (out_of_resources(errnum)) {
        return "make room for it (memory, processes, open files, disk), or start fewer workers";
    }
    switch (errnum) {
    case CT_END_NO_LACK:
        return "correct what it names, and start the job again";
    case ENOENT:
        return "check its name, and the interpreter in its first line if it is a script";
    case ENOEXEC:
        return "a script needs a first line like #!/bin/sh";
    default:
        return "check its permissions and the file system's mount options";
    }
}

/* One line each: it stands last in the report, where a person looks first. */
const char *ct_worker_end_advice(const struct ct_worker_end *end, bool has_message)
{
    switch (end->kind) {
    case CT_END_SIGNALED:
        return signal_advice(end->value);
    case CT_END_HUNG:
        if (end->stopped) {
            return "find out who stopped it (SIGSTOP, Ctrl-Z, a debugger); with --on-hang report, "
                   "kill -CONT lets it go on";
        }
        return "look at what it waited for, above; --on-hang report leaves the job alive for a "
               "debugger (gdb -p, py-spy dump --pid)";
    case CT_END_ALL_HUNG:
        return "look at what they waited for, above; --on-hang report leaves the job alive for a "
               "debugger (gdb -p, py-spy dump --pid)";
    case CT_END_EXPIRED:
        return "see what it did within that timer, or give it more time";
    case CT_END_UNINTERRUPTIBLE:
        return "no signal reaches it, and what it holds is not free for another: look at dmesg and "
               "/proc/PID/stack for the device or file system it waits for";
    case CT_END_UNFIT:
        return "look at this machine, or start the job without it";
    case CT_END_NOT_STARTED:
        return spawn_advice(end->value);
    case CT_END_EXITED:
        break;
    }
    if (end->final) {
        return "correct what it names, and start the job again";
    }
    return has_message ? "the reason is most likely in what it wrote"
                       : "it said nothing on stderr; --log-dir DIR --tee 3 keeps all output";
}
