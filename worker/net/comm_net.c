/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives between the processes of several hosts. Within a host they use shared memory
 * (worker/shm/host.h), as comm_host.c does. Between hosts, one leader per host uses TCP
 * (worker/net/net.h).
 *
 * A sum: the ranks of a host add their numbers into one shared array, in the order in which the
 * leader needs them (worker/net/leader_sum.h). Meanwhile the leader already sends and receives
 * (worker/net/schedule_run.h), and adds or stores in that array what comes from other hosts. So
 * every host ends with the whole sum, which was computed once and then copied: the same bits
 * everywhere.
 *
 * reduce_scatter therefore gives each rank a share of its own host's array, because parameters are
 * in the shared memory of a host. Shares over the ranks of all hosts would not be cheaper, since
 * the ranks would then have to exchange what they compute from them.
 *
 * Private memory of the caller passes through a staging buffer of the same size.
 *
 * The deadlines are staggered, so that the rank that knows the cause reports first: a leader that
 * waits for its ranks, then leaders that wait for each other, then ranks that wait for their
 * leader.
 */
#include "worker/comm/comm.h"

#include "common/alloc.h"
#include "worker/comm/link.h"
#include "worker/net/schedule_run.h"
#include "worker/shm/staging.h"

#include <string.h>

/* Up to this size each host exchanges whole arrays, because latency costs more than bytes. */
#define SMALL_BYTES ((size_t)64 * 1024)

/* The first two of these deadlines, in tenths of the timeout. */
enum { LOCAL_TENTHS = 8, NET_TENTHS = 9 };

struct net_comm {
    struct ctw_comm comm;
    struct host *host;
    struct net net; /* zeroed if this rank is not the leader */
    bool leader, tree;
    int node, nodes;
    struct schedule schedule;
    struct view_piece *pieces; /* one per rank of this host */
    unsigned char *scratch, *copies;
    struct staging staging; /* for the caller's private memory */
};

static struct net_comm *self(struct ctw_comm *comm)
{
    return (struct net_comm *)comm;
}

/* ---- what leaders do ------------------------------------------------------------------------- */

static void choose_schedule(struct net_comm *c, size_t bytes)
{
    if (bytes <= SMALL_BYTES && schedule_power_of_two(c->nodes)) {
        schedule_doubling(&c->schedule, c->node, c->nodes, bytes);
    } else if (c->tree && c->nodes > 2) {
        schedule_tree(&c->schedule, c->node, c->nodes, bytes);
    } else {
        /* Between two hosts the ring adds in the order of the tree, and passes bytes on sooner. */
        schedule_ring(&c->schedule, c->node, c->nodes, bytes);
    }
}

/* On the leader: runs the schedule. On all ranks: ends with a barrier of the host. */
static int run_schedule(struct net_comm *c, const struct sync_desc *mine, const struct view *view,
                        const unsigned char *own, const struct leader_sum *own_sum,
                        struct ct_err *err)
{
    if (c->leader) {
        const struct schedule_run flow = {.net = &c->net,
                                          .schedule = &c->schedule,
                                          .view = *view,
                                          .own = own,
                                          .own_sum = own_sum,
                                          .scratch = c->scratch,
                                          .copies = c->copies};
        const struct net_header header = {.op = mine->op, .arg = mine->arg, .size = mine->size};
        int rc = schedule_run(&flow, &header, err);
        if (rc != 0) {
            return rc;
        }
    }
    return sync_barrier(&c->host->sync, err);
}

