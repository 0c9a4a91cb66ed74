/* SPDX-License-Identifier: Apache-2.0
 *
 * The daemon as the host of jobs that outlive it (docs/FAILOVER.md): it gives records and leases,
 * but has no vote and is never elected. When it is lost, the agents choose one of them.
 */
#ifndef CT_RENDEZVOUS_CTRDZVD_DAEMON_STATION_H
#define CT_RENDEZVOUS_CTRDZVD_DAEMON_STATION_H

#include "common/addr.h"
#include "common/err.h"
#include "common/log.h"
#include "rendezvous/admission/refusal_log.h"
#include "rendezvous/server/control_uv.h"

struct ct_server;

struct ct_daemon_station {
    struct ct_control_station station; /* for struct ct_server_agents */
    struct ct_server *server;          /* borrowed */
    const struct ct_log *log;          /* borrowed */
    struct ct_refusal_log far_terms;   /* warnings about them */
    char host[CT_HOST_MAX];
};

void ct_daemon_station_init(struct ct_daemon_station *daemon, const struct ct_log *log);

/* Begins to host. `server` was opened with the station, and with a token. CT_EIO: there are no
 * random numbers. */
CT_MUST_CHECK int ct_daemon_station_host(struct ct_daemon_station *daemon, struct ct_server *server,
                                         struct ct_err *err);

#endif
