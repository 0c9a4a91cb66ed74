/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the workers of one machine as a state machine: an event goes in, what to do comes
 * out. No process, no socket, no clock.
 *
 *              begin            all spawned
 *     IDLE ------------> STARTING ---------> RUNNING
 *      |                 ^   | failure,        | all exited with 0, failure or signal
 *      | signal          |   | signal          |
 *      |         restart |   v                 |
 *      |                 STOPPING <------------+
 *      v                    |
 *     DONE <----------------+ all gone: success, no restart left, or signal
 *
 * Every generation ends through STOPPING, a good one too: workers may have left processes behind.
 * The first worker to fail in a generation is remembered; what its peers do afterwards is a
 * consequence. A restart follows a worker's failure while the budget lasts, never a signal to ctrun
 * and never a program that cannot be executed.
 */
#ifndef CT_LAUNCHER_AGENT_H
#define CT_LAUNCHER_AGENT_H

#include "common/err.h"
#include "common/log.h"
#include "common/sm.h"
#include "launcher/policy.h"

#include <stdbool.h>
#include <stdint.h>

enum ct_agent_state {
    CT_AGENT_IDLE,
    CT_AGENT_STARTING,
    CT_AGENT_RUNNING,
    CT_AGENT_STOPPING,
    CT_AGENT_DONE,
};

enum ct_agent_event_type {
    CT_AGENT_EV_BEGIN,       /* once, first */
    CT_AGENT_EV_STARTED,     /* answer to a spawn: the worker runs */
    CT_AGENT_EV_NOT_STARTED, /* answer to a spawn: it does not; `end` says why */
    CT_AGENT_EV_EXITED,      /* a worker ended; `end` says how */
    CT_AGENT_EV_STOPPED,     /* answer to a stop: nothing of the generation is left */
    CT_AGENT_EV_SIGNAL,      /* ctrun was asked to end by `signo` */
};

struct ct_agent_event {
    enum ct_agent_event_type type;
    int local_rank; /* STARTED, NOT_STARTED, EXITED */
    struct ct_end end;
    int signo;
};

/* What to do, in the order of the fields. */
struct ct_agent_update {
    bool report;     /* ct_agent.failure has just become known */
    int stop_signal; /* 0, or stop everything of this generation, beginning with this signal */
    bool kill;       /* be quick about the stop that is under way: SIGKILL now */
    bool restart;    /* `generation` is new: empty the store */
    int spawn;       /* -1, or start this local rank and step with the answer */
    bool finish;     /* nothing is left running; ctrun ends with exit_code */
    int exit_code;
};

enum ct_agent_worker {
    CT_WORKER_ABSENT,
    CT_WORKER_SPAWNING, /* asked for, not answered yet */
    CT_WORKER_ALIVE,
    CT_WORKER_GONE,
};

struct ct_agent_failure {
    bool known;
    int local_rank;
    struct ct_end end;
    bool will_restart; /* as things stood when it became known */
};

/* Read-only for others. */
struct ct_agent {
    struct ct_sm sm;
    int workers;
    int max_restarts;
    int generation;
    int signo;                       /* first signal that asked ctrun to end, 0 = none */
    bool succeeded;                  /* all workers have exited with 0 */
    struct ct_agent_failure failure; /* of this generation */
    int spawned;                     /* workers asked for in this generation */
    int alive;                       /* spawning or alive */
    uint8_t *states;                 /* enum ct_agent_worker by local rank */
};

/* `log` is borrowed, may be NULL. CT_ENOMEM. */
CT_MUST_CHECK int ct_agent_init(struct ct_agent *agent, int workers, int max_restarts,
                                const struct ct_log *log);

/* NULL and zeroed memory are allowed. */
void ct_agent_fini(struct ct_agent *agent);

/* Takes one event, fills *update whole. `now_ns` is only for the log. */
void ct_agent_step(struct ct_agent *agent, const struct ct_agent_event *event, int64_t now_ns,
                   struct ct_agent_update *update);

#endif
