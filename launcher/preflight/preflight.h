/* SPDX-License-Identifier: Apache-2.0
 *
 * What a preflight knows of the machines of a job, and what it thinks of them. Pure.
 *
 * A machine that does not keep to a limit is not fit. Where no limit is given, the machines are
 * compared: one that is far worse than most is not fit. A way between two machines that is slow or
 * closed is blamed on a machine only if that machine has no better one.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_H

#include "common/addr.h"
#include "common/err.h"
#include "launcher/preflight/preflight_limits.h"
#include "launcher/preflight/preflight_pairs.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_PREFLIGHT_TEXT_MAX 160
#define CT_PREFLIGHT_FOLDER_MAX 256
#define CT_PREFLIGHT_STAGE_MAX 32
#define CT_PREFLIGHT_MARK_MAX 24
#define CT_PREFLIGHT_NAME_MAX (CT_HOST_MAX + CT_PREFLIGHT_MARK_MAX)
/* What is kept of the text of --preflight-limits; more keys than there are fit. */
#define CT_PREFLIGHT_LIMITS_MAX 256
/* GPUs of one machine: more than any has. */
#define CT_PREFLIGHT_GPUS_MAX 1024

/* What one machine has measured of its way to another one. */
struct ct_preflight_link {
    int partner;      /* index of the other machine */
    double rate;      /* bytes per second that came from there; NAN = not measured */
    double latency_s; /* one way; NAN = the other machine has measured it */
    char error[CT_PREFLIGHT_TEXT_MAX]; /* why nothing was measured; "" = it was */
};

struct ct_preflight_machine {
    int node_rank;
    char host[CT_HOST_MAX];
    char mark[CT_PREFLIGHT_MARK_MAX]; /* " (node 3)" where another one has the same host name, else
                                         "" */
    char address[CT_HOST_MAX];        /* where others reach it */
    uint16_t port;
    bool takes_part;                      /* false where another ctrun of this machine does */
    char limits[CT_PREFLIGHT_LIMITS_MAX]; /* its --preflight-limits; "" = it has none */
    int workers;                          /* that will be started here */
    char stuck[CT_PREFLIGHT_STAGE_MAX];   /* the check that did not end; "" = all have */
    int64_t shm_size, shm_free;           /* of /dev/shm in bytes; -1 = there is none */
    int64_t memlock;                      /* bytes that may be locked; -1 = no limit */
    int rdma;                             /* number of RDMA devices */
    char folder[CT_PREFLIGHT_FOLDER_MAX]; /* the one with the least room */
    int64_t folder_free;                  /* bytes; -1 = not known */
    double clock_s;                       /* ahead of the clock of node rank 0; NAN = not known */
    int gpus;                             /* as NVML counts them; -1 = there is no NVML */
    char gpu_trouble[CT_PREFLIGHT_TEXT_MAX]; /* the first thing that is wrong; "" = nothing */
    int xids;                                /* Xid errors in the kernel's log, -1 = not readable */
    char last_xid[CT_PREFLIGHT_STAGE_MAX];
    struct ct_preflight_link links[CT_PREFLIGHT_ROUNDS_MAX];
    int num_links;
};

/* Something to be said about a machine. */
struct ct_preflight_finding {
    int machine; /* index */
    bool unfit;  /* else it is a warning */
    char what[2 * CT_PREFLIGHT_TEXT_MAX];
    const char *advice; /* static */
};

struct ct_preflight_verdict {
    struct ct_preflight_finding *findings; /* owned; in the order of the machines */
    int num_findings;
    int unfit; /* machines */
    int pairs, broken_pairs;
    double median_rate, median_latency_s; /* of the pairs that work; NAN without any */
    int slowest[2];                       /* the pair with the lowest rate; -1 = there is none */
    double slowest_rate, slowest_latency_s;
};

/* Makes *machine one of which nothing is known yet. */
void ct_preflight_machine_init(struct ct_preflight_machine *machine);

/* Sets the marks of all. To be called before the functions that name machines. CT_ENOMEM. */
CT_MUST_CHECK int ct_preflight_mark_names(struct ct_preflight_machine *machines, int count);

/* Host name and mark, without control characters. */
void ct_preflight_name(const struct ct_preflight_machine *machine, char out[CT_PREFLIGHT_NAME_MAX]);

/* Fills *out, which ct_preflight_verdict_fini() empties. Links must be to some of these machines.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_preflight_judge(const struct ct_preflight_machine *machines, int count,
                                     const struct ct_preflight_limits *limits,
                                     struct ct_preflight_verdict *out);

void ct_preflight_verdict_fini(struct ct_preflight_verdict *verdict);

/* Gives rate and latency of the pair, the worse of both directions. Returns false if the pair does
 * not work; *error then says why. */
bool ct_preflight_pair(const struct ct_preflight_machine *machines, int one, int other,
                       double *rate, double *latency_s, const char **error);

#endif
