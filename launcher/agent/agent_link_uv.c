/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: bind the job's store where the options say, or find that it is another machine's;
 * open the line to the membership; carry messages from it to the agent and back.
 *
 * Other paths: node rank 0 that does not host opens a second store for the workers, at an address
 * of its own. At the end a host stays until the other agents have left: its store and the
 * membership end with it.
 *
 * Failure modes: the address is ours but taken: then another ctrun of this job hosts, or a stranger
 * sits there; the line finds out, and the error names who it is. A line that is lost later ends the
 * job here.
 *
 * Who frees: close_all() of agent_uv.c, through ct_agent_link_close().
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "launcher/report/worker_end.h"
#include "rendezvous/admission/access.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Others have nothing to stop any more when they hear that the job is over, only to sweep up. */
#define LEAVE_MS 5000
#define LEAVE_POLL_MS 5
/* For what we send last. */
#define FLUSH_MS 2000

/* This machine alone; agents that have proved the token bring theirs in. */
static const struct ct_access only_agents;

/* As ct_listen() has it. */
#define ANY_ADDRESS "*"

static bool shared(const struct ct_agent_run *run)
{
    return ct_options_shared(run->job->options);
}

/* ---- the store that the job meets at -------------------------------------------------------- */

static bool is_loopback(const char *host)
{
    struct sockaddr_storage addr;
    socklen_t len;
    return ct_addr_resolve(host, 0, &addr, &len, NULL) == 0 &&
           ct_addr_is_loopback((const struct sockaddr *)&addr);
}

/* A store on `host` (ANY_ADDRESS) has come up. Without a token its port takes whoever reaches it at
 * his word, and whoever has started the job should know. */
static void say_open(struct ct_agent_run *run, const char *host, uint16_t port, const char *may)
{
    const struct ct_job_spec *job = run->job;
    bool any = strcmp(host, ANY_ADDRESS) == 0;
    if (job->token != NULL || job->options->open || run->said_open || (!any && is_loopback(host))) {
        return;
    }
    run->said_open = true;
    ct_agent_say(run,
                 "there is no token: whoever reaches port %u of %.200s can %s; --token-file or "
                 "CTRUN_TOKEN on every machine admits these alone, --open says that all may",
                 (unsigned)port, any ? "this machine" : host, may);
}

static int host_store(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_job_spec *job = run->job;
    const struct ct_store_address *place = job->place;
    /* Other machines know it by another address. */
    bool own_name = shared(run) && ct_store_address_is_own_name(place->host);
    bool any = own_name || ct_addr_is_any(place->host);
    /* "::" takes IPv4 in, as Linux has it by default. */
    bool both = own_name || (any && strchr(place->host, ':') != NULL);
    const char *const hosts[] = {both ? ANY_ADDRESS : place->host, place->master};
    /* The scheduler's list names machines; there every rank is a node of the membership. */
    bool named = job->resolved->mode != CT_MODE_SHIM;
    const struct ct_server_agents agents = {
        .token = job->token,
        .run_id = job->run_id,
        .in_process = !shared(run),
        .job = &run->join,
        .expected = named ? job->expected : NULL,
        .num_expected = named ? job->num_expected : 0,
    };
    const struct ct_server_options options = {
        .hosts = hosts,
        .num_hosts = any ? 1 : 2,
        .port = place->port,
        .access = job->token != NULL ? &only_agents : NULL,
        .own_user = !job->options->open,
        .agents = &agents,
        .log = &run->log,
    };
    int rc = ct_server_open(&run->loop, &options, &run->server, err);
    if (rc == 0 && own_name) {
        ct_agent_say(
            run,
            "%s is the loopback on this machine (see /etc/hosts): the store listens on all "
            "its addresses, for the other machines",
            place->host);
    } else if (rc == 0 && any && shared(run)) {
        ct_agent_say(run,
                     "the store listens on all addresses of this machine (%s %s); the other nodes "
                     "need one of them there",
                     place->option, place->host);
    }
    run->on_loopback = any;
    if (rc == 0) {
        const char *outer = any                        ? ANY_ADDRESS
                            : is_loopback(place->host) ? place->master
                                                       : place->host;
        say_open(run, outer, ct_server_port(run->server),
                 shared(run) ? "read this job's status, write its keys, join it and end it"
                             : "read this job's status and write its keys");
    }
    return rc;
}

