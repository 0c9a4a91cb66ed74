/* SPDX-License-Identifier: Apache-2.0
 *
 * What the back ends' links share. link.c checks arguments, stamps the progress page, remembers
 * that a link has died, and dispatches; a back end does the work.
 */
#ifndef CT_WORKER_LINK_H
#define CT_WORKER_LINK_H

#include "worker/comm.h"

struct ctw_link_ops {
    int (*send)(struct ctw_link *link, const void *buf, size_t bytes, int tag, struct ct_err *err);
    int (*recv)(struct ctw_link *link, void *buf, size_t bytes, int tag, struct ct_err *err);
    void (*abort)(struct ctw_link *link); /* at most once; only close() follows */
    void (*close)(struct ctw_link *link); /* frees the link itself, too */
};

/* Each back end's link embeds this first. What opens one sets `ops` alone, zeroes the rest and
 * leaves it to link.c. */
struct ctw_link {
    const struct ctw_link_ops *ops;
    struct progress_page *progress; /* of the job */
    int peer;                       /* as the communicator numbers it */
    int dead;                       /* code of the failure that ended it, 0 while alive */
    struct ct_err reason;           /* of that failure */
};

/* For ctw_comm_ops.link: between ranks of one machine. */
CT_MUST_CHECK int link_shm_open(struct ctw_comm *comm, int peer, size_t buffer,
                                struct ctw_link **out, struct ct_err *err);

#endif
