/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a forked rank makes in many tests; each ends the process when it fails (CHECK of ranks.h).
 */
#ifndef CT_TESTS_LIB_RANK_CALLS_H
#define CT_TESTS_LIB_RANK_CALLS_H

#include "worker/ctworker.h"

/* A deadline that a test never waits for, so that a return proves another way out. */
#define LONG_MS (600 * 1000)
/* One that a test does wait for. */
#define SHORT_MS 300

struct ctw_job *rank_open_job(void);
struct ctw_comm *rank_open_comm(struct ctw_job *job, int64_t timeout_ms);
struct ctw_link *rank_open_link(struct ctw_comm *comm, int peer, size_t buffer);

/* Descriptors that this process has open, and a few that never change. */
int rank_open_files(void);

/* The message contains `want`. */
void rank_check_text(const struct ct_err *err, const char *want);

/* The communicator has ended: every call fails at once with this code. */
void rank_check_dead(struct ctw_comm *comm, int code);

#endif
