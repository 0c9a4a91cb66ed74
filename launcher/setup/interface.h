/* SPDX-License-Identifier: Apache-2.0
 *
 * The network interface by which workers of this machine reach those of others. gloo takes the
 * interface that has the address of the machine's own name. This is the loopback if /etc/hosts says
 * so (Debian's "127.0.1.1 hostname") or if no name service knows the name. NCCL takes all
 * interfaces, even bridges of containers. So if the name does not lead to a real interface, ctrun
 * names to the workers the interface that leads to the job's store.
 */
#ifndef CT_LAUNCHER_SETUP_INTERFACE_H
#define CT_LAUNCHER_SETUP_INTERFACE_H

#include "common/addr.h"
#include "launcher/cli/options.h"
#include "launcher/setup/machine.h"
#include "launcher/setup/resolve.h"

#include <net/if.h>
#include <stdbool.h>

/* What can be found out before the store is reached. Plain data. */
struct ct_interface_facts {
    bool named;              /* this name leads to a real interface; workers are told nothing */
    char name[CT_HOST_MAX];  /* the machine's own name */
    char means[CT_HOST_MAX]; /* the address that the name means; "" = none of this machine */
    char local[IF_NAMESIZE]; /* the interface of --local-addr; "" = not given, or no interface has
                                it */
    bool nccl_configured;    /* a configuration file of NCCL chooses its interface */
    char way[IF_NAMESIZE]; /* the interface that leads to the store; only ct_interface_expect() sets
                              it */
};

/* Looks up `name` and `local_addr` ("" = none). Asks the name service, which may take seconds. */
void ct_interface_look(const char *name, const char *local_addr, char *const *env,
                       struct ct_interface_facts *out);

/* Gives the name of the interface that holds this address, a literal, if the interface is up and
 * not the loopback. */
bool ct_interface_of_text(const char *address, char out[IF_NAMESIZE]);

/* As ct_interface_look(), and also sets `way`, if it can be known before the store is reached. All
 * zero for a job of one machine. Asks the name service. */
void ct_interface_expect(const struct ct_options *options, const struct ct_resolved *resolved,
                         const struct ct_machine *machine, char *const *env,
                         struct ct_interface_facts *out);

/* Does the environment leave open which interface gloo uses, or which one NCCL uses? */
bool ct_interface_is_open(char *const *env);

#endif
