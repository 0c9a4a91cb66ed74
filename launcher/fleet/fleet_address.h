/* SPDX-License-Identifier: Apache-2.0
 *
 * The address by which the machines of a job reach the one that starts them.
 */
#ifndef CT_LAUNCHER_FLEET_FLEET_ADDRESS_H
#define CT_LAUNCHER_FLEET_FLEET_ADDRESS_H

#include "common/addr.h"
#include "launcher/fleet/fleet_uv.h"

/* Chooses the address by which the other machines reach this one: --local-addr, unless it is that
 * of all interfaces, else that from which this machine reaches the first of them whose address can
 * be found out. A host that is this machine under another name leads to the loopback, which the
 * others cannot use, so the next host is tried. Fails when no name is known. */
CT_MUST_CHECK int ct_fleet_address(const struct ct_fleet_job *job, char address[CT_HOST_MAX],
                                   struct ct_err *err);

#endif
