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
    bool awaited;           /* and imported still when it got that */
    bool set;               /* it has said that it has its environment */
};

/* Starts a spare as the worker of this local rank in the next generation would be (-1 = it makes
 * the plan), and tells it what to import. A program that is not in Python needs no plan, so the
 * policy hears at once that there is one. `on_exit` gets the spare. CT_ENOMEM, CT_EIO,
 * CT_EUNSUPPORTED, what stat(2) says of the files, and what ct_proc_start() returns. */
CT_MUST_CHECK int ct_agent_spare_make(struct ct_agent_run *run, int rank, ct_proc_exit_fn on_exit,
                                      struct ct_err *err);

/* Are the files that make a spare of the process those that they were when the plan was begun? With
 * others the process could run the program, in the place of another worker. */
bool ct_agent_spare_plan_holds(const struct ct_agent_run *run);

/* Its process must have ended, or belong to somebody else. */
void ct_agent_spare_free(struct ct_agent_spare *spare);

/* Kills the process. on_exit of ct_agent_spare_make() is called when it has ended. */
void ct_agent_spare_end(struct ct_agent_spare *spare);

/* Says in `why` what the spare, called `who` there, has printed. Returns whether it has. */
bool ct_agent_spare_printed(const struct ct_agent_spare *spare, const char *who, char *why,
                            size_t size);

/* Gives the CPU time that its processes have used. */
int64_t ct_agent_spare_cpu_ms(const struct ct_agent_spare *spare);

/* Has a signal stopped it? */
bool ct_agent_spare_stopped(const struct ct_agent_spare *spare);

/* Are these NULL-terminated lists alike? Placeholders such as ${rank} can have other values in
 * another generation. */
bool ct_agent_spare_same(char *const *one, char *const *other);

/* Gives the spare the priority and the environment of a worker of this generation. It answers when
 * it has imported all. Returns false and says in `why` what is in the way. */
bool ct_agent_spare_ask(struct ct_agent_spare *spare, char why[CT_WARM_WHY_MAX]);

/* Gives a spare that is set its streams (-1 = /dev/null) and starts it. Returns false and says in
 * `why` what is in the way. */
bool ct_agent_spare_go(struct ct_agent_spare *spare, const int stdio[3], char why[CT_WARM_WHY_MAX]);

#endif
