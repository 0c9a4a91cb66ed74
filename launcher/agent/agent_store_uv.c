/* SPDX-License-Identifier: Apache-2.0
 *
 * The stores that this node serves: the job's, at which the agents meet, and the workers'.
 *
 * Happy path: bind the job's store where the options say, or find that it is another machine's. A
 * new generation empties the store. If node rank 0 does not host the job's store, it opens a second
 * one for the workers, at an address of its own.
 *
 * Other paths: at the end the host of the job's store stays until the other agents have left,
 * because the store and the membership end with it, and until those who watch the job have heard
 * how it has ended. --linger keeps it longer, so that its live page can be read.
 *
 * Failure modes: the address is this machine's, but the port is taken. Then another ctrun of this
 * job hosts the store, or another program has the port. The link to the membership finds out which
 * (agent_link_uv.c).
 *
 * Who frees: close_all() of agent_uv.c, through ct_agent_link_close().
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/clock.h"
#include "launcher/util/environ.h"
#include "rendezvous/admission/access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The other agents have no workers left when they hear that the job is over, so they leave soon. */
#define LEAVE_MS 5000

/* Admits this machine only. An agent that has proved the token adds its address. */
static const struct ct_access only_agents;

/* ct_listen() takes it for all addresses of the machine. */
#define ANY_ADDRESS "*"

static bool shared(const struct ct_job_spec *job)
{
    return job->resolved->shared;
}

/* ---- the store that the job meets at -------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    struct sockaddr_storage addr;
    socklen_t len;
    return ct_addr_resolve(host, 0, &addr, &len, NULL) == 0 &&
           ct_addr_is_loopback((const struct sockaddr *)&addr);
}

/* Warns about a store that has been opened on `host`, perhaps ANY_ADDRESS. Without a token it
 * trusts everybody who reaches its port, which the user should know. */
static void say_open(struct ct_agent_run *run, const char *host, uint16_t port, const char *may)
{
    const struct ct_job_spec *job = run->job;
    bool any = strcmp(host, ANY_ADDRESS) == 0;
    if (job->token != NULL || job->options->open || run->store.said_open ||
        (!any && is_loopback(host))) {
        return;
    }
    run->store.said_open = true;
    ct_agent_report_say(
        run->output,
        "there is no token: whoever reaches port %u of %.200s can %s; --token-file or "
        "CTRUN_TOKEN on every machine admits only the job's machines, --open accepts it",
        (unsigned)port, any ? "this machine" : host, may);
}

static const struct ct_control_station *station(const struct ct_agent_run *run)
{
    return run->failover.elector != NULL ? &run->failover.station : NULL;
}

static int host_store(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_store_address *address = &run->store.address;
    /* On other machines this name means another address, so the store must listen on all. */
    bool own_name = shared(job) && ct_store_address_is_own_name(address->host);
    bool any = own_name || ct_addr_is_any(address->host);
    /* "::" includes IPv4, as is Linux's default. */
    bool both = own_name || (any && strchr(address->host, ':') != NULL);
    const char *const hosts[] = {both ? ANY_ADDRESS : address->host, address->master};
    /* The scheduler's list names machines, but in shim mode the nodes are ranks. */
    bool named = job->resolved->mode != CT_MODE_SHIM;
    const struct ct_server_agents agents = {
        .token = job->token,
        .run_id = job->run_id,
        .in_process = !shared(job),
        .job = &run->membership.join,
        .expected = named ? job->expected : NULL,
        .num_expected = named ? job->num_expected : 0,
        .keep_job = job->options->linger > 0,
        .station = station(run),
    };
    const struct ct_server_options options = {
        .hosts = hosts,
        .num_hosts = any ? 1 : 2,
        .port = address->port,
        .access = job->token != NULL ? &only_agents : NULL,
        .own_user = !job->options->open,
        .page_name = address->master,
        .agents = &agents,
        .log = &run->log,
    };
    int rc = ct_server_open(&run->loop, &options, &run->store.server, err);
    run->store.on_loopback = any;
    if (rc != 0) {
        return rc;
    }
    ct_agent_failover_host_first(run);
    if (own_name) {
        ct_agent_report_say(
            run->output,
            "%s is the loopback on this machine (see /etc/hosts): the store listens on all "
            "its addresses, for the other machines",
            address->host);
    } else if (any && shared(job)) {
        ct_agent_report_say(
            run->output,
            "the store listens on all addresses of this machine (%s %s); the other nodes "
            "need one of them there",
            address->option, address->host);
    }
    const char *outer = any                          ? ANY_ADDRESS
                        : is_loopback(address->host) ? address->master
                                                     : address->host;
    say_open(run, outer, ct_server_port(run->store.server),
             shared(job) ? "read this job's status, write its keys, join it and end it"
                         : "read this job's status and write its keys");
    return 0;
}

