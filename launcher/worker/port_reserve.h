/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses free ports of this machine for programs of the job, and reserves them until the job ends.
 *
 * The program itself must be able to listen there, so ctrun cannot keep a socket on the port.
 * Instead ports are chosen where the kernel gives none to outgoing connections, and each ctrun of
 * the machine marks those that it has chosen by an abstract Unix socket, which other users' ctruns
 * see, too, and which ends with the process. Anybody can make such marks, so they are only a hint:
 * a machine full of them delays no job.
 */
#ifndef CT_LAUNCHER_WORKER_PORT_RESERVE_H
#define CT_LAUNCHER_WORKER_PORT_RESERVE_H

#include "common/err.h"
#include "launcher/worker/job_ports.h"

#include <stdbool.h>

/* Zeroed memory holds no ports. */
struct ct_port_reserve {
    int count;
    struct ct_held_port {
        uint16_t port;
        int mark; /* the socket that marks it; -1 = none does */
    } list[CT_JOB_PORTS_MAX];
};

/* Fills in the numbers of `ports`. A generation gets those ports of the one before that are
 * free again. CT_EBUSY: no port is free. */
CT_MUST_CHECK int ct_port_reserve_choose(struct ct_port_reserve *holder, struct ct_job_ports *ports,
                                         struct ct_err *err);

/* Reserves one port; `marked` by a mark, if one can be made. CT_EBUSY: a program has it or, if it
 * is to be marked, somebody has marked it. */
CT_MUST_CHECK int ct_port_reserve_one(struct ct_held_port *held, uint16_t port, bool marked);

/* Releases all. Repeated calls are allowed. */
void ct_port_reserve_fini(struct ct_port_reserve *holder);

/* Where ports are chosen when the kernel gives [low, high] to connections: [*first, *last]. */
void ct_port_reserve_range(int low, int high, int *first, int *last);

#endif
