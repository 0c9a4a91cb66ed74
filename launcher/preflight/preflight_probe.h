/* SPDX-License-Identifier: Apache-2.0
 *
 * The process that makes a preflight on one machine. It is ctrun's own executable under another
 * name, so that a driver or a file system that does not answer can be killed with it.
 *
 * The processes of all machines meet in the workers' store. Each says what it has found; the one of
 * node rank 0 waits for all and plans the rounds; each measures and says what; node rank 0 judges.
 * The result is one line of JSON on standard output, which preflight_outcome.h reads; if there are
 * several, the last one counts. The one with the table is written before any machine hears that it
 * is not fit, and so before it can end the generation.
 */
#ifndef CT_LAUNCHER_PREFLIGHT_PREFLIGHT_PROBE_H
#define CT_LAUNCHER_PREFLIGHT_PREFLIGHT_PROBE_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

#define CT_PREFLIGHT_PROGRAM "ctrun-preflight"
/* A process that has not ended by then never will: what it waits for has shorter deadlines. */
#define CT_PREFLIGHT_TIMEOUT_MS 240000

/* Words of the command line, in this order. */
enum ct_preflight_word {
    CT_PREFLIGHT_NAME, /* CT_PREFLIGHT_PROGRAM */
    CT_PREFLIGHT_GENERATION,
    CT_PREFLIGHT_NODE_RANK,
    CT_PREFLIGHT_NODES, /* 0 = look at this machine alone */
    CT_PREFLIGHT_HOST,
    CT_PREFLIGHT_ADDRESS, /* by which other machines reach this one */
    CT_PREFLIGHT_MASTER_ADDR,
    CT_PREFLIGHT_MASTER_PORT,
    CT_PREFLIGHT_WORKERS,
    CT_PREFLIGHT_TAKES_PART, /* 0 = another ctrun of this machine does */
    CT_PREFLIGHT_LIMITS,     /* "" = the defaults */
    CT_PREFLIGHT_FOLDER,     /* for log files; "" = there is none */
    CT_PREFLIGHT_WORDS,
};

/* Was this process started as a probe? */
bool ct_preflight_is_probe(char *const *argv);

/* Returns the exit code. */
int ct_preflight_probe(char *const *argv);

/* How long a machine waits for the verdict when so many take part. One that takes no part waits all
 * the rounds, each of which lasts to the end of its time if packets of one machine get lost. */
int64_t ct_preflight_verdict_ms(int machines);

#endif