/* A barrier of all ranks of all hosts. */
static int barrier_of_hosts(struct net_comm *c, const struct sync_desc *mine, struct ct_err *err)
{
    const struct view nothing = {0};
    choose_schedule(c, 0);
    return run_schedule(c, mine, &nothing, NULL, NULL, err);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* Sums the sources of all hosts into `view`. */
static int reduce_into(struct net_comm *c, const struct sync_desc *mine, const struct view *view,
                       size_t bytes, struct ct_err *err)
{
    struct host *host = c->host;
    choose_schedule(c, bytes);
    const struct leader_sum own_sum = {.host = host, .schedule = &c->schedule, .view = *view};
    if (bytes > SMALL_BYTES) {
        if (!c->leader) {
            leader_sum_work(&own_sum);
        }
        return run_schedule(c, mine, view, NULL, &own_sum, err);
    }
    size_t begin, end;
    sum_share(bytes / sizeof(float), host->comm.rank, host->comm.size, &begin, &end);
    leader_sum_add(&own_sum, begin * sizeof(float), end * sizeof(float));
    int rc = sync_barrier(&host->sync, err);
    if (rc != 0) {
        return rc;
    }
    return run_schedule(c, mine, view, NULL, NULL, err);
}

static int net_all_reduce(struct ctw_comm *comm, const float *send, float *recv, size_t count,
                          struct ct_err *err)
{
    struct net_comm *c = self(comm);
    struct host *host = c->host;
    size_t bytes = count * sizeof(float);
    struct sync_desc mine = {.op = HOST_OP_ALL_REDUCE, .size = count};
    int rc = host_locate(host, send, recv, bytes, &mine, err);
    if (rc != 0) {
        return rc;
    }
    leader_sum_begin(host);
    rc = host_begin(host, &mine, err);
    if (rc != 0) {
        return rc;
    }
    struct view_piece whole = {.start = (unsigned char *)recv, .end = bytes};
    const struct view view = {&whole, 1};
    if (host->comm.size == 1) {
        /* This host has only one rank, so the sum may be in private memory. */
        choose_schedule(c, bytes);
        const unsigned char *own = send == recv ? NULL : (const unsigned char *)send;
        return run_schedule(c, &mine, &view, own, NULL, err);
    }
    rc = staging_sources(&c->staging, host, send, bytes, err);
    if (rc != 0) {
        return rc;
    }
    bool staged = !host_same_target(host);
    if (staged) {
        rc = staging_reserve(&c->staging, host, bytes, err);
        if (rc != 0) {
            return rc;
        }
        whole.start = c->staging.sum;
    }
    rc = reduce_into(c, &mine, &view, bytes, err);
    if (rc != 0) {
        return rc;
    }
    if (staged && bytes > 0) {
        /* No rank writes the next sum before this one has reached the next barrier. */
        memcpy(recv, c->staging.sum, bytes);
    }
    return 0;
}

static int net_reduce_scatter(struct ctw_comm *comm, float *buf, size_t count, size_t *begin,
                              size_t *end, struct ct_err *err)
{
    struct net_comm *c = self(comm);
    struct host *host = c->host;
    struct sync_desc mine = {.op = HOST_OP_REDUCE_SCATTER, .size = count, .recv = ARENA_PRIVATE};
    size_t bytes = count * sizeof(float);
    int rc = host_locate_own(host, buf, bytes, &mine, err);
    if (rc != 0) {
        return rc;
    }
    leader_sum_begin(host);
    bool all_shared;
    rc = host_begin_sum(host, &mine, bytes, &all_shared, err);
    if (rc != 0) {
        return rc;
    }
    size_t from = 0, to = 0;
    for (int r = 0; r < host->comm.size; r++) {
        sum_share(count, r, host->comm.size, &from, &to);
        c->pieces[r] = (struct view_piece){
            .start =
                arena_resolve(&host->arena, CTW_MEMORY_OWN, r, host_desc(host, r)->send, bytes),
            .end = to * sizeof(float),
        };
    }
    const struct view view = {c->pieces, (size_t)host->comm.size};
    if (host->comm.size == 1) {
        choose_schedule(c, bytes);
        rc = run_schedule(c, &mine, &view, NULL, NULL, err);
    } else {
        rc = reduce_into(c, &mine, &view, bytes, err);
    }
    if (rc != 0) {
        return rc;
    }
    sum_share(count, host->comm.rank, host->comm.size, begin, end);
    return 0;
}

/* ---- broadcast, barrier and memory ----------------------------------------------------------- */

static int node_of(const struct net_comm *c, int rank)
{
    int node = 0;
    while (node + 1 < c->nodes && rank >= c->net.peers[node + 1].first) {
        node++;
    }
    return node;
}

static int net_broadcast(struct ctw_comm *comm, void *buf, size_t bytes, int root,
                         struct ct_err *err)
{
    struct net_comm *c = self(comm);
    struct host *host = c->host;
    struct sync_desc mine = {
        .op = HOST_OP_BROADCAST, .arg = root, .size = bytes, .send = ARENA_PRIVATE};
    int rc = arena_locate(&host->arena, CTW_MEMORY_SHARED, buf, bytes, &mine.recv, err);
    if (rc != 0) {
        return rc;
    }
    rc = host_begin(host, &mine, err);
    if (rc != 0) {
        return rc;
    }
    bool staged = host->comm.size > 1 && !host_same_target(host);
    if (staged) {
        rc = staging_reserve(&c->staging, host, bytes, err);
        if (rc != 0) {
            return rc;
        }
        if (comm->rank == root && bytes > 0) {
            memcpy(c->staging.sum, buf, bytes);
        }
        rc = sync_barrier(&host->sync, err);
        if (rc != 0) {
            return rc;
        }
    }
    const struct view_piece whole = {.start = staged ? c->staging.sum : buf, .end = bytes};
    const struct view view = {&whole, 1};
    if (c->leader) {
        schedule_broadcast(&c->schedule, c->node, c->nodes, node_of(c, root), bytes);
    }
    rc = run_schedule(c, &mine, &view, NULL, NULL, err);
    if (rc != 0) {
        return rc;
    }
    if (staged && comm->rank != root && bytes > 0) {
        memcpy(buf, c->staging.sum, bytes);
    }
    return 0;
}

static int net_barrier(struct ctw_comm *comm, struct ct_err *err)
{
    struct net_comm *c = self(comm);
    const struct sync_desc mine = {
        .op = HOST_OP_BARRIER, .send = ARENA_PRIVATE, .recv = ARENA_PRIVATE};
    int rc = host_begin(c->host, &mine, err);
    if (rc != 0) {
        return rc;
    }
    return barrier_of_hosts(c, &mine, err);
}

static int net_alloc(struct ctw_comm *comm, enum ctw_memory kind, size_t bytes, void **out,
                     struct ct_err *err)
{
    struct net_comm *c = self(comm);
    const struct sync_desc mine = {.op = HOST_OP_ALLOC, .arg = (int32_t)kind, .size = bytes};
    void *block;
    int rc = host_alloc(&c->host->comm, kind, bytes, &block, err);
    if (rc != 0) {
        return rc;
    }
    rc = barrier_of_hosts(c, &mine, err);
    if (rc != 0) {
        return rc;
    }
    *out = block;
    return 0;
}

static int net_poll(struct ctw_comm *comm, struct ct_err *err)
{
    struct net_comm *c = self(comm);
    int rc = sync_poll(&c->host->sync, err);
    if (rc != 0 || !c->leader) {
        return rc;
    }
    rc = net_look(&c->net, err);
    if (rc != 0) {
        return rc;
    }
    return net_anyone_left(&c->net, err);
}

static int net_sync(struct ctw_comm *comm, struct ct_err *err)
{
    (void)comm;
    (void)err;
    return 0;
}

static void net_abort(struct ctw_comm *comm)
{
    struct net_comm *c = self(comm);
    if (c->leader) {
        net_tell(&c->net, comm->reason.text);
        if (comm->dead == CT_EPEER || comm->dead == CT_ETIMEDOUT || comm->dead == CT_EPROTO) {
            sync_tell(&c->host->sync, comm->reason.text);
        }
    }
    sync_abort(&c->host->sync);
}

static int net_link_open(struct ctw_comm *comm, int peer, size_t buffer, struct ctw_link **out,
                         struct ct_err *err)
{
    const struct host *host = self(comm)->host;
    bool here = peer >= host->first && peer < host->first + host->comm.size;
    return here ? link_shm_open(comm, peer, buffer, out, err)
                : link_net_open(comm, peer, buffer, out, err);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void net_comm_close(struct ctw_comm *comm)
{
    struct net_comm *c = self(comm);
    net_close(&c->net, comm->dead != 0);
    host_free(c->host);
    schedule_fini(&c->schedule);
    ct_free(c->pieces);
    ct_free(c->scratch);
    ct_free(c->copies);
    ct_free(c);
}

static const struct ctw_comm_ops net_ops = {
    .close = net_comm_close,
    .alloc = net_alloc,
    .all_reduce = net_all_reduce,
    .reduce_scatter = net_reduce_scatter,
    .broadcast = net_broadcast,
    .barrier = net_barrier,
    .poll = net_poll,
    .sync = net_sync,
    .abort = net_abort,
    .link = net_link_open,
};

static int look_at_hosts(void *data, struct ct_err *err)
{
    return net_look(data, err);
}

static int64_t tenths(int64_t timeout_ms, int n)
{
    return timeout_ms / 10 * n + timeout_ms % 10 * n / 10 + 1;
}

/* Leaders connect to each other while the other ranks wait for their leader. */
static int join_hosts(struct net_comm *c, const struct comm_setup *setup, struct ct_err *err)
{
    struct sync *sync = &c->host->sync;
    if (c->leader) {
        struct comm_setup among = *setup;
        among.timeout_ms = tenths(setup->timeout_ms, NET_TENTHS);
        int rc = net_open(&c->net, &among, sync, err);
        if (rc != 0) {
            struct ct_err why = {0};
            (void)ct_err_set(&why, rc, "rank %d: %s", setup->rank,
                             err != NULL ? err->text : "cannot reach the other hosts");
            sync_tell(sync, why.text);
            return rc;
        }
        sync->look = look_at_hosts;
        sync->look_data = &c->net;
    }
    return sync_barrier(sync, err);
}

static int open_host(struct net_comm *c, const struct comm_setup *setup, struct ct_err *err)
{
    struct comm_setup inside = *setup;
    inside.rank = setup->local_rank;
    inside.size = setup->local_size;
    if (c->leader) {
        inside.timeout_ms = tenths(setup->timeout_ms, LOCAL_TENTHS);
    }
    struct host *host;
    int rc = host_open(&inside, &host, err);
    if (rc != 0) {
        return rc;
    }
    rc = host_join(host, err);
    if (rc != 0) {
        return rc;
    }
    c->host = host;
    return 0;
}

static int make_room(struct net_comm *c, const struct comm_setup *setup, struct ct_err *err)
{
    int rc = schedule_init(&c->schedule, setup->nodes);
    c->pieces = ct_calloc((size_t)setup->local_size, sizeof(*c->pieces));
    if (c->leader) {
        c->scratch = ct_malloc(SCHEDULE_SCRATCH);
        c->copies = ct_malloc(SMALL_BYTES);
    }
    bool all =
        rc == 0 && c->pieces != NULL && (!c->leader || (c->scratch != NULL && c->copies != NULL));
    return all ? 0 : ct_err_set(err, CT_ENOMEM, "out of memory");
}

static int check_setup(const struct comm_setup *setup, struct ct_err *err)
{
    if (setup->nodes < 2 || setup->first < 0) {
        return ct_err_set(err, CT_EINVAL,
                          "%d of %d ranks are on this host, but GROUP_WORLD_SIZE is %d and "
                          "LOCAL_RANK %d",
                          setup->local_size, setup->size, setup->nodes, setup->local_rank);
    }
    if (setup->order == CTW_ORDER_TREE &&
        (!schedule_power_of_two(setup->nodes) || !schedule_power_of_two(setup->local_size))) {
        return ct_err_set(err, CT_EINVAL,
                          "%d hosts with %d ranks here cannot add as a balanced tree: both must be "
                          "powers of two",
                          setup->nodes, setup->local_size);
    }
    return 0;
}

int comm_net_open(const struct comm_setup *setup, struct ctw_comm **out, struct ct_err *err)
{
    int rc = check_setup(setup, err);
    if (rc != 0) {
        return rc;
    }
    struct net_comm *c = ct_calloc(1, sizeof(*c));
    if (c == NULL) {
        return ct_err_set(err, CT_ENOMEM, "out of memory");
    }
    c->comm = (struct ctw_comm){.ops = &net_ops,
                                .rank = setup->rank,
                                .size = setup->size,
                                .node = setup->node,
                                .backend = CTW_BACKEND_HOST};
    c->leader = setup->local_rank == 0;
    c->tree = setup->order == CTW_ORDER_TREE;
    c->node = setup->node;
    c->nodes = setup->nodes;
    rc = make_room(c, setup, err);
    if (rc != 0) {
        goto fail;
    }
    rc = open_host(c, setup, err);
    if (rc != 0) {
        goto fail;
    }
    rc = join_hosts(c, setup, err);
    if (rc != 0) {
        sync_abort(&c->host->sync);
        goto fail;
    }
    *out = &c->comm;
    return 0;
fail:
    c->comm.dead = rc;
    net_comm_close(&c->comm);
    return rc;
}
