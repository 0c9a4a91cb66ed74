/* SPDX-License-Identifier: Apache-2.0
 *
 * What went wrong in a job, as it is sent to every node: the failures, and how each generation
 * ended. Pure data. The membership collects it (members_history.c), the launcher puts it into words
 * and into a report file.
 *
 * All texts come from agents, and so from workers: they may hold any byte but NUL. Their sizes are
 * bounded below.
 */
#ifndef CT_RENDEZVOUS_CONTROL_FAILURE_HISTORY_H
#define CT_RENDEZVOUS_CONTROL_FAILURE_HISTORY_H

#include "common/addr.h"
#include "common/err.h"
#include "rendezvous/control/restarts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* Bytes kept of a text that a worker or its agent has written: enough for twenty lines of a wide
 * screen, or for a Python traceback. Not tuned. */
#define CT_FAILURE_TEXT_MAX ((size_t)8192)
/* "process 42 was killed by signal 9 (SIGKILL)". */
#define CT_FAILURE_WHAT_MAX 512

/* How many of the newest failures are kept, and of the newest generations. The first failure of the
 * last generation is always among them, because members_history.c records fewer of one. */
#define CT_FAILURE_HISTORY_KEPT 16

enum ct_failure_kind {
    CT_FAILURE_WORKER, /* a worker ended badly, could not be started, or hangs */
    CT_FAILURE_AGENT,  /* the connection to a node's ctrun was lost: killed, or its machine reset */
    CT_FAILURE_SILENT, /* a node was silent for the heartbeat timeout: its network is down, or the
                          machine */
    CT_FAILURE_LEFT,   /* a node's ctrun was told to end and left the job */
};

struct ct_failure {
    enum ct_failure_kind kind;
    int generation;
    int node_rank;
    char host[CT_HOST_MAX];    /* as the node calls itself */
    char address[CT_HOST_MAX]; /* as the server sees it; "" = the machine of the server itself */
    int rank, local_rank;      /* of the worker; -1 = the whole node failed */
    int64_t pid;               /* 0 = never started */
    int exit_code;             /* ctrun's exit code if the job ends because of this */
    bool permanent;            /* no restart follows: it could not be started, it says that a
                                * restart cannot help, or --no-restart-on excludes one */
    bool early;                /* within a second of its start, before its first step */
    bool unfit;                /* its machine has failed a check, so it is to be left out */
    struct ct_steps steps;     /* that the workers of its machine had completed */
    int64_t time_ms;           /* Unix time by the server's clock */
    char what[CT_FAILURE_WHAT_MAX]; /* "process 42 exited with code 3", "its ctrun is gone" */
    /* These come when the node has stopped. Owned; each may be NULL. */
    char *tail;      /* its last lines on stderr, each with '\n' */
    char *message;   /* of its error file */
    char *traceback; /* the same */
    char *advice;    /* what to do about it: one line */
};

/* A round: one generation that is over, or the present one. */
struct ct_history_round {
    int generation;
    int nodes, world_size;
    int64_t formed_ms, ended_ms;   /* Unix time; 0 = not yet */
    int64_t waited_ms;             /* from the beginning of the wait to formed_ms */
    int64_t paused_ms;             /* before that wait, because generations failed early */
    char why[CT_FAILURE_WHAT_MAX]; /* why it ended: "rank 3 on gpu-1: ...", "node gpu-9 joined",
                                    * "done"
                                    */
};

struct ct_failure_history {
    /* Rings: entry n is at n modulo CT_FAILURE_HISTORY_KEPT. The numbers count all ever made. */
    struct ct_failure failures[CT_FAILURE_HISTORY_KEPT];
    uint64_t num_failures;
    struct ct_history_round rounds[CT_FAILURE_HISTORY_KEPT];
    uint64_t num_rounds;
};

/* Zeroed memory is an empty history. Frees what it owns; NULL is allowed. */
void ct_failure_history_fini(struct ct_failure_history *history);
void ct_failure_fini(struct ct_failure *failure);

/* Deep copy into zeroed memory. CT_ENOMEM leaves *out empty. */
CT_MUST_CHECK int ct_failure_copy(const struct ct_failure *from, struct ct_failure *out);

/* The first failure of `generation`: the one that is to blame; NULL = there was none. */
const struct ct_failure *ct_failure_history_first(const struct ct_failure_history *history,
                                                  int generation);

/* Gives *out (cJSON_Delete). CT_ENOMEM. */
CT_MUST_CHECK int ct_failure_to_json(const struct ct_failure *failure, struct cJSON **out);
CT_MUST_CHECK int ct_failure_history_to_json(const struct ct_failure_history *history,
                                             struct cJSON **out);

/* Reads into zeroed memory and cuts long texts. CT_EFORMAT names a field of wrong type or range. */
CT_MUST_CHECK int ct_failure_from_json(const struct cJSON *json, struct ct_failure *out,
                                       struct ct_err *err);
CT_MUST_CHECK int ct_failure_history_from_json(const struct cJSON *json,
                                               struct ct_failure_history *out, struct ct_err *err);

#endif
