/* SPDX-License-Identifier: Apache-2.0
 *
 * The ports that programs ask for by ${port:NAME} in their arguments: names, numbers, and the text
 * by which the machine of rank 0 tells the others. Pure.
 */
#ifndef CT_LAUNCHER_WORKER_JOB_PORTS_H
#define CT_LAUNCHER_WORKER_JOB_PORTS_H

#include "common/err.h"
#include "rendezvous/control/control.h"

#include <stddef.h>
#include <stdint.h>

/* More than any program needs. CT_CONTROL_PORTS_MAX has room for all. */
#define CT_JOB_PORTS_MAX 16
#define CT_JOB_PORT_NAME_MAX 32

struct ct_job_port {
    char name[CT_JOB_PORT_NAME_MAX + 1]; /* a letter or '_', then also digits */
    uint16_t port;                       /* 0 = not known */
};

/* Zeroed memory has no ports. */
struct ct_job_ports {
    int count;
    struct ct_job_port list[CT_JOB_PORTS_MAX];
};

/* Adds a name of `len` bytes, if it is new. CT_EINVAL (not a name, or one that differs from another
 * in upper and lower case only), CT_ELIMIT (too long, or too many). */
CT_MUST_CHECK int ct_job_ports_add(struct ct_job_ports *ports, const char *name, size_t len,
                                   struct ct_err *err);

/* Writes "NAME=PORT NAME=PORT". */
void ct_job_ports_write(const struct ct_job_ports *ports, char out[CT_CONTROL_PORTS_MAX]);

/* Takes the numbers of those names that `ports` has from such a text. The other names of `ports`
 * get 0. CT_EFORMAT: the text is none of these; then all are 0. */
CT_MUST_CHECK int ct_job_ports_read(const char *text, struct ct_job_ports *ports,
                                    struct ct_err *err);

#endif
