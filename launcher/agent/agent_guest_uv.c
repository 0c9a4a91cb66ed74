/* SPDX-License-Identifier: Apache-2.0
 *
 * The link to the workers' store of another machine, in a job with a token. That store serves the
 * workers of a machine only while the machine's agent holds a link to it and has proved the token
 * there. It is not enough that the job's store has seen the agent, because the agent may reach the
 * two machines from different addresses.
 *
 * Happy path: a world comes, and the link is opened. When the link is up, the agent hears of the
 * world.
 *
 * Other paths: the world ends before the link is up. Then this node has started no worker, and
 * tells the membership so at once.
 *
 * Failure modes: a link that cannot be opened ends the job here, because the workers would be
 * refused. When the link is lost later, the store or its machine is gone, and the membership
 * reports that.
 *
 * Who frees: ct_agent_link_close(), or the next world.
 */
#include "launcher/agent/agent_run_uv.h"

#include "launcher/report/worker_end.h"

#include <stdio.h>
#include <string.h>

/* A short time is enough: the store listens before the world is sent. */
#define CONNECT_MS 10000

static void say(struct ct_link *link, struct ct_msg *msg, enum ct_msg_type type, int generation)
{
    memset(msg, 0, sizeof(*msg));
    msg->type = type;
    msg->generation = generation;
    ct_link_send(link, msg);
}

static void on_up(void *data, const char *address)
{
    struct ct_agent_run *run = data;
    (void)address;
    say(run->guest.link, run->membership.msg, CT_MSG_GUEST, run->guest.world.generation);
    run->guest.awaited = false;
    ct_agent_dispatch(run, run->guest.world);
}

static void on_message(void *data, struct ct_msg *msg)
{
    (void)data;
    (void)msg; /* a store for workers sends no messages */
}

static void on_lost(void *data, const struct ct_err *why)
{
    struct ct_agent_run *run = data;
    ct_log(&run->log, CT_LOG_DEBUG, "the line to the workers' store on %s is gone: %s",
           run->worker_env.master_addr, why->text);
    if (run->guest.awaited) {
        run->guest.awaited = false;
        (void)snprintf(run->report.stop_why, sizeof(run->report.stop_why),
                       "the workers' store on %.100s does not take this node: %.300s",
                       run->worker_env.master_addr, why->text);
        ct_agent_report_say(run->output, "%s", run->report.stop_why);
        ct_agent_dispatch(
            run, (struct ct_agent_event){.type = CT_AGENT_EV_LOST, .exit_code = CT_EXIT_SETUP});
    }
}

void ct_agent_guest_close(struct ct_agent_guest *guest)
{
    ct_link_close(guest->link, 0, NULL, NULL);
    guest->link = NULL;
    guest->awaited = false;
}

bool ct_agent_guest_open(struct ct_agent_run *run, struct ct_agent_event world)
{
    const struct ct_store_address *address = &run->store.address;
    ct_agent_guest_close(&run->guest);
    if (run->job->token == NULL || world.serve ||
        (run->worker_env.master_port == address->port &&
         ct_store_address_is_store(address, run->address.master))) {
        return false;
    }
    const struct ct_link_options options = {
        .host = run->worker_env.master_addr,
        .port = run->worker_env.master_port,
        .token = run->job->token,
        .connect_ms = CONNECT_MS,
        .log = &run->log,
        .on_up = on_up,
        .on_message = on_message,
        .on_lost = on_lost,
        .data = run,
    };
    struct ct_err err = {0};
    run->guest.world = world;
    run->guest.awaited = true;
    if (ct_link_open(&run->loop, &options, &run->guest.link, &err) != 0) {
        on_lost(run, &err);
    }
    return true;
}

bool ct_agent_guest_cancel(struct ct_agent_run *run, int generation)
{
    if (!run->guest.awaited || run->guest.world.generation != generation) {
        return false;
    }
    say(run->membership.link, run->membership.msg, CT_MSG_STOPPED, generation);
    ct_agent_guest_close(&run->guest);
    return true;
}
