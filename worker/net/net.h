/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaders of a job's hosts and their connections. Local rank 0 of each host is its leader; a
 * leader is one thread and all its sockets are non-blocking.
 *
 * Every two leaders share a control connection. It carries no numbers, only why a communicator has
 * ended, for which host this one has been waiting half of its deadline, and goodbye. It breaks when
 * a leader dies, so every host learns of a death at once. Numbers have connections of their own,
 * the links: to the next host of the ring, from the previous one and, where the number of hosts is
 * a power of two, to the partners at distance 1, 2, 4, ...
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

/* One control connection per other host: more would need more descriptors than processes get. */
#define NET_HOSTS_MAX 512

/* A frame on a control connection is this, then its text. */
#define NET_TEXT_MAX 512
struct net_frame {
    uint32_t kind, len; /* of the text */
};

/* Before the bytes of each step on a link. */
struct net_header {
    uint32_t op; /* enum host_op */
    int32_t arg; /* root or kind of memory */
    uint64_t size, number;
    uint32_t step, magic;
};

struct net_link {
    int fd, node;
    bool within; /* between the header and the end of a step */
};

#define NET_NAME_MAX 128
struct net_peer {
    int fd;    /* control connection; -1 once it is lost, and for this host itself */
    bool left; /* has said goodbye */
    /* The host for which it waits, as its last message says; -1: none. For this host itself: what
     * it told the others last. In a ring each host waits for its neighbour, so the host that stands
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
    const int *names;   /* of two ranks: what messages call them; NULL: these are hosts */
    struct net_peer *peers;
    struct net_link *links;
    int link_count;
    int epoll;                                    /* of the control connections */
    uint64_t number;                              /* of the operation at hand */
    char story[NET_NAME_MAX + NET_TEXT_MAX + 16]; /* of the failure, as it came from another host */
};

/* Collective among the leaders, `sync` being joined. The store carries addresses and a secret, by
 * which both ends of a connection prove that they belong to this communicator. On failure nothing
 * is left open. */
CT_MUST_CHECK int net_open(struct net *net, const struct comm_setup *setup, struct sync *sync,
                           struct ct_err *err);

/* The same between two ranks on different hosts. Each counts as a host with one rank. `names` are
 * the ranks' numbers in messages; they are borrowed. */
CT_MUST_CHECK int net_open_pair(struct net *net, const struct comm_setup *setup, const int names[2],
                                struct ct_err *err);

/* Says goodbye unless the communicator has failed. Zeroed memory is allowed. */
void net_close(struct net *net, bool failed);

/* Tells all leaders why the communicator has ended. Where another host has told the reason, it is
 * passed on. Does not wait. */
void net_tell(struct net *net, const char *why);

/* Reads the news without waiting. CT_EPEER names the host that died or says what it told. */
CT_MUST_CHECK int net_look(struct net *net, struct ct_err *err);

/* CT_EPEER when a host has closed its communicator, or a rank its link. */
CT_MUST_CHECK int net_anyone_left(const struct net *net, struct ct_err *err);

/* A link has ended. The control connection knows why, or will in a moment. Returns CT_EPEER. */
CT_MUST_CHECK int net_lost(struct net *net, const struct net_link *link, int errnum,
                           struct ct_err *err);

/* Waits until `in` has bytes, `out` has room (each may be NULL) or, with `starving`, some tens of
 * microseconds have passed. Ends with what ended the communicator: news, a local rank's death or
 * abort, a peer that does something else, the deadline. */
CT_MUST_CHECK int net_wait(struct net *net, const struct net_link *out, const struct net_link *in,
                           bool starving, const struct net_header *mine, int64_t deadline,
                           struct ct_err *err);

/* Call it when numbers have been sent or received. If the others were told that this host waits,
 * they are told that it does not any more. */
void net_moved(struct net *net);

#define NET_MAGIC 0x63747731u

/* CT_EPROTO when the peer does something else. */
CT_MUST_CHECK int net_check(const struct net *net, int node, const struct net_header *theirs,
                            const struct net_header *mine, struct ct_err *err);

#endif
