/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens communicators: chooses the back end by the options, the ranks and the machines.
 */
#include "worker/open/comm_open.h"

#include "worker/job/job.h"
#include "worker/open/crew.h"

#include <stdio.h>

static int check_order(const struct ctw_comm_options *options, int size, struct ct_err *err)
{
    if (options->order == CTW_ORDER_TREE && size > 1 && options->backend == CTW_BACKEND_NCCL &&
        options->tree_sum == NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "NCCL adds in an order of its own: for a tree it needs a tree_sum");
    }
    return comm_check_order(options->order, size, err);
}

int comm_open_without_gpus(const struct comm_setup *setup, struct ctw_comm **out,
                           struct ct_err *err)
{
    if (setup->size == 1) {
        return comm_solo_open(setup, out, err);
    }
    return setup->local_size < setup->size ? comm_net_open(setup, out, err)
                                           : comm_host_open(setup, out, err);
}

static int open_in_crew(struct ctw_crew *crew, struct comm_setup *setup, enum ctw_backend backend,
                        struct ctw_comm **out, struct ct_err *err)
{
    if (backend != CTW_BACKEND_NCCL) {
        return ct_err_set(err, CT_EUNSUPPORTED, "ranks of one process have NCCL only");
    }
    crew_setup(crew, setup);
    int rc = comm_nccl_open(setup, out, err);
    if (rc != 0) {
        ctw_crew_abort(crew); /* no rank waits for this one any more */
    }
    return rc;
}

int ctw_comm_open(struct ctw_job *job, const struct ctw_comm_options *options,
                  struct ctw_comm **out, struct ct_err *err)
{
    const struct ctw_comm_options defaults = {.backend = CTW_BACKEND_HOST};
    const struct ctw_comm_options *use = options != NULL ? options : &defaults;
    if (job == NULL || out == NULL || use->timeout_ms < 0 || use->device < 0 ||
        (use->backend != CTW_BACKEND_HOST && use->backend != CTW_BACKEND_NCCL) ||
        (use->order != CTW_ORDER_RANK && use->order != CTW_ORDER_TREE)) {
        return ct_err_set(err, CT_EINVAL, "ctw_comm_open: invalid argument");
    }
    int rc = job->crew == NULL ? job_need_store(job, err) : 0;
    if (rc != 0) {
        return rc;
    }
    bool several = job->env.local_world_size < job->env.world_size;
    struct comm_origin origin = {
        .job = job,
        .timeout_ms = use->timeout_ms > 0 ? use->timeout_ms : COMM_TIMEOUT_MS,
        .order = use->order,
    };
    (void)snprintf(origin.name, sizeof(origin.name), "comm/%u", job->comms++);
    struct comm_setup setup = comm_setup_of(&origin);
    setup.rank = job->env.rank;
    setup.size = job->env.world_size;
    setup.local_rank = job->env.local_rank;
    setup.local_size = job->env.local_world_size;
    if (several) {
        setup.node = job->env.node_rank;
        setup.nodes = job->env.node_count;
        setup.first = job->env.rank - job->env.local_rank;
    }
    setup.tree_sum = use->order == CTW_ORDER_TREE ? use->tree_sum : NULL;
    setup.tree_sum_data = use->tree_sum_data;
    setup.device = use->device;
    setup.stream = use->stream;
    struct ctw_comm *comm;
    rc = check_order(use, setup.size, err);
    if (rc != 0) {
        /* the failure is wrapped below */
    } else if (job->crew != NULL) {
        rc = open_in_crew(job->crew, &setup, use->backend, &comm, err);
    } else if (use->backend == CTW_BACKEND_NCCL) {
        rc = comm_nccl_open(&setup, &comm, err);
    } else {
        rc = comm_open_without_gpus(&setup, &comm, err);
    }
    if (rc != 0) {
        (void)ct_err_wrap(err, "rank %d cannot open a communicator", setup.rank);
        return rc;
    }
    comm->progress = &job->progress;
    comm->origin = origin;
    *out = comm;
    return 0;
}
