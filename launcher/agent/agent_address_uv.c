/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides what workers are told about the way to the store and to other machines: MASTER_ADDR, and
 * the network interface, if this machine's own name does not lead to a usable one.
 *
 * Happy path: the name is looked up while the link to the membership is opened. The agent hears
 * that the link is up when both are done. For each world the decision is made anew.
 *
 * Failure modes: a name that is not resolved in time counts as one without an address.
 *
 * Who frees: close_all() of agent_uv.c, through ct_agent_address_close().
 */
#include "launcher/agent/agent_run_uv.h"

#include "launcher/setup/interface.h"

#include <stdio.h>

/* Has this node reached the job's store through the loopback? */
static bool came_by_loopback(const struct ct_agent_store *store, const struct ct_link *link)
{
    struct sockaddr_storage own;
    socklen_t len;
    return store->server != NULL ? store->on_loopback
                                 : ct_addr_literal(ct_link_local_address(link), 0, &own, &len) &&
                                       ct_addr_is_loopback((const struct sockaddr *)&own);
}

void ct_agent_address_choose_master(struct ct_agent_run *run, const char *told)
{
    run->worker_env.master_addr = ct_store_address_master(
        &run->store.address, told, came_by_loopback(&run->store, run->membership.link),
        run->address.store);
}

/* ---- the interface -------------------------------------------------------------------------- */

/* "" if no other machine has connected to this one, which hosts the store. */
static const char *own_address(const struct ct_agent_run *run)
{
    return run->store.server != NULL || came_by_loopback(&run->store, run->membership.link)
               ? run->address.store
               : ct_link_local_address(run->membership.link);
}

const char *ct_agent_address_here(const struct ct_agent_run *run)
{
    const char *address = own_address(run);
    return address[0] != '\0' ? address : "127.0.0.1";
}

void ct_agent_address_choose_interface(struct ct_agent_run *run)
{
    const struct ct_interface_facts *facts = &run->address.search.facts;
    const char *address = own_address(run);
    run->address.interface[0] = '\0';
    if (facts->named || run->membership.node_count < 2 || !ct_interface_is_open(run->job->env)) {
        return;
    }
    if (facts->local[0] != '\0') {
        (void)snprintf(run->address.interface, sizeof(run->address.interface), "%s", facts->local);
    } else if (!ct_interface_of_text(address, run->address.interface)) {
        return; /* all nodes are on this machine */
    }
    ct_log(&run->log, CT_LOG_INFO,
           "the name %s means %s on this machine: workers are told interface %s", facts->name,
           facts->means[0] != '\0' ? facts->means : "nothing", run->address.interface);
}

static void go_up(struct ct_agent_run *run)
{
    if (run->address.link_is_up) {
        run->address.link_is_up = false;
        ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_UP});
    }
}

static void on_found(void *data)
{
    struct ct_agent_run *run = data;
    run->worker_env.nccl_configured = run->address.search.facts.nccl_configured;
    go_up(run);
}

void ct_agent_address_open(struct ct_agent_run *run)
{
    const struct ct_job_spec *job = run->job;
    run->worker_env.interface = run->address.interface;
    if (job->resolved->shared && ct_interface_is_open(job->env)) {
        ct_interface_search_start(&run->address.search, &run->loop, job->machine->host,
                                  job->options->local_addr, job->env, on_found, run);
    }
}

void ct_agent_address_link_up(struct ct_agent_run *run)
{
    run->address.link_is_up = true;
    if (!run->address.search.pending) {
        go_up(run);
    }
}

void ct_agent_address_close(struct ct_agent_address *address)
{
    address->link_is_up = false;
    ct_interface_search_stop(&address->search);
}
