/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that waits to be a worker (--warm), or that makes the plan.
 */
#ifndef CT_LAUNCHER_AGENT_AGENT_SPARE_UV_H
#define CT_LAUNCHER_AGENT_AGENT_SPARE_UV_H

#include "launcher/agent/agent_run_uv.h"

#include <sys/stat.h>

struct ct_agent_spare {
    struct ct_list link; /* in run->warm.all */
    struct ct_agent_run *run;
    struct ct_proc *proc;
    int rank;               /* local rank; -1 = it makes the plan */
    int channel;            /* -1 = it is being ended */
    struct stat program;    /* the file of the command, when the process was started */
    struct ct_strlist args; /* its command line */
    struct ct_strlist vars; /* the environment that it was given for its generation */
    bool seekable[3];       /* can its standard streams be repositioned? */
    int printed[2];         /* what it writes to its stdout and stderr can be read here */
    uint64_t memory;        /* bytes that it took when memory was read last */
    int64_t memory_ns;      /* when that was */
    bool killed;            /* its process is gone, by a signal */
    bool asked;             /* it has its environment */
    bool set;               /* and has said so */
};

/* A spare without a process, in run->warm.all. `rank` as above. NULL without memory. */
struct ct_agent_spare *ct_agent_spare_new(struct ct_agent_run *run, int rank);

/* Its process must have ended, or belong to somebody else. */
void ct_agent_spare_free(struct ct_agent_spare *spare);

/* Kills the process. on_exit of ct_agent_spare_start() is called when it has ended. */
void ct_agent_spare_end(struct ct_agent_spare *spare);

/* Starts the process on three stand-ins and a socket. `env` is what a worker has; what makes it
 * a spare is added. CT_ENOMEM, and what ct_proc_start() returns. */
CT_MUST_CHECK int ct_agent_spare_start(struct ct_agent_spare *spare, char *const *argv,
                                       char *const *env, ct_proc_exit_fn on_exit,
                                       struct ct_err *err);

/* Says in `why` what the spare, called `who` there, has printed. Returns whether it has. */
bool ct_agent_spare_printed(const struct ct_agent_spare *spare, const char *who, char *why,
                            size_t size);

/* Gives the CPU time that its processes have used. */
int64_t ct_agent_spare_cpu_ms(const struct ct_agent_spare *spare);

/* Has a signal stopped it? */
bool ct_agent_spare_stopped(const struct ct_agent_spare *spare);

/* Does the command still name the file with which the process was started? Behind it may stand
 * another one, which a spare checks itself: the interpreter of a script. */
bool ct_agent_spare_current(const struct ct_agent_spare *spare);

/* Are these NULL-terminated lists alike? Placeholders such as ${rank} can have other values in
 * another generation. */
bool ct_agent_spare_same(char *const *one, char *const *other);

/* Gives a spare that is set its streams (-1 = /dev/null) and starts it. Returns false and says in
 * `why` what is in the way. */
bool ct_agent_spare_go(struct ct_agent_spare *spare, const int stdio[3], char why[CT_WARM_WHY_MAX]);

#endif
