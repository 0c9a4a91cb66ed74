/* SPDX-License-Identifier: Apache-2.0
 *
 * Where all workers of a job stand, and which rank holds the others up. Pure.
 *
 * Each machine asks its own workers (launcher/stacks/probe.h). If the job is on several machines,
 * each tells the membership a short form of what it was told, in a STANDS message, and the
 * membership judges. What a machine tells may be anything: lengths are bounded here, and texts hold
 * no control characters.
 */
#ifndef CT_RENDEZVOUS_CONTROL_STANDS_H
#define CT_RENDEZVOUS_CONTROL_STANDS_H

#include "rendezvous/control/flight.h"

#include <stddef.h>

#define CT_STAND_AT_MAX 288

/* Bytes of what one machine tells, with its NUL. A rank has some hundred. */
#define CT_STANDS_TEXT_MAX ((size_t)32768)

struct ct_stands {
    int count;                      /* ranks */
    struct ct_flight *flights;      /* by rank: what PyTorch has recorded of it */
    char (*at)[CT_STAND_AT_MAX];    /* by rank: a place in its program; "" = not known */
    char (*in)[CT_FLIGHT_NAME_MAX]; /* by rank: the collective in which it is, by its stack;
                                       CT_STAND_IN_NONE = in none, "" = not known */
};

#define CT_STAND_IN_NONE "-"

/* Gives room for so many ranks, of which nothing is known. CT_ENOMEM. */
CT_MUST_CHECK int ct_stands_init(struct ct_stands *out, int count);
void ct_stands_fini(struct ct_stands *stands); /* zeroed memory is allowed */

/* Appends the short form of all ranks: JSON of less than CT_STANDS_TEXT_MAX bytes. Of each rank the
 * last collectives are told, as far as there is room. CT_ENOMEM. */
CT_MUST_CHECK int ct_stands_encode(const struct ct_stands *stands, struct ct_buf *out);

/* Enters what a machine has told of ranks first to first + count - 1. CT_EFORMAT, CT_ENOMEM; what
 * came before the fault is entered. */
CT_MUST_CHECK int ct_stands_decode(const char *text, int first, int count, struct ct_stands *out);

/* Gives the rank that holds the others up, -1 = nobody stands out, and appends the reason in a
 * clause. In this order:
 *   1. the recordings of PyTorch (flight.h);
 *   2. by the stacks, the only one that is in no collective while all others are in one;
 *   3. of three or more ranks, the only one in another place than all others, which are in one,
 *      unless it has come to a collective and one of the others has not.
 * If nobody stands out, and all ranks wait, but for different operations, the clause says who waits
 * in which.
 * CT_ENOMEM. */
CT_MUST_CHECK int ct_stands_judge(const struct ct_stands *stands, int *rank, struct ct_buf *reason);

#endif
