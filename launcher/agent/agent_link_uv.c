/* SPDX-License-Identifier: Apache-2.0
 *
 * Happy path: connect to the membership, and carry messages from it to the agent and back.
 *
 * Failure modes: another ctrun or another program may already listen at the address at which this
 * ctrun wanted to host the store (agent_store_uv.c). The link finds out which, and the error says
 * so. A link that is lost later ends the job here, unless the job outlives its host: then
 * agent_failover_uv.c looks for the next one.
 *
 * Who frees: close_all() of agent_uv.c, through ct_agent_link_close().
 */
#include "launcher/agent/agent_run_uv.h"

#include "common/clock.h"
#include "common/exit_code.h"
#include "common/ranges.h"
#include "launcher/report/worker_end.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* How long the last messages may take to be sent. */
#define FLUSH_MS 2000
/* How long a new host may take to answer. Then the agents are asked again. */
#define REJOIN_MS 1000
/* The same before the first world. Then this node goes back to its first address. */
#define MOVE_MS 3000

/* ---- from the membership -------------------------------------------------------------------- */

/* Prints a message that every ctrun of this machine receives, once for the machine. */
static void say_for_all(struct ct_agent_run *run, const char *text)
{
    if (ct_agent_report_speaks(run->job->resolved)) {
        ct_agent_report_say(run->output, "%s", text);
    }
}

static void say_world(struct ct_agent_run *run, const struct ct_msg_world *world, int generation)
{
    char ranks[CT_RANGES_MACHINE_MAX];
    ct_agent_report_say(run->output, "generation %d: node %d of %d, %s of %d", generation,
                        world->node_rank, world->node_count,
                        ct_ranges_machine(world->first_rank, run->job->resolved->workers, ranks),
                        world->world_size);
}

/* Without its numbers no worker starts, and each says why. */
static void take_ports(struct ct_agent_run *run, const char *text)
{
    struct ct_err err = {0};
    if (ct_job_ports_read(text, &run->ports, &err) != 0) {
        ct_log(&run->log, CT_LOG_WARNING, "the ports of this job: %s", err.text);
    }
}

/* Other workers than this node's have no store here now. In a job that outlives its host, the port
 * stays. */
static void leave_own_store(struct ct_agent_run *run)
{
    if (run->failover.elector == NULL) {
        ct_agent_store_close_own(&run->store);
    } else if (run->store.own != NULL) {
        ct_server_reset(run->store.own);
    }
}

static void on_world(struct ct_agent_run *run, const struct ct_msg *msg)
{
    const struct ct_msg_world *world = &msg->world;
    struct ct_worker_env *env = &run->worker_env;
    ct_agent_warm_stop(run);
    env->generation = msg->generation;
    run->membership.node_rank = env->node_rank = world->node_rank;
    run->membership.node_count = env->node_count = world->node_count;
    env->first_rank = world->first_rank;
    env->world_size = world->world_size;
    env->first_role_rank = world->first_role_rank;
    env->role_size = world->role_size;
    ct_resolved_worker_env(run->job->resolved, env);
    (void)snprintf(run->address.store, sizeof(run->address.store), "%s", world->store_addr);
    if (!world->serve) {
        (void)snprintf(run->address.master, sizeof(run->address.master), "%s", world->master_addr);
        ct_agent_address_choose_master(run, run->address.master);
        env->master_port = world->master_port;
        take_ports(run, world->ports);
        leave_own_store(run);
    }
    ct_agent_failover_world(run);
    ct_job_story_world(&run->report.story, world, msg->generation, ct_clock_now(NULL));
    ct_trace_world(&run->trace.data, msg->generation, world->restarts, world->node_count,
                   world->world_size, ct_clock_now(NULL));
    if (run->report.story.several_nodes && ct_agent_report_speaks(run->job->resolved)) {
        say_world(run, world, msg->generation);
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
    ct_job_story_take_history(&run->report.story, &msg->history);
    (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why), "%s", msg->text);
    if (ct_agent_guest_cancel(run, msg->generation)) {
        return;
    }
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_STOP,
                                                   .generation = msg->generation,
                                                   .will_restart = msg->will_restart});
}

static void on_over(struct ct_agent_run *run, struct ct_msg *msg)
{
    ct_job_story_take_history(&run->report.story, &msg->history);
    (void)snprintf(run->report.story.why, sizeof(run->report.story.why), "%s", msg->text);
    /* A machine that was in none of the last worlds has not heard of their restarts. */
    if (msg->world.restarts > run->report.story.restarts) {
        run->report.story.restarts = msg->world.restarts;
    }
    ct_agent_dispatch(
        run, (struct ct_agent_event){.type = CT_AGENT_EV_OVER, .exit_code = msg->exit_code});
}