static void fill_join(struct ct_agent_run *run)
{
    const struct ct_options *options = run->job->options;
    struct ct_msg_join *join = &run->join;
    (void)snprintf(join->run_id, sizeof(join->run_id), "%s", run->job->run_id);
    (void)snprintf(join->host, sizeof(join->host), "%s", run->job->machine->host);
    (void)snprintf(join->role, sizeof(join->role), "%.*s", CT_ROLE_MAX - 1, options->role);
    join->node_rank = options->node_rank;
    join->workers = run->job->workers;
    join->pid = uv_os_getpid();
    join->min_nodes = options->min_nodes;
    join->max_nodes = options->max_nodes;
    join->spares = options->spares;
    join->max_restarts = options->max_restarts;
    join->settle_ms = options->rdzv_conf.settle_ms;
    join->join_ms = options->rdzv_conf.join_ms;
    join->heartbeat_ms = options->rdzv_conf.heartbeat_ms;
}

int ct_agent_store_open(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_store_address *place = run->job->place;
    fill_join(run);
    if (place->duty == CT_HOST_ELSEWHERE) {
        return 0;
    }
    int rc = host_store(run, err);
    if (rc == 0 || place->duty == CT_HOST_HERE) {
        return rc;
    }
    if (rc == CT_EBUSY) {
        (void)snprintf(run->busy, sizeof(run->busy), "%.500s", err->text);
    } else if (err->sys != EADDRNOTAVAIL && rc != CT_ENOENT) {
        return rc; /* ENOENT: a name that may be known later */
    }
    ct_log(&run->log, CT_LOG_INFO, "another machine hosts the store: %s", err->text);
    *err = (struct ct_err){0};
    return 0;
}

/* ---- from the membership -------------------------------------------------------------------- */

/* What every ctrun of this machine is told. */
static void say_for_all(struct ct_agent_run *run, const char *text)
{
    if (ct_agent_report_speaks(run)) {
        ct_agent_say(run, "%s", text);
    }
}

static void on_world(struct ct_agent_run *run, const struct ct_msg *msg)
{
    const struct ct_msg_world *world = &msg->world;
    struct ct_worker_env *env = &run->worker_env;
    env->generation = msg->generation;
    env->node_rank = world->node_rank;
    env->node_count = world->node_count;
    env->first_rank = world->first_rank;
    env->world_size = world->world_size;
    env->first_role_rank = world->first_role_rank;
    env->role_size = world->role_size;
    (void)snprintf(run->store_addr, sizeof(run->store_addr), "%s", world->store_addr);
    if (!world->serve) {
        (void)snprintf(run->master_addr, sizeof(run->master_addr), "%s", world->master_addr);
        ct_agent_address_choose_master(run, run->master_addr);
        env->master_port = world->master_port;
        ct_server_close(run->own, NULL, NULL);
        run->own = NULL;
    }
    ct_job_story_world(&run->story, world, msg->generation, ct_clock_now(NULL));
    if (run->story.wide && ct_agent_report_speaks(run)) {
        ct_agent_say(run, "generation %d: node %d of %d, ranks %d-%d of %d", msg->generation,
                     world->node_rank, world->node_count, world->first_rank,
                     world->first_rank + run->job->workers - 1, world->world_size);
    }
    ct_agent_address_choose_interface(run);
    const struct ct_agent_event event = {
        .type = CT_AGENT_EV_WORLD, .generation = msg->generation, .serve = world->serve};
    if (!ct_agent_guest_open(run, event)) {
        ct_agent_dispatch(run, event);
    }
}

