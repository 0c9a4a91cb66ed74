/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the workers of this machine where they stand. For each worker these ways are tried in turn,
 * each with a deadline of its own, until one gives a stack:
 *
 *   1. PyTorch's worker server, if the program has opened one at TORCH_WORKER_SERVER_SOCKET or at a
 *      TCP port;
 *   2. py-spy, if it is installed, for a worker that runs Python;
 *   3. eu-stack, then gdb, if they are installed, for another worker. They would need seconds for
 *      the libraries of a Python program, and tell nothing of its lines.
 *
 * The flight recording comes from the worker server, too, at the same time. Nothing here waits for
 * one worker while another one could be asked: a worker that is stopped, or that holds Python's
 * lock, delays no other.
 *
 * Blocks until all have answered or the time is over, so it is called in a thread of its own. What
 * workers answer is bounded in length and may hold anything.
 */
#ifndef CT_LAUNCHER_STACKS_PROBE_H
#define CT_LAUNCHER_STACKS_PROBE_H

#include "common/err.h"
#include "launcher/stacks/stack.h"
#include "rendezvous/control/flight.h"

#include <stdint.h>
#include <sys/types.h>

/* With its NUL; sockets of this kind have no longer names (unix(7)). */
#define CT_PROBE_SOCKET_MAX 108

/* Bytes of one answer. A recording of PyTorch's 2,000 entries has 1.3 MB. */
#define CT_PROBE_ANSWER_MAX ((size_t)4 << 20)
/* Connections to worker servers that are open at a time. They bound the memory for answers. */
#define CT_PROBE_CONNECTIONS 32
/* Programs that run at a time. Each needs a core for some 0.1 s. */
#define CT_PROBE_PROGRAMS 4
/* Of one way. A worker server needs Python's lock and then milliseconds. */
#define CT_PROBE_SERVER_MS 1000
#define CT_PROBE_PROGRAM_MS 3000

struct ct_probe_target {
    pid_t pid;                        /* 0 = the worker does not live; nobody is asked */
    char socket[CT_PROBE_SOCKET_MAX]; /* of its worker server; "" = none */
    uint16_t port;                    /* the same on this machine; 0 = none */
};

/* In the order in which they are tried. */
enum ct_probe_source {
    CT_PROBE_NOTHING,
    CT_PROBE_WORKER_SERVER,
    CT_PROBE_PY_SPY,
    CT_PROBE_EU_STACK,
    CT_PROBE_GDB,
    CT_PROBE_SOURCES,
};

struct ct_probe_answer {
    bool asked;                  /* the worker lives */
    bool python;                 /* it runs Python */
    enum ct_probe_source source; /* of the stack */
    struct ct_stack stack;
};

struct ct_probe {
    const char *tools[CT_PROBE_SOURCES]; /* paths of programs; NULL = not installed, or none */
    bool is_barred;    /* ct_probe_run() sets it: programs have no right to look at workers here */
    int64_t budget_ms; /* of all together */
    int stop_fd;       /* readable = give up; -1 = never */
    int count;
    int first; /* the index of the one that is asked first; the others follow in turn */
    const struct ct_probe_target *targets;
    /* `count` of each, zeroed; ct_probe_fini() frees what they hold. */
    struct ct_probe_answer *answers;
    struct ct_flight *flights;
};

/* Everything is borrowed for the call. CT_ENOMEM, and answers that came before. */
CT_MUST_CHECK int ct_probe_run(struct ct_probe *probe);

/* May no program look at processes that are not its children? `yama` is the content of
 * /proc/sys/kernel/yama/ptrace_scope ("" = this kernel has no such limit), `status` that of
 * /proc/self/status, whose capabilities programs of ours have, too. */
bool ct_probe_is_barred(const char *yama, const char *status);

/* Frees what the answers hold, not the arrays. */
void ct_probe_fini(struct ct_probe *probe);

/* "PyTorch's worker server", "py-spy", ...; "" for NOTHING. A program's is its name in PATH. */
const char *ct_probe_source_name(enum ct_probe_source source);

#endif
