/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the job's store listens and who hosts it, as resolve.h decides it.
 */
#ifndef CT_LAUNCHER_SETUP_STORE_ADDRESS_H
#define CT_LAUNCHER_SETUP_STORE_ADDRESS_H

#include "common/err.h"

#include <stdbool.h>
#include <stdint.h>

enum ct_host_duty {
    CT_HOST_HERE,      /* this ctrun, or it is an error */
    CT_HOST_ELSEWHERE, /* never this one: the store is there already or will be */
    CT_HOST_IF_OURS,   /* this one if the address is ours and nobody listens there yet */
};

/* Strings are borrowed. */
struct ct_store_address {
    enum ct_host_duty duty;
    const char *host;   /* what the store listens on */
    uint16_t port;      /* 0 = the kernel chooses */
    const char *master; /* MASTER_ADDR when we host and are node rank 0, and listened on as well */
    const char *option; /* that named the host; NULL = none did */
    const char *also;   /* another host that must be this machine, NULL = none: the rendezvous
                           endpoint when --local-addr says by which address to reach us */
};

/* Can the store be there at all? Where it must be here, that is told by binding a socket, never by
 * comparing names. The text names the option. CT_EINVAL when the options do not say where, or
 * another machine's address is given to the only one; other codes when a name means nothing. */
CT_MUST_CHECK int ct_store_address_check(const struct ct_store_address *address,
                                         struct ct_err *err);

/* Is `host` a name that means the loopback here, as Debian's /etc/hosts has it for the machine's
 * own (127.0.1.1), and so something else on other machines? "localhost" is not; literals say what
 * they say. May ask the resolver. */
bool ct_store_address_is_own_name(const char *host);

/* Does `told`, the MASTER_ADDR that node rank 0 has told, mean the machine of the job's store? ""
 * and 0.0.0.0 do, too. */
bool ct_store_address_is_store(const struct ct_store_address *address, const char *told);

/* MASTER_ADDR for the workers of this machine, after node rank 0 has told `told`. It may differ
 * from machine to machine, as long as each reaches the same store: what no other machine can go to
 * (0.0.0.0) is told as the address by which this one has come to the store. `on_loopback`: that
 * address is the loopback, so the store is on this very machine; then workers are told
 * `store_addr`, by which others come here ("" = none has), since they publish the address by which
 * they have come to the store as their own. Borrowed from the arguments. */
const char *ct_store_address_master(const struct ct_store_address *address, const char *told,
                                    bool on_loopback, const char *store_addr);

#endif
