/* SPDX-License-Identifier: Apache-2.0
 *
 * What the back ends' links share. link.c checks arguments, writes the progress page, remembers
 * failures and dispatches; a back end does the work.
 */
#ifndef CT_WORKER_COMM_LINK_H
#define CT_WORKER_COMM_LINK_H

#include "worker/comm/comm.h"

struct ctw_link_ops {
    int (*send)(struct ctw_link *link, const void *buf, size_t bytes, int tag, struct ct_err *err);
    int (*recv)(struct ctw_link *link, void *buf, size_t bytes, int tag, struct ct_err *err);
    void (*abort)(struct ctw_link *link); /* at most once; only close() follows */
    void (*close)(struct ctw_link *link); /* frees the link, too */
};

/* Each back end's link embeds this first. The back end's open function sets only `ops` and zeroes
 * the rest; link.c fills it in. */
struct ctw_link {
    const struct ctw_link_ops *ops;
    struct progress_page *progress; /* of the job */
    int peer;                       /* its rank in the communicator */
    int dead;                       /* code of the failure that ended it, 0 while alive */
    struct ct_err reason;           /* of that failure */
};

/* The least size of a ring, so that short messages seldom wait. */
#define LINK_RING_MIN ((size_t)64 * 1024)

/* The back ends' ctw_comm_ops.link: between ranks of one machine, and of two machines. */
CT_MUST_CHECK int link_shm_open(struct ctw_comm *comm, int peer, size_t buffer,
                                struct ctw_link **out, struct ct_err *err);
CT_MUST_CHECK int link_net_open(struct ctw_comm *comm, int peer, size_t buffer,
                                struct ctw_link **out, struct ct_err *err);

/* Returns the size, a power of two, of a ring for a message of `buffer` bytes and its head. */
size_t link_ring_size(size_t buffer, size_t head);

/* CT_EPROTO if the message that came is not the one that is expected. */
CT_MUST_CHECK int link_check_message(uint64_t bytes, int64_t tag, size_t want_bytes, int want_tag,
                                     struct ct_err *err);

#endif
