/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the address that resolve.c has chosen, by binding it, and derives from it what workers are
 * told. Failure modes: a name that the resolver does not know.
 */
#include "launcher/setup/store_address.h"

#include "common/addr.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int check_local(const char *option, const char *host, struct ct_err *err)
{
    struct sockaddr_storage addr;
    socklen_t len;
    int rc = ct_addr_resolve(host, 0, &addr, &len, err);
    if (rc != 0) {
        return ct_err_wrap(err, "%s", option);
    }
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, len) != 0) {
        int error = errno;
        rc = error == EADDRNOTAVAIL
                 ? ct_err_set(err, CT_EINVAL,
                              "%s %.200s is not an address of this machine; a job of several is "
                              "started with --nnodes",
                              option, host)
                 : ct_err_sys(err, ct_code_from_errno(error), error, "%s: cannot listen on %s",
                              option, host);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return rc;
}

bool ct_store_address_is_own_name(const char *host)
{
    struct sockaddr_storage addr;
    socklen_t len;
    return !ct_addr_literal(host, 0, &addr, &len) &&
           ct_addr_resolve(host, 0, &addr, &len, NULL) == 0 &&
           ct_addr_is_loopback((const struct sockaddr *)&addr);
}

bool ct_store_address_is_store(const struct ct_store_address *address, const char *told)
{
    return told[0] == '\0' || ct_addr_is_any(told) || strcmp(told, address->host) == 0;
}

const char *ct_store_address_master(const struct ct_store_address *address, const char *told,
                                    bool on_loopback, const char *store_addr)
{
    if (!ct_store_address_is_store(address, told)) {
        return told;
    }
    if (on_loopback && store_addr[0] != '\0') {
        return store_addr;
    }
    /* A store that listens on all addresses, even on IPv6's, can be reached at this one. */
    return ct_addr_is_any(address->host) ? "127.0.0.1" : address->host;
}

/* Do all machines find the store? */
static int check_shared(const struct ct_store_address *address, struct ct_err *err)
{
    if (address->option == NULL) {
        return ct_err_set(err, CT_EINVAL,
                          "the address of the job's store is missing: c10d needs "
                          "--rdzv-endpoint HOST[:PORT]");
    }
    if (address->port == 0) {
        bool apart = strcmp(address->option, "--master-addr") == 0;
        return ct_err_set(err, CT_EINVAL,
                          "%s: port 0 is a free one, which other machines cannot know; give all "
                          "machines the same port",
                          apart ? "--master-port" : address->option);
    }
    return 0;
}

int ct_store_address_check(const struct ct_store_address *address, bool shared, struct ct_err *err)
{
    int rc = shared ? check_shared(address, err) : 0;
    if (rc != 0 || address->duty != CT_HOST_HERE) {
        return rc;
    }
    rc = address->also != NULL ? check_local("--rdzv-endpoint", address->also, err) : 0;
    if (rc == 0 && address->option != NULL) {
        rc = check_local(address->option, address->host, err);
    }
    return rc;
}