static void on_stop(struct ct_agent_run *run, struct ct_msg *msg)
{
    ct_job_story_take(&run->story, &msg->history);
    (void)snprintf(run->stop_why, sizeof(run->stop_why), "%s", msg->text);
    if (ct_agent_guest_cancel(run, msg->generation)) {
        return;
    }
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_STOP,
                                                   .generation = msg->generation,
                                                   .will_restart = msg->will_restart});
}

static void on_over(struct ct_agent_run *run, struct ct_msg *msg)
{
    ct_job_story_take(&run->story, &msg->history);
    (void)snprintf(run->story.why, sizeof(run->story.why), "%s", msg->text);
    ct_agent_dispatch(
        run, (struct ct_agent_event){.type = CT_AGENT_EV_OVER, .exit_code = msg->exit_code});
}

static void on_preempt(struct ct_agent_run *run, const struct ct_msg *msg)
{
    /* Another machine's word: only what stops a job has an effect here. */
    int signo = sigabbrev_np(msg->signo) != NULL ? msg->signo : SIGTERM;
    if (run->agent.signo == 0) {
        say_for_all(run, msg->text);
        run->preempt_deadline_ms = msg->deadline_ms;
    }
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_PREEMPT, .signo = signo});
}

static void on_refused(struct ct_agent_run *run, const struct ct_msg *msg)
{
    ct_agent_say(run, "the job does not take this node: %s", msg->text);
    (void)snprintf(run->stop_why, sizeof(run->stop_why), "%s", msg->text);
    ct_agent_dispatch(
        run, (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = msg->exit_code});
}

static void on_message(void *data, struct ct_msg *msg)
{
    struct ct_agent_run *run = data;
    if (msg->type == CT_MSG_WORLD) {
        on_world(run, msg);
    } else if (msg->type == CT_MSG_STOP) {
        on_stop(run, msg);
    } else if (msg->type == CT_MSG_OVER) {
        on_over(run, msg);
    } else if (msg->type == CT_MSG_PREEMPT) {
        on_preempt(run, msg);
    } else if (msg->type == CT_MSG_REFUSED) {
        on_refused(run, msg);
    } else if (msg->type == CT_MSG_WAITING) {
        ct_job_story_waiting(&run->story, msg->text);
        say_for_all(run, msg->text);
    } else if (msg->type == CT_MSG_BEAT) {
        ct_hang_guard_hear(&run->hang, &msg->still, msg->text);
    } else if (msg->type == CT_MSG_SPARE) {
        say_for_all(run, msg->text[0] != '\0' ? msg->text
                                              : "the job is complete; this node waits as a spare");
    } else {
        ct_log(&run->log, CT_LOG_WARNING, "the membership says '%s', which is not for agents",
               ct_msg_name(msg->type));
    }
}

static void on_up(void *data, const char *address)
{
    struct ct_agent_run *run = data;
    (void)snprintf(run->seen_address, sizeof(run->seen_address), "%s", address);
    ct_job_story_connected(&run->story, ct_clock_now(NULL));
    ct_agent_address_link_up(run);
}

static void on_lost(void *data, const struct ct_err *why)
{
    struct ct_agent_run *run = data;
    const struct ct_store_address *place = run->job->place;
    int exit_code = CT_EXIT_NODE_LOST;
    ct_agent_address_close(run); /* nobody is to hear that the line is up */
    bool altered = why->code == CT_EPERM && run->seen_address[0] != '\0'; /* behind the proof */
    if (run->agent.generation >= 0 || why->code == CT_ECLOSED || altered) {
        (void)snprintf(run->stop_why, sizeof(run->stop_why),
                       "the connection to the job's store on %.200s was lost: %.200s", place->host,
                       why->text);
    } else {
        (void)snprintf(run->stop_why, sizeof(run->stop_why), "cannot join the job: %.300s",
                       why->text);
        exit_code = why->code == CT_ETIMEDOUT ? CT_EXIT_RDZV_TIMEOUT : CT_EXIT_SETUP;
    }
    if (run->agent.sm.state != CT_AGENT_DONE && !run->agent.over) {
        ct_agent_say(run, "%s", run->stop_why);
        /* One that has another token is a store of ctrun: the port is not the trouble. */
        if (run->agent.generation < 0 && run->busy[0] != '\0' && why->code != CT_EPERM) {
            ct_agent_say(run, "%s", run->busy);
        }
    }
    ct_agent_dispatch(run,
                      (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = exit_code});
}