static void on_preempt(struct ct_agent_run *run, const struct ct_msg *msg)
{
    /* Another machine has sent this number, so it may be no signal. */
    int signo = sigabbrev_np(msg->signo) != NULL ? msg->signo : SIGTERM;
    if (run->agent.signo == 0) {
        say_for_all(run, msg->text);
        run->requests.deadline_ms = msg->deadline_ms;
    }
    ct_agent_dispatch(run, (struct ct_agent_event){.type = CT_AGENT_EV_PREEMPT, .signo = signo});
}

static void on_refused(struct ct_agent_run *run, const struct ct_msg *msg)
{
    ct_agent_report_say(run->output, "the job does not take this node: %s", msg->text);
    (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why), "%s", msg->text);
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
        ct_job_story_waiting(&run->report.story, msg->text);
        say_for_all(run, msg->text);
    } else if (msg->type == CT_MSG_BEAT) {
        ct_hang_monitor_take_job_verdict(&run->monitors.hang, &msg->still, msg->text);
    } else if (msg->type == CT_MSG_RECORD) {
        ct_agent_failover_record(run, msg);
    } else if (msg->type == CT_MSG_VOTE) {
        const struct ct_voter host = msg->host; /* the message goes with the link */
        ct_agent_failover_moved(run, &host);
    } else if (msg->type == CT_MSG_QUERY) {
        ct_agent_query(run, &msg->query, msg->generation);
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
    (void)snprintf(run->address.seen, sizeof(run->address.seen), "%s", address);
    if (!ct_agent_failover_up(run)) {
        return;
    }
    if (run->report.story.first_connected_ns == 0) {
        ct_job_story_connected(&run->report.story, ct_clock_now(NULL));
        ct_trace_job_end(&run->trace.data, CT_TRACE_CONNECT, NULL, ct_clock_now(NULL));
        ct_trace_job_begin(&run->trace.data, CT_TRACE_RENDEZVOUS, ct_clock_now(NULL));
    }
    ct_agent_address_link_up(run);
}

static void on_lost(void *data, const struct ct_err *why)
{
    struct ct_agent_run *run = data;
    const struct ct_store_address *address = &run->store.address;
    int exit_code = CT_EXIT_NODE_LOST;
    if (ct_agent_failover_lost(run, why)) {
        return;
    }
    ct_agent_address_close(&run->address); /* the agent must not hear that the link is up */
    bool altered = why->code == CT_EPERM &&
                   run->address.seen[0] != '\0'; /* after the proof a message was altered */
    if (run->agent.generation >= 0 || why->code == CT_ECLOSED || altered) {
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why),
                       "the connection to the job's store on %.200s was lost: %.200s",
                       address->host, why->text);
    } else {
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why),
                       "cannot join the job: %.300s", why->text);
        exit_code = why->code == CT_ETIMEDOUT ? CT_EXIT_RDZV_TIMEOUT : CT_EXIT_SETUP;
    }
    if (run->agent.sm.state != CT_AGENT_DONE && !run->agent.over) {
        ct_agent_report_say(run->output, "%s", run->report.stop_why);
        /* CT_EPERM: the listener is a store that has another token, so the port is right. */
        if (run->agent.generation < 0 && run->store.busy[0] != '\0' && why->code != CT_EPERM) {
            ct_agent_report_say(run->output, "%s", run->store.busy);
        } else if (exit_code == CT_EXIT_RDZV_TIMEOUT) {
            ct_agent_report_say(
                run->output,
                "what to do: see that ctrun or ctrdzvd runs on %.200s (%s) and that "
                "port %d is open there; --rdzv-conf join_timeout=SECONDS waits "
                "longer",
                address->host, address->option != NULL ? address->option : "the default",
                (int)address->port);
        }
    }
    ct_agent_dispatch(run,
                      (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = exit_code});
}

/* Fills in what a beat tells. */
static void add_facts(struct ct_agent_run *run, struct ct_msg *msg)
{
    ct_agent_report_rows(run, msg);
    ct_agent_warm_facts(run, &msg->warm);
    ct_hang_monitor_vote(&run->monitors.hang, &msg->still);
    ct_hang_monitor_report(&run->monitors.hang, &msg->hang);
}

static void on_beat(void *data, struct ct_msg *msg)
{
    struct ct_agent_run *run = data;
    ct_agent_sample_memory(run);
    add_facts(run, msg);
}

static void on_lease(void *data, int64_t sent_ns, int64_t lease_ms)
{
    struct ct_agent_run *run = data;
    ct_elector_leased(run->failover.elector, sent_ns, lease_ms);
}