/* A job that is not listed runs all the same. Nobody misses the list where it has no place at all,
 * as in a container without /tmp, or with a root that cannot be written. */
static void say_unlisted(struct ct_agent_run *run, const char *runtime_dir, const char *address,
                         const struct ct_err *why)
{
    bool no_place = why->sys == EROFS || (why->sys == ENOENT && runtime_dir == NULL);
    ct_log(&run->log, no_place || run->store.said_unlisted ? CT_LOG_INFO : CT_LOG_WARNING,
           "ctrun-stat does not list this job, and needs its address %s: %s", address, why->text);
    run->store.said_unlisted = run->store.said_unlisted || !no_place;
}

void ct_agent_store_reached(const struct ct_agent_run *run, char out[CT_ADDR_JOIN_MAX])
{
    const struct ct_agent_store *store = &run->store;
    bool here = store->server != NULL;
    ct_addr_join(here && store->on_loopback ? "127.0.0.1" : store->address.host,
                 here ? ct_server_port(store->server) : store->address.port, out, CT_ADDR_JOIN_MAX);
}

/* Enters the job among those of this machine. */
static void enter_registry(struct ct_agent_run *run)
{
    char folder[CT_JOB_FOLDER_MAX], address[CT_ADDR_JOIN_MAX], program[CT_JOB_PROGRAM_MAX];
    struct ct_err err = {0};
    const char *runtime_dir = ct_environ_get(run->job->env, "XDG_RUNTIME_DIR");
    ct_agent_store_reached(run, address);
    ct_job_registry_folder(runtime_dir, geteuid(), folder);
    ct_options_program(run->job->options, program);
    if (ct_job_registry_add(folder, address, run->job->run_id, program, &err) != 0) {
        say_unlisted(run, runtime_dir, address, &err);
        return;
    }
    (void)snprintf(run->store.registry, sizeof(run->store.registry), "%s", folder);
}

int ct_agent_store_open(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_store_address *address = &run->store.address;
    if (address->duty == CT_HOST_ELSEWHERE) {
        return 0;
    }
    int rc = host_store(run, err);
    if (rc == 0) {
        enter_registry(run);
    }
    bool late = rc == CT_ENOENT && shared(run->job);
    if (rc == 0 || (address->duty == CT_HOST_HERE && !late)) {
        return rc;
    }
    if (rc == CT_EBUSY) {
        (void)snprintf(run->store.busy, sizeof(run->store.busy), "%.500s", err->text);
    } else if (late) {
        run->store.unresolved = true;
    } else if (err->sys != EADDRNOTAVAIL) {
        return rc;
    }
    ct_log(&run->log, CT_LOG_INFO, "%s: %s",
           late ? "it turns out later who hosts the store" : "another machine hosts the store",
           err->text);
    *err = (struct ct_err){0};
    return 0;
}

struct ct_server *ct_agent_store_open_late(struct ct_agent_run *run)
{
    struct ct_err err = {0};
    if (run->store.busy[0] == '\0' && !run->store.unresolved) {
        return NULL;
    }
    if (host_store(run, &err) != 0) {
        run->store.unresolved = run->store.unresolved && err.sys != EADDRNOTAVAIL;
        return NULL;
    }
    run->store.busy[0] = '\0';
    run->store.unresolved = false;
    enter_registry(run);
    ct_agent_page_say(run, false);
    return run->store.server;
}

/* ---- the workers' store --------------------------------------------------------------------- */

const char *ct_agent_store_address(const struct ct_agent_run *run)
{
    return run->store.server != NULL ? run->store.address.master : run->address.master;
}

int ct_agent_store_open_own(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_options *options = run->job->options;
    bool local = options->local_addr[0] != '\0';
    const char *host = ct_options_name_address(options) ? options->local_addr
                       : run->membership.link != NULL ? ct_link_local_address(run->membership.link)
                                                      : run->address.seen; /* towards etcd */
    /* If the job's store is on this machine under its own name, the link uses the loopback, which
     * other machines cannot. They have come by the name, so they are given the name. */
    bool own_name = !local && ct_store_address_is_own_name(run->store.address.host);
    const char *const listen_on = own_name ? ANY_ADDRESS : local ? options->local_addr : host;
    host = own_name ? run->store.address.host : host;
    bool named = run->job->resolved->mode != CT_MODE_SHIM;
    const struct ct_server_agents agents = {
        .token = run->job->token,
        .run_id = run->job->run_id,
        .job = &run->membership.join,
        .expected = named ? run->job->expected : NULL,
        .num_expected = named ? run->job->num_expected : 0,
        .keep_job = run->job->options->linger > 0,
        .station = station(run),
    };
    bool guarded = run->job->token != NULL;
    int master_port = run->job->resolved->master_port;
    const struct ct_server_options server = {
        .hosts = &listen_on,
        .num_hosts = 1,
        .port = master_port > 0 ? (uint16_t)master_port : 0,
        .access = guarded ? &only_agents : NULL,
        .own_user = !options->open,
        .agents = guarded ? &agents : NULL,
        .log = &run->log,
    };
    (void)snprintf(run->store.own_host, sizeof(run->store.own_host), "%s", host);
    run->store.own_on_all = own_name || ct_addr_is_any(listen_on);
    int rc = ct_server_open(&run->loop, &server, &run->store.own, err);
    if (rc == CT_EBUSY) {
        /* The job's store may be on this machine and have taken --master-port. */
        struct ct_server_options any = server;
        any.port = 0;
        rc = ct_server_open(&run->loop, &any, &run->store.own, err);
    }
    if (rc == 0) {
        say_open(run, listen_on, ct_server_port(run->store.own),
                 "write the keys of this job's workers");
    }
    return rc;
}

