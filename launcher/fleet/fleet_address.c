/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the address by which the other machines reach this one.
 *
 * A name service that does not answer takes seconds for each name, so only a few are looked up.
 */
#include "launcher/fleet/fleet_address.h"

#include "launcher/fleet/fleet.h"
#include "launcher/fleet/ssh.h"

#include <stdio.h>
#include <string.h>

/* The number of names that are looked up. */
#define ADDRESS_TRIES 4

/* Sets `address` to the address from which this machine reaches another one. If the resolver does
 * not know that one's name, ssh is asked what it makes of the name. */
static int address_towards(const struct ct_fleet_job *job, int index, char address[CT_HOST_MAX],
                           struct ct_err *err)
{
    const char *name = job->hosts->list[index].name;
    const char *at = strrchr(name, '@'); /* ssh takes user@host */
    const struct ct_fleet_spec spec = {.hosts = job->hosts, .agent = job->options->launch_agent};
    char known[CT_HOST_MAX];
    int rc = ct_addr_towards(at != NULL ? at + 1 : name, address, CT_HOST_MAX, err);
    if (rc != 0 && ct_ssh_host_name(&spec, index, job->env, known) &&
        ct_addr_towards(known, address, CT_HOST_MAX, NULL) == 0) {
        return 0;
    }
    return rc;
}

int ct_fleet_address(const struct ct_fleet_job *job, char address[CT_HOST_MAX], struct ct_err *err)
{
    struct ct_err why = {0};
    struct sockaddr_storage own;
    socklen_t len;
    bool found = false;
    int rc = 0, tries = 0;
    if (ct_options_name_address(job->options)) {
        (void)snprintf(address, CT_HOST_MAX, "%s", job->options->local_addr);
        return 0;
    }
    (void)snprintf(address, CT_HOST_MAX, "127.0.0.1");
    for (int i = 0; i < job->hosts->count; i++) {
        if (ct_fleet_is_here(job->hosts->list[i].name, job->machine->host)) {
            continue;
        }
        rc = address_towards(job, i, address, tries == 0 ? &why : NULL);
        if (rc == 0 && ct_addr_literal(address, 0, &own, &len) &&
            !ct_addr_is_loopback((const struct sockaddr *)&own)) {
            return 0;
        }
        found = found || rc == 0;
        if (rc != 0 && ++tries == ADDRESS_TRIES) {
            break;
        }
    }
    return found || rc == 0
               ? 0
               : ct_err_set(
                     err, rc,
                     "%.300s; if only ssh knows the name, pass --local-addr with the address "
                     "by which the machines reach this one",
                     why.text);
}
