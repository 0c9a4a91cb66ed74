/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of the workers of one machine as a state machine: an event goes in, what to do comes
 * out. No process, no socket, no clock.
 *
 *           begin            world             all spawned           all exited with 0
 *     IDLE ------> JOINING ---------> STARTING ---------> RUNNING -------------------> FINISHED
 *                  ^  |                   | failure here or elsewhere, |                  |
 *                  |  |                   v signal, link lost          v                  | over
 *          stopped |  | over,         STOPPING <--------------------------------------- --+
 *                  |  | signal            |
 *                  +--|-------------------+ over and stopped
 *                     v                   v
 *                    DONE <---------------+
 *
 * The membership (rendezvous/members/members.h) decides whether another generation follows, also
 * for a job of one machine. The agent reports what happened and does what it is told. But it stops
 * its own workers at once, without being told, after a failure or a signal here and after the loss
 * of the link to the membership.
 *
 * A stop may leave workers alive that can go on in another generation. The state DISMISSING, before
 * DONE, ends these workers when no generation follows.
 *
 * Every generation ends through STOPPING, even a successful one, because workers may have left
 * processes behind. The agent remembers the first worker that fails in a generation. Later failures
 * of other workers are its consequences.
 */
#ifndef CT_LAUNCHER_AGENT_AGENT_H
#define CT_LAUNCHER_AGENT_AGENT_H

#include "common/err.h"
#include "common/log.h"
#include "common/sm.h"
#include "launcher/report/worker_end.h"

#include <stdbool.h>
#include <stdint.h>

enum ct_agent_state {
    CT_AGENT_IDLE,
    CT_AGENT_JOINING,
    CT_AGENT_STARTING,
    CT_AGENT_RUNNING,
    CT_AGENT_FINISHED,
    CT_AGENT_STOPPING,
    CT_AGENT_DISMISSING,
    CT_AGENT_DONE,
};

enum ct_agent_event_type {
    CT_AGENT_EV_BEGIN, /* once, first */
    /* from the membership */
    CT_AGENT_EV_UP,      /* the link is there */
    CT_AGENT_EV_WORLD,   /* `generation` begins; `serve`: this node must open the workers' store */
    CT_AGENT_EV_STOP,    /* `generation` is over; `will_restart` */
    CT_AGENT_EV_OVER,    /* the job is over, with `exit_code` */
    CT_AGENT_EV_PREEMPT, /* some node has received `signo`, which asks the job to end */
    CT_AGENT_EV_ADRIFT,  /* the link is lost, but another host of the job is looked for; UP or LOST
                            follows */
    CT_AGENT_EV_LOST,    /* the link is lost, or this node was refused; `exit_code` counts if no
                            failure or signal gives another one */
    /* from this machine */
    CT_AGENT_EV_SERVING,     /* answer to serve: the workers' store is empty and listens */
    CT_AGENT_EV_NOT_SERVING, /* answer to serve: it cannot be opened */
    CT_AGENT_EV_STARTED,     /* answer to a spawn: the worker runs */
    CT_AGENT_EV_NOT_STARTED, /* answer to a spawn: the worker does not run; `end` says why */
    CT_AGENT_EV_EXITED,      /* a worker ended; `end` says how */
    CT_AGENT_EV_STOPPED, /* answer to a stop: nothing of the generation is left, except workers that
                            were kept */
    CT_AGENT_EV_SIGNAL,  /* ctrun was asked to end by `signo` */
};

struct ct_agent_event {
    enum ct_agent_event_type type;
    int local_rank; /* STARTED, NOT_STARTED, EXITED */
    struct ct_worker_end end;
    int signo; /* PREEMPT, SIGNAL */
    int generation, exit_code;
    bool serve, will_restart;
    bool kept; /* STOPPED: some workers live on; only while ct_agent_may_keep() */
};

/* Messages to the membership, in the order in which they are to be sent. Bits. */
enum ct_agent_message {
    CT_AGENT_SAY_JOIN = 1,
    CT_AGENT_SAY_SERVING = 2,
    CT_AGENT_SAY_STARTED = 4,
    CT_AGENT_SAY_FAILED = 8,
    CT_AGENT_SAY_FINISHED = 16,
    CT_AGENT_SAY_STOPPED = 32,
    CT_AGENT_SAY_PREEMPT = 64,
    CT_AGENT_SAY_LEAVE = 128,
};

/* What to do, in the order of the fields. */
struct ct_agent_update {
    unsigned say;  /* enum ct_agent_message */
    bool headline; /* a generation has failed: say so at once; ct_agent.failure, if known, is new */
    int stop_signal;     /* 0, or stop everything of this generation, beginning with this signal */
    bool preempt_notice; /* tell the workers that it is a preemption */
    bool kill;           /* SIGKILL to what the stop under way has not ended yet */
    bool report;         /* all is stopped and decided: say how this generation ended */
    bool serve;  /* `generation` is new: empty or open the workers' store, step with the answer */
    int spawn;   /* -1, or start this local rank and step with the answer */
    bool finish; /* nothing is left running; ctrun ends with exit_code */
    int exit_code;
};

enum ct_agent_worker {
    CT_WORKER_ABSENT,
    CT_WORKER_SPAWNING, /* asked for; the answer has not come yet */
    CT_WORKER_ALIVE,
    CT_WORKER_GONE,
};

struct ct_agent_failure {
    bool known;
    int local_rank;
    struct ct_worker_end end;
};

/* Read-only for others. */
struct ct_agent {
    struct ct_sm sm;
    int workers;
    int generation;    /* -1 before the first */
    int signo;         /* asks the job to end, received here or elsewhere; 0 = none */
    bool all_stopped;  /* STOPPING: the stop is complete */
    bool kept;         /* the stop left workers alive that can go on in another generation */
    bool decided;      /* the membership has said what follows this generation */
    bool will_restart; /* another generation follows, as far as is known */
    bool overcome;     /* it would have followed, but the link was lost */
    bool orderly;      /* since `signo`, every worker here has ended with 0 */
    bool finished;     /* every worker had ended with 0 before any stop */
    bool adrift;       /* the host is lost, and JOIN was not said to another one yet */
    bool up;           /* STOPPING: a new link is there, on which JOIN is to be said */
    bool impatient;    /* a second Ctrl-C came: ctrun waits for nobody any more */
    bool over, lost;   /* the job is over; the link is lost */
    int last_code;     /* the exit code that came with `over` or `lost` */
    struct ct_agent_failure failure; /* of this generation, on this machine */
    int spawned;                     /* workers asked for in this generation */
    int alive;                       /* spawning or alive */
    uint8_t *states;                 /* enum ct_agent_worker by local rank */
};

/* `log` is borrowed, may be NULL. CT_ENOMEM. */
CT_MUST_CHECK int ct_agent_init(struct ct_agent *agent, int workers, const struct ct_log *log);

/* NULL and zeroed memory are allowed. */
void ct_agent_fini(struct ct_agent *agent);

/* May the stop under way leave workers alive that can go on? Sets *decided when another generation
 * is certain; until then such workers may wait, but the stop must not end without them. */
bool ct_agent_may_keep(const struct ct_agent *agent, bool *decided);

/* Takes one event and sets every field of *update. `now_ns` is used for the log only. */
void ct_agent_step(struct ct_agent *agent, const struct ct_agent_event *event, int64_t now_ns,
                   struct ct_agent_update *update);

#endif
