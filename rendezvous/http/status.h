/* SPDX-License-Identifier: Apache-2.0
 *
 * The status document of a store, as JSON. Pure: facts in, document out. man/ctstatus.5 says what
 * each field means; a field once published keeps its name and meaning.
 */
#ifndef CT_RENDEZVOUS_HTTP_STATUS_H
#define CT_RENDEZVOUS_HTTP_STATUS_H

#include "common/addr.h"
#include "common/err.h"
#include "rendezvous/control/worker_rows.h"
#include "rendezvous/wire/proto.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cJSON;

/* Keys named in `waiting`. They fit on one screen, and are enough to see what a job waits for. */
#define CT_STATUS_WAITING_MAX 32

/* A missing key, and how many clients wait for it. */
struct ct_status_waited {
    struct ct_bytes key; /* borrowed */
    size_t clients;
    char peer[CT_ADDR_TEXT_MAX]; /* address of one of them */
};

struct ct_status_facts {
    int64_t uptime_ms;
    size_t keys, queued, bytes, memory, connections, waiters;
    uint64_t accepted, refused, denied, protocol_errors;
    size_t memory_max; /* SIZE_MAX = no cap */
    uint64_t memory_refused;
    uint64_t journal_bytes, journal_refused; /* zeros without a journal */
    uint64_t by_op[CT_OP_LIMIT];             /* requests by opcode */
    const struct ct_status_waited *waiting;
    size_t waiting_count;
    bool waiting_more; /* further keys are waited for */
    size_t http_connections;
    uint64_t http_requests, http_refused, http_timeouts, http_denied;
};

/* Lets the owner of the store add what it knows: `job` to `root`, and to the array `problems` one
 * line for each thing that is wrong. `rows` says what happens with the rows of the workers. Returns
 * 0 or CT_ENOMEM. */
typedef int (*ct_status_fn)(void *data, struct ct_status_rows *rows, struct cJSON *root,
                            struct cJSON *problems);

/* Gives *out, to be freed by cJSON_Delete(). `fn` may be NULL. CT_ENOMEM. */
CT_MUST_CHECK int ct_status_make(const struct ct_status_facts *facts, ct_status_fn fn, void *data,
                                 struct ct_status_rows *rows, struct cJSON **out);

/* Returns the job after `prev`, or the first one if `prev` is NULL; NULL when there are no more. A
 * document has one job, `job`, or the array `jobs`. */
const struct cJSON *ct_status_next_job(const struct cJSON *status, const struct cJSON *prev);

/* Does a hang that is reported and not over name this rank of the job? */
bool ct_status_hangs(const struct cJSON *job, double rank);

/* Has everything that belongs to the jobs been started? */
bool ct_status_is_ready(const struct cJSON *status);

#endif
