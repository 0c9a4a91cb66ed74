/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank did not come to a collective, or came with another one? PyTorch's flight recorder
 * keeps the last collectives of each process group. Pure: the recordings of all ranks go in, a
 * verdict comes out.
 *
 * A collective is known by its group and its number there (collective_seq_id), which each member
 * counts for itself. So members that agree have the same operation, sizes and types at each number.
 *
 * In this order:
 *   1. at the lowest number at which two members differ, the only one that differs from all others;
 *   2. a member that has not come to a collective for which others wait, and that waits nowhere
 *      itself;
 *   3. the only rank without a recording, while all others wait.
 * Where nothing stands out, no rank is named.
 */
#ifndef CT_RENDEZVOUS_CONTROL_FLIGHT_H
#define CT_RENDEZVOUS_CONTROL_FLIGHT_H

#include "common/buf.h"
#include "common/err.h"

#include <stdbool.h>

#define CT_FLIGHT_NAME_MAX 40
#define CT_FLIGHT_SHAPE_MAX 96

struct ct_flight_op {
    int group;                       /* index */
    int number;                      /* 1 or more */
    bool pending;                    /* it has not ended */
    char name[CT_FLIGHT_NAME_MAX];   /* "all_reduce" */
    char shape[CT_FLIGHT_SHAPE_MAX]; /* "Float [5, 2]"; of several arrays the first ones */
};

struct ct_flight_group {
    char name[CT_FLIGHT_NAME_MAX];        /* the same on all ranks: "gloo:0" */
    char description[CT_FLIGHT_NAME_MAX]; /* what users call it; "" = nothing */
    int last;                             /* the number of the last collective; 0 = none */
};

/* What one rank has recorded. Zeroed memory has recorded nothing. Groups and operations are owned.
 */
struct ct_flight {
    bool known; /* it has given a recording */
    int group_count, op_count;
    struct ct_flight_group *groups;
    struct ct_flight_op *ops; /* of each back end in the order in which they began */
};

void ct_flight_fini(struct ct_flight *flight); /* zeroed memory is allowed */

/* Gives *out, which must be empty. CT_ENOMEM. */
CT_MUST_CHECK int ct_flight_copy(const struct ct_flight *flight, struct ct_flight *out);

enum ct_flight_kind {
    CT_FLIGHT_NONE,    /* nothing stands out */
    CT_FLIGHT_DIFFERS, /* rule 1 */
    CT_FLIGHT_ABSENT,  /* rule 2 */
    CT_FLIGHT_SILENT,  /* rule 3 */
};

struct ct_flight_verdict {
    enum ct_flight_kind kind;
    int rank; /* index into the array; meaningless for NONE */
};

/* Judges the recordings of ranks 0 to count - 1, which must be all ranks of the job. Appends the
 * verdict in one clause without a line end, such as
 *
 *     rank 1 did not come to all_reduce 4 of group default_pg (Float [5]); 7 ranks wait there
 *
 * and nothing for CT_FLIGHT_NONE. CT_ENOMEM. */
CT_MUST_CHECK int ct_flight_judge(const struct ct_flight *flights, int count,
                                  struct ct_flight_verdict *out, struct ct_buf *text);

#endif
