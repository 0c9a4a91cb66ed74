/* SPDX-License-Identifier: Apache-2.0
 *
 * What the back ends' links share. link.c checks arguments, stamps the progress page, remembers
 * that a link has died, and dispatches; a back end does the work.
 */
#ifndef CT_WORKER_COMM_LINK_H
#define CT_WORKER_COMM_LINK_H

#include "worker/comm/comm.h"

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

/* What a ring has at least, so that short messages seldom wait. */
#define LINK_RING_MIN ((size_t)64 * 1024)

/* For ctw_comm_ops.link: between ranks of one machine, and of two. */
CT_MUST_CHECK int link_shm_open(struct ctw_comm *comm, int peer, size_t buffer,
                                struct ctw_link **out, struct ct_err *err);
CT_MUST_CHECK int link_net_open(struct ctw_comm *comm, int peer, size_t buffer,
                                struct ctw_link **out, struct ct_err *err);

/* For those: a ring, whose size is a power of two, for a message of `buffer` bytes and its head. */
size_t link_ring_size(size_t buffer, size_t head);

/* CT_EPROTO when another message comes than is expected. */
CT_MUST_CHECK int link_check_message(uint64_t bytes, int64_t tag, size_t want_bytes, int want_tag,
                                     struct ct_err *err);

#endif