static struct ct_server *on_nobody_listens(void *data)
{
    return ct_agent_store_open_late(data);
}

int ct_agent_link_open(struct ct_agent_run *run, struct ct_err *err)
{
    const struct ct_store_address *address = &run->store.address;
    const struct ct_agent_failover *failover = &run->failover;
    bool went_back = failover->moves.backs > 0 && !failover->adrift && !failover->moves.away;
    const struct ct_link_options options = {
        .host = address->host,
        .port = address->port,
        .local = run->store.server,
        .token = run->job->token,
        .connect_ms = failover->adrift       ? REJOIN_MS
                      : failover->moves.away ? MOVE_MS
                                             : run->job->options->rdzv_conf.join_ms,
        .pause_ms = went_back ? ct_agent_moves_pause_ms(&failover->moves) : 0,
        .log = &run->log,
        .on_up = on_up,
        .on_message = on_message,
        .on_lost = on_lost,
        .on_beat = on_beat,
        .on_lease = failover->elector != NULL ? on_lease : NULL,
        .once = failover->adrift || failover->moves.away,
        /* An agent that looks for a host becomes one by election only. */
        .on_refused = failover->adrift || failover->moves.away ? NULL : on_nobody_listens,
        .data = run,
    };
    return ct_link_open(&run->loop, &options, &run->membership.link, err);
}

/* ---- to the membership ---------------------------------------------------------------------- */

static void fill(struct ct_agent_run *run, enum ct_agent_message what, struct ct_msg *msg)
{
    msg->generation = run->agent.generation;
    switch (what) {
    case CT_AGENT_SAY_JOIN:
        msg->type = CT_MSG_JOIN;
        msg->join = run->membership.join;
        msg->join.hosts = run->store.server != NULL;
        break;
    case CT_AGENT_SAY_SERVING:
        msg->type = CT_MSG_SERVING;
        msg->port = run->worker_env.master_port;
        ct_job_ports_write(&run->ports, msg->world.ports);
        /* An address such as 0.0.0.0 leads nobody here; the other agents know one that does. */
        (void)snprintf(msg->text, sizeof(msg->text), "%s",
                       ct_addr_is_any(ct_agent_store_address(run)) ? ""
                                                                   : ct_agent_store_address(run));
        break;
    case CT_AGENT_SAY_STARTED:
        msg->type = CT_MSG_STARTED;
        ct_agent_report_rows(run, msg);
        break;
    case CT_AGENT_SAY_FAILED:
        msg->type = CT_MSG_FAILED;
        msg->clock_ms = ct_clock_now(NULL) / CT_NS_PER_MS;
        msg->has_failure = ct_failure_copy(&run->report.failure, &msg->failure) == 0;
        break;
    case CT_AGENT_SAY_FINISHED:
        msg->type = CT_MSG_FINISHED;
        break;
    case CT_AGENT_SAY_STOPPED:
        msg->type = CT_MSG_STOPPED;
        msg->has_failure = run->agent.failure.known &&
                           run->report.failure.generation == msg->generation &&
                           ct_failure_copy(&run->report.failure, &msg->failure) == 0;
        break;
    case CT_AGENT_SAY_PREEMPT:
        msg->type = CT_MSG_PREEMPT;
        msg->signo = run->agent.signo;
        msg->deadline_ms = run->requests.deadline_ms;
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
            memset(run->membership.msg, 0, sizeof(*run->membership.msg));
            fill(run, (enum ct_agent_message)bit, run->membership.msg);
            ct_link_send(run->membership.link, run->membership.msg);
            ct_msg_fini(run->membership.msg);
        }
    }
}

/* Sent at once, so that the status shows a failure while other workers are still being stopped, and
 * a hang before its suspect is killed. */
void ct_agent_link_beat(struct ct_agent_run *run)
{
    memset(run->membership.msg, 0, sizeof(*run->membership.msg));
    run->membership.msg->type = CT_MSG_BEAT;
    run->membership.msg->clock_ms = ct_clock_now(NULL) / CT_NS_PER_MS;
    add_facts(run, run->membership.msg);
    ct_link_send(run->membership.link, run->membership.msg);
    ct_msg_fini(run->membership.msg);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* The last messages were sent, so the membership knows that this node has left. */
static void on_link_closed(void *data)
{
    struct ct_agent_run *run = data;
    ct_agent_store_close(run);
}

void ct_agent_link_close(struct ct_agent_run *run)
{
    ct_agent_guest_close(&run->guest);
    ct_agent_store_close_own(&run->store);
    ct_link_close(run->membership.link, FLUSH_MS, on_link_closed, run);
    run->membership.link = NULL;
}