/* Clients of the old generation lose their connections, because a process that the stop did not
 * find must not write into the store of the new generation. */
int ct_agent_store_serve(struct ct_agent_run *run, struct ct_err *err)
{
    struct ct_server *store = run->store.server != NULL ? run->store.server : run->store.own;
    if (store == NULL) {
        int rc = ct_agent_store_open_own(run, err);
        if (rc != 0) {
            return rc;
        }
        store = run->store.own;
    } else if (run->report.story.worlds > 1) {
        ct_server_reset(store);
    }
    if (run->store.server == NULL) {
        (void)snprintf(run->address.master, sizeof(run->address.master), "%s", run->store.own_host);
    }
    ct_agent_address_choose_master(run, ct_agent_store_address(run));
    run->worker_env.master_port = ct_server_port(store);
    return 0;
}

void ct_agent_store_close_own(struct ct_agent_store *store)
{
    ct_server_close(store->own, NULL, NULL);
    store->own = NULL;
}

/* ---- the job's store moves ------------------------------------------------------------------ */

void ct_agent_store_move(struct ct_agent_store *store, const char *host, uint16_t port)
{
    (void)snprintf(store->address_host, sizeof(store->address_host), "%s", host);
    store->address = (struct ct_store_address){.duty = CT_HOST_ELSEWHERE,
                                               .host = store->address_host,
                                               .port = port,
                                               .master = store->address_host};
}

void ct_agent_store_take_over(struct ct_agent_run *run)
{
    struct ct_agent_store *store = &run->store;
    store->server = store->own;
    store->own = NULL;
    store->on_loopback = store->own_on_all;
    ct_agent_store_move(store, store->own_host, ct_server_port(store->server));
    enter_registry(run);
}

void ct_agent_store_let_go(struct ct_agent_run *run)
{
    struct ct_agent_store *store = &run->store;
    store->own = store->server;
    store->server = NULL;
    store->own_on_all = store->on_loopback;
    (void)snprintf(store->own_host, sizeof(store->own_host), "%s", store->address.master);
    if (store->registry[0] != '\0') {
        ct_job_registry_remove(store->registry);
        store->registry[0] = '\0';
    }
}

/* ---- the end -------------------------------------------------------------------------------- */

static void close_store(struct ct_agent_store *store)
{
    if (store->registry[0] != '\0') {
        ct_job_registry_remove(store->registry);
    }
    struct ct_agent_run *run = CT_CONTAINER_OF(store, struct ct_agent_run, store);
    ct_agent_failover_close(run);
    ct_server_close(store->server, NULL, NULL);
    store->server = NULL;
    uv_close((uv_handle_t *)&store->timer, NULL);
    ct_agent_signals_close(run);
}

static void on_wait(uv_timer_t *timer)
{
    struct ct_agent_store *store = timer->data;
    int64_t now = ct_clock_now(NULL);
    bool is_over = ct_store_end_is_over(&store->end, ct_server_is_telling_end(store->server), now);
    const struct ct_agent_run *run = CT_CONTAINER_OF(store, struct ct_agent_run, store);
    bool told = run->failover.elector == NULL || ct_elector_is_settled(run->failover.elector);
    if (is_over &&
        ((!ct_server_has_agents(store->server) && told) || now >= store->wait_until_ns)) {
        close_store(store);
    }
}

void ct_agent_store_close(struct ct_agent_run *run)
{
    struct ct_agent_store *store = &run->store;
    if (store->server == NULL || (!run->job->resolved->shared && !store->end.lingers &&
                                  !ct_server_is_telling_end(store->server))) {
        close_store(store);
        return;
    }
    int64_t now = ct_clock_now(NULL);
    ct_store_end_begin(&store->end, run->job->options->linger, now);
    store->wait_until_ns = now + LEAVE_MS * CT_NS_PER_MS;
    (void)uv_timer_start(&store->timer, on_wait, 0, ct_store_end_poll_ms(&store->end));
}
