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
    CT_HOST_HERE,      /* this ctrun; if it cannot, that is an error */
    CT_HOST_ELSEWHERE, /* another one, now or soon */
    CT_HOST_IF_OURS,   /* this ctrun if the address is ours and nobody listens there yet */
};

/* Strings are borrowed. */
struct ct_store_address {
    enum ct_host_duty duty;
    const char *host;   /* what the store listens on */
    uint16_t port;      /* 0 = the kernel chooses */
    const char *master; /* MASTER_ADDR if this ctrun hosts the store as node rank 0; it listens on
                           this address, too */
    const char *option; /* the option that named the host; NULL = none did */
    const char *also;   /* another host that must be this machine, NULL = none: the host of the
                           rendezvous endpoint, if --local-addr has replaced it */
};

/* Can the store be at this address? If it must be on this machine, a socket is bound to find out;
 * names are never compared. The text names the option. CT_EINVAL when the options do not say where
 * the store is, also to the other machines of a `shared` job, or when the only machine is given the
 * address of another one; CT_ENOENT when the resolver does not know a name: if several machines
 * start, it may know it later. */
CT_MUST_CHECK int ct_store_address_check(const struct ct_store_address *address, bool shared,
                                         struct ct_err *err);

/* Is `host` a name that means the loopback on this machine but another address on other machines?
 * Debian's /etc/hosts has the machine's own name at 127.0.1.1. False for "localhost" and for
 * addresses. May ask the resolver. */
bool ct_store_address_is_own_name(const char *host);

/* Does `told`, the MASTER_ADDR that node rank 0 has sent, mean the machine of the job's store? ""
 * and 0.0.0.0 mean it, too. */
bool ct_store_address_is_store(const struct ct_store_address *address, const char *told);

/* MASTER_ADDR for the workers of this machine, after node rank 0 has sent `told`. It may differ
 * from machine to machine, as long as each reaches the same store. An address that other machines
 * cannot connect to (0.0.0.0) is replaced by the one by which this machine reaches the store.
 *
 * `on_loopback`: this machine has connected to the store over the loopback, so the store is here.
 * Then workers get `store_addr`, the address by which other machines connect ("" = none has),
 * because workers publish the address by which they reach the store as their own. Borrowed from the
 * arguments. */
const char *ct_store_address_master(const struct ct_store_address *address, const char *told,
                                    bool on_loopback, const char *store_addr);

#endif