static void on_beat(void *data, struct ct_msg *msg)
{
    struct ct_agent_run *run = data;
    ct_agent_report_rows(run, msg);
    ct_hang_guard_still(&run->hang, &msg->still);
}

int ct_agent_link_open(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_store_address *place = run->job->place;
    const struct ct_link_options options = {
        .host = place->host,
        .port = place->port,
        .local = run->server,
        .token = run->job->token,
        .connect_ms = run->job->options->rdzv_conf.join_ms,
        .log = &run->log,
        .on_up = on_up,
        .on_message = on_message,
        .on_lost = on_lost,
        .on_beat = on_beat,
        .data = run,
    };
    return ct_link_open(&run->loop, &options, &run->link, err);
}

/* ---- to the membership ---------------------------------------------------------------------- */

/* The workers' store here, as its address is known; see ct_agent_store_serve(). */
static const char *serves_at(const struct ct_agent_run *run)
{
    return run->server != NULL ? run->job->place->master : run->master_addr;
}

static void fill(struct ct_agent_run *run, enum ct_agent_message what, struct ct_msg *msg)
{
    msg->generation = run->agent.generation;
    switch (what) {
    case CT_AGENT_SAY_JOIN:
        msg->type = CT_MSG_JOIN;
        msg->join = run->join;
        msg->join.hosts = run->server != NULL;
        break;
    case CT_AGENT_SAY_SERVING:
        msg->type = CT_MSG_SERVING;
        msg->port = run->worker_env.master_port;
        /* What leads nobody to us is better not told: they have found the way. */
        (void)snprintf(msg->text, sizeof(msg->text), "%s",
                       ct_addr_is_any(serves_at(run)) ? "" : serves_at(run));
        break;
    case CT_AGENT_SAY_STARTED:
        msg->type = CT_MSG_STARTED;
        ct_agent_report_rows(run, msg);
        break;
    case CT_AGENT_SAY_FAILED:
        msg->type = CT_MSG_FAILED;
        msg->clock_ms = ct_clock_now(NULL) / CT_NS_PER_MS;
        msg->has_failure = ct_failure_copy(&run->failure, &msg->failure) == 0;
        break;
    case CT_AGENT_SAY_FINISHED:
        msg->type = CT_MSG_FINISHED;
        break;
    case CT_AGENT_SAY_STOPPED:
        msg->type = CT_MSG_STOPPED;
        msg->has_failure = run->agent.failure.known && run->failure.generation == msg->generation &&
                           ct_failure_copy(&run->failure, &msg->failure) == 0;
        break;
    case CT_AGENT_SAY_PREEMPT:
        msg->type = CT_MSG_PREEMPT;
        msg->signo = run->agent.signo;
        msg->deadline_ms = run->preempt_deadline_ms;
        break;
    case CT_AGENT_SAY_LEAVE:
        msg->type = CT_MSG_LEAVE;
        if (run->agent.signo != 0) {
            (void)snprintf(msg->text, sizeof(msg->text), "ctrun received SIG%s",
                           sigabbrev_np(run->agent.signo));
        }
        msg->exit_code = run->outcome.exit_code;
        break;
    }
}

void ct_agent_link_send(struct ct_agent_run *run, unsigned say)
{
    for (unsigned bit = CT_AGENT_SAY_JOIN; bit <= CT_AGENT_SAY_LEAVE; bit <<= 1) {
        if ((say & bit) != 0) {
            memset(run->msg, 0, sizeof(*run->msg));
            fill(run, (enum ct_agent_message)bit, run->msg);
            ct_link_send(run->link, run->msg);
            ct_msg_fini(run->msg);
        }
    }
}

