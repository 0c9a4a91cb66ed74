/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher's side of common/handover.h: a file with orders for workers that can go on in
 * another generation. The launcher only writes it; the workers answer in their progress pages.
 */
#ifndef CT_LAUNCHER_WORKER_ORDER_WRITER_H
#define CT_LAUNCHER_WORKER_ORDER_WRITER_H

#include "common/handover.h"
#include "common/log.h"
#include "launcher/util/strlist.h"

struct ct_order_writer {
    int fd; /* -1 = there is none */
    int workers;
    unsigned char *map;
    char path[64]; /* by which workers open it; "" = there is none */
};

#define CT_ORDER_WRITER_INIT \
    {                        \
        .fd = -1             \
    }

/* Does not fail: without the file a warning is logged, and every worker is started anew in each
 * generation. */
void ct_order_writer_open(struct ct_order_writer *orders, int workers, const struct ct_log *log);
void ct_order_writer_fini(struct ct_order_writer *orders); /* repeated calls are allowed */

/* Gives an order about `generation`; `order` is not CT_ORDER_GO. */
void ct_order_writer_order(struct ct_order_writer *orders, int local_rank, int generation,
                           enum ct_order order);

/* Lets a parked worker go on in `generation` with the environment variables `vars`. CT_ELIMIT when
 * they are too long, CT_EUNSUPPORTED without the file; then the worker still waits. */
CT_MUST_CHECK int ct_order_writer_go(struct ct_order_writer *orders, int local_rank, int generation,
                                     const struct ct_strlist *vars);

#endif
