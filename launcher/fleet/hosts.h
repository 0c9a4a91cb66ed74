/* SPDX-License-Identifier: Apache-2.0
 *
 * The machines that --hosts and --hostfile name, and the number of workers on each.
 *
 *     --hosts a:2,b:2,[2001:db8::1]:4,c
 *
 *     # a hostfile: of Open MPI, of MPICH, or a bare name
 *     a slots=2
 *     b:2
 *     c
 *
 * A host that is named twice gets the sum of the workers. Pure.
 */
#ifndef CT_LAUNCHER_FLEET_HOSTS_H
#define CT_LAUNCHER_FLEET_HOSTS_H

#include "common/addr.h"
#include "common/err.h"

#include <stddef.h>

/* A limit, because each host has a launch agent here: a process with three descriptors. */
#define CT_HOSTS_MAX 1024

struct ct_host {
    char name[CT_HOST_MAX]; /* without brackets */
    int workers;            /* 0 = as many as --nproc-per-node says */
};

/* Zeroed memory is an empty list. */
struct ct_hosts {
    struct ct_host *list;
    int count;
};

/* The number of workers on all hosts; INT_MAX if a host does not say its number. */
int ct_hosts_workers(const struct ct_hosts *hosts);

/* NULL is allowed. */
void ct_hosts_fini(struct ct_hosts *hosts);

/* Adds the hosts of a list as above. CT_EFORMAT quotes the entry, CT_ELIMIT, CT_ENOMEM. */
CT_MUST_CHECK int ct_hosts_parse(struct ct_hosts *hosts, const char *text, struct ct_err *err);

/* Adds the hosts of a hostfile's text; `path` names it in errors, with the line. */
CT_MUST_CHECK int ct_hosts_parse_file(struct ct_hosts *hosts, const char *text, size_t len,
                                      const char *path, struct ct_err *err);

/* Reads the file first: CT_ENOENT, CT_EIO, CT_ELIMIT and what ct_hosts_parse_file() says. */
CT_MUST_CHECK int ct_hosts_read(struct ct_hosts *hosts, const char *path, struct ct_err *err);

#endif
