/* SPDX-License-Identifier: Apache-2.0
 *
 * A daemon that was started again remembers no job. Agents that come to it, because they were
 * started again, too, wait there for a job of their own. The host that the others have chosen tells
 * the daemon every two seconds where the job is, and they are sent there.
 *
 * The daemon does not connect to that host, which it may not reach. Agents that do not find the job
 * there come back. But a host of a term that no election can have reached is not believed at all.
 *
 * The daemon answers no question about a host: only agents are on record, so only they are asked.
 */
#include "rendezvous/ctrdzvd/daemon_station.h"

#include "common/clock.h"
#include "rendezvous/admission/voter_id.h"
#include "rendezvous/server/server_uv.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool on_ask(void *data, const struct ct_vote_ask *ask, struct ct_msg *vote)
{
    (void)data;
    (void)ask;
    (void)vote;
    return false;
}

static void warn_of_far_term(struct ct_daemon_station *daemon, const struct ct_voter *host,
                             const char *run_id)
{
    char where[CT_ADDR_JOIN_MAX], others[CT_REFUSALS_TEXT_MAX];
    uint64_t now_ms = (uint64_t)(ct_clock_now(NULL) / CT_NS_PER_MS);
    uint64_t unreported = ct_refusal_log_add(&daemon->far_terms, now_ms);
    if (unreported == 0) {
        return;
    }
    ct_addr_join(host->address, host->port, where, sizeof(where));
    ct_log(daemon->log, CT_LOG_WARNING,
           "%s says that it hosts job '%s', in a term that no election can have reached; agents "
           "that wait here for this job are not sent there%s",
           where, run_id, ct_refusals_others(unreported, others));
}

static void on_told(void *data, const struct ct_voter *host, uint64_t term, const char *run_id)
{
    struct ct_daemon_station *daemon = data;
    if (!ct_election_in_reach(CT_TERM_FIRST, term)) {
        warn_of_far_term(daemon, host, run_id);
    } else if (term > CT_TERM_FIRST) {
        ct_server_move(daemon->server, run_id, host);
    }
}

void ct_daemon_station_init(struct ct_daemon_station *daemon, const struct ct_log *log)
{
    memset(daemon, 0, sizeof(*daemon));
    daemon->log = log;
    if (gethostname(daemon->host, sizeof(daemon->host) - 1) != 0 || daemon->host[0] == '\0') {
        (void)snprintf(daemon->host, sizeof(daemon->host), "ctrdzvd");
    }
    daemon->station = (struct ct_control_station){
        .name = daemon->host, .on_ask = on_ask, .on_told = on_told, .data = daemon};
}

int ct_daemon_station_host(struct ct_daemon_station *daemon, struct ct_server *server,
                           struct ct_err *err)
{
    struct ct_members_failover hosting = {.is_daemon = true, .term = CT_TERM_FIRST};
    if (ct_voter_id_make(&hosting.self.id) != 0) {
        return ct_err_set(err, CT_EIO, "no random numbers");
    }
    daemon->server = server;
    ct_server_host(server, &hosting);
    return 0;
}