/* Out of turn: the status shall show a failure while the others are being stopped. */
void ct_agent_link_beat(struct ct_agent_run *run)
{
    memset(run->msg, 0, sizeof(*run->msg));
    run->msg->type = CT_MSG_BEAT;
    run->msg->clock_ms = ct_clock_now(NULL) / CT_NS_PER_MS;
    ct_agent_report_rows(run, run->msg);
    ct_link_send(run->link, run->msg);
    ct_msg_fini(run->msg);
}

/* ---- the workers' store --------------------------------------------------------------------- */

static int open_own(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_options *options = run->job->options;
    bool local = options->local_addr[0] != '\0';
    const char *host = local && !ct_addr_is_any(options->local_addr)
                           ? options->local_addr
                           : ct_link_local_address(run->link);
    /* Where the job's store is on this machine, we have come to it by a way that others do not
     * have; its name has brought them here as well. */
    bool own_name = !local && ct_store_address_is_own_name(run->job->place->host);
    const char *const listen_on = own_name ? ANY_ADDRESS : local ? options->local_addr : host;
    host = own_name ? run->job->place->host : host;
    const struct ct_server_agents agents = {.token = run->job->token, .run_id = run->job->run_id};
    bool guarded = run->job->token != NULL;
    const struct ct_server_options server = {
        .hosts = &listen_on,
        .num_hosts = 1,
        .port = options->master_port > 0 ? (uint16_t)options->master_port : 0,
        .access = guarded ? &only_agents : NULL,
        .own_user = !options->open,
        .agents = guarded ? &agents : NULL,
        .log = &run->log,
    };
    (void)snprintf(run->master_addr, sizeof(run->master_addr), "%s", host);
    int rc = ct_server_open(&run->loop, &server, &run->own, err);
    if (rc == CT_EBUSY) {
        /* --master-port may be that of the job's store on this very machine. */
        struct ct_server_options any = server;
        any.port = 0;
        rc = ct_server_open(&run->loop, &any, &run->own, err);
    }
    if (rc == 0) {
        say_open(run, listen_on, ct_server_port(run->own), "write the keys of this job's workers");
    }
    return rc;
}

/* Clients of the old generation lose their connections here: whatever has escaped the stop must not
 * write into the store of the new one. */
int ct_agent_store_serve(struct ct_agent_run *run, struct ct_err *err)
{
    struct ct_server *store = run->server != NULL ? run->server : run->own;
    if (store == NULL) {
        int rc = open_own(run, err);
        if (rc != 0) {
            return rc;
        }
        store = run->own;
    } else if (run->story.worlds > 1) {
        ct_server_reset(store);
    }
    ct_agent_address_choose_master(run, serves_at(run));
    run->worker_env.master_port = ct_server_port(store);
    return 0;
}

/* ---- the end -------------------------------------------------------------------------------- */

static void close_store(struct ct_agent_run *run)
{
    ct_server_close(run->server, NULL, NULL);
    run->server = NULL;
    uv_close((uv_handle_t *)&run->wait_timer, NULL);
}

static void on_wait(uv_timer_t *timer)
{
    struct ct_agent_run *run = timer->data;
    if (!ct_server_has_agents(run->server) || ct_clock_now(NULL) >= run->wait_until_ns) {
        close_store(run);
    }
}

/* What we sent last is out: the membership knows that we have left. */
static void on_link_closed(void *data)
{
    struct ct_agent_run *run = data;
    if (run->server == NULL || !shared(run)) {
        close_store(run);
        return;
    }
    run->wait_until_ns = ct_clock_now(NULL) + LEAVE_MS * CT_NS_PER_MS;
    (void)uv_timer_start(&run->wait_timer, on_wait, 0, LEAVE_POLL_MS);
}

void ct_agent_link_close(struct ct_agent_run *run)
{
    ct_agent_guest_close(run);
    ct_server_close(run->own, NULL, NULL);
    run->own = NULL;
    ct_link_close(run->link, FLUSH_MS, on_link_closed, run);
    run->link = NULL;
}
