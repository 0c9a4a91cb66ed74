/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaders of a job's hosts and their connections. Local rank 0 of each host is its leader. A
 * leader is one thread, and all its sockets are non-blocking.
 *
 * Every two leaders share a control connection. It carries no numbers, only three messages: why a
 * communicator has ended, for which host the sender has been waiting half of its deadline, and
 * goodbye. It breaks when a leader dies, so every host learns of a death at once. Numbers have
 * other connections, the links: to the next host of the ring, from the previous one and, if the
 * number of hosts is a power of two, to the partners at distance 1, 2, 4, ...
 * Two ranks that exchange messages (worker/net/link_net.c) are a ring of two such hosts.
 *
 * Numbers and headers are sent in the byte order of the machine; the greeting checks that both ends
 * have the same one.
 */
#ifndef CT_WORKER_NET_NET_H
#define CT_WORKER_NET_NET_H

#include "worker/comm/comm.h"
#include "worker/net/schedule.h"
#include "worker/shm/sync.h"

/* Each other host costs a control connection; more would exceed the usual limit of descriptors. */
#define NET_HOSTS_MAX 512

/* A frame on a control connection is this header, then its text. */
#define NET_TEXT_MAX 512
struct net_frame {
    uint32_t kind, len; /* of the text */
};

/* Sent on a link before the bytes of each step. */
struct net_header {
    uint32_t op; /* enum host_op */
    int32_t arg; /* root or kind of memory */
    uint64_t size, number;
    uint32_t step, magic;
};

struct net_link {
    int fd, node;
    bool within; /* true from the header of a step until its last byte */
};

#define NET_NAME_MAX 128
struct net_peer {
    int fd;    /* control connection; -1 once it is lost, and for this host itself */
    bool left; /* this peer has said goodbye */
    /* The host for which it waits, as its last message says; -1: none. For this host itself: what
     * it last told the others. In a ring each host waits for its neighbour, so the host that stands
     * still is the one at the end of this chain. */
    int32_t waits_for;
    int first, size;         /* its ranks */
    char name[NET_NAME_MAX]; /* "host 1 (10.0.0.2, ranks 2 to 3)" */
    size_t have;
    unsigned char in[sizeof(struct net_frame) + NET_TEXT_MAX]; /* a frame that is not whole yet */
};

struct net {
    int node, nodes, rank;
    int64_t timeout_ms; /* of every wait */
    struct sync *sync;  /* of this host; borrowed; NULL between two ranks */
    const int *names;   /* between two ranks: their numbers in messages; NULL: these are hosts */
    struct net_peer *peers;
    struct net_link *links;
    int link_count;
    int epoll;                                    /* of the control connections */
    uint64_t number;                              /* number of the current operation */
    char story[NET_NAME_MAX + NET_TEXT_MAX + 16]; /* of the failure, as another host has told it */
};

/* Collective among the leaders, after sync_join(). The store carries the addresses and a secret, by
 * which both ends of a connection prove that they belong to this communicator. On failure nothing
 * is left open. */
CT_MUST_CHECK int net_open(struct net *net, const struct comm_setup *setup, struct sync *sync,
                           struct ct_err *err);

/* The same between two ranks on different hosts. Each counts as a host with one rank. `names` are
 * the ranks' numbers in messages; they are borrowed. */
CT_MUST_CHECK int net_open_pair(struct net *net, const struct comm_setup *setup, const int names[2],
                                struct ct_err *err);

/* Says goodbye, unless the communicator has failed, and closes. Zeroed memory is allowed. */
void net_close(struct net *net, bool failed);

/* Tells all leaders why the communicator has ended. If another host has reported the reason, that
 * one is passed on. Does not wait. */
void net_tell(struct net *net, const char *why);

/* Reads control frames without waiting. The message of CT_EPEER names the host that died, or
 * repeats the reason that it has sent. */
CT_MUST_CHECK int net_look(struct net *net, struct ct_err *err);

/* CT_EPEER if a host has closed its communicator, or a rank its link. */
CT_MUST_CHECK int net_anyone_left(const struct net *net, struct ct_err *err);

/* A link has ended: waits a moment for the reason on the control connection. Returns CT_EPEER. */
CT_MUST_CHECK int net_lost(struct net *net, const struct net_link *link, int errnum,
                           struct ct_err *err);

/* Waits until `in` has bytes, `out` has room (each may be NULL) or, with `starving`, some tens of
 * microseconds have passed. Fails if something ends the communicator: a control frame, the death or
 * abort of a local rank, a peer that calls another operation, or the deadline, which
 * ct_deadline_put_off() may move. */
CT_MUST_CHECK int net_wait(struct net *net, const struct net_link *out, const struct net_link *in,
                           bool starving, const struct net_header *mine, int64_t *deadline,
                           struct ct_err *err);

/* Call it when numbers have been sent or received. If this host has told the others that it waits,
 * it now tells them that it does not. */
void net_moved(struct net *net);

#define NET_MAGIC 0x63747731u

/* CT_EPROTO if the peer's header is of another operation. */
CT_MUST_CHECK int net_check(const struct net *net, int node, const struct net_header *theirs,
                            const struct net_header *mine, struct ct_err *err);

#endif
