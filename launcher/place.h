/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the job's store listens, from the options that have a say in it.
 */
#ifndef CT_LAUNCHER_PLACE_H
#define CT_LAUNCHER_PLACE_H

#include "common/err.h"
#include "launcher/options.h"

#include <stdint.h>

/* Strings are borrowed from the options. */
struct ct_place {
    const char *host;   /* what the store listens on and MASTER_ADDR says */
    uint16_t port;      /* 0 = the kernel chooses */
    const char *option; /* that named the host; NULL = none did */
    const char *also;   /* another host that must be this machine, NULL = none: the rendezvous
                           endpoint when --local-addr says by which address to reach us */
};

/* Static: the endpoint, else --master-addr and --master-port. c10d: the endpoint, where an absent
 * port is free to choose (torchrun's two stores are one here, and its 29400 would make jobs on one
 * machine collide). --local-addr is stronger than a host that is a mere default or c10d's. */
void ct_place_decide(const struct ct_options *options, struct ct_place *out);

/* Are the hosts this machine's? Told by binding a socket, never by comparing names. The text names
 * the option. CT_EUNSUPPORTED when one is another machine's; other codes when a name means nothing.
 */
CT_MUST_CHECK int ct_place_check(const struct ct_place *place, struct ct_err *err);

#endif
